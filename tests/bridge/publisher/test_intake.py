"""What comes from the outbox when: nothing overtakes on its topic, nothing is lost, whatever room and disk do."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.contract.batches import Chain
from bridge.contract.machine import (
    Committed,
    Count,
    Effect,
    LeaveOnDisk,
    OutboxEntry,
    OutboxPage,
    Publication,
    ReadPage,
    Unstored,
)
from bridge.document import ScopeSecret
from bridge.document.policy import Scope
from bridge.publisher.intake import LOOK_EVERY_S, UNSTORED_MAX, OutboxIntake
from papers.sim.outbox import SimulatedOutbox

NOW = 1_800_000_000.0


class Sender:
    """In the place of the publisher: it takes what it has room for."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.free, self.free_bytes, self.wants_late = room, 1 << 30, False
        self.taken: list[OutboxEntry] = []
        self.late: list[OutboxEntry] = []
        self.outdated: list[str] = []
        self.stuck: set[str] = set()
        self.waiting_full, self.changes = False, 0
        self.sealer = self

    def chain_of(self, topic: str) -> Chain:
        return Chain(topic)

    @property
    def room(self) -> tuple[int, int]:
        return self.free, self.free_bytes

    def changes_at(self, now: float) -> tuple[int, int]:
        return self.changes, 0

    def could_go(self, publication: Publication, now: float) -> bool:
        return publication.topic not in self.stuck

    def is_stuck(self, publication: Publication, now: float) -> bool:
        return publication.topic in self.stuck

    def overtaken(self, topic: str, time_ms: int) -> None:
        self.outdated.append(topic)

    def take_entries(self, entries: tuple[OutboxEntry, ...], now: float, late: bool = False) -> list[Effect]:
        (self.late if late else self.taken).extend(entries)
        self.free -= len(entries)
        return []


class Desk:
    """One life of an intake over an outbox: appends and effects as a driver carries them out."""

    def __init__(self, outbox: SimulatedOutbox, sender: Sender, max_age_s: float | None = None) -> None:
        self.outbox, self.sender, self.now = outbox, sender, NOW
        self.intake = OutboxIntake(sender, outbox, max_age_s)  # type: ignore[arg-type]
        self.last: dict[str, int] = {}
        self.counted: list[str] = []

    def stored(self, *sequences: int, topic: str = "a", retain: bool = False) -> None:
        entries = []
        for sequence in sequences:
            self.intake.appending((sequence,))
            publication = Publication(topic, b"", 1, retain, time_ms=int(self.now * 1000))
            entries.append((sequence, self.last.get(topic, 0), publication))
            self.last[topic] = sequence
        self.outbox.put_entries(entries)
        self.perform(self.intake.committed(Committed(tuple(entries)), self.now))

    def unstored(self, sequence: int, topic: str = "a") -> None:
        self.perform(self.intake.unstored(Unstored(sequence, Publication(topic, b"", 0)), self.now))

    def perform(self, effects: list[Effect]) -> None:
        effects = [*effects, *self.intake.wanted(self.now)]
        for effect in effects:
            match effect:
                case LeaveOnDisk(sequences):
                    self.outbox.leave_on_disk(sequences)
                case ReadPage(start):
                    self.perform(self.intake.page(self.outbox.page(start), self.now))
                case Count(name):
                    self.counted.append(name)

    @property
    def numbers(self) -> list[int]:
        return [sequence for sequence, _, _ in self.sender.taken]


def test_qos_0_waits_for_what_was_appended_before_it() -> None:
    desk = Desk(SimulatedOutbox(), Sender())
    desk.intake.appending((1,))
    desk.unstored(2)
    assert desk.numbers == []
    desk.stored(1)
    assert desk.numbers == [1, 2]
    assert desk.sender.taken[1][1] == 1, "it follows the stored one on its topic"


def test_what_the_disk_did_not_take_holds_nothing_up() -> None:
    desk = Desk(SimulatedOutbox(), Sender())
    desk.intake.appending((1,))
    desk.unstored(2)
    desk.perform(desk.intake.not_appended(1, NOW))
    assert desk.numbers == [2]


def test_a_stalled_disk_fills_no_memory_with_qos_0() -> None:
    desk = Desk(SimulatedOutbox(), Sender())
    desk.intake.appending((1,))
    for n in range(UNSTORED_MAX + 3):
        desk.unstored(2 + n)
    assert desk.counted == ["qos0_dropped"] * 3


def test_a_client_that_floods_a_stalled_disk_with_qos_0_drops_nothing_of_others() -> None:
    desk = Desk(SimulatedOutbox(), Sender())
    desk.intake.appending((1,))
    good = Publication("a", b"x", time_ms=0, owner="good")
    desk.perform(desk.intake.unstored(Unstored(2, good), NOW))
    for n in range(3, UNSTORED_MAX + 30):
        evil = Publication("a", b"x", time_ms=0, owner="evil")
        desk.perform(desk.intake.unstored(Unstored(n, evil), NOW))
    last = Publication("a", b"x", time_ms=0, owner="good")
    desk.perform(desk.intake.unstored(Unstored(UNSTORED_MAX + 30, last), NOW))
    assert len(desk.counted) == 29
    desk.perform(desk.intake.not_appended(1, NOW))
    assert {2, UNSTORED_MAX + 30} <= set(desk.numbers)
    assert len(desk.numbers) == UNSTORED_MAX


def test_what_there_is_no_room_for_is_left_and_its_topic_waits_behind_it() -> None:
    desk = Desk(SimulatedOutbox(), Sender(room=1))
    desk.stored(1, 2)
    assert desk.numbers == [1]
    desk.sender.free = 10
    desk.stored(3)
    desk.unstored(4)
    desk.stored(5, topic="b")
    assert desk.numbers == [1, 5], "another topic goes beside what is left"
    assert desk.counted == ["qos0_dropped"], "what is not stored cannot wait"
    desk.sender.wants_late = True
    desk.perform([])
    assert [sequence for sequence, _, _ in desk.sender.late] == [2, 3]
    desk.stored(6)
    assert desk.numbers == [1, 5, 6]


def test_a_topic_that_is_stuck_is_left_and_a_retained_value_outdates_its_former() -> None:
    desk = Desk(SimulatedOutbox(), Sender())
    desk.sender.stuck.add("a")
    desk.stored(1, retain=True)
    assert desk.numbers == []
    assert desk.sender.outdated == ["a"]


def test_what_a_former_process_left_is_read_once_there_is_somebody_to_send_it_to() -> None:
    outbox = SimulatedOutbox()
    Desk(outbox, Sender()).stored(1, 2)
    outbox.crashed()
    desk = Desk(outbox, Sender())
    desk.perform([])
    assert desk.sender.late == []
    desk.sender.wants_late = True
    desk.perform([])
    assert [sequence for sequence, _, _ in desk.sender.late] == [1, 2]


def test_qos_0_follows_what_is_stored_before_it_and_nothing_behind_it() -> None:
    """A former process may have stored that."""
    outbox = SimulatedOutbox()
    Desk(outbox, Sender()).stored(1)
    outbox.forget_entries([1])
    desk = Desk(outbox, Sender())
    desk.unstored(2)
    desk.stored(3)
    desk.unstored(4)
    desk.unstored(5, topic="b")
    desk.stored(9)
    desk.unstored(8)
    previous = {sequence: before for sequence, before, _ in desk.sender.taken}
    assert previous == {2: 1, 3: 0, 4: 3, 5: 0, 9: 3, 8: 0}


def test_nothing_new_goes_past_what_was_left_before_scopes_changed() -> None:
    desk = Desk(SimulatedOutbox(), Sender(room=1))
    desk.stored(1, 2)
    desk.sender.free = 10
    desk.intake._scopes.adopt_scopes([ScopeSecret(Scope("else/#"), "else/#")])
    desk.stored(3, topic="b")
    desk.unstored(4, topic="c")
    assert desk.numbers == [1]
    assert desk.counted == ["qos0_dropped"]
    desk.sender.wants_late = True
    desk.perform([])
    assert [sequence for sequence, _, _ in desk.sender.late] == [2, 3]
    desk.stored(5, topic="b")
    assert desk.numbers == [1, 5]


def test_a_room_is_as_large_as_its_bytes() -> None:
    desk = Desk(SimulatedOutbox(), Sender())
    desk.sender.free_bytes = 2 * len("a")
    desk.stored(1, 2, 3)
    assert desk.numbers == [1, 2]


def test_an_unreadable_disk_is_asked_again_after_a_while() -> None:
    outbox = SimulatedOutbox()
    Desk(outbox, Sender()).stored(1)
    outbox.crashed()
    desk = Desk(outbox, Sender())
    desk.sender.wants_late = True
    assert desk.intake.wanted(NOW) == [ReadPage(1)]
    assert desk.intake.wanted(NOW) == [], "one at a time"
    desk.intake.page(OutboxPage((), 1, unreadable=True), NOW)
    assert desk.intake.wanted(NOW) == []
    assert desk.intake.next_deadline == NOW + LOOK_EVERY_S
    assert desk.intake.wanted(NOW + LOOK_EVERY_S) == [ReadPage(1)]


def test_what_is_too_old_is_read_to_be_dropped_even_without_room() -> None:
    outbox = SimulatedOutbox()
    Desk(outbox, Sender()).stored(1)
    outbox.crashed()
    desk = Desk(outbox, Sender(), max_age_s=60)
    assert desk.intake.wanted(NOW) == []
    assert desk.intake.wanted(NOW + 61) == [ReadPage(1)]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("stored"), st.integers(1, 4), st.sampled_from("abc")),
        st.tuples(st.just("unstored"), st.just(1), st.sampled_from("abc")),
        st.tuples(st.just("room"), st.integers(0, 6), st.just("")),
        st.tuples(st.just("late"), st.integers(0, 1), st.just("")),
        st.tuples(st.just("crash"), st.just(1), st.just("")),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(steps)
def test_nothing_stored_is_lost_or_overtakes_on_its_topic(course: list[tuple[str, int, str]]) -> None:
    outbox, sequence, stored = SimulatedOutbox(), 0, set()
    desk = Desk(outbox, Sender(room=3))
    for what, amount, topic in course:
        if what == "stored":
            numbers = range(sequence + 1, sequence + 1 + amount)
            stored.update(numbers)
            sequence += amount
            desk.stored(*numbers, topic=topic)
        elif what == "unstored":
            sequence += 1
            desk.unstored(sequence, topic)
        elif what == "room":
            desk.sender.free = amount
        elif what == "late":
            desk.sender.wants_late = bool(amount)
            desk.perform([])
        else:
            outbox.crashed()
            last, desk = desk.last, Desk(outbox, Sender(room=3))
            desk.last = last
    desk.sender.wants_late = True
    desk.perform([])
    by_topic = defaultdict(list)
    for number, _, publication in desk.sender.taken + desk.sender.late:
        if publication.qos:
            by_topic[publication.topic].append(number)
    in_hand = {number for numbers in by_topic.values() for number in numbers}
    assert in_hand == stored, "this life's and, after a crash, all of what former ones had"
    assert sum(map(len, by_topic.values())) == len(in_hand), "each once"


# ---------------------------------------------------------------------------------------- passed over on disk


def passing() -> tuple[OutboxIntake, Sender, SimulatedOutbox]:
    """A scope that waits, `a`, and one that does not, `b`, on disk; too many entries wait already."""
    outbox, sender = SimulatedOutbox(), Sender()
    rows = [
        (n, n - 2 if n > 2 else 0, Publication("ab"[(n - 1) % 2], b"", 1, time_ms=int(NOW * 1000)))
        for n in (1, 2, 3, 4)
    ]
    outbox.put_entries(rows)
    outbox.leave_on_disk((1, 2, 3, 4))
    sender.wants_late = sender.waiting_full = True
    sender.stuck = {"a"}
    return OutboxIntake(sender, outbox), sender, outbox  # type: ignore[arg-type]


def page(intake: OutboxIntake, outbox: SimulatedOutbox, start: int, end: int | None = None) -> list[int]:
    """Gives the page from `start`; returns the numbers that are left again."""
    whole = outbox.page(start)
    rows = tuple(row for row in whole.entries if end is None or row[0] < end)
    outbox.leave_on_disk(tuple(row[0] for row in whole.entries if row not in rows))
    left = [n for e in intake.page(OutboxPage(rows, end), NOW) if isinstance(e, LeaveOnDisk) for n in e.sequences]
    outbox.leave_on_disk(tuple(left))
    return left


def test_a_page_passes_over_a_scope_that_waits_and_it_comes_again_when_fewer_wait() -> None:
    intake, sender, outbox = passing()
    assert intake.wanted(NOW) == [ReadPage(1)]
    assert page(intake, outbox, 1) == [1, 3]
    assert [entry[0] for entry in sender.late] == [2, 4]
    assert (intake.left_from, intake.wanted(NOW)) == (1, []), "all else is read"
    sender.waiting_full = False
    assert intake.wanted(NOW) == [ReadPage(1)]
    assert page(intake, outbox, 1) == []
    assert [entry[0] for entry in sender.late] == [2, 4, 1, 3]
    assert intake.left_from is None


def test_a_page_on_its_way_when_the_key_comes_lets_no_entry_overtake_one_that_was_passed_over() -> None:
    """Another scope may still fill the table, so that nothing else shows the change."""
    intake, sender, outbox = passing()
    assert intake.wanted(NOW) == [ReadPage(1)]
    assert page(intake, outbox, 1, end=3) == [1]
    assert intake.wanted(NOW) == [ReadPage(3)]
    sender.stuck.clear()
    sender.changes += 1
    assert page(intake, outbox, 3) == [3]
    assert intake.wanted(NOW) == [ReadPage(1)]
    assert page(intake, outbox, 1) == []
    assert [entry[0] for entry in sender.late] == [2, 4, 1, 3]


def test_nothing_on_disk_is_passed_over_once_scopes_changed_under_it() -> None:
    """A stored batch may hold records of any scope then."""
    intake, sender, _ = passing()
    intake._scopes.stored(1, 4)
    intake._scopes.adopt_scopes([ScopeSecret(Scope("else/#"), "else/#")])
    assert intake.wanted(NOW) == []
    sender.waiting_full = False
    assert intake.wanted(NOW) == [ReadPage(1)]


def test_what_is_too_old_is_read_from_the_start_though_pages_passed_it_over() -> None:
    intake, sender, outbox = passing()
    intake = OutboxIntake(sender, outbox, 60.0)  # type: ignore[arg-type]
    assert intake.wanted(NOW) == [ReadPage(1)]
    assert page(intake, outbox, 1) == [1, 3]
    assert intake.wanted(NOW + 3600) == [ReadPage(1)]
    assert page(intake, outbox, 1) == []
    assert [entry[0] for entry in sender.late] == [2, 4, 1, 3]
    assert intake.left_from is None


def test_entries_take_one_place_each_and_qos_0_waits_for_no_later_one() -> None:
    desk = Desk(SimulatedOutbox(), Sender(room=2))
    desk.stored(1, 2, 3)
    assert desk.numbers == [1, 2]
    desk = Desk(SimulatedOutbox(), Sender())
    for number in (1, 3):
        desk.intake.appending((number,))
    desk.unstored(2)
    desk.stored(1)
    assert desk.numbers == [1, 2]


def test_all_that_was_appended_together_is_of_the_scopes_of_then() -> None:
    desk = Desk(SimulatedOutbox(), Sender())
    desk.intake.appending((4, 5, 6))
    desk.intake._scopes.adopt_scopes([ScopeSecret(Scope("else/#"), "else/#")])
    assert [desk.intake._scopes.is_behind(left) for left in (4, 6, 7)] == [True, True, False]


def test_the_age_of_what_is_left_is_looked_at_while_there_is_a_bound() -> None:
    outbox = SimulatedOutbox()
    Desk(outbox, Sender()).stored(1)
    outbox.crashed()
    for max_age_s, at in ((60.0, NOW + LOOK_EVERY_S), (None, None)):
        desk = Desk(outbox, Sender(), max_age_s)
        desk.perform([])
        assert desk.intake.next_deadline == at
    empty = Desk(SimulatedOutbox(), Sender(), 60.0)
    empty.perform([])
    assert empty.intake.next_deadline is None
