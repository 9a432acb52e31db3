"""Translation of a `mosquitto.conf` to our YAML, with an answer for each directive.

No directive is dropped without an answer, and no access becomes wider: a protecting setting without a counterpart is
refused (`options`). Reads and writes no file. Not here: listeners (`translating_listeners`), bridges
(`translating_bridges`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.importing.mosquitto_conf import Conf, ConfError, Directive
from gateway.importing.options import OptionPlace, Outcome, option_of
from gateway.importing.translated import Translated
from gateway.importing.translating_bridges import translate_bridge
from gateway.importing.translating_listeners import translate_listeners
from gateway.importing.translating_logins import SQLITE_PLUGIN, translate_logins

UNLIMITED = 1_000_000
NEVER = 0xFFFF_FFFF
PACKET_BYTES_MAX = 268_435_455
"""The largest Maximum Packet Size that clients accept (paho for Python refuses a larger one); Mosquitto has no
bound.
"""
UNIT_S = {"s": 1, "h": 3_600, "d": 86_400, "w": 7 * 86_400, "m": 30 * 86_400, "y": 365 * 86_400}
UNBOUNDED: dict[str, int] = {
    "session_expiry_s": NEVER,
    "packet_bytes": PACKET_BYTES_MAX,
    "sessions": UNLIMITED,
    "subscriptions": UNLIMITED,
    "subscription_bytes": 1 << 30,
    "queue_bytes": 1 << 40,
    "retained_messages": 10 * UNLIMITED,
    "retained_bytes": 1 << 40,
    "user_properties": 65_535,
}
"""Values of limits that Mosquitto has only if its configuration sets them."""
CONNECTIONS = 10_000
"""Open connections, which a single address may use up; Mosquitto is bounded by its process's limit of open files."""
LIKE_MOSQUITTO: dict[str, int] = {"in_flight": 20, "queue_messages": 1_000}
"""Limits that Mosquitto has by default."""
WHEN_FULL = (
    "where the queue of a client that is away is full, the oldest message goes, not the newest; publishers wait for "
    "one that is connected (`when_full`)"
)
SQLITE_FILE = "mosquitto.sqlite3"
PACKAGE_DIRECTORY = Path("/var/lib/mosquitto")
"""The folder of Mosquitto's database in packages of Linux distributions, set by the packages' own configuration."""


def translate(conf: Conf) -> Translated:
    """Translates a whole configuration. Raises ConfError."""
    out = Translated()
    limits: dict[str, Any] = {**UNBOUNDED, **LIKE_MOSQUITTO}
    for one in conf.unknown:
        out.answer(one)
    for one in conf.unread:
        out.take_directive(one, "Mosquitto passes over it in an included file")
    for one in conf.everywhere.directives:
        handler = _GLOBAL.get(one.name)
        option = option_of(one.name)
        if handler is not None:
            handler(out, limits, one)
        elif option is not None and option.outcome is not Outcome.TAKEN:
            out.answer(one)
        elif option is not None and option.place is OptionPlace.GLOBAL:
            out.take_directive(one)
    out.add_note("-", WHEN_FULL)
    out.settings["data"] = "data"
    _persistence(out, conf)
    out.settings["listeners"] = translate_listeners(out, limits, conf)
    translate_logins(out, conf)
    bridges: dict[str, Any] = {}
    for section in conf.bridges:
        assert section.begin is not None
        name, bridge = translate_bridge(out, section)
        if name in bridges:
            raise ConfError(f"{section.begin.where}: connection {name} is there twice; rename one")
        bridges[name] = bridge
    limits["connections_per_address"] = limits.setdefault("connections", CONNECTIONS)
    out.settings["limits"] = limits
    if bridges:
        out.settings["bridges"] = bridges
    return out


# --------------------------------------------------------------------------------------------- global numbers

_Handler = Callable[[Translated, dict[str, Any], Directive], None]


def _number(limit: str, low: int, high: int, unlimited: int) -> _Handler:
    def handle(out: Translated, limits: dict[str, Any], one: Directive) -> None:
        limits[limit] = min(max(one.number, low), high) if one.number > 0 else unlimited
        out.take_directive(one)

    return handle


def _expiry(out: Translated, limits: dict[str, Any], one: Directive) -> None:
    count, unit = one.value[:-1], one.value[-1:]
    if not count.isdigit() or unit not in UNIT_S:
        raise ConfError(f"{one.where}: {one.name} is {one.value!r}; write a time such as 14d")
    limits["session_expiry_s"] = min(int(count) * UNIT_S[unit], NEVER)
    out.take_directive(one)


def _sys(out: Translated, limits: dict[str, Any], one: Directive) -> None:
    out.settings["sys_interval"] = one.number
    out.take_directive(one)


def _retain(out: Translated, limits: dict[str, Any], one: Directive) -> None:
    if one.is_true:
        out.take_directive(one)
    else:
        limits["retained_messages"] = 0
        out.add_change(one, "messages with RETAIN are delivered and not retained; CONNACK does not refuse them")


def _message_size(out: Translated, limits: dict[str, Any], one: Directive) -> None:
    if one.number:
        limits["packet_bytes"] = min(limits["packet_bytes"], one.number + 65_536 + 16)
        out.add_change(one, "it counts payloads; limits.packet_bytes leaves 64 KiB for the rest of a packet")
    else:
        out.take_directive(one)


_GLOBAL: dict[str, _Handler] = {
    "global_max_clients": _number("sessions", 1, UNLIMITED, UNLIMITED),
    "global_max_connections": _number("connections", 1, UNLIMITED, UNLIMITED),
    "max_inflight_messages": _number("in_flight", 1, 65_535, 65_535),
    "max_queued_messages": _number("queue_messages", 1, UNLIMITED, UNLIMITED),
    "max_queued_bytes": _number("queue_bytes", 1_024, 1 << 40, 1 << 40),
    "max_packet_size": _number("packet_bytes", 256, PACKET_BYTES_MAX, PACKET_BYTES_MAX),
    "max_keepalive": _number("keep_alive_max_s", 0, 65_535, 0),
    "persistent_client_expiration": _expiry,
    "message_size_limit": _message_size,
    "sys_interval": _sys,
    "retain_available": _retain,
}


def _persistence(out: Translated, conf: Conf) -> None:
    persistence = conf.everywhere.last("persistence", "retained_persistence")
    location = conf.everywhere.last("persistence_location")
    sqlite = next((plugin for plugin in conf.plugins if plugin.kind == SQLITE_PLUGIN), None)
    if sqlite is not None:
        named = sqlite.option("db_file")
        out.database = [Path(location.value) / SQLITE_FILE] if location else [Path(named.value)] if named else []
        return
    if persistence is None or not persistence.is_true:
        out.add_note("-", "persistence is off there; here sessions and retained messages are kept in data/")
        return
    named = conf.everywhere.last("persistence_file")
    file = named.value if named else "mosquitto.db"
    # Without a location Mosquitto writes into its working directory; packages configure PACKAGE_DIRECTORY.
    out.database = [Path(f"{location.value}/{file}")] if location else [Path(file), PACKAGE_DIRECTORY / file]
