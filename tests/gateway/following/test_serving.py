"""The socket in the data directory: open to the member's own user, bounded, and no way to anything else."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.base.followed import FOLLOWINGS_MAX, FollowedMessages
from gateway.following.serving import LINE_BYTES_MAX, SOCKET, FollowServer, short_path
from tests.gateway.harness import on_loop
from tests.waits import until


@asynccontextmanager
async def server(data: Path) -> AsyncIterator[FollowedMessages]:
    followed = FollowedMessages("site", lambda is_on: None)
    made = FollowServer(data, followed)
    await made.start()
    try:
        yield followed
    finally:
        await made.stop()


async def connect(data: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with short_path(data) as path:
        return await asyncio.open_unix_connection(path)


async def ask(data: Path, line: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Any]:
    reader, writer = await connect(data)
    writer.write(line + b"\n")
    answer = await reader.readline()
    return reader, writer, json.loads(answer) if answer else None


@on_loop
async def test_steps_come_as_they_are_said(tmp_path: Path) -> None:
    async with server(tmp_path) as followed:
        assert stat.S_IMODE((tmp_path / SOCKET).stat().st_mode) == 0o600
        reader, writer, answer = await ask(tmp_path, b'{"topic": "plant/#"}')
        assert answer == {"member": "site", "following": True}
        followed.say_step("received", topic="plant/a", client="pump")
        followed.say_step("received", topic="office/a", client="pump")
        followed.say_step("came", message="g2/1")
        assert json.loads(await reader.readline())["topic"] == "plant/a"
        writer.write(b'{"message": "g2/1"}\n')
        assert json.loads(await reader.readline())["step"] == "came"
        writer.close()
    assert not (tmp_path / SOCKET).exists()


@on_loop
async def test_a_path_that_is_too_long_for_an_address_and_a_socket_of_a_dead_process(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    for _ in range(2):
        made = FollowServer(deep, FollowedMessages("site", lambda is_on: None))
        await made.start()  # the second finds the socket of the first, which was never stopped
        _, writer, answer = await ask(deep, b"{}")
        assert answer["member"] == "site"
        writer.close()
    await made.stop()


@on_loop
async def test_too_many_and_wrong_wishes_get_a_line(tmp_path: Path) -> None:
    async with server(tmp_path) as followed:
        wrong = await ask(tmp_path, b'{"address": "nowhere"}')
        assert "--address nowhere" in wrong[2]["error"]
        kept = [await ask(tmp_path, b"{}") for _ in range(FOLLOWINGS_MAX)]
        assert "end one of them first" in (await ask(tmp_path, b"{}"))[2]["error"]
        kept[0][1].close()
        await until(lambda: len(followed._open) < FOLLOWINGS_MAX)
        assert "following" in (await ask(tmp_path, b"{}"))[2]


@on_loop
@pytest.mark.parametrize("line", [b"GET / HTTP/1.1", b"[]", b'{"topic": 7}', b"x" * (2 * LINE_BYTES_MAX), b"\xff"])
async def test_anything_else_ends_the_connection(tmp_path: Path, line: bytes) -> None:
    async with server(tmp_path):
        assert (await ask(tmp_path, line))[2] is None


@on_loop
async def test_a_socket_that_cannot_be_made_is_said_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / SOCKET).mkdir()
    with caplog.at_level(logging.ERROR, "veilmq.following"):
        async with server(tmp_path):
            pass
    assert "messages cannot be followed" in caplog.text
    assert (tmp_path / SOCKET).is_dir()
    assert not list((tmp_path / SOCKET).iterdir())
