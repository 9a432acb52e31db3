"""What a second core brings a receiver: one process beside `--workers N`, by the wall clock.

Packets of `receiving.premade` through the clients of one process, at most `IN_FLIGHT` of a replica unacknowledged, as
from sockets; behind them a receiver as `veilmq ingest run` runs it, from the first packet to the last PUBACK. Sockets,
TLS and replicas are not in it: on two cores they would be what is measured.

    python -m tests.bench.ingest_workers [PUBLICATIONS [WORKERS ...]]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gateway.base import collect_seldom
from gateway.client.mqtt_client import MqttClient
from gateway.mqtt5.copies import Copies
from gateway.mqtt5.packets import Publish
from keys.envelope import KeyName
from spark_ingest.receiver.receiver import OnArrivals, Receiver, ReceiverSettings
from spark_ingest.receiver.workers import WorkingReceiver
from spark_ingest.secrets import Grants
from tests.bench import receiving
from tests.bench.receiving import BURST, IN_FLIGHT, Replica, Steady
from tests.spark_ingest.region import Wire

FED_S = 300.0


class Fed:
    """A `receiver.ReplicaClient` whose replicas have packets ready."""

    def __init__(self, overlay: Steady, wires: Sequence[tuple[Wire, ...]]) -> None:
        self._signed, self.home_region = overlay.signed, overlay.home
        self._held = overlay.held(overlay.names())
        self._replicas = [
            Replica(f"r{place + 1}", [each[place] for each in wires], Copies()) for place in range(receiving.REPLICAS)
        ]
        self._count = len(wires)
        self.took_s = 0.0

    overlay = property(lambda self: self._signed)
    is_accepted = True

    def held_grants(self) -> Grants:
        return self._held

    def want_keys(self, names: Collection[KeyName]) -> None:
        raise AssertionError("all keys are there")

    def secrets(self) -> tuple[()]:
        return ()

    def take_spooled(self, batches: Any) -> None:
        raise AssertionError("no scope has receipts")

    def keep_evidence(self, proof: Any) -> None:
        raise AssertionError("nobody lies here")

    def ask_replica(self, replica: str, topic: str, payload: bytes) -> None:
        raise AssertionError("all content is there")

    def link_states(self) -> tuple[()]:
        return ()

    def clocks(self) -> tuple[float, ...]:
        return (0.0, 0.0, 0.0)

    async def run(self, on_arrivals: OnArrivals, on_keys: Callable[[], None]) -> None:
        for replica in self._replicas:
            replica.client.on_publishes = partial(_arrived, on_arrivals, replica.name, replica.client)
            replica.connect()
        collect_seldom()
        await asyncio.sleep(3.0)  # workers start meanwhile
        began = time.perf_counter()
        for turn in range(len(self._replicas[0].reads)):
            for replica in self._replicas:
                while turn * BURST - replica.acknowledged > IN_FLIGHT - BURST:
                    await asyncio.sleep(0.0005)
                replica.client.data_received(replica.reads[turn])
                await asyncio.sleep(0)
        while min(replica.acknowledged for replica in self._replicas) < self._count:
            await asyncio.sleep(0.0005)
        self.took_s = time.perf_counter() - began
        await asyncio.Event().wait()


def _arrived(on_arrivals: OnArrivals, name: str, client: MqttClient, publishes: Sequence[Publish]) -> None:
    on_arrivals(name, publishes, client)


def measure(overlay: Steady, wires: Sequence[tuple[Wire, ...]], workers: int, home: Path) -> float:
    """Publications a second; raises AssertionError unless every one is a row and every packet acknowledged."""
    fed = Fed(overlay, wires)
    settings = ReceiverSettings(home / "spool", home / "keys.json", cap_bytes=1 << 40, waits=False)
    receiver: Receiver | WorkingReceiver
    receiver = WorkingReceiver(settings, workers, lambda: fed) if workers else Receiver(settings, lambda: fed)
    receiver.start()
    until = time.monotonic() + FED_S
    while not fed.took_s and receiver.alive and time.monotonic() < until:
        time.sleep(0.05)
    assert fed.took_s, (receiver.failure, receiver.trouble, receiver.progress)
    while receiver.progress.rows < len(wires) and receiver.alive and time.monotonic() < until:
        time.sleep(0.05)  # workers tell once a second, and so does the receiver
    assert receiver.progress.rows == len(wires), receiver.progress
    receiver.stop(30)
    return len(wires) / fed.took_s


def main() -> None:
    """Print a line for one process, and one for each number of workers."""
    parser = argparse.ArgumentParser(description="What a second core brings a receiver of the ingest job.")
    parser.add_argument("publications", type=int, nargs="?", default=40_000)
    parser.add_argument("workers", type=int, nargs="*", default=[1, 2], help="numbers of worker processes")
    told = parser.parse_args()
    receiving.NOW = time.time()
    overlay = Steady()
    wires = receiving.premade(told.publications, overlay)
    for workers in (0, *told.workers):
        with tempfile.TemporaryDirectory() as home:
            rate = measure(overlay, wires, workers, Path(home))
        which = f"--workers {workers}" if workers else "one process"
        print(f"{which}: {rate:,.0f} publications a second ({len(wires)} publications alone)")


if __name__ == "__main__":
    main()
