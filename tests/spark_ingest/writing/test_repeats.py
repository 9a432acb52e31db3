"""Repeats of a writer are dropped by their id, in a batch and in a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_ingest.writing.outgoing_rows import ID_PROPERTY

pytest.importorskip("pyspark")


pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


PATIENCE_S = 60.0


def test_repeats_are_dropped_by_their_id_and_only_those(spark: Any, tmp_path: Path) -> None:
    from spark_ingest.writing.repeats import drop_repeats

    def row(publisher: str, sequence: int, told: str | None) -> str:
        pair = (
            f"array(named_struct('name', 'k', 'value', 'x'), named_struct('name', '{ID_PROPERTY}', 'value', '{told}'))"
        )
        properties = pair if told else "cast(array() AS array<struct<name: string, value: string>>)"
        return (
            f"SELECT '{publisher}' AS publisher, bigint({sequence}) AS sequence, {properties} AS properties, "
            f"timestamp '2026-01-01 00:00:0{sequence}' AS received_at"
        )

    told = [("gw", 1, "w/0/0/0"), ("gw", 2, "w/0/0/1"), ("gw", 3, "w/0/0/0"), ("other", 4, "w/0/0/0"),
            ("gw", 5, None), ("gw", 6, None)]  # fmt: skip
    rows = spark.sql(" UNION ALL ".join(row(*each) for each in told))
    wanted = [("gw", "gw/5"), ("gw", "gw/6"), ("gw", "w/0/0/0"), ("gw", "w/0/0/1"), ("other", "w/0/0/0")]
    assert sorted((each.publisher, each.veilmq_id) for each in drop_repeats(rows).collect()) == wanted
    rows.write.parquet(str(tmp_path / "rows"))
    found: list[Any] = []
    stream = drop_repeats(spark.readStream.schema(rows.schema).parquet(str(tmp_path / "rows")))
    query = stream.writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect())).trigger(availableNow=True)
    query.start().awaitTermination(PATIENCE_S)
    assert sorted((each.publisher, each.veilmq_id) for each in found) == wanted
