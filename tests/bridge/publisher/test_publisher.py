"""What the outbox holds goes to every replica: windows, what stays for whom, what is dropped, what waits."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import pytest

from bridge.contract.batches import Numbered, packed
from bridge.contract.machine import (
    Acked,
    Committed,
    Count,
    Effect,
    LinkDown,
    LinkUp,
    OutboxEntry,
    OutboxPage,
    Publication,
    Received,
    Tick,
    Wire,
)
from bridge.document import Overlay, RegionView
from bridge.document.member_budgets import MemberBudgets
from bridge.document.policy import Scope
from bridge.publisher.publisher import STRAGGLER_S, UNAUTHORISED_S, Publisher
from bridge.publisher.residents import LEAD_MAX, REPAIR_S, TOGETHER_S
from bridge.publisher.windows import WINDOW_MAX
from bridge.wire import OwnLife
from bridge.wire.pulling import PULL_TOPIC, PullRequest
from keys.envelope import Mode
from keys.errors import BadFrame, NotAuthorised
from keys.grants import Right
from keys.identity import Identity
from tests.bridge.helpers import NOW, counted, gateway, sent
from tests.bridge.publisher.test_sealing import carries_key, forgotten, signed
from tests.seldom import slow
from tests.sim.world import World
from tests.support.regions import fresh, one_region

REPLICAS = ("r1a", "r1b", "r1c")


world = fresh(one_region, "site", scopes=[Scope("plant/#"), Scope("open/#"), Scope("clear/#", Mode.PLAIN)])


def entry(sequence: int, topic: str = "plant/t", qos: int = 1, previous: int = 0, **fields: object) -> OutboxEntry:
    made = Publication(topic, b"x", qos, time_ms=int(NOW * 1000))
    return sequence, previous, replace(made, **fields)  # type: ignore[arg-type]


def publisher_of(world: World, max_age_s: float | None = None, links: bool = True) -> Publisher:
    """Without the node around it."""
    draw = random.Random(1).randbytes
    site = world.identities["site"]
    made = Publisher(world.overlay, site, "site", world.secrets, world.keys, draw, OwnLife(1), max_age_s)
    for peer in REPLICAS if links else ():
        made.link_up(peer, NOW)
    return made


def acknowledge(publisher: Publisher, sequence: int, *peers: str, now: float = NOW) -> list[Effect]:
    return [effect for peer in peers or REPLICAS for effect in publisher.acked(Acked(peer, sequence), now)]


def previous_in(effects: list[Effect]) -> dict[int, int]:
    """By sequence, the one that each header says was before it on its topic."""
    headers = [signed(send.wire).header for send in sent(effects, "r1a")]
    return {header.sequence: header.previous for header in headers}


def test_what_no_scope_takes_waits_a_day_and_each_publication_of_it_is_counted(world: World):
    """It was acknowledged to its device: the owner may bring the scope back, and nothing goes in silence."""
    publisher = publisher_of(world)
    records = [Numbered(n, Publication("elsewhere/t", b"x", 1, time_ms=int(NOW * 1000))) for n in (2, 3)]
    effects = publisher.take_entries([entry(1, "elsewhere"), (2, 0, packed("elsewhere/#", records))], NOW)
    assert (forgotten(effects), sent(effects), counted(effects, "not_authorised")) == (set(), [], 3)
    effects = publisher.tick(NOW + UNAUTHORISED_S)
    assert (forgotten(effects), counted(effects, "not_authorised_dropped")) == ({1, 2}, 3)


def test_a_replica_that_does_not_acknowledge_gets_one_window(world: World):
    node = gateway(world, "site")
    effects = node.handle(Committed(tuple(entry(n) for n in range(1, WINDOW_MAX + 11))), NOW)
    assert len(sent(effects, "r1a")) == WINDOW_MAX
    more = node.handle(Acked("r1a", 1), NOW)
    assert [s.ticket for s in sent(more)] == [WINDOW_MAX + 1]


def test_fewer_replicas_than_can_open_anything_do_not_run_far_ahead(world: World):
    """What they pass on waits for its key at every subscriber."""
    node = gateway(world, "site")
    effects = node.handle(Committed(tuple(entry(n) for n in range(1, 4 * LEAD_MAX))), NOW)
    given = [s.ticket for s in sent(effects, "r1a")]
    for ticket in given:  # grows
        given += [s.ticket for s in sent(node.handle(Acked("r1a", ticket), NOW), "r1a")]
    assert given == list(range(1, len(given) + 1))
    assert LEAD_MAX <= len(given) <= LEAD_MAX + WINDOW_MAX
    behind = [s.ticket for s in sent(effects, "r1b")]
    more = []
    for ticket in behind:  # grows
        effects = node.handle(Acked("r1b", ticket), NOW)
        behind += [s.ticket for s in sent(effects, "r1b") if s.ticket <= len(given)]
        more += sent(effects, "r1a")
    assert more, "another has caught up: what both have, subscribers can open"


@pytest.mark.long
@pytest.mark.invariant(5)
@pytest.mark.parametrize("seed", [0, *slow([1, 2, 3])])
def test_two_that_lead_each_with_what_the_other_lacks_do_not_wait_for_each_other(world: World, seed: int):
    """One replica withholds, one comes back while a backlog drains: both others may be LEAD_MAX ahead, with different
    entries, and what each lacks stands behind what neither may be the first to get."""
    node, chance = gateway(world, "site", links=False), random.Random(seed)
    waiting: dict[str, deque[int]] = {"r1b": deque(), "r1c": deque()}
    acked: dict[str, set[int]] = {peer: set() for peer in waiting}

    def collect(effects: list[Effect]) -> None:
        for peer, tickets in waiting.items():
            tickets.extend(send.ticket for send in sent(effects, peer) if send.ticket > 0)

    def commit(sequences: range, late: bool = False) -> None:
        entries = tuple(entry(n, f"plant/{n}") for n in sequences)
        collect(node.handle(OutboxPage(entries, None) if late else Committed(entries), NOW))

    def acknowledge(count: int) -> None:
        share_of_b = chance.random()
        while count and any(waiting.values()):
            first, other = ("r1b", "r1c") if chance.random() < share_of_b else ("r1c", "r1b")
            peer = first if waiting[first] else other
            ticket = waiting[peer].popleft()
            acked[peer].add(ticket)
            collect(node.handle(Acked(peer, ticket), NOW))
            count -= 1

    late, before, after = range(1, 901), range(10_001, 11_301), range(20_001, 21_001)
    collect(node.handle(LinkUp("r1a"), NOW) + node.handle(LinkUp("r1c"), NOW))
    commit(before)
    acknowledge(4 * LEAD_MAX)
    collect(node.handle(LinkUp("r1b"), NOW))
    acknowledge(chance.choice([0, 100, 500]))
    commit(late, late=True)
    acknowledge(chance.choice([0, 100, 500]))
    commit(after)
    acknowledge(10_000)
    everything = {*late, *before, *after}
    assert list(acked.values()) == [everything] * len(waiting)


def test_an_entry_is_forgotten_when_all_have_it(world: World):
    node = gateway(world, "site")
    node.handle(Committed((entry(1),)), NOW)
    assert not forgotten(node.handle(Acked("r1a", 1), NOW) + node.handle(Acked("r1b", 1), NOW))
    assert forgotten(node.handle(Acked("r1c", 1), NOW)) == {1}


def test_a_replica_that_comes_back_gets_all_it_lacks_in_order_as_sealed_before(world: World):
    node = gateway(world, "site")
    effects = node.handle(Committed(tuple(entry(n) for n in range(1, 6))), NOW)
    before = {s.ticket: s.wire for s in sent(effects, "r1b")}
    node.handle(Acked("r1b", 2), NOW)
    node.handle(LinkDown("r1b"), NOW)
    again = [send for send in sent(node.handle(LinkUp("r1b"), NOW), "r1b") if send.ticket > 0]
    assert [s.ticket for s in again] == [1, 3, 4, 5]
    assert carries_key(again[0].wire)
    assert all(signed(s.wire) == signed(before[s.ticket]) and s.wire.payload == before[s.ticket].payload for s in again)


def test_sealing_happens_at_first_send(world: World):
    node = gateway(world, "site", links=False)
    assert not counted(node.handle(Committed((entry(1),)), NOW), "sealed")
    effects = node.handle(LinkUp("r1a"), NOW + 3600)
    assert signed(sent(effects)[0].wire).header.time_ms == int((NOW + 3600) * 1000)


def test_what_only_a_straggler_lacks_goes_after_its_bound(world: World):
    node = gateway(world, "site")
    node.handle(Committed((entry(1),)), NOW)
    node.handle(Acked("r1a", 1), NOW)
    node.handle(Acked("r1b", 1), NOW)
    assert not forgotten(node.handle(Tick(), NOW + STRAGGLER_S - 1))
    assert node.next_deadline == NOW + STRAGGLER_S
    assert forgotten(node.handle(Tick(), NOW + STRAGGLER_S)) == {1}
    assert node.next_deadline is None


def test_what_too_few_have_stays_and_its_deadline_does_not_spin(world: World):
    node = gateway(world, "site", links=False)
    node.handle(Committed((entry(1),)), NOW)
    later = NOW + STRAGGLER_S + 1
    assert not forgotten(node.handle(Tick(), later))
    assert node.next_deadline is None or node.next_deadline > later
    for peer in REPLICAS[:2]:
        node.handle(LinkUp(peer), later)
    assert not forgotten(node.handle(Acked("r1a", 1), later))
    assert forgotten(node.handle(Acked("r1b", 1), later)) == {1}, "it is past the stragglers' bound already"


@pytest.mark.long
def test_a_replica_that_never_acknowledges_costs_bounded_memory(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.publisher.publisher.STRAGGLER_ENTRIES_MAX", 500)
    node = gateway(world, "site")
    kept: set[int] = set()
    for n in range(1, 2001):
        effects = node.handle(Committed((entry(n),)), NOW)
        kept.add(n)
        for peer in ("r1a", "r1b"):
            effects += node.handle(Acked(peer, n), NOW)
        kept -= forgotten(effects)
    assert len(kept) <= 600
    assert node.publisher.depth == len(kept)
    assert sum(len(lane) for _, lane in node.publisher._lanes) <= 2 * 500 + WINDOW_MAX


def test_the_stragglers_bound_drops_nothing_that_too_few_have(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.publisher.publisher.STRAGGLER_ENTRIES_MAX", 50)
    node = gateway(world, "site", links=False)
    effects = [e for n in range(1, 201) for e in node.handle(Committed((entry(n),)), NOW)]
    assert not forgotten(effects)


def test_qos_0_waits_in_bounded_number_and_never_for_a_straggler(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.publisher.publisher.QOS0_ENTRIES_MAX", 100)
    node = gateway(world, "site", links=False)
    for n in range(1, 501):
        node.handle(Committed((entry(n, qos=0),)), NOW)
    assert node.publisher.depth == 100
    node = gateway(world, "site")
    node.handle(Committed((entry(1, qos=0),)), NOW)
    node.handle(Acked("r1a", 1), NOW)
    node.handle(Acked("r1b", 1), NOW)
    assert node.publisher.depth == 0


# ------------------------------------------------------------------------------------------------ dropping


@pytest.mark.attack(28)
def test_what_is_too_old_is_dropped_before_it_is_sealed_and_nobody_waits_for_it(world: World):
    """By the message's own expiry and by the outbox's bound; what follows names the one before that was sent."""
    publisher = publisher_of(world, max_age_s=100.0, links=False)
    entries = [
        entry(1),
        entry(2, previous=1, expiry_s=10),
        entry(3, previous=2, time_ms=int((NOW - 90) * 1000)),
        entry(4, previous=3),
    ]
    publisher.take_entries(entries, NOW)
    effects = publisher.link_up("r1a", NOW + 11)
    assert counted(effects, "outbox_expired") == 2
    assert forgotten(effects) == {2, 3}
    assert previous_in(effects) == {1: 0, 4: 1}


def test_qos_0_that_is_dropped_was_nobodys_predecessor(world: World):
    publisher = publisher_of(world, links=False)
    publisher.take_entries([entry(1), entry(2, qos=0, expiry_s=1), entry(3, previous=1)], NOW)
    assert previous_in(publisher.link_up("r1a", NOW + 5)) == {1: 0, 3: 1}


def test_what_grew_too_old_in_memory_goes_though_some_have_it(world: World):
    publisher = publisher_of(world, max_age_s=100.0)
    publisher.take_entries([entry(1), entry(2, time_ms=int((NOW + 50) * 1000))], NOW)
    acknowledge(publisher, 1, "r1a")
    assert publisher.next_deadline is not None
    assert NOW + 100 < publisher.next_deadline < NOW + 100.01
    effects = publisher.tick(publisher.next_deadline)
    assert (forgotten(effects), counted(effects, "outbox_expired")) == (set(), 1)
    (void,) = {send.wire.topic: send for send in sent(effects)}.values()
    assert void.ticket == 1
    acknowledge(publisher, 1, now=NOW + 101)  # of the former sealing
    assert forgotten(acknowledge(publisher, 1, now=NOW + 102)) == {1}
    assert publisher.depth == 1


def test_what_followed_something_too_old_by_either_bound_names_the_last_that_was_sent(world: World):
    publisher = publisher_of(world, max_age_s=100.0, links=False)
    old_ms = int((NOW - 90) * 1000)
    entries = [entry(1), entry(2, previous=1, time_ms=old_ms), entry(3, previous=2, expiry_s=10), entry(4, previous=3)]
    publisher.take_entries(entries, NOW)
    assert previous_in(publisher.link_up("r1a", NOW + 11)) == {1: 0, 4: 1}


def test_what_enough_replicas_have_is_not_counted_as_lost_to_age(world: World):
    publisher = publisher_of(world, max_age_s=100.0)
    publisher.take_entries([entry(1)], NOW)
    acknowledge(publisher, 1, "r1a", "r1b")
    effects = publisher.tick(NOW + 101)
    assert (forgotten(effects), counted(effects, "outbox_expired")) == ({1}, 0)


def test_what_was_left_on_disk_and_is_too_old_is_dropped_at_once(world: World):
    publisher = publisher_of(world, links=False)
    effects = publisher.take_entries([entry(1, expiry_s=5), entry(2)], NOW + 6, late=True)
    assert forgotten(effects) == {1}
    assert publisher.depth == 1


# ------------------------------------------------------------------------------------------------- waiting


def test_without_the_right_an_entry_waits_a_day_and_goes(world: World):
    grants = tuple(grant for grant in world.overlay.policy.grants if grant.rights != Right.PUBLISH)
    publisher = publisher_of(world)
    publisher.adopt_overlay(world.with_policy(grants=grants), world.secrets, NOW)
    effects = publisher.take_entries([entry(1)], NOW)
    assert (counted(effects, "not_authorised"), sent(effects)) == (1, [])
    assert publisher.next_deadline is not None
    assert not forgotten(publisher.tick(NOW + UNAUTHORISED_S - 1))
    effects = publisher.tick(NOW + UNAUTHORISED_S)
    assert (forgotten(effects), counted(effects, "not_authorised_dropped")) == ({1}, 1)


def test_what_waits_for_a_key_goes_with_it_and_holds_up_no_other_scope(world: World):
    held = world.keys
    world.keys = type(held)()
    publisher = publisher_of(world)
    effects = publisher.take_entries([entry(1), entry(2, "clear/t")], NOW)
    assert {send.ticket for send in sent(effects)} == {2}
    assert counted(effects, "key_waits") == 1
    assert not publisher.is_stuck(Publication("plant/t", b""), NOW), "few wait"
    world.learn(world.keys, [0])
    assert {send.ticket for send in sent(publisher.keys_changed(NOW + 1))} == {1}


def test_no_more_is_taken_of_a_topic_that_is_stuck(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.publisher.residents.WAITING_MAX", 3)
    world.keys = type(world.keys)()
    publisher = publisher_of(world)
    for sequence in range(1, 4):
        assert not publisher.is_stuck(Publication("plant/t", b""), NOW)
        publisher.take_entries([entry(sequence)], NOW)
    assert publisher.is_stuck(Publication("plant/t", b""), NOW)
    assert not publisher.is_stuck(Publication("clear/t", b""), NOW)


@pytest.mark.attack(196)
def test_no_more_is_taken_of_a_topic_whose_right_ended_in_a_scope_that_others_may_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Attack: one client sends as fast as it can while a right of its gateway to a part of a scope ends: all that was
    accepted and not yet on disk waited in memory, beyond the bound.
    """
    monkeypatch.setattr("bridge.publisher.residents.WAITING_MAX", 3)
    publisher = publisher_of(world)
    plant = next(secret for secret in world.secrets if secret.clear_filter == "plant/#")
    narrow = tuple(
        replace(grant, filter=plant.wire_topic("plant/may")) if grant.member == "site" else grant
        for grant in world.overlay.policy.grants
    )
    publisher.adopt_overlay(world.with_policy(grants=narrow), world.secrets, NOW)
    for sequence in range(1, 4):
        assert not publisher.is_stuck(Publication("plant/not", b""), NOW)
        assert not sent(publisher.take_entries([entry(sequence, "plant/not")], NOW))
    assert publisher.is_stuck(Publication("plant/not", b""), NOW)
    assert not publisher.is_stuck(Publication("plant/may", b""), NOW)
    assert publisher.is_stuck(Publication("elsewhere/t", b""), NOW), "no scope takes it"
    assert {send.ticket for send in sent(publisher.take_entries([entry(4, "plant/may")], NOW))} == {4}


# ------------------------------------------------------------------------------------------------ the rest


def test_an_entry_that_is_known_is_taken_once(world: World):
    publisher = publisher_of(world)
    publisher.take_entries([entry(1)], NOW)
    assert not publisher.take_entries([entry(1)], NOW)
    assert publisher.depth == 1


def test_numbers_in_memory_only_are_those_of_qos_0(world: World):
    publisher = publisher_of(world)
    publisher.take_entries([entry(1), entry(2, qos=0)], NOW)
    assert (publisher.depth, publisher.unstored) == (2, 1)
    acknowledge(publisher, 2, "r1a", "r1b")
    assert (publisher.depth, publisher.unstored) == (1, 0), "n - f suffice for it"


def test_there_is_less_room_while_too_few_replicas_take_anything(world: World):
    publisher = publisher_of(world, links=False)
    away = publisher.room
    assert not publisher.wants_late
    publisher.link_up("r1a", NOW)
    assert (publisher.room, publisher.wants_late) == (away, True)
    publisher.link_up("r1b", NOW)
    assert publisher.room[0] == 2 * away[0]


def test_a_stranger_to_the_view_gets_nothing(world: World):
    publisher = publisher_of(world, links=False)
    publisher.take_entries([entry(1)], NOW)
    assert not publisher.link_up("r9z", NOW)


def test_pieces_are_given_to_who_asks_for_ours_and_asking_without_end_is_refused(world: World):
    publisher = publisher_of(world)

    def ask(party: bytes, sequence: int = 1) -> list[Effect]:
        frame = PullRequest(party, sequence, 0, ()).encode()
        return publisher.answer_request(Received("r1a", Wire(PULL_TOPIC, frame)), NOW)

    publisher.take_entries([entry(1)], NOW)
    ours = world.identities["site"].party_id
    assert counted(ask(ours), "pulls_answered") == 1
    assert ask(ours, 99) == []
    with pytest.raises(NotAuthorised):
        ask(bytes(16))
    with pytest.raises(BadFrame):
        publisher.answer_request(Received("r1a", Wire(PULL_TOPIC, b"garbage")), NOW)
    for _ in range(5000):
        if counted(ask(ours, 99), "pulls_refused"):
            break
    else:
        pytest.fail("one that asks without end is never refused")


@pytest.mark.attack(100)
def test_a_record_that_may_not_go_waits_alone(world: World):
    """Readers would refuse it, and suspect a gateway that did nothing wrong; its neighbours go."""
    publisher = publisher_of(world)
    site = [grant for grant in world.overlay.policy.grants if grant.member == "site"]
    narrow = [replace(grant, filter="plant/t") for grant in site]
    publisher.adopt_overlay(world.with_policy(grants=tuple(narrow)), world.secrets, NOW)
    records = [
        Numbered(n, Publication(f"plant/{t}", b"x", 1, time_ms=int(NOW * 1000))) for n, t in ((1, "t"), (2, "u"))
    ]
    effects = publisher.take_entries([(1, 0, packed("plant/#", records)), (3, 0, packed("plant/#", records[:1]))], NOW)
    assert ({send.ticket for send in sent(effects)}, counted(effects, "not_authorised")) == ({1, 3}, 1)
    assert {
        send.ticket for send in sent(publisher.adopt_overlay(world.with_policy(grants=tuple(site)), world.secrets, NOW))
    } == {2}


def test_the_disk_goes_on_at_the_first_number_that_too_few_have(world: World) -> None:
    publisher = publisher_of(world)
    assert publisher.lacking_from == 1
    publisher.take_entries([entry(n) for n in (5, 6, 8)], NOW)
    found = [publisher.lacking_from]
    for number in (5, 8, 6):
        acknowledge(publisher, number, "r1a", "r1b")
        found.append(publisher.lacking_from)
    assert found == [5, 6, 6, 9]


def test_a_replica_whose_link_is_down_gets_nothing(world: World) -> None:
    publisher = publisher_of(world)
    publisher.link_down("r1a")
    assert {send.peer for send in sent(publisher.take_entries([entry(1)], NOW))} == {"r1b", "r1c"}


@pytest.mark.parametrize("hosted", [(), ("r1b",)])
def test_what_is_retained_is_repeated_to_a_replica_that_may_have_lost_it_but_to_no_stock_broker(
    hosted: tuple[str, ...],
) -> None:
    publisher = publisher_of(one_region("site", hosted=hosted))
    publisher.take_entries([entry(1, retain=True), entry(2)], NOW)
    for number in (1, 2):
        acknowledge(publisher, number)
    publisher.link_down("r1b")
    again = sent(publisher.link_up("r1b", NOW + 1))
    assert [(send.peer, send.ticket, send.wire.retain) for send in again] == ([] if hosted else [("r1b", 0, True)])
    assert all(carries_key(send.wire) for send in again)


def test_what_stragglers_lack_is_bounded_in_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.publisher.publisher.STRAGGLER_BYTES_MAX", 2 * len("plant/t" + "x"))
    publisher = publisher_of(world)
    publisher.take_entries([entry(n) for n in (1, 2, 3)], NOW)
    gone = [forgotten(acknowledge(publisher, n, "r1a", "r1b")) for n in (2, 1, 3)]
    assert gone == [set(), set(), {2}], "the one that enough have for longest"


def test_what_all_have_in_blocks_is_kept_for_repairs_and_counts_no_more() -> None:
    publisher = publisher_of(one_region("site", scopes=[Scope("plant/#", Mode.BLOCKS)]))
    publisher.take_entries([entry(1, payload=bytes(5000))], NOW)
    assert (publisher.depth, forgotten(acknowledge(publisher, 1))) == (1, set())
    assert publisher.depth == 0
    assert publisher.next_deadline == NOW + REPAIR_S + TOGETHER_S
    assert forgotten(publisher.tick(NOW + REPAIR_S + TOGETHER_S)) == {1}
    publisher.take_entries([entry(2, payload=bytes(5000))], NOW + REPAIR_S + TOGETHER_S)
    assert publisher.depth == 1


def test_it_is_told_by_which_bound_something_expired(world: World) -> None:
    publisher = publisher_of(world, max_age_s=100.0, links=False)
    publisher.take_entries([entry(1, expiry_s=200), entry(2, expiry_s=10), entry(3, expiry_s=10)], NOW)
    counts = [each for each in publisher.link_up("r1a", NOW + 101) if isinstance(each, Count)]
    assert counts[:2] == [Count("outbox_expired", 2, "message"), Count("outbox_expired", 1, "age")]


def test_what_grew_too_old_behind_a_budget_goes_and_holds_up_nothing(world: World) -> None:
    world.overlay = world.with_policy(budgets=MemberBudgets(sealed_bytes=100))
    publisher = publisher_of(world, max_age_s=5.0)
    publisher.take_entries([entry(1, payload=bytes(10_000))], NOW)
    acknowledge(publisher, 1)
    assert not sent(publisher.take_entries([entry(2)], NOW))
    assert forgotten(publisher.tick(NOW + 6)) == {2}
    publisher.take_entries([entry(3, time_ms=int((NOW + 200) * 1000))], NOW + 6)
    assert {send.ticket for send in sent(publisher.tick(NOW + 200))} == {3}


@pytest.mark.parametrize("most", [1, 2])
def test_what_stragglers_lack_is_bounded_in_number(world: World, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr("bridge.publisher.publisher.STRAGGLER_ENTRIES_MAX", most)
    publisher = publisher_of(world)
    publisher.take_entries([entry(n) for n in (1, 2, 3)], NOW)
    gone = [forgotten(acknowledge(publisher, n, "r1a", "r1b")) for n in (2, 1, 3)]
    assert gone == ([set(), {2}, {1}] if most == 1 else [set(), set(), {2}])


def test_one_whose_window_is_full_keeps_nothing_from_the_others(world: World) -> None:
    publisher = publisher_of(world)
    publisher.take_entries([entry(n) for n in range(1, WINDOW_MAX + 1)], NOW)
    for number in range(1, WINDOW_MAX + 1):
        acknowledge(publisher, number, "r1b", "r1c")
    sends = sent(publisher.take_entries([entry(WINDOW_MAX + 1)], NOW))
    assert [(send.peer, send.ticket) for send in sends] == [("r1b", WINDOW_MAX + 1), ("r1c", WINDOW_MAX + 1)]


def test_a_replica_that_may_have_lost_its_memory_hears_of_the_key_again(world: World) -> None:
    publisher = publisher_of(world)
    publisher.take_entries([entry(1)], NOW)
    acknowledge(publisher, 1)
    publisher.link_down("r1b")
    publisher.link_up("r1b", NOW)
    sends = sent(publisher.take_entries([entry(2)], NOW))
    assert {send.peer: carries_key(send.wire) for send in sends} == {"r1a": False, "r1b": True, "r1c": False}


def test_an_acknowledgement_of_one_that_is_ahead_does_not_count_and_it_gets_the_entry_again(world: World) -> None:
    """It may have closed the view, and refused what was sealed for that."""
    publisher = publisher_of(world)
    publisher.take_entries([entry(1)], NOW)
    assert not publisher.acked(Acked("r1a", 1), NOW, is_ahead=True)
    assert not forgotten(acknowledge(publisher, 1, "r1b", "r1c"))
    sends = sent(publisher.adopt_overlay(world.with_policy(), world.secrets, NOW))
    assert [(send.peer, send.ticket) for send in sends] == [("r1a", 1)]
    assert not sent(publisher.adopt_overlay(world.with_policy(), world.secrets, NOW)), "once"
    assert forgotten(acknowledge(publisher, 1, "r1a")) == {1}


def test_of_a_scope_with_receipts_it_is_told_what_was_sealed() -> None:
    publisher, told = publisher_of(one_region("site", scopes=[Scope("plant/#", receipts=True), Scope("open/#")])), []
    publisher.told_sealed = lambda sealed: told.append(sealed.sequence) or []
    publisher.take_entries([entry(1), entry(2, "open/t"), entry(3, retain=True)], NOW)
    for number in (1, 2, 3):
        acknowledge(publisher, number)
    assert told == [1, 3]
    publisher.rotate_identity(Identity.generate(bytes(32)))
    assert {send.ticket for send in sent(publisher.tick(NOW + 1))} == {3}, "a snapshot"
    assert told == [1, 3]


def test_who_is_in_the_view_gets_what_there_is_and_who_left_it_nothing_more() -> None:
    world = one_region("site", scopes=[Scope("plant/#", Mode.PLAIN)], replicas=4)
    names = world.overlay.views[1].members
    publisher = publisher_of(world)
    publisher.link_up("r1d", NOW)

    def viewed(number: int, members: tuple[str, ...]) -> list[Effect]:
        old = world.overlay
        policy = replace(old.policy, version=old.policy.version + 1)
        assert world.owner is not None
        view = RegionView(1, number, "region-1", members)
        world.overlay = Overlay.sign(world.owner, policy, [view], old.members.values())
        return publisher.adopt_overlay(world.overlay, world.secrets, NOW)

    publisher.take_entries([entry(1)], NOW)
    acknowledge(publisher, 1, *names[:3])
    assert forgotten(viewed(2, names[:3])) == {1}, "all who are left have it"
    assert {send.peer for send in sent(publisher.take_entries([entry(2)], NOW))} == set(names[:3])
    assert [(send.peer, send.ticket) for send in sent(viewed(3, names))] == [("r1d", 2)]
    assert {send.peer for send in sent(publisher.take_entries([entry(3)], NOW))} == set(names)
