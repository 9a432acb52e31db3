"""Spark ingest of VeilMQ: sealed publications into streaming DataFrames, opened only in the executors.

    register(spark)        makes spark.readStream.format("veilmq") known
    spark_session(...)     a local session that finds Java by itself

README.md says in which order to read. Importing this package imports
neither Spark nor Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_ingest.session import spark_session
    from spark_ingest.source import register

__all__ = ["register", "spark_session"]


def __getattr__(name: str) -> Any:
    if name == "register":
        from spark_ingest.source.source import register  # noqa: PLC0415

        return register
    if name == "spark_session":
        from spark_ingest.session import spark_session  # noqa: PLC0415

        return spark_session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
