"""`mosquitto.conf` becomes our YAML; nothing is dropped in silence, and nothing is opened wider than it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.base import parse
from gateway.cli import run
from gateway.importing import ConfError, read_conf, translate


def made(tmp_path: Path, text: str, is_whole: bool = True) -> Any:
    path = tmp_path / "mosquitto.conf"
    path.write_text(text)
    out = translate(read_conf(path))
    if is_whole:
        parse(out.settings)
    return out


def test_includes_are_read_in_mosquittos_order(tmp_path: Path) -> None:
    """Mosquitto 2.0.11 and 2.1.2 load these files in this order; the last one that sets an option counts."""
    more = tmp_path / "conf.d"
    more.mkdir()
    order = ["00.conf", "10.conf", "9.conf", "A.conf", "a.conf", "aB.conf", "ab.conf", "B.conf", "b.conf"]
    for number, name in enumerate(reversed(order)):
        (more / name).write_text(f"max_queued_messages {number + 1}\n")
    (more / "c.CONF").write_text("max_queued_messages 77\n")
    (more / ".conf").write_text("max_queued_messages 78\n")
    path = tmp_path / "mosquitto.conf"
    path.write_text(f"include_dir {more}\n")
    lines = [one.where for one in read_conf(path).everywhere.directives if one.name != "include_dir"]
    assert lines == [f"{more / name}:1" for name in order]
    assert made(tmp_path, path.read_text()).settings["limits"]["queue_messages"] == 1


def test_who_is_let_in_is_what_the_last_file_says(tmp_path: Path) -> None:
    more = tmp_path / "conf.d"
    more.mkdir()
    (more / "a.conf").write_text("allow_anonymous true\n")
    (more / "B.conf").write_text("allow_anonymous false\n")
    assert not made(tmp_path, f"listener 1\ninclude_dir {more}\n").settings["allow_anonymous"]


def test_an_include_in_an_included_file_is_passed_over_as_there(tmp_path: Path) -> None:
    more = tmp_path / "conf.d"
    more.mkdir()
    (more / "b.conf").write_text(f"include_dir {more}\nmax_queued_messages 3\n")
    out = made(tmp_path, f"include_dir {more}\n")
    assert out.settings["limits"]["queue_messages"] == 3
    assert [one.where for one in out.answers if one.name == "include_dir"] == [
        f"{more}/b.conf:1", f"{tmp_path}/mosquitto.conf:1",
    ]  # fmt: skip


def test_an_option_belongs_to_the_listener_before_it_also_behind_a_bridge_or_an_include(tmp_path: Path) -> None:
    more = tmp_path / "conf.d"
    more.mkdir()
    (more / "other.conf").write_text("listener 2\n")
    path = tmp_path / "mosquitto.conf"
    path.write_text(
        f"listener 1\nconnection c\naddress a\ntopic x\ninclude_dir {more}\nrequire_certificate true\n"
        "listener 3\nremote_username u\n"
    )
    conf = read_conf(path)
    first, second, third = conf.listeners
    assert [one.name for one in first.directives] == ["require_certificate"]
    assert not second.directives
    assert not third.directives
    assert [one.name for one in conf.bridges[0].directives] == ["address", "topic", "remote_username"]


def test_a_line_ends_where_mosquitto_ends_it(tmp_path: Path) -> None:
    out = made(
        tmp_path, "listener 1\nallow_anonymous false\nlog_type x\x0ballow_anonymous true\u2028allow_anonymous 1\n"
    )
    assert not out.settings["allow_anonymous"]


@pytest.mark.parametrize("value", ["yes", "True", ""])
def test_what_is_neither_true_nor_false_is_no_answer(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfError, match="write true or false"):
        made(tmp_path, f"listener 1\nallow_anonymous {value}\n")


def test_a_word_behind_true_changes_nothing(tmp_path: Path) -> None:
    out = made(tmp_path, "listener 1\nuse_username_as_clientid true # as ever\n", False)
    assert [one.name for one in out.refusals] == ["use_username_as_clientid"]


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.conf").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "absent.conf", tmp_path / "m.conf", tmp_path):
        assert run(["import", str(path), "-o", str(tmp_path / "new")]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "x").touch()
    assert run(["import", str(tmp_path / "m.conf"), "-o", str(tmp_path / "here")]) == 2
    assert "holds something already" in capsys.readouterr().err
