"""`veilmq overlay renew` as a timer runs it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.cli import run
from gateway.setup import Plan, make_overlay
from gateway.trust import load_overlay


def test_it_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = make_overlay(tmp_path / "site", Plan(), 21000, time.time())
    command = ["overlay", "renew", str(made.overlay_path), "--owner", str(made.directory / "owner")]
    assert run(command) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert run([*command, "--days", "500", "--before", "400"]) == 0
    assert "version 2" in capsys.readouterr().out
    assert load_overlay(made.overlay_path, int((time.time() + 499 * 86_400) * 1000)).policy.version == 2
    assert run([*command, "--days", "5"]) == 2
    assert "renew for ever" in capsys.readouterr().err
