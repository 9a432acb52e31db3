"""The simulator itself: order of links, crashes, cuts, clocks and deadlines, with machines that only take notes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from bridge.contract import (
    Acked,
    Appending,
    Blame,
    Committed,
    Count,
    Deliver,
    Effect,
    Event,
    Forget,
    KeysChanged,
    LeaveOnDisk,
    LinkDown,
    LinkUp,
    NotAdopted,
    OutboxPage,
    Publication,
    ReadPage,
    Received,
    Send,
    Tick,
    Wanted,
    Wire,
)
from keys.epochs import KeyName
from papers.sim import kernel as module
from papers.sim.kernel import Kernel
from papers.sim.outbox import SimulatedOutbox

NOW = 1000.0
PUBLICATION = Publication("t", b"x", 1)


@dataclass
class Notes:
    """A machine that answers what it was told to, and remembers what happened when."""

    answers: list[Effect] = field(default_factory=list)
    seen: list[tuple[float, Event]] = field(default_factory=list)
    next_deadline: float | None = None

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        self.seen.append((now, event))
        if isinstance(event, Tick):
            self.next_deadline = None
        return self.answers if isinstance(event, Appending) else ()

    def events(self, kind: type) -> list[Event]:
        return [event for _, event in self.seen if isinstance(event, kind)]


def kernel_of(
    *names: str, clocks: dict[str, float] | None = None, outboxes: dict[str, SimulatedOutbox] | None = None,
    seed: int = 1,
) -> Kernel:  # fmt: skip
    """All linked with each other, and up."""
    made = Kernel(
        dict.fromkeys(names, Notes), {name: set(names) - {name} for name in names}, random.Random(seed), NOW,
        (0.01, 0.02), clocks, outboxes,
    )  # fmt: skip
    made.start()
    made.run(NOW + 2)
    return made


def notes(kernel: Kernel, name: str) -> Notes:
    found = kernel.nodes[name]
    assert isinstance(found, Notes)
    return found


def let(kernel: Kernel, name: str, *effects: Effect, until_s: float = 1.0) -> None:
    """The node wants this, and a while passes."""
    kernel.call(name, lambda machine, now: effects)
    kernel.run(kernel.now + until_s)


def wire(number: int) -> Wire:
    return Wire("t", b"%d" % number)


def test_links_come_up_on_both_sides_within_a_second() -> None:
    kernel = kernel_of("a", "b")
    assert notes(kernel, "a").events(LinkUp) == [LinkUp("b")]
    assert notes(kernel, "b").events(LinkUp) == [LinkUp("a")]
    assert all(NOW <= at < NOW + 1 for at, _ in notes(kernel, "a").seen)


def test_what_is_sent_arrives_in_order_and_is_acknowledged_if_a_ticket_asks_for_it() -> None:
    kernel = kernel_of("a", "b")
    let(kernel, "a", *(Send("b", wire(n), ticket=n % 3) for n in range(50)))
    assert notes(kernel, "b").events(Received) == [Received("a", wire(n)) for n in range(50)]
    assert notes(kernel, "a").events(Acked) == [Acked("b", n % 3) for n in range(50) if n % 3]
    assert kernel.trace.sent == 50
    arrivals = [at for at, event in notes(kernel, "b").seen if isinstance(event, Received)]
    assert arrivals == sorted(arrivals)
    assert arrivals[0] >= NOW + 2.01
    assert arrivals[-1] <= NOW + 2.02


def test_bytes_count_payload_topic_and_properties() -> None:
    kernel = kernel_of("a", "b")
    let(kernel, "a", Send("b", Wire("topic", b"1234", properties=(("k", "v"),))))
    assert kernel.trace.sent_bytes == 5 + 4 + (1 + 1 + 5)


def test_nothing_goes_to_a_stranger_or_over_a_link_that_is_cut() -> None:
    kernel = kernel_of("a", "b", "c")
    kernel.cut("a", "b")
    assert notes(kernel, "a").events(LinkDown) == [LinkDown("b")]
    assert notes(kernel, "b").events(LinkDown) == [LinkDown("a")]
    let(kernel, "a", Send("b", wire(1), 1), Send("c", wire(2)), Send("nobody", wire(3)))
    assert notes(kernel, "b").events(Received) == []
    assert notes(kernel, "c").events(Received) == [Received("a", wire(2))]
    assert notes(kernel, "a").events(Acked) == []
    kernel.heal("a", "b")
    let(kernel, "a", until_s=2)
    assert len(notes(kernel, "a").events(LinkUp)) == 3
    let(kernel, "a", Send("b", wire(4)))
    assert notes(kernel, "b").events(Received) == [Received("a", wire(4))]


def test_what_is_on_its_way_when_a_link_is_cut_is_lost() -> None:
    kernel = kernel_of("a", "b")
    kernel.call("a", lambda machine, now: [Send("b", wire(1))])
    kernel.cut("a", "b")
    kernel.run(NOW + 5)
    assert notes(kernel, "b").events(Received) == []


def test_a_crash_takes_memory_and_what_was_to_happen_and_a_restart_begins_anew() -> None:
    kernel = kernel_of("a", "b")
    before = notes(kernel, "a")
    kernel.call("b", lambda machine, now: [Send("a", wire(1), 1)])
    kernel.plan_event(kernel.now + 0.5, "a", Appending((1,)))
    kernel.crash("a")
    assert notes(kernel, "b").events(LinkDown) == [LinkDown("a")]
    kernel.run(NOW + 5)
    assert (before.events(Received), before.events(Appending), notes(kernel, "b").events(Acked)) == ([], [], [])
    kernel.restart("a")
    kernel.run(NOW + 7)
    after = notes(kernel, "a")
    assert after is not before
    assert after.events(LinkUp) == [LinkUp("b")]
    assert len(notes(kernel, "b").events(LinkUp)) == 2
    assert after.events(Appending) == [], "what was meant for the process before"


def test_deadlines_are_kept_once_and_the_earliest_counts() -> None:
    kernel = kernel_of("a")
    node = notes(kernel, "a")
    node.next_deadline = NOW + 9
    kernel.call("a", lambda machine, now: ())
    node.next_deadline = NOW + 5
    kernel.call("a", lambda machine, now: ())
    kernel.call("a", lambda machine, now: ())
    kernel.run(NOW + 8)
    assert [at for at, event in node.seen if isinstance(event, Tick)] == [NOW + 5]


def test_a_deadline_that_is_over_is_kept_at_once() -> None:
    kernel = kernel_of("a")
    notes(kernel, "a").next_deadline = NOW - 50
    kernel.call("a", lambda machine, now: ())
    kernel.run(kernel.now)
    assert [at for at, event in notes(kernel, "a").seen if isinstance(event, Tick)] == [NOW + 2]


def test_a_node_reads_its_own_clock() -> None:
    kernel = kernel_of("a", "b", clocks={"a": 100.0})
    node = notes(kernel, "a")
    assert all(at >= NOW + 100 for at, _ in node.seen)
    node.next_deadline = NOW + 105
    times: list[float] = []
    kernel.call("a", lambda machine, now: times.append(now) or ())
    kernel.run(NOW + 4)
    assert times == [NOW + 102]
    assert node.events(Tick) == []
    kernel.run(NOW + 6)
    assert [at for at, event in node.seen if isinstance(event, Tick)] == [NOW + 105]


def test_a_newcomer_has_links_once_both_ends_want_them() -> None:
    kernel = kernel_of("a", "b")
    kernel.add_node("c", Notes, {"a"})
    kernel.run(NOW + 4)
    assert notes(kernel, "c").events(LinkUp) == []
    kernel._follow_peers("a", frozenset({"b", "c"}))
    kernel.run(NOW + 6)
    assert notes(kernel, "c").events(LinkUp) == [LinkUp("a")]
    assert LinkUp("c") in notes(kernel, "a").events(LinkUp)
    kernel._follow_peers("a", frozenset({"b"}))
    kernel.run(NOW + 7)
    assert notes(kernel, "c").events(LinkDown) == [LinkDown("a")]


def test_the_trace_has_what_a_run_showed() -> None:
    kernel = kernel_of("a", outboxes={"a": SimulatedOutbox()})
    let(
        kernel, "a", Deliver("site", 1, PUBLICATION), Blame("liar", True, "x"), Blame("other", False, "y"),
        Count("sealed", 2), Count("sealed", 3), Count("refused", 1, "BadFrame"), Forget((7,)),
        NotAdopted("why"), KeysChanged(),
    )  # fmt: skip
    trace = kernel.trace
    assert [each.sequence for each in trace.delivered["a"]] == [1]
    assert trace.delivered_at == {"a": [NOW + 2]}
    assert (trace.named_members(), trace.suspected()) == ({"liar"}, {"other"})
    assert trace.figures == {"sealed": 5, "refused{BadFrame}": 1}
    assert trace.forgotten == {"a": {7}}
    assert trace.not_adopted == [("a", "why")]


def test_an_outbox_is_a_disk_that_a_crash_leaves() -> None:
    outbox = SimulatedOutbox()
    kernel = kernel_of("a", outboxes={"a": outbox})
    kernel.plan_event(kernel.now, "a", Committed(((1, 0, PUBLICATION), (2, 1, PUBLICATION))))
    kernel.run(kernel.now)
    assert set(outbox.rows) == {1, 2}
    let(kernel, "a", LeaveOnDisk((2,)), Forget((1,)), ReadPage(0))
    (page,) = notes(kernel, "a").events(OutboxPage)
    assert isinstance(page, OutboxPage)
    assert [sequence for sequence, _, _ in page.entries] == [2]
    kernel.crash("a")
    assert set(outbox.rows) == {2}


def test_what_is_said_to_a_node_from_within_never_leaves_it() -> None:
    kernel = kernel_of("a")
    with pytest.raises(AssertionError, match="its own node"):
        let(kernel, "a", Wanted(KeyName("t", 0, 0)))


def test_a_run_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEPS_MAX", 100)
    kernel = kernel_of("a")
    node = notes(kernel, "a")
    node.answers = []
    for _ in range(200):
        kernel.plan_event(NOW + 3, "a", Appending((1,)))
    with pytest.raises(AssertionError, match="did not end"):
        kernel.run(NOW + 4)


def test_a_seed_says_all() -> None:
    def story(seed: int) -> list[tuple[float, Event]]:
        kernel = kernel_of("a", "b", "c", seed=seed)
        let(kernel, "a", *(Send(peer, wire(n), n) for n in range(5) for peer in "bc"))
        return [*notes(kernel, "b").seen, *notes(kernel, "a").seen]

    assert story(1) == story(1) != story(2)
