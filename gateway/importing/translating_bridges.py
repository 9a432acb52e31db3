"""Translation of `connection` sections of a `mosquitto.conf` to our `bridges`. Reads and writes no file.

A password becomes a private file, named in the result. A bridge with TLS in Mosquitto has TLS here, with no weaker
check of the other broker, or is refused.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gateway.importing.mosquitto_conf import ConfError, Directive, Section
from gateway.importing.options import OPTIONS, Outcome
from gateway.importing.translated import Translated

_TLS = {
    "bridge_cafile": "cafile",
    "bridge_capath": "capath",
    "bridge_certfile": "certfile",
    "bridge_keyfile": "keyfile",
}
_VERSIONS = {"mqttv50": "5", "mqttv311": "3.1.1", "mqttv31": "3.1.1"}
DEFAULT_PORT = 1883


def translate_bridge(out: Translated, section: Section) -> tuple[str, dict[str, Any]]:
    """Returns name and settings of a bridge. Raises ConfError."""
    assert section.begin is not None
    out.take_directive(section.begin)
    name = (section.begin.words or ["bridge"])[0]
    # Mosquitto's own client id at the other broker, so that the session and its queue go on.
    made: dict[str, Any] = {
        "addresses": [], "version": "3.1.1", "client_id": f"{socket.gethostname()}.{name}", "topics": [],
    }  # fmt: skip
    for one in section.directives:
        _option(out, name, made, one)
    tls = _tls(section)
    if tls is not None:
        made["tls"] = tls
    for key, word in (("addresses", "address"), ("topics", "topic")):
        if not made[key]:
            raise ConfError(f"{section.begin.where}: connection {name} has no {word}; add one or take it out")
    if made["version"] == "3.1.1" and made.get("session_expiry_s") and section.last("bridge_session_expiry_interval"):
        made.pop("session_expiry_s")
    _local_session(out, name, made, section)
    return name, made


def _option(out: Translated, name: str, made: dict[str, Any], one: Directive) -> None:
    match one.name:
        case "address" | "addresses":
            made["addresses"] += [_address(word) for word in one.words]
        case "topic":
            if not _topic(out, made["topics"], one):
                return
        case "remote_clientid" | "clientid":
            made["client_id"] = one.value
        case "remote_username" | "username":
            made["username"] = one.value
        case "remote_password" | "password":
            file = f"bridge-{quote(name, safe='')}.password"
            out.secrets[file] = one.value
            made["password_file"] = file
        case "keepalive_interval":
            made["keep_alive_s"] = min(max(one.number, 5), 65_535)
        case "cleansession":
            if one.is_true:
                made["session_expiry_s"] = 0
        case "try_private":
            made["try_private"] = one.is_true
        case "bridge_max_packet_size":
            if one.number > 0:
                made["packet_bytes"] = max(one.number, 20)
        case "bridge_session_expiry_interval":
            made.setdefault("session_expiry_s", min(max(one.number, 0), 0xFFFF_FFFF))
        case "bridge_protocol_version" if one.value in _VERSIONS:
            made["version"] = _VERSIONS[one.value]
            if one.value == "mqttv31":
                out.add_change(one, "MQTT 3.1.1 is spoken")
                return
        case "notification_topic":
            made["status_topic"] = one.value
            out.add_change(one, "the status is told here only, not at the other broker")
            return
        case other if OPTIONS[other].outcome is not Outcome.TAKEN or other == "bridge_protocol_version":
            out.answer(one)
            return
    out.take_directive(one)


def _tls(section: Section) -> dict[str, Any] | None:
    """Returns TLS settings if Mosquitto uses TLS or a client certificate is given, else None."""
    system, insecure = section.last("bridge_tls_use_os_certs"), section.last("bridge_insecure")
    tls = {_TLS[one.name]: str(Path(one.value).absolute()) for one in section.directives if one.name in _TLS}
    if not tls and not (system is not None and system.is_true):
        return None
    return {**tls, "check_hostname": False} if insecure is not None and insecure.is_true else dict(tls)


def _local_session(out: Translated, name: str, made: dict[str, Any], section: Section) -> None:
    """Records the client id of the bridge's session in Mosquitto's own broker: our bridge takes over its queue."""
    clean = section.last("local_cleansession") or section.last("cleansession")
    if clean is None or not clean.is_true:
        local = section.last("local_clientid")
        out.local_sessions[local.value if local else f"local.{made['client_id']}"] = name


def _address(word: str) -> str:
    host, colon, port = word.rpartition(":")
    return word if colon and port.isdigit() and host else f"{word}:{DEFAULT_PORT}"


def _topic(out: Translated, topics: list[dict[str, Any]], one: Directive) -> bool:
    """Adds `topic PATTERN [[[DIRECTION] QOS] LOCAL REMOTE]`; two quotation marks stand for nothing.

    Returns False if the line is refused.
    """
    words = _words(one)
    pattern, direction, qos, local, remote = (*words, *("", "out", "0", "", "")[len(words) :])[:5]
    direction = direction.lower()
    if direction not in ("in", "out", "both") or qos not in ("0", "1", "2"):
        out.add_refusal(one, f"{one.value!r} is no topic of a bridge; correct it")
        return False
    if not pattern:
        # A single topic with different names: the prefixes hold the names.
        pattern, local, remote = _split_names(local, remote)
        if not pattern:
            out.add_refusal(
                one, "local and remote name have no level in common at their end; write a filter and prefixes"
            )
            return False
    made: dict[str, Any] = {"filter": pattern, "direction": direction, "qos": int(qos)}
    if local:
        made["local_prefix"] = local
    if remote:
        made["remote_prefix"] = remote
    topics.append(made)
    return True


def _words(one: Directive) -> list[str]:
    """Returns the words of a topic line. The first may be quoted and have spaces; `#` ends the other words."""
    text = one.value
    if text.startswith('"') and not text.startswith('""') and '"' in text[1:]:
        pattern, _, rest = text[1:].partition('"')
    else:
        pattern, _, rest = text.partition(" ")
    others = rest.split()
    end = next((number for number, word in enumerate(others) if word.startswith("#")), len(others))
    return ["" if word == '""' else word for word in (pattern, *others[:end])]


def _split_names(local: str, remote: str) -> tuple[str, str, str]:
    """Splits two topic names into their common end, the local prefix and the remote prefix."""
    ours, theirs, common = local.split("/"), remote.split("/"), list[str]()
    while ours and theirs and ours[-1] == theirs[-1]:
        common.insert(0, ours.pop())
        theirs.pop()
    prefix, other = ("/".join([*levels, ""]) if levels else "" for levels in (ours, theirs))
    return "/".join(common), prefix, other
