"""Numbers of Sparkplug's payloads, sessions of nodes; what is written reads back in Google's protobuf."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.devices.sparkplug import (
    ALIASES_MAX,
    ASKED_MAX,
    NOTHING,
    REBIRTH_EVERY_S,
    Rebirths,
    SequenceNumbers,
    Session,
    numbers_of,
    rebirth,
    state,
)
from spark_ingest.payloads.sparkplug import SparkplugPayload

NOW_MS = 1_800_000_000_000


def payload(seq: int | None = None, bd_seq: int | None = None, others: int = 0) -> bytes:
    """As a node's library writes it."""
    made = SparkplugPayload(timestamp=NOW_MS)
    for place in range(others):
        made.metrics.add(name=f"temperature {place}", alias=place, datatype=10, double_value=21.5)
    if bd_seq is not None:
        made.metrics.add(name="bdSeq", datatype=8, long_value=bd_seq)
    if seq is not None:
        made.seq = seq
    return bytes(made.SerializeToString())


@given(st.none() | st.integers(0, 255), st.none() | st.integers(0, 255), st.integers(0, 30))
def test_numbers_are_read_from_what_protobuf_writes(seq: int | None, bd_seq: int | None, others: int) -> None:
    assert numbers_of(payload(seq, bd_seq, others)) == SequenceNumbers(bd_seq, seq, frozenset(range(others)))


def test_aliases_are_resolved_by_the_births_of_a_session() -> None:
    data = SparkplugPayload(seq=1)
    data.metrics.add(alias=2, double_value=21.5)
    used = numbers_of(data.SerializeToString())
    assert (used.named, used.used) == (frozenset(), {2})
    session = Session()
    session.born_now(numbers_of(payload(0, 7, others=2)))
    assert session.aliases == {0, 1}
    assert not session.resolves(used, is_birth=False)
    assert session.resolves(numbers_of(payload(1, others=3)), is_birth=True)  # a device's birth explains more
    assert session.resolves(used, is_birth=False)
    session.born_now(numbers_of(payload(0, 8)))
    assert not session.resolves(used, is_birth=False), "a new session begins without any"
    session.aliases = set(range(ALIASES_MAX))
    assert session.resolves(SequenceNumbers(used=frozenset({ALIASES_MAX + 5})), is_birth=True)
    assert len(session.aliases) == ALIASES_MAX


def test_a_number_written_as_an_int_counts_and_a_metric_of_another_name_does_not() -> None:
    made = SparkplugPayload(seq=3)
    made.metrics.add(name="not bdSeq", long_value=9)
    made.metrics.add(name="bdSeq", int_value=7)
    assert numbers_of(made.SerializeToString()) == SequenceNumbers(7, 3)


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    assert isinstance(numbers_of(data), SequenceNumbers)
    assert numbers_of(payload(1, 2)[:-1] + data) is not None


def test_a_rebirth_request_is_what_the_specification_asks_for() -> None:
    topic, data = rebirth("plant", "edge", NOW_MS)
    assert topic == "spBv1.0/plant/NCMD/edge"
    read = SparkplugPayload.FromString(data)
    (metric,) = read.metrics
    assert (metric.name, metric.datatype, metric.boolean_value) == ("Node Control/Rebirth", 11, True)
    assert read.timestamp == metric.timestamp == NOW_MS
    assert not read.HasField("seq"), "a command has none"


def test_state_is_json_with_a_time() -> None:
    topic, data = state("gate", True, NOW_MS)
    assert (topic, json.loads(data)) == ("spBv1.0/STATE/gate", {"online": True, "timestamp": NOW_MS})


@pytest.mark.parametrize(
    ("birth", "death", "ends"),
    [(5, 5, True), (5, 4, False), (0, 255, False), (None, 4, True), (5, None, True), (None, None, True)],
)
def test_a_death_ends_the_session_of_its_birth(birth: int | None, death: int | None, ends: bool) -> None:
    session = Session()
    session.born_now(SequenceNumbers(birth, 0))
    assert session.ends(SequenceNumbers(death)) is ends
    assert session.born is not ends
    assert session.ends(SequenceNumbers(death)) or birth != death, "a session that ended may end once more"


def test_messages_follow_each_other_by_one_and_zero_follows_255() -> None:
    session = Session()
    assert not session.follows(SequenceNumbers(seq=1)), "of whom no birth was heard"
    session.born_now(SequenceNumbers(1, 254))
    assert session.follows(SequenceNumbers(seq=255))
    assert session.follows(SequenceNumbers(seq=0))
    assert not session.follows(SequenceNumbers(seq=2))
    assert session.follows(SequenceNumbers(seq=3)), "after a gap it is counted from what came"
    assert session.follows(NOTHING), "who does not number its messages has no gaps"


def test_a_node_is_asked_seldom_and_memory_is_bounded() -> None:
    asked = Rebirths()
    assert asked.may_ask("a", 0.0)
    assert not asked.may_ask("a", REBIRTH_EVERY_S - 0.1)
    assert asked.may_ask("a", REBIRTH_EVERY_S)
    for place in range(ASKED_MAX + 5):
        asked.may_ask(f"n{place}", 20.0)
    assert len(asked._asked) == ASKED_MAX
