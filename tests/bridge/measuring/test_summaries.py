"""Summaries read back as they were written, and what is not whole, in order or signed by its author is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.measuring.summaries import (
    FAILED_MAX,
    HOPS_MAX,
    InterestSummary,
    ReplicaSummary,
    check_author,
    decode_said,
)
from keys.errors import BadFrame, BadSignature, NotAuthorised
from tests.sim.world import World
from tests.support.regions import row_of_regions, shared

SAID = ReplicaSummary(
    "r1a", 1, 30_000_000, 60, 7, 4, processing_us=120, queued=3, forwarded=500, links=((2, 900), (5, 40_000)),
    rates=((2, 60),), failed=(("r2a", 1_800_000_000),),
)  # fmt: skip


world = shared(row_of_regions, 2, {"g1": 1})


def spoken(world: World) -> ReplicaSummary:
    name = world.overlay.views[1].members[0]
    return replace(SAID, member=name).signed(world.identities[name])


def test_both_read_back(world: World) -> None:
    said = spoken(world)
    assert decode_said(said.encode()) == said
    other = InterestSummary(said.member, 1, 30_000_000, 60, 4, b"\x05" * 12_500).signed(world.identities[said.member])
    assert decode_said(other.encode()) == other
    check_author(said, world.overlay)
    check_author(other, world.overlay)


def test_every_byte_is_signed(world: World) -> None:
    """Whoever passes it on changes nothing, not even how far it goes."""
    whole = spoken(world).encode()
    for at in range(len(whole)):
        changed = whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :]
        with pytest.raises((BadFrame, BadSignature, NotAuthorised)):
            check_author(decode_said(changed), world.overlay)


def test_nobody_speaks_for_another_region_or_member(world: World) -> None:
    said = spoken(world)
    identity = world.identities[said.member]
    for wrong in (
        replace(said, region=2).signed(identity),
        replace(said, member=world.overlay.views[1].members[1]).signed(identity),
        replace(said, member="stranger").signed(identity),
    ):
        with pytest.raises((NotAuthorised, BadSignature)):
            check_author(wrong, world.overlay)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(SAID, links=((5, 1), (2, 1))),
        replace(SAID, links=((2, 1), (2, 1))),
        replace(SAID, hops=0),
        replace(SAID, hops=HOPS_MAX + 1),
        replace(SAID, interval_s=0),
        replace(SAID, failed=tuple((f"r{at:03}", 1) for at in range(FAILED_MAX + 1))),
        replace(SAID, failed=(("b", 1), ("a", 1))),
    ],
)
def test_what_is_out_of_order_or_too_much_is_refused(wrong: ReplicaSummary) -> None:
    with pytest.raises(BadFrame):
        ReplicaSummary.decode(wrong.encode() + bytes(64))


@given(st.binary(max_size=300))
def test_nothing_but_a_bad_frame_comes_of_bytes(data: bytes) -> None:
    for start in (b"", b"\x01\x22\x00", b"\x01\x23\x00"):
        try:
            decode_said(start + data)
        except BadFrame:
            continue
