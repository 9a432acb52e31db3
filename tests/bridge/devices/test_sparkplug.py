"""Numbers of Sparkplug's payloads, sessions of nodes; what is written reads back in Google's protobuf."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.devices import sparkplug
from bridge.devices.sparkplug import (
    ALIASES_MAX,
    ASKED_MAX,
    NOTHING,
    REBIRTH_EVERY_S,
    REORDER_S,
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


def counted(first: int, *numbers: int, elsewhere: tuple[int, ...] = ()) -> set[int]:
    """The numbers that are missing behind a birth with the first number and messages with the others."""
    session = Session()
    session.born_now(SequenceNumbers(1, first))
    for number in elsewhere:
        session.heard_elsewhere(SequenceNumbers(seq=number))
    for number in numbers:
        assert session.follows(SequenceNumbers(seq=number), 5.0)
    assert not session.missing or session.overdue_at == 5.0 + REORDER_S
    return {number for number in range(256) if session.missing >> number & 1}


def test_messages_follow_each_other_by_one_and_zero_follows_255() -> None:
    assert not Session().follows(SequenceNumbers(seq=1)), "of whom no birth was heard"
    assert counted(254, 255, 0) == set()
    assert counted(254, 255, 0, 2, 3) == {1}, "after a gap it is counted from what came"
    assert counted(250, 3) == {251, 252, 253, 254, 255, 0, 1, 2}
    assert counted(7, 7, 8) == set(range(256)) - {7, 8}, "the same number again"
    assert counted(7, 256) == set(range(256)) - {7}, "no number"


def test_a_message_that_comes_late_fills_its_gap() -> None:
    assert counted(0, 2, 1, 3) == set()
    assert counted(0, 3, 2, 4) == {1}
    assert counted(254, 1, 255, 0, 2) == set()


def test_numbers_that_another_connection_used_are_not_missing() -> None:
    assert counted(0, 3, elsewhere=(1, 2)) == set()
    assert counted(0, 4, elsewhere=(1, 2)) == {3}
    assert counted(0, 3, 5, elsewhere=(1, 2)) == {4}
    assert counted(0, 3, *range(4, 256), 0, 3, elsewhere=(1, 2)) == {1, 2}, "each fills one gap"
    session = Session()
    session.born_now(SequenceNumbers(1, 0))
    session.follows(SequenceNumbers(seq=2))
    session.heard_elsewhere(SequenceNumbers(seq=1))
    assert session.missing == 0, "it comes behind the message that passed it over"
    session.heard_elsewhere(SequenceNumbers(seq=1 << 60))
    session.heard_elsewhere(NOTHING)
    assert session.elsewhere == 0


def test_a_node_is_asked_seldom_and_memory_is_bounded() -> None:
    asked = Rebirths()
    assert asked.may_ask("a", 0.0)
    assert not asked.may_ask("a", REBIRTH_EVERY_S - 0.1)
    assert asked.may_ask("a", REBIRTH_EVERY_S)
    for place in range(ASKED_MAX + 5):
        asked.may_ask(f"n{place}", 20.0)
    assert len(asked._asked) == ASKED_MAX


# ---------------------------------------------------------------------------------- payloads, byte by byte

SEQ = b"\x18\x07"  # field 3, a varint: 7
OTHERS = {
    "varint": b"\x08\x96\x01", "fixed64": b"\x31" + bytes(8), "bytes": b"\x3a\x03abc", "fixed32": b"\x25" + bytes(4),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_fields_that_are_not_looked_for_are_skipped_and_a_cut_one_says_nothing(kind: str) -> None:
    other = OTHERS[kind]
    assert numbers_of(other + SEQ) == SequenceNumbers(None, 7)
    for size in range(1, len(other)):
        assert numbers_of(SEQ + other[:size]) == NOTHING


@pytest.mark.parametrize("kind", [3, 4, 6, 7])
def test_groups_and_what_is_no_field_say_nothing(kind: int) -> None:
    assert numbers_of(SEQ + bytes([5 << 3 | kind]) + bytes(8)) == NOTHING


def test_a_number_has_64_bits_at_most() -> None:
    assert numbers_of(b"\x18" + b"\xff" * 9 + b"\1").seq == 2**64 - 1
    assert numbers_of(b"\x18\x80\x01").seq == 128
    assert numbers_of(b"\x18" + b"\xff" * 10 + b"\1") == NOTHING


def metric(*fields: bytes) -> bytes:
    inside = b"".join(fields)
    return bytes([0x12, len(inside)]) + inside


NAMED = b"\x0a\x05bdSeq"  # field 1


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (metric(NAMED, b"\x58\x09"), SequenceNumbers(9)),  # field 11
        (metric(NAMED, b"\x50\x09"), SequenceNumbers(9)),  # field 10
        (metric(NAMED, b"\x60\x09"), NOTHING),  # field 12
        (metric(NAMED, b"\x5a\x01x"), NOTHING),  # field 11, but bytes
        (metric(NAMED, b"\x58\x09") + metric(NAMED, b"\x58\x08"), SequenceNumbers(9)),  # the first counts
        (metric(b"\x08\x05", b"\x58\x09"), NOTHING),  # its name is a number
        (metric(b"\x10\x04"), SequenceNumbers(used=frozenset({4}))),
        (metric(b"\x0a\x01t", b"\x10\x04"), SequenceNumbers(named=frozenset({4}))),
        (metric(b"\x12\x01x"), NOTHING),  # its alias is bytes
        (b"\x10\x04", NOTHING),  # a metric that is a number
        (b"\x1a\x01x", NOTHING),  # a sequence that is bytes
        (metric(b"\x58"), NOTHING),
    ],
)
def test_what_counts_of_a_payload(data: bytes, expected: SequenceNumbers) -> None:
    assert numbers_of(data) == expected


def test_what_is_read_of_a_payload_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparkplug, "FIELDS_MAX", 6)
    other, birth = metric(b"\x0a\x01t"), metric(NAMED, b"\x58\x09")
    assert numbers_of(other + birth).bd_seq == 9
    assert numbers_of(other + other + birth + SEQ) == SequenceNumbers(is_whole=False)
    monkeypatch.setattr(sparkplug, "PAYLOAD_BYTES_MAX", 4)
    assert numbers_of(SEQ + SEQ[:1] + b"\x08") == SequenceNumbers(None, 8)
    assert numbers_of(bytes([8, 1, 8, 1]) + SEQ) == SequenceNumbers(is_whole=False), "it stands behind what is read"


def test_who_was_never_born_may_die_and_belongs_to_no_session() -> None:
    session = Session()
    assert session.ends(SequenceNumbers(5))
    session.born_now(SequenceNumbers(5, 0))
    assert session.ends(SequenceNumbers(5))
    assert session.ends(SequenceNumbers(4)), "it is dead already"
    assert not session.follows(SequenceNumbers(seq=1)), "who is dead is born before it speaks"


def test_a_message_without_a_number_between_two_is_no_gap() -> None:
    session = Session()
    session.born_now(SequenceNumbers(1, 3))
    assert session.follows(NOTHING), "who does not number its messages has no gaps"
    assert session.follows(SequenceNumbers(seq=9))
    assert session.missing == 0, "nothing to count from"
    assert session.follows(SequenceNumbers(seq=11))
    assert session.missing == 1 << 10


def test_aliases_of_a_message_that_is_no_birth_explain_nothing() -> None:
    session = Session()
    session.born_now(SequenceNumbers(1, 0, frozenset({1})))
    assert session.resolves(SequenceNumbers(named=frozenset({2})), is_birth=False)
    assert not session.resolves(SequenceNumbers(used=frozenset({2})), is_birth=False)
    assert session.resolves(SequenceNumbers(used=frozenset({1})), is_birth=False)
    session.aliases = set(range(ALIASES_MAX - 1))
    assert not session.resolves(SequenceNumbers(used=frozenset({-1})), is_birth=False)
    assert session.resolves(SequenceNumbers(named=frozenset({-1})), is_birth=True)
    assert len(session.aliases) == ALIASES_MAX


def test_who_was_asked_longest_ago_is_forgotten_first() -> None:
    asked = Rebirths()
    assert asked.may_ask("a", 0.0)
    assert asked.may_ask("b", 1.0)
    assert asked.may_ask("a", REBIRTH_EVERY_S + 1.0)
    for place in range(ASKED_MAX - 1):
        asked.may_ask(f"n{place}", REBIRTH_EVERY_S + 1.5)
    assert not asked.may_ask("a", REBIRTH_EVERY_S + 2.0)
    assert "b" not in asked._asked


def test_state_is_spelled_without_spaces_and_a_host_may_be_away() -> None:
    assert state("gate", False, 5)[1] == b'{"online":false,"timestamp":5}'


@pytest.mark.parametrize(
    "payload",
    [b"\x18\x01" * (1 << 19), b"\x12\x00" * (1 << 19), (b"\x12\xf4\x03" + b"\x10\x01" * 250) * 2000],
    ids=["fields of two bytes", "metrics of two bytes", "metrics of tiny fields"],
)
def test_a_long_payload_is_looked_at_up_to_a_bound(payload: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: numbers that are read of one payload."""
    read, varint = 0, sparkplug._varint

    def counting(data: bytes, at: int) -> tuple[int, int]:
        nonlocal read
        read += 1
        return varint(data, at)

    monkeypatch.setattr(sparkplug, "_varint", counting)
    numbers = numbers_of(payload)
    assert read <= 2 * sparkplug.FIELDS_MAX
    assert not numbers.is_whole
    assert numbers_of(payload[:200]).is_whole


def test_a_birth_that_is_too_long_to_be_read_holds_no_alias_against_its_node() -> None:
    session = Session()
    birth = SequenceNumbers(seq=0, named=frozenset({1}), is_whole=False)
    session.born_now(birth)
    assert session.resolves(SequenceNumbers(seq=1, used=frozenset({7})), is_birth=False)
    session.born_now(SequenceNumbers(seq=0, named=frozenset({1})))
    assert not session.resolves(SequenceNumbers(seq=1, used=frozenset({7})), is_birth=False)
    assert session.resolves(birth, is_birth=True)
    assert session.resolves(SequenceNumbers(seq=2, used=frozenset({7})), is_birth=False)
