"""One request to the API, as operations see it, and an answer that is an error. No HTTP here but the request itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiohttp import web

from gateway.console.shown import LIST_MAX


class ApiError(Exception):
    """An answer that is an error: HTTP status and a line for whoever asked."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request. `id`: the last part of the path, where it names something; `goes_on()`: the login counts still."""

    user: str
    address: str
    id: str
    query: Mapping[str, str]
    body: dict[str, Any]
    request: web.Request
    goes_on: Callable[[], bool]

    @property
    def limit(self) -> int:
        text = self.query.get("limit", "")
        return min(max(int(text), 1), LIST_MAX) if text.isascii() and text.isdigit() else 100


Act: TypeAlias = Callable[[ApiRequest], Awaitable[Any]]
"""What does an operation: JSON, or an answer that is made already."""
