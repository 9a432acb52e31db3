"""Following `shop:*`: names for whom they are meant, newcomers, rights, and what a liar may name."""

from __future__ import annotations

import random

import pytest

from bridge.base import Wall
from bridge.traces.kinds import DESCRIPTOR, DISCOVERY_TOPIC, EVERYTHING, Interest
from bridge.tracking import patterns as asking_by
from bridge.tracking.entity import Wishes
from bridge.tracking.patterns import ASK_EVERY_S, NAMES_AT_ONCE, PATTERNS_MAX, Patterns, is_pattern, matches, names_for
from bridge.tracking.tracker import Follow, Unfollow
from keys.errors import BadFrame, KeysError
from keys.frames import Kind, number, opening, text
from keys.identity import Identity
from keys.sealedbox import seal_box
from tests.bridge.tracebus import NOW, Bus, identity
from tests.keys.test_delegation import certified

DESK, SPY = identity("desk"), identity("spy")


def follow(bus: Bus, pattern: str, tracker: str = "desk") -> None:
    bus.perform(tracker, bus.clients[tracker].handle(Follow(pattern), bus.now))  # type: ignore[arg-type]


@pytest.mark.long
def test_a_pattern_follows_those_of_its_names_who_let_us_and_whoever_comes_later() -> None:
    bus = Bus()
    desk = bus.tracker("desk")
    bus.tracker("stranger")
    for name in ("pump-1", "pump-2", "fan-1"):
        bus.entity(name)
    bus.entity("pump-3", Wishes(("somebody-else",)))
    bus.run(2)
    follow(bus, "pump-*")
    follow(bus, "pump-*", "stranger")
    bus.run(5)
    assert {seen.entity for _, seen in bus.observed["desk"]} == {"pump-1", "pump-2"}
    assert bus.observed["stranger"] == []
    assert desk.trouble_with("pump-*", bus.now) is None
    assert "nobody of such a name" in str(bus.clients["stranger"].trouble_with("pump-*", bus.now))  # type: ignore[union-attr]
    bus.entity("pump-4")
    bus.run(ASK_EVERY_S + 5)
    assert {seen.entity for _, seen in bus.observed["desk"]} == {"pump-1", "pump-2", "pump-4"}
    bus.perform("desk", desk.handle(Unfollow("pump-*"), bus.now))
    bus.entity("pump-5")
    bus.run(ASK_EVERY_S + 5)
    assert "pump-5" not in {seen.entity for _, seen in bus.observed["desk"]}


@pytest.mark.parametrize(
    ("pattern", "name", "is_of_it"),
    [("shop:*", "shop:plug", True), ("shop:*", "shop", False), ("*", "x", True), ("pump", "pump", True),
     ("pump", "pump-7", False), ("a*b", "axb", False)],
)  # fmt: skip
def test_one_star_at_the_end(pattern: str, name: str, is_of_it: bool) -> None:
    assert matches(pattern, name) is is_of_it
    assert is_pattern(pattern) is pattern.endswith("*")


def asking() -> tuple[Patterns, bytes]:
    """With the request that is under way."""
    patterns = Patterns(DESK, random.Random(1).randbytes, Wall(), lambda descriptor, request, now_ms: request)
    patterns.follow_pattern("pump-*", EVERYTHING, NOW)
    (said,) = patterns.due_queries(NOW)
    return patterns, said.payload


def answers(asker: Identity, request: bytes, names: list[str]) -> list[bytes]:
    return list(names_for(certified(asker, "desk"), request, names, random.Random(2).randbytes))


def test_many_names_come_in_parts_and_nobody_else_reads_them() -> None:
    patterns, request = asking()
    names = [f"pump-{place:04}" for place in range(2 * NAMES_AT_ONCE + 1)]
    parts = answers(DESK, request, names)
    assert len(parts) == 3
    assert [name for part in parts for name, _ in patterns.named_entities(part) or ()] == names
    others = Patterns(SPY, random.Random(1).randbytes, Wall(), lambda *asked: b"")
    for part in parts:
        assert b"pump" not in part
        with pytest.raises(KeysError):
            others.named_entities(part)


def test_what_a_node_names_beside_the_question_is_not_followed() -> None:
    patterns, request = asking()
    (answer,) = answers(DESK, request, ["pump-1", "door", "pump-*"])
    assert patterns.named_entities(answer) == [("pump-1", EVERYTHING)]
    (old,) = answers(DESK, bytes(16), ["pump-2"])
    assert patterns.named_entities(old) == []
    assert patterns.named_entities(b"something else") is None
    (empty,) = answers(DESK, request, [])
    assert patterns.named_entities(empty) == []
    for size in range(4, len(answer), 7):
        with pytest.raises(KeysError):
            patterns.named_entities(answer[:size])


def test_patterns_are_asked_for_again_and_bounded() -> None:
    patterns, _ = asking()
    assert patterns.due_queries(NOW + ASK_EVERY_S - 1) == []
    assert patterns.next_deadline == NOW + ASK_EVERY_S
    assert len(patterns.due_queries(NOW + ASK_EVERY_S)) == 1
    assert len(patterns.due_queries(NOW + ASK_EVERY_S, all_of_them=True)) == 1
    for place in range(PATTERNS_MAX + 5):
        patterns.follow_pattern(f"{place}*", EVERYTHING, NOW)
    assert len(patterns.due_queries(NOW + 1)) == PATTERNS_MAX - 1


def test_a_question_is_signed_for_one_pattern_and_of_now() -> None:
    signed: list[tuple[str, bytes, int]] = []

    def sign(descriptor: str, request: bytes, now_ms: int) -> bytes:
        signed.append((descriptor, request, now_ms))
        return b"signed"

    patterns = Patterns(DESK, random.Random(1).randbytes, Wall(100.0), sign)
    assert (patterns.next_deadline, patterns.due_queries(NOW), patterns.found("pump-*")) == (None, [], None)
    patterns.follow_pattern("pump-*", EVERYTHING, NOW)
    assert (patterns.next_deadline, patterns.found("pump-*")) == (NOW, False)
    (said,) = patterns.due_queries(NOW)
    assert (said.topic, said.payload) == (DISCOVERY_TOPIC, b"signed")
    ((descriptor, request, now_ms),) = signed
    assert (descriptor, len(request), now_ms) == (DESCRIPTOR + "pump-*", 16, int((NOW + 100) * 1000))
    patterns.follow_pattern("pump-*", Interest.LOAD, NOW + 1)
    (answer,) = answers(DESK, request, ["pump-1"])
    assert patterns.named_entities(answer) == [("pump-1", Interest.LOAD)], "the newest interest counts"
    assert patterns.found("pump-*")
    (nobody,) = answers(DESK, request, [])
    patterns.named_entities(nobody)
    assert patterns.found("pump-*"), "it named somebody once"
    patterns.leave_pattern("pump-*")
    assert (patterns.named_entities(answer), patterns.found("pump-*"), patterns.next_deadline) == ([], None, None)
    patterns.leave_pattern("pump-*")


def test_names_come_sorted_as_many_as_one_answer_holds_and_no_more_than_are_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patterns, request = asking()
    whole = [f"pump-{place:04}" for place in range(NAMES_AT_ONCE)]
    (one,) = answers(DESK, request, whole[::-1])
    assert [name for name, _ in patterns.named_entities(one) or ()] == whole
    assert len(answers(DESK, request, [*whole, "pump-x"])) == 2
    monkeypatch.setattr(asking_by, "NAMES_MAX", 3)
    (one,) = answers(DESK, request, whole)
    assert [name for name, _ in patterns.named_entities(one) or ()] == whole[:3]


def boxed(inside: bytes) -> bytes:
    head = opening(Kind.DISCOVERY, 8)
    return head + seal_box(DESK.agreement_bytes, inside, head, bytes(range(32)))


def test_a_liar_that_names_too_many_or_more_than_it_says_is_refused() -> None:
    patterns, request = asking()
    names = b"".join(text(f"pump-{place}") for place in range(NAMES_AT_ONCE + 1))
    with pytest.raises(BadFrame, match="257 names"):
        patterns.named_entities(boxed(request + number(NAMES_AT_ONCE + 1, 2) + names))
    for inside in (number(1, 2) + text("pump-1") + b"x", number(2, 2) + text("pump-1"), b"\0"):
        with pytest.raises(BadFrame):
            patterns.named_entities(boxed(request + inside))
    assert patterns.named_entities(boxed(request + number(1, 2) + text("pump-1"))) == [("pump-1", EVERYTHING)]


def test_of_several_patterns_the_one_that_was_asked_for_counts() -> None:
    patterns = Patterns(DESK, random.Random(1).randbytes, Wall(), lambda descriptor, request, now_ms: request)
    for pattern in ("fan-*", "pump-*"):
        patterns.follow_pattern(pattern, EVERYTHING, NOW)
    fans, pumps = (said.payload for said in patterns.due_queries(NOW))
    (answer,) = answers(DESK, pumps, ["pump-1", "fan-1"])
    assert patterns.named_entities(answer) == [("pump-1", EVERYTHING)]
    assert (patterns.found("fan-*"), patterns.found("pump-*"), fans != pumps) == (False, True, True)
