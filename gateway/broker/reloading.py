"""Reloading of the configuration while the broker runs (SIGHUP): changes taking effect at once, all of them or none.

Taken over: password and ACL files and the options of these plugins, certificates, keys and CAs of listeners, limits,
queues of listeners, `allow_anonymous`, `response_information`, the log level. Connections stay, and their sessions get
the new bounds; a handshake beginning afterwards sees the new certificate. Changes needing a restart (addresses, the
list of plugins, the overlay's section) are named in the log. Any error in the new configuration leaves the old one in
force. A plugin takes part by a method `reread(options)` that raises StartError or returns a function to call once
everything else is right.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from gateway.base import ConfigError, Settings, StartError
from gateway.base.log_events import LogEvent
from gateway.base.logs import set_level
from gateway.broker.edge_broker import EdgeBroker
from gateway.listening import OURS, amqtt_listener

log = logging.getLogger("veilmq.broker")

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
    yield partial(broker.adopt, new)
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
