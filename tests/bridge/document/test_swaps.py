"""Frames of swaps: read back as they were written, and refused where a byte is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.document.swaps import ENDORSEMENTS_MOST, SignedSwap, SwapEndorsement, SwapNews
from bridge.document.trees import STEPS_MOST, TreeChange
from keys.errors import BadFrame, BadSignature
from keys.frames import Reader
from tests.sim.organised_world import BOSS, endorsements, organised, swap_on
from tests.sim.world import NOW

WORLD = organised()
SWAP = swap_on(WORLD.overlay, WORLD, (1, 4), (2, 3))
AGREED = endorsements(WORLD, SWAP, "r1a", "r2b")


def test_frames_read_back() -> None:
    assert SignedSwap.decode(SWAP.encode()) == SWAP
    assert SwapEndorsement.decode(AGREED[0].encode()) == AGREED[0]
    news = SwapNews((SWAP,), AGREED)
    assert SwapNews.decode(news.encode()) == news
    assert SwapNews.decode(SwapNews().encode()) == SwapNews()
    assert news
    assert not SwapNews()
    SWAP.verify(WORLD.overlay.owner)
    assert AGREED[0].is_of(WORLD.overlay.members["r1a"].certificates)
    assert not AGREED[0].is_of(WORLD.overlay.members["r2b"].certificates)


def test_a_frame_with_a_byte_more_or_less_or_of_another_kind_is_refused() -> None:
    for frame, read in (
        (SWAP.encode(), SignedSwap.decode),
        (AGREED[0].encode(), SwapEndorsement.decode),
        (SwapNews((SWAP,), AGREED).encode(), SwapNews.decode),
    ):
        for wrong in (frame[:-1], frame + b"\0", b"\x01\x07" + frame[2:], b""):
            with pytest.raises(BadFrame):
                read(wrong)  # type: ignore[operator]


@pytest.mark.parametrize("steps", [0, 2, STEPS_MOST + 1])
def test_a_swap_that_follows_no_tree_is_refused(steps: int) -> None:
    with pytest.raises(BadFrame):
        SignedSwap.decode(replace(SWAP, steps=steps).encode())


def test_more_endorsements_than_there_may_be_are_refused_unread() -> None:
    head = SwapNews((SWAP,)).encode()[:-2]
    with pytest.raises(BadFrame, match=str(ENDORSEMENTS_MOST)):
        SwapNews.decode(head + (ENDORSEMENTS_MOST + 1).to_bytes(2))


@pytest.mark.parametrize("change", [{"number": 2, "steps": 2}, {"added": (1, 3)}, {"grace_s": 1}, {"since_ms": 5}])
def test_what_was_altered_is_not_what_was_signed(change: dict[str, object]) -> None:
    with pytest.raises(BadSignature):
        replace(SWAP, **change).verify(WORLD.overlay.owner)  # type: ignore[arg-type]


def test_who_carries_is_never_an_organiser_and_no_certificate_is_made_up() -> None:
    replica = swap_on(WORLD.overlay, WORLD, (1, 4), (2, 3), by="r1a")
    with pytest.raises(BadSignature, match="organises nothing"):
        replica.verify(WORLD.overlay.owner)
    mine = replace(SWAP.certificate, region=3)
    with pytest.raises(BadSignature):
        replace(SWAP, certificate=mine).signed(WORLD.identities[BOSS]).verify(WORLD.overlay.owner)


def test_a_tree_may_follow_one_of_some_numbers_before() -> None:
    change = TreeChange(7, int(NOW), 2, 60, ((1, 2),)).followed_by(((1, 3),), 9, 2, 5, 101)
    assert (change.number, change.steps) == (108, 101)
    assert TreeChange.read(Reader(change.encode())) == change
    with pytest.raises(BadFrame):
        TreeChange.read(Reader(replace(change, number=100).encode()))
    with pytest.raises(BadFrame):
        TreeChange.read(Reader(replace(change, number=300, steps=STEPS_MOST + 1).encode()))
