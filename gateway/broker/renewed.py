"""Certificates of listeners that were replaced at run time, noticed by a look at the files every few seconds.

The next handshake sees the new certificate, connections stay. Certificate and key come in turn: while they do not fit
each other, the former pair stays in use. `gateway.trust` watches the links' own certificate, `reloading` takes over a
configuration that is read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gateway.base import Settings, Stamps, StartError
from gateway.base.log_events import LogEvent
from gateway.base.rhythm import until_next
from gateway.broker.edge_broker import EdgeBroker
from gateway.listening import amqtt_listener

log = logging.getLogger("veilmq.broker")

LOOK_EVERY_S = 2.0


class RenewedCertificates:
    """Watcher of a broker's certificates. `settings`: the present ones, which SIGHUP may have changed."""

    def __init__(self, broker: EdgeBroker, settings: Callable[[], Settings]) -> None:
        self._broker, self._settings = broker, settings
        self._stamps: dict[tuple[str, ...], Stamps] = {}
        self.look()

    async def watch(self) -> None:
        """Looks again and again until it is cancelled."""
        while True:
            await asyncio.sleep(until_next(LOOK_EVERY_S))
            try:
                self.look()
            except Exception:  # noqa: BLE001  the log has its traceback
                LogEvent.CERTIFICATE_LOOK_FAILED.say(log, exc_info=True)

    def look(self) -> None:
        """Takes over certificates replaced since the last look."""
        known, self._stamps = self._stamps, {}
        for name, listener in self._settings().listeners.items():
            if not listener.ssl or listener.certfile is None:
                continue
            paths = [str(path) for path in (listener.certfile, listener.keyfile, listener.cafile) if path is not None]
            key = (name, *paths)
            stamps = self._stamps[key] = known.get(key) or Stamps(paths)
            if not stamps.changed():
                continue
            try:
                context = self._broker.context_of(name, amqtt_listener(listener), listener)
            except StartError as error:
                LogEvent.CERTIFICATE_NOT_RENEWED.say(log, f"listener {name}", error)
                continue
            self._broker.take_context(name, context)
            LogEvent.CERTIFICATE_RENEWED.say(log, f"listener {name}", listener.certfile)
