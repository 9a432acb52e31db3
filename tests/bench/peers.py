"""Brokers to measure: ours, two Mosquittos, rumqttd and amqtt, each in a process of its own on a core of its own.

`MOSQUITTO` is the program that the environment variable of the same name gives, else the installed one. `PACKAGED` is
the installed one, where the variable gives another. `RUMQTTD` is the broker inside the wheel `iotcore`.

Same work, same bounds: where our default and Mosquitto's differ in what a measure is about (messages in flight to one
subscriber), both are told the same. Mosquitto may queue as much as it likes, since by default it drops what a receiver
has not taken and would be compared by what it loses. Not here: load (`native.py`, `crowd.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TypeAlias

import psutil

from tests.bench.load import pin
from tests.gateway.certificates import Authority
from tests.ports import free_ports
from tests.waits import wait_until

Pair: TypeAlias = tuple[Path, Path]
"""Files of a certificate and its key."""

#: Unacknowledged messages to one subscriber: our default; Mosquitto's is 20.
IN_FLIGHT = 128
#: Messages for a subscriber that is away, and with Mosquitto for a slow one: none may be lost while it is measured.
QUEUED = 1_000_000
#: Connections, sessions and retained topics of the largest rows; Mosquitto has no bounds of them by default.
ROOM = {
    "connections": 12_000,
    "connections_per_address": 12_000,
    "sessions": 120_000,
    "retained_messages": 120_000,
}
START_S = 60.0
OURS, MOSQUITTO, PACKAGED, RUMQTTD, AMQTT = "veilmq", "mosquitto", "mosquitto (packaged)", "rumqttd", "amqtt"
PROGRAM_VARIABLE = "MOSQUITTO"
OURS_ON_ASYNCIO = "veilmq on asyncio's loop"
#: Programs that are no brokers (`bare.py`), and our broker on another loop: what a design of the sockets costs.
DESIGNS = (OURS_ON_ASYNCIO, "bare uvloop", "bare asyncio", "bare buffered", "bare epoll")
#: Of `iotcore`, whose wheel names no version of the broker that it holds.
RUMQTTD_WHEEL = "iotcore"


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

    def stop(self) -> None:
        """Asks it to end, so that it may write what it keeps, and returns when it has ended."""
        process = psutil.Process(self.pid)
        process.terminate()
        assert wait_until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, START_S)

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


@cache
def versions() -> dict[str, str]:
    """The versions of all brokers that were found on this machine, by name."""
    found = {OURS: importlib.metadata.version("veilmq")}
    for name in (MOSQUITTO, PACKAGED):
        if _mosquitto_program(name) is not None:
            found[name] = _mosquitto_version(mosquitto(name))
    for name, package in ((RUMQTTD, RUMQTTD_WHEEL), (AMQTT, "amqtt")):
        if importlib.util.find_spec(package) is not None:
            beside = f"{package} " if package != name else ""
            found[name] = f"{beside}{importlib.metadata.version(package)}"
    return found


@contextlib.contextmanager
def start(name: str, core: int, is_durable: bool, has_tls: bool = False, home: Path | None = None) -> Iterator[Running]:
    """A fresh broker; `is_durable`: it keeps sessions on disk, in a directory that is removed afterwards, or in
    `home`.
    """
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        place = home or Path(directory)
        data = place / "data" if is_durable else None
        pair = Authority(place).issue("localhost") if has_tls else None
        if name in (MOSQUITTO, PACKAGED):
            with _mosquitto(mosquitto(name), core, place, is_durable, pair) as running:
                yield running
        elif name == RUMQTTD:
            with _rumqttd(core) as running:
                yield running
        else:
            serve = {OURS: _serve_ours, OURS_ON_ASYNCIO: _serve_on_asyncio, AMQTT: _serve_amqtt}.get(name)
            with _in_python(serve or partial(_serve_bare, name), core, data, pair) as running:
                yield running


def _use_uvloop() -> None:
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def _serve_bare(name: str, port: int, core: int, data: Path | None, pair: Pair | None) -> None:
    pin(core)
    from tests.bench import bare

    if name in ("bare uvloop", "bare buffered"):
        _use_uvloop()
    designs = {"bare buffered": bare.serve_buffered, "bare epoll": bare.serve_epoll}
    designs.get(name, bare.serve_protocol)(port)


def _serve_ours(port: int, core: int, data: Path | None, pair: Pair | None) -> None:
    _use_uvloop()
    _serve_on_asyncio(port, core, data, pair)


def _serve_on_asyncio(port: int, core: int, data: Path | None, pair: Pair | None) -> None:
    pin(core)
    from gateway.base import collect_seldom
    from gateway.base.config import parse
    from gateway.broker.running import run_broker

    listener: dict[str, object] = {"bind": f"127.0.0.1:{port}"}
    if pair is not None:
        listener |= {"ssl": True, "certfile": str(pair[0]), "keyfile": str(pair[1])}
    limits: dict[str, int] = {"in_flight": IN_FLIGHT, **ROOM}
    content: dict[str, object] = {"listeners": {"default": listener}, "allow_anonymous": True, "limits": limits}
    if data is not None:
        content["data"] = str(data)
        limits |= {"queue_messages": QUEUED, "queue_bytes": 1 << 30}
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
    port = free_ports(1)[0]
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(port, core, data, pair), daemon=True)
    process.start()
    try:
        wait_for(port)
        assert process.pid is not None
        yield Running(port, process.pid)
    finally:
        process.kill()
        process.join()


def _mosquitto_program(name: str) -> str | None:
    installed = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    given = os.environ.get(PROGRAM_VARIABLE)
    if name == MOSQUITTO:
        return given or installed
    return installed if given else None


def mosquitto(name: str = MOSQUITTO) -> str:
    """The program. Ends the bench with one line and status 2 where it is not installed."""
    program = _mosquitto_program(name)
    if program is None:
        print("bench: mosquitto is not installed; run `make tools` as root", file=sys.stderr)
        raise SystemExit(2)
    if shutil.which(program) is None:
        print(f"bench: {program} is no program; correct {PROGRAM_VARIABLE}", file=sys.stderr)
        raise SystemExit(2)
    return program


def _mosquitto_version(program: str) -> str:
    """What the program says of itself; `?` where it says nothing of the kind."""
    said = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout.split()
    return said[2] if said[:2] == ["mosquitto", "version"] else "?"


@contextlib.contextmanager
def _mosquitto(program: str, core: int, directory: Path, is_durable: bool, pair: Pair | None) -> Iterator[Running]:
    port = free_ports(1)[0]
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
    with _program([program, "-c", str(config)], port, core) as running:
        yield running


@contextlib.contextmanager
def _rumqttd(core: int) -> Iterator[Running]:
    port = free_ports(1)[0]
    options = {"listen": "127.0.0.1", "port": port, "max_connections": 12_000, "max_inflight_count": IN_FLIGHT}
    with _program([sys.executable, "-m", "iotcore._serve", json.dumps(options)], port, core) as running:
        yield running


@contextlib.contextmanager
def _program(command: list[str], port: int, core: int) -> Iterator[Running]:
    """A broker that is a program of its own, with a pipe as standard input: rumqttd's ends with it."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)
    try:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, {core})  # before it has threads, which do as it does
        wait_for(port)
        yield Running(port, process.pid)
    finally:
        process.kill()
        process.communicate()


def wait_for(port: int) -> None:
    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    assert wait_until(listens, START_S), f"nothing listens on port {port}"
