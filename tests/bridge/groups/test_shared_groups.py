"""A gateway's shared groups: when it leases what, and which publications its local members do not get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bridge.contract import FairTable
from bridge.contract.machine import (
    Acked,
    Deliver,
    DeliverShared,
    Effect,
    GroupJoined,
    GroupLeft,
    LinkDown,
    Publication,
    Received,
    Send,
    Subscribed,
    Tick,
    Unsubscribed,
    Wire,
)
from bridge.document.policy import Scope
from bridge.groups import shared_groups as sharing
from bridge.groups.leases import GROUPS_TOPIC, Lease, group_id
from bridge.groups.shared_groups import (
    HOLD_S,
    JOIN_S,
    LEASE_S,
    LINGER_S,
    NARROWED_MS,
    RENEW_AFTER_S,
    SharedGroups,
)
from bridge.membership.adopting import canonical
from bridge.node import GatewayNode
from bridge.reader.interest import ScopeInterest
from bridge.wire.statements import SUBSCRIBE_TOPIC, Statement
from tests.bridge.helpers import counted, gateway, sent
from tests.sim.world import NOW, make_world

pytestmark = pytest.mark.invariant(36)

WORLD = make_world({1: 3}, [], {"us": 1, "them": 1, "site": 1}, [Scope("plant/#", tokens=True), Scope("open/#")])
PLANT = WORLD.secrets[0]
GROUP = ("g", "plant/#")
REPLICAS = ("r1a", "r1b", "r1c")


def leases(effects: Sequence[Effect]) -> list[Lease]:
    """What one replica is told."""
    return [Lease.decode(s.wire.payload) for s in sent(effects, "r1a") if s.wire.topic == GROUPS_TOPIC]


class Gateway:
    """`us`, with links to all replicas and the scope accepted."""

    def __init__(self, accepted: bool = True) -> None:
        self.node: GatewayNode = gateway(WORLD, "us")
        if accepted:
            for effect in self.node.handle(Subscribed("plant/#"), NOW):
                if isinstance(effect, Send) and effect.ticket:
                    self.node.handle(Acked(effect.peer, effect.ticket), NOW)

    def joined(self, now: float = NOW) -> Lease:
        (lease,) = leases(self.node.handle(GroupJoined(*GROUP), now))
        return lease

    def placed(
        self, sequence: int, sent_at: float, publisher: str = "site", now: float | None = None, **changes: object
    ) -> list[Effect]:
        """A publication that was taken and sent at one moment, and comes at once unless `now` is given."""
        publication = Publication("plant/t", b"%d" % sequence, 1, time_ms=int(sent_at * 1000))
        publication = replace(publication, **changes)  # type: ignore[arg-type]
        deliver = Deliver(publisher, sequence, publication, False, PLANT.scope.filter, int(sent_at * 1000))
        return self.node.groups.placed(deliver, sent_at if now is None else now)

    def serves(self, sequence: int, sent_at: float, publisher: str = "site", **changes: object) -> bool:
        effects = self.placed(sequence, sent_at, publisher, **changes)  # type: ignore[arg-type]
        assert isinstance(effects[0], Deliver), "ordinary subscribers get it in any case"
        return GROUP not in effects[0].groups_lost

    def hears(self, lease: Lease, now: float) -> list[Effect]:
        signed = lease.signed(WORLD.identities[lease.member])
        return self.node.handle(Received("r1a", Wire(GROUPS_TOPIC, signed.encode())), now)


def of_them(now: float, ends_s: float = LEASE_S, on: bool = True, starts_s: float = -20.0) -> Lease:
    at = int(now * 1000)
    starts, ends = int((NOW + starts_s) * 1000), at + int(ends_s * 1000)
    return Lease("them", PLANT.scope.filter, group_id(PLANT, *GROUP), at, on, starts, ends, starts, ends)


def ours_and_theirs(us: Gateway, now: float) -> tuple[list[int], list[int]]:
    """Sequences that we serve our group with, and those that they do."""
    served = [sequence for sequence in range(40) if us.serves(sequence, now)]
    return served, [sequence for sequence in range(40) if sequence not in served]


def test_the_only_gateway_serves_its_group_at_once_and_takes_part_later():
    us = Gateway()
    assert us.serves(1, NOW)
    lease = us.joined()
    assert lease.on
    assert lease.own_from_ms == NOW * 1000 + 1
    assert lease.starts_ms == (NOW + JOIN_S) * 1000
    assert lease.ends_ms == (NOW + LEASE_S) * 1000
    assert us.serves(2, NOW + 0.01)
    assert us.serves(3, NOW + JOIN_S + 1)
    assert leases(us.node.handle(GroupJoined(*GROUP), NOW + 1)) == [], "told twice, leased once"


def test_we_take_part_only_when_the_region_knows_that_we_want_the_scope():
    us = Gateway(accepted=False)
    answers = us.node.handle(Subscribed("plant/#"), NOW)
    assert us.joined().starts_ms == 0
    told = [Acked(e.peer, e.ticket) for e in answers if isinstance(e, Send) and e.ticket]
    assert leases(us.node.handle(told[0], NOW + 1)) == []
    (lease,) = leases(us.node.handle(told[1], NOW + 1))
    assert lease.starts_ms == (NOW + 1 + JOIN_S) * 1000


def test_what_others_serve_our_members_do_not_get():
    us = Gateway()
    us.joined()
    us.hears(of_them(NOW), NOW)
    assert not any(us.serves(sequence, NOW + 1) for sequence in range(20)), "until our lease begins"
    ours, theirs = ours_and_theirs(us, NOW + 5)
    assert len(ours) > 8
    assert len(theirs) > 8
    assert not any(us.serves(sequence, NOW + 5, "them") for sequence in range(20)), "their devices', their members'"
    other = Deliver("site", theirs[0], Publication("open/t", b"", 1, time_ms=int(NOW * 1000)), False, "open/#")
    assert us.node.groups.placed(other, NOW + 5) == [other], "another scope"


@pytest.mark.attack(97)
def test_while_tokens_change_a_group_is_served_by_the_leases_that_all_have():
    """Whoever does not know of the new ones yet chooses by the old ones; nobody serves what another one serves."""
    us = Gateway()
    us.joined()
    us.hears(of_them(NOW), NOW)
    before = ours_and_theirs(us, NOW + 5)
    world = make_world({1: 3}, [], {"us": 1, "them": 1, "site": 1}, [Scope("plant/#", tokens=True), Scope("open/#")])
    us.node.offered(canonical(world.renew_tokens("plant/#")), NOW + 6)
    publication = Publication("plant/t", b"x", 1, time_ms=int((NOW + 7) * 1000))
    present = world.secrets[-1].scope.filter
    delivers = [Deliver("site", n, publication, False, present, int((NOW + 7) * 1000)) for n in range(40)]
    lost = [us.node.groups.placed(each, NOW + 7)[0].groups_lost for each in delivers]  # type: ignore[union-attr]
    assert [n for n in range(40) if GROUP not in lost[n]] == before[0]


def test_a_gateway_that_leaves_is_followed_without_a_gap():
    """What it was to serve after it left is held, and taken over once the end of its lease is known; no more is."""
    us = Gateway()
    us.joined()
    us.hears(of_them(NOW), NOW)
    _, before = ours_and_theirs(us, NOW + 10)
    after = [s for s in range(100, 140) if not us.serves(s, NOW + 10.5)]
    effects = us.hears(of_them(NOW + 10.4, 0, on=False), NOW + 10.6)
    assert taken(effects) == after
    assert before
    assert after
    assert all(us.serves(s, NOW + 11) for s in range(40))
    assert not any(isinstance(e, DeliverShared) for e in us.hears(of_them(NOW + 10.7, 0, on=False), NOW + 11))


def test_what_is_held_is_bounded_in_time_and_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sharing, "HELD_MAX", 10)
    us = Gateway()
    us.joined()
    us.hears(of_them(NOW), NOW)
    patient = next(s for s in range(20) if not us.serves(s, NOW + 10, "patient"))
    flood = [s for s in range(100, 200) if not us.serves(s, NOW + 10)]
    effects = us.hears(of_them(NOW + 9, 0, on=False), NOW + 11)
    got = taken(effects)
    assert len(got) == 10
    assert set(flood[-5:]) <= set(got)
    assert patient in got, "the flooder loses its own"


def test_nothing_is_taken_over_after_the_time_for_it():
    us = Gateway()
    us.joined()
    us.hears(of_them(NOW), NOW)
    assert ours_and_theirs(us, NOW + 10)[1]
    for step in range(1, 3):
        us.node.handle(Tick(), NOW + 10 + step * (HOLD_S + 0.1))
    effects = us.hears(of_them(NOW + 9, 0, on=False), NOW + 10 + 2 * HOLD_S + 1)
    assert not any(isinstance(e, DeliverShared) for e in effects)


def test_leaving_ends_the_lease_and_gives_back_what_still_comes():
    us = Gateway()
    us.joined()
    us.hears(of_them(NOW), NOW)
    ours, _ = ours_and_theirs(us, NOW + 10)
    (ended,) = leases(us.node.handle(GroupLeft(*GROUP), NOW + 10.2))
    assert (ended.on, ended.ends_ms, ended.own_until_ms) == (False, (NOW + 10.2) * 1000, (NOW + 10.2) * 1000)
    # It was sent before we left.
    (back,) = leases(us.placed(ours[0], NOW + 10.1))
    assert (back.on, back.ends_ms) == (False, int((NOW + 10.1) * 1000))
    assert back.own_until_ms == ended.own_until_ms, "our own devices' publications we did deliver"
    assert leases(us.placed(ours[1], NOW + 10.15)) == [], "it ends there already"


def test_a_gateway_that_left_stays_subscribed_for_a_moment():
    us = Gateway()
    us.joined()
    us.node.handle(GroupLeft(*GROUP), NOW + 10)

    def unsubscribes(effects: Sequence[Effect]) -> bool:
        topics = [s.wire for s in sent(effects) if s.wire.topic == SUBSCRIBE_TOPIC]
        return any(not Statement.decode(wire.payload).on for wire in topics)

    assert not unsubscribes(us.node.handle(Unsubscribed("plant/#"), NOW + 10))
    assert us.node.next_deadline is not None
    assert us.node.next_deadline <= NOW + 10 + LINGER_S
    assert unsubscribes(us.node.handle(Tick(), NOW + 10 + LINGER_S))
    # And who is back in time has never been away.
    us.node.handle(Subscribed("plant/#"), NOW + 20)
    us.joined(NOW + 20)
    us.node.handle(GroupLeft(*GROUP), NOW + 21)
    us.node.handle(Unsubscribed("plant/#"), NOW + 21)
    us.node.handle(Subscribed("plant/#"), NOW + 22)
    assert not unsubscribes(us.node.handle(Tick(), NOW + 21 + LINGER_S))


def test_leases_are_renewed_and_only_while_a_quorum_hears_us():
    us = Gateway()
    first = us.joined()
    (second,) = leases(us.node.handle(Tick(), NOW + RENEW_AFTER_S))
    assert (second.starts_ms, second.ends_ms) == (first.starts_ms, first.ends_ms + RENEW_AFTER_S * 1000)
    for replica in REPLICAS[1:]:
        us.node.handle(LinkDown(replica), NOW + 30)
    (alone,) = leases(us.node.handle(Tick(), NOW + 2 * RENEW_AFTER_S))
    assert alone.ends_ms == second.ends_ms, "others may count on it no longer"
    assert alone.own_until_ms == (NOW + 2 * RENEW_AFTER_S + LEASE_S) * 1000, "its own devices it serves"


def test_a_former_processs_lease_is_ended_unless_its_group_is_there():
    us = Gateway()
    at = int(NOW * 1000)
    former = Lease("us", PLANT.scope.filter, group_id(PLANT, *GROUP), at, True, at, at + 60_000, at, at + 60_000)
    (ended,) = leases(us.hears(former, NOW + 5))
    assert (ended.on, ended.ends_ms, ended.starts_ms) == (False, at + 5000, former.starts_ms)
    us = Gateway()
    us.joined(NOW + 4)
    assert leases(us.hears(former, NOW + 5)) == []
    assert us.serves(1, NOW + 5), "it still explains what was sent before our new lease begins"


def queued(us: Gateway, count: int = 40) -> None:
    """What replicas kept for us while we were away comes before they say who leased what meanwhile."""
    assert not any(us.serves(sequence, NOW - 2) for sequence in range(count))


def taken(effects: Sequence[Effect]) -> list[int]:
    return [int(e.publication.payload) for e in effects if isinstance(e, DeliverShared)]


def test_after_a_restart_what_was_queued_is_ours_as_far_as_leases_of_before_say():
    us = Gateway()
    us.joined()
    queued(us)
    at = int(NOW * 1000)
    times = (at - 60_000, at + 30_000)
    former = Lease("us", PLANT.scope.filter, group_id(PLANT, *GROUP), at - 30_000, True, *times, *times)
    assert taken(us.hears(former, NOW + 1)) == [], "there may be more"
    us.hears(replace(former, member="them"), NOW + 1)
    assert us.node.next_deadline is not None
    assert us.node.next_deadline <= NOW + 1 + sharing.LEARN_S
    ours = taken(us.node.handle(Tick(), NOW + 1 + sharing.LEARN_S))
    assert 8 < len(ours) < 32
    assert ours == [s for s in range(40) if us.serves(s, NOW - 2, now=NOW + 2)], "from now on it is known"
    assert taken(us.node.handle(Tick(), NOW + 100)) == []


@pytest.mark.parametrize("sent_at", [NOW - 2, NOW + 0.1], ids=["queued", "sent since the restart"])
def test_what_others_seem_to_serve_is_ours_when_we_hear_of_our_former_lease_after_theirs(sent_at: float):
    """A replica tells leases one by one, and others' publications come in between."""
    us = Gateway()
    us.joined()
    times = (int(NOW * 1000) - 60_000, int(NOW * 1000) + 30_000)
    theirs = Lease("them", PLANT.scope.filter, group_id(PLANT, *GROUP), times[0] + 30_000, True, *times, *times)
    us.hears(theirs, NOW + 0.2)
    assert not any(us.serves(sequence, sent_at, now=NOW + 0.21) for sequence in range(40)), "theirs, for all we know"
    us.hears(replace(theirs, member="us"), NOW + 0.22)
    ours = taken(us.node.handle(Tick(), NOW + 0.2 + sharing.LEARN_S))
    assert 8 < len(ours) < 32
    assert ours == [s for s in range(40) if us.serves(s, sent_at, now=NOW + 2)]


def test_what_is_theirs_after_all_is_still_taken_over_when_they_turn_out_to_have_left():
    us = Gateway()
    us.joined()
    queued(us)
    at = int(NOW * 1000)
    times = (at - 60_000, at + 30_000)
    former = Lease("us", PLANT.scope.filter, group_id(PLANT, *GROUP), at - 30_000, True, *times, *times)
    us.hears(former, NOW)
    theirs = replace(former, member="them")
    us.hears(theirs, NOW)
    ours = taken(us.node.handle(Tick(), NOW + sharing.LEARN_S))
    ended = replace(theirs, on=False, version=at, own_until_ms=at - 5_000, ends_ms=at - 5_000)
    theirs_before = taken(us.hears(ended, NOW + 1))
    assert sorted(ours + theirs_before) == list(range(40))
    assert ours
    assert theirs_before


def test_what_was_queued_is_ours_if_nobody_says_otherwise_in_time(monkeypatch: pytest.MonkeyPatch):
    us = Gateway()
    us.joined()
    queued(us, 10)
    assert taken(us.node.handle(Tick(), NOW + HOLD_S)) == list(range(10))
    monkeypatch.setattr(sharing, "HELD_MAX", 10)
    us = Gateway()
    us.joined()
    assert [n for sequence in range(15) for n in taken(us.placed(sequence, NOW - 2))] == [0, 1, 2, 3, 4], (
        "never dropped"
    )


def test_a_retained_publication_of_before_is_not_for_the_group():
    us = Gateway()
    us.joined()
    assert not us.serves(1, NOW + 5, retain=True, time_ms=int((NOW - 60) * 1000))
    assert us.serves(2, NOW + 5, retain=True)


@pytest.mark.attack(141)
def test_who_has_too_many_groups_loses_its_own_oldest(monkeypatch: pytest.MonkeyPatch):
    """Attack: two clients join a thousand junk groups; later groups of others got no lease, and were served twice."""
    us = Gateway()
    monkeypatch.setattr(us.node.groups, "_groups", FairTable(3))
    assert len(leases(us.node.handle(GroupJoined("good", "plant/a", owner="good"), NOW))) == 1
    junk = [us.node.handle(GroupJoined(f"g{n}", "plant/a", owner="evil"), NOW) for n in range(5)]
    assert [counted(effects, "groups_unleased") for effects in junk] == [0, 0, 1, 1, 1]
    assert [[lease.on for lease in leases(effects)] for effects in junk] == [[True], [True], *[[False, True]] * 3]
    late = us.node.handle(GroupJoined("late", "plant/a", owner="late"), NOW)
    assert [lease.on for lease in leases(late)] == [False, True]
    assert us.node.handle(GroupLeft("g0", "plant/a"), NOW) == [], "forgotten"
    placed = us.node.groups.placed(
        Deliver("site", 1, Publication("plant/a", b"x", 1), False, PLANT.scope.filter, int(NOW * 1000)),
        NOW,
    )
    assert isinstance(placed[0], Deliver)
    assert ("g0", "plant/a") not in placed[0].groups_lost, "served as if no other gateway had members"


@pytest.mark.attack(193)
def test_who_joins_the_groups_of_others_and_makes_too_many_takes_no_lease_of_theirs(monkeypatch: pytest.MonkeyPatch):
    """Attack: a user joins others' group first, or later, and then a thousand junk groups: its oldest is theirs."""
    for order in (("user bad", "user good"), ("user good", "user bad")):
        us = Gateway()
        monkeypatch.setattr(us.node.groups, "_groups", FairTable(3))
        for owner in order:
            us.node.groups.join_group(("work", "plant/a"), NOW, True, owner)
        for number in range(6):
            us.node.groups.join_group((f"junk {number}", "plant/a"), NOW, True, "user bad")
        assert us.node.groups._groups.get(("work", "plant/a")) is not None
        us.node.groups.join_group(("another", "plant/a"), NOW, True, "user good")
        assert us.node.groups._groups.get(("work", "plant/a")) is not None
        assert len(us.node.groups._groups) == 3


def test_owners_of_a_group_that_are_remembered_are_bounded():
    us = Gateway()
    for number in range(3 * sharing.OWNERS_MAX):
        us.node.groups.join_group(("work", "plant/a"), NOW, True, f"user {number}")
    group = us.node.groups._groups.get(("work", "plant/a"))
    assert group is not None
    assert list(group.owners) == [f"user {number}" for number in range(2 * sharing.OWNERS_MAX, 3 * sharing.OWNERS_MAX)]


@pytest.mark.attack(140)
def test_a_group_of_which_nobody_here_may_receive_all_gets_no_lease():
    """Attack: a client that may read one topic joins a group; its gateway leased the group, and all that it was to
    serve the group with was lost."""
    us = Gateway()
    assert leases(us.node.handle(GroupJoined(*GROUP, is_whole=False), NOW)) == []
    us.hears(of_them(NOW), NOW)
    assert not any(us.serves(sequence, NOW + 10) for sequence in range(40)), "others serve all of it"
    taken_over = us.hears(replace(of_them(NOW + 11, 0.0), on=False), NOW + 11)
    assert not taken(taken_over), "theirs until they left"
    assert us.serves(99, NOW + 20), "no other gateway has members: its clients get what they may receive"
    assert leases(us.node.handle(GroupLeft(*GROUP), NOW + 21)) == []


@pytest.mark.attack(140)
def test_two_gateways_whose_clients_have_different_narrow_rights_both_serve_theirs():
    us, them = Gateway(), Gateway()
    for each in (us, them):
        assert leases(each.node.handle(GroupJoined(*GROUP, is_whole=False), NOW)) == []
        assert all(each.serves(sequence, NOW + 10) for sequence in range(40))


def test_a_group_whose_rights_became_narrow_is_left_to_others_with_the_last_seconds():
    us = Gateway()
    us.joined()
    us.hears(of_them(NOW), NOW)
    ours, _ = ours_and_theirs(us, NOW + 10)
    assert ours
    (ended,) = leases(us.node.handle(GroupJoined(*GROUP, is_whole=False), NOW + 12))
    assert not ended.on
    assert ended.ends_ms == ended.own_until_ms == (NOW + 12) * 1000 - NARROWED_MS
    assert not us.serves(100, NOW + 13)
    given_back = us.placed(ours[0], NOW + 9, now=NOW + 13)
    assert [lease.ends_ms for lease in leases(given_back)] == [(NOW + 9) * 1000], "it may be for nobody here"
    assert leases(us.node.handle(GroupJoined(*GROUP, is_whole=False), NOW + 14)) == [], "told twice, said once"
    (again,) = leases(us.node.handle(GroupJoined(*GROUP), NOW + 15))
    assert again.on


def test_what_a_former_process_leased_ends_where_the_group_is_narrow_now():
    us = Gateway()
    before = Gateway()
    lease = before.joined()
    us.node.handle(GroupJoined(*GROUP, is_whole=False), NOW + 1)
    (ended,) = leases(us.hears(lease, NOW + 1))
    assert not ended.on


def test_another_version_of_the_overlay_ends_what_a_revoked_gateway_serves():
    us = Gateway()
    us.joined()
    us.hears(of_them(NOW), NOW)
    _, theirs = ours_and_theirs(us, NOW + 10)
    effects = us.node.groups.adopt_overlay(WORLD.revoked("them", -1), WORLD.secrets, NOW + 11)
    assert set(taken(effects)) == set(theirs)


def test_without_acknowledgements_a_lease_does_not_begin():
    interest = ScopeInterest(WORLD.overlay, WORLD.identities["us"], "us", WORLD.secrets)
    shared = SharedGroups(WORLD.overlay, WORLD.identities["us"], "us", WORLD.secrets, interest.is_accepted)
    shared.join_group(GROUP, NOW)
    assert shared.reviewed(NOW) == []
    assert shared.next_deadline == NOW + RENEW_AFTER_S
