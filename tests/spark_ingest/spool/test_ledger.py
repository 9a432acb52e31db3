"""What was passed over for want of keys: noted once, released once, and kept until it is in a sink."""

from __future__ import annotations

import json

from spark_ingest.spool.ledger import NOTHING_HELD, HeldLedger
from spark_ingest.spool.segments import Offset, Position


def at(segment: int, byte: int = 0, name: str = "main") -> Offset:
    return {name: {"segment": segment, "byte": byte}}


def test_a_repeated_micro_batch_is_noted_once_also_when_it_was_released_meanwhile() -> None:
    ledger = NOTHING_HELD.note_held(at(1), at(2), ["a", "b"])
    assert ledger.note_held(at(1), at(2), ["a", "b"]) == ledger
    released = ledger.release_held(ledger.held, {"a", "b"})
    assert released.note_held(at(1), at(2), ["a", "b"]) == released
    assert not released.held
    assert released.note_held(at(2), at(3), []) == released
    assert [each.keys for each in released.note_held(at(2), at(3), ["c"]).held] == [("c",)]
    both = at(3) | at(1, 0, "other")
    assert [each.keys for each in released.note_held(at(3), both, ["d"]).held] == [("d",)]


def test_keys_are_released_one_by_one_under_numbers_that_rise() -> None:
    ledger = NOTHING_HELD.note_held(at(1), at(2), ["a", "b"]).note_held(at(2), at(3), ["a"])
    first = ledger.release_held(ledger.held[:1], {"a"})
    assert [(each.keys, each.number) for each in first.redrives] == [(("a",), 1)]
    assert [each.keys for each in first.held] == [("b",), ("a",)]
    second = first.release_held(first.held, {"a", "b"})
    assert [(each.keys, each.number) for each in second.redrives] == [(("a",), 1), (("b",), 2), (("a",), 3)]
    assert [each.number for each in second.between(1, 2)] == [2]
    assert [each.number for each in second.without_redrives(2).redrives] == [3]
    assert second.release_held(second.held, {"a"}) == second


def test_what_is_wanted_stays_and_what_is_done_goes() -> None:
    ledger = NOTHING_HELD.note_held(at(4), at(5), ["a"])
    assert ledger.oldest("main") == Position(4, 0)
    assert ledger.oldest("other") is None
    released = ledger.release_held(ledger.held, {"a"})
    assert released.oldest("main") == Position(4, 0)
    assert released.without_redrives(1).oldest("main") is None
    assert HeldLedger.from_json(json.loads(json.dumps(released.to_json()))) == released


def test_numbers_go_on_in_a_ledger_that_began_anew() -> None:
    ledger = NOTHING_HELD.note_held(at(1), at(2), ["a"], redriven=7)
    assert [each.number for each in ledger.release_held(ledger.held, {"a"}).redrives] == [8]
