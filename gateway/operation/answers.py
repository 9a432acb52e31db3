"""Answers of the metrics port besides metrics: `/healthz`, `/readyz` and more, as a WSGI application.

/healthz   200 while the event loop turns: restart the process if not
/readyz    200 while clients are served as they should be, else 503 with the findings: send clients elsewhere
/status    all findings and the whole standing, in JSON: printed by `veilmq status`
/summaries signed frames of the replicas' measurements, in JSON: read by `veilmq overlay organise`
/day       figures of the last day, a row a minute, and the history of alarms, in JSON: read by `veilmq top`
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from prometheus_client.core import Metric

T = TypeVar("T")
ANSWER_S = 5.0
"""Seconds after which an event loop that does not turn is reported unhealthy."""
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class BrokerHealth(Protocol):
    """A judge of the process's standing (`gateway/health`), called on the event loop."""

    @property
    def ready(self) -> bool: ...
    def status(self) -> dict[str, Any]: ...
    def metrics(self) -> Iterable[Metric]: ...


class HttpAnswers:
    """The WSGI application.

    Without `health` only the turning of the loop is judged. `summaries`, `day`: called on the loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        metrics: Wsgi,
        health: BrokerHealth | None,
        summaries: Callable[[], list[str]] = list,
        day: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._loop, self._metrics, self._health, self._summaries = loop, metrics, health, summaries
        self._day = day

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path not in ("/healthz", "/readyz", "/status", "/summaries", "/day"):
            return self._metrics(environ, start_response)
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _answer(start_response, "405 Method Not Allowed", "ask with GET\n")
        try:
            if path == "/summaries":
                told = json.dumps({"summaries": self._on_loop(self._summaries)})
                return _answer(start_response, "200 OK", told + "\n", "application/json")
            if path == "/day":
                return _answer(
                    start_response, "200 OK", json.dumps(self._on_loop(self._day)) + "\n", "application/json"
                )
            status, is_ready = self._on_loop(self._standing)
        except (TimeoutError, concurrent.futures.CancelledError):
            return _answer(start_response, "503 Service Unavailable", "the event loop does not turn\n")
        if path == "/healthz":
            return _answer(start_response, "200 OK", "ok\n")
        if path == "/status":
            return _answer(start_response, "200 OK", json.dumps(status) + "\n", "application/json")
        lines = [finding["text"] for finding in status["findings"]] or ["ready"]
        line = "200 OK" if is_ready else "503 Service Unavailable"
        return _answer(start_response, line, "\n".join(lines) + "\n")

    def _standing(self) -> tuple[dict[str, Any], bool]:
        if self._health is None:
            return {"level": "well", "findings": []}, True
        return self._health.status(), self._health.ready

    def _on_loop(self, call: Callable[[], T]) -> T:
        async def on_loop() -> T:
            return call()

        return asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result(ANSWER_S)


def _answer(
    start_response: Callable[..., Any], line: str, text: str, kind: str = "text/plain; charset=utf-8"
) -> list[bytes]:
    body = text.encode()
    start_response(line, [("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")])
    return [body]
