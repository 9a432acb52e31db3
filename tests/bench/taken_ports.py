"""Runs of processes that begin anew where a port that was free a moment ago is taken by somebody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TRIES = 4
SAID = "the port is in use"


def retried(run: Callable[[], T]) -> T:
    """Returns the result of `run`. Any other failure than a taken port is raised at once."""
    for _ in range(TRIES - 1):
        try:
            return run()
        except AssertionError as error:
            if SAID not in str(error):
                raise
    return run()
