"""A soak of a sealed overlay of real processes on loopback: `make soak`, `SOAK_ARGS="--minutes 3"`.

A gateway of a site, three replicas, four key servers and a gateway of a control room run with key epochs of a minute.
Eight flows (MQTT 3.1.1 and 5, QoS 1 and 2, sealed and plain) go from the site to three receivers with kept sessions.
The first minute, and each tenth after it, restarts all members one after another. Each other minute stops one member
by SIGSTOP for `STOPPED_S` and cuts and reconnects `--clients` idle clients and all flows and receivers.

The figures of each process are printed at the first sample of its life and at the last; a life is from one restart to
the next. Exit status 1: a figure grew beyond `soak_figures.BOUNDS`; a publication of QoS 1 or 2 that was acknowledged
was lost, came out of order, or at QoS 2 twice; a session was lost, a client was refused, or an acknowledgement was
still missing `END_S` after the last disturbance.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gateway.mqtt5.packets import Version
from tests.bench.soak_clients import Flow, Herd, Receiver, faults
from tests.bench.soak_figures import BOUNDS, Sample, grown, sample
from tests.gateway.overlay_processes import KeyService, OverlayProcesses

EPOCH_S = 60.0
STOPPED_S = 8.0
RESTART_EVERY = 10
"""Epochs from one rolling restart to the next."""
END_S = 30.0
STOP_S = 30.0
"""A stopping process that takes longer is killed, which is a fault."""
COMMAND = ("-m", "tests.bench.soak_member", "broker")
SERVICE = KeyService(epochs={"length_s": 60, "ahead_s": 20, "grace_s": 30, "skew_s": 0, "history_epochs": 1})
REPLICAS = ("a1", "a2", "a3")
FILTERS = ("plant/soak/#", "open/soak/#")


class Soak:
    """An overlay, its clients, and samples of each process by life."""

    def __init__(self, overlay: OverlayProcesses, clients: int, rate: float) -> None:
        self.overlay, self.members = overlay, (*SERVICE.names, *REPLICAS, "site", "control")
        site, control = overlay.ports["site"], overlay.ports["control"]
        self.flows = [
            Flow(site, f"{scope}/soak/{version.name.lower()}-{qos}", version, qos, rate)
            for scope in ("plant", "open")
            for version in (Version.V311, Version.V5)
            for qos in (1, 2)
        ]
        self.receivers = [
            Receiver(control, "soak-control-3", Version.V311, FILTERS),
            Receiver(control, "soak-control-5", Version.V5, FILTERS),
            Receiver(site, "soak-site-5", Version.V5, FILTERS),
        ]
        self.herd = Herd(site, clients)
        self.lives: dict[str, list[list[Sample]]] = {name: [[]] for name in self.members}
        self.faults: list[str] = []
        self._delivered = 0

    async def run(self, epochs: int) -> None:
        """Runs `epochs` minutes and waits until all is finished. Raises AssertionError if nothing arrives at first."""
        running = [asyncio.create_task(line.run()) for line in (*self.flows, *self.receivers)]
        try:
            async with asyncio.timeout(60):
                while not all(one.subscribed for one in self.receivers):
                    await asyncio.sleep(0.1)
            await asyncio.gather(*(flow.probe(self.receivers) for flow in self.flows))
            stopped = asyncio.Event()
            pressing = [asyncio.create_task(flow.press(stopped)) for flow in self.flows]
            for epoch in range(epochs):
                await self._epoch(epoch)
            stopped.set()
            await asyncio.gather(*pressing)
            await self._end()
            for task in running:
                assert not task.done(), task.exception()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            self.herd.cut()

    async def _epoch(self, epoch: int) -> None:
        begins = time.monotonic()
        if epoch % RESTART_EVERY == 0:
            for name in self.members:
                await asyncio.to_thread(self._restart, name)
        storm_s = await self.herd.storm()
        if epoch % RESTART_EVERY:
            for line in (*self.flows, *self.receivers):
                line.cut()
            name = self.members[-epoch % len(self.members)]
            self._signal(name, signal.SIGSTOP)
            await asyncio.sleep(STOPPED_S)
            self._signal(name, signal.SIGCONT)
        await asyncio.sleep(max(begins + EPOCH_S - time.monotonic(), 5.0))
        await asyncio.to_thread(self._sample)
        delivered = sum(one.delivered for one in self.receivers)
        print(f"minute {epoch + 1}: {delivered:,} delivered, the storm took {storm_s:.1f} s", flush=True)

    def _restart(self, name: str) -> None:
        process = self.overlay.running.pop(name)
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.faults.append(f"{name}: not stopped {STOP_S:g} s after SIGTERM")
            process.kill()
            process.wait()
        self.overlay.start(name, command=COMMAND)
        self.lives[name].append([])

    def _signal(self, name: str, number: signal.Signals) -> None:
        self.overlay.running[name].send_signal(number)

    def _sample(self) -> None:
        delivered = sum(one.delivered for one in self.receivers)
        new, self._delivered = delivered - self._delivered, delivered
        for name in self.members:
            life = self.lives[name][-1]
            pid = self.overlay.running[name].pid
            life.append(sample(pid, self.overlay.directory, name, life[-1] if life else None, new))

    async def _end(self) -> None:
        begins = time.monotonic()
        while self._open() and time.monotonic() < begins + END_S:
            await asyncio.sleep(0.1)
        print(f"all finished {time.monotonic() - begins:.1f} s after the last publication", flush=True)

    def _open(self) -> bool:
        """Tells whether an acknowledgement or a delivery is missing."""
        return any(
            flow.unfinished or any(flow.acknowledged - set(one.books[flow.topic]) for one in self.receivers)
            for flow in self.flows
        )

    def judged(self) -> Iterator[str]:
        """Yields each fault in one line."""
        yield from self.faults
        for flow in self.flows:
            if flow.unfinished:
                yield f"{flow.topic}: {len(flow.unfinished)} of {flow.sent} not acknowledged"
            if flow.refused:
                yield f"{flow.topic}: {len(flow.refused)} refused"
            for one in self.receivers:
                found = faults(flow.qos, flow.acknowledged, one.books[flow.topic])
                yield from (f"{flow.topic} at {one.client_id}: {fault}" for fault in found)
        for line in (*self.flows, *self.receivers):
            if line.lost_sessions:
                yield f"{line.client_id}: its session was lost {line.lost_sessions} times"
        if self.herd.refused:
            yield f"{self.herd.refused} clients of a storm were refused"
        for name, lives in self.lives.items():
            for life in lives:
                yield from (f"{name}: {fault}" for fault in (grown(*_ends(life)) if len(life) > 1 else ()))


def _ends(life: list[Sample]) -> tuple[Sample, Sample]:
    """Returns the first and the last sample; processor time a message is known from the second on."""
    known = life[min(1, len(life) - 1)].cpu_us_a_message
    return dataclasses.replace(life[0], cpu_us_a_message=known), life[-1]


def show(soak: Soak) -> None:
    """Prints a row a process and figure: start and end of its longest life."""
    print(f"{'process':9}{'figure':18}{'start':>12}{'end':>12}")
    for name, lives in soak.lives.items():
        first, last = _ends(max(lives, key=len))
        for figure in BOUNDS:
            print(f"{name:9}{figure:18}{getattr(first, figure):12,.1f}{getattr(last, figure):12,.1f}")
    sent, refused = sum(one.sent for one in soak.flows), sum(len(one.refused) for one in soak.flows)
    acknowledged = sum(len(one.acknowledged - {0}) for one in soak.flows)
    print(f"{sent:,} sent, {acknowledged:,} acknowledged, {refused:,} refused, ", end="")
    print(f"{sum(one.delivered for one in soak.receivers):,} delivered to {len(soak.receivers)} receivers")


def main() -> int:
    """Runs a soak. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=30)
    parser.add_argument("--clients", type=int, default=2_000, help="idle clients of a storm")
    parser.add_argument("--rate", type=float, default=5.0, help="publications a second of each of eight flows")
    chosen = parser.parse_args()
    if chosen.minutes < 3:
        parser.error("--minutes: at least 3, of which the first warms up")
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory(prefix="veilmq-soak-") as directory:
        overlay = OverlayProcesses(Path(directory)).make(
            {"a": len(REPLICAS)}, [], {"site": "a", "control": "a"}, service=SERVICE
        )
        try:
            soak = Soak(overlay, chosen.clients, chosen.rate)
            overlay.start(*soak.members, command=COMMAND)
            asyncio.run(soak.run(chosen.minutes))
        finally:
            for process in overlay.running.values():
                process.send_signal(signal.SIGCONT)
            overlay.stop()
    show(soak)
    found = list(soak.judged())
    for fault in found:
        print(f"fault: {fault}")
    print("nothing lost, twice or out of order, and nothing grew" if not found else f"{len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
