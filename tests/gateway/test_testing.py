"""A region in a process, as somebody uses it who tests a program of their own."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from paho.mqtt import publish, subscribe

from gateway.base import StartError
from gateway.setup.initialising import METRICS_ABOVE
from gateway.setup.plan import MEMBERS_MAX
from gateway.testing import FIRST_PORTS, region

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "testing.md"


def test_the_example_of_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n# (test_plant\.py)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / program[0]).write_text(program[1])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", program[0]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_what_is_protected_crosses_the_region_and_what_is_not_stays(tmp_path: Path) -> None:
    with region(tmp_path / "made", protect=["yard/#"]) as running:
        here, there = running.port("g1"), running.port("g2")
        for topic in ("inside/a", "yard/a"):
            publish.single(topic, topic, qos=1, retain=True, port=here)
        assert subscribe.simple("#", port=there).topic == "yard/a"
        assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    assert (tmp_path / "made" / "r1" / "data" / "outbox.sqlite3").exists()


def test_a_gateway_that_comes_back_has_its_port_and_what_it_owed() -> None:
    before = threading.active_count()
    with region(gateways=2) as running:
        port = running.port("g1")
        running.stop("r1", "r2", "r3")
        publish.single("plant/a", b"kept", qos=1, retain=True, port=port)
        running.stop("g1")
        running.start("r1", "r2", "r3", "g1")
        assert running.port("g1") == port
        assert subscribe.simple("plant/a", port=running.port("g2")).payload == b"kept"
    assert threading.active_count() == before


def test_members_that_do_not_meet_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.testing.START_S", 0.0)
    with pytest.raises(StartError, match=r"g1, g2: not linked after 0 s; `veilmq up` shows the cause"), region():
        pass


def test_ports_of_all_members_lie_below_those_of_outgoing_connections() -> None:
    assert FIRST_PORTS[-1] + METRICS_ABOVE + MEMBERS_MAX < 32_768
