"""`mosquitto.conf` as its directives: which line, which listener or bridge it belongs to. Means nothing by them yet.

A directive is a word and the rest of its line; `#` begins a comment at the beginning of a line only, as Mosquitto reads
it. `listener` and `connection` begin a section; some directives belong to the section before them, some are always
global. `include_dir` is followed, in the order of file names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bridge.base import OperatorError, text_lines

FILE_BYTES_MAX = 4 << 20
"""Stops a wrong path from being read as a configuration."""
FILES_MAX = 1_000
DEPTH_MAX = 8

OF_LISTENER = frozenset(
    [
        "address",
        "bind_address",
        "bind_interface",
        "cafile",
        "capath",
        "certfile",
        "ciphers",
        "ciphers_tls1.3",
        "crlfile",
        "dhparamfile",
        "http_dir",
        "keyfile",
        "max_connections",
        "max_qos",
        "max_topic_alias",
        "mount_point",
        "port",
        "protocol",
        "psk_file",
        "psk_hint",
        "require_certificate",
        "socket_domain",
        "tls_engine",
        "tls_engine_kpass_sha1",
        "tls_keyform",
        "tls_version",
        "use_identity_as_username",
        "use_subject_as_username",
        "use_username_as_clientid",
        "websockets_headers_size",
        "websockets_origin",
        "enable_proxy_protocol",
        "max_topic_alias_broker",
        "disable_client_cn_checks",
    ]
)
BY_LISTENER_SETTINGS = frozenset(
    [
        "acl_file",
        "allow_anonymous",
        "allow_zero_length_clientid",
        "auth_plugin",
        "auto_id_prefix",
        "password_file",
        "plugin",
        "plugin_load",
        "plugin_use",
    ]
)
"""Of a listener where `per_listener_settings` is true, else of all."""
OF_BRIDGE = frozenset(
    [
        "address",
        "addresses",
        "cleansession",
        "clientid",
        "keepalive_interval",
        "idle_timeout",
        "local_clientid",
        "local_cleansession",
        "local_password",
        "local_username",
        "notification_topic",
        "notifications",
        "notifications_local_only",
        "password",
        "remote_clientid",
        "remote_password",
        "remote_username",
        "restart_timeout",
        "round_robin",
        "start_type",
        "threshold",
        "topic",
        "try_private",
        "username",
        "max_topic_alias",
    ]
)


class ConfError(OperatorError):
    """One line: the file, what is wrong, the cure."""


@dataclass(frozen=True, slots=True)
class Directive:
    """One line: `name` and what follows it. `where`: FILE:LINE."""

    name: str
    value: str
    where: str

    @property
    def words(self) -> list[str]:
        return self.value.split()

    @property
    def is_true(self) -> bool:
        return self.value.strip().lower() in ("true", "1")


@dataclass(slots=True)
class Section:
    """A listener or a bridge with what was said of it; `begin`: the line that began it."""

    begin: Directive | None
    directives: list[Directive] = field(default_factory=list)

    def last(self, name: str) -> Directive | None:
        """The last directive of that name: it counts."""
        return next((one for one in reversed(self.directives) if one.name == name), None)

    def all(self, name: str) -> list[Directive]:
        return [one for one in self.directives if one.name == name]


@dataclass(slots=True)
class Conf:
    """A whole configuration. `default`: the listener that `port` and the options before any `listener` speak of."""

    everywhere: Section = field(default_factory=lambda: Section(None))
    default: Section = field(default_factory=lambda: Section(None))
    listeners: list[Section] = field(default_factory=list)
    bridges: list[Section] = field(default_factory=list)
    per_listener: bool = False


def read_conf(path: Path) -> Conf:
    """Raises ConfError."""
    directives = list(_directives(path, 0, [0]))
    conf = Conf(per_listener=any(one.name == "per_listener_settings" and one.is_true for one in directives))
    section = conf.default
    in_bridge = False
    for one in directives:
        if one.name == "listener":
            section, in_bridge = Section(one), False
            conf.listeners.append(section)
        elif one.name == "connection":
            section, in_bridge = Section(one), True
            conf.bridges.append(section)
        elif in_bridge and (one.name in OF_BRIDGE or one.name.startswith("bridge_")):
            section.directives.append(one)
        elif one.name in OF_LISTENER or (conf.per_listener and one.name in BY_LISTENER_SETTINGS):
            (conf.default if in_bridge else section).directives.append(one)
        else:
            conf.everywhere.directives.append(one)
    return conf


def _directives(path: Path, depth: int, files: list[int]) -> Iterator[Directive]:
    files[0] += 1
    if depth > DEPTH_MAX or files[0] > FILES_MAX:
        raise ConfError(f"{path}: includes others too deep or too many; write one file")
    for number, raw in enumerate(text_lines(_text(path)), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        name, _, value = line.partition(" ")
        one = Directive(name, value.strip(), f"{path}:{number}")
        if name == "include_dir":
            directory = Path(one.value)
            if not directory.is_dir():
                raise ConfError(f"{one.where}: {directory} is no directory; correct it or remove the line")
            for included in sorted(directory.glob("*.conf")):
                yield from _directives(included, depth + 1, files)
        else:
            yield one


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfError(f"{path}: larger than {FILE_BYTES_MAX} bytes; is this a mosquitto.conf?")
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfError(f"{path}: {error.strerror or error}; name another file") from None
    except UnicodeDecodeError:
        raise ConfError(f"{path}: not UTF-8 text; is this a mosquitto.conf?") from None
