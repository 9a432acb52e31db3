"""The side of `veilmq log trace`: asks one or several members, and puts their steps in the order of their times.

Each member is told the wish, and the name of every message that another member showed: so a replica, which knows
neither topics nor clients of elsewhere, shows its steps of the messages that were asked for, and no others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.base.followed import MESSAGES_MAX, FollowError
from gateway.following.serving import SOCKET, short_path

LINE_BYTES_MAX = 64 << 10  # of one step
ORDER_S = 0.3
"""Seconds that a step waits for earlier ones of other members."""


@dataclass(frozen=True, slots=True)
class Question:
    """Question to the members. `seconds`, `count`: after so long, or so many steps, it ends; None: never."""

    wish: Mapping[str, str]
    seconds: float | None = None
    count: int | None = None


class _Member:
    """Connection to a member."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.named: OrderedDict[str, None] = OrderedDict()

    def send_line(self, content: Mapping[str, str]) -> None:
        self.writer.write(json.dumps(content).encode() + b"\n")

    async def next_line(self) -> dict[str, Any] | None:
        """Returns the next line; None if the member has ended."""
        with contextlib.suppress(ConnectionError, ValueError):
            line = await self.reader.readline()
            return json.loads(line) if line else None
        return None

    def knows_message(self, message: str) -> bool:
        """True if the member showed this message or was told of it; False once for each."""
        if message in self.named:
            return True
        self.named[message] = None
        if len(self.named) > MESSAGES_MAX:
            self.named.popitem(last=False)
        return False


async def _connect(data: Path, wish: Mapping[str, str]) -> tuple[_Member, str]:
    """Connects to the member with this data directory; returns it with its name. Raises FollowError."""
    try:
        with short_path(data) as path:
            reader, writer = await asyncio.open_unix_connection(path, limit=LINE_BYTES_MAX)
    except PermissionError:
        raise FollowError(f"{data / SOCKET}: belongs to another user; run this as the user of the broker") from None
    except OSError as error:
        text = f"{data / SOCKET}: nobody answers ({error.strerror or error}); start the member with `veilmq broker`"
        raise FollowError(text) from None
    member = _Member(reader, writer)
    member.send_line(wish)
    answer = await member.next_line()
    if answer is None or "error" in answer:
        text = f"{data / SOCKET}: ended at once; see the member's log" if answer is None else answer["error"]
        raise FollowError(text)
    return member, str(answer["member"])


async def follow(
    places: list[Path], asked: Question, show: Callable[[dict[str, Any]], None], begun: Callable[[list[str]], None]
) -> int:
    """Follows at the members with these data directories until all end, or `asked` does; returns the number of steps.

    `show`: called with each step. `begun`: called with the members' names once all of them follow. Raises FollowError.
    """
    members: list[_Member] = []
    try:
        names = []
        for data in places:
            member, name = await _connect(data, asked.wish)
            members.append(member)
            names.append(name)
        begun(names)
        return await _merge(members, asked, show)
    finally:
        for member in members:
            member.writer.close()


async def _merge(members: list[_Member], asked: Question, show: Callable[[dict[str, Any]], None]) -> int:
    loop = asyncio.get_running_loop()
    waiting: list[tuple[float, dict[str, Any]]] = []
    ends_at = None if asked.seconds is None else loop.time() + asked.seconds
    reading: dict[asyncio.Future[dict[str, Any] | None], _Member] = {}
    reading |= {asyncio.ensure_future(member.next_line()): member for member in members}
    shown = 0
    try:
        while reading or waiting:
            left_s = None if ends_at is None else max(0.0, ends_at - loop.time())
            pause_s = min(ORDER_S, left_s if left_s is not None else ORDER_S) if waiting else left_s
            done: set[asyncio.Future[dict[str, Any] | None]] = set()
            if reading:
                done, _ = await asyncio.wait(reading, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                member = reading.pop(one)
                if (line := one.result()) is None:
                    continue
                reading[asyncio.ensure_future(member.next_line())] = member
                waiting.append((loop.time(), line))
                _spread(line, member, members)
            is_over = ends_at is not None and loop.time() >= ends_at
            if not reading or is_over or (waiting and loop.time() - waiting[0][0] >= ORDER_S):
                for line in sorted((line for _, line in waiting), key=lambda line: str(line.get("time", ""))):
                    show(line)
                    shown += 1
                    if asked.count is not None and shown >= asked.count:
                        return shown
                waiting.clear()
            if is_over:
                break
        return shown
    finally:
        for one in reading:
            one.cancel()


def _spread(line: Mapping[str, Any], source: _Member, members: list[_Member]) -> None:
    """Tells other members the messages that a step names."""
    for message in (line.get("message"), line.get("batch")):
        if isinstance(message, str) and message:
            source.knows_message(message)
            for member in members:
                if member is not source and not member.knows_message(message):
                    member.send_line({"message": message})
