"""Start of a broker, and its run until it is told to stop.

    await run_broker(settings)                      # until SIGTERM or SIGINT

Errors of the operator: `StartError`.

Reloading of the configuration while the broker runs (SIGHUP): changes taking effect at once, all of them or none.

Certificates of listeners that were replaced at run time, noticed by a look at the files every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from amqtt.errors import PluginError, PluginLoadError

from gateway.base import ConfigError, Settings, Stamps, StartError
from gateway.base.log_events import LogEvent
from gateway.base.logs import set_level
from gateway.base.rhythm import until_next
from gateway.broker.edge_broker import EdgeBroker
from gateway.clients import OverlayPort
from gateway.listening import OURS, amqtt_listener
from gateway.sockets.gone import tell_unless_gone

LOOK_EVERY_S = 2.0


class RenewedCertificates:
    """Watcher of a broker's certificates. `settings`: the present ones, which SIGHUP may have changed."""

    def __init__(self, broker: EdgeBroker, settings: Callable[[], Settings]) -> None:
        self._broker, self._settings = broker, settings
        self._stamps: dict[tuple[str, ...], Stamps] = {}
        self.take_over_replaced()

    async def watch(self) -> None:
        """Looks again and again until it is cancelled."""
        while True:
            await asyncio.sleep(until_next(LOOK_EVERY_S))
            try:
                self.take_over_replaced()
            except Exception:  # noqa: BLE001  the log has its traceback
                LogEvent.CERTIFICATE_LOOK_FAILED.say(log, exc_info=True)

    def take_over_replaced(self) -> None:
        """Takes over certificates replaced since the last look."""
        known, self._stamps = self._stamps, {}
        for name, listener in self._settings().listeners.items():
            if not listener.ssl or listener.certfile is None:
                continue
            paths = [str(path) for path in (listener.certfile, listener.keyfile, listener.cafile) if path is not None]
            key = (name, *paths)
            stamps = self._stamps[key] = known.get(key) or Stamps(paths)
            if not stamps.have_changed():
                continue
            try:
                context = self._broker.context_of(name, amqtt_listener(listener), listener)
            except StartError as error:
                LogEvent.CERTIFICATE_NOT_RENEWED.say(log, f"listener {name}", error)
                continue
            self._broker.take_context(name, context)
            LogEvent.CERTIFICATE_RENEWED.say(log, f"listener {name}", listener.certfile)


Change: TypeAlias = Callable[[], None]

_TAKEN = {"limits", "allow_anonymous", "response_information", "log_level", "plugins", "listeners"}
"""Sections that are taken over, or that only a restart can."""


def reload(broker: EdgeBroker, old: Settings, read: Callable[[], Settings]) -> Settings:
    """Takes over the settings from `read` and returns them, or logs the cause of failure and returns `old`."""
    try:
        new = read()
        changes = list(_changes(broker, new))
    except (ConfigError, StartError) as error:
        LogEvent.NOT_RELOADED.say(log, reason=str(error))
        return old
    for change in changes:
        change()
    LogEvent.RELOADED.say(log, needs_restart=", ".join(_left(old, new)))
    return new


def _changes(broker: EdgeBroker, new: Settings) -> Iterator[Change]:
    """Yields the changes. Every step that may fail is done here; the changes themselves cannot fail. Raises
    StartError.
    """
    for options, plugin in zip(new.plugins.values(), broker.host.plugins, strict=False):
        reread = getattr(plugin, "reread", None)
        if reread is not None and _is_the_same(broker, new):
            yield reread(options)
    for name, listener in new.listeners.items():
        if name in broker.listeners_config:
            yield partial(broker.take_context, name, broker.context_of(name, amqtt_listener(listener), listener))
    yield partial(broker.adopt_settings, new)
    yield partial(set_level, new.log_level)


def _is_the_same(broker: EdgeBroker, new: Settings) -> bool:
    """True if the new configuration names the loaded plugins."""
    loaded = [f"{type(plugin).__module__}.{type(plugin).__name__}" for plugin in broker.host.plugins]
    return loaded == [OURS.get(name, name) for name in new.plugins]


def _left(old: Settings, new: Settings) -> Iterator[str]:
    """Yields the keys that differ and are not taken over."""
    for name in type(new).model_fields:
        if name not in _TAKEN and getattr(old, name) != getattr(new, name):
            yield name
    if list(old.plugins) != list(new.plugins):
        yield "plugins"
    fixed = ("type", "bind", "ssl", "overlay", "require_client_certificate", "origins", "proxy")
    for name in sorted({*old.listeners, *new.listeners}):
        before, after = old.listeners.get(name), new.listeners.get(name)
        if before is None or after is None or any(getattr(before, key) != getattr(after, key) for key in fixed):
            yield f"listeners.{name}"


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
    ; without `read` the files the settings name are read again.

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
