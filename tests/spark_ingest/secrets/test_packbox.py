"""The key of a pack opens for who has every key of its segment, and for nobody else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from keys.envelope import KeyName
from spark_ingest.errors import GrantsError, SpoolDamaged
from spark_ingest.secrets.grants import GrantedScope, Grants
from spark_ingest.secrets.packbox import local_tags, pack_key, seal_pack_key
from spark_ingest.secrets.sharebox import key_tag
from spark_ingest.spool.packs import PackFile, PackTable

NAMES = [KeyName("a/#", 3, 0), KeyName("a/#", 4, 1), KeyName("b/#", 0, 0)]
LOCAL = (b"l" * 32, b"m" * 32)
KEY, NONCE = b"k" * 32, b"n" * 12
GRANTS = Grants(
    {
        "a/#": GrantedScope("a/#", True, None, {NAMES[0]: b"3" * 32, NAMES[1]: b"4" * 32}),
        "b/#": GrantedScope("b/#", False),  # shares only
    },
    LOCAL,
)
TAGS = [key_tag(key) for key in LOCAL]
TABLE = PackTable("main/00000001", "part", "00", tuple(NAMES), tuple(tag.hex() for tag in TAGS), ())


def pack(**changed: object) -> PackFile:
    head = TABLE.encode()
    made = PackFile(Path("1.pack"), TABLE, head, seal_pack_key(GRANTS, NAMES, TAGS, KEY, head, NONCE), memoryview(b""))
    return replace(made, **changed)  # type: ignore[arg-type]


def scope(name: str, **changed: object) -> Grants:
    return Grants({**GRANTS.scopes, name: replace(GRANTS.scopes[name], **changed)}, LOCAL)  # type: ignore[arg-type]


def test_all_keys_open_it_in_any_order() -> None:
    assert pack_key(GRANTS, pack()) == KEY
    assert pack_key(Grants(dict(reversed(GRANTS.scopes.items())), LOCAL[::-1]), pack()) == KEY


@pytest.mark.parametrize("grants", [
    Grants(GRANTS.scopes, LOCAL[:1]),
    Grants(GRANTS.scopes),
    Grants({"a/#": GRANTS.scopes["a/#"]}, LOCAL),
    scope("a/#", keys={NAMES[0]: b"3" * 32}),
    Grants({}, LOCAL),
])  # fmt: skip
def test_who_lacks_one_of_them_opens_nothing_and_makes_none(grants: Grants) -> None:
    assert pack_key(grants, pack()) is None
    with pytest.raises(GrantsError, match="name the one of its receiver"):
        seal_pack_key(grants, NAMES, TAGS, KEY, b"", NONCE)


@pytest.mark.parametrize("grants", [
    scope("a/#", keys={NAMES[0]: b"3" * 32, NAMES[1]: b"5" * 32}),
    scope("b/#", keyed=True, keys={NAMES[2]: b"5" * 32}),
])  # fmt: skip
def test_other_keys_of_the_same_names_are_told_apart(grants: Grants) -> None:
    with pytest.raises(SpoolDamaged, match="other keys"):
        pack_key(grants, pack())


def test_another_table_or_slot_opens_nothing_and_an_erased_one_is_no_damage() -> None:
    with pytest.raises(SpoolDamaged):
        pack_key(GRANTS, pack(head=TABLE.encode() + b" "))
    with pytest.raises(SpoolDamaged):
        pack_key(GRANTS, pack(slot=bytes(59) + b"1"))
    assert pack_key(GRANTS, pack(slot=None)) is None


def test_what_no_key_protects_is_not_sealed_as_if_one_did() -> None:
    bare = Grants({"b/#": GRANTS.scopes["b/#"]})
    assert local_tags(bare) == ()
    with pytest.raises(GrantsError):
        seal_pack_key(bare, [NAMES[2]], [], KEY, b"", NONCE)
    assert local_tags(GRANTS) == (TAGS[0],)
