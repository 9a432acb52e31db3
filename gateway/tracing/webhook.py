"""Alerts by HTTP: each is POSTed as JSON, in turn, on a thread of its own.

An endpoint that is slow or away holds up nobody: what waits is bounded, and the group of entities with most loses its
oldest. A failed alert is tried
again with the next ones, `TRIES` times. Redirects are not followed. Not here: whose alerts (`bridge.traces.fleet`).
"""

from __future__ import annotations

import itertools
import logging
import threading
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import IO, Any

from bridge.contract import FairTable
from gateway.base.log_events import LogEvent

log = logging.getLogger("veilmq.traces")

WAITING_MAX = 1_000
"""Alerts that wait for the endpoint; the group of entities with most loses its oldest."""
TIMEOUT_S = 5.0
TRIES = 3


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        """Follows no redirect: a message for an endpoint goes to no other."""


class WaitingAlerts:
    """Alerts that wait for a thread, each with its group and how often it was tried."""

    def __init__(self) -> None:
        self._alerts: FairTable[int, tuple[str, bytes, int]] = FairTable(WAITING_MAX)
        self._numbers = itertools.count()
        self._some = threading.Condition()

    def __len__(self) -> int:
        return len(self._alerts)

    def put_alert(self, group: str, alert: bytes, attempt: int) -> bool:
        """Adds an alert; returns False if another one was dropped for it."""
        with self._some:
            gone = self._alerts.put(next(self._numbers), group.encode(), (group, alert, attempt))
            self._some.notify()
        return gone is None

    def take_alert(self) -> tuple[str, bytes, int]:
        """Takes the oldest alert, as soon as there is one."""
        with self._some:
            self._some.wait_for(lambda: len(self._alerts))
            number, alert = next(self._alerts.items())
            self._alerts.pop(number)
        return alert


class Webhook:
    """A receiver of alerts. `__call__` from any thread; the thread begins with the first alert and ends with the
    process.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._waiting = WaitingAlerts()
        self._thread: threading.Thread | None = None
        self._opener = urllib.request.build_opener(_Stay)

    def __call__(self, alert: bytes, group: str) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_alerts, name="veilmq alerts", daemon=True)
            self._thread.start()
        self._put_alert(group, alert, 1)

    def _put_alert(self, group: str, alert: bytes, attempt: int) -> None:
        if not self._waiting.put_alert(group, alert, attempt):
            LogEvent.ALERTS_DROPPED.say(log, self._url)

    def _send_alerts(self) -> None:
        while True:
            group, alert, attempt = self._waiting.take_alert()
            try:
                self._post(alert)
            except (OSError, HTTPException, ValueError) as error:
                if attempt < TRIES:
                    self._put_alert(group, alert, attempt + 1)
                    threading.Event().wait(attempt)
                else:
                    LogEvent.ALERT_NOT_TAKEN.say(log, self._url, error)

    def _post(self, alert: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, alert, headers, method="POST")  # noqa: S310  http(s) only
        with self._opener.open(request, timeout=TIMEOUT_S):
            pass
