"""Outages of each kind, twice in a row, under publishers of real libraries: each gets on, and loses nothing.

The libraries run in programs of their own (`publisher.py`, `publisher.cjs`) with their defaults: paho 1.6 and 2 cannot
be in one environment. A tap between them and the broker tells what each has sent: `docs/reference/waits.md` names what
a library itself repeats, reorders or does not tell its program.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from bridge.contract import Publication
from gateway.data import StoreError
from gateway.mqtt5.packets import Packet, PubAck, PubComp, PubRec, Version
from gateway.mqtt5.types import ReasonCode
from tests.bench.soak_clients import Receiver
from tests.conftest import MQTTJS, ROOT, tool
from tests.gateway.harness import Wire, on_loop, serving
from tests.gateway.overlay_processes import KeyService, OverlayProcesses
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.interop.tapping import Sent, Tap
from tests.waits import until

HERE = Path(__file__).parent
ENDS_S = 10.0
"""So long after the last outage everything is acknowledged and delivered."""
LIBRARIES = ("paho1", "paho2", "mqttjs", "aiomqtt")
FOLDERS = {"paho1": "paho1", "paho2": "aiomqtt", "aiomqtt": "aiomqtt"}  # aiomqtt brings paho 2
SESSIONS = tuple("-".join(each) for each in itertools.product("45", "12", "01"))
"""MQTT version, QoS, clean session."""
FEW = ("4-2-0", "5-1-0", "4-1-1")


@pytest.fixture(autouse=True)
def _libraries_are_there() -> None:
    if missing := [name for name in FOLDERS.values() if not (ROOT / ".tools" / name).is_dir()]:
        pytest.skip(f"needs {', '.join(sorted(set(missing)))}; run `make tools` as root")


def program(library: str, *arguments: object) -> list[str]:
    said = [str(one) for one in arguments]
    if library == "mqttjs":
        return [tool("node") or "node", str(HERE / "publisher.cjs"), str(MQTTJS), *said]
    folder = ROOT / ".tools" / FOLDERS[library]
    return [sys.executable, str(HERE / "publisher.py"), str(folder), library, *said]


class Outage(Protocol):
    """A method that lets an outage begin and end."""

    __name__: str

    def __call__(self) -> Awaitable[None]: ...


class Programs:
    """The programs of all libraries, each with these sessions, behind a tap."""

    def __init__(self, tap: Tap, prefix: str, size: int, pace_ms: int, sessions: Sequence[str]) -> None:
        self.tap, self.prefix, self._said = tap, prefix, (size, pace_ms, *sessions)
        self.clients = [f"{library}-{session}" for library in LIBRARIES for session in sessions]
        self._running: list[asyncio.subprocess.Process] = []

    def topic_of(self, client: str) -> str:
        return f"{self.prefix}/{client.replace('-', '/', 1)}"

    def came(self, reader: Reader, client: str) -> int:
        """Returns how many publications of a client the reader has."""
        return len(reader.books.get(self.topic_of(client), ()))

    def sent(self, client: str) -> Sent:
        return self.tap.clients[client]

    async def start(self) -> None:
        for library in LIBRARIES:
            arguments = program(library, self.tap.port, self.prefix, *self._said)
            # aiomqtt prints a traceback for each connection that breaks
            pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
            self._running.append(await asyncio.create_subprocess_exec(*arguments, stdin=pipe, stdout=pipe, stderr=none))

    async def end(self) -> dict[str, int]:
        """Returns the count of each client, when all of them have an acknowledgement for each."""
        counts: dict[str, int] = {}
        said = await asyncio.gather(*(process.communicate(b"") for process in self._running))
        for library, (output, _) in zip(LIBRARIES, said, strict=True):
            counts |= {f"{library}-{session}": int(count) for session, count in json.loads(output).items()}
        return counts

    async def each(self, figure: Callable[[Sent], int], more: int = 1) -> None:
        """Waits until the figure of each client has grown."""
        before = {client: figure(self.sent(client)) for client in self.clients}
        await until(
            lambda: all(figure(self.sent(client)) >= was + more for client, was in before.items()),
            what=lambda: str({c: figure(self.sent(c)) - was for c, was in before.items()}),
        )

    def kill(self) -> None:
        for process in self._running:
            if process.returncode is None:
                process.kill()


class Reader(Receiver):
    """A receiver whose acknowledgements are held back while it `is_holding`."""

    def __init__(self, port: int, prefix: str) -> None:
        super().__init__(port, "reader", Version.V5, (f"{prefix}/#",))
        self.is_holding = False
        self._held: list[Packet] = []

    def begin(self, has_session: bool) -> None:
        self._held.clear()
        super().begin(has_session)

    def send(self, *packets: Packet) -> None:
        for packet in packets:
            if self.is_holding and isinstance(packet, PubAck | PubRec | PubComp):
                self._held.append(packet)
            else:
                super().send(packet)

    def resume(self) -> None:
        self.is_holding = False
        held, self._held = self._held, []
        self.send(*held)


class Judgement:
    """What a library did by itself, counted, and what the broker did wrong, in lines. `kills`: the broker was killed:
    its outbox may have a publication twice of which PUBREC was not sent."""

    def __init__(self, kills: bool) -> None:
        self.kills = kills
        self.libraries, self.faults = Counter[str](), list[str]()

    def judge(self, client: str, sent: Sent, published: int, came: list[int]) -> None:
        library, _, qos, clean = client.split("-")
        first = list(dict.fromkeys(came))
        unsaid = sent.refused - sent.taken.keys()
        if lost := set(range(published)) - set(first) - unsaid:
            self.faults.append(f"{client}: lost {sorted(lost)[:10]} of {published}")
        if unsaid:
            self.libraries[f"{library}: does not tell its program of a refusal"] += len(unsaid)
        highest = -1
        for number in [number for number in first if number not in sent.refused]:
            if number < highest and sent.goes_before(highest, number):
                self.libraries[f"{library}: sent a later one first"] += 1
            elif number < highest:
                self.faults.append(f"{client}: {number} behind {highest}")
            highest = max(highest, number)
        if qos == "2" and clean == "0":
            for number, times in Counter(came).items():
                repeated = len({connection for connection, _, _ in sent.publishes[number]}) > 1
                if times > 1 and (why := sent.is_anew(number)):
                    self.libraries[f"{library}: {why}"] += 1
                elif times > 1 and self.kills and repeated:
                    self.libraries["a kill between two commits"] += 1
                elif times > 1:
                    self.faults.append(f"{client}: {number} came {times} times")


async def outages(programs: Programs, reader: Reader, outage: Outage) -> None:
    """Two outages in a row; then all is acknowledged and delivered within `ENDS_S`."""
    judgement = Judgement(outage.__name__ == "killed")
    running = asyncio.create_task(reader.run())
    try:
        await until(lambda: reader.subscribed)
        await programs.start()
        for _ in range(2):
            before = {client: programs.came(reader, client) for client in programs.clients}
            await until(lambda: all(programs.came(reader, one) >= was + 5 for one, was in before.items()))  # noqa: B023
            assert not running.done(), running.exception()
            await outage()
        async with asyncio.timeout(ENDS_S):
            counts = await programs.end()
            for client, published in counts.items():
                sent, topic = programs.sent(client), programs.topic_of(client)
                expected = set(range(published)) - (sent.refused - sent.taken.keys())
                await until(lambda: expected <= set(reader.books.get(topic, ())))  # noqa: B023
    except TimeoutError:
        judgement.faults.append(f"not finished {ENDS_S:g} s after the outage")
        counts = {}
    finally:
        programs.kill()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    for client in programs.clients:
        sent = programs.sent(client)
        published = counts.get(client, max(sent.publishes, default=-1) + 1)
        judgement.judge(client, sent, published, reader.books.get(programs.topic_of(client), []))
    print(f"{sum(counts.values())} publications; {dict(judgement.libraries)}")
    assert not judgement.faults, judgement.faults
    assert sum(counts.values()) > 5 * len(programs.clients)


# ------------------------------------------------------------------------------------------- one broker


class Outbox(FakeOverlay):
    """An overlay that takes all, or refuses all while it `is_full`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False

    def publish_run(self, client_id: str, run: object, done: object) -> int:
        return 0

    def publish(self, client_id: str, publication: Publication, done: Callable[[int], None]) -> bool:
        done(ReasonCode.QUOTA_EXCEEDED if self.is_full else ReasonCode.SUCCESS)
        return True


class FailingBroker:
    """A broker in this process with an outbox of its own, and outages of it."""

    def __init__(self, folder: Path, tap: Tap, kind: str) -> None:
        self.overlay, self.tap, self.reader = Outbox(), tap, Reader(0, "ward")
        self._config: dict[str, Any] = {"data": str(folder / "data")}
        if kind == "receiver":
            self._config = {"limits": {"queue_messages": 20, "in_flight": 4, "hold_s": 1_000}}
        self.broker: Any = None
        self._serving = AsyncExitStack()
        self.programs: Any = None

    async def start(self) -> None:
        self.broker = await self._serving.enter_async_context(serving(self._config, overlay=self.overlay))
        self.tap.target = self.reader.port = self.broker.port("default")

    async def stop(self) -> None:
        await self._serving.aclose()

    async def outbox(self) -> None:
        """The outbox is full until each client has met that twice."""
        self.overlay.is_full = True
        await self.programs.each(lambda sent: sent.disturbances, 2)
        self.overlay.is_full = False

    async def disk(self) -> None:
        """The disk takes nothing until each client has met that twice."""
        database = self.broker.exchange.store._database
        commit = database.commit

        def refuse(changes: object) -> None:
            raise StoreError("no space left", ReasonCode.QUOTA_EXCEEDED)

        database.commit = refuse
        await self.programs.each(lambda sent: sent.disturbances, 2)
        database.commit = commit

    async def receiver(self) -> None:
        """The receiver does not read, and all connections break meanwhile."""
        self.reader.is_holding = True
        await until(lambda: self.broker.exchange.holding.waiting >= len(self.programs.clients))
        self.tap.cut()
        await self.programs.each(lambda sent: sent.connections)
        self.reader.resume()

    async def takeover(self) -> None:
        """Another connection says that it is this client, and the client takes its session back."""
        again = asyncio.create_task(self.programs.each(lambda sent: sent.connections))
        for client in self.programs.clients:
            version = Version.V5 if client.split("-")[1] == "5" else Version.V311
            stays = {"session_expiry_s": 3_600} if version == Version.V5 else {}
            await Wire.connect(self.broker, client, version, clean_start=False, properties=stays)
        await again

    async def restart(self) -> None:
        """The broker stops and starts again."""
        await self.stop()
        await self.start()


async def outages_of_a_site(folder: Path, kind: str, sessions: Sequence[str]) -> None:
    async with Tap().listening() as tap:
        site = FailingBroker(folder, tap, kind)
        site.programs = Programs(tap, "ward", 0, 200, sessions)
        await site.start()
        try:
            await outages(site.programs, site.reader, getattr(site, kind))
        finally:
            await site.stop()


@pytest.mark.tools
@on_loop
async def test_clients_get_on_after_a_restart_that_comes_twice(tmp_path: Path) -> None:
    await outages_of_a_site(tmp_path, "restart", FEW)


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("kind", ["outbox", "disk", "receiver", "takeover", "restart"])
@on_loop
async def test_every_client_gets_on_after_every_outage_of_a_broker(tmp_path: Path, kind: str) -> None:
    await outages_of_a_site(tmp_path, kind, SESSIONS)


# ------------------------------------------------------------------------------------------- an overlay

SERVICE = KeyService(epochs={"length_s": 40, "ahead_s": 10, "grace_s": 20, "skew_s": 0, "history_epochs": 0})
"""With a grace longer than links take to come up again: a reader opens nothing of an epoch that ended before."""
REPLICAS = ("a1", "a2", "a3")
OUTBOX_BYTES, PAYLOAD_BYTES, PACE_MS = 1 << 20, 500, 500
"""An outbox that 32 sessions fill in half a minute: it holds far more than is on its way to replicas at any time."""


class Overlay:
    """An overlay of processes whose site has a small outbox, and outages of it."""

    def __init__(self, folder: Path) -> None:
        self.processes = OverlayProcesses(folder).make(
            {"a": len(REPLICAS)}, [], {"site": "a", "control": "a"}, service=SERVICE
        )
        self.programs: Any = None

    async def start(self, *names: str) -> None:
        await asyncio.to_thread(self.processes.start, *names)

    async def quorum(self) -> None:
        """All replicas are killed, until the outbox is full and each client has met that twice."""
        for name in REPLICAS:
            self.processes.kill(name)
        await self.programs.each(lambda sent: sent.disturbances, 2)
        await self.start(*REPLICAS)

    async def key(self) -> None:
        """All key servers stand still, until the outbox is full and each client has met that twice."""
        for name in SERVICE.names:
            self.processes.running[name].send_signal(signal.SIGSTOP)
        await self.programs.each(lambda sent: sent.disturbances, 2)
        for name in SERVICE.names:
            self.processes.running[name].send_signal(signal.SIGCONT)

    async def killed(self) -> None:
        """The site is killed and starts again."""
        self.processes.kill("site")
        await self.start("site")


@asynccontextmanager
async def started_overlay(folder: Path) -> AsyncIterator[Overlay]:
    made = Overlay(folder)
    path = folder / "site.yaml"
    path.write_text(path.read_text().replace("overlay:\n", f"overlay:\n  outbox_bytes: {OUTBOX_BYTES}\n", 1))
    try:
        for names in (SERVICE.names, REPLICAS, ("site", "control")):
            await made.start(*names)
        yield made
    finally:
        await asyncio.to_thread(made.processes.stop)


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("kind", ["quorum", "key", "killed"])
@on_loop
async def test_every_client_gets_on_after_every_outage_of_an_overlay(tmp_path: Path, kind: str) -> None:
    async with started_overlay(tmp_path) as made, Tap(made.processes.ports["site"]).listening() as tap:
        made.programs = Programs(tap, "plant/ward", PAYLOAD_BYTES, PACE_MS, SESSIONS)
        await outages(made.programs, Reader(made.processes.ports["control"], "plant/ward"), getattr(made, kind))
