"""Links between regions that are slow: a proxy in front of a member holds back what certain others send to it.

Everybody dials a member at one address, so the proxy has to know who dials: the process that holds the other end of the
connection, which Linux tells (`/proc/net/tcp`, `/proc/PID/fd`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gateway.overlay_processes import OverlayProcesses

CHUNK = 1 << 16
HELD_CHUNKS = 4096


@dataclass
class SlowLinks:
    """`delay_s(source, target)`, names of members: how long it takes from one to the other now, chunk by chunk."""

    overlay: OverlayProcesses
    delay_s: Callable[[str, str], float]
    targets: dict[str, tuple[int, int]] = field(default_factory=dict)  # by name: where it is dialled, where it listens
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def start(self) -> None:
        """Listen in front of all `targets`."""
        listening = threading.Event()
        threading.Thread(target=self._run, args=(listening,), name="slow links", daemon=True).start()
        assert listening.wait(10)

    def stop(self) -> None:
        """End all connections and the thread."""
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_later(0.1, self._loop.stop)

    def _run(self, listening: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        for name, (front, behind) in self.targets.items():

            async def accept(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = name, port: int = behind
            ) -> None:
                await self._pass(reader, writer, name, port)

            self._loop.run_until_complete(asyncio.start_server(accept, "127.0.0.1", front))
        listening.set()
        self._loop.run_forever()

    def back_s(self, source: str, name: str) -> float:
        """Seconds that a link takes for what is answered; `source` dialled `name`."""
        del source, name
        return 0.0

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str, port: int) -> None:
        try:
            behind, ahead = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        source = self._who(writer.get_extra_info("peername")[1])
        self._begin(self._carry(reader, ahead, lambda: self.delay_s(source, name)))
        self._begin(self._carry(behind, writer, lambda: self.back_s(source, name)))

    def _begin(self, carrying: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(carrying)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: Callable[[], float]
    ) -> None:
        """In order, each chunk as long after it came as the link takes then."""
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HELD_CHUNKS)
        self._begin(self._write(held, writer))
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK):
                await held.put((self._loop.time() + delay_s(), chunk))
        await held.put((0.0, b""))

    async def _write(self, held: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while (found := await held.get())[1]:
                if (left_s := found[0] - self._loop.time()) > 0:
                    await asyncio.sleep(left_s)
                writer.write(found[1])
                await writer.drain()
        writer.close()

    def _who(self, port: int) -> str:
        """The member whose process holds the other end of a connection; empty if that is none of ours."""
        wanted = f":{port:04X}"
        inodes = [
            words[9]
            for words in (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
            if words[1].endswith(wanted)
        ]
        for name, process in list(self.overlay.running.items()):
            with contextlib.suppress(OSError):
                for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
                    with contextlib.suppress(OSError):
                        if str(descriptor.readlink())[8:-1] in inodes:
                            return name
        return ""
