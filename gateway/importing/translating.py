"""Directives of a `mosquitto.conf` to our YAML, and a line for each that has no counterpart.

Nothing is dropped in silence: a directive is carried over, or needless here (and said why), or left (and said what
follows). A listener whose clients would see or do more than at Mosquitto is left out as a whole. Reads and writes no
file. Not here: bridges (`translating_bridges`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.importing.mosquitto_conf import Conf, Directive, Section
from gateway.importing.translated import Translated
from gateway.importing.translating_bridges import translate_bridge

UNLIMITED = 1_000_000
NEVER = 0xFFFF_FFFF
UNIT_S = {"h": 3_600, "d": 86_400, "w": 7 * 86_400, "m": 30 * 86_400, "y": 365 * 86_400}
PASSWORDS, ACL = "passwords", "acl"
PASSWORD_PLUGIN = "gateway.auth.passwords.PasswordPlugin"  # noqa: S105  a name
ACL_PLUGIN = "gateway.auth.acl_file.AclFilePlugin"

NEEDLESS = {
    "autosave_interval": "changes are on disk before they are acknowledged",
    "autosave_on_changes": "changes are on disk before they are acknowledged",
    "log_dest": "the log goes to standard error, which the service manager keeps",
    "log_facility": "the log goes to standard error, which the service manager keeps",
    "log_timestamp": "every line has its time",
    "log_timestamp_format": "every line has its time, in ISO 8601",
    "log_type": "what an operator needs is logged; `log: json` for programs",
    "connection_messages": "what an operator needs is logged",
    "websockets_log_level": "what an operator needs is logged",
    "pid_file": "the service manager knows the process",
    "user": "the service manager says who runs it",
    "per_listener_settings": "see the lines on the settings themselves",
    "set_tcp_nodelay": "it is always set",
    "memory_limit": "every queue and store has a bound of its own under `limits`",
    "retry_interval": "MQTT repeats on reconnects only",
    "persistence_file": "the data directory holds files of other names",
    "max_inflight_bytes": "limits.queue_bytes counts what is in flight too",
    "allow_duplicate_messages": "overlapping subscriptions get one copy, as MQTT 5 says",
}  # fmt: skip
"""What needs no counterpart, and why."""
LEFT = {
    "plugin": "its checks do not happen; without another way to log in nobody gets in",
    "plugin_load": "its checks do not happen; without another way to log in nobody gets in",
    "auth_plugin": "its checks do not happen; without another way to log in nobody gets in",
    "clientid_prefixes": "client ids are not restricted; write an acl with %c",
    "allow_zero_length_clientid": "MQTT lets clients in without a client id",
    "auto_id_prefix": "made client ids begin with veilmq-",
    "queue_qos0_messages": "QoS 0 is not queued for clients that are away",
    "upgrade_outgoing_qos": "a delivery has the smaller QoS of publication and subscription",
    "check_retain_source": "retained messages stay when their publisher loses its rights",
    "max_qos": "clients may use every QoS",
}
"""What restricts or changes who may do what, and cannot be carried over: what follows from that."""


def translate(conf: Conf) -> Translated:
    """The whole configuration."""
    out = Translated()
    limits: dict[str, Any] = {"session_expiry_s": NEVER, "in_flight": 20, "packet_bytes": 268_435_460}
    for one in conf.everywhere.directives:
        handler = _GLOBAL.get(one.name)
        if handler is not None:
            handler(out, limits, one)
        elif one.name not in ("password_file", "acl_file", "allow_anonymous", "persistence", "persistence_location"):
            _unknown(out, one)
    _persistence(out, conf)
    listeners = _listeners(out, limits, conf)
    _logins(out, conf, listeners)
    bridges: dict[str, Any] = {}
    for section in conf.bridges:
        name, bridge = translate_bridge(out, section)
        if name in bridges:
            assert section.begin is not None
            out.notes.append(f"{section.begin.where}: connection {name} is there twice; the first counts, rename it")
        bridges.setdefault(name, bridge)
    out.settings["limits"] = limits
    if bridges:
        out.settings["bridges"] = bridges
    return out


def _unknown(out: Translated, one: Directive) -> None:
    if one.name in NEEDLESS:
        out.needless(one, NEEDLESS[one.name])
    else:
        out.leave(one, LEFT.get(one.name, "there is no counterpart"))


# --------------------------------------------------------------------------------------------- global numbers

_Handler = Callable[[Translated, dict[str, Any], Directive], None]


def _number(limit: str, low: int, high: int, unlimited: int) -> _Handler:
    def handle(out: Translated, limits: dict[str, Any], one: Directive) -> None:
        if not one.value.isdigit():
            out.leave(one, f"{one.value!r} is no number")
            return
        limits[limit] = min(max(int(one.value), low), high) if int(one.value) else unlimited

    return handle


def _expiry(out: Translated, limits: dict[str, Any], one: Directive) -> None:
    count, unit = one.value[:-1], one.value[-1:]
    if not count.isdigit() or unit not in UNIT_S:
        out.leave(one, f"{one.value!r} is no time such as 14d")
        return
    limits["session_expiry_s"] = min(int(count) * UNIT_S[unit], NEVER)


def _sys(out: Translated, limits: dict[str, Any], one: Directive) -> None:
    if one.value.isdigit():
        out.settings["sys_interval"] = int(one.value)
    else:
        out.leave(one, f"{one.value!r} is no number")


def _retain(out: Translated, limits: dict[str, Any], one: Directive) -> None:
    if not one.is_true:
        limits["retained_messages"] = 0


def _message_size(out: Translated, limits: dict[str, Any], one: Directive) -> None:
    if one.value.isdigit() and int(one.value):
        limits["packet_bytes"] = min(limits["packet_bytes"], int(one.value) + 65_536 + 16)
        out.notes.append(f"{one.where}: {one.name} counts payloads; limits.packet_bytes leaves 64 KiB for the rest")


_GLOBAL: dict[str, _Handler] = {
    "max_inflight_messages": _number("in_flight", 1, 65_535, 65_535),
    "max_queued_messages": _number("queue_messages", 1, UNLIMITED, UNLIMITED),
    "max_queued_bytes": _number("queue_bytes", 1_024, 1 << 40, 1 << 40),
    "max_packet_size": _number("packet_bytes", 256, 268_435_460, 268_435_460),
    "max_keepalive": _number("keep_alive_max_s", 0, 65_535, 0),
    "persistent_client_expiration": _expiry,
    "message_size_limit": _message_size,
    "sys_interval": _sys,
    "retain_available": _retain,
}


def _persistence(out: Translated, conf: Conf) -> None:
    out.settings["data"] = "data"
    persistence, location = conf.everywhere.last("persistence"), conf.everywhere.last("persistence_location")
    if persistence is not None and persistence.is_true:
        file = conf.everywhere.last("persistence_file")
        directory = Path(location.value) if location else Path("/var/lib/mosquitto")
        out.database = directory / (file.value if file else "mosquitto.db")
        return
    out.notes.append("persistence is off there; here sessions and retained messages are kept in data/")


# ------------------------------------------------------------------------------------------------- listeners

_TLS = {"cafile": "cafile", "capath": "capath", "certfile": "certfile", "keyfile": "keyfile"}
_REFUSING = {
    "mount_point": "its clients would see all topics",
    "psk_file": "TLS with pre-shared keys is not offered",
    "psk_hint": "TLS with pre-shared keys is not offered",
    "use_identity_as_username": "certificates are no user names here",
    "use_subject_as_username": "certificates are no user names here",
    "crlfile": "revoked certificates would be accepted",
}
"""Of a listener that must not be opened without it."""


def _listeners(out: Translated, limits: dict[str, Any], conf: Conf) -> dict[str, Any]:
    found: dict[str, Any] = {}
    sections = list(conf.listeners)
    if not sections or conf.default.last("port") is not None:
        sections.insert(0, conf.default)
    else:
        for one in conf.default.directives:
            out.leave(one, "it is of the default listener, which is not opened")
    for section in sections:
        made = _listener(out, limits, section, is_alone=not conf.listeners)
        if made is not None:
            found[f"listener{len(found) + 1}"] = made
    out.settings["listeners"] = found
    if not found:
        out.notes.append("no listener could be carried over; add one before starting")
    return found


def _listener(out: Translated, limits: dict[str, Any], section: Section, is_alone: bool) -> dict[str, Any] | None:
    for one in section.directives:
        if one.name in _REFUSING and one.value.lower() != "false":
            where = section.begin or one
            out.leave(one, f"{_REFUSING[one.name]}; so the listener of {where.where} is left out")
            return None
    bind = _bind(section, is_alone)
    made: dict[str, Any] = {"type": "tcp", "bind": bind}
    for one in section.directives:
        if one.name == "protocol":
            made["type"] = "ws" if one.value == "websockets" else "tcp"
        elif one.name in _TLS:
            made[_TLS[one.name]] = one.value
        elif one.name == "require_certificate":
            made["require_client_certificate"] = one.is_true
        elif one.name == "max_connections":
            made["max_connections"] = max(int(one.value), 0) if one.value.lstrip("-").isdigit() else 0
        elif one.name == "max_topic_alias":
            _number("topic_aliases", 0, 65_535, 0)(out, limits, one)
        elif one.name == "websockets_origin":
            made.setdefault("origins", []).append(one.value)
        elif one.name == "tls_version":
            out.needless(one, "TLS 1.2 and 1.3 are offered, older ones never")
        elif one.name not in ("port", "bind_address", "acl_file", "allow_anonymous", "password_file"):
            _unknown(out, one)
    if "certfile" in made:
        made["ssl"] = True
    elif "cafile" in made or "capath" in made:
        made.pop("cafile", None)
        made.pop("capath", None)
    return made


def _bind(section: Section, is_alone: bool) -> str:
    begin = section.begin
    if begin is None:
        port, address = section.last("port"), section.last("bind_address")
        host = address.value if address else ""
        if port is None and address is None and is_alone:
            host = "127.0.0.1"  # Mosquitto 2 without a listener serves this machine only
        return f"{_host(host)}:{port.value if port else 1883}"
    words = begin.words
    if words[:1] == ["0"] and len(words) > 1:
        return f"unix:{words[1]}"
    return f"{_host(words[1] if len(words) > 1 else '')}:{words[0] if words else 1883}"


def _host(host: str) -> str:
    if not host:
        return "0.0.0.0"  # noqa: S104  as it was there
    return f"[{host}]" if ":" in host else host


# --------------------------------------------------------------------------------------------------- logins


def _logins(out: Translated, conf: Conf, listeners: dict[str, Any]) -> None:
    """One way to log in for all listeners; where theirs differed, the narrowest of each."""
    sections = [conf.everywhere] if not conf.per_listener else [*conf.listeners, conf.default]
    sections = [s for s in sections if s.directives or s.begin] or [conf.everywhere]
    anonymous = [_anonymous(section, conf) for section in sections]
    plugins: dict[str, Any] = {}
    for name, file, plugin, key in (
        ("password_file", PASSWORDS, PASSWORD_PLUGIN, "password_file"),
        ("acl_file", ACL, ACL_PLUGIN, "acl_file"),
    ):
        lasts = [section.last(name) for section in sections]
        given = {one.value for one in lasts if one is not None}
        if not given:
            continue
        first = next(one for one in lasts if one is not None)
        if len(given) > 1 or None in lasts:
            out.notes.append(f"{first.where}: {name} was of some listeners; here it counts for all of them")
        for one in lasts:
            if one is not None and one.value != first.value:
                out.leave(one, f"{first.value} counts for all listeners; merge the files")
        out.files[file] = Path(first.value)
        plugins[plugin] = {key: file}
    out.settings["allow_anonymous"] = bool(anonymous) and all(anonymous)
    if any(anonymous) and not all(anonymous):
        out.notes.append("allow_anonymous differed between listeners; here nobody gets in without a login")
    if plugins:
        out.settings["plugins"] = plugins
    if not out.settings["allow_anonymous"] and PASSWORD_PLUGIN not in plugins:
        out.notes.append("no client can log in: there is neither a password file nor allow_anonymous")


def _anonymous(section: Section, conf: Conf) -> bool:
    said = section.last("allow_anonymous")
    if said is not None:
        return said.is_true
    # Mosquitto 2 lets everybody in only where no listener is configured.
    return not conf.listeners and conf.default.last("port") is None
