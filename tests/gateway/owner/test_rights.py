"""Rights as the owner's record has them: from which epoch to which, and what ends at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.document.policy import Issuer, Policy, Scope
from gateway.owner.record import KnownScope, OwnerRecord
from gateway.owner.rights import SESSION_MAX_S, give, holds_key, take
from gateway.owner.signing import grant, revoke
from gateway.trust.errors import TrustError
from gateway.trust.overlay_file import load_overlay
from keys.epochs import Calendar
from keys.grants import ENDLESS, Right
from tests.gateway.owner.test_signing import DAY_S, MIDNIGHT, PUMPS, bump_of, epochs_of
from tests.support.parties import NOW, NOW_MS, Parties, ServedParties


def test_a_revocation_of_what_is_not_there_says_what_is(world: Parties) -> None:
    world.sign()
    with pytest.raises(TrustError, match="no right to read ward/#; it has read pumps/#"):
        revoke(world.out, world.owner, "spark", [("ward/#", Right.READ)], NOW)
    revoke(world.out, world.owner, "spark", None, NOW)
    with pytest.raises(TrustError, match="nothing to change"):
        revoke(world.out, world.owner, "spark", None, NOW)


def test_epochs_begin_at_a_whole_day_and_a_right_ends_with_one(served: ServedParties) -> None:
    overlay = served.sign().overlay
    assert overlay.policy.calendar.start_s(0) == MIDNIGHT
    overlay, taken = revoke(served.out, served.owner, "spark", None, MIDNIGHT + DAY_S + 5)
    assert (taken.ends_s, taken.bumped) == (MIDNIGHT + 2 * DAY_S, ())
    assert epochs_of(overlay, "spark", "pumps/#") == [(0, 1)]
    assert bump_of(overlay, "pumps/#") == 0


def test_a_right_lasts_one_epoch_more_once_keys_of_it_may_be_out(served: ServedParties) -> None:
    served.sign()
    calendar = load_overlay(served.out, NOW_MS).policy.calendar
    just_before = MIDNIGHT + DAY_S - calendar.ahead_s - calendar.skew_s
    overlay, taken = revoke(served.out, served.owner, "spark", None, just_before)
    assert epochs_of(overlay, "spark", "pumps/#") == [(0, 1)]
    assert taken.ends_s == MIDNIGHT + 2 * DAY_S


def test_revoked_at_once_means_the_epoch_before_and_a_new_bump(served: ServedParties) -> None:
    served.sign()
    later = MIDNIGHT + 4 * DAY_S
    overlay, taken = revoke(served.out, served.owner, "spark", None, later, at_once=True)
    assert (taken.ends_s, taken.bumped) == (later, ("pumps/#",))
    assert epochs_of(overlay, "spark", "pumps/#") == [(0, 3)]
    assert bump_of(overlay, "pumps/#") == 1
    again = grant(served.out, served.owner, "spark", PUMPS, later)
    assert epochs_of(again, "spark", "pumps/#") == [(0, 3), (4, ENDLESS)]
    gone, _ = revoke(served.out, served.owner, "spark", None, later, at_once=True)
    assert epochs_of(gone, "spark", "pumps/#") == [(0, 3)]  # what began in this epoch leaves nothing behind


def test_a_right_that_is_left_keeps_the_scope_without_a_new_bump(served: ServedParties) -> None:
    served.sign()
    _, taken = revoke(served.out, served.owner, "g1", [("ward/#", Right.READ)], NOW, at_once=True)
    assert taken.bumped == ()  # it still publishes there, and needs the key for that


def test_history_reaches_as_far_as_keys_are_kept(served: ServedParties) -> None:
    served.sign()
    overlay = grant(served.out, served.owner, "g1", PUMPS, MIDNIGHT + 9 * DAY_S, history=True)
    assert epochs_of(overlay, "g1", "pumps/#") == [(6, ENDLESS)]


def test_history_without_kept_epochs_is_refused(served: ServedParties) -> None:
    served.description["epochs"] = {}
    served.sign()
    with pytest.raises(TrustError, match="keeps no ended epochs"):
        grant(served.out, served.owner, "g1", PUMPS, NOW, history=True)


def test_ended_rights_are_forgotten_when_nothing_is_left_to_open(served: ServedParties) -> None:
    served.sign()
    revoke(served.out, served.owner, "spark", None, NOW)
    ends = MIDNIGHT + DAY_S + SESSION_MAX_S
    assert grant(served.out, served.owner, "g1", PUMPS, ends - 1).grants_of("spark")
    served.description["members"][1]["read"] = []
    served.description["members"][0]["read"].append("pumps/#")
    assert not served.sign(now=ends + 1).overlay.grants_of("spark")


ROOT = bytes(range(32))
CALENDAR = Calendar(0, 1000, 100, 200, 10, 2)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["grant", "revoke", "revoke --now"]),
        st.sampled_from(["g1", "g2"]),
        st.sampled_from([("a/#", Right.PUBLISH), ("a/#", Right.READ), ("#", Right.READ), ("b/#", Right.PUBLISH)]),
        st.integers(0, 1500),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_rights_are_given_and_taken_in_any_order(
    steps: list[tuple[str, str, tuple[str, Right], int]],
) -> None:
    """Against a model: until when each right lasts; and whoever lost a key at once does not hold the one in force."""
    scopes = (Scope("a/#"), Scope("b/#"))
    record = OwnerRecord("x", scopes={s.filter: KnownScope(s.filter, s.filter) for s in scopes})
    policy = Policy("x", 1, (), scopes, calendar=CALENDAR, issuer=Issuer.CHAIN, key_servers=("k",))
    ends: dict[tuple[str, str, Right], float] = {}
    now = 5000.0
    for what, member, right, pause_s in steps:
        now += pause_s
        held = record.grants(ROOT)
        bumps = dict(record.bumps)
        epoch = CALENDAR.epoch_at(now)
        try:
            if what == "grant":
                give(record, policy, member, [right], False, now)
                ends[member, *right] = float("inf")
            else:
                ended = take(record, policy, ROOT, member, [right], what == "revoke --now", now)
                ends[member, *right] = min(ended.ends_s, ends[member, *right])
        except TrustError:
            assert record.grants(ROOT) == held
            continue
        grants = record.grants(ROOT)
        for (who, clear, kind), end_s in ends.items():
            for moment in (now, now + 1000, now + 2000):
                live = [g for g in grants if (g.member, g.filter) == (who, clear) and kind in g.rights]
                assert any(g.live(CALENDAR.epoch_at(moment)) for g in live) == (moment < end_s)
        for scope in scopes:
            lost = holds_key(scope, member, held, epoch) and not holds_key(scope, member, grants, epoch)
            assert record.bumps.get(scope.filter, 0) - bumps.get(scope.filter, 0) == int(lost)
