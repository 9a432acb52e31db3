"""`veilmq init`, `up` and `join`: what they print, what they pass on, and that `up` leaves nothing running.

`veilmq up` says once when all are well, and after half a minute what holds them up.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway import setup
from gateway.base import logs
from gateway.commands import setting_up
from gateway.commands.setting_up import LATE_S, LOOK_S, Readiness
from gateway.setup import RoleFolder

WELL = {"level": "well", "findings": []}
AWAY = {"level": "broken", "findings": [{"level": "broken", "key": "away", "text": "nothing answers"}]}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    given: dict[str, Any] = {}
    monkeypatch.setattr(setting_up, "asked", lambda bind, within_s: given[bind])
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
    assert [asks.ask_next_member(100.0 + n) for n in range(6)] == [None] * 6
    answers["127.0.0.1:9000"] = WELL
    assert asks.ask_next_member(107.5) == "well: all 2 members, after 7.5 s"
    assert asks.ask_next_member(108.0) is None


def test_what_holds_it_up_is_said_once(tmp_path: Path, answers: dict[str, Any]) -> None:
    asks = Readiness(configs(tmp_path, "a"), 0.0)
    answers["127.0.0.1:9000"] = AWAY
    assert asks.ask_next_member(LATE_S - 1) is None
    assert asks.ask_next_member(LATE_S) == "not well yet: a: nothing answers"
    assert asks.ask_next_member(LATE_S + 1) is None


def test_who_cannot_be_asked_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text("nonsense: [")
    (tmp_path / "mute.yaml").write_text("listeners: {default: {bind: '127.0.0.1:0'}}\n")
    asks = Readiness({"odd": tmp_path / "odd.yaml", "mute": tmp_path / "mute.yaml"}, 0.0)
    assert asks.ask_next_member(LATE_S) is None


def test_init_prints_members_and_what_to_do_next(tmp_path: Path, veilmq: Any) -> None:
    directory = tmp_path / "new"
    status, out, err = veilmq("init", directory, "--port", "21000", "--protect", "ward/#", "--protect", "lab/#")
    assert (status, err) == (0, "")
    assert "sealed: ward/# lab/#;" in out
    assert f"veilmq up {directory}" in out
    assert f"{directory}/owner stays where no member runs" in out


def test_init_in_json_is_for_programs(tmp_path: Path, veilmq: Any) -> None:
    directory = tmp_path / "new"
    status, out, _ = veilmq("init", directory, "--port", "21000", "--address", "r2=r2.example.net:8883", "--json")
    content = json.loads(out)
    assert (status, content["overlay"]) == (0, str(directory / "overlay.json"))
    members = {member["name"]: member for member in content["members"]}
    assert list(members) == ["r1", "r2", "r3", "g1", "g2"]
    assert members["r2"]["bind"] == "0.0.0.0:8883"
    assert members["g1"]["role"] == "gateway"
    assert members["g1"]["metrics"].startswith("127.0.0.1:")


@pytest.mark.parametrize("given", [["r1"], ["=a:1"], ["r1=a:1", "r1=b:1"]])
def test_an_address_is_of_one_name(tmp_path: Path, veilmq: Any, given: list[str]) -> None:
    options = [word for one in given for word in ("--address", one)]
    status, _, err = veilmq("init", tmp_path / "new", *options)
    assert (status, err.count("\n")) == (2, 1)
    assert f"--address {given[-1]}: write NAME=HOST:PORT, each name once" in err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("role", "said"),
    [
        ("replica", "veilmq overlay attach overlay.json --owner OWNER --region REGION --card CARD --address h:8883"),
        ("gateway", "--region REGION --card CARD --publish 'FILTER' --read 'FILTER'"),
        ("keyserver", "with the card in key_service"),
    ],
)
def test_join_says_what_the_owner_has_to_do(tmp_path: Path, veilmq: Any, role: str, said: str) -> None:
    status, out, err = veilmq("join", tmp_path / "mine", "--address", "h:8883", "--role", role, "--name", "site-7")
    assert (status, err) == (0, "")
    assert out.startswith(f"site-7, a {role}, in {tmp_path}/mine; its keys stay there\n")
    assert f"send {tmp_path}/mine/identity/card.json to the owner" in out
    assert said in out
    assert f"veilmq broker -c {tmp_path}/mine/broker.yaml" in out


@pytest.mark.parametrize("role", ["king", "", "Replica"])
def test_join_knows_three_roles(tmp_path: Path, veilmq: Any, role: str) -> None:
    status, _, err = veilmq("join", tmp_path / "mine", "--address", "h:8883", "--role", role)
    assert (status, err) == (2, f"veilmq: --role {role}: take replica, gateway or keyserver\n".replace("  ", " "))
    assert not (tmp_path / "mine").exists()


class FakeSupervisor:
    """Notes what `up` asks of it; `fails_at`: the step at which it breaks."""

    made: FakeSupervisor

    def __init__(self, directory: Path, say: object, only: frozenset[str], level: str) -> None:
        self.directory, self.only, self.level, self.done = directory, only, level, list[str]()
        self.children = {
            "r1": SimpleNamespace(pid=4711, log=directory / "logs" / "r1.log", folder=RoleFolder(directory / "r1"))
        }
        self.fails_at = 0
        FakeSupervisor.made = self

    def open(self) -> None:
        self.done.append("open")

    def check_members(self, now: float) -> None:
        self.done.append("step")
        if self.directory.name == "broken":
            raise OSError("disk is gone")

    def stop(self) -> None:
        self.done.append("stop")


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """The handlers of signals that `up` sets; its first pause is ended by Ctrl-C, as it would be."""
    found: dict[int, Any] = {}
    monkeypatch.setattr(setup, "Supervisor", FakeSupervisor)
    monkeypatch.setattr(logs, "configure", lambda form, level: None)
    monkeypatch.setattr(signal, "signal", found.__setitem__)

    def sleep(seconds: float) -> None:
        assert seconds == LOOK_S
        found[signal.SIGINT](signal.SIGINT, None)

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: 0.0)  # not of the module: threads of others sleep too
    monkeypatch.setattr(setting_up, "time", clock)
    return found


def test_up_runs_until_ctrl_c_and_stops_all(tmp_path: Path, veilmq: Any, handlers: dict[int, Any]) -> None:
    status, out, err = veilmq("up", tmp_path, "r1")
    assert (status, err) == (0, "")
    assert set(handlers) == {signal.SIGINT, signal.SIGTERM}
    made = FakeSupervisor.made
    assert (made.directory, made.only) == (tmp_path, {"r1"})
    assert made.done == ["open", "step", "step", "stop"]
    assert "4711" in out
    assert out.rstrip().endswith("stopping")


@pytest.mark.usefixtures("handlers")
def test_up_stops_all_when_it_breaks(tmp_path: Path, veilmq: Any) -> None:
    with pytest.raises(OSError, match="disk is gone"):
        veilmq("up", tmp_path / "broken")
    assert FakeSupervisor.made.done[-1] == "stop"
