"""Start of a broker, and its run until it is told to stop.

    await run_broker(settings)                      # until SIGTERM or SIGINT

Errors of the operator: `StartError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import ssl
from collections.abc import Callable

from amqtt.errors import PluginError, PluginLoadError

from gateway.base import Settings, StartError
from gateway.base.log_events import LogEvent
from gateway.broker.edge_broker import EdgeBroker
from gateway.broker.reloading import reload
from gateway.broker.renewed import RenewedCertificates
from gateway.clients import OverlayPort
from gateway.sockets.gone import tell_unless_gone

log = logging.getLogger("veilmq.broker")


def make_broker(
    settings: Settings,
    overlay: OverlayPort | None = None,
    overlay_context: ssl.SSLContext | None = None,
) -> EdgeBroker:
    """Returns an `EdgeBroker` whose plugins are loaded. Raises StartError if one cannot be."""
    try:
        return EdgeBroker(settings, overlay=overlay, overlay_context=overlay_context)
    except (PluginError, PluginLoadError) as error:
        cause = str(error.__cause__ or error).splitlines()[0]
        raise StartError(f"plugins: {error}: {cause}" if cause != str(error) else f"plugins: {error}") from None


async def run_broker(
    settings: Settings,
    overlay: OverlayPort | None = None,
    *,
    overlay_context: ssl.SSLContext | None = None,
    started: Callable[[EdgeBroker], None] | None = None,
    stop: asyncio.Event | None = None,
    read: Callable[[], Settings] | None = None,
) -> None:
    """Serves until SIGTERM, SIGINT or `stop`, then ends cleanly. On SIGHUP takes over the settings from `read`
    (`reloading.py`); without `read` the files the settings name are read again.

    `started` is called when all ports are bound and plugins are started, before the first connection is accepted.
    Raises StartError. Run it with `uvloop.run` where uvloop is installed.
    """
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(tell_unless_gone)
    for name in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
            loop.add_signal_handler(name, stop.set)
    broker = make_broker(settings, overlay, overlay_context)
    broker.before_serving = started
    current, asked = settings, asyncio.Event()

    def again() -> None:
        nonlocal current
        if broker.transitions.state != "started":
            asked.set()
            return
        current = reload(broker, current, read or (lambda: settings))

    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError, AttributeError):  # no such signal
        loop.add_signal_handler(signal.SIGHUP, again)
    try:
        await broker.start()
        if asked.is_set():
            again()
        renewed = loop.create_task(RenewedCertificates(broker, lambda: current).watch(), name="certificates")
        try:
            await stop.wait()
        finally:
            renewed.cancel()
    finally:
        if broker.transitions.state == "started":
            await _shut_down(broker)


async def _shut_down(broker: EdgeBroker) -> None:
    within_s = broker.limits.shutdown_s
    LogEvent.STOPPING.say(log, within_s=within_s, connections=len(broker.lifecycle.connections))
    try:
        await asyncio.wait_for(broker.shutdown(), within_s)
    except TimeoutError:
        LogEvent.STOPPED_LATE.say(log)
    else:
        LogEvent.STOPPED.say(log)
