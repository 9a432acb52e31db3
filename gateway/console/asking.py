"""Request to the API, as operations see it, and the answer of an error. No HTTP here but the request itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiohttp import web

from gateway.console.shown import LIST_MAX


class ApiError(Exception):
    """Answer of an error: HTTP status and a line for the user."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """Request of a user. `groups`: those that an identity provider says. `id`: the last part of the path, where it
    names an object; `goes_on()`: True while the login counts.
    """

    user: str
    address: str
    id: str
    query: Mapping[str, str]
    body: dict[str, Any]
    request: web.Request
    goes_on: Callable[[], bool]
    groups: tuple[str, ...] | None = None

    @property
    def limit(self) -> int:
        text = self.query.get("limit", "")
        return min(max(int(text), 1), LIST_MAX) if text.isascii() and text.isdigit() else 100


Act: TypeAlias = Callable[[ApiRequest], Awaitable[Any]]
"""Function of an operation: returns JSON, or a finished answer."""
