"""`veilmq overlay place --live`: whom it asks, the one line that it says, what it signs and what it refuses."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway import cli
from gateway.commands import placing
from gateway.setup import Made, Plan, join, make_overlay
from gateway.trust import load_overlay
from keys.identity import Role

QUIET = {"failures": 0, "down_s": 0.0, "watched_s": 100.0, "from_per_s": 0.0, "to_per_s": 0.0}


class Running:
    """An overlay of two regions whose members are played: `failing` is seen to fail by all replicas that run."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.made: Made = make_overlay(directory / "owners", Plan(regions=2), 21700, time.time())
        self.failing, self.asked = "", list[str]()
        monkeypatch.setattr(placing, "asked", self._asked)
        spares = directory / "spares"
        spares.mkdir()
        join(spares / "r9", Role.REPLICA, "127.0.0.1:21799", time.time())
        (spares / "r9.yaml").write_text(yaml.safe_dump({"card": "r9/identity/card.json", "address": "127.0.0.1:21799"}))
        self.replicas = [one for one in self.made.members if one.role is Role.REPLICA]
        self.options = [str(self.made.overlay_path), "--live"]
        for one in self.replicas:
            self.options += ["--ask", f"{one.name}={one.metrics}"]

    def _asked(self, bind: str, within_s: float) -> dict[str, Any]:
        self.asked.append(bind)
        name = next(one.name for one in self.replicas if one.metrics == bind)
        if name == self.failing:
            return {"level": "broken", "findings": [{"level": "broken", "key": "away", "text": "nothing answers"}]}
        others = {one.name: QUIET for one in self.replicas if one.name not in (name, self.failing)}
        if self.failing:
            others[self.failing] = {**QUIET, "failures": 12, "down_s": 30.0}
        return {"level": "well", "findings": [], "overlay": {"name": name}, "seen": others}

    def place(self, *more: str) -> int:
        return cli.run(["overlay", "place", *self.options, *more])


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    return Running(tmp_path, monkeypatch)


def test_the_proposal_is_one_line_and_nothing_is_signed(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    running.failing = running.replicas[4].name
    before = running.made.overlay_path.read_bytes()
    assert running.place("--spares", str(running.directory / "spares")) == 0
    silent, line = capsys.readouterr().out.splitlines()
    assert silent == f"{running.failing} counts as one that saw nothing: nothing answers"
    assert line.startswith("attach r9 to region region2: a quorum is up 99.9940 % of the time, expected 99.99")
    assert line.endswith(f"after 1 more; failures there: {running.failing} 12")
    assert len(running.asked) == 6
    assert running.made.overlay_path.read_bytes() == before
    assert running.place("--spares", str(running.directory / "spares"), "--json") == 0
    step = json.loads(capsys.readouterr().out)["step"]
    assert (step["change"], step["member"], step["region"], step["steps"]) == ("attach", "r9", "region2", 2)
    assert step["at_end"] > step["before"] > step["after"]
    assert step["carried_at_end"] > step["carried_before"]


def test_with_the_owners_key_the_step_is_signed(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    running.failing = running.replicas[4].name
    spares = ("--spares", str(running.directory / "spares"))
    assert running.place(*spares, "--apply", "--owner", str(running.made.directory / "owner"), "--wait", "0") == 0
    said = capsys.readouterr().out
    assert "view 2 of region region2, 4 replicas, threshold 3" in said
    assert "lists it in region region2" in said
    assert load_overlay(running.made.overlay_path, int(time.time() * 1000)).latest[2].members[-1] == "r9"
    assert running.place(*spares) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith(f"detach {running.failing} from region region2"), "what was begun is ended, without a spare"
    assert running.place("--apply", "--owner", str(running.made.directory / "owner"), "--wait", "0") == 2
    assert "its former view is open until" in capsys.readouterr().err


def test_without_failures_or_spares_that_is_said(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert running.place("--spares", str(running.directory / "spares")) == 0
    assert "nothing to attach or detach: 0 failures witnessed, nothing would be worth" in capsys.readouterr().out
    running.failing = running.replicas[0].name
    assert running.place() == 0
    assert "12 failures witnessed, no spare is given" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "said"), [
    (["x.json", "--ask", "r1=h:1"], "--ask, --spares and --apply ask members that run; add --live"),
    (["{}", "--live", "--apply"], "--apply signs, which the owner alone can; add --owner DIR"),
    (["{}", "--live"], "nobody is asked; add --ask NAME=HOST:PORT"),
    (["{}", "--live", "--ask", "nobody=h:1"], "--ask nobody=h:1: write NAME=HOST:PORT, a member and its metrics port"),
    (["{}", "--live", "--ask", "r1=h"], "--ask r1=h: write NAME=HOST:PORT"),
    (["{}", "--live", "--ask", "r1=h:1", "--ask", "r1=h:2"], "r1 is asked twice; a member has one voice"),
])  # fmt: skip
def test_what_cannot_be_asked_is_one_line(
    running: Running, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    path = str(running.made.overlay_path)
    assert cli.run(["overlay", "place", *(path if one == "{}" else one for one in arguments)]) == 2
    assert said in capsys.readouterr().err
