"""Gateways with several lives: a disk that takes time, and replicas that keep for them what is not acknowledged.

What `Kernel` leaves out, since it takes a crash for the end of everything on the links: a replica's session of a
gateway outlives both connection and process (MQTT 5.0 §4.1), and repeats what it has no PUBACK for. The gateway
acknowledges when the rows of what a wire changed are on disk, with what it delivered to persistent sessions, as the
broker does.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from bridge.contract.machine import Deliver, Effect, Event, Keep, LinkUp, Received, Restored, Send, Subscribed, Wire
from bridge.node import GatewayNode
from papers.sim.kernel import Kernel

WRITE_S = (0.001, 0.060)


@dataclass(frozen=True)
class _Arrives:
    """What a replica keeps for us under `number` comes, for the first time or again."""

    replica: str
    number: int


@dataclass(frozen=True)
class _Write:
    """The disk begins with what has changed."""


@dataclass(frozen=True)
class _Written:
    """It is on disk."""


@dataclass(frozen=True)
class _Acknowledged:
    """PUBACKs reached the replicas."""

    wires: tuple[tuple[str, int], ...]


@dataclass
class _Batch:
    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    delivered: list[Deliver] = field(default_factory=list)
    wires: list[tuple[str, int]] = field(default_factory=list)


class Lives(Kernel):
    """`reader` dies and comes back; everybody else is as in `Kernel`. Call `begin` after `start`."""

    def begin(self, reader: str, filters: Sequence[str]) -> None:
        self.reader, self.filters = reader, filters
        self.rows: dict[bytes, bytes] = {}
        self.committed: list[Deliver] = []
        """What a QoS 2 client with a persistent session got."""
        self.replayed: list[Deliver] = []
        """What was delivered although an earlier delivery of it is on disk."""
        self._kept: defaultdict[str, OrderedDict[int, Wire]] = defaultdict(OrderedDict)
        self._number = 0
        self._open, self._writing = _Batch(), None
        for topic_filter in filters:
            self.plan_event(self.now + 1.5, reader, Subscribed(topic_filter))

    def kill(self) -> None:
        """SIGKILL: what is not on disk is gone, and PUBACKs on their way."""
        self._alive.discard(self.reader)
        self._incarnation[self.reader] += 1
        self._ticks.pop(self.reader, None)
        self._open, self._writing = _Batch(), None

    def stop(self) -> None:
        """SIGTERM: what happened is written and acknowledged; nothing is withdrawn."""
        if self._writing is not None:
            self._apply(self.reader, _Written())  # type: ignore[arg-type]
        self._commit(self._open)
        self._acknowledge(self._open.wires)
        self.kill()

    def revive(self) -> None:
        """A new process on the same disk; its replicas repeat what they have no PUBACK for, then go on."""
        reader = self.reader
        node = self.nodes[reader] = self._makers[reader]()
        assert isinstance(node, GatewayNode)
        self._alive.add(reader)
        self._effects(reader, node.handle(Restored(tuple(self.rows.items())), self.now))
        for topic_filter in self.filters:
            self._effects(reader, node.handle(Subscribed(topic_filter), self.now))
        for peer in sorted(self._peers[reader]):
            up_at = self.now + self._rng.random()
            self.plan_event(up_at, reader, LinkUp(peer))
            self.plan_event(up_at, peer, LinkUp(reader))
            for number in self._kept[peer]:
                up_at += self._rng.uniform(0.0, 0.005)
                self._last_arrival[peer, reader] = up_at
                self.plan_event(up_at, reader, _Arrives(peer, number))  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------- mechanics

    def _apply(self, name: str, event: Event) -> None:
        match event:
            case _Arrives(replica, number):  # type: ignore[misc]
                wire = self._kept[replica].get(number)
                if wire is not None:
                    super()._apply(name, Received(replica, wire))
                    self._open.wires.append((replica, number))
                    self._write_soon()
            case _Write():  # type: ignore[misc]
                self._writing, self._open = self._open, _Batch()
                self.plan_event(self.now + self._rng.uniform(*WRITE_S), name, _Written())  # type: ignore[arg-type]
            case _Written():  # type: ignore[misc]
                batch, self._writing = self._writing, None
                assert batch is not None
                self._commit(batch)
                self.plan_event(self.now + self._rng.uniform(*self._latency_s), name, _Acknowledged(tuple(batch.wires)))  # type: ignore[arg-type]
                if self._open.wires or self._open.rows:
                    self._write_soon()
            case _Acknowledged(wires):  # type: ignore[misc]
                self._acknowledge(wires)
            case _:
                super()._apply(name, event)

    def _write_soon(self) -> None:
        if self._writing is None and len(self._open.wires) + len(self._open.rows) > 0:
            self._writing = _Batch()  # until then nothing else begins
            self.plan_event(self.now, self.reader, _Write())  # type: ignore[arg-type]

    def _commit(self, batch: _Batch) -> None:
        self.committed += batch.delivered
        for key, row in batch.rows.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row

    def _acknowledge(self, wires: Collection[tuple[str, int]]) -> None:
        for replica, number in wires:
            self._kept[replica].pop(number, None)

    def _effect(self, name: str, effect: Effect) -> None:
        if name == self.reader and isinstance(effect, Keep):
            self._open.rows.update(effect.rows)
            self._write_soon()
        elif name == self.reader and isinstance(effect, Deliver):
            known = {(d.publisher, d.sequence) for d in self.committed}
            if (effect.publisher, effect.sequence) in known:
                self.replayed.append(effect)
            self._open.delivered.append(effect)
            super()._effect(name, effect)
        elif isinstance(effect, Send) and effect.peer == self.reader and not effect.ticket:
            self._number += 1
            self._kept[name][self._number] = effect.wire
            if self.reader in self._alive:
                self.plan_event(self._arrival(name, self.reader), self.reader, _Arrives(name, self._number))  # type: ignore[arg-type]
        else:
            super()._effect(name, effect)
