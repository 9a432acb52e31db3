"""Thousands of traced entities in one process: the machine of the library (`bridge.tracking.entity`) over bare sockets.

MQTT 3.1.1, QoS 0 for signs of life and 1 for the rest, one epoll. An entity whose connection ends connects again
after a pause as paho's: a second, doubled up to `PAUSE_MAX_S`, and spread. What is due is kept in a heap. All entities
have one key pair and topics that were advertised before (`entities`), so that making them takes seconds. Not here: what
is measured (`herd`).
"""

from __future__ import annotations

import heapq
import os
import random
import select
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from bridge.contract.machine import Tick
from bridge.traces.kinds import DESCRIPTOR, TraceKind
from bridge.traces.tracer import Say
from bridge.tracking.entity import BrokerConnected, Listen, Stage, Told, TracedEntity, Wishes
from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Connect, Publish, Subscribe, Subscription
from gateway.trust.domains import LocalIdentity, TrustDomain
from keys.delegation import Advertisement
from keys.identity import Certificate, Identity, Role
from tests.bench.load import V3

READ_BYTES = 1 << 16
PAUSE_S, PAUSE_MAX_S = 1.0, 30.0
LOOK_EVERY_S = 0.25  # between two looks at whether a run may end
CONNECTS_AT_ONCE = 32  # then whoever is there is read: else thousands that come back make each other late
LIFE_S = 24 * 3600
CONNACK, PUBLISH, PUBACK, SUBACK = 0x20, 0x30, 0x40, 0x90


def entities(
    domain: TrustDomain, node: LocalIdentity, number: int, wishes: Wishes, asking: Collection[str] = ()
) -> list[TracedEntity]:
    """Certified, with a trace topic each; all with one key pair. Those that are `asking` have no topic yet: the node
    knows only topics that it was asked for, and trackers find no others."""
    now_ms = int(time.time() * 1000)
    key, made = Identity.generate(os.urandom(32)), []
    for place in range(number):
        name = f"pump-{place}"
        certificate = Certificate.issue(
            domain.ca, name=name, role=Role.ENTITY, public_key=key.public_bytes, agreement_key=key.agreement_bytes,
            domain=domain.name, region=0, not_after_ms=now_ms + LIFE_S * 1000,
        )  # fmt: skip
        advertisement = Advertisement(
            os.urandom(16), DESCRIPTOR + name, certificate, wishes.discoverers, now_ms, certificate.not_after_ms,
            node.name,
        ).signed(node.identity)  # fmt: skip
        kept = None if name in asking else advertisement
        nodes = {node.name: node.card.public_key}
        made.append(TracedEntity(key, certificate, nodes, domain.ca.public_bytes, os.urandom, wishes, kept))
        made[-1].set_state(TraceKind.READY)
    return made


@dataclass(slots=True)
class Member:
    """One entity and its connection. `signs`: of life that it gave, answers and unasked ones; `said_at`: the last of
    them, by `perf_counter`."""

    place: int
    name: str
    entity: TracedEntity
    sock: socket.socket | None = None
    held: bytes = b""
    tries: int = 0
    pings: int = 0
    signs: int = 0
    said_at: float = 0.0
    packet_id: int = 0
    due: float | None = None
    is_traced: bool = False

    def next_id(self) -> int:
        self.packet_id = self.packet_id % 65_535 + 1
        return self.packet_id


class Fleet:
    """`within_s`: over which the first connections are spread. `answered` is called with a member that gave a sign of
    life. `is_asked`: entities only answer, as those do that know nothing else."""

    def __init__(
        self, port: int, members: list[TracedEntity], within_s: float = 0.0,
        answered: Callable[[Member], None] = lambda member: None, is_asked: bool = False,
    ) -> None:  # fmt: skip
        self._port, self._answered, self._is_asked = port, answered, is_asked
        self._rng = random.Random(len(members))
        self._poll = select.epoll()
        self._open: dict[int, Member] = {}
        self._frozen: list[Member] = []
        now = time.time()
        self.members = [Member(place, f"pump-{place}", entity) for place, entity in enumerate(members)]
        self._closed = [(now + within_s * place / len(members), place) for place in range(len(members))]
        self._look_at = now
        self._dues: list[tuple[float, int]] = []
        self.traced = self.pings = self.signs = self.lost = 0

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Serve all for so long, or until something holds, which is asked every quarter of a second."""
        ends = time.time() + seconds
        while (now := time.time()) < ends:
            self._connect(now)
            if now >= self._look_at:
                if until():
                    return
                self._look_at = now + LOOK_EVERY_S
            self._tick(now)
            for descriptor, ready in self._poll.poll(0.01):
                member = self._open[descriptor]
                try:
                    self._write(member) if ready & select.EPOLLOUT else self._read(member)
                except OSError:
                    self._end(member)

    def _tick(self, now: float) -> None:
        """Whose time has come."""
        while self._dues and self._dues[0][0] <= now:
            at, place = heapq.heappop(self._dues)
            member = self.members[place]
            if member.due != at:
                continue
            member.due = None
            if member.sock is None or member.sock.fileno() not in self._open:
                continue
            try:
                if self._perform(member, member.entity.handle(Tick(), now)):
                    self._signed(member)
            except OSError:
                self._end(member)

    def _signed(self, member: Member) -> None:
        member.signs += 1
        self.signs += 1
        member.said_at = time.perf_counter()
        self._answered(member)

    def freeze(self, number: int) -> None:
        """So many of those that are connected say nothing any more, on open connections, nor count as traced."""
        for descriptor in list(self._open)[:number]:
            self._poll.unregister(descriptor)
            member = self._open.pop(descriptor)
            self._frozen.append(member)
            self.traced -= member.is_traced
            member.is_traced = False

    def close(self) -> None:
        for member in [*self._open.values(), *self._frozen]:
            assert member.sock is not None
            member.sock.close()
        self._poll.close()

    def _connect(self, now: float) -> None:
        for _ in range(CONNECTS_AT_ONCE):
            if not self._closed or self._closed[0][0] > now:
                return
            member = self.members[heapq.heappop(self._closed)[1]]
            member.sock = socket.socket()
            member.sock.setblocking(False)
            member.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            member.sock.connect_ex(("127.0.0.1", self._port))
            self._open[member.sock.fileno()] = member
            self._poll.register(member.sock, select.EPOLLOUT)

    def _write(self, member: Member) -> None:
        """The connection stands, or was refused."""
        assert member.sock is not None
        self._poll.modify(member.sock, select.EPOLLIN)
        member.sock.sendall(encode(Connect(member.name, V3), V3))

    def _again(self, member: Member) -> None:
        pause_s = min(PAUSE_S * (1 << min(member.tries, 10)), PAUSE_MAX_S) * self._rng.uniform(0.5, 1.5)
        member.tries += 1
        member.sock, member.held = None, b""
        heapq.heappush(self._closed, (time.time() + pause_s, member.place))

    def _end(self, member: Member) -> None:
        assert member.sock is not None
        self.lost += 1
        self._poll.unregister(member.sock)
        del self._open[member.sock.fileno()]
        member.sock.close()
        self.traced -= member.is_traced
        member.is_traced, member.due = False, None
        self._again(member)

    def _read(self, member: Member) -> None:
        assert member.sock is not None
        data = member.sock.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("closed by the broker")
        data = member.held + data if member.held else data
        at = 0
        while len(data) >= at + 2:
            size, head = data[at + 1], 2
            if size & 0x80:
                if len(data) < at + 3:
                    break
                size, head = (size & 0x7F) | data[at + 2] << 7, 3  # nothing that we get is longer than 16 kB
            if len(data) < at + head + size:
                break
            self._packet(member, data[at], data[at + head : at + head + size])
            at += head + size
        member.held = data[at:]

    def _packet(self, member: Member, kind: int, body: bytes) -> None:
        assert member.sock is not None
        now = time.time()
        if kind & 0xF0 == CONNACK:
            if body[1]:
                raise ConnectionRefusedError
            member.tries = 0
            self._perform(member, member.entity.handle(BrokerConnected(), now))
        elif kind & 0xF0 == PUBLISH:
            length = body[0] << 8 | body[1]
            topic, rest = body[2 : 2 + length].decode(), body[2 + length :]
            if kind & 6:
                member.sock.send(b"\x40\2" + rest[:2])
                self._perform(member, member.entity.handle(Told(topic, rest[2:]), now))
                return
            is_ping = member.entity.stage is Stage.TRACED  # else it is the answer to a knock
            member.pings += is_ping
            self.pings += is_ping
            answers = member.entity.handle(Told(topic, rest), now)
            if self._is_asked:
                member.entity._alive_at = None
            self._perform(member, answers)
            if is_ping:
                self._signed(member)

    def _perform(self, member: Member, effects: list) -> bool:  # type: ignore[type-arg]
        """Listens go out before what is said after them: the broker answers on them. Whether a sign of life went."""
        assert member.sock is not None
        out, is_sign = [], False
        for effect in effects:
            match effect:
                case Say(topic, payload, qos):
                    is_sign = is_sign or not qos
                    out.append(encode(Publish(topic, payload, qos, packet_id=member.next_id() if qos else 0), V3))
                case Listen(topic):
                    out.append(encode(Subscribe(member.next_id(), (Subscription(topic, 1),)), V3))
        if out:
            member.sock.sendall(b"".join(out))
        if not member.is_traced and member.entity.stage is Stage.TRACED:
            member.is_traced = True
            self.traced += 1
        due = member.entity.next_deadline
        if due is not None and due != member.due:
            member.due = due
            heapq.heappush(self._dues, (due, member.place))
        return is_sign
