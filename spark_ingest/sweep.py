"""Cells of a simulation as tasks of a Spark job: `veilmq simulate … --spark` finds this by its entry point.

What a cell is and how it is run is not known here: executors import the function by name, give it text and get text
back. So results are the same bytes as where the caller runs it in its own process. Not here: keeping results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

from spark_ingest.session import spark_session


def run(function: str, cells: Sequence[str], cores: int | str = "*") -> Iterator[tuple[int, str]]:
    """Call `function` (MODULE:NAME, text to text) on every cell; (its number, its result) as they are done.

    Uses the session that runs, or one on this machine. Raises NoJava.
    """
    session = spark_session("veilmq simulate", cores)
    numbered = session.sparkContext.parallelize(list(enumerate(cells)), max(1, len(cells)))
    yield from numbered.map(lambda one: (one[0], call(function, one[1]))).toLocalIterator(prefetchPartitions=True)


def call(function: str, cell: str) -> str:
    """In an executor."""
    module, _, name = function.partition(":")
    result: str = getattr(import_module(module), name)(cell)
    return result
