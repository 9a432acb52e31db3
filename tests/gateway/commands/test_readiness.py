"""`veilmq up` says once when all are well, and after half a minute what holds them up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.commands import readiness
from gateway.commands.readiness import LATE_S, Readiness

WELL = {"level": "well", "findings": []}
AWAY = {"level": "broken", "findings": [{"level": "broken", "key": "away", "text": "nothing answers"}]}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    given: dict[str, Any] = {}
    monkeypatch.setattr(readiness, "asked", lambda bind, within_s: given[bind])
    return given


def configs(directory: Path, *names: str) -> dict[str, Path]:
    for place, name in enumerate(names):
        (directory / f"{name}.yaml").write_text(
            f"listeners: {{default: {{bind: '127.0.0.1:0'}}}}\nmetrics: {{bind: '127.0.0.1:{9000 + place}'}}\n"
        )
    return {name: directory / f"{name}.yaml" for name in names}


def test_it_is_said_once_and_not_before_the_last_one_is_well(tmp_path: Path, answers: dict[str, Any]) -> None:
    asks = Readiness(configs(tmp_path, "a", "b"), 100.0)
    answers.update({"127.0.0.1:9000": AWAY, "127.0.0.1:9001": WELL})
    assert [asks.step(100.0 + n) for n in range(6)] == [None] * 6
    answers["127.0.0.1:9000"] = WELL
    assert asks.step(107.5) == "well: all 2 members, after 7.5 s"
    assert asks.step(108.0) is None


def test_what_holds_it_up_is_said_once(tmp_path: Path, answers: dict[str, Any]) -> None:
    asks = Readiness(configs(tmp_path, "a"), 0.0)
    answers["127.0.0.1:9000"] = AWAY
    assert asks.step(LATE_S - 1) is None
    assert asks.step(LATE_S) == "not well yet: a: nothing answers"
    assert asks.step(LATE_S + 1) is None


def test_who_cannot_be_asked_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text("nonsense: [")
    (tmp_path / "mute.yaml").write_text("listeners: {default: {bind: '127.0.0.1:0'}}\n")
    asks = Readiness({"odd": tmp_path / "odd.yaml", "mute": tmp_path / "mute.yaml"}, 0.0)
    assert asks.step(LATE_S) is None
