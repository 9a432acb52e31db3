"""Spark ingest of VeilMQ: sealed publications into streaming DataFrames, opened only in the executors.

    register(spark)        makes spark.readStream.format("veilmq") known
    spark_session(...)     a local session that finds Java by itself

README.md says in which order to read. Importing this package imports
neither Spark nor Arrow.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_ingest.session import spark_session
    from spark_ingest.source import register

__all__ = ["register", "spark_session"]

_GATEWAY = find_spec("gateway")
if _GATEWAY is None or _GATEWAY.origin != str(Path(__file__).parents[1] / "gateway" / "__init__.py"):
    _FOUND = None if _GATEWAY is None else _GATEWAY.origin
    raise ImportError(f"{_FOUND} hides VeilMQ's package `gateway`: rename it, or start Python in another folder")
import gateway as gateway  # noqa: E402  refuses what hides `keys` and `bridge`


def __getattr__(name: str) -> Any:
    if name == "register":
        from spark_ingest.source.source import register  # noqa: PLC0415

        return register
    if name == "spark_session":
        from spark_ingest.session import spark_session  # noqa: PLC0415

        return spark_session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
