"""Alerts by HTTP: each is POSTed as JSON, in turn, on a thread of its own.

An endpoint that is slow or away holds up nobody: what waits is bounded, and the oldest goes. A failed alert is tried
again with the next ones, `TRIES` times. Redirects are not followed. Not here: whose alerts (`bridge.traces.fleet`).
"""

from __future__ import annotations

import logging
import queue
import threading
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import IO, Any

from gateway.base.log_events import LogEvent

log = logging.getLogger("veilmq.traces")

WAITING_MAX = 1_000
TIMEOUT_S = 5.0
TRIES = 3


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        """Follows no redirect: a message for an endpoint goes to no other."""


class Webhook:
    """`__call__` from any thread; the thread begins with the first alert and ends with the process."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._waiting: queue.Queue[tuple[bytes, int]] = queue.Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._opener = urllib.request.build_opener(_Stay)

    def __call__(self, alert: bytes) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="veilmq alerts", daemon=True)
            self._thread.start()
        self._put(alert, 1)

    def _put(self, alert: bytes, attempt: int) -> None:
        while True:
            try:
                self._waiting.put_nowait((alert, attempt))
            except queue.Full:
                try:
                    self._waiting.get_nowait()
                except queue.Empty:
                    continue
                LogEvent.ALERTS_DROPPED.say(log, self._url)
            else:
                return

    def _run(self) -> None:
        while True:
            alert, attempt = self._waiting.get()
            try:
                self._post(alert)
            except (OSError, HTTPException, ValueError) as error:
                if attempt < TRIES:
                    self._put(alert, attempt + 1)
                    threading.Event().wait(attempt)
                else:
                    LogEvent.ALERT_NOT_TAKEN.say(log, self._url, error)

    def _post(self, alert: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, alert, headers, method="POST")  # noqa: S310  http(s) only
        with self._opener.open(request, timeout=TIMEOUT_S):
            pass
