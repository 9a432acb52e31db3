"""Every line of a configuration has an answer that says where it stands, what it is, and why."""

from __future__ import annotations

from pathlib import Path

from gateway.importing import read_conf
from gateway.importing.options import PLUGIN
from gateway.importing.translated import Translated


def test_answers_name_file_line_option_and_reason_the_worst_last(tmp_path: Path) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text("# a comment\npid_file /run/m.pid\nmax_qos 2\npersistence true\nplugin x.so\nquue_qos0 true\n")
    conf = read_conf(path)
    made, other = Translated(), Translated()
    made.answer(conf.unknown[0])
    made.answer(conf.plugins[0].load, PLUGIN)
    for one in conf.everywhere.directives:
        made.answer(one)
    made.answer(conf.default.directives[0])
    made.add_note("-", "something else")
    assert [str(one).split("  ")[0].strip() for one in made.report] == [
        "taken", "not needed", "not needed", "changed", "refused", "refused",
    ]  # fmt: skip
    assert str(made.report[1]) == f"not needed  {path}:2  pid_file  the service manager knows the process"
    assert str(made.report[2]) == f"not needed  {path}:3  max_qos  it is so here"
    assert [one.name for one in made.refusals] == ["quue_qos0", "plugin"]
    assert other.answers == [], "each has answers of its own"
