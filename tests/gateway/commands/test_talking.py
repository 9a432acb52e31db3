"""`veilmq pub`, `sub` and `bench` as commands: arguments, output and exit status."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway import cli
from tests.gateway.harness import on_loop, serving


@pytest.fixture(autouse=True)
def _loggers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.base.logs.configure", lambda form, level: None)


async def run(*arguments: str) -> int:
    return await asyncio.to_thread(cli.run, list(arguments))


@on_loop
async def test_what_is_published_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    async with serving() as broker:
        port = str(broker.port())
        assert await run("pub", "-p", port, "a/1", "one", "-r", "-P", "k=v", "--expiry", "60", "--text") == 0
        assert await run("pub", "-p", port, "a/2", "-f", __file__, "-r", "--mqtt", "3.1.1", "-q", "2", "-v") == 0
        assert "1 acknowledged in" in capsys.readouterr().err
        assert await run("sub", "-p", port, "a/1", "-C", "1") == 0
        assert capsys.readouterr().out == "a/1 one\n"
        assert await run("sub", "-p", port, "a/1", "-C", "1", "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["payload"], found["properties"]["user"]) == ("one", [["k", "v"]])
        assert found["properties"]["payload_format"] == 1
        out = tmp_path / "out"
        assert await run("sub", "-p", port, "a/2", "-C", "1", "--form", "raw", "-o", str(out)) == 0
        assert out.read_bytes() == Path(__file__).read_bytes()
        assert await run("sub", "-p", port, "a/1", "-C", "1", "-W", "0.05", "--no-retained") == 1
        assert "0 of 1 messages came" in capsys.readouterr().err


@on_loop
async def test_a_load_is_measured_for_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving() as broker:
        port = str(broker.port())
        assert await run("bench", "-p", port, "-n", "20", "--to", f"127.0.0.1:{port}") == 0
        said = capsys.readouterr().out
        assert "received      20 of 20" in said
        assert "lost          0, repeated 0, out of order 0" in said
        assert "acknowledged  p50" in said
        assert await run("bench", "-p", port, "-n", "20", "-q", "0", "--json") == 0
        assert json.loads(capsys.readouterr().out)["received"] == 20


MISTAKES: dict[tuple[str, ...], str] = {
    ("pub", "a"): "say the payload",
    ("pub", "a/#", "x"): "is no topic to publish to",
    ("pub", "a", "x", "--mqtt", "4"): "--mqtt 4: there are 5 and 3.1.1",
    ("pub", "a", "x", "--mqtt", "3.1.1", "-P", "a=b"): "properties need MQTT 5",
    ("pub", "a", "x", "-P", "a"): "write NAME=VALUE",
    ("pub", "a", "x", "--will-qos", "1"): "a will needs --will-topic",
    ("pub", "a", "x", "--lines"): "--lines takes the payloads from standard input",
    ("pub", "a", "-f", "nowhere"): "nowhere: No such file",
    ("pub", "a", "x", "--password-file", "nowhere"): "--password-file nowhere",
    ("pub", "a", "x", "--cafile", "nowhere"): "nowhere: No such file",
    ("pub", "a", "x", "--certfile", "c"): "--certfile and --keyfile go together",
    ("pub", "a", "x", "-p", "70000"): "--port",
    ("pub", "a", "x", "-q", "3"): "--qos",
    ("pub", "a", "x", "-p", "1"): "127.0.0.1:1: ",
    ("pub", "a", "x", "-H", "no.such.host.invalid", "-p", "1"): "no.such.host.invalid:1",
    ("sub", "a/#/b"): "correct the filter",
    ("sub", "a", "--form", "xml"): "--form xml: there are line, long",
    ("sub", "a", "--session", "9"): "give one",
    ("sub", "a", "--no-local", "--mqtt", "3.1.1"): "need MQTT 5",
    ("sub", "a", "-o", "no/where"): "no/where",
    ("bench", "--size", "3"): "the smallest is 24",
    ("bench", "--to", "there"): "is no HOST:PORT",
    ("bench", "a/#"): "is no topic to publish to",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line(veilmq: Any, arguments: tuple[str, ...]) -> None:
    status, out, error = veilmq(*arguments)
    assert (status, out) == (2, ""), error
    assert error.startswith("veilmq: "), error
    assert error.count("\n") == 1, error
    assert MISTAKES[arguments] in error, error
