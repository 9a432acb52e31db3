"""Cells of a simulation as tasks of a Spark job: `veilmq simulate … --spark` finds this module by its entry point.

This module does not know the cells: executors import function and cells by their names, and send back the function's
results. So results are those of the caller's own process. Not here: keeping results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from spark_ingest.session import spark_session

C = TypeVar("C")
R = TypeVar("R")


def run(function: Callable[[C], R], cells: Sequence[C], cores: int | str = "*") -> Iterator[tuple[int, R]]:
    """Calls `function` on every cell, each a task; yields (number of the cell, result) as tasks end.

    Uses the session of this process, or a new one on this machine. Raises NoJava.
    """
    session = spark_session("veilmq simulate", cores)
    numbered = session.sparkContext.parallelize(list(enumerate(cells)), max(1, len(cells)))
    yield from numbered.map(lambda one: (one[0], function(one[1]))).toLocalIterator(prefetchPartitions=True)
