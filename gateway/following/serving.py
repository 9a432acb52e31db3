"""Unix socket in the data directory of a member: whoever may enter that directory may follow what passes there.

The client sends a line of JSON with its wish, later lines that name messages; it gets a line a step. The directory and
the socket are open to the member's own user alone, so no password is asked.

    -> {"client": "", "topic": "plant/#", "address": ""}
    <- {"member": "site", "following": true}
    <- {"time": "...", "member": "site", "step": "received", "client": "pump-7", "topic": "plant/a", "qos": 1}
    -> {"message": "site/12"}
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.base import FileStamp, stamp
from gateway.base.followed import FollowedMessages, FollowError, Following, Wish
from gateway.base.log_events import LogEvent

log = logging.getLogger("veilmq.following")

SOCKET = "trace.sock"
LINE_BYTES_MAX = 4_096  # of a wish, or of a named message
WISH_S = 10.0
"""Seconds from a connection to its wish."""
WAITING_MAX = 8  # connections that have not said their wish yet
STALLED_S = 20.0
"""Seconds after which a client that takes nothing of what is written is cut off."""


@contextlib.contextmanager
def short_path(directory: Path) -> Iterator[str]:
    """Yields a path of the socket below `directory` that is short enough for an address (108 bytes on Linux)."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


class FollowServer:
    """Server of a member. Call `start`, then `stop`. `data`: the member's data directory."""

    def __init__(self, data: Path, followed: FollowedMessages) -> None:
        self._data, self._followed = data, followed
        self._server: asyncio.Server | None = None
        self._ours: FileStamp | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = 0

    async def start(self) -> None:
        """Begins to serve. A socket that cannot be made is said in the log: the member works without."""
        try:
            sock = self._bound_socket()
        except OSError as error:
            LogEvent.FOLLOWING_NOT_SERVED.say(log, self._data / SOCKET, error.strerror or error)
            return
        self._ours = stamp(self._data / SOCKET)
        self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=LINE_BYTES_MAX)

    def _bound_socket(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_path(self._data) as path:
                Path(path).unlink(missing_ok=True)  # of a process that died: the data directory is ours alone
                sock.bind(path)
                Path(path).chmod(0o600)  # nobody can connect before it listens
        except OSError:
            sock.close()
            raise
        sock.setblocking(False)
        return sock

    async def stop(self) -> None:
        """Ends all followings, and removes the socket unless it is another process's by now."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(OSError):
            if self._ours is not None and stamp(self._data / SOCKET) == self._ours:
                (self._data / SOCKET).unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve_follower(reader, writer)
        except (ConnectionError, TimeoutError, ValueError, asyncio.CancelledError):
            pass  # the client is gone, or sends no lines of ours
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve_follower(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._waiting >= WAITING_MAX:
            return
        self._waiting += 1
        try:
            said = _words(await asyncio.wait_for(reader.readline(), WISH_S))
        finally:
            self._waiting -= 1
        try:
            wish = Wish.read(said.get("client", ""), said.get("topic", ""), said.get("address", ""))
            following = self._followed.begin_following(wish)
        except FollowError as error:
            await _write(writer, {"error": str(error)})
            return
        LogEvent.FOLLOWED.say(log, client=wish.client, topic=wish.topic, address=said.get("address", ""))
        try:
            await _write(writer, {"member": self._followed.member, "following": True})
            telling = asyncio.ensure_future(_tell(following, self._followed.member, writer))
            hearing = asyncio.ensure_future(_hear(following, reader))
            try:
                await asyncio.wait([telling, hearing], return_when=asyncio.FIRST_COMPLETED)
            finally:
                telling.cancel()
                hearing.cancel()
                await asyncio.gather(telling, hearing, return_exceptions=True)
        finally:
            self._followed.end_following(following)


def _words(line: bytes) -> dict[str, str]:
    """Returns the texts of a line. Raises ValueError."""
    content = json.loads(line)
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise ValueError("no object with texts")
    return {key: value for key, value in content.items() if key in ("client", "topic", "address", "message")}


async def _hear(following: Following, reader: asyncio.StreamReader) -> None:
    """Takes names of messages until the client goes."""
    while line := await reader.readline():
        if message := _words(line).get("message"):
            following.name_message(message)
            await asyncio.sleep(0)  # many names: other work of the loop has its turns


async def _tell(following: Following, member: str, writer: asyncio.StreamWriter) -> None:
    """Writes steps as they come."""
    arrived = asyncio.Event()
    following.arrived = arrived.set
    missed = 0
    while True:
        arrived.clear()
        while (step := following.take_step()) is not None:
            await _write(writer, step.to_dict(member))
        if following.missed != missed:
            missed = following.missed
            await _write(writer, {"member": member, "step": "missed", "count": missed})
        await arrived.wait()


async def _write(writer: asyncio.StreamWriter, content: dict[str, Any]) -> None:
    writer.write(json.dumps(content, default=str).encode() + b"\n")
    await asyncio.wait_for(writer.drain(), STALLED_S)
