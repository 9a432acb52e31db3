"""The executors' side: takes rows of the spool, gives opened content as Arrow columns.

Imports `secrets` and `spool`; never Spark's driver side.
"""

from __future__ import annotations

from spark_ingest.opening.decode import Opener
from spark_ingest.opening.held import KeyNames
from spark_ingest.opening.packing import PackMaker
from spark_ingest.opening.rows import DDL, RowReader, schema_of

__all__ = [
    "DDL",
    "KeyNames",
    "Opener",
    "PackMaker",
    "RowReader",
    "schema_of",
]
