"""`veilmq bridges` without a data directory; what it does is tested in `sessions/test_bridge_sessions.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.cli import run


def test_without_data_it_says_in_one_line_that_nothing_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.yaml"
    config.write_text("listeners: {default: {bind: '127.0.0.1:0'}}\n")
    for command in (["list"], ["forget", "m"]):
        assert run(["bridges", *command, "-c", str(config)]) == 2
        assert "without `data`" in capsys.readouterr().err
