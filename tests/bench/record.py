"""Records what a link does to small packets, on real sockets: `python -m tests.bench.record LINK TRANSPORT SECONDS`.

Two network namespaces, a TUN device in each, and between the devices this process, which loses and delays IP packets
as the model of the link says (the kernels that we develop on have no `tc netem`). Everything else is the kernel's: UDP
and TCP with its retransmissions, and the scheduling of a machine that does other things as well. A packet goes each way
ten times a second; its delay, or that it never came, is what `tests/bench/data/LINK-TRANSPORT.txt` holds. Needs root
and iproute2. Reading them: `recorded`.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.recorded import DATA, LOST, UNIT_S, Recording

EVERY_S = 0.1
LATE_S = 20.0  # a packet that is not there then is lost
SETTLE_S = 2.0
ADDRESSES = ("10.78.0.1", "10.78.0.2")
PACKET = struct.Struct("!IQ")  # number, nothing: 12 bytes and TCP/IP's, about an MQTT ping's
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000


@dataclass(frozen=True)
class Model:
    """One direction. Losses `loss` of packets, `bad_loss` in bad times, which last `bad_s` and come every `bad_every_s`
    (means, exponential); delays `delay_s` and an exponential part of `jitter_s`, in bad times of `bad_jitter_s`. In a
    pause of `pause_s`, every `pause_every_s`, everything waits (a handover). Packets keep their order if `in_order`."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    bad_s: float = 0.0
    bad_every_s: float = 0.0
    bad_loss: float = 0.0
    bad_jitter_s: float = 0.0
    pause_s: float = 0.0
    pause_every_s: float = 0.0
    in_order: bool = True


MODELS = {
    "lan": Model(),
    "wlan": Model(0.002, 0.003, 0.01, 0.4, 15.0, 0.5, 0.04),
    "cellular": Model(0.035, 0.015, 0.002, 3.0, 30.0, 0.02, 0.15, 0.8, 90.0),
}


class Direction:
    """What becomes of packets one way."""

    def __init__(self, model: Model, seed: str) -> None:
        self._model, self._rng = model, random.Random(seed)
        self._bad = self._pause = (0.0, 0.0)
        self._last = 0.0

    def arrival(self, now: float) -> float | None:
        """When a packet of now is to be handed over; None: never."""
        model = self._model
        self._bad = self._time(self._bad, model.bad_s, model.bad_every_s, now)
        self._pause = self._time(self._pause, model.pause_s, model.pause_every_s, now)
        bad = self._bad[0] <= now < self._bad[1]
        jitter_s = model.bad_jitter_s if bad else model.jitter_s
        at = now + model.delay_s + (self._rng.expovariate(1 / jitter_s) if jitter_s else 0.0)
        if self._pause[0] <= now < self._pause[1]:
            at += self._pause[1] - now
        if self._rng.random() < (model.bad_loss if bad else model.loss):
            return None
        self._last = at = max(at, self._last if model.in_order else 0.0)
        return at

    def _time(self, current: tuple[float, float], length_s: float, every_s: float, now: float) -> tuple[float, float]:
        """The special time that is, or comes next."""
        while length_s and current[1] <= now:
            begins = max(current[1], now - 1) + self._rng.expovariate(1 / every_s)
            current = begins, begins + self._rng.expovariate(1 / length_s)
        return current


class Namespaces:
    """Two of them, a TUN device in each; sockets and devices stay where they were made."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._names = [f"veilmq-record{os.getpid()}-{place}" for place in range(2)]
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY)
        for name in self._names:
            subprocess.run(["ip", "netns", "add", name], check=True)

    def devices(self) -> list[int]:
        found = []
        for place, name in enumerate(self._names):
            self.enter(place)
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"tun0", IFF_TUN | IFF_NO_PI))
            for words in (("address", "add", f"{ADDRESSES[place]}/24", "dev", "tun0"), ("link", "set", "tun0", "up")):
                subprocess.run(["ip", "-n", name, *words], check=True)
            found.append(device)
        return found

    def enter(self, place: int | None) -> None:
        """`place` None: back to where we began."""
        to = self._home if place is None else os.open(f"/run/netns/{self._names[place]}", os.O_RDONLY)
        if self._libc.setns(to, 0):
            raise OSError(ctypes.get_errno(), "setns")

    def close(self) -> None:
        self.enter(None)
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], check=True)


class Relay:
    """Between the devices."""

    def __init__(self, devices: list[int], model: Model) -> None:
        self.devices = devices
        self._ways = [Direction(model, f"{model} {place}") for place in range(2)]
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._order = 0

    def read(self, device: int, now: float) -> None:
        place = self.devices.index(device)
        packet = os.read(device, 65_536)
        if packet[0] >> 4 != 4:
            return  # IPv6 looks for neighbours
        at = self._ways[place].arrival(now)
        if at is not None:
            self._order += 1
            heapq.heappush(self._waiting, (at, self._order, self.devices[1 - place], packet))

    def pass_on(self, now: float) -> float:
        """What is due; when the next one will be."""
        while self._waiting and self._waiting[0][0] <= now:
            _, _, device, packet = heapq.heappop(self._waiting)
            os.write(device, packet)
        return self._waiting[0][0] if self._waiting else float("inf")


def ends(spaces: Namespaces, transport: str, relay: Relay) -> list[socket.socket]:
    """A connected socket in each namespace."""
    kind = socket.SOCK_STREAM if transport == "tcp" else socket.SOCK_DGRAM
    made = []
    for place in (0, 1):
        spaces.enter(place)
        made.append(socket.socket(socket.AF_INET, kind))
        made[-1].bind((ADDRESSES[place], 5000))
    if transport == "udp":
        for place in (0, 1):
            made[place].connect((ADDRESSES[1 - place], 5000))
        return made
    listener = made[1]
    listener.listen()
    made[0].setblocking(False)
    made[0].connect_ex((ADDRESSES[1], 5000))
    while not select.select([listener], [], [], 0)[0]:
        for device in select.select(relay.devices, [], [], 0.001)[0]:
            relay.read(device, time.monotonic())
        relay.pass_on(time.monotonic())
    made[1] = listener.accept()[0]
    for each in made:
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def record(link: str, transport: str, seconds: float) -> list[list[int]]:
    """Delays of both directions, in `UNIT_S`, `LOST` for what never came."""
    spaces = Namespaces()
    try:
        relay = Relay(spaces.devices(), MODELS[link])
        sockets = ends(spaces, transport, relay)
        descriptors = [each.fileno() for each in sockets]
        count = int(seconds / EVERY_S)
        begins = time.monotonic() + SETTLE_S
        delays = [[LOST] * count for _ in sockets]
        held, sent = [b"", b""], [0, 0]
        while (now := time.monotonic()) < begins + seconds + LATE_S and any(LOST in way for way in delays):
            next_sent = float("inf")
            for place, each in enumerate(sockets):
                at = begins + (sent[place] + place / 2) * EVERY_S
                if now >= at and sent[place] < count:
                    each.send(PACKET.pack(sent[place], 0))
                    sent[place] += 1
                next_sent = min(next_sent, at if sent[place] < count else float("inf"))
            wait_s = min(next_sent, relay.pass_on(now), now + 0.5) - time.monotonic()
            for ready in select.select([*relay.devices, *descriptors], [], [], max(wait_s, 0.0))[0]:
                now = time.monotonic()
                if ready in relay.devices:
                    relay.read(ready, now)
                    relay.pass_on(now)
                    continue
                place = descriptors.index(ready)
                held[place] += sockets[place].recv(65_536)
                whole = len(held[place]) // PACKET.size * PACKET.size
                for number, _ in PACKET.iter_unpack(held[place][:whole]):
                    due = begins + (number + (1 - place) / 2) * EVERY_S
                    delays[1 - place][number] = max(round((now - due) / UNIT_S), 0)
                held[place] = held[place][whole:]
        return delays
    finally:
        spaces.close()


def main() -> None:
    link, transport, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    there, back = record(link, transport, seconds)
    command = f"python -m tests.bench.record {link} {transport} {seconds:g}"
    provenance = (
        f"made by: {command}", f"model: {MODELS[link]}",
        f"kernel {os.uname().release}, {time.strftime('%Y-%m-%d', time.gmtime())}",
    )  # fmt: skip
    DATA.mkdir(exist_ok=True)
    path = DATA / f"{link}-{transport}.txt"
    path.write_text(Recording(f"{link}, {transport}", EVERY_S, tuple(there), tuple(back)).text(provenance))
    print(Path(path).name, *(f"{sum(each == LOST for each in way)} of {len(way)} lost" for way in (there, back)))


if __name__ == "__main__":
    main()
