"""Translation of `listener` sections of a `mosquitto.conf` to our `listeners`. Reads and writes no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.importing.mosquitto_conf import Conf, ConfError, Directive, Section
from gateway.importing.options import OPTIONS, Outcome
from gateway.importing.translated import Translated

_TLS = ("cafile", "capath", "certfile", "keyfile")
_LOGINS = frozenset(["acl_file", "allow_anonymous", "password_file", "listener_allow_anonymous"])
"""Options that `translating_logins` answers."""
DEFAULT_PORT = 1883


def translate_listeners(out: Translated, limits: dict[str, Any], conf: Conf) -> dict[str, Any]:
    """Returns our listeners by name. Raises ConfError."""
    sections = list(conf.listeners)
    if conf.opens_default:
        sections.insert(0, conf.default)
    else:
        for one in conf.default.directives:
            if one.name not in _LOGINS:
                out.add_change(one, "it is of the listener before all `listener` lines, which is not opened")
    lines = [section.last("max_topic_alias") for section in sections]
    aliases = [line.number for line in lines if line is not None]
    if aliases:
        limits["topic_aliases"] = min(max(aliases), 65_535)
    found: dict[str, Any] = {}
    for section in sections:
        made = _listener(out, section, is_local=section.begin is None and conf.is_local_only)
        if made is not None:
            found[f"listener{len(found) + 1}"] = made
    if not found:
        raise ConfError("no listener can be carried over; add one to a copy of the file, then import that")
    return found


def _listener(out: Translated, section: Section, is_local: bool) -> dict[str, Any] | None:
    if section.begin is not None:
        out.take_directive(section.begin)
    made: dict[str, Any] = {"type": "tcp", "bind": _bind(section, is_local)}
    for one in section.directives:
        if one.name == "protocol" and one.value not in ("mqtt", "websockets"):
            out.add_change(one, "its listener is left out; Mosquitto's HTTP API is not offered, see `console`")
            return None
        if one.name not in _LOGINS:
            _option(out, made, one)
    _tls(out, made, section)
    return made


def _option(out: Translated, made: dict[str, Any], one: Directive) -> None:
    if one.name in _TLS:
        made[one.name] = str(Path(one.value).absolute())
    elif one.name == "protocol":
        made["type"] = "ws" if one.value == "websockets" else "tcp"
    elif one.name == "require_certificate":
        made["require_client_certificate"] = one.is_true
    elif one.name == "max_connections":
        made["max_connections"] = max(one.number, 0)
    elif one.name == "websockets_origin":
        made.setdefault("origins", []).append(one.value)
    elif one.name == "enable_proxy_protocol":
        made["proxy"] = ["127.0.0.1", "::1"]
        out.add_change(one, "Mosquitto takes a header from every address; name the balancer's in `proxy`")
        return
    elif OPTIONS[one.name].outcome is not Outcome.TAKEN:
        out.answer(one)
        return
    out.take_directive(one)


def _tls(out: Translated, made: dict[str, Any], section: Section) -> None:
    if "certfile" in made and "keyfile" in made:
        made["ssl"] = True
        return
    for one in section.directives:
        if one.name in _TLS or (one.name == "require_certificate" and one.is_true):
            out.add_refusal(one, "TLS without certfile and keyfile is none; give both")


def _bind(section: Section, is_local: bool) -> str:
    """Returns HOST:PORT; HOST is empty for every address of this machine."""
    domain = section.last("socket_domain")
    if section.begin is None:
        port, address = section.last("port"), section.last("bind_address")
        host = address.value if address else "localhost" if is_local else ""
        return f"{_host(host, domain)}:{port.value if port else DEFAULT_PORT}"
    words = section.begin.words
    if words[:1] == ["0"] and len(words) > 1:
        return f"unix:{words[1]}"
    host = words[1] if len(words) > 1 and not words[1].startswith("#") else ""
    return f"{_host(host, domain)}:{words[0] if words else DEFAULT_PORT}"


def _host(host: str, domain: Directive | None) -> str:
    if not host and domain is not None:
        return "0.0.0.0" if domain.value == "ipv4" else "[::]"  # noqa: S104  as it was there
    return f"[{host}]" if ":" in host else host
