"""The rows of the conformance table, by subject."""

from __future__ import annotations

from ..rows import Row
from . import acknowledging, connecting, ending, formats, publishing, sessions, subscribing, topics, websockets, wills

_MODULES = (
    formats,
    connecting,
    wills,
    sessions,
    publishing,
    acknowledging,
    subscribing,
    topics,
    ending,
    websockets,
)
ROWS: tuple[Row, ...] = tuple(row for module in _MODULES for row in module.ROWS)
