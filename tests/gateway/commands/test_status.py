"""`veilmq status`: what a running member answers, as lines and an exit status."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BIND = "127.0.0.1:9883"
OVERLAY = {
    "name": "g1", "role": "gateway", "version": 3, "epoch": 7, "outbox_depth": 2, "oldest_s": 61.4,
    "versions": {"r3": 3, "r1": 3, "r2": 2},
    "histories": [
        {"scope": "plant/#", "first_ms": 1_800_000_000_000, "last_ms": 1_800_000_100_000, "bytes": 2_500_000},
        {"scope": "yard/#", "first_ms": 0, "last_ms": 0, "bytes": 0},
    ],
    "regions": [{"name": "campus", "up": ["r1", "r3"], "members": ["r1", "r2", "r3"], "needed": 2, "away": ["r2"]}],
}  # fmt: skip
DEGRADED = {
    "level": "degraded",
    "findings": [{"level": "degraded", "key": "r2", "text": "r2 is away; see its log"}],
    "overlay": OVERLAY,
    "bridges": {"cloud": {"up": False, "waiting": 12}},
    "histories": [{"scope": "hall/#", "first_ms": 1_800_000_000_000, "last_ms": 1_800_000_100_000, "bytes": 0}],
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "broker.yaml"
    path.write_text(f"metrics: {{bind: '{BIND}'}}")
    return path


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Let the metrics port answer this: JSON, bytes, or an error of the connection."""

    def set_answer(answer: object) -> None:
        def urlopen(url: str, timeout: float) -> io.BytesIO:
            assert url == f"http://{BIND}/status"
            if isinstance(answer, Exception):
                raise answer
            return io.BytesIO(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

        monkeypatch.setattr(urllib.request, "urlopen", urlopen)

    return set_answer


@pytest.mark.parametrize(("level", "status"), [("well", 0), ("degraded", 1), ("broken", 2)])
def test_the_exit_status_is_the_level(
    config: Path, veilmq: Any, answers: Callable[[object], None], level: str, status: int
) -> None:
    answers({"level": level, "findings": []})
    assert veilmq("status", "-c", config)[0] == status


def test_what_is_wrong_comes_first_then_the_overlay(
    config: Path, veilmq: Any, answers: Callable[[object], None]
) -> None:
    answers(DEGRADED)
    status, out, err = veilmq("status", "-c", config)
    assert (status, err) == (1, "")
    assert out.startswith("degraded: r2 is away; see its log\n")
    for text in ("2 of 3", "r2", "g1, gateway: version 3 of the overlay, epoch 7", "bridge cloud: away, 12 messages",
                 "version 2 is in force at r2\nversion 3 is in force at r1, r3\n",
                 "history of plant/#: since 2027-01-15 08:00:00 UTC, 2.5 MB\nhistory of yard/#: nothing yet\n",
                 "history of hall/#: since 2027-01-15 08:00:00 UTC, 0.0 MB\n",
                 "outbox: 2 publications, the oldest waits for 61 s"):  # fmt: skip
        assert text in out
    assert "\nwell" not in out


def test_a_plain_broker_that_is_well_says_so_alone(
    config: Path, veilmq: Any, answers: Callable[[object], None]
) -> None:
    answers({"level": "well", "findings": [], "overlay": None, "bridges": {}})
    assert veilmq("status", "-c", config) == (0, "well\n", "")


def test_json_is_the_answer_itself(config: Path, veilmq: Any, answers: Callable[[object], None]) -> None:
    answers(DEGRADED)
    status, out, _ = veilmq("status", "-c", config, "--json")
    assert (status, json.loads(out)) == (1, DEGRADED)


@pytest.mark.parametrize(
    "answer",
    [
        urllib.error.URLError(ConnectionRefusedError(111, "Connection refused")),
        TimeoutError("timed out"),
        urllib.error.HTTPError("u", 404, "Not Found", {}, None),  # type: ignore[arg-type]
    ],
)
def test_a_member_that_does_not_answer_is_broken(
    config: Path, veilmq: Any, answers: Callable[[object], None], answer: Exception
) -> None:
    answers(answer)
    status, out, err = veilmq("status", "-c", config)
    assert (status, err, out.count("\n")) == (2, "", 1)
    assert f"nothing answers at {BIND}" in out
    assert "start it with `veilmq broker`, or see its log" in out


@pytest.mark.parametrize("answer", [b"<html>", b"\xff", [], "well", {}, {"level": "well"}, {"findings": 3}])
def test_an_answer_of_something_else_is_never_well(
    config: Path, veilmq: Any, answers: Callable[[object], None], answer: object
) -> None:
    answers(answer)
    status, out, _ = veilmq("status", "-c", config)
    assert status == 2
    assert out.startswith("broken: ")
    assert "well" not in out.split()


def test_without_a_metrics_port_nobody_can_be_asked(tmp_path: Path, veilmq: Any) -> None:
    (tmp_path / "b.yaml").write_text("{}")
    status, out, err = veilmq("status", "-c", tmp_path / "b.yaml")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "add metrics: {}" in err
