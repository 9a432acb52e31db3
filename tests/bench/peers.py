"""Brokers to measure: ours, Mosquitto and amqtt, each in a process of its own on a core of its own.

Same work, same bounds: where our default and Mosquitto's differ in what a measure is about (messages in flight to one
subscriber), both are told the same. Mosquitto may queue as much as it likes, since by default it drops what a receiver
has not taken and would be compared by what it loses. Not here: load (`native.py`, `crowd.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil

from tests.bench.load import pin
from tests.gateway.certificates import Authority
from tests.waits import wait_until

Pair: TypeAlias = tuple[Path, Path]
"""Files of a certificate and its key."""

#: Unacknowledged messages to one subscriber: our default; Mosquitto's is 20.
IN_FLIGHT = 128
#: Messages for a subscriber that is away, and with Mosquitto for a slow one: none may be lost while it is measured.
QUEUED = 1_000_000
START_S = 15.0
OURS, MOSQUITTO, AMQTT = "veilmq", "mosquitto", "amqtt"


@dataclass(frozen=True)
class Running:
    """A broker that accepts connections."""

    port: int
    pid: int

    def cpu_s(self) -> float:
        """Processor time that it has used, in seconds, all threads."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def waited_s(self) -> float:
        """Time that its main thread could have run while others had its core, in seconds; 0 where not told."""
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9
        except OSError:
            return 0.0

    def resident_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    def read_bytes(self) -> int:
        """Bytes that it has got by `read`: of sockets under uvloop nearly all; 0 where not told."""
        try:
            return int(Path(f"/proc/{self.pid}/io").read_text().split()[1])
        except OSError:
            return 0


def cores() -> tuple[int, tuple[int, int]]:
    """(the broker's core, (publisher's, subscribers')) of those that this process may use."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    others = usable[:-1] or usable
    return usable[-1], (others[0], others[-1])


@contextlib.contextmanager
def start(name: str, core: int, is_durable: bool, has_tls: bool = False) -> Iterator[Running]:
    """A fresh broker; `is_durable`: it keeps sessions on disk, in a directory that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        data = Path(directory) / "data" if is_durable else None
        pair = Authority(Path(directory)).issue("localhost") if has_tls else None
        if name == MOSQUITTO:
            with _mosquitto(core, Path(directory), is_durable, pair) as running:
                yield running
        else:
            serve = _serve_ours if name == OURS else _serve_amqtt
            with _in_python(serve, core, data, pair) as running:
                yield running


def _serve_ours(port: int, core: int, data: Path | None, pair: Pair | None) -> None:
    pin(core)
    from gateway.base import collect_seldom
    from gateway.base.config import parse
    from gateway.broker.running import run_broker

    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    listener: dict[str, object] = {"bind": f"127.0.0.1:{port}"}
    if pair is not None:
        listener |= {"ssl": True, "certfile": str(pair[0]), "keyfile": str(pair[1])}
    content: dict[str, object] = {
        "listeners": {"default": listener},
        "allow_anonymous": True,
        "limits": {"in_flight": IN_FLIGHT},
    }
    if data is not None:
        content["data"] = str(data)
        content["limits"] = {"in_flight": IN_FLIGHT, "queue_messages": QUEUED, "queue_bytes": 1 << 30}
    asyncio.run(run_broker(parse(content), started=lambda broker: collect_seldom()))


def _serve_amqtt(port: int, core: int, data: Path | None, pair: Pair | None) -> None:
    pin(core)
    import logging

    from amqtt.broker import Broker

    logging.disable(logging.CRITICAL)

    async def serve() -> None:
        broker = Broker(
            {
                "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
                "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
            }
        )
        await broker.start()
        await asyncio.Event().wait()

    asyncio.run(serve())


@contextlib.contextmanager
def _in_python(
    serve: Callable[[int, int, Path | None, Pair | None], None], core: int, data: Path | None, pair: Pair | None
) -> Iterator[Running]:
    port = free_port()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(port, core, data, pair), daemon=True)
    process.start()
    try:
        wait_for(port)
        assert process.pid is not None
        yield Running(port, process.pid)
    finally:
        process.kill()
        process.join()


def mosquitto() -> str:
    """The program. Ends the bench with one line and status 2 where it is not installed."""
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        print("bench: mosquitto is not installed; run `make tools` as root", file=sys.stderr)
        raise SystemExit(2)
    return program


@contextlib.contextmanager
def _mosquitto(core: int, directory: Path, is_durable: bool, pair: Pair | None) -> Iterator[Running]:
    port = free_port()
    lines = [f"listener {port} 127.0.0.1", "allow_anonymous true", "set_tcp_nodelay true"]
    lines += [f"max_inflight_messages {IN_FLIGHT}", f"max_queued_messages {QUEUED}"]
    if is_durable:
        lines += ["persistence true", f"persistence_location {directory}/"]
    if pair is not None:
        lines += [f"certfile {pair[0]}", f"keyfile {pair[1]}"]
    if os.getuid() == 0:
        lines.append("user root")  # it would leave the directory to a user that may not write there
    config = directory / "mosquitto.conf"
    config.write_text("\n".join(lines) + "\n")
    process = subprocess.Popen([mosquitto(), "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, {core})
        wait_for(port)
        yield Running(port, process.pid)
    finally:
        process.kill()
        process.wait()


def free_port(among: Iterable[int] = (0,)) -> int:
    """Any, or the first free one of these."""
    for port in among:
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return int(sock.getsockname()[1])
    raise OSError("no port is free")


def wait_for(port: int) -> None:
    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    assert wait_until(listens, START_S), f"nothing listens on port {port}"
