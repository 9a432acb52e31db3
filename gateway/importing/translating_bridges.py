"""`connection` sections of a `mosquitto.conf` to our `bridges`. Reads and writes no file.

A password becomes a private file of its own, named in the result. What has no counterpart is a note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from gateway.importing.mosquitto_conf import Directive, Section
    from gateway.importing.translated import Translated

NEEDLESS = {
    "round_robin": "addresses are tried in their order, and the first again after each round",
    "restart_timeout": "pauses between attempts double up to 30 s",
    "try_private": "loops are kept out by an origin mark and no local",
    "start_type": "a bridge connects at the start and stays connected",
    "bridge_attempt_unsubscribe": "only what is configured is subscribed",
    "bridge_outgoing_retain": "retained messages cross as retained",
    "bridge_tls_version": "TLS 1.2 and 1.3 are used",
    "notifications": "status_topic says here whether the other broker is reached",
    "notifications_local_only": "status_topic says here whether the other broker is reached",
    "local_clientid": "a bridge is no client here",
    "local_cleansession": "the queue here is on disk",
    "bridge_max_packet_size": "the other broker says what it takes",
    "max_topic_alias": "topic aliases are agreed by themselves",
}
_TLS = {"bridge_cafile": "cafile", "bridge_certfile": "certfile", "bridge_keyfile": "keyfile"}
_VERSIONS = {"mqttv50": "5", "mqttv311": "3.1.1"}
DEFAULT_PORT = 1883


def translate_bridge(out: Translated, section: Section) -> tuple[str, dict[str, Any]]:
    """Name and settings of one bridge."""
    assert section.begin is not None
    name = section.begin.value or "bridge"
    made: dict[str, Any] = {"addresses": [], "version": "3.1.1", "topics": []}
    tls: dict[str, Any] = {}
    for one in section.directives:
        match one.name:
            case "address" | "addresses":
                made["addresses"] += [_address(word) for word in one.words]
            case "topic":
                _topic(out, made["topics"], one)
            case "remote_clientid" | "clientid":
                made["client_id"] = one.value
            case "remote_username" | "username":
                made["username"] = one.value
            case "remote_password" | "password":
                file = f"bridge-{quote(name, safe='')}.password"
                out.secrets[file] = one.value
                made["password_file"] = file
            case "keepalive_interval" if one.value.isdigit():
                made["keep_alive_s"] = max(int(one.value), 5)
            case "cleansession":
                if one.is_true:
                    made["session_expiry_s"] = 0
            case "bridge_protocol_version" if one.value in _VERSIONS:
                made["version"] = _VERSIONS[one.value]
            case "notification_topic":
                made["status_topic"] = one.value
            case "bridge_cafile" | "bridge_certfile" | "bridge_keyfile":
                tls[_TLS[one.name]] = one.value
            case "bridge_insecure":
                tls["check_hostname"] = not one.is_true
            case other:
                _other(out, other, one)
    if tls:
        made["tls"] = tls
    if not made["addresses"]:
        out.notes.append(f"{section.begin.where}: connection {name} has no address; add one")
    if not made["topics"]:
        out.notes.append(f"{section.begin.where}: connection {name} has no topic; add one")
    return name, made


def _other(out: Translated, name: str, one: Directive) -> None:
    if name in NEEDLESS:
        out.needless(one, NEEDLESS[name])
    else:
        out.leave(one, "there is no counterpart for bridges")


def _address(word: str) -> str:
    host, colon, port = word.rpartition(":")
    return word if colon and port.isdigit() and host else f"{word}:{DEFAULT_PORT}"


def _topic(out: Translated, topics: list[dict[str, Any]], one: Directive) -> None:
    """`topic PATTERN [[[DIRECTION] QOS] LOCAL REMOTE]`; two quotation marks stand for nothing."""
    words = ["" if word == '""' else word for word in one.words]
    pattern, direction, qos, local, remote = (*words, *("", "out", "0", "", "")[len(words) :])[:5]
    if direction not in ("in", "out", "both") or qos not in ("0", "1", "2"):
        out.leave(one, f"{one.value!r} is no topic of a bridge")
        return
    if not pattern:
        # One topic with another name there: the prefixes are the names.
        pattern, local, remote = _split_names(local, remote)
        if not pattern:
            out.leave(one, "local and remote name have no level in common at their end; write it by hand")
            return
    made: dict[str, Any] = {"filter": pattern, "direction": direction, "qos": int(qos)}
    if local:
        made["local_prefix"] = local
    if remote:
        made["remote_prefix"] = remote
    topics.append(made)


def _split_names(local: str, remote: str) -> tuple[str, str, str]:
    """Two names as what they have in common at their end, and a prefix each."""
    ours, theirs, common = local.split("/"), remote.split("/"), list[str]()
    while ours and theirs and ours[-1] == theirs[-1]:
        common.insert(0, ours.pop())
        theirs.pop()
    prefix, other = ("/".join([*levels, ""]) if levels else "" for levels in (ours, theirs))
    return "/".join(common), prefix, other
