"""`/healthz`, `/readyz`, `/status` of a running broker, and `veilmq status` that asks for them."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.attached import Attached
from gateway.base import parse
from gateway.broker import EdgeBroker
from gateway.cli import run
from gateway.overlay import OverlayStanding, RegionStanding
from tests.gateway.harness import serving
from tests.ports import free_ports


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def answers(tmp_path: Path, *questions: tuple[str, str], changed: Any = None) -> list[tuple[int, str]]:
    (port,) = free_ports(1)
    config = {"metrics": {"bind": f"127.0.0.1:{port}"}, "data": str(tmp_path / "data")}

    async def go() -> list[tuple[int, str]]:
        attached = Attached(parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}, **config}), None)

        def beside(broker: EdgeBroker) -> None:
            attached.begin_parts(broker)
            if changed is not None:
                changed(broker)

        async with serving(config, before_serving=beside):
            answers = [await asyncio.to_thread(ask, port, path, method) for method, path in questions]
        await attached.end_parts()
        return answers

    return asyncio.run(go())


def test_a_broker_that_is_well(tmp_path: Path) -> None:
    health, ready, status, metrics, post = answers(
        tmp_path, ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/status"), ("GET", "/metrics"), ("POST", "/status")
    )
    assert health == (200, "ok\n")
    assert ready == (200, "ready\n")
    assert status[0] == 200
    content = json.loads(status[1])
    assert content["level"] == "well"
    assert content["disk_free_bytes"]
    assert "veilmq_health 0.0" in metrics[1]
    assert post[0] == 405


def test_a_lost_quorum_is_not_ready_but_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = OverlayStanding("g1", "gateway", 1, (RegionStanding("west", ("r1", "r2", "r3"), ("r1",), 2, {"r2": ""}),))

    def change(broker: EdgeBroker) -> None:
        health: Any = broker.operation.health
        before = health._look
        health._look = lambda: replace(before(), overlay=lost)

    health, ready, status = answers(
        tmp_path, ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/status"), changed=change
    )
    assert health[0] == 200
    assert ready[0] == 503
    assert "quorum is lost" in ready[1]
    assert json.loads(status[1])["overlay"]["regions"][0]["name"] == "west"


@pytest.mark.parametrize("level", ["well", "degraded", "broken"])
def test_the_command_says_it_and_its_exit_status(
    tmp_path: Path, level: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broker.yaml").write_text("metrics: {bind: '127.0.0.1:1'}\n")
    finding = {"level": level, "key": "k", "text": "region west: r2 is away"}
    answer = {"level": level, "findings": [] if level == "well" else [finding], "overlay": None}
    monkeypatch.setattr("gateway.commands.status.asked", lambda bind: answer)
    code = run(["status", "-c", str(tmp_path / "broker.yaml")])
    out = capsys.readouterr().out
    assert code == {"well": 0, "degraded": 1, "broken": 2}[level]
    assert ("r2 is away" in out) == (level != "well")
    assert run(["status", "-c", str(tmp_path / "broker.yaml"), "--json"]) == code
    assert json.loads(capsys.readouterr().out)["level"] == level


def test_a_process_that_does_not_run_is_broken_and_no_port_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (port,) = free_ports(1)
    (tmp_path / "a.yaml").write_text(f"metrics: {{bind: '127.0.0.1:{port}'}}\n")
    assert run(["status", "-c", str(tmp_path / "a.yaml")]) == 2
    assert "nothing answers" in capsys.readouterr().out
    (tmp_path / "b.yaml").write_text("allow_anonymous: true\n")
    assert run(["status", "-c", str(tmp_path / "b.yaml")]) == 2
    assert "add metrics" in capsys.readouterr().err
