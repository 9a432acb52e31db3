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


def test_includes_are_read_in_order_and_never_without_end(tmp_path: Path) -> None:
    more = tmp_path / "conf.d"
    more.mkdir()
    (more / "b.conf").write_text("max_queued_messages 2\n")
    (more / "a.conf").write_text("max_queued_messages 1\n")
    assert made(tmp_path, f"include_dir {more}\n").settings["limits"]["queue_messages"] == 2
    (more / "b.conf").write_text(f"include_dir {more}\n")
    with pytest.raises(ConfError, match="too deep or too many"):
        made(tmp_path, f"include_dir {more}\n")


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.conf").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "absent.conf", tmp_path / "m.conf", tmp_path):
        assert run(["import", str(path), "-o", str(tmp_path / "new")]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "x").touch()
    assert run(["import", str(tmp_path / "m.conf"), "-o", str(tmp_path / "here")]) == 2
    assert "holds something already" in capsys.readouterr().err
