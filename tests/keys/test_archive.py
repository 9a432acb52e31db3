"""Archives of ended epochs: each reader finds its own box, and only a whole archive says that there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keys.archive import archive_info, find_box, make_archive
from keys.epochs import KeyName
from keys.errors import BadContent, BadFrame, KeysError
from keys.identity import Role
from keys.requests import Outputs, decode_outputs
from tests.keys.helpers import stream
from tests.keys.service import certificate_for, identity_of

NAMES = ("anna", "bert", "carl")
IDENTITIES = {name: identity_of(name) for name in NAMES}
OUTPUTS = {name: [Outputs(KeyName(f"{name}/#", 7, 0), bytes(12), ((0, name[:1].encode() * 32),))] for name in NAMES}
READERS = [(certificate_for(name, Role.GATEWAY, IDENTITIES[name]), OUTPUTS[name]) for name in NAMES]
ARCHIVE = make_archive("keys-1", 7, READERS, stream("archive"))


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_opens_its_own_box_and_no_other(name: str) -> None:
    identity = IDENTITIES[name]
    box = find_box(ARCHIVE, identity.party_id)
    assert box is not None
    info = archive_info("keys-1", identity.party_id, 7)
    assert decode_outputs(identity.open_box(box, info)) == OUTPUTS[name]
    for other in set(NAMES) - {name}:
        with pytest.raises(BadContent):
            IDENTITIES[other].open_box(box, info)


@pytest.mark.parametrize("info", [("keys-2", 7), ("keys-1", 8)])
def test_a_box_is_bound_to_its_server_and_its_epoch(info: tuple[str, int]) -> None:
    reader = IDENTITIES["anna"]
    box = find_box(ARCHIVE, reader.party_id)
    assert box is not None
    with pytest.raises(BadContent):
        reader.open_box(box, archive_info(info[0], reader.party_id, info[1]))
    with pytest.raises(BadContent):
        reader.open_box(box, archive_info("keys-1", IDENTITIES["bert"].party_id, 7))


def test_nobody_else_has_a_box() -> None:
    assert find_box(ARCHIVE, bytes(16)) is None
    assert find_box(ARCHIVE, b"\xff" * 16) is None
    assert find_box(make_archive("keys-1", 7, [], stream("none")), bytes(16)) is None


def test_every_box_has_a_key_of_its_own_and_shows_no_output() -> None:
    assert not any(outputs[0].outputs[0][1] in ARCHIVE for outputs in OUTPUTS.values())
    boxes = [find_box(ARCHIVE, identity.party_id) for identity in IDENTITIES.values()]
    assert len({box[:32] for box in boxes if box}) == 3


def test_one_order_whoever_comes_first() -> None:
    parties = [ARCHIVE[11:27]]
    at = 11
    while at < len(ARCHIVE):
        parties.append(ARCHIVE[at : at + 16])
        at += 20 + int.from_bytes(ARCHIVE[at + 16 : at + 20])
    assert parties[1:] == sorted(identity.party_id for identity in IDENTITIES.values())


def test_an_archive_out_of_order_with_a_party_twice_or_too_long_is_refused() -> None:
    entry = b"\1" * 16 + b"\0\0\0\1" + b"x"
    head = ARCHIVE[:7] + (2).to_bytes(4)
    for entries in (entry * 2, b"\2" * 16 + b"\0\0\0\1x" + entry):
        with pytest.raises(BadFrame, match="order"):
            find_box(head + entries, b"\3" * 16)
    with pytest.raises(BadFrame):
        find_box(ARCHIVE + b"\0", b"\xff" * 16)
    with pytest.raises(BadFrame):
        find_box(ARCHIVE[:1] + b"\x10" + ARCHIVE[2:], bytes(16))


@given(st.integers(0, len(ARCHIVE) - 1))
def test_a_truncated_archive_never_says_that_there_is_no_box(size: int) -> None:
    with pytest.raises(BadFrame):
        find_box(ARCHIVE[:size], b"\xff" * 16)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for archive in (data, ARCHIVE[:7] + data):
        try:
            find_box(archive, bytes(16))
        except KeysError:
            continue


def test_an_archive_is_its_boxes_by_party_whatever_order_they_came_in() -> None:
    for readers in (READERS, READERS[::-1]):
        made = make_archive("keys-1", 7, readers, stream("made anew"))
        parts = [b"\1\x11\0", (7).to_bytes(4), (3).to_bytes(4)]
        for party in sorted(identity.party_id for identity in IDENTITIES.values()):
            box = find_box(made, party)
            assert box is not None
            parts += [party, len(box).to_bytes(4), box]
        assert made == b"".join(parts)
