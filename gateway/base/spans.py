"""Spans of publications, as the places that they pass see them; the port that `gateway/telemetry` fills.

Absent: nobody is told, and a `traceparent` among user properties travels like any other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

UserPairs: TypeAlias = tuple[tuple[str, str], ...]


class PublicationSpans(Protocol):
    """Spans at a gateway. Both methods return the user properties with which a publication goes on, in which the span
    is the parent, and a function that ends the span.
    """

    def span_of_published(
        self, topic: str, qos: int, size: int, user: UserPairs
    ) -> tuple[UserPairs, Callable[[int], None]]:
        """Begins the span of a local client's publication; it ends with the reason code that the client is told."""
        ...

    def span_of_opened(
        self, publisher: str, number: int, topic: str, size: int, user: UserPairs
    ) -> tuple[UserPairs, Callable[[], None]]:
        """Begins the span of a publication that was opened here, until it is with local clients."""
        ...
