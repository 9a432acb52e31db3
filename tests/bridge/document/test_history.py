"""Histories in the policy: one spelling, and what replicas cannot keep is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.document import History, OverlayError, Scope
from bridge.document.history import unkept
from bridge.document.policy import Policy
from keys.envelope import Mode
from keys.errors import BadFrame
from keys.frames import Reader
from tests.sim.world import World, make_world

KEPT = History(7, 20_000, (1, 2))


def two_regions(*scopes: Scope, sizes: tuple[int, int] = (3, 3), hosted: tuple[str, ...] = ()) -> World:
    return make_world({1: sizes[0], 2: sizes[1]}, [(1, 2)], {"desk": 1}, scopes, hosted=hosted)


def test_a_policy_says_which_scopes_have_one() -> None:
    policy = two_regions(Scope("a/#", history=KEPT), Scope("b/#")).overlay.policy
    read = Policy.decode(policy.signed_bytes(), policy.signature)
    assert read == policy
    assert [scope.history for scope in read.scopes] == [KEPT, None]


def test_without_one_a_policy_is_as_it_was() -> None:
    policy = two_regions(Scope("a/#")).overlay.policy
    kept = replace(policy, scopes=(replace(policy.scopes[0], history=KEPT),))
    assert len(kept.signed_bytes()) == len(policy.signed_bytes()) + 2 + 4 + len(KEPT.encode())


@pytest.mark.parametrize(
    "history", [History(0, 16), History(1, 15), History(3_661, 16), History(1, 16, (2, 1)), History(1, 16, (1, 1))]
)
def test_others_are_refused(history: History) -> None:
    with pytest.raises(BadFrame, match="a history of"):
        History.read(Reader(history.encode()))


@pytest.mark.parametrize(
    ("scope", "sizes", "why"),
    [
        (Scope("a/#", Mode.ONE, history=KEPT), (3, 3), "in mode one"),
        (Scope("a/#", Mode.PLAIN, planes=True, history=KEPT), (3, 3), "goes by planes"),
        (Scope("a/#", Mode.BLOCKS, history=KEPT), (4, 3), "too few"),
        (Scope("a/#", history=History(7, 100, (9,))), (3, 3), "may not enter it"),
        (Scope("a/#", regions=(1,), history=History(7, 100, (2,))), (3, 3), "may not enter it"),
    ],
)
def test_what_cannot_be_kept_is_refused(scope: Scope, sizes: tuple[int, int], why: str) -> None:
    with pytest.raises(OverlayError, match=why):
        two_regions(scope, sizes=sizes)


def test_hosted_brokers_keep_nothing() -> None:
    scope = Scope("a/#", history=History(7, 100))
    with pytest.raises(OverlayError, match="keeps none"):
        make_world({1: 3}, [], {"desk": 1}, [scope], hosted=["r1a"])


@pytest.mark.parametrize("size", range(3, 9))
def test_blocks_suffice_among_regions_of_one_size(size: int) -> None:
    assert not unkept("a/#", Mode.BLOCKS, False, {1: size, 2: size}, ())
