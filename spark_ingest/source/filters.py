"""What a batch read need not look at, out of the filters that Spark hands to a Python source.

Equal topics, one of several topics, and bounds of `received_at` (segments know when their rows were received). Any
other filter changes nothing. Nothing here decides what is a row of the result: Spark filters what is read itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from spark_ingest.options import Options

TOPICS_MAX = 10_000
"""Beyond it a look at each topic costs as much as it saves."""


def narrowed(options: Options, filters: Sequence[Filter]) -> Options:
    """Options that read no more than `filters` need."""
    for each in filters:
        attribute: Any = getattr(each, "attribute", None)
        if attribute == ("topic",) and isinstance(each, EqualTo | In):
            options = _only(options, (each.value,) if isinstance(each, EqualTo) else tuple(each.value))
        elif attribute == ("received_at",):
            options = _bound(options, each)
    return options


def _only(options: Options, topics: Sequence[Any]) -> Options:
    if len(topics) > TOPICS_MAX or not all(isinstance(topic, str) for topic in topics):
        return options
    before = options.only
    return replace(options, only=tuple(topic for topic in topics if before is None or topic in before))


def _bound(options: Options, each: Filter) -> Options:
    moment: Any = getattr(each, "value", None)
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        return options
    # A microsecond more on either side: what is exact is Spark's business.
    us = round(moment.timestamp() * 1_000_000)
    if isinstance(each, GreaterThan | GreaterThanOrEqual | EqualTo):
        options = replace(options, since_us=max(us - 1, options.since_us or 0))
    if isinstance(each, LessThan | LessThanOrEqual | EqualTo):
        options = replace(options, until_us=us + 2 if options.until_us is None else min(us + 2, options.until_us))
    return options
