"""One member's files, loaded and checked before anything runs: what a start refuses, in one line each."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.document import OverlayError
from bridge.wire import SESSION_S
from gateway import party as module
from gateway.base import ConfigError, Settings, load
from gateway.data import StoreError
from gateway.mqtt5.types import ReasonCode
from gateway.overlay import KeyMaterialError
from gateway.party import SEED_AGAIN_S, Party, SplitSeeds, build, end_session
from gateway.setup import Made
from gateway.trust import TrustDomain, TrustError
from keys.identity import Role
from tests.support.files import edited


def settings(made: Made, name: str = "g1", change: Callable[[dict[str, Any]], object] = lambda _: None) -> Settings:
    path = made.directory / name / "broker.yaml"
    with edited(path) as content:
        change(content)
    return load(path)


@pytest.mark.parametrize(
    ("name", "role", "granted"),
    [("g1", Role.GATEWAY, ["plant/#"]), ("r1", Role.REPLICA, []), ("k1", Role.KEY_SERVER, [])],
)
def test_a_member_has_what_its_role_needs_and_no_more(plant: Made, name: str, role: Role, granted: list[str]) -> None:
    party = Party(settings(plant, name))
    assert (party.name, party.local.role) == (name, role)
    assert [secret.clear_filter for secret in party.granted] == granted
    assert [secret.clear_filter for secret in party.outgoing] == granted


def test_who_is_no_member_is_told_to_hand_in_a_card(plant: Made) -> None:
    other = plant.directory / "g1"
    (other / "identity").rename(plant.directory / "aside")
    domain = TrustDomain.create(plant.directory / "domain-x", "x-works", time.time())
    domain.issue("x9", Role.GATEWAY, (), other / "identity", time.time())
    with pytest.raises(OverlayError, match=r"x9 is no member of .*overlay\.json; ask the owner to add your card"):
        Party(settings(plant))


def test_without_an_overlay_section_there_is_no_party() -> None:
    with pytest.raises(ConfigError, match="has no overlay section; add identity and overlay file"):
        Party(Settings())


def test_an_identity_that_is_not_there(plant: Made) -> None:
    with pytest.raises(TrustError, match="holds no identity"):
        Party(settings(plant, change=lambda content: content["overlay"].update(identity="none")))


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"protect": [{"filter": "plant/#"}]}, "tokens is False here, True in the owner's policy; make them"),
        ({"protect": [{"filter": "plant/#", "tokens": True, "mode": "one"}]}, "mode is one here, "),
        ({"protect": [{"filter": "plant/#", "tokens": True, "regions": ["far"]}]}, r"regions is \['far'\] here, "),
        ({"protect": [], "share_plain": ["plant/#"]}, "share_plain: plant/# is no plain scope of the policy"),
        ({"key_server": {"material": "m"}}, "overlay.key_server is for key servers, g1 is a gateway"),
    ],
)
def test_what_differs_from_the_owners_policy_is_no_surprise_later(
    plant: Made, section: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        Party(settings(plant, change=lambda content: content["overlay"].update(section)))


def test_a_key_server_needs_its_section(plant: Made) -> None:
    with pytest.raises(ConfigError, match="k1 is a keyserver"):
        Party(settings(plant, "k1", lambda content: content["overlay"].pop("key_server")))


def test_a_member_needs_a_data_directory(plant: Made) -> None:
    party = Party(settings(plant, change=lambda content: content.pop("data")))
    with pytest.raises(ConfigError, match="needs a data directory; add `data: DIR` or --data DIR"):
        build(party)


def test_a_key_server_without_material_does_not_start_and_leaves_its_store_to_the_next(plant: Made) -> None:
    party = Party(settings(plant, "k1"))
    material = plant.directory / "k1" / "material"
    content = material.read_bytes()
    material.unlink()
    for _ in range(2):  # the store is closed again: it could not be opened twice
        with pytest.raises(KeyMaterialError, match="no such file, and no material is kept; ask the overlay's owner"):
            build(party)
    material.touch(0o600)
    material.write_bytes(b"nonsense")
    with pytest.raises(KeyMaterialError, match="ask the overlay's owner for the right file"):
        build(party)
    material.write_bytes(content)
    build(party)
    assert not material.exists(), "taken in and erased"


@pytest.mark.attack(8)
def test_a_seed_that_the_disk_does_not_keep_is_none_and_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    """One that lasts until we end would split what is split already otherwise after the next start."""

    class Disk:
        full, asked = True, 0

        def split_seed(self, epoch: int) -> bytes:
            self.asked += 1
            if self.full:
                raise StoreError("the disk is full; free space")
            return b"%d" % epoch

    disk, now = Disk(), [0.0]
    data: Any = disk
    seeds = SplitSeeds(data, lambda: now[0])
    assert [seeds(7), seeds(7)] == [None, None]
    assert disk.asked == 1
    assert "the disk is full; free space; shares of epoch 7 are withheld" in caplog.text
    disk.full, now[0] = False, SEED_AGAIN_S
    assert seeds(7) == b"7"


@pytest.mark.parametrize("alive", [True, False])
def test_the_session_of_a_member_that_left_ends(alive: bool) -> None:
    done: list[Any] = []
    session = SimpleNamespace(end_session=lambda: done.append("ended") or [])
    client = SimpleNamespace(session=session, alive=alive)
    lifecycle: Any = SimpleNamespace(peers={"r9": client}, dismiss=lambda *told: done.append(told), perform=None)
    end_session(lifecycle, "stranger")
    assert done == []
    end_session(lifecycle, "r9")
    assert done[0] == (client, ReasonCode.NOT_AUTHORIZED)
    assert ("ended" in done) is alive


def test_a_party_without_tracing_or_witnesses_loads_neither(plant: Made) -> None:
    broker: Any = object()
    ends: Any = None
    assert module._traced(Settings(), ends, lambda count: None)(broker) is None
    assert module._watched(Settings(), ends)(broker) is None


def test_replicas_are_asked_to_keep_for_a_gateway_for_as_long_as_its_subscription_reckons_with() -> None:
    assert SESSION_S[Role.GATEWAY] == module.SESSION_EXPIRY_S
