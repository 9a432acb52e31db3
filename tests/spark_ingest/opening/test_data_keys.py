"""Data keys of rows: opened once, bound to publisher and scope, and a reason where one stays closed."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from bridge.document import RecordRights
from keys.envelope import DataKey
from keys.errors import BadContent, BadFrame, BadShare, KeysError, WrongEpochKey
from keys.sharetree import encode_shares
from spark_ingest.opening import data_keys
from spark_ingest.opening.data_keys import KeyUse, OpenedKeys, reason_of
from spark_ingest.secrets.grants import Grants
from spark_ingest.secrets.sharebox import ShareBox
from spark_ingest.spool.writer import SpooledKey
from tests.spark_ingest.region import Overlay, Publisher, Sealed
from tests.support.regions import fresh

LOCAL = hashlib.sha256(b"local key").digest()


def rights_in(scope: str) -> str:
    return RecordRights(scope, (), ("#",)).to_text()


class World:
    """An overlay, a publisher, and what a spool would hold of its keys."""

    def __init__(self) -> None:
        self.overlay = Overlay()
        self.publisher = Publisher(self.overlay)
        self.materials: dict[bytes, tuple[bytes, bytes]] = {}
        self.opened = OpenedKeys()

    def seal(self, topic: str = "plant/1", **fields: Any) -> tuple[Sealed, KeyUse]:
        sealed = self.publisher.seal(topic, **fields)
        assert sealed.key is not None
        header, _, shares = sealed.key
        self.materials[header.key_id] = (header.encode(), encode_shares(shares[:2]))
        scope = self.overlay.scope_of(topic)
        assert scope is not None
        return sealed, KeyUse(header.key_id, sealed.publication[0], rights_in(scope.filter))

    def get(self, *uses: KeyUse, grants: Grants | None = None) -> list[DataKey | str]:
        return self.opened.keys_for(uses, self.materials, grants or self.overlay.held())


world = fresh(World)


def test_a_key_opens_what_was_sealed_with_it(world: World) -> None:
    sealed, use = world.seal(payload=b"21.5")
    (key,) = world.get(use)
    assert isinstance(key, DataKey)
    header = sealed.signed.header
    assert b"21.5" in key.open(header.prefix(), header.sequence, sealed.topic, sealed.content)


def test_keys_come_in_the_order_of_their_uses_and_beside_reasons(world: World) -> None:
    _, first = world.seal("plant/1")
    _, second = world.seal("entities/1")
    missing = KeyUse(bytes(16), first.publisher, rights_in("plant/#"))
    found = world.get(second, missing, first)
    assert [isinstance(each, DataKey) for each in found] == [True, False, True]
    assert found[1] == "key: the spool holds no key header for this row"
    assert found[0] is world.get(second)[0], "opened once"
    assert found[0] is not found[2]


def test_an_opened_key_is_kept_without_its_material_until_the_scope_keys_change(world: World) -> None:
    _, use = world.seal()
    (key,) = world.get(use)
    world.materials.clear()
    assert world.get(use) == [key]
    world.opened.drop_keys()
    assert world.get(use) == ["key: the spool holds no key header for this row"]


@pytest.mark.parametrize("what", ["scope", "publisher", "key_id"])
def test_a_header_of_another_key_publisher_or_scope_opens_nothing(world: World, what: str) -> None:
    _, use = world.seal("plant/1")
    other = Publisher(world.overlay, "gw2")
    wrong: dict[str, Any] = {
        "scope": {"rights": rights_in("entities/#")},
        "publisher": {"publisher": other.identity.party_id},
    }
    if what == "key_id":
        world.materials[bytes(15) + b"x"] = world.materials[use.key_id]
        use = use._replace(key_id=bytes(15) + b"x")
    else:
        use = use._replace(**wrong[what])
    assert world.get(use) == ["key: its header belongs to another key, publisher or scope"]


def test_without_the_epoch_key_the_reason_names_what_is_missing(world: World) -> None:
    _, use = world.seal()
    for grants in (Grants({}), world.overlay.held(names=[])):
        (reason,) = world.get(use, grants=grants)
        assert isinstance(reason, str)
        assert reason.startswith("grant: the grants file has no key for scope plant/#")


def test_shares_that_are_sealed_need_the_local_key(world: World) -> None:
    _, use = world.seal()
    header, shares = world.materials[use.key_id]
    world.materials[use.key_id] = (header, ShareBox(LOCAL, bytes).seal(SpooledKey(header, shares)).shares)
    (reason,) = world.get(use)
    assert reason == "grant: the file of scope keys lacks the local key that seals the shares of this spool"
    (key,) = world.get(use, grants=Grants(world.overlay.held().scopes, (LOCAL,)))
    assert isinstance(key, DataKey)


@pytest.mark.parametrize(("header", "shares"), [(b"", b""), (b"nonsense", b""), (None, b"nonsense"), (None, b"")])
def test_damaged_material_is_a_reason_and_not_remembered(world: World, header: bytes | None, shares: bytes) -> None:
    _, use = world.seal()
    whole = world.materials[use.key_id]
    world.materials[use.key_id] = (whole[0] if header is None else header, shares)
    (reason,) = world.get(use)
    assert isinstance(reason, str)
    assert reason.partition(":")[0] in ("frame", "shares", "key")
    world.materials[use.key_id] = whole  # another group of the spool holds it whole
    assert isinstance(world.get(use)[0], DataKey)


def test_what_a_process_keeps_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_keys, "KEYS_OPENED_MAX", 1)
    monkeypatch.setattr(data_keys, "TOPICS_REMEMBERED", 1)
    _, first = world.seal("plant/1")
    _, second = world.seal("entities/1")
    world.get(first)
    world.get(second)
    materials, world.materials = world.materials, {}
    assert isinstance(world.get(second)[0], DataKey)
    assert isinstance(world.get(first)[0], str), "evicted"
    world.materials = materials
    assert isinstance(world.get(first)[0], DataKey), "and recombined again"


@pytest.mark.parametrize(
    ("error", "kind"), [(WrongEpochKey, "grant"), (BadContent, "content"), (BadShare, "shares"), (BadFrame, "frame")]
)
def test_a_reason_names_what_is_to_blame(error: type[KeysError], kind: str) -> None:
    assert reason_of(error("why")) == f"{kind}: why"
