"""The ready-made jobs on known rows: windows, lateness, duplicates, timelines, the fleet; and their command."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from typer.testing import CliRunner

from spark_ingest.cli import EXIT_BAD_INPUT, ingest_app
from spark_ingest.errors import NoJava
from spark_ingest.jobs.runs import JOBS, TWICE, LateNumbers, RunSettings, _once, _started, cause, unread_sealed_batches
from spark_ingest.schema_config import KeptSchemas
from spark_ingest.spool.writer import SpoolWriter
from tests.spark_ingest.region import NOW, Link, Overlay, Publisher, write_grants

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class Spool:
    """What a receiver has written: publications of two gateways, `delay_s` under way."""

    def __init__(self, path: Path) -> None:
        self.root = path / "spool"
        self.grants = write_grants(path / "keys.json")
        overlay = Overlay()
        self.link = Link(overlay)
        self.gateways = {name: Publisher(overlay, name) for name in ("gw1", "gw2")}
        self.writer = SpoolWriter(self.root, "main", cap_bytes=1 << 30)
        self.writer.roll(b"")

    def publish(self, topic: str, payload: bytes, at: float = 0.0, delay_s: float = 0.5, gateway: str = "gw1") -> None:
        time = NOW + at
        self.link.publish(self.gateways[gateway].seal(topic, payload, time=time), now=time + delay_s)

    def trace(self, kind: str, at: float, entity: str = "pump", gateway: str = "gw1", **fields: Any) -> None:
        body = {
            "entity": entity, "gateway": gateway, "kind": kind, "time_ms": int((NOW + at) * 1000), "number": 1,
            "fields": fields,
        }  # fmt: skip
        self.publish(f"entities/{gateway}/{entity}/trace", json.dumps(body).encode(), at, gateway=gateway)

    def state(self, state: str, at: float, entity: str, gateway: str = "gw1") -> None:
        body = {"state": state, "since": int((NOW + at) * 1000), "last_seen": int((NOW + at) * 1000)}
        self.publish(f"entities/{gateway}/{entity}/availability", json.dumps(body).encode(), at, gateway=gateway)

    def write(self, times: int = 1) -> None:
        for group in self.link.write():
            for _ in range(times):
                self.writer.append(group.records, group.keys)

    @property
    def options(self) -> dict[str, str]:
        return {"spool": str(self.root), "grants": str(self.grants)}

    def found(self, spark: Any, job: str, capsys: Any, settings: RunSettings = RunSettings()) -> list[dict[str, Any]]:  # noqa: B008
        capsys.readouterr()
        _once(spark, JOBS[job], self.options, settings, True)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path)


def at(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).replace(tzinfo=None).isoformat() + "Z"


def columns(rows: Sequence[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_windows_of_json_fields_and_of_bare_numbers(spark: Any, spool: Spool, capsys: Any) -> None:
    for seconds, payload in (
        (0, b'{"motor": {"rpm": 10}}'),
        (4, b"20"),
        (4.5, b" 3e1 "),
        (5, b'{"motor": {"rpm": "7"}}'),
    ):
        spool.publish("plant/a", payload, seconds)
    for nothing in (b"", b"text", b'{"motor": 1}', b"NaN", b"\xff\xfe", b"[" * 5_000,
                    b"1e999", b"-inf", b'{"motor": {"rpm": 1e999}}', b'{"motor": {"rpm": "Infinity"}}'):  # fmt: skip
        spool.publish("plant/a", nothing, 6)
    spool.publish("plant/b", b"1")
    spool.write()
    found = spool.found(spark, "windows", capsys, RunSettings(window="5 seconds", field="motor.rpm"))
    assert columns(found, "start", "topic", "count", "mean", "least", "greatest") == [
        (at(0), "plant/a", 3, 20.0, 10.0, 30.0), (at(0), "plant/b", 1, 1.0, 1.0, 1.0),
        (at(5), "plant/a", 1, 7.0, 7.0, 7.0),
    ]  # fmt: skip


def test_what_came_late_by_publisher_and_no_duplicates(spark: Any, spool: Spool, capsys: Any) -> None:
    for number in range(100):
        spool.publish("plant/a", b"", number / 10, delay_s=0.001 * (number + 1))
    spool.publish("plant/a", b"", 20, delay_s=30, gateway="gw2")
    spool.write()
    found = {row["publisher"]: row for row in spool.found(spark, "late", capsys)}
    first, second = (found[spool.gateways[name].identity.party_id.hex()] for name in ("gw1", "gw2"))
    assert (first["publications"], first["duplicates"], first["late"]) == (100, 0, 0)
    assert first["p50_ms"] == pytest.approx(50.5, abs=0.1)
    assert first["p99_ms"] == pytest.approx(99, abs=0.1)
    assert first["max_ms"] == pytest.approx(100, abs=0.1)
    assert (second["publications"], second["late"], second["max_ms"]) == (1, 1, 30_000.0)


def test_a_duplicate_is_counted_and_the_exit_status_says_so(spark: Any, spool: Spool, capsys: Any) -> None:
    for number in range(3):
        spool.publish("plant/a", b"", number)
    spool.write(times=2)  # no receiver does that
    assert columns(spool.found(spark, "late", capsys), "publications", "duplicates") == [(3, 3)]
    assert _once(spark, JOBS["late"], spool.options, RunSettings(), False) == TWICE
    assert "3" in capsys.readouterr().out.split(), "a table for people"


def test_the_timeline_of_an_entity_and_its_telemetry_meanwhile(spark: Any, spool: Spool, capsys: Any) -> None:
    spool.state("online", 0, "pump")  # its traces know more
    for kind, seconds, fields in (
        ("JOIN", 1, {}), ("READY", 2, {}), ("ALLS_WELL", 3, {"latency_ms": 2}), ("FAILURE_SUSPICION", 10, {}),
        ("LOAD_INFORMATION", 11, {"cpu": 1}), ("FAILURE_SUSPICION", 12, {}), ("ALLS_WELL", 14, {"after": "suspected"}),
    ):  # fmt: skip
        spool.trace(kind, seconds, **fields)
    for state, seconds in (("online", 0), ("offline", 5), ("offline", 6), ("online", 7)):
        spool.state(state, seconds, "valve", "gw2")
    for seconds in range(20):
        spool.publish("plant/pump/rpm", b"1", seconds + 0.5)
    spool.publish("plant/valve/open", b"1", 5.5)
    spool.publish("plant/stranger/x", b"1", 5.5)
    spool.write()
    found = spool.found(spark, "timeline", capsys)
    assert columns(found, "entity", "state", "since", "until", "seconds", "rows") == [
        ("pump", "alive", at(1), at(2), 1.0, 1), ("pump", "ready", at(2), at(10), 8.0, 8),
        ("pump", "suspected", at(10), at(14), 4.0, 4), ("pump", "alive", at(14), None, None, 6),
        ("valve", "online", at(0), at(5), 5.0, 0), ("valve", "offline", at(5), at(7), 2.0, 1),
        ("valve", "online", at(7), None, None, 0),
    ]  # fmt: skip
    assert all(row["rows"] == 0 for row in spool.found(spark, "timeline", capsys, RunSettings(entity_level=0)))


def fill_fleet(spool: Spool) -> None:
    spool.trace("READY", 1)
    spool.trace("NETWORK_METRICS", 2, latency_ms=90, loss_rate=0.5)
    spool.trace("NETWORK_METRICS", 5, latency_ms=12, loss_rate=0.1)
    spool.trace("ALLS_WELL", 6, entity="press", latency_ms=30)  # its state was said before the spool began
    spool.trace("READY", 1, entity="drill")
    spool.trace("FAILED", 20, entity="drill")
    spool.state("online", 3, "drill")  # a connection is no proof against a failure
    spool.state("online", 2, "valve", "gw2")
    spool.state("offline", 9, "valve", "gw2")
    spool.state("offline", 4, "lamp", "gw2")
    spool.write()


def test_the_fleet_by_gateway_and_state(spark: Any, spool: Spool) -> None:
    from pyspark.sql import functions as f

    from spark_ingest.jobs.queries import entities, fleet

    fill_fleet(spool)
    rows = spark.read.format("veilmq").options(**spool.options, stream="availability").load()
    known = entities(rows)
    states = {row.entity: (row.gateway, row.state, row.latency_ms) for row in known.collect()}
    assert states == {
        "pump": ("gw1", "ready", 12.0), "press": ("gw1", "alive", 30.0), "drill": ("gw1", "failed", None),
        "valve": ("gw2", "offline", None), "lamp": ("gw2", "offline", None),
    }  # fmt: skip
    now = f.timestamp_millis(f.lit(int((NOW + 30) * 1000)))
    found = [row.asDict() for row in fleet(known, now).orderBy("gateway", "state").collect()]
    names = (
        "gateway",
        "state",
        "entities",
        "worst_latency_ms",
        "worst_loss_rate",
        "longest_unseen_s",
        "longest_unseen",
    )
    assert columns(found, *names) == [
        ("gw1", "alive", 1, 30.0, None, 24.0, "press"), ("gw1", "failed", 1, None, None, 27.0, "drill"),
        ("gw1", "ready", 1, 12.0, 0.1, 25.0, "pump"), ("gw2", "offline", 2, None, None, 26.0, "lamp"),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", ["windows", "fleet"])
def test_a_job_that_streams_prints_what_changed(
    spark: Any, spool: Spool, capsys: Any, tmp_path: Path, name: str
) -> None:
    spool.publish("plant/a", b"5")
    fill_fleet(spool)
    options = {**spool.options, "consumer": f"job-{name}"}
    late = LateNumbers()
    query = _started(spark, JOBS[name], options, RunSettings(), True, str(tmp_path / "checkpoint"), Event(), late)
    try:
        query.processAllAvailable()
        before = capsys.readouterr().out.splitlines()
        spool.publish("plant/a", b"7", 1)
        spool.state("online", 30, "valve", "gw2")
        spool.write()
        query.processAllAvailable()
    finally:
        query.stop()
    after = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(before) == {"windows": 1, "fleet": 4}[name]
    if name == "windows":
        assert columns(after, "topic", "count", "mean") == [("plant/a", 2, 6.0)]
    else:
        assert ("gw2", "online", 1) in columns(after, "gateway", "state", "entities")


def test_a_fast_clock_moves_no_watermark_and_late_numbers_are_counted(
    spark: Any, spool: Spool, tmp_path: Path, capsys: Any
) -> None:
    """The clock of gw2 is two minutes fast. Then gw1 brings one number in time, and three of a minute ago."""
    late = LateNumbers()
    options = {**spool.options, "consumer": "job-windows"}
    spool.publish("plant/fast", b"1", 120, delay_s=-120, gateway="gw2")
    spool.publish("plant/a", b"1", 100)
    spool.write()
    query = _started(spark, JOBS["windows"], options, RunSettings(), True, str(tmp_path / "checkpoint"), Event(), late)
    try:
        query.processAllAvailable()
        for at_s in (101, 40, 41, 42):
            spool.publish("plant/a", b"2", at_s, delay_s=101.5 - at_s)
        spool.write()
        query.processAllAvailable()
        late.progress(query.recentProgress)
        late.progress(query.recentProgress)
    finally:
        query.stop()
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(columns(found, "topic", "count")) == [("plant/a", 1), ("plant/a", 2), ("plant/fast", 1)]
    assert (late.read, late.left_out) == (6, 3)


def test_every_number_of_two_clocks_is_in_a_window_left_out_or_not_read(
    spark: Any, spool: Spool, tmp_path: Path, capsys: Any
) -> None:
    """Two gateways publish on, the clock of gw2 is two minutes fast; the job is stopped before the last pieces."""
    late, seconds, pieces = LateNumbers(), 12, 3
    options = {**spool.options, "consumer": "job-windows"}

    def publish(first: int) -> None:
        for at_s in range(first, first + seconds):
            spool.publish("plant/right", b"1", at_s, delay_s=0.1)
            spool.publish("plant/fast", b"1", at_s + 120, delay_s=0.1 - 120, gateway="gw2")
        spool.publish("plant/right", b"1", first - 30, delay_s=30 + seconds)
        spool.write()

    publish(0)
    query = _started(spark, JOBS["windows"], options, RunSettings(), True, str(tmp_path / "checkpoint"), Event(), late)
    try:
        for piece in range(1, pieces):
            query.processAllAvailable()
            publish(piece * seconds)
        query.processAllAvailable()
        progress = list(query.recentProgress)
    finally:
        query.stop()
    late.progress(progress)
    assert unread_sealed_batches(spool.root, progress) == 0
    publish(pieces * seconds)
    newest: dict[tuple[str, str], int] = {}
    for line in capsys.readouterr().out.splitlines():
        row = json.loads(line)
        newest[row["start"], row["topic"]] = row["count"]
    shown = {topic: sum(count for (_, each), count in newest.items() if each == topic) for _, topic in newest}
    assert shown["plant/fast"] == pieces * seconds
    assert sum(shown.values()) + late.left_out == late.read == pieces * (2 * seconds + 1)
    assert late.left_out == pieces - 1, "the first piece has no number that is late"
    assert unread_sealed_batches(spool.root, progress) == 2 * seconds + 1
    assert unread_sealed_batches(spool.root, []) == (pieces + 1) * (2 * seconds + 1)


def test_columns_by_a_schema(spark: Any, spool: Spool, tmp_path: Path, capsys: Any) -> None:
    """Of the receiver's configuration, in a batch and in a stream whose file gets a field while it runs."""
    file, config = tmp_path / "climate.json", tmp_path / "schemas.yaml"
    fields: dict[str, Any] = {"value": {"type": "number"}, "raw": {"type": "object"}}
    file.write_text(json.dumps({"properties": fields}))
    config.write_text("climate: {topic: plant/+, schema: climate.json}\n")
    kept = KeptSchemas(config, spool.root)
    kept.keep_schemas()
    spool.publish("plant/a", b'{"value": 1.5, "ppm": 4}')
    spool.publish("plant/b", b'{"value": "x"}', 1)
    spool.publish("plant/x/other", b"{}", 2)
    spool.write()
    settings = RunSettings(schemas=spool.root)
    found = spool.found(spark, "typed", capsys, settings)
    assert columns(found, "topic", "value", "more", "reason") == [
        ("plant/a", 1.5, '{"ppm":4}', None), ("plant/b", None, None, "schema: does not fit properties/value/type"),
    ]  # fmt: skip
    assert found[0]["published_at"] == at(0)
    options, late = {**spool.options, "consumer": "job-typed"}, LateNumbers()
    query = _started(spark, JOBS["typed"], options, settings, True, str(tmp_path / "checkpoint"), Event(), late)
    try:
        query.processAllAvailable()
        file.write_text(json.dumps({"properties": {**fields, "ppm": {"type": "integer"}}}))
        os.utime(file, (2e9, 2e9))
        kept.renew_schemas()
        spool.publish("plant/a", b'{"value": 2, "ppm": 5}', 3)
        spool.write()
        query.processAllAvailable()
    finally:
        query.stop()
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["value"], each.get("ppm")) for each in told] == [(1.5, None), (None, None), (2.0, 5)]


# ------------------------------------------------------------------------------------------------ the command


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(ingest_app, ["jobs", *arguments], standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, result.stdout, result.stderr


def test_without_a_name_the_jobs_are_listed() -> None:
    status, out, _ = run()
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == list(JOBS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["late"], "add --spool DIR --grants FILE"), (["nothing", "OK"], "known are windows, late, timeline, fleet"),
     (["late", "--spool", "/nowhere/spool", "--grants", "KEYS"], "is no spool"),
     (["late", "--spool", "SPOOL", "--grants", "/nowhere/keys"], "No such file"),
     (["late", "OK", "--late-after", "soon"], "is no duration"),
     (["windows", "OK", "--window", "1 fortnight"], "no duration"),
     (["windows", "OK", "--watermark", "1 second; DROP"], "no duration"),
     (["windows", "OK", "--field", "a'] b"], "is no field"),
     (["windows", "OK", "--topics", "a/#/b"], "not an MQTT topic"),
     (["typed", "OK"], "its receiver has no schemas"),
     (["typed", "OK", "--schemas", "/nowhere/schemas.yaml"], "No such file")],
)  # fmt: skip
def test_what_a_user_can_get_wrong_is_one_line_and_no_spark(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setattr("spark_ingest.session.spark_session", _no_session)
    good = ["--spool", str(spool.root), "--grants", str(spool.grants)]
    known = {"SPOOL": [str(spool.root)], "KEYS": [str(spool.grants)], "OK": good}
    status, out, error = run(*(word for each in arguments for word in known.get(each, [each])))
    assert (status, out) == (EXIT_BAD_INPUT, "")
    assert message in error
    assert error.count("\n") == 1


def _no_session(*_: Any) -> Any:
    raise NoJava("Spark needs Java: install a JRE 17 or newer")


def test_without_java_it_is_one_line(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ingest.session.spark_session", _no_session)
    status, _, error = run("fleet", "--spool", str(spool.root), "--grants", str(spool.grants), "--once")
    assert (status, error) == (EXIT_BAD_INPUT, "veilmq: Spark needs Java: install a JRE 17 or newer\n")


def test_what_spark_says_of_a_failure_becomes_one_line() -> None:
    assert cause("Query failed\nspark_ingest.errors.SpoolGap: rows are gone\n\nJVM stacktrace:\nx") == (
        "spark_ingest.errors.SpoolGap: rows are gone"
    )
    assert cause("[CANNOT_PARSE] what\nmore") == "[CANNOT_PARSE] what"
