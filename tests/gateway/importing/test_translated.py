"""Every line that is not carried over says where it stands, what it is, and why."""

from __future__ import annotations

from pathlib import Path

from gateway.importing import read_conf
from gateway.importing.translated import Translated


def test_notes_name_file_line_directive_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text("# a comment\npid_file /run/m.pid\nplugin x.so\n")
    pid_file, plugin = read_conf(path).everywhere.directives
    made, other = Translated(), Translated()
    made.needless(pid_file, "the service manager knows it")
    made.leave(plugin, "its checks do not happen")
    assert made.notes == [
        f"{path}:2: pid_file is not needed: the service manager knows it",
        f"{path}:3: plugin is not carried over: its checks do not happen",
    ]
    assert other.notes == [], "each has notes of its own"
