"""Ready-made queries over the streams of `veilmq`: aggregates in windows, what came late, who was alive when.

    windows    telemetry                  count, mean, least, greatest of each topic in windows     streams
    late       telemetry                  how late rows came, by publisher, and duplicates          batch
    timeline   availability               who was in which state from when until when               batch
    during     telemetry, a timeline      telemetry rows with the state that their entity was in    batch
    entities   availability               the newest state and figures of each entity               streams
    fleet      rows of `entities`         how many entities are in which state where, the worst     batch

Plain DataFrame functions, so they compose with anything that Spark can do; Spark is imported when one is called. What
needs all rows at once is for batches (`spark.read`, or the rows of a `foreachBatch`). They start no query and choose
no sink; `runs` runs them for the command line.
"""
# ruff: noqa: PLC0415  Spark takes a second to import

from __future__ import annotations

from typing import Any

DEFAULT_WINDOW = "5 seconds"
DEFAULT_WATERMARK = "10 seconds"
DEFAULT_FIELD = "value"
DEFAULT_LATE_AFTER = "10 seconds"
DEFAULT_ENTITY_LEVEL = 1
ALIVE = "alive"
"""State of an entity of which nothing but signs of life is known."""
OF_OTHERS = ("FAILURE_SUSPICION", "FAILED", "DISCONNECT")
"""Kinds of traces that are no sign of life of their entity."""
NUMBERS = "veilmq_numbers"
"""Name of the observation of `windows`: `rows`, the numbers of each micro-batch. Windows count those in time."""


def numbers(rows: Any, field: str = DEFAULT_FIELD) -> Any:
    """Returns telemetry rows whose payload is a number, or a JSON object with one in `field`, with column `value`.

    Rows without a finite number are left out: an infinity would be the mean of its window. `field`: a JSON path
    without `$.`, such as `value` or `motor.rpm`.
    """
    from pyspark.sql import functions as f

    text = f.col("payload").cast("string")
    value = f.coalesce(text.try_cast("double"), f.get_json_object(text, f"$.{field}").try_cast("double"))
    return rows.withColumn("value", value).where("abs(value) < double('Infinity')")


def windows(
    rows: Any, window: str = DEFAULT_WINDOW, watermark: str = DEFAULT_WATERMARK, field: str = DEFAULT_FIELD
) -> Any:
    """Count, mean, least and greatest value of each topic in each window of the time when devices published.

    A row that comes later than `watermark` after the newest one is left out, and state is bounded by that. The
    time of a row is the earlier one of publishing and reception: so a publisher whose clock is fast moves the watermark
    no further than the receiver's clock does, nor a receiver further than the publishers' clocks.
    """
    from pyspark.sql import functions as f

    return (
        numbers(rows, field)
        .observe(NUMBERS, f.count(f.lit(1)).alias("rows"))
        .withColumn("at", f.least("published_at", "received_at"))
        .withWatermark("at", watermark)
        .groupBy(f.window("at", window).alias("window"), "topic")
        .agg(
            f.count("value").alias("count"),
            f.avg("value").alias("mean"),
            f.min("value").alias("least"),
            f.max("value").alias("greatest"),
        )
        .select("window.start", "window.end", "topic", "count", "mean", "least", "greatest")
    )


def late(rows: Any, late_after: str = DEFAULT_LATE_AFTER) -> Any:
    """Returns the delay of telemetry by publisher: percentiles in ms, and rows that took longer than `late_after`.

    `duplicates` counts rows beyond the first of one (publisher, sequence), and is 0 unless there is a fault.
    """
    from pyspark.sql import functions as f

    delay_ms = (f.unix_micros("received_at") - f.unix_micros("published_at")) / 1000
    too_late = f.col("received_at") > f.col("published_at") + f.expr(f"INTERVAL {late_after}")
    return (
        rows.withColumns({"delay_ms": delay_ms, "too_late": too_late})
        .groupBy("publisher", "sequence")
        .agg(f.count("*").alias("copies"), f.min("delay_ms").alias("delay_ms"), f.min("too_late").alias("too_late"))
        .groupBy("publisher")
        .agg(
            f.count("*").alias("publications"),
            f.sum(f.col("copies") - 1).alias("duplicates"),
            f.count_if("too_late").alias("late"),
            *(f.percentile("delay_ms", p / 100).alias(f"p{p}_ms") for p in (50, 90, 99)),
            f.max("delay_ms").alias("max_ms"),
        )
    )


def timeline(rows: Any) -> Any:
    """Returns the states of each entity from availability rows: since, until (null: still), seconds.

    For an entity whose traces are reported only the traces count: they know more than the connection of a client.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    each = Window.partitionBy("gateway", "entity")
    in_order = each.orderBy("time", "sequence")
    traced = f.col("kind").isNotNull()
    known = rows.where("state IS NOT NULL").withColumn("is_traced", f.max(traced).over(each))
    changes = known.where(traced == f.col("is_traced")).withColumn("before", f.lag("state").over(in_order))
    return (
        changes.where("before IS NULL OR before != state")
        .withColumn("until", f.lead("time").over(in_order))
        .withColumn("seconds", (f.unix_micros("until") - f.unix_micros("time")) / 1_000_000)
        .select("gateway", "entity", "state", f.col("time").alias("since"), "until", "seconds")
    )


def during(rows: Any, intervals: Any, entity_level: int = DEFAULT_ENTITY_LEVEL) -> Any:
    """Returns telemetry rows with the `state` of their entity at the time of publication, by a `timeline`.

    `entity_level`: the level of the topic with the entity's name, from 0. Rows of unknown entities are left out.
    """
    from pyspark.sql import functions as f

    from spark_ingest.functions import topic_level

    told = rows.withColumn("entity", topic_level("topic", entity_level))
    meanwhile = f.expr("published_at >= since AND (until IS NULL OR published_at < until)")
    states = intervals.withColumnRenamed("entity", "of")
    return told.join(states, (told.entity == states.of) & meanwhile).drop("of")


def entities(rows: Any) -> Any:
    """The newest state and figures of each entity, from availability rows: a table for output mode `complete`.

    As in `timeline`, traces count before statements. `last_seen`: when it gave its last sign of life.
    """
    from pyspark.sql import functions as f

    # Of the rows about one entity, which one gateway publishes, the highest sequence of the newest is the newest.
    order = f.struct(f.col("kind").isNotNull(), "time", "sequence")
    of_itself = f.when(f.col("kind").isNull(), f.col("last_seen")).when(~f.col("kind").isin(*OF_OTHERS), f.col("time"))

    def newest(value: Any, when: str) -> Any:
        return f.max_by(value, f.when(f.expr(when), order))

    return (
        rows.groupBy("gateway", "entity")
        .agg(
            newest(f.struct("state", f.coalesce("since", "time").alias("since"), "reason"), "state IS NOT NULL").alias(
                "s"
            ),
            f.max(of_itself).alias("last_seen"),
            newest(f.col("latency_ms"), "latency_ms IS NOT NULL").alias("latency_ms"),
            newest(f.col("loss_rate"), "loss_rate IS NOT NULL").alias("loss_rate"),
            newest(f.col("load"), "load IS NOT NULL").alias("load"),
        )
        .withColumns(
            {"state": f.coalesce("s.state", f.lit(ALIVE)), "since": f.col("s.since"), "reason": f.col("s.reason")}
        )
        .select("gateway", "entity", "state", "since", "last_seen", "reason", "latency_ms", "loss_rate", "load")
    )


def fleet(known: Any, now: Any = None) -> Any:
    """By gateway and state: how many of the `entities`, their worst latency and loss, and who was unseen for longest.

    `now`: a column with the time to count from; the present, unless told.
    """
    from pyspark.sql import functions as f

    now = f.current_timestamp() if now is None else now
    unseen_s = (f.unix_micros(now) - f.unix_micros("last_seen")) / 1_000_000
    return (
        known.withColumn("unseen_s", unseen_s)
        .groupBy("gateway", "state")
        .agg(
            f.count("*").alias("entities"),
            f.max("latency_ms").alias("worst_latency_ms"),
            f.max("loss_rate").alias("worst_loss_rate"),
            f.max("unseen_s").alias("longest_unseen_s"),
            f.max_by("entity", "unseen_s").alias("longest_unseen"),
        )
    )
