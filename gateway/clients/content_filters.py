"""Subscriptions to content: where a SUBSCRIBE says its predicate, and who of a topic's receivers a message fits (C10).

A predicate is said behind a `?` in the filter, by any client, or in the user property `$where`, by one of MQTT 5. What
it means is `bridge.predicates`' business. Not here: which topics a filter matches (`routing.py`), rights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from bridge.base import SHARE_PREFIX, TopicError, split_share
from bridge.predicates import Attributes, Predicate, PredicateError, parse_expression, parse_where
from gateway.mqtt5.packets import Properties, Subscribe, Subscription

WHERE = "$where"
PARSED_MAX = 4_096
"""Predicates that are remembered in their parsed form."""
_MALFORMED = "?"


class Carried(Protocol):
    """A message on its way, as predicates see it."""

    @property
    def payload(self) -> bytes: ...
    @property
    def properties(self) -> Properties: ...


def split_expression(topic_filter: str) -> tuple[str, str]:
    """The filter and its expression with the `?`, if it has one. Filters below `$` have none, shared ones may."""
    inner = topic_filter
    if topic_filter.startswith(SHARE_PREFIX):
        inner = topic_filter[len(SHARE_PREFIX) :].partition("/")[2]
    _, mark, expression = inner.partition("?")
    if not mark or inner.startswith("$"):
        return topic_filter, ""
    return topic_filter.removesuffix(mark + expression), mark + expression


def with_predicates(packet: Subscribe) -> Subscribe:
    """The same with `Subscription.predicate` filled in; whether they are right is told by `inner_filter`."""
    where = [text or _MALFORMED for name, text in packet.properties.user if name == WHERE][-1:]
    asked = []
    for each in packet.subscriptions:
        expression = split_expression(each.filter)[1]
        said = [expression, *where] if expression else where
        # Said in two places, it is not clear what is meant.
        asked.append(replace(each, predicate=_MALFORMED if len(said) > 1 else "".join(said)))
    return replace(packet, subscriptions=tuple(asked))


@lru_cache(maxsize=PARSED_MAX)
def _parsed(text: str) -> Predicate:
    return parse_expression(text[1:]) if text.startswith("?") else parse_where(text)


def predicate_of(options: Subscription) -> Predicate | None:
    """None: it wants everything. Raises PredicateError."""
    return _parsed(options.predicate) if options.predicate else None


def inner_filter(options: Subscription) -> str | None:
    """The filter without share prefix and expression; None if that or the predicate is not valid."""
    try:
        predicate_of(options)
        return split_share(options.base)[1]
    except (TopicError, PredicateError):
        return None


def route_name(options: Subscription) -> tuple[str | None, str]:
    """Group, or None, and filter under which it is routed. A predicate makes it another group: no client can choose
    its name, since none contains a '/'. Raises TopicError."""
    group, topic_filter = split_share(options.base)
    if group is not None and options.predicate:
        group = f"{group}/{hashlib.sha256(options.predicate.encode()).hexdigest()[:16]}"
    return group, topic_filter


def wants(options: Subscription, message: Carried) -> bool:
    """Whether the message fulfils the subscription's predicate."""
    predicate = predicate_of(options)
    return predicate is None or predicate.holds(attributes_of(message))


def attributes_of(message: Carried) -> Attributes:
    """What predicates see of it."""
    return Attributes(message.properties.user, message.payload)


def all_predicates(options: Sequence[Subscription]) -> list[Predicate]:
    """Those of the subscriptions that have valid ones."""
    return [_parsed(each.predicate) for each in options if each.predicate and inner_filter(each) is not None]
