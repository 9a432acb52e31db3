"""Filters of Spark narrow what is looked at; whatever is not understood narrows nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan, Not, StringStartsWith

from spark_ingest.options import Options, parse_options
from spark_ingest.source.filters import TOPICS_MAX, narrowed

WHEN = datetime(2026, 11, 22, tzinfo=UTC)
US = int(WHEN.timestamp()) * 1_000_000


def after(*filters: Any) -> Options:
    return narrowed(parse_options({"spool": "/s", "grants": "/k"}), filters)


def test_topics_that_are_asked_for_by_name() -> None:
    assert after(EqualTo(("topic",), "a/b")).only == ("a/b",)
    assert after(In(("topic",), ("a", "b")), EqualTo(("topic",), "b")).only == ("b",)
    assert after(EqualTo(("topic",), "a"), EqualTo(("topic",), "b")).only == ()


def test_times_of_reception_on_the_safe_side() -> None:
    found = after(GreaterThanOrEqual(("received_at",), WHEN), LessThan(("received_at",), WHEN + timedelta(seconds=1)))
    assert found.since_us is not None
    assert found.until_us is not None
    assert US - 10 < found.since_us <= US
    assert US + 1_000_000 <= found.until_us < US + 1_000_010


@pytest.mark.parametrize(
    "each",
    [Not(EqualTo(("topic",), "a")), StringStartsWith(("topic",), "a"), EqualTo(("payload",), b"a"),
     EqualTo(("topic", "x"), "a"), EqualTo(("topic",), 5), In(("topic",), tuple(map(str, range(TOPICS_MAX + 1)))),
     GreaterThanOrEqual(("received_at",), WHEN.replace(tzinfo=None)), LessThan(("published_at",), WHEN)],
)  # fmt: skip
def test_what_is_not_understood_narrows_nothing(each: Any) -> None:
    assert after(each) == after()
