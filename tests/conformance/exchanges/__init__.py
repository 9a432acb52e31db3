"""The rows of the conformance table, by subject."""

from __future__ import annotations

from tests.conformance.exchanges import (
    accepting,
    acknowledging,
    authenticating,
    carrying,
    connecting,
    ending,
    formats,
    publishing,
    sessions,
    subscribing,
    topics,
    websockets,
    wills,
)
from tests.conformance.rows import Row

_MODULES = (
    formats,
    connecting,
    accepting,
    wills,
    sessions,
    publishing,
    carrying,
    acknowledging,
    subscribing,
    topics,
    ending,
    authenticating,
    websockets,
)
ROWS: tuple[Row, ...] = tuple(row for module in _MODULES for row in module.ROWS)
