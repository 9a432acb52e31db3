"""The Spark data source `veilmq` and its streaming reader.

Imports the rooms that read and write; Spark imports it.
"""

from __future__ import annotations

from spark_ingest.source.source import register

__all__ = [
    "register",
]
