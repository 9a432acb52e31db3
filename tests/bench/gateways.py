"""Many gateways with little each: `gateways` processes, `rate` messages a second from one device of each, one reader.

Each message goes into a batch of its own, so nothing is shared: not the signature, not the disk, not the packets to
the replicas. One region of three; all processes run on this machine. Counted are processor time, with and without what
the same processes use while nobody publishes, and the time under way. Used by `tests.bench.forwarding`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from select import POLLIN, poll
from typing import Any

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Publish
from tests.bench import across
from tests.bench.load import READ_BYTES, V3, in_process, open_client, subscribe
from tests.bench.peers import Running
from tests.gateway.overlay_processes import OverlayProcesses

GATEWAYS, RATE_PER_S = 200, 5.0
TOGETHER = 8  # that start at once: a start costs a second of a core
SETTLE_S, IDLE_S = 10.0, 5.0
LAST_S = 15.0  # after the last message was sent, for those under way: what comes behind that is late
GIVEN_UP_S = 180.0  # behind that it is lost
SILENT_S = 30.0  # so is what does not come in a silence of that length, which idle processes would be counted for
REGION = "r1-"


@dataclass(frozen=True)
class Crowd:
    """What a run saw, a message: microseconds of processor time of all processes; the same without what they use when
    idle; of all replicas, and of the reader's gateway. `late`: messages that came more than `LAST_S` after the last was
    sent; `lost`: that did not come."""

    cpu_us: float
    above_idle_us: float
    replicas_us: float
    reader_us: float
    p50_us: float
    p99_us: float
    late: int
    lost: int


def paced(
    ports: list[int], out: int, topic: str, payload_bytes: int, rate: float, seconds: float
) -> tuple[list[float], int]:
    """Seconds under way of what came, each device with its messages spread evenly, all devices out of step; how many
    of them were late."""
    reader = open_client(out, "reader")
    subscribe(reader, 1, topic)
    devices = [open_client(port, f"device-{at}") for at, port in enumerate(ports)]
    polled = poll()
    for each in (reader, *devices):
        polled.register(each, POLLIN)
    sockets = {each.fileno(): each for each in devices}
    length = len(encode(Publish(topic, bytes(payload_bytes), 1, packet_id=1), V3))
    total = int(len(ports) * rate * seconds)
    took: list[float] = []
    held, sent, in_time = b"", 0, 0
    start = now = time.perf_counter()
    came_at = start + seconds
    while len(took) < total and now < min(start + seconds + GIVEN_UP_S, came_at + SILENT_S):
        while sent < total and now >= start + sent / (rate * len(ports)):
            payload = across.STAMP.pack(now) + bytes(payload_bytes - across.STAMP.size)
            packet = Publish(topic, payload, 1, packet_id=sent // len(ports) % 65_535 + 1)
            devices[sent % len(ports)].sendall(encode(packet, V3))
            sent += 1
        due_s = start + sent / (rate * len(ports)) - now if sent < total else 0.2
        for descriptor, _ in polled.poll(max(0.0, due_s) * 1000):
            if descriptor in sockets:
                sockets[descriptor].recv(READ_BYTES)
                continue
            held += reader.recv(READ_BYTES)
            now = time.perf_counter()
            came_at = max(came_at, now)
            while len(held) >= length:
                packet_bytes, held = held[:length], held[length:]
                took.append(now - across.STAMP.unpack_from(packet_bytes, length - payload_bytes)[0])
                at = length - payload_bytes - 2
                reader.sendall(b"\x40\2" + packet_bytes[at : at + 2])
        now = time.perf_counter()
        if now < start + seconds + LAST_S:
            in_time = len(took)
    for each in (reader, *devices):
        each.close()
    return sorted(took), len(took) - in_time


def measured(
    gateways: int,
    rate: float,
    topic: str,
    payload_bytes: int,
    seconds: float,
    scopes: list[dict[str, Any]],
    prepare: Callable[[Path], object],
) -> Crowd:
    """One run with fresh processes. `scopes`: of the overlay. `prepare` edits the configuration of a gateway."""
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as name:
        processes = OverlayProcesses(Path(name))
        sites = [f"site{number}" for number in range(gateways)]
        processes.make({REGION: 3}, [], dict.fromkeys((*sites, "control"), REGION))
        processes.describe(lambda description: description.update(scopes=scopes))
        processes.hand_out(*processes.ports)
        for site in (*sites, "control"):
            prepare(Path(name) / f"{site}.yaml")
        members = list(processes.ports)
        members = sorted(members, key=lambda member: member in sites)  # replicas and the reader first
        try:
            for at in range(0, len(members), TOGETHER):
                processes.start(*members[at : at + TOGETHER])
            with open_client(processes.ports["control"], "holder") as holder:
                subscribe(holder, 0, topic.replace("/load", "/held"))
                across.wait_through(processes.ports[sites[-1]], processes.ports["control"], f"{topic}/probe")
                time.sleep(SETTLE_S)
                return _loaded(processes, sites, topic, payload_bytes, rate, seconds)
        finally:
            processes.stop()


def _loaded(
    processes: OverlayProcesses, sites: list[str], topic: str, payload_bytes: int, rate: float, seconds: float
) -> Crowd:
    running = {name: Running(processes.ports[name], process.pid) for name, process in processes.running.items()}

    def used() -> dict[str, float]:
        return {name: each.cpu_s() for name, each in running.items()}

    before = used()
    time.sleep(IDLE_S)
    idle_per_s = (sum(used().values()) - sum(before.values())) / IDLE_S
    ports = [processes.ports[site] for site in sites]
    arguments: tuple[Any, ...] = (ports, processes.ports["control"], topic, payload_bytes, rate, seconds)
    before, began = used(), time.perf_counter()
    took: list[float]
    took, late = in_process(paced, *arguments, limit_s=seconds + GIVEN_UP_S + 30.0)
    after, lasted_s = used(), time.perf_counter() - began
    spent = {name: (after[name] - before[name]) / len(took) * 1e6 for name in running}
    replicas = sum(us for name, us in spent.items() if name.startswith(REGION))
    return Crowd(
        sum(spent.values()),
        sum(spent.values()) - idle_per_s * lasted_s / len(took) * 1e6,
        replicas,
        spent["control"],
        statistics.median(took) * 1e6,
        took[int(len(took) * 0.99)] * 1e6,
        late,
        int(len(ports) * rate * seconds) - len(took),
    )
