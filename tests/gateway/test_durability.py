"""kill -9 at random moments under load: nothing acknowledged is lost, QoS 2 comes once, retained state is intact.

Real `veilmq broker --data` processes and real sockets; clients live in the test and reconnect. A run is drawn from its
seed, which the test's name shows; moments are real time, so a seed that fails may need several tries. Publishers stop
at a window of what is not acknowledged, so that a slow machine does not make the work of a run larger.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections import Counter
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest
import yaml

from gateway.client.mqtt_client import MqttClient
from gateway.mqtt5.packets import Publish
from tests.forking import Process, run
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ
from tests.ports import free_ports
from tests.waits import PATIENCE_S, until

KILLS = 2
TOPICS = 5
WINDOW = 200
"""Messages of one publisher that the broker has not acknowledged: more than are in flight, so that some wait."""
EXPIRY_S = 3600


class Broker:
    """One data directory and one port; a process at a time."""

    def __init__(self, directory: Path) -> None:
        (self.port,) = free_ports(1)
        self._directory = directory
        listeners = {"default": {"bind": f"127.0.0.1:{self.port}"}}
        limits = {"queue_messages": 100_000, "in_flight": 20}
        content = {"listeners": listeners, "allow_anonymous": True, "limits": limits, "sys_interval": 0}
        (directory / "edge.yaml").write_text(yaml.safe_dump(content))
        self._process: Process | None = None

    async def start(self) -> None:
        log = self._directory / "broker.log"
        self._process = run([*VEILMQ, "-c", "edge.yaml", "--data", "data"], self._directory, ENVIRONMENT, log, log)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                assert self._process.poll() is None, (self._directory / "broker.log").read_text()
                await asyncio.sleep(0.02)

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_S)
            self._process = None

    def client(self, client_id: str) -> MqttClient:
        session = {"clean_start": False, "session_expiry_s": EXPIRY_S}
        return MqttClient("127.0.0.1", self.port, client_id=client_id, **session, random=lambda: 0.0)  # type: ignore[arg-type]


class Publisher:
    """Numbered messages, a third of each QoS 1, QoS 2 and retained; knows what was sent and what acknowledged."""

    def __init__(self, broker: Broker, name: str, rng: random.Random) -> None:
        self.client, self.name, self._rng = broker.client(name), name, rng
        self.sent: dict[bytes, int] = {}
        self.acknowledged: set[bytes] = set()
        self.retained: dict[str, list[bytes]] = {}  # topic -> what was published there, in order
        self._stop = asyncio.Event()

    def publish_one(self) -> None:
        number = len(self.sent)
        payload = f"{self.name}/{number}".encode() + bytes(self._rng.choice((0, 40, 900)))
        qos = self._rng.choice((1, 2))
        retain = self._rng.random() < 1 / 3
        topic = f"load/{self.name}/{self._rng.randrange(TOPICS)}"
        if self.client.publish(topic, payload, qos, retain, on_ack=lambda: self.acknowledged.add(payload)):
            self.sent[payload] = qos
            if retain:
                self.retained.setdefault(topic, []).append(payload)

    async def run(self) -> None:
        while not self._stop.is_set():
            for _ in range(self._rng.randrange(1, 8)):
                if len(self.sent) - len(self.acknowledged) < WINDOW:
                    self.publish_one()
            await asyncio.sleep(self._rng.uniform(0, 0.01))

    def stop(self) -> None:
        self._stop.set()

    @property
    def is_done(self) -> bool:
        return len(self.acknowledged) == len(self.sent)


class Subscriber:
    """Counts what it gets, QoS 2 after its client's own protocol, as an application would."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.client = broker.client(name)
        self.got: Counter[bytes] = Counter()
        self.client.on_publish = self._heard

    def _heard(self, publish: Publish) -> None:
        self.got[publish.payload] += 1

    async def subscribe(self) -> None:
        await self.client.connect()
        granted: list[int] = []
        self.client.subscribe("load/#", 2, retain_handling=2, on_answer=granted.append)
        await until(lambda: granted == [2], what="a granted subscription")

    async def gets(self, sent: AbstractSet[bytes]) -> None:
        def told() -> str:
            missing = [payload[:20] for payload in sent if payload not in self.got]
            return f"{self.client!r} lacks {len(missing)} of {len(sent)}: {missing[:5]}"

        await until(lambda: self.got.keys() >= sent, what=told)


async def retained_state(broker: Broker) -> dict[str, bytes]:
    client = MqttClient("127.0.0.1", broker.port, random=lambda: 0.0)
    found: dict[str, bytes] = {}
    client.on_publish = lambda publish: found.update({publish.topic: publish.payload})
    await client.connect()
    answered = asyncio.Event()
    client.subscribe("load/#", 0, on_answer=lambda _: None)
    client.subscribe("end/#", 0, on_answer=lambda _: answered.set())
    await asyncio.wait_for(answered.wait(), PATIENCE_S)  # retained messages of the first precede this answer
    await client.close()
    return found


async def load_and_kill(seed: int, directory: Path) -> None:
    rng = random.Random(seed)
    broker = Broker(directory)
    await broker.start()
    publishers = [Publisher(broker, f"p{number}", rng) for number in range(2)]
    present, away = Subscriber(broker, "present"), Subscriber(broker, "away")
    everybody = [present.client, *(publisher.client for publisher in publishers)]
    try:
        await away.subscribe()
        await away.client.close()
        await present.subscribe()
        for publisher in publishers:
            await publisher.client.connect()
        tasks = [asyncio.create_task(publisher.run()) for publisher in publishers]
        for _ in range(KILLS):
            for _ in range(rng.randrange(3)):  # clients lose connections too
                await asyncio.sleep(rng.uniform(0, 0.2))
                transport = rng.choice(everybody)._out.transport
                if transport is not None:
                    transport.abort()
            await asyncio.sleep(rng.uniform(0.02, 0.6))
            broker.end()
            await broker.start()
            await until(lambda: all(client.connected for client in everybody), what="the clients' return")
        for publisher in publishers:
            publisher.stop()
        await asyncio.gather(*tasks)
        await until(lambda: all(publisher.is_done for publisher in publishers), what="acknowledgement")
        sent = {payload: qos for publisher in publishers for payload, qos in publisher.sent.items()}
        assert sent
        await present.gets(sent.keys())
        broker.end()
        await broker.start()
        back = Subscriber(broker, "away")
        await back.client.connect()
        assert back.client.session_present
        everybody.append(back.client)
        await back.gets(sent.keys())
        for name, got in (("present", present.got), ("away", back.got)):
            twice = [payload[:20] for payload, times in got.items() if sent[payload] == 2 and times != 1]
            assert not twice, f"{name} got QoS 2 messages more than once: {twice}"
        found = await retained_state(broker)
        wanted = {topic: last[-1] for one in publishers for topic, last in one.retained.items()}
        assert found == wanted
    finally:
        for client in everybody:
            await client.close()
        broker.end()


@pytest.mark.parametrize("seed", range(1))
def test_kill_9_under_load(seed: int, tmp_path: Path) -> None:
    asyncio.run(load_and_kill(seed, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 54))
def test_kill_9_under_load_many_times(seed: int, tmp_path: Path) -> None:
    asyncio.run(load_and_kill(seed, tmp_path))
