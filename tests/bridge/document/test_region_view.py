"""One view of a region: its numbers, its frames, and who agreed to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.document.region_view import VIEW_GRACE_S, Endorsement, RegionView
from keys.errors import BadFrame, BadSignature
from keys.identity import Identity, verify
from tests.keys.helpers import assert_strict

OWNER, REPLICA, STRANGER = (Identity.generate(bytes([n]) * 32) for n in (1, 2, 3))
FIRST = RegionView(4, 7, "north", ("a", "b", "c")).signed(OWNER)
NEXT = FIRST.successor(("b", "c", "d", "e"), since_ms=5_000, grace_s=30).signed(OWNER)
TRUSTED = RegionView(5, 1, "shed", ("x",), trusted=True).signed(OWNER)


@pytest.mark.parametrize(
    ("size", "threshold", "faults"), [(1, 1, 0), (2, 2, 0), (3, 2, 1), (4, 3, 1), (5, 3, 2), (6, 4, 2), (7, 4, 3)]
)
def test_a_majority_shares_and_a_minority_may_be_bad(size: int, threshold: int, faults: int) -> None:
    view = RegionView(1, 1, "r", tuple(f"m{i}" for i in range(size)))
    assert (view.threshold, view.faults) == (threshold, faults)
    assert (view.hop.region, view.hop.view, view.hop.threshold, view.hop.count) == (1, 1, threshold, size)
    assert view.faults < view.threshold, "the bad alone are no quorum"


def test_places_count_from_one() -> None:
    assert [FIRST.place_of(member) for member in "abc"] == [1, 2, 3]
    with pytest.raises(ValueError, match="not in"):
        FIRST.place_of("d")


def test_a_quorum_is_k_members_whoever_else_agrees() -> None:
    assert FIRST.quorum(["a", "c"])
    assert not FIRST.quorum(["a", "x", "y", "z"])
    assert not FIRST.quorum(["a", "a", "a"])
    assert FIRST.members_among(["c", "x", "c"]) == {"c"}


@pytest.mark.parametrize("view", [FIRST, NEXT, TRUSTED], ids=["first", "next", "trusted"])
def test_the_frame_is_strict(view: RegionView) -> None:
    assert_strict(lambda data: RegionView.decode(data, b""), lambda made: made.signed_bytes(), view.signed_bytes())  # type: ignore[attr-defined]
    assert RegionView.decode(view.signed_bytes(), view.signature, view.former) == view


def test_the_owner_signs_a_view_and_the_view_before() -> None:
    assert NEXT.former is not None
    for view in (NEXT, NEXT.former):
        verify(OWNER.public_bytes, "veilmq/1 view", view.signed_bytes(), view.signature)


def test_a_successor_names_its_predecessor_and_holds_one_former_view() -> None:
    assert (NEXT.region, NEXT.name, NEXT.number, NEXT.since_ms, NEXT.grace_s) == (4, "north", 8, 5_000, 30)
    assert NEXT.predecessor == FIRST.digest
    assert (FIRST.is_successor, NEXT.is_successor) == (False, True)
    third = NEXT.successor(("b", "c", "d"), since_ms=6_000)
    assert third.former == replace(NEXT, former=None)
    assert third.former is not None
    assert third.former.former is None
    assert third.grace_s == VIEW_GRACE_S
    assert TRUSTED.successor(("x", "y"), 1).trusted


def test_the_former_view_is_no_part_of_the_digest() -> None:
    assert replace(NEXT, former=None).digest == NEXT.digest
    changes = ({"number": 9}, {"members": ("b",)}, {"grace_s": 31}, {"since_ms": 1}, {"trusted": True}, {"name": "n"})
    digests = {replace(NEXT, **change).digest for change in changes}  # type: ignore[arg-type]
    assert len(digests | {NEXT.digest}) == len(changes) + 1


def test_a_later_view_without_a_predecessor_is_refused() -> None:
    body = NEXT.signed_bytes()
    assert body.endswith(FIRST.digest)
    with pytest.raises(BadFrame, match="predecessor"):
        RegionView.decode(body[:-32] + bytes(32), b"")


# ------------------------------------------------------------------------------------------ endorsements

ENDORSEMENT = Endorsement.sign_view(NEXT, "b", REPLICA)


def test_an_endorsement_is_of_one_view_by_one_member() -> None:
    ENDORSEMENT.verify(REPLICA.public_bytes)
    body, signature = ENDORSEMENT.encode()[:-64], ENDORSEMENT.encode()[-64:]
    verify(REPLICA.public_bytes, "veilmq/1 endorsement", body, signature)
    assert ENDORSEMENT.names_view(NEXT)
    assert not ENDORSEMENT.names_view(FIRST)
    assert not ENDORSEMENT.names_view(replace(NEXT, members=("b",)))
    assert not ENDORSEMENT.names_view(replace(NEXT, region=5))


@pytest.mark.parametrize("changes", [{"region": 5}, {"number": 9}, {"digest": bytes(32)}, {"member": "c"}])
def test_nobody_alters_an_endorsement_or_gives_one_for_another(changes: dict[str, object]) -> None:
    with pytest.raises(BadSignature):
        replace(ENDORSEMENT, **changes).verify(REPLICA.public_bytes)  # type: ignore[arg-type]
    with pytest.raises(BadSignature):
        ENDORSEMENT.verify(STRANGER.public_bytes)
    with pytest.raises(BadSignature):
        replace(ENDORSEMENT, signature=REPLICA.sign("veilmq/1 view", ENDORSEMENT.signed_bytes())).verify(
            REPLICA.public_bytes
        )


def test_the_frame_of_an_endorsement_is_strict() -> None:
    assert_strict(Endorsement.decode, Endorsement.encode, ENDORSEMENT.encode())  # type: ignore[arg-type]
    assert Endorsement.decode(ENDORSEMENT.encode()) == ENDORSEMENT


@given(st.binary(max_size=150))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    for decode in (Endorsement.decode, lambda frame: RegionView.decode(frame, b"")):
        with pytest.raises(BadFrame):
            decode(data)
