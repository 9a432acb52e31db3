"""`veilmq up`: what crashes is started again, what was stopped is not, and nothing is left when it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.setup import supervising
from gateway.setup.plan import SetupError
from gateway.setup.supervising import Supervisor, rotate
from tests.waits import wait_until


@pytest.fixture
def member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose process does what its configuration, a Python program here, says."""
    monkeypatch.setattr(supervising, "COMMAND", (sys.executable,))
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "overlay.json").touch()
    return tmp_path / "m" / "broker.yaml"


@pytest.fixture
def supervisor(member: Path) -> Iterator[tuple[Supervisor, list[str]]]:
    said: list[str] = []
    made = Supervisor(member.parent.parent, said.append)
    yield made, said
    made.stop()


def ended(supervisor: Supervisor) -> bool:
    process = supervisor.children["m"].process
    return process is None or process.poll() is not None


SLEEP = "import time; time.sleep(600)"


def test_a_crash_is_followed_by_a_start_with_growing_pauses(
    member: Path, supervisor: tuple[Supervisor, list[str]]
) -> None:
    up, said = supervisor
    member.write_text(SLEEP)
    up.open()
    now = 0.0
    up.step(now)
    for pause_s in (1, 2, 4):
        pid = up.children["m"].pid
        assert pid is not None
        assert (member.parent / "pid").read_text().strip() == str(pid)
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: ended(up))
        up.step(now)
        assert up.children["m"].pid is None
        assert f"by signal 9, is started again in {pause_s} s" in said[-1]
        up.step(now + pause_s - 0.1)
        assert up.children["m"].pid is None
        now += pause_s
        up.step(now)
        assert up.children["m"].pid not in (None, pid)


def test_what_was_stopped_stays_stopped_until_its_folder_changes(
    member: Path, supervisor: tuple[Supervisor, list[str]]
) -> None:
    up, said = supervisor
    member.write_text("pass")
    up.open()
    up.step(0.0)
    assert wait_until(lambda: ended(up))
    up.step(1.0)
    up.step(1000.0)
    assert up.children["m"].pid is None
    assert "was stopped" in said[-1]
    member.write_text(SLEEP)
    os.utime(member, (1, 1))
    up.step(1001.0)
    assert up.children["m"].pid is not None


def test_what_an_operator_has_to_cure_is_said_and_not_tried_for_ever(
    member: Path, supervisor: tuple[Supervisor, list[str]]
) -> None:
    up, said = supervisor
    member.write_text("import sys; print('veilmq: the port is in use; stop what uses it'); sys.exit(2)")
    up.open()
    up.step(0.0)
    assert wait_until(lambda: ended(up))
    up.step(1.0)
    up.step(1000.0)
    assert said == ["m: the port is in use; stop what uses it"]
    assert up.children["m"].pid is None


def test_what_was_cured_while_it_started_is_tried_again(member: Path, supervisor: tuple[Supervisor, list[str]]) -> None:
    up, said = supervisor
    member.write_text("import sys; print('veilmq: m is no member'); sys.exit(2)")
    up.open()
    up.step(0.0)
    overlay = member.parent / "overlay.json"
    overlay.write_text("the next version")
    os.utime(overlay, (1, 1))
    assert wait_until(lambda: ended(up))
    up.step(1.0)
    assert said == ["m: m is no member"]
    assert up.children["m"].pid is not None, "it read the version of before"


def test_a_folder_that_appears_is_started_and_one_without_overlay_waits(
    member: Path, supervisor: tuple[Supervisor, list[str]]
) -> None:
    up, said = supervisor
    member.write_text(SLEEP)
    up.open()
    up.step(0.0)
    joined = member.parent.parent / "r4"
    (joined / "identity").mkdir(parents=True)
    (joined / "broker.yaml").write_text(SLEEP)
    up.step(1.0)
    up.step(2.0)
    assert len(said) == 1
    assert said[0].startswith("r4 waits for ")
    (joined / "overlay.json").touch()
    up.step(3.0)
    assert up.children["r4"].pid is not None


def test_nothing_is_left(member: Path, supervisor: tuple[Supervisor, list[str]]) -> None:
    up, _ = supervisor
    member.write_text(SLEEP)
    up.open()
    up.step(0.0)
    process = up.children["m"].process
    assert process is not None
    up.stop()
    assert process.poll() == -signal.SIGTERM
    assert not (member.parent / "pid").exists()


def test_a_directory_without_members_and_a_name_that_is_none(member: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no such directory"):
        Supervisor(tmp_path / "absent", print).open()
    with pytest.raises(SetupError, match="holds no member"):
        Supervisor(tmp_path, print).open()
    member.write_text("pass")
    with pytest.raises(SetupError, match="x: no such member here; there are m"):
        Supervisor(tmp_path, print, frozenset({"x"})).open()


def test_a_large_log_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "m.log"
    rotate(path)
    path.write_bytes(bytes(supervising.LOG_BYTES_MAX + 1))
    rotate(path)
    assert not path.exists()
    assert (tmp_path / "m.log.1").stat().st_size > supervising.LOG_BYTES_MAX


def test_a_level_is_passed_on_to_every_member(member: Path) -> None:
    member.write_text("import sys; open('said', 'w').write(' '.join(sys.argv[1:])); sys.exit(0)")
    supervisor = Supervisor(member.parent.parent, lambda line: None, log_level="debug")
    supervisor.open()
    try:
        supervisor.step(0.0)
        assert wait_until(lambda: (member.parent / "said").exists() and (member.parent / "said").read_text() != "")
    finally:
        supervisor.stop()
    assert (member.parent / "said").read_text() == "--log-level debug"
