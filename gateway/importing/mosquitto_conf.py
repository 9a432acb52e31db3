"""Parser of `mosquitto.conf`: directives, each assigned to a listener, a bridge or a plugin, without their meaning.

A directive is a word and the rest of its line. `#` begins a comment only at the beginning of a line, as in Mosquitto.
`listener` and `connection` begin a section each. The two are independent: an option of listeners belongs to the last
`listener` of its file, even after a `connection`. `include_dir` is followed from the main file, in Mosquitto's order
of names, and each file begins without a section, as in `config__read_file_core` of Mosquitto 2.0.11 and 2.1.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from bridge.base import OperatorError, text_lines
from gateway.importing.options import OF_PLUGIN, OptionPlace, option_of

FILE_BYTES_MAX = 4 << 20
"""Stops a wrong path from being read as a configuration."""
FILES_MAX = 1_000  # of an include_dir
OF_DEFAULT_LISTENER = frozenset({"port", "bind_address"})
"""Options that always belong to the default listener, which no `listener` line opens."""
LOADS_PLUGIN = frozenset({"plugin", "auth_plugin", "global_plugin", "plugin_load"})
OPENS_NO_LISTENER = frozenset({"acl_file", "allow_anonymous", "auto_id_prefix", "max_topic_alias", "tls_version"})
"""Options that by themselves do not make Mosquitto open the default listener."""


class ConfError(OperatorError):
    """An error of a configuration, in a line: the file, the fault and the cure."""


@dataclass(frozen=True, slots=True)
class Directive:
    """A line of a configuration: the option's name and the rest of the line. `where`: FILE:LINE."""

    name: str
    value: str
    where: str

    @property
    def words(self) -> list[str]:
        return self.value.split()

    @property
    def is_true(self) -> bool:
        """True if the value is true.

        Raises ConfError unless the value is true or false; Mosquitto would not start either.
        """
        word = self.words[0] if self.value else ""
        if word not in ("true", "1", "false", "0"):
            raise ConfError(f"{self.where}: {self.name} is {word!r}; write true or false")
        return word in ("true", "1")

    @property
    def number(self) -> int:
        """The value as a whole number. Raises ConfError for other values; Mosquitto would not start either."""
        try:
            return int(self.words[0])
        except (IndexError, ValueError):
            raise ConfError(f"{self.where}: {self.name} is {self.value!r}; write a whole number") from None


@dataclass(slots=True)
class Section:
    """The directives of a listener, of a bridge or of the whole file. `begin`: the line beginning the section."""

    begin: Directive | None
    directives: list[Directive] = field(default_factory=list)

    def last(self, *names: str) -> Directive | None:
        """Returns the last directive with one of these names; the last one counts."""
        return next((one for one in reversed(self.directives) if one.name in names), None)


@dataclass(slots=True)
class Plugin:
    """A plugin, which the directive `load` names.

    `sections`: listeners whose clients the plugin judges. `options`: the plugin's `plugin_opt_` lines.
    """

    load: Directive
    sections: list[Section] = field(default_factory=list)
    options: list[Directive] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The name of the plugin's file, without directory and suffix."""
        is_named = self.load.name == "plugin_load"
        path = self.load.value.partition(" ")[2] if is_named else self.load.value
        return PurePath(path.strip()).stem

    def option(self, key: str) -> Directive | None:
        return next((one for one in self.options if one.name.partition("_opt_")[2] == key), None)


@dataclass(slots=True)
class Conf:
    """A whole configuration.

    `default`: the default listener, set by `port` and by the options before any `listener`. `unknown`: lines with
    unknown options. `unread`: `include_dir` lines of included files, which Mosquitto ignores.
    """

    everywhere: Section = field(default_factory=lambda: Section(None))
    default: Section = field(default_factory=lambda: Section(None))
    listeners: list[Section] = field(default_factory=list)
    bridges: list[Section] = field(default_factory=list)
    unknown: list[Directive] = field(default_factory=list)
    unread: list[Directive] = field(default_factory=list)
    plugins: list[Plugin] = field(default_factory=list)
    per_listener: bool = False

    @property
    def opens_default(self) -> bool:
        """True if Mosquitto opens the default listener, the listener without a `listener` line."""
        return not self.listeners or any(one.name not in OPENS_NO_LISTENER for one in self.default.directives)

    @property
    def is_local_only(self) -> bool:
        """True if no line gives an address to listen on.

        Mosquitto 2 then serves only this machine, without a login.
        """
        return not self.listeners and self.default.last(*OF_DEFAULT_LISTENER) is None


def read_conf(path: Path) -> Conf:
    """Returns the configuration in the file at `path` and in the files that it includes. Raises ConfError."""
    conf = Conf()
    _read_file(conf, path, is_main=True)
    return conf


def _read_file(conf: Conf, path: Path, is_main: bool) -> None:
    listener, bridge, plugin = conf.default, None, None
    for one in _directives(path):
        option = option_of(one.name)
        if option is None:
            conf.unknown.append(one)
        elif one.name == "include_dir":
            (conf.everywhere.directives if is_main else conf.unread).append(one)
            for included in _included(one) if is_main else ():
                _read_file(conf, included, is_main=False)
        elif one.name == "listener":
            listener = Section(one)
            conf.listeners.append(listener)
        elif one.name == "connection":
            bridge = Section(one)
            conf.bridges.append(bridge)
        elif one.name in OF_DEFAULT_LISTENER:
            listener = conf.default
            listener.directives.append(one)
        elif option.place is OptionPlace.BRIDGE:
            if bridge is None:
                raise ConfError(f"{one.where}: {one.name} stands before any connection; move it behind its connection")
            bridge.directives.append(one)
        elif one.name in LOADS_PLUGIN:
            own = listener if conf.per_listener and one.name != "global_plugin" else conf.everywhere
            plugin = Plugin(one, [] if one.name == "plugin_load" else [own])
            conf.plugins.append(plugin)
        elif one.name == "plugin_use":
            plugin = _used(conf, one)
            plugin.sections.append(listener)
            plugin.options.append(one)
        elif one.name.startswith(OF_PLUGIN):
            if plugin is None:
                raise ConfError(f"{one.where}: {one.name} stands before any plugin; move it behind its plugin")
            plugin.options.append(one)
        elif option.place is OptionPlace.LISTENER or (conf.per_listener and option.place is OptionPlace.SECURITY):
            listener.directives.append(one)
        else:
            conf.everywhere.directives.append(one)
            conf.per_listener = conf.per_listener or (one.name == "per_listener_settings" and one.is_true)


def _used(conf: Conf, one: Directive) -> Plugin:
    for plugin in conf.plugins:
        if plugin.load.name == "plugin_load" and plugin.load.words[:1] == [one.value]:
            return plugin
    raise ConfError(f"{one.where}: no plugin_load names {one.value}; correct the name")


def _included(one: Directive) -> list[Path]:
    directory = Path(one.value)
    if not directory.is_dir():
        raise ConfError(f"{one.where}: {directory} is no directory; correct it or remove the line")
    names = sorted((path.name for path in directory.iterdir() if path.name.endswith(".conf")), key=reading_order)
    if len(names) > FILES_MAX:
        raise ConfError(f"{one.where}: {directory} holds more than {FILES_MAX} files; write one file")
    return [directory / name for name in names if len(name) > len(".conf")]


def reading_order(name: str) -> list[tuple[int, int]]:
    """Returns a sort key for file names, in the order in which Mosquitto reads the files.

    Letters are compared without regard to case; of equal letters the upper case comes first (`scmp_p` in its conf.c).
    The last file setting an option counts.
    """
    return [(byte - 32 if 97 <= byte <= 122 else byte, byte) for byte in name.encode("utf-8", "surrogateescape")]


def _directives(path: Path) -> Iterator[Directive]:
    for number, raw in enumerate(text_lines(_text(path)), 1):
        line = raw.strip(" \t\r\n")
        if not line or line.startswith("#"):
            continue
        name, _, value = line.partition(" ")
        yield Directive(name, value.strip(" \t"), f"{path}:{number}")


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfError(f"{path}: larger than {FILE_BYTES_MAX} bytes; is this a mosquitto.conf?")
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ConfError(f"{path}: {error.strerror or error}; name another file") from None
    except UnicodeDecodeError:
        raise ConfError(f"{path}: not UTF-8 text; is this a mosquitto.conf?") from None
