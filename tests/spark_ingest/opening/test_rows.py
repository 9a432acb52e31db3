"""From the spool to rows in clear: what opens, what stays closed and why, and the exact schemas."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keys.envelope import KeyName, sign_header
from keys.sharetree import Hop
from spark_ingest.errors import BadOption, GrantsError
from spark_ingest.opening.rows import DDL, SCHEMAS, RowReader, schema_of
from spark_ingest.options import IngestStream, Options, parse_options
from spark_ingest.secrets.grants import Grants, GrantsFile, read_grants
from spark_ingest.spool.view import SpoolView
from spark_ingest.spool.writer import SpoolWriter
from tests.spark_ingest.region import (
    NOW,
    Link,
    Overlay,
    Publisher,
    Sealed,
    epoch_key,
    write_grants,
)


class Job:
    """A spool, a receiver without network, and an executor's reader."""

    def __init__(self, tmp_path: Path, overlay: Overlay | None = None, grants: Grants | None = None) -> None:
        self.overlay = overlay or Overlay()
        self.publisher = Publisher(self.overlay)
        self.root = tmp_path / "spool"
        self.grants = write_grants(tmp_path / "keys.json", grants or self.overlay.held())
        self.writer = SpoolWriter(self.root, "main", cap_bytes=1 << 30)
        self.writer.roll(b"")
        self.link = Link(self.overlay)

    def publish(self, *sealed: Sealed, **how: Any) -> None:
        for each in sealed:
            self.link.publish(each, **how)
        self.link.write(self.writer)

    def options(self, stream: str = "telemetry", **options: str) -> Options:
        return parse_options(
            {
                "spool": str(self.root),
                "grants": str(self.grants),
                "stream": stream,
                "onMissingKey": "quarantine",
                **options,
            }
        )

    def batches(self, stream: str = "telemetry", **options: str) -> list[Any]:
        view = SpoolView(self.root)
        reader = RowReader(self.options(stream, **options))
        return [batch for extent in view.ranges({}, view.advance({}), 2) for batch in reader.read(extent)]

    def rows(self, stream: str = "telemetry", **options: str) -> list[dict[str, Any]]:
        return [row for batch in self.batches(stream, **options) for row in batch.to_pylist()]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_the_schemas_are_exactly_what_spark_makes_of_the_ddl() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        BooleanType,
        DataType,
        DoubleType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    simple: dict[str, DataType] = {
        "string": StringType(), "binary": BinaryType(), "long": LongType(), "timestamp": TimestampType(),
        "int": IntegerType(), "boolean": BooleanType(), "double": DoubleType(),
        "map<string,double>": MapType(StringType(), DoubleType()),
    }  # fmt: skip
    pair = StructType([StructField("name", StringType()), StructField("value", StringType())])
    for stream, ddl in DDL.items():
        head, _, _ = ddl.partition(", properties")
        fields = [StructField(name, simple[kind]) for name, kind in (part.split(" ") for part in head.split(", "))]
        if head != ddl:
            fields.append(StructField("properties", ArrayType(pair)))
        assert to_arrow_schema(StructType(fields), timezone="UTC").equals(SCHEMAS[stream]), stream


def test_the_manual_has_the_schemas() -> None:
    words = " ".join((Path(__file__).parents[3] / "docs" / "reference" / "spark.md").read_text().split())
    for stream, ddl in DDL.items():
        assert f" {stream} {ddl} " in words


def test_rows_equal_what_was_published(job: Job) -> None:
    job.publish(
        job.publisher.seal("plant/a", b"\x00\xff", qos=2, retain=True, properties=(("k", "1"), ("k", "2"), ("a", ""))),
        job.publisher.seal("plant/b", "grün".encode(), time=NOW + 1.5),
    )
    first, second = job.rows()
    assert first["topic"] == "plant/a"
    assert first["payload"] == b"\x00\xff"
    assert first["publisher"] == job.publisher.identity.party_id.hex()
    assert (first["sequence"], first["qos"], first["retain"]) == (1, 2, True)
    assert [(p["name"], p["value"]) for p in first["properties"]] == [("k", "1"), ("k", "2"), ("a", "")]
    assert second["published_at"].timestamp() == NOW + 1.5
    assert second["received_at"].timestamp() == NOW
    assert second["properties"] == []
    assert not job.rows("quarantine")


def test_time_is_when_the_device_published_and_not_when_the_gateway_sealed(job: Job) -> None:
    sealed = job.publisher.seal("plant/a", time=NOW - 100)
    header = replace(sealed.signed.header, time_ms=int(NOW * 1000))
    assert sealed.key is not None
    job.publisher.keys.clear()
    job.publisher.new_key("plant/#")
    job.publish(job.publisher.seal("plant/a", time=NOW - 100, time_ms=header.time_ms))
    assert job.rows()[0]["published_at"].timestamp() == NOW - 100


def test_batches_are_cut_to_the_wished_size_and_have_the_schema(job: Job) -> None:
    for _ in range(5):
        job.publish(*(job.publisher.seal("plant/a") for _ in range(7)))
    batches = job.batches(rows_per_batch="10")
    assert [batch.num_rows for batch in batches] == [10, 10, 10, 5]
    schema = schema_of(IngestStream.TELEMETRY, redrives=True)
    assert schema.names == [*SCHEMAS[IngestStream.TELEMETRY].names, "progress_at"]
    assert all(batch.schema.equals(schema) for batch in batches)


def test_topics_choose_rows(job: Job) -> None:
    job.publish(job.publisher.seal("plant/a/t"), job.publisher.seal("plant/b/t"), job.publisher.seal("plant/c"))
    assert [row["topic"] for row in job.rows(topics="plant/+/t")] == ["plant/a/t", "plant/b/t"]
    assert [row["topic"] for row in job.rows(topics="plant/c, plant/b/#")] == ["plant/b/t", "plant/c"]


def test_rows_of_two_regions(tmp_path: Path) -> None:
    overlay = Overlay(path=(Hop(1, 1, 2, 3), Hop(2, 1, 2, 3)))
    job = Job(tmp_path, overlay)
    sealed = job.publisher.seal("plant/a", b"far")
    for place in (1, 2):
        job.link.send(place, sealed.piece(place, shares=sealed.shares_at(place, overlay)))
    job.link.write(job.writer)
    assert [row["payload"] for row in job.rows()] == [b"far"]


# ------------------------------------------------------------------------------------------ availability


def test_availability_rows(job: Job) -> None:
    body = {"state": "online", "since": int(NOW * 1000), "last_seen": int(NOW * 1000) + 500, "reason": "connected"}
    job.publish(
        job.publisher.seal("entities/gw1/pump%2F7/availability", json.dumps(body).encode(), retain=True),
        job.publisher.seal("plant/a", b'{"value": 1}'),
        job.publisher.seal("entities/gw1/x/availability", b'{"state": "offline"}', retain=True),
        job.publisher.seal("entities/gw1/x/availability", b"", retain=True, tombstone=True),
        job.publisher.seal("entities/gw1/x/availability", b"[1]", retain=True),
    )
    first, second = job.rows("availability")
    assert (first["entity"], first["gateway"], first["state"], first["reason"]) == (
        "pump/7",
        "gw1",
        "online",
        "connected",
    )
    assert (first["since"].timestamp(), first["last_seen"].timestamp()) == (NOW, NOW + 0.5)
    assert (second["state"], second["since"]) == ("offline", None)
    assert [row["topic"] for row in job.rows()] == ["plant/a"]
    assert [row["sequence"] for row in job.rows("quarantine")] == [5]


def report(**body: Any) -> bytes:
    said = {"entity": "pump", "gateway": "gw1", "kind": "READY", "time_ms": int(NOW * 1000), "number": 1, "fields": {}}
    return json.dumps({**said, **body}).encode()


def test_trace_reports_are_rows_beside_statements_and_what_is_none_is_in_the_quarantine(job: Job) -> None:
    topic = "entities/gw1/pump/trace"
    job.publish(
        job.publisher.seal("entities/gw1/pump/availability", b'{"state": "online"}', retain=True),
        job.publisher.seal(topic, report(kind="LOAD_INFORMATION", fields={"cpu": 0.5, "task": "x"}, number=7)),
        job.publisher.seal(topic, report(kind="NETWORK_METRICS", fields={"latency_ms": 12, "loss_rate": 0.1})),
        job.publisher.seal(topic, report(kind="FAILED", time_ms=int(NOW * 1000) + 250)),
        job.publisher.seal(topic, report(kind="GAUGE_INTEREST")),
        job.publisher.seal(topic, b""),
        job.publisher.seal("entities/gw1/valve/trace", report()),
        job.publisher.seal("plant/a", b"1"),
    )
    online, load, network, failed = job.rows("availability")
    assert (online["kind"], online["state"], online["time"].timestamp()) == (None, "online", NOW)
    assert (load["entity"], load["gateway"], load["number"], load["state"]) == ("pump", "gw1", 7, None)
    assert (load["load"], load["fields"]) == ([("cpu", 0.5)], '{"cpu":0.5,"task":"x"}')
    assert (network["latency_ms"], network["loss_rate"], network["load"]) == (12.0, 0.1, None)
    assert (failed["kind"], failed["state"], failed["time"].timestamp()) == ("FAILED", "failed", NOW + 0.25)
    assert [row["topic"] for row in job.rows()] == ["plant/a"]
    assert [(row["sequence"], row["reason"].split(":")[0]) for row in job.rows("quarantine")] == [
        (5, "content"), (6, "content"), (7, "content"),
    ]  # fmt: skip


def test_a_hostile_payload_costs_its_own_row_and_no_query(job: Job) -> None:
    deep, half = b"[" * 100_000, b'{"state": "\\ud800", "reason": "\\udfff"}'
    for payload in (deep, half, b'{"state": "online", "since": 1' + b"0" * 400 + b"}", report(fields={"\ud800": 1})):
        for topic in ("entities/gw1/pump/availability", "entities/gw1/pump/trace"):
            job.publish(job.publisher.seal(topic, payload))
    assert len(job.rows("availability")) + len(job.rows("quarantine")) == 8


# -------------------------------------------------------------------------------------------- quarantine


def test_what_cannot_be_opened_is_a_row_of_the_quarantine_with_its_reason(job: Job, tmp_path: Path) -> None:
    job.publisher.new_key("plant/#", bump=1)
    job.publish(job.publisher.seal("plant/a"))
    job.publisher.new_key("plant/#")
    job.publish(job.publisher.seal("plant/good"))
    write_grants(job.grants, job.overlay.held({KeyName("plant/#", 0, 0)}))
    job.link.publish(job.publisher.seal("plant/b"), content=b"")
    job.link.collector.do_due_work(NOW + 10)
    job.link.write(job.writer)
    job.publish(job.publisher.seal("plant/c", inner_topic="elsewhere/d"))
    assert [row["topic"] for row in job.rows()] == ["plant/good"]
    reasons = [row["reason"] for row in job.rows("quarantine")]
    assert reasons[0] == "grant: the grants file has no key for scope plant/#, epoch 0, bump 1"
    assert reasons[1].startswith("content: no copy")
    assert "may not use" in reasons[2]
    counted: Counter[str] = Counter()
    reader = RowReader(job.options())
    view = SpoolView(job.root)
    reader._opener.refresh()
    for extent in view.ranges({}, view.advance({}), 1):
        from spark_ingest.spool.segments import read_groups

        for group in read_groups(extent):
            reader.rows_of(group, counted)
    assert counted.total() == 3


def test_nothing_secret_is_in_the_spool_or_in_what_is_pickled(job: Job) -> None:
    import base64
    import pickle

    sealed = job.publisher.seal("plant/a", b"the payload in clear")
    job.publish(sealed)
    disk = b"".join(path.read_bytes() for path in job.root.rglob("*") if path.is_file())
    assert b"the payload in clear" not in disk
    key = epoch_key(KeyName("plant/#", 0, 0))
    assert base64.b64encode(key) in job.grants.read_bytes(), "this is what the others must not hold"
    shown = repr(read_grants(job.grants)).encode() + pickle.dumps(job.options())
    for form in (key, base64.b64encode(key), key.hex().encode(), repr(key).encode()):
        assert form not in disk
        assert form not in shown


# ------------------------------------------------------------------------------------- grants and options


def test_a_grant_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = write_grants(tmp_path / "keys.json")
    path.chmod(0o640)
    with pytest.raises(GrantsError, match="chmod 600"):
        read_grants(path)


SCOPE = (
    '{"veilmq_grant": 2, "scopes": [{"wire": "a", "keyed": true, "token_key": null, "keys": '
    '[{"key": "%s", "epoch": %s, "bump": %s, "segment": 0}]}]}'
)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"veilmq_grant": 1, "scopes": []}', '{"veilmq_grant": 2, "scopes": {}}',
     SCOPE % ("c2hvcnQ=", "0", "0"), SCOPE % ("c2hvcnQ", "0", "0"), SCOPE % ("A" * 43 + "=", '"0"', "0"),
     SCOPE % ("A" * 43 + "=", "-1", "0"), SCOPE % ("A" * 43 + "=", "0", "true")],
)  # fmt: skip
def test_what_is_no_grant_is_refused_without_quoting_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(GrantsError) as error:
        read_grants(path)
    assert "c2hvcnQ" not in str(error.value)
    path.write_text(SCOPE % ("A" * 43 + "=", "0", "0"))
    assert KeyName("a", 0, 0) in read_grants(path).scopes["a"].keys, "the form that the others spoil"
    assert "\n" not in str(error.value)


def test_an_absent_grant_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(GrantsError, match="No such file"):
        read_grants(tmp_path / "none.json")


def test_an_unchanged_grant_is_read_once(tmp_path: Path) -> None:
    file = GrantsFile(write_grants(tmp_path / "keys.json"))
    assert file.load()[1]
    assert not file.load()[1]
    os.utime(tmp_path / "keys.json", (1, 1))
    assert file.load()[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [({"spool": ""}, "spool is missing"), ({"grants": ""}, "grants is missing"), ({"stream": "x"}, "none of"),
     ({"identity": "i"}, "needs option overlay"), ({"overlay": "o"}, "needs option identity"),
     ({"topics": "a/#/b"}, "not an MQTT topic filter"), ({"topics": ","}, "empty"),
     ({"topics": "$share/g/a"}, "shared"),
     ({"rows_per_batch": "0"}, "out of range"), ({"max_rows": "x"}, "not a whole number"),
     ({"recieve": "1"}, "unknown"),
     ({"consumer": "../x"}, "not a name"), ({"receiver": "consumers"}, "not a name"),
     ({"grants": "/s/spool/keys.json"}, "lies in the spool"), ({"incomplete_s": "nan"}, "out of range")],
)  # fmt: skip
def test_each_option_that_cannot_work_is_one_clear_error(change: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message) as error:
        parse_options({"spool": "/s/spool", "grants": "/s/keys.json", **change})
    assert "\n" not in str(error.value)


def test_options_have_sensible_defaults() -> None:
    options = parse_options({"path": "spool", "identity": "id", "overlay": "o.json", "Stream": "Availability"})
    assert options.spool.is_absolute()
    assert options.grants == Path("id/scope_keys.json").absolute()
    assert (options.stream, options.consumer, options.receives) == (IngestStream.AVAILABILITY, "availability", True)
    assert options.subscribed == ("#", *options.availability)


def test_the_fakes_sign_like_a_publisher(job: Job) -> None:
    """Guards the tests above: a header that is not the publisher's must not get through them."""
    sealed = job.publisher.seal("plant/a")
    stranger = Publisher(Overlay(), "stranger")
    forged = replace(sealed, signed=sign_header(stranger.identity, sealed.signed.header, sealed.topic))
    job.publish(forged)
    assert not job.rows()
    assert not job.rows("quarantine")


# -------------------------------------------------------------------------------------------- fewer rows, columns


def test_rows_of_some_topics_and_times(job: Job) -> None:
    for n in range(6):
        job.link.publish(job.publisher.seal(f"plant/{n % 3}", b"%d" % n))
    job.link.write(job.writer)
    (extent,) = SpoolView(job.root).ranges({}, SpoolView(job.root).latest(), 1)

    def payloads(**change: Any) -> list[bytes]:
        reader = RowReader(replace(job.options(), **change))
        return [each for batch in reader.read(extent) for each in batch.column("payload").to_pylist()]

    assert payloads(topics=("plant/1",)) == [b"1", b"4"]
    received = sorted(row["received_at"].timestamp() for row in job.rows())
    assert payloads(since_us=int(received[0] * 1e6), until_us=int(received[-1] * 1e6) + 1) == [
        b"%d" % n for n in range(6)
    ]
    assert payloads(since_us=int(received[-1] * 1e6) + 1) == []
    assert payloads(until_us=int(received[0] * 1e6)) == []


def test_columns_that_are_asked_for_in_their_order(job: Job) -> None:
    job.publish(job.publisher.seal("plant/a", b"1", content_type="text/csv"))
    (row,) = job.rows(columns="sequence, publisher_id, key_id, wire_topic")
    assert list(row) == ["sequence", "publisher_id", "key_id", "wire_topic"]
    assert row["publisher_id"] == job.publisher.identity.party_id
    assert (len(row["key_id"]), row["wire_topic"], row["sequence"]) == (32, "veilmq/batch/1", 1)
    (row,) = job.rows(columns="publisher, content_type, correlation_data, receiver, segment, offset")
    view = SpoolView(job.root)
    assert {row["receiver"]: {"segment": row["segment"], "byte": row["offset"]}} == view.latest()
    assert (row["content_type"], row["correlation_data"]) == ("text/csv", None)
    for columns, stream in (("nothing", "telemetry"), ("topic,topic", "telemetry"), ("publisher_id", "quarantine")):
        with pytest.raises(BadOption, match="columns="):
            RowReader(job.options(stream, columns=columns))
