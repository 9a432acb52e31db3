"""The executors' side: rows of the spool in, opened content as Arrow columns out.

Imports `receiving`, `secrets`, `spool`; never Spark's driver side.
"""

from __future__ import annotations

from spark_ingest.opening.held import KeyNames
from spark_ingest.opening.rows import DDL, RowReader, schema_of

__all__ = [
    "DDL",
    "KeyNames",
    "RowReader",
    "schema_of",
]
