"""Any order of publishing, losing, repeating, dying and lying: the machines do what the model says of every record.

The slow set draws more. A schedule that breaks something is shortened by `schedules.shrunk` and kept below.
"""

from __future__ import annotations

from typing import Any

import pytest

from bridge.contract import Acked, Effect, Repeats
from bridge.publisher.cutting import Predecessors
from bridge.publisher.publisher import Publisher
from bridge.publisher.residents import Residents
from bridge.publisher.windows import Lanes
from bridge.reader.collector import Collector
from bridge.reader.kept import KEY, KeptReader
from bridge.reader.streams import Head, Held, Stream
from bridge.replica.forwarder import Forwarder
from bridge.replica.retained import Retained
from keys.envelope import Mode
from tests.sim import schedules
from tests.sim.schedules import RETAINING, TEMPLATES, Step, drawn, run

pytestmark = pytest.mark.invariant(11)

MODES = (Mode.COPIES, Mode.PLAIN, Mode.COPIES, Mode.ONE)


def options(seed: int) -> dict[str, Any]:
    where = {"far": seed % 3 == 2, "on_topic": seed % 5 == 4, "fresh": seed % 7 == 3}
    return {"mode": MODES[seed % 4], **where, "max_age_s": 40.0 if seed % 11 == 1 else None}


def broken(seed: int) -> str | None:
    return run(drawn(seed), **options(seed))


@pytest.mark.parametrize("seed", range(12))
def test_machines_and_model_agree_on_every_record(seed: int):
    assert broken(seed) is None, schedules.shrunk(drawn(seed), **options(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", range(100, 900, 100))
def test_machines_and_model_agree_on_every_record_of_many_schedules(seeds: int):
    for seed in range(seeds, seeds + 100):
        assert broken(seed) is None, (seed, schedules.shrunk(drawn(seed), **options(seed)))


def retaining(seed: int) -> str | None:
    return run(drawn(seed, RETAINING), **options(seed), seed=seed, all_restart=True)


@pytest.mark.attack(24)
@pytest.mark.parametrize("seed", range(8))
def test_a_newcomer_gets_the_newest_values_whatever_a_liar_brings_and_though_all_replicas_restarted(seed: int):
    assert retaining(seed) is None


def test_what_comes_in_its_chain_after_a_snapshot_of_a_later_one_is_marked_late():
    steps: list[Step] = [("short", 1), ("wait", 1), ("retain", 4), ("view", 2), ("retain", 1), ("forget", 4)]
    assert run([*steps, ("die", 1), ("die", 2)], far=True, seed=338) is None


EXPIRED: list[Step] = [("pub", 0), ("short", 1), ("go", 1), ("wait", 1), ("go", 2), ("go", 0), ("pub", 2)]
OLD_NEWS: list[Step] = [("retain", 1), ("wait", 1), ("pub", 4)]


def test_nobody_waits_for_what_expired_on_its_way():
    assert run(EXPIRED, far=True) is None
    assert run([*EXPIRED, ("flow", 0), ("short", 1), ("pub", 1)], mode=Mode.PLAIN) is None


@pytest.mark.parametrize("seed", [82, 422])
def test_a_key_that_is_lost_delays_nothing_and_reorders_nothing(seed: int):
    assert broken(seed) is None


def test_what_is_not_stored_follows_what_the_last_life_left_in_its_outbox():
    """A liar that brings it first, without its key, does not make what was acknowledged to a device late."""
    steps: list[Step] = [("pub", 1), ("die", 1), ("qos0", 1), ("lie", 4), ("arrive", 4)]
    assert run(steps, **options(1084)) is None


def test_nobody_waits_for_what_a_former_life_dropped_unsent():
    steps: list[Step] = [("pub", 0), ("short", 2), ("wait", 1), ("die", 2), ("pub", 5), ("die", 2)]
    assert run(steps, fresh=True) is None
    assert run([*steps[:-2], ("die", 2), ("qos0", 5)], fresh=True) is None  # nor behind something that is not stored


def test_a_long_schedule_of_what_is_retained_agrees():
    assert retaining(111) is None


@pytest.mark.parametrize(
    ("seed", "steps"),
    [
        (40272, [("retain", 2), ("wait", 2), ("die", 2), ("qos0", 3)]),
        (40360, [("view", 4), ("hear", 4), ("wait", 4), ("hear", 3), ("retain", 0), ("batch", 1), ("wait", 2)]),
    ],
)
def test_a_value_too_old_to_be_sent_comes_as_retained_once_it_is_sealed_anew(seed: int, steps: list[Step]):
    """After a restart, or for a new view. What followed it does not wait for it, so it is late, and marked."""
    assert run(steps, **options(seed), seed=seed, all_restart=True) is None


def test_what_a_former_life_sealed_and_grew_too_old_since_costs_a_wait_and_no_more():
    steps: list[Step] = [("batch", 2), ("batch", 0), ("die", 0), ("wait", 2), ("go", 0), ("arrive", 1), ("die", 1)]
    assert run(steps, **options(51426), seed=51426, all_restart=True) is None
    assert retaining(51426) is None  # here it is delivered all the same, late


def test_what_was_retained_and_is_overtaken_is_marked_late():
    assert run(OLD_NEWS, fresh=True) is None


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("fresh", [False, True])
def test_misfortunes_that_chance_hardly_finds(name: str, fresh: bool):
    assert run(TEMPLATES[name], fresh=fresh) is None
    assert run(TEMPLATES[name], fresh=fresh, far=True, max_age_s=40.0) is None


# ------------------------------------------------------------------------------------------- planted faults


class Kept(set[str]):
    """Acknowledgements that stay when their entry is sealed anew."""

    def clear(self) -> None:
        pass


def add_with_kept(self: Residents, entry: Any) -> None:
    entry.acked = Kept(entry.acked)
    ADD(self, entry)


def done_with_one(self: Publisher, event: Acked, now: float, is_ahead: bool = False) -> list[Effect]:
    effects, entry = ACKED(self, event, now, is_ahead), self._entries.get(event.ticket)
    return [*effects, *self._done(entry, now)] if entry is not None and entry.acked else effects


def put_but_keys(self: KeptReader, key: bytes, value: bytes) -> None:
    if key[:1] != KEY:
        PUT(self, key, value)


def never_late(self: Stream, sequence: int, previous: int, generation: int) -> bool:
    return DELIVER(self, sequence, previous, generation) and False


def seen_ever(self: Repeats, sequence: int, *_: object) -> bool:
    return self._window.seen(sequence)


def drop_without_void(self: Publisher, message: list[int], age: list[int], now: float) -> list[Effect]:
    return self._drop_unsent(sorted([*message, *age]))


ADD, ACKED, PUT, DELIVER = Residents.add_entry, Publisher.acked, KeptReader.put_row, Stream.mark_delivered
NEAR: dict[str, Any] = {}
FAR = {"far": True}
MUTANTS: dict[str, tuple[type, str, Any, str, dict[str, Any]]] = {
    "a repetition is delivered": (Stream, "delivered", lambda *_: False, "expires on its way", NEAR),
    "what was delivered is not on disk": (
        KeptReader, "stream", lambda *_: None, "the subscriber dies between two copies", NEAR),
    "opened keys are not on disk": (
        KeptReader, "put_row", put_but_keys, "shares came with what was delivered before the subscriber died", NEAR),
    "what waits is not on disk": (
        KeptReader, "waits", lambda *_: None, "a share was acknowledged before the subscriber died", FAR),
    "acknowledgements of a former sealing stay": (
        Residents, "add_entry", add_with_kept, "sealed anew when one had acknowledged it", NEAR),
    "acknowledgements of a former sealing count": (
        Lanes, "outdate", lambda *_: None, "sealed anew when it was on its way", NEAR),
    "one acknowledgement is enough": (
        Publisher, "acked", done_with_one, "sealed anew when one had acknowledged it", NEAR),
    "a later sealing is a repetition, at a reader": (
        Held, "gains", lambda *_: False, "sealed anew when one had acknowledged it", NEAR),
    "a later sealing is a repetition, at a replica": (
        Repeats, "seen", seen_ever, "sealed anew when it was on its way", FAR),
    "what was dropped unsent is named": (
        Predecessors, "drop_entries", lambda *_: None, "expires before it leaves", NEAR),
    "what is too old leaves no void": (
        Publisher, "_drop_aged", drop_without_void, "too old when one has it and what follows it", {"max_age_s": 40.0}
    ),
    "what expired leaves no header": (Forwarder, "_is_over", lambda *_: [], "expires on its way to one", NEAR),
    "nothing waits for its predecessor": (
        Collector, "_stream_before", lambda *_: None, "left out by one, comes late", NEAR),
    "what is late is not marked": (Stream, "mark_delivered", never_late, "left out by one, comes late", NEAR),
    "what was given up is forgotten": (
        Head, "has_seen", lambda self, number: number <= self.number, "left out by one, comes late", NEAR),
    "nothing is retained": (
        Retained, "keep_value", lambda *_: False, "the subscriber dies before it takes what is retained", NEAR),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_machine_that_breaks_a_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch):
    owner, name, faulty, template, where = MUTANTS[mutant]
    monkeypatch.setattr(owner, name, faulty)
    assert run(TEMPLATES[template], **where)
