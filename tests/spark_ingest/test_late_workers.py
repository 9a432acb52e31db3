"""A query whose Python worker was late starts again; any other error, and the fifth late worker, ends it."""

from __future__ import annotations

import pytest

from spark_ingest.late_workers import STARTS_MAX, PatientQuery

LATE = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back."


class Query:
    """A query of Spark that ends with an error, or not at all."""

    def __init__(self, error: str) -> None:
        self.recentProgress = [error]
        self._error = error
        self.stopped = False

    def awaitTermination(self, seconds: float) -> bool:
        if self._error:
            raise RuntimeError(self._error)
        return self.stopped

    def stop(self) -> None:
        self.stopped = True


def started(*errors: str) -> tuple[PatientQuery, list[Query]]:
    queries: list[Query] = []

    def start() -> Query:
        queries.append(Query(errors[len(queries)]))
        return queries[-1]

    return PatientQuery(start), queries


def test_a_late_worker_gets_another_start() -> None:
    query, all_queries = started(LATE, LATE, "")
    assert [query.ended(0) for _ in range(3)] == [False, False, False]
    assert len(all_queries) == 3
    assert query.progress == [""]
    query.stop()
    assert query.ended(0)


def test_other_errors_end_it_at_once() -> None:
    query, all_queries = started("no such column")
    with pytest.raises(RuntimeError, match="no such column"):
        query.ended(0)
    assert len(all_queries) == 1


def test_starts_are_bounded() -> None:
    query, all_queries = started(*[LATE] * STARTS_MAX)
    assert not any(query.ended(0) for _ in range(STARTS_MAX - 1))
    with pytest.raises(RuntimeError, match="connect back"):
        query.ended(0)
    assert len(all_queries) == STARTS_MAX
