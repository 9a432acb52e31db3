"""Cells of a simulation as tasks of a Spark job: `veilmq simulate … --spark` finds this by its entry point.

What a cell is and how it is run is not known here: executors import function and cells by their names, and send back
what the function gives. So results are those of the caller's own process. Not here: keeping results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from spark_ingest.session import spark_session

C = TypeVar("C")
R = TypeVar("R")


def run(function: Callable[[C], R], cells: Sequence[C], cores: int | str = "*") -> Iterator[tuple[int, R]]:
    """Call `function` on every cell, each a task; (its number, its result) as they are done.

    Uses the session that runs, or one on this machine. Raises NoJava.
    """
    session = spark_session("veilmq simulate", cores)
    numbered = session.sparkContext.parallelize(list(enumerate(cells)), max(1, len(cells)))
    yield from numbered.map(lambda one: (one[0], function(one[1]))).toLocalIterator(prefetchPartitions=True)
