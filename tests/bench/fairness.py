"""One bad client beside a hundred good ones: `python -m tests.bench.fairness [--json] [--only KIND] [--turns]`.

The good publish at QoS 1, each to one other, which subscribed. They do so for some seconds alone, then as long beside a
bad client (`bad_clients`): it publishes, subscribes, connects, retains, names devices, or asks the console, without
end. A fresh broker for each kind, with logins, tracing of devices and a console. The broker has a core of its own where
there are two, all clients another. The good run before the bad one there (`SCHED_FIFO`, which root may set), so that
they wait for the broker and not for the core. Beside them stands what the machine itself costs: a process that asks the
broker for nothing, and only keeps the core of the clients busy (`busy`).

A row: what was published and not delivered (goal 0), and the 99th percentile of the time from PUBLISH to PUBACK and to
the subscriber, with the bad client and without (goal: twice as long at most). Exit status 1 if a message was lost.
With --turns instead: how long the broker's event loop was busy at a stretch, in processor time (`loop_turns`), without
the bad client, beside it, and without it again. Other work on the machine does not change these figures.

With --json one object a line: bench, work, ours, peer, peer_name, ratio, unit, lost, goal, met;
ratio is ours / peer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from gateway.auth.password_hashes import make_hash
from gateway.auth.security import Security, User
from gateway.mqtt5.packets import PubAck, Publish
from tests.bench import bad_clients
from tests.bench.load import pin
from tests.bench.peers import cores, wait_for
from tests.gateway.harness import Wire
from tests.gateway.traced_site import Site
from tests.ports import free_ports

GOOD = 100
EVERY_S = 0.5
SECONDS = 10.0
BEGINS_S = 3.0
"""Time that the bad client has before it counts."""
ENDS_S = 30.0
"""Time in which what was published must have come."""
GOAL = 2.0


@dataclass(frozen=True)
class Times:
    """Seconds of one phase, by message; `lost`: acknowledged and not delivered."""

    acknowledged: list[float]
    delivered: list[float]
    lost: int


class Good:
    """One client: publishes on its topic, and reads its neighbour's."""

    def __init__(self, wire: Wire, number: int, crowd: Crowd) -> None:
        self.wire, self.number, self._crowd = wire, number, crowd
        self._sent: dict[int, float] = {}

    def publish(self) -> None:
        now, crowd = time.perf_counter(), self._crowd
        key = f"{self.number}-{len(crowd.sent)}"
        crowd.sent[key] = now
        self._sent[self.wire.publish(f"good/{self.number}", key.encode(), 1)] = now

    async def read(self) -> None:
        while (packet := await self._next()) is not None:
            now = time.perf_counter()
            if isinstance(packet, PubAck):
                self._crowd.acknowledged.append(now - self._sent.pop(packet.packet_id))
            elif isinstance(packet, Publish):
                self.wire.send(PubAck(packet.packet_id))
                self._crowd.came.setdefault(packet.payload.decode(), now)

    async def _next(self) -> Any:
        while True:
            try:
                return await self.wire.next()
            except TimeoutError:
                continue


class Crowd:
    """All good clients."""

    def __init__(self) -> None:
        self.sent: dict[str, float] = {}
        self.came: dict[str, float] = {}
        self.acknowledged: list[float] = []

    async def join(self, broker: Any) -> None:
        self._good = []
        for number in range(GOOD):
            wire = await Wire.connect(broker, f"good{number}", username="good", password=b"good")
            assert await wire.subscribe(f"good/{(number + 1) % GOOD}", 1) == 1
            self._good.append(Good(wire, number, self))
        self._readers = [asyncio.create_task(each.read()) for each in self._good]

    async def publish(self, seconds: float) -> Times:
        """Publishes evenly for so long, and waits for all of it."""
        self.sent, self.came, self.acknowledged = {}, {}, []
        begins, number = time.perf_counter(), 0
        while (passed := time.perf_counter() - begins) < seconds:
            while number < passed * GOOD / EVERY_S:
                self._good[number % GOOD].publish()
                number += 1
            await asyncio.sleep(0.001)
        ends = time.perf_counter() + ENDS_S
        while time.perf_counter() < ends and (len(self.came) < len(self.sent) or len(self.acknowledged) < number):
            await asyncio.sleep(0.05)
        return Times(self.acknowledged, [at - self.sent[key] for key, at in self.came.items()], number - len(self.came))

    async def leave(self) -> None:
        for each in self._readers:
            each.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        for one in self._good:
            one.wire.cut()


@dataclass(frozen=True)
class Row:
    work: str
    ours: float
    peer: float
    lost: int

    @property
    def ratio(self) -> float:
        return self.ours / self.peer if self.peer else float("inf")


def rows(kind: str) -> Iterator[Row]:
    core, (other, _) = cores()
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        port, console_port = free_ports(2)
        broker = _broker(Path(directory), port, console_port, core)
        pin(other)
        _run_first()
        try:
            without, beside = asyncio.run(_both(kind, port, console_port, other))
        finally:
            broker.terminate()
            broker.wait(60)
    for what, ours, peer in (
        ("PUBLISH to PUBACK", beside.acknowledged, without.acknowledged),
        ("PUBLISH to subscriber", beside.delivered, without.delivered),
    ):
        yield Row(f"{kind}: {what}, p99", 1000 * _p99(ours), 1000 * _p99(peer), beside.lost)


def _run_first() -> None:
    """Lets this process run before all others of its core; processes that it starts do not."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        print("not root: the clients that are measured share their core with the bad one", file=sys.stderr)


async def _both(kind: str, port: int, console_port: int, core: int) -> tuple[Times, Times]:
    crowd, broker = Crowd(), SimpleNamespace(port=lambda listener="default": port)
    await crowd.join(broker)
    await crowd.publish(1.0)  # names and plans are remembered afterwards
    without = await crowd.publish(SECONDS)
    bad = bad_clients.started(kind, port, console_port, core)
    await asyncio.sleep(BEGINS_S)
    assert bad.is_alive(), "the bad client ended"
    beside = await crowd.publish(SECONDS)
    assert bad.is_alive(), "the bad client ended"
    bad.kill()
    await crowd.leave()
    return without, beside


def turns(kind: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Turns of the broker's event loop without the bad client, beside it, and without it again."""
    core, (other, _) = cores()
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        port, console_port = free_ports(2)
        file = Path(directory) / "turns"
        broker = _broker(Path(directory), port, console_port, core, measures=file)
        pin(other)
        try:
            asyncio.run(_in_turn(kind, port, console_port, other, broker.pid))
        finally:
            broker.terminate()
            broker.wait(60)
        written = [json.loads(line) for line in file.read_text().splitlines()]
    yield from zip(("without", "beside", "without"), written[1::2], strict=True)


async def _in_turn(kind: str, port: int, console_port: int, core: int, pid: int) -> None:
    crowd, broker = Crowd(), SimpleNamespace(port=lambda listener="default": port)
    await crowd.join(broker)
    await crowd.publish(1.0)
    for is_beside in (False, True, False):
        bad = bad_clients.started(kind, port, console_port, core) if is_beside else None
        await asyncio.sleep(BEGINS_S)
        os.kill(pid, signal.SIGUSR2)
        await crowd.publish(SECONDS)
        os.kill(pid, signal.SIGUSR2)
        await asyncio.sleep(1.0)
        if bad is not None:
            assert bad.is_alive(), "the bad client ended"
            bad.kill()
    await crowd.leave()


def _broker(
    directory: Path, port: int, console_port: int, core: int, measures: Path | None = None
) -> subprocess.Popen[bytes]:
    site, users = Site(directory), directory / "security.json"
    rights = {"good": ["topic readwrite good/#"], "bad": ["topic readwrite bad/#", "topic readwrite homeassistant/#"]}
    hashed = {name: make_hash(name.encode(), os.urandom, 1_000) for name in rights}
    Security(users={name: User(hash=hashed[name], acl=acl) for name, acl in rights.items()}).save(users)
    config = site.config(
        listeners={"default": {"bind": f"127.0.0.1:{port}"}},
        allow_anonymous=False,
        plugins={"gateway.auth.dynamic.DynamicPlugin": {"file": str(users)}},
        console={"bind": f"127.0.0.1:{console_port}", "admins": ["good"]},
        data=str(directory / "data"),
    )
    config["traces"]["devices"] = {"owner": str(site.credentials("works")), "conventions": ["homeassistant"]}
    file = directory / "broker.yaml"
    file.write_text(yaml.safe_dump(config), "utf-8")
    pin(core)  # which it inherits
    veilmq: list[str | Path] = [Path(sys.executable).with_name("veilmq")]
    if measures is not None:
        veilmq = [sys.executable, "-m", "tests.bench.loop_turns", measures]
    log = (directory / "log").open("wb")
    broker = subprocess.Popen([*veilmq, "broker", "-c", file], stdout=log, stderr=subprocess.STDOUT)
    wait_for(port)
    return broker


def _p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * len(times))] if times else float("inf")


def show(row: Row) -> str:
    is_met = "met" if row.ratio <= GOAL and not row.lost else "missed"
    return f"{row.work:<45}{row.ours:>10.2f}{row.peer:>10.2f} ms{row.ratio:>8.2f}  lost {row.lost}  {is_met}"


def as_json(row: Row) -> str:
    fields = {"bench": "fairness", "work": row.work, "ours": round(row.ours, 3), "peer": round(row.peer, 3)}
    fields |= {"peer_name": "without", "ratio": round(row.ratio, 3), "unit": "ms", "lost": row.lost}
    return json.dumps({**fields, "goal": f"<= {GOAL:g} x", "met": row.ratio <= GOAL and not row.lost})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--only", choices=list(bad_clients.KINDS))
    options = parser.parse_args()
    if not options.json:
        print(f"load {os.getloadavg()[0]:.1f}; with the bad client, without, ratio (goal {GOAL:g})")
    lost = 0
    for kind in [options.only] if options.only else list(bad_clients.KINDS):
        if options.turns:
            for which, figures in turns(kind):
                print(json.dumps({"bench": "fairness turns", "work": f"{kind}: {which}", **figures}), flush=True)
            continue
        for row in rows(kind):
            print((as_json if options.json else show)(row), flush=True)
            lost += row.lost
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
