"""The executors' side: rows of the spool in, opened content as Arrow columns out.

Imports `receiving`, `secrets`, `spool`; never Spark's driver side.
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
