"""Subscriptions to content: the predicate in a SUBSCRIBE, and the receivers of a topic whose predicate a message
fulfils (C10).

A predicate stands behind a `?` in the filter, for any client, or in the user property `$where`, for clients of MQTT 5.
`bridge.predicates` gives it its meaning. Not here: the topics a filter matches (`routing.py`), rights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from bridge.base import SHARE_PREFIX, TopicError, split_share
from bridge.predicates import Attributes, Predicate, PredicateError, parse_expression, parse_where
from gateway.clients.since import SINCE_PREFIX, since_ms
from gateway.mqtt5.packets import Properties, Subscribe, Subscription

WHERE = "$where"
PARSED_MAX = 4_096
"""Predicates that are remembered in their parsed form."""
_MALFORMED = "?"


class Carried(Protocol):
    """Message on its way, as predicates see it."""

    @property
    def payload(self) -> bytes: ...
    @property
    def properties(self) -> Properties: ...


def split_expression(topic_filter: str) -> tuple[str, str]:
    """Returns the filter and its expression with the `?`, if any. Filters below `$` have no expression, shared
    ones may.
    """
    inner = topic_filter
    if topic_filter.startswith(SINCE_PREFIX):
        inner = topic_filter.split("/", 2)[-1]
    elif topic_filter.startswith(SHARE_PREFIX):
        inner = topic_filter[len(SHARE_PREFIX) :].partition("/")[2]
    _, mark, expression = inner.partition("?")
    if not mark or inner.startswith("$"):
        return topic_filter, ""
    return topic_filter.removesuffix(mark + expression), mark + expression


def with_predicates(packet: Subscribe) -> Subscribe:
    """Returns the packet with `Subscription.predicate` filled in; `inner_filter` checks the predicates."""
    where = [text or _MALFORMED for name, text in packet.properties.user if name == WHERE][-1:]
    asked = []
    for each in packet.subscriptions:
        expression = split_expression(each.filter)[1]
        said = [expression, *where] if expression else where
        # Two predicates of one subscription are ambiguous.
        asked.append(replace(each, predicate=_MALFORMED if len(said) > 1 else "".join(said)))
    return replace(packet, subscriptions=tuple(asked))


@lru_cache(maxsize=PARSED_MAX)
def _parsed(text: str) -> Predicate:
    return parse_expression(text[1:]) if text.startswith("?") else parse_where(text)


def predicate_of(options: Subscription) -> Predicate | None:
    """Returns the predicate of a subscription; None for a subscription to all content. Raises PredicateError."""
    return _parsed(options.predicate) if options.predicate else None


def inner_filter(options: Subscription) -> str | None:
    """Returns the filter without share prefix and expression; None if the filter or the predicate is not valid."""
    try:
        predicate_of(options)
        group, inner = split_share(options.base)
        is_past = bool(options.since) or inner.startswith(SINCE_PREFIX)
        if is_past and (group is not None or inner.startswith(SINCE_PREFIX) or since_ms(options.since, 0.0) is None):
            return None  # a group deals out what comes, and nothing of the past
        return inner
    except (TopicError, PredicateError):
        return None


def route_name(options: Subscription) -> tuple[str | None, str]:
    """Returns group, or None, and filter under which a subscription is routed. A predicate makes another group, whose
    name no client can choose, since group names of clients contain no '/'. Raises TopicError.
    """
    group, topic_filter = split_share(options.base)
    if group is not None and options.predicate:
        group = f"{group}/{hashlib.sha256(options.predicate.encode()).hexdigest()[:16]}"
    return group, topic_filter


def wants(options: Subscription, message: Carried) -> bool:
    """True if the message fulfils the subscription's predicate."""
    predicate = predicate_of(options)
    return predicate is None or predicate.holds_for(attributes_of(message))


def attributes_of(message: Carried) -> Attributes:
    """Returns the attributes of a message that predicates see."""
    return Attributes(message.properties.user, message.payload)


def all_predicates(options: Sequence[Subscription]) -> list[Predicate]:
    """Returns the valid predicates of the subscriptions."""
    return [_parsed(each.predicate) for each in options if each.predicate and inner_filter(each) is not None]
