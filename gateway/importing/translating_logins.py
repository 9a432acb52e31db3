"""Translation of users and rights of a `mosquitto.conf` to our plugins. Reads and writes no file.

Our plugins count for all listeners. If Mosquitto's listeners differ, the import is refused, unless a single setting
for all is the stricter for each of them. Mosquitto 2.1's own plugins for `password_file`, `acl_file` and SQLite are
read as these options.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.importing.mosquitto_conf import Conf, Directive, Plugin, Section
from gateway.importing.options import PLUGIN
from gateway.importing.translated import Translated

PASSWORDS, ACL = "passwords", "acl"
PASSWORD_PLUGIN = "gateway.auth.passwords.PasswordPlugin"  # noqa: S105  a name
ACL_PLUGIN = "gateway.auth.acl_file.AclFilePlugin"
SQLITE_PLUGIN = "mosquitto_persist_sqlite"
_FILE_PLUGINS = {"mosquitto_password_file": "password_file", "mosquitto_acl_file": "acl_file"}
"""Plugins that come with Mosquitto 2.1, each with the plugin option that names its file."""


def translate_logins(out: Translated, conf: Conf) -> None:
    """Translates users and rights to one set for all listeners. Raises ConfError."""
    sections = [*([conf.default] if conf.opens_default else []), *conf.listeners]
    files = _Files(out, conf)
    anonymous = [_anonymous(out, conf, section) for section in sections]
    plugins: dict[str, Any] = {}
    for name, file, plugin in (("password_file", PASSWORDS, PASSWORD_PLUGIN), ("acl_file", ACL, ACL_PLUGIN)):
        given = [files.files_of(name, section) for section in sections]
        path = _agreed(out, name, given, anonymous)
        if path is not None:
            out.files[file] = path
            plugins[plugin] = {name: file}
    for one in conf.default.directives if not conf.opens_default else []:
        if one.name in ("allow_anonymous", *_FILE_PLUGINS.values()):
            out.add_change(one, "it is of the listener before all `listener` lines, which is not opened")
    out.settings["allow_anonymous"] = all(anonymous)
    if any(anonymous) and not all(anonymous):
        out.add_note("-", "allow_anonymous differed between listeners; here nobody gets in without a login")
    if plugins:
        out.settings["plugins"] = plugins
    if not out.settings["allow_anonymous"] and PASSWORD_PLUGIN not in plugins:
        out.add_note("-", "no client can log in: there is neither a password file nor allow_anonymous")


class _Files:
    """The password and ACL files of each section, named by options or by Mosquitto's own plugins."""

    def __init__(self, out: Translated, conf: Conf) -> None:
        self._everywhere = conf.everywhere
        self._plugged: list[tuple[str, Plugin, Directive]] = []
        for plugin in conf.plugins:
            name = _FILE_PLUGINS.get(plugin.kind)
            option = plugin.option(name) if name is not None else None
            if plugin.kind == SQLITE_PLUGIN:
                out.take_directive(plugin.load)
            elif name is None or option is None:
                out.answer(plugin.load, PLUGIN)
            else:
                out.take_directive(plugin.load)
                self._plugged.append((name, plugin, option))
            for one in plugin.options:
                out.take_directive(one)

    def files_of(self, name: str, section: Section) -> list[Directive]:
        """Returns the lines that name files for the clients of a listener."""
        found = [one for place in (self._everywhere, section) if (one := place.last(name)) is not None]
        return found + [
            option
            for plugged, plugin, option in self._plugged
            if plugged == name and (self._everywhere in plugin.sections or section in plugin.sections)
        ]


def _anonymous(out: Translated, conf: Conf, section: Section) -> bool:
    own = section.last("listener_allow_anonymous") or section.last("allow_anonymous")
    said = own or conf.everywhere.last("allow_anonymous")
    if said is None:
        return conf.is_local_only  # Mosquitto 2 allows anonymous clients only if no listener is configured
    if not any(one.where == said.where for one in out.answers):
        out.take_directive(said)
    return said.is_true


def _agreed(out: Translated, name: str, given: list[list[Directive]], anonymous: list[bool]) -> Path | None:
    """Returns the one file for all listeners, or None if there is none or the import is refused."""
    lines = list({one.where: one for lines in given for one in lines}.values())
    if not lines:
        return None
    first = lines[0]
    for one in lines[1:]:
        if one.value != first.value:
            out.add_refusal(
                one, f"{first.value} would count for all listeners; merge the files, or run a broker for each"
            )
            return None
    for lines_of_one, is_anonymous in zip(given, anonymous, strict=True):
        if not lines_of_one and name == "password_file" and not is_anonymous:
            out.add_refusal(
                first, "its users would log in at a listener that knows none; leave that listener out of a copy"
            )
            return None
    if not all(given):
        out.add_change(first, "it was of some listeners; here it counts for all of them")
    else:
        out.take_directive(first)
    return Path(first.value)
