"""Trace context of W3C in user properties of MQTT (Trace Context Level 1, "Traceparent Header"; Trace Context for
MQTT). Pure.

    traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01

A `tracestate` beside it is left as it is. What does not have the form is no context, and travels unchanged.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gateway.base.spans import UserPairs

TRACEPARENT = "traceparent"
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")
SAMPLED = 1


class TraceContext(NamedTuple):
    """Context: the trace, the span that is the parent, and flags."""

    trace_id: int
    span_id: int
    flags: int

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}"


def read(text: str) -> TraceContext | None:
    """Returns the context of a `traceparent`; None for what has not the form."""
    found = _FORM.match(text)
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5] is not None):
        return None
    context = TraceContext(int(found[2], 16), int(found[3], 16), int(found[4], 16))
    return context if context.trace_id and context.span_id else None


def context_of(user: UserPairs) -> TraceContext | None:
    """Returns the context in user properties; None if there is none, or more than one."""
    told = [value for name, value in user if name == TRACEPARENT]
    return read(told[0]) if len(told) == 1 else None


def with_context(user: UserPairs, context: TraceContext) -> UserPairs:
    """Returns user properties with this context in the place of theirs, or behind them."""
    pair = (TRACEPARENT, str(context))
    if any(name == TRACEPARENT for name, _ in user):
        return tuple([pair if each[0] == TRACEPARENT else each for each in user])
    return (*user, pair)
