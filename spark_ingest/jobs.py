"""Ready-made queries over the streams of `veilmq`: readings from JSON, windows over them, who is alive.

Plain DataFrame functions, so they compose with anything that Spark can do. Spark is imported when one is called.
They start no query and choose no sink (`sink.py` has one).
"""

from __future__ import annotations

from typing import Any

DEFAULT_WINDOW = "5 seconds"
DEFAULT_WATERMARK = "10 seconds"


def readings(rows: Any) -> Any:
    """Telemetry rows whose payload is a JSON object {"sensor": text, "value": number, "t": UNIX seconds}.

    Columns sensor, value, time (from `t`, else when the device published), topic, publisher, sequence. Rows
    without a sensor and a number are left out.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    body = f.from_json(f.col("payload").cast("string"), "sensor string, value double, t double")
    parsed = rows.select(body.alias("body"), "topic", "publisher", "sequence", "published_at")
    time = f.coalesce(f.timestamp_micros((f.col("body.t") * 1_000_000).cast("long")), f.col("published_at"))
    return parsed.where("body.sensor IS NOT NULL AND body.value IS NOT NULL").select(
        "body.sensor", "body.value", time.alias("time"), "topic", "publisher", "sequence"
    )


def windows(rows: Any, window: str = DEFAULT_WINDOW, watermark: str = DEFAULT_WATERMARK) -> Any:
    """Count, mean, least and greatest value of each sensor and topic in each window, from telemetry rows.

    A reading that comes later than `watermark` after the newest one is left out, and state is bounded by that.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    return (
        readings(rows)
        .withWatermark("time", watermark)
        .groupBy(f.window("time", window), "topic", "sensor")
        .agg(
            f.count("value").alias("count"),
            f.avg("value").alias("mean"),
            f.min("value").alias("least"),
            f.max("value").alias("greatest"),
        )
        .select(
            f.col("window.start").alias("start"),
            f.col("window.end").alias("end"),
            "topic",
            "sensor",
            "count",
            "mean",
            "least",
            "greatest",
        )
    )


def entities(rows: Any) -> Any:
    """The newest state of each entity, from availability rows: a table for output mode `complete`."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    # Of the rows about one entity, which one gateway publishes, the highest sequence is the newest.
    newest = f.max_by(f.struct("state", "since", "last_seen", "reason"), "sequence").alias("newest")
    return rows.groupBy("gateway", "entity").agg(newest).select("gateway", "entity", "newest.*")
