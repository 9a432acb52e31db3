"""What is said about entities: statements, trace reports, and everything that is neither."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.traces.availability import availability_topic
from bridge.traces.kinds import TraceKind
from bridge.traces.reporting import Reporter, TraceReport
from spark_ingest.opening.rows import SCHEMAS
from spark_ingest.opening.statements import _STATES, Unreadable, statement_of

pa = pytest.importorskip("pyarrow")
NOW_MS = 1_800_000_000_000
STATEMENT, TRACE = "entities/gw1/pump/availability", "entities/gw1/pump/trace"
GOOD: dict[str, Any] = {
    "entity": "pump", "gateway": "gw1", "kind": "ALLS_WELL", "time_ms": NOW_MS, "number": 1,
    "fields": {"latency_ms": 3},
}  # fmt: skip


@pytest.mark.parametrize(
    "payload", [b"{", b"[]", b"1", b'{"state": 1}', b'{"since": 1}', b"\xff", b'{"state": null}', b"[" * 100_000]
)
def test_what_is_no_statement_about_an_entity(payload: bytes) -> None:
    with pytest.raises(Unreadable, match=r"^content: "):
        statement_of(STATEMENT, payload, NOW_MS)


def test_an_empty_payload_clears_a_statement_and_is_no_report() -> None:
    assert statement_of(STATEMENT, b"", NOW_MS) is None
    with pytest.raises(Unreadable):
        statement_of(TRACE, b"", NOW_MS)


def test_odd_times_in_a_statement_become_null() -> None:
    for odd in (True, -1, 1e300, "now", None, [1], 10**400):
        found = statement_of(STATEMENT, json.dumps({"state": "online", "since": odd}).encode(), NOW_MS)
        assert found is not None
        assert found.since is None


@pytest.mark.parametrize("kind", [kind for kind in TraceKind if kind is not TraceKind.GAUGE_INTEREST])
@pytest.mark.parametrize("entity", ["pump-7", "line 1/pump#7", "grün", "x" * 5_000, "%-", ""])
def test_what_a_gateway_reports_is_read_whole(kind: TraceKind, entity: str) -> None:
    (report,) = Reporter("gw 1", "works", "entities/site").report_trace(entity, kind, {"latency_ms": 3}, NOW_MS / 1000)
    assert isinstance(report, TraceReport)
    found = statement_of(report.topic, report.payload, NOW_MS + 5)
    assert found is not None
    assert (found.entity, found.gateway, found.kind, found.number) == (entity, "gw 1", kind.name, 1)
    assert (found.time, found.latency_ms, found.fields) == (NOW_MS * 1000, 3.0, '{"latency_ms":3}')


def test_every_kind_that_is_reported_has_its_meaning_here() -> None:
    assert set(_STATES) == {kind.name for kind in TraceKind} - {"GAUGE_INTEREST"}


@pytest.mark.parametrize(
    "change",
    [{"kind": "EXPLODED"}, {"kind": 3}, {"kind": "k" * 100_000}, {"entity": "valve"}, {"entity": None},
     {"gateway": "gw2"}, {"gateway": None}, {"time_ms": -1}, {"time_ms": "now"}, {"time_ms": 1e16}, {"number": -1},
     {"number": 1 << 63}, {"number": 1.5}, {"number": True}, {"fields": []}, {"fields": None}],
)  # fmt: skip
def test_what_is_no_report_has_a_short_reason(change: dict[str, Any]) -> None:
    assert statement_of(TRACE, json.dumps(GOOD).encode(), NOW_MS) is not None
    with pytest.raises(Unreadable, match=r"^content: a trace report ") as error:
        statement_of(TRACE, json.dumps({**GOOD, **change}).encode(), NOW_MS)
    assert len(str(error.value)) < 120


def test_a_number_that_is_infinite_once_it_is_read_makes_no_fields_that_are_no_json() -> None:
    payload = json.dumps(GOOD).replace('"fields": {', '"fields": {"x": 1e999, ').encode()
    with pytest.raises(Unreadable, match="beyond all measure"):
        statement_of(TRACE, payload, NOW_MS)


def test_a_report_of_a_cut_name_must_be_of_the_name_that_was_cut() -> None:
    long = "x" * 300
    topic = availability_topic("gw1", long).replace("/availability", "/trace")
    assert statement_of(topic, json.dumps({**GOOD, "entity": long}).encode(), NOW_MS) is not None
    with pytest.raises(Unreadable):
        statement_of(topic, json.dumps({**GOOD, "entity": long + "x"}).encode(), NOW_MS)


def test_only_numbers_are_a_load_and_nothing_is_lost() -> None:
    fields = {"cpu": 0.5, "on": True, "task": "x", "deep": {"a": [1]}, "huge": 10**400}
    found = statement_of(TRACE, json.dumps({**GOOD, "kind": "LOAD_INFORMATION", "fields": fields}).encode(), NOW_MS)
    assert found is not None
    assert found.load == [("cpu", 0.5)]
    assert json.loads(found.fields or "") == fields


def test_all_is_well_again_is_a_state_and_a_heartbeat_is_none() -> None:
    for fields, state in (({"latency_ms": 3}, None), ({"after": "failed"}, "alive")):
        found = statement_of(TRACE, json.dumps({**GOOD, "fields": fields}).encode(), NOW_MS)
        assert found is not None
        assert found.state == state


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(
    st.sampled_from([STATEMENT, TRACE, "trace", "/trace", "availability"]),
    st.one_of(
        st.binary(max_size=40),
        json_values.map(lambda value: json.dumps(value).encode()),
        st.fixed_dictionaries({}, optional=dict.fromkeys((*GOOD, "state", "since", "reason"), json_values)).map(
            lambda change: json.dumps({**GOOD, **change}).encode()
        ),
    ),
)
def test_every_payload_is_a_row_or_has_a_reason(topic: str, payload: bytes) -> None:
    try:
        found = statement_of(topic, payload, NOW_MS)
    except Unreadable:
        return
    for name, value in found._asdict().items() if found else ():
        pa.array([value], _type(name))


def _type(name: str) -> Any:
    return next(schema.field(name).type for schema in SCHEMAS.values() if "kind" in schema.names)
