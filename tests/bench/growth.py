"""What data keys cost as regions, replicas and refresh grow: `python -m tests.bench.growth [--json]`.

Messages of 256 bytes from a publisher's gateway to one reader, h regions apart in a row, each of n replicas, through
`bridge`'s own machines in this process: no sockets, TLS, disk or latency. Counted are the bytes of all wires between
members (topic, content, user properties; no MQTT or TLS framing), the CPU time of all machines together, and the shares
that the reader gets, each for one delivered message. A key serves 1, 10 or 64 messages (A9).

`ours`: keys on a topic of their own; `peer`: keys that ride. Of shares `peer` is n^h, what a message would need if it
were split itself. The first rows have 64 messages a key on 16 topics in turn, or all retained. An overlay that would
give a reader more than 1,024 shares of a key is refused, and has no row.

With --json one object a line: bench, work, ours, peer, peer_name, ratio, unit; ratio is ours / peer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from bridge.contract.machine import (
    Acked,
    Committed,
    Count,
    Deliver,
    Effect,
    LinkUp,
    Publication,
    Received,
    Send,
    Subscribed,
    Wire,
)
from bridge.document.overlay import OverlayError
from bridge.document.policy import Refresh, Scope
from bridge.topology import peers_of
from tests.sim.world import NOW, make_world

MESSAGES = 64
PAYLOAD_BYTES = 256
SIZES, HOPS, MESSAGES_A_KEY = (3, 5, 7), (1, 2, 3, 4), (1, 10, 64)
EVERY_S = 0.01
SHARES = "shares"


@dataclass(frozen=True)
class Cost:
    """Of one delivered message."""

    cpu_us: float
    wire_bytes: float
    shares: float


@dataclass(frozen=True)
class Row:
    work: str
    ours: float
    peer: float
    peer_name: str
    unit: str


def size_of(wire: Wire) -> int:
    return len(wire.topic.encode()) + len(wire.payload) + sum(len(name) + len(value) for name, value in wire.properties)


class Line:
    """Regions in a row: `site` publishes at one end, `control` reads at the other."""

    def __init__(self, replicas: int, hops: int, messages_a_key: int, on_topic: bool) -> None:
        """Raises OverlayError for one that would fill a reader."""
        scope = Scope("plant/#", keys_on_topic=on_topic, refresh=Refresh(messages=messages_a_key))
        sizes = dict.fromkeys(range(1, hops + 1), replicas)
        world = make_world(sizes, [*itertools.pairwise(sizes)], {"site": 1, "control": hops}, [scope])
        self._nodes = {name: world.node(name, random.Random(name)) for name in world.overlay.members}
        self._queue: deque[tuple[str, Effect]] = deque()
        self.wire_bytes = self.delivered = self.shares = 0
        for name in self._nodes:
            for peer in sorted(peers_of(world.overlay, name)):
                self._handle(name, LinkUp(peer), NOW)
        self._handle("control", Subscribed("plant/#"), NOW)
        self._run(NOW)
        self.wire_bytes = 0

    def publish(self, sequence: int, now: float, topics: int, retain: bool) -> None:
        topic = f"plant/line/{sequence % topics:04}"
        publication = Publication(topic, bytes(PAYLOAD_BYTES), 1, retain, time_ms=int(now * 1000))
        self._handle("site", Committed(((sequence, max(0, sequence - topics), publication),)), now)
        self._run(now)

    def _handle(self, name: str, event: LinkUp | Subscribed | Committed | Received | Acked, now: float) -> None:
        self._queue.extend((name, effect) for effect in self._nodes[name].handle(event, now))

    def _run(self, now: float) -> None:
        while self._queue:
            name, effect = self._queue.popleft()
            match effect:
                case Send(peer, wire, ticket):
                    self.wire_bytes += size_of(wire)
                    self._handle(peer, Received(name, wire), now)
                    if ticket:
                        self._handle(name, Acked(peer, ticket), now)
                case Deliver():
                    self.delivered += 1
                case Count("shares_received", amount) if name == "control":
                    self.shares += amount


def cost(
    replicas: int, hops: int, messages_a_key: int, on_topic: bool, messages: int, topics: int = 1, retain: bool = False
) -> Cost:
    """Of messages on some topics in turn. Raises OverlayError for an overlay that would fill a reader."""
    line = Line(replicas, hops, messages_a_key, on_topic)
    began_s = time.process_time()
    for sequence in range(1, messages + 1):
        line.publish(sequence, NOW + 1 + sequence * EVERY_S, topics, retain)
    used_s = time.process_time() - began_s
    if line.delivered != messages:
        raise RuntimeError(f"{line.delivered} of {messages} messages were delivered")
    return Cost(used_s / messages * 1e6, line.wire_bytes / messages, line.shares / messages)


def rows(messages: int) -> Iterator[Row]:
    yield from _by_load(messages)
    for replicas, hops in itertools.product(SIZES, HOPS):
        for number in MESSAGES_A_KEY:
            try:
                topic, riding = (cost(replicas, hops, number, way, messages) for way in (True, False))
            except OverlayError:
                break
            what = f"n={replicas} h={hops}, {number} a key"
            yield Row(f"cpu a message, {what}", topic.cpu_us, riding.cpu_us, "riding", "us")
            yield Row(f"sent a message, {what}", topic.wire_bytes, riding.wire_bytes, "riding", "bytes")
            yield Row(f"shares a message, {what}", topic.shares, replicas**hops, "n^h", SHARES)


def _by_load(messages: int) -> Iterator[Row]:
    """Where riding keys ride often: on the first message of each topic, and on whatever is retained."""
    for hops, (topics, retain) in itertools.product((1, 2, 3), ((16, False), (1, True))):
        topic, riding = (cost(3, hops, 64, way, messages, topics, retain) for way in (True, False))
        what = "all retained" if retain else f"{topics} topics"
        yield Row(f"sent a message, n=3 h={hops}, {what}", topic.wire_bytes, riding.wire_bytes, "riding", "bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="delivered in each cell")
    arguments = parser.parse_args()
    for row in rows(arguments.messages):
        ratio = row.ours / row.peer
        if arguments.json:
            fields = {"bench": "growth", "work": row.work, "ours": round(row.ours, 3), "peer": round(row.peer, 3)}
            print(json.dumps({**fields, "peer_name": row.peer_name, "ratio": round(ratio, 3), "unit": row.unit}))
        else:
            print(f"{row.work:<38}{row.ours:>12,.1f}{row.peer:>12,.1f} {row.unit:<7}{ratio:>7.2f} {row.peer_name}")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
