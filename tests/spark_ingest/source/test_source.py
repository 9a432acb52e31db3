"""The source in real Spark: limits and lag, triggers, where a query starts, shards, fixed schemas, two queries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spark_ingest.opening.rows import DDL, IngestStream
from spark_ingest.spool.segments import segment_numbers
from spark_ingest.spool.standing import standings
from spark_ingest.spool.view import SpoolView
from tests.spark_ingest.site import PATIENCE_S, Site

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def drain(site: Site, name: str, rows: Any, **trigger: Any) -> tuple[list[int], list[dict[str, Any]]]:
    """Sequences that a query gets until it has read all, and its progress."""
    found: list[int] = []

    def take(batch: Any, _: int) -> None:
        found.extend(row.sequence for row in batch.select("sequence").collect())

    writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(site.path / f"checkpoint-{name}"))
    query = writer.trigger(**(trigger or {"availableNow": True})).start()
    query.awaitTermination(PATIENCE_S)
    assert query.exception() is None, query.exception()
    return found, [json.loads(each.json) for each in query.recentProgress]


def behind(progress: list[dict[str, Any]]) -> list[int]:
    """Rows that each batch left, as Spark shows them."""
    told = [each["sources"][0]["latestOffset"] for each in progress if each["numInputRows"]]
    return [each["main"]["sealed_batches_behind"] for each in told]


def test_a_batch_holds_no_more_than_asked_for_and_the_progress_tells_the_lag(site: Site) -> None:
    """By bytes; rows are limited in `test_spark`, and both together in `test_options`."""
    site.fill(100, per_group=10)
    view = SpoolView(site.spool)
    two_groups = view.sizes_between({}, view.advance({}, 20))["main"].bytes + 100
    found, progress = drain(site, "bytes", site.stream(max_bytes_per_batch=str(2 * two_groups)))
    assert found == list(range(1, 101))
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [40, 40, 20]
    assert behind(progress) == [60, 20, 0]
    offset = progress[-1]["sources"][0]["latestOffset"]["main"]
    assert (offset["bytes_behind"], set(offset)) == (
        0,
        {"segment", "byte", "sealed_batches_behind", "bytes_behind", "seconds_behind"},
    )
    site.fill(30, per_group=10)
    found, _ = drain(site, "bytes", site.stream(max_rows_per_batch="10"), once=True)
    assert found == list(range(101, 131)), "the trigger once reads all that there is"


@pytest.mark.slow
def test_two_queries_of_their_own_pace_and_a_late_one(site: Site) -> None:
    """What one has not read stays for it, however far the other is; one that starts at the end reads what comes."""
    site.fill(40)
    slow = site.stream(consumer="slow", max_rows_per_batch="20")
    fast = site.stream(consumer="fast", retain_s="3600")
    first, _ = drain(site, "slow", slow)
    assert first == list(range(1, 41))
    for _ in range(3):
        site.fill(40)
        drain(site, "fast", fast)
    assert segment_numbers(site.spool / "main")[0] == 1
    found = {each.name: each.behind for each in standings(site.spool)}
    assert found["slow"] is not None
    assert found["slow"].sealed_batches >= 120
    late, _ = drain(site, "late", site.stream(consumer="late", startingOffsets="latest"))
    site.fill(20)
    again, _ = drain(site, "late", site.stream(consumer="late", startingOffsets="latest"))
    assert (late, again) == ([], list(range(161, 181)))
    rest, _ = drain(site, "slow", slow)
    assert rest == list(range(41, 181))


@pytest.mark.slow
def test_shards_share_out_what_is_published(site: Site) -> None:
    site.fill(60)
    parts = [drain(site, f"shard{n}", site.stream(shard=f"{n}/2"))[0] for n in (1, 2)]
    assert sorted(parts[0] + parts[1]) == list(range(1, 61))
    assert [] in parts, "numbers of one block go to one part"
    again = site.stream(shard="1/3", shard_before="1/2@2100-01-01T00:00:00Z")
    assert drain(site, "shard1", again)[0] == [], "what was sealed before the change is as before"
    with pytest.raises(Exception, match="shard_before=PART"):
        drain(site, "shard2", site.stream(shard="2/3"))
    frame = site.spark.read.format("veilmq").options(spool=str(site.spool), grants=str(site.grants), shard="1/2").load()
    assert sorted(row.sequence for row in frame.collect()) == sorted(parts[0])
    assert {each.name.split(".")[0] for each in standings(site.spool)} == {"telemetry-1of2", "telemetry-2of2"}


@pytest.mark.parametrize("schema", ["a int", DDL[IngestStream.TELEMETRY].replace("payload binary", "payload string")])
def test_a_schema_of_ones_own_is_refused_with_a_line(site: Site, schema: str) -> None:
    site.spool.mkdir()
    told = {"spool": str(site.spool), "grants": str(site.grants)}
    frame = site.spark.read.format("veilmq").schema(schema).options(**told).load()
    with pytest.raises(Exception, match="fixed schema"):
        frame.collect()
    stream = site.spark.readStream.format("veilmq").schema(schema).options(**told).load()
    with pytest.raises(Exception, match="fixed schema"):
        drain(site, "never", stream)


def test_sql_tables_views_columns_and_filters(site: Site) -> None:
    """Spark tells a source of keys of its own, and keeps no options of a table: those come with the query."""
    site.fill(30)
    told = f"spool '{site.spool}', grants '{site.grants}'"
    site.spark.sql(f"CREATE TEMPORARY VIEW telemetry USING veilmq OPTIONS ({told}, columns 'topic, sequence')")
    assert [row.col_name for row in site.spark.sql("DESCRIBE telemetry").collect()] == ["topic", "sequence"]
    query = site.spark.sql("SELECT sequence FROM telemetry WHERE topic = 'plant/1' ORDER BY sequence")
    assert [row.sequence for row in query.collect()] == list(range(2, 31, 3))
    site.spark.sql(f"CREATE TABLE readings USING veilmq OPTIONS ({told})")
    try:
        assert site.spark.sql("DESCRIBE readings").count() == 9
        given = f"`spool` = '{site.spool}', `grants` = '{site.grants}'"
        assert site.spark.sql(f"SELECT * FROM readings WITH ({given})").count() == 30
        with pytest.raises(Exception, match="Spark keeps no options"):
            site.spark.sql("SELECT * FROM readings").collect()
    finally:
        site.spark.sql("DROP TABLE readings")
        site.spark.catalog.dropTempView("telemetry")


def test_a_frame_that_is_read_again_or_beside_itself_has_all_its_rows(site: Site) -> None:
    """Spark 4.3 keeps what a Python source made of the filters of one scan for all scans of the same frame."""
    site.fill(30)
    site.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = site.spark.read.format("veilmq").options(spool=str(site.spool), grants=str(site.grants)).load()
        some = [frame.where(f"topic = 'plant/{number}'") for number in range(2)]
        assert [each.count() for each in (some[0], frame, some[1], frame)] == [10, 30, 10, 30]
        assert some[0].union(some[1]).count() == 20
        assert some[0].join(frame, "sequence").count() == 10
    finally:
        site.spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_schemas_are_what_the_readme_says(site: Site) -> None:
    """Pinned: a change breaks users' queries and sinks."""
    site.spool.mkdir()
    found = {stream: site.stream(stream=stream).schema for stream in ("telemetry", "quarantine")}
    assert found["telemetry"].simpleString() == (
        "struct<topic:string,payload:binary,publisher:string,sequence:bigint,published_at:timestamp,"
        "received_at:timestamp,qos:int,retain:boolean,properties:array<struct<name:string,value:string>>>"
    )
    assert found["quarantine"].simpleString() == (
        "struct<reason:string,wire_topic:string,publisher:string,sequence:bigint,key_id:string,"
        "published_at:timestamp,received_at:timestamp,header:binary,sealed:binary>"
    )
    for column in ("published_at", "received_at"):
        windows = site.stream().withWatermark(column, "10 seconds").groupBy(column).count()
        assert windows.isStreaming
