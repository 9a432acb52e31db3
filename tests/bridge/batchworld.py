"""A publisher, three replicas and a reader around the machines of batches, for schedules of every kind of misfortune.

One member, one scope, n = 3 (f = 1, k = 2), one region, one reader. Each name of `World.act` is one step. Then the
world is drained over fair links (replica 0 may go on lying) and checked: each acknowledged record once; in order on
its topic unless the reader gave something up; no nonce twice; nothing that could be delivered stands; a newcomer gets
the newest retained value of each topic. Signatures and ciphers are left out; numbers, cuts, keys, replicas' and
reader's memory, retained values and series are the product's own."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.publisher import BatchLimits, Cut, Numbers, OutboxRow, ScopeChain
from bridge.publisher.series import FloorMark, Series, Snapshot, Value
from bridge.reader import Chain, Head
from bridge.reader.retained_values import RETAINED_WAIT_S, Candidate, RetainedValues
from bridge.replica import Forwarded, Found, RetainedBatches
from keys.batchheader import (
    FLOOR,
    RELIABLE,
    SNAPSHOT,
    VOID,
    BatchHeader,
    NonceGuard,
    RetainedId,
    latest_per_topic,
    retained_id,
)
from keys.message import Mode
from keys.records import RETAIN, TOMBSTONE, Records, encode

N, K, REPAIR_S, HOUR_S, SCOPE = 3, 2, 10, 3600, 7
MEMBER = bytes(16)


class BrokenPromiseError(AssertionError):
    """A promise that did not hold."""


class Msg(NamedTuple):
    header: BatchHeader | None
    content: Records | None
    share: bytes | None
    flag: bool = False


class Told(NamedTuple):
    """What the world knows of one record."""

    topic: str
    index: int
    retain: bool
    tombstone: bool
    reliable: bool
    due: bool


@dataclass(eq=False)
class Out:
    """One sealing on its way."""

    header: BatchHeader
    content: Records | None
    of: Cut | Snapshot | FloorMark
    acked: set[int] = field(default_factory=set)


class Replica:
    def __init__(self, subscribed: bool) -> None:
        self.keys: set[bytes] = set()
        self.told: set[bytes] = set()
        self.forwarded = Forwarded(HOUR_S + REPAIR_S)
        self.kept: RetainedBatches[Records] = RetainedBatches()
        self.subscribed, self.mute = subscribed, False
        self.out: deque[Msg] = deque()
        self.recent: list[tuple[BatchHeader, Records | None, float]] = []
        self.first_kept: dict[bytes, tuple[BatchHeader, Records | None]] = {}


class World:
    def __init__(self, joins: bool) -> None:
        self.joins, self.now = joins, 1_000_000.0
        self.disk: dict[int, OutboxRow] = {}
        self.stored_next, self.index = 0, 0
        self.values: tuple[Value, ...] = ()
        self.series_open = False
        self.tail = (0, 0)
        self.all: dict[int, Told] = {}
        self.gone: set[int] = set()
        self.nonces: dict[tuple[bytes, int], BatchHeader] = {}
        self.generation = 0
        self.replicas = [Replica(not joins) for _ in range(N)]
        self.links: list[deque[tuple[Out, bool]]] = [deque() for _ in range(N)]
        self.acks: list[deque[Out]] = [deque() for _ in range(N)]
        self.chain: Chain[Records] = Chain()
        self.retained: RetainedValues[tuple[int, str]] = RetainedValues()
        self.shares: dict[bytes, set[int]] = {}
        self.unopened: list[tuple[BatchHeader, Records | None, bool]] = []
        self.got: dict[int, str] = {}
        self.order: dict[str, int] = {}
        self.gave_up = False
        self.accepted_ms = self.ms if not joins else -1
        self.renewed = 0
        self.down = False
        self.begin()

    @property
    def ms(self) -> int:
        return int(self.now * 1000)

    # ------------------------------------------------------------------------------------------ publisher

    def begin(self) -> None:
        """A process begins: nothing but the disk is left."""
        self.generation, self.counter = self.generation + 1, 0
        self.numbers = Numbers(self.stored_next, self.ms)
        self.line = ScopeChain(BatchLimits())
        self.series = Series(SCOPE, self.series_open)
        for value in self.values:
            self.series.published(value)
        self.line.restored(self.tail, max((row.last for row in self.disk.values()), default=0))
        for row in sorted(self.disk.values(), key=lambda row: row.first):
            fresh = OutboxRow(row.first, row.records, row.previous, row.previous_ms, is_dropped=row.is_dropped)
            self.disk[row.first] = fresh
            self.line.append(fresh)
        self.keys: dict[str, tuple[bytes, int, NonceGuard]] = {}
        self.outs: list[Out] = []
        self.lanes: list[deque[Out]] = [deque() for _ in range(N)]
        self.told: list[set[bytes]] = [set() for _ in range(N)]
        for link in (*self.links, *self.acks):
            link.clear()
        if self.series_open:
            self.snapshot()

    def pub(self, topics: list[str], retain: bool = False, tombstone: bool = False, qos: int = 1) -> None:
        """One commit."""
        flags = qos | RETAIN * retain | TOMBSTONE * tombstone
        for first, count in self.numbers.draw(SCOPE, len(topics), self.ms):
            mine, topics = topics[:count], topics[count:]
            self.now += 0.001 * len(mine)
            times = [self.ms + at for at in range(count)]
            self.now += 0.001 * count
            payloads = [b"" if tombstone else str(first + at).encode() for at in range(count)]
            content = encode(bytes([flags]) * count, times, [t.encode() for t in mine], [b""] * count, payloads)
            row = OutboxRow(first, Records.decode(content), *self.line.tail)
            if qos:
                self.disk[first] = row
            self.stored_next = self.numbers.durable
            self.line.append(row)
            if qos:
                self.tail = self.line.tail
            due = all(replica.subscribed for replica in self.replicas)
            for at, topic in enumerate(mine):
                self.index += 1
                self.all[first + at] = Told(topic, self.index, retain, tombstone, qos > 0, due)
                if retain:
                    alone = Records.decode(encode(bytes([flags]), times[at : at + 1], [topic.encode()], [b""], [b"v"]))
                    self.series.published(Value(retained_id(None, topic), first + at, tombstone, alone))
            self.values = self.series.values

    def key(self, of: str, first: int, count: int) -> tuple[bytes, int]:
        known = self.keys.get(of)
        if known is None or not known[2].fits(first, count):
            self.counter += 1
            key_id = self.generation.to_bytes(8) + self.counter.to_bytes(8)
            known = self.keys[of] = key_id, self.counter, NonceGuard(1024)
        return known[0], known[1]

    def header(self, flags: int, key: tuple[bytes, int], first: int, **fields: object) -> BatchHeader:
        plain = {"records": 1, "previous": 0, "previous_ms": 0, "retained": (), "content_bytes": 1} | fields
        header = BatchHeader(
            flags, MEMBER, bytes(8), SCOPE, self.generation, key[1], key[0], first,
            sealed_ms=self.ms, deadline_ms=0, tree=1, mode=Mode.COPIES, digests=(), **plain,
        )  # type: ignore[arg-type]  # fmt: skip
        return BatchHeader.decode(_signed(header))

    def send_out(self, header: BatchHeader, content: Records | None, of: Cut | Snapshot | FloorMark) -> None:
        if content is not None:
            known = self.nonces.setdefault((header.key_id, header.first), header)
            if known is not header:
                raise BrokenPromiseError(f"nonce twice: {header.first}")
        out = Out(header, content, of)
        self.outs.append(out)
        for lane in self.lanes:
            lane.append(out)

    def cut(self, size: int) -> None:
        self.line.limits = BatchLimits(records=size)
        cut = self.line.take(self.now)
        if cut is not None:
            self.seal(cut)

    def seal(self, cut: Cut) -> None:
        records = cut.records()
        chain = {"records": cut.count, "previous": cut.previous, "previous_ms": cut.previous_ms}
        if cut.is_void:
            key = self.key("live", 1 << 62, 1)
            self.send_out(self.header(VOID, key, cut.first, content_bytes=0, **chain), None, cut)
            return
        if len(records) != cut.count:
            raise BrokenPromiseError("a cut has other records than it says")
        key = self.key("live", cut.first, cut.count)
        self.keys["live"][2].use(cut.first, cut.count)
        kept = [
            RetainedId(retained_id(None, records.topic(at)), cut.first + at, bool(records.flags[at] & TOMBSTONE))
            for at in range(cut.count)
            if records.flags[at] & RETAIN
        ]
        flags = RELIABLE if records.is_reliable else 0
        self.send_out(self.header(flags, key, cut.first, retained=latest_per_topic(kept), **chain), records, cut)

    def snapshot(self) -> None:
        """A series begins."""
        self.outs = [out for out in self.outs if isinstance(out.of, Cut)]
        for lane in self.lanes:
            kept = [out for out in lane if isinstance(out.of, Cut)]
            lane.clear()
            lane.extend(kept)
        self.series_open = True
        self.keys.pop("snapshots", None)
        for snapshot in self.series.begin(self.numbers, self.ms):
            value = snapshot.value
            key = self.key("snapshots", snapshot.first, 1)
            self.keys["snapshots"][2].use(snapshot.first, 1)
            listed = (RetainedId(value.id, value.number, value.tombstone),)
            self.send_out(self.header(SNAPSHOT, key, snapshot.first, retained=listed), value.records, snapshot)
        self.stored_next = self.numbers.durable
        self.close_series()

    def close_series(self) -> None:
        if self.series.is_through:
            mark = self.series.close(self.numbers, self.ms)
            self.stored_next = self.numbers.durable
            if mark is not None:
                key = self.key("snapshots", mark.first, 1)
                fields = {"previous": mark.floor, "previous_ms": 1, "retained": mark.listed, "content_bytes": 0}
                self.send_out(self.header(FLOOR, key, mark.first, **fields), None, mark)
            self.series_open = self.series.is_open

    def recut(self) -> None:
        """Another key: what too few have is sealed anew."""
        gone = {id(cut) for cut in self.line.recut()}
        had = any(isinstance(out.of, Snapshot | FloorMark) for out in self.outs)
        self.outs = [out for out in self.outs if id(out.of) not in gone]
        for lane in self.lanes:
            kept = [out for out in lane if id(out.of) not in gone]
            lane.clear()
            lane.extend(kept)
        self.keys.clear()
        if had:
            self.snapshot()

    def send(self, i: int) -> None:
        if self.down:
            return
        if any(self.ms - out.header.sealed_ms > HOUR_S * 500 and not out.header.is_void for out in self.outs):
            for out in [o for o in self.outs if isinstance(o.of, Cut) and o.of.is_settled and not o.header.is_void]:
                self.finish(out)  # the stragglers' bound
            self.recut()
        if self.lanes[i]:
            out = self.lanes[i].popleft()
            self.links[i].append((out, out.header.key_id not in self.told[i]))
            self.told[i].add(out.header.key_id)

    def ack(self, i: int) -> None:
        if not self.acks[i]:
            return
        out = self.acks[i].popleft()
        if out not in self.outs:
            return
        out.acked.add(i)
        if isinstance(out.of, Cut) and len(out.acked) >= N - 1:
            self.line.settled(out.of)
        if len(out.acked) == N:
            self.finish(out)

    def finish(self, out: Out) -> None:
        self.outs.remove(out)
        for lane in self.lanes:
            if out in lane:
                lane.remove(out)
        match out.of:
            case Cut():
                for row in self.line.done(out.of):
                    self.disk.pop(row.first, None)
            case Snapshot():
                self.series.acknowledged(out.of)
                self.close_series()
            case FloorMark():
                self.series.closed()
                self.series_open, self.values = False, self.series.values

    def drop(self) -> None:
        """The oldest row became too old."""
        row = next(iter(self.line.rows.values()), None)
        if row is None:
            return
        parts = [part for cut in self.line.cuts() if cut.is_settled for part in cut.parts if part[0] is row]
        kept = {number for _, a, b in parts for number in range(row.first + a, row.first + b)}
        lost = set(range(row.first, row.last + 1)) - kept
        self.line.drop(row)
        cuts = {id(cut) for cut in self.line.cuts()}
        self.outs = [out for out in self.outs if not isinstance(out.of, Cut) or id(out.of) in cuts]
        for lane in self.lanes:
            left = [out for out in lane if out in self.outs]
            lane.clear()
            lane.extend(left)
        self.gone |= lost
        for number in lost:
            self.series.dropped(retained_id(None, self.all[number].topic), number)
        self.values = self.series.values
        if not row.left:
            self.disk.pop(row.first, None)

    # -------------------------------------------------------------------------------------------- replica

    def rr(self, i: int) -> None:
        if not self.links[i]:
            return
        (out, share), replica = self.links[i].popleft(), self.replicas[i]
        header = out.header
        self.acks[i].append(out)
        if share:
            replica.keys.add(header.key_id)
        if self.ms - header.sealed_ms > (HOUR_S + REPAIR_S) * 1000 and not header.is_void:
            return
        frame = header.associated()
        if replica.forwarded.find(header, frame) is not Found.NEW:
            return
        replica.forwarded.add(header, frame, self.now)
        replica.recent.append((header, out.content, self.now))
        replica.kept.keep(header, out.content or _EMPTY, 100)
        for entry in header.retained if not header.flags & FLOOR else ():
            replica.first_kept.setdefault(entry.id, (header, out.content))
        if replica.subscribed and not header.flags & (SNAPSHOT | FLOOR):
            self.give(replica, header, out.content, False)
        elif replica.subscribed and header.flags & SNAPSHOT:
            self.give(replica, header, out.content, True)

    def give(self, replica: Replica, header: BatchHeader, content: Records | None, flag: bool) -> None:
        share = header.key_id in replica.keys and (flag or header.key_id not in replica.told)
        if share:
            replica.told.add(header.key_id)
        replica.out.append(Msg(header, content, header.key_id if share else None, flag))

    def sub(self, i: int) -> None:
        replica = self.replicas[i]
        if replica.subscribed:
            return
        replica.subscribed = True
        if self.accepted_ms < 0 and sum(r.subscribed for r in self.replicas) >= N - 1:
            self.accepted_ms, self.renewed = self.ms, self.index
            self.now += 0.002
        for header, content in list(replica.kept.of_scope(SCOPE)):
            self.give(replica, header, content, True)
        for key_id in sorted(replica.keys - replica.told):
            replica.told.add(key_id)
            replica.out.append(Msg(None, None, key_id))

    def lie(self, what: int) -> None:
        replica = self.replicas[0]
        if what == 0:
            replica.mute = True
        elif what == 1 and len(replica.out) > 1:
            replica.out.append(replica.out.popleft())
        elif what == 2 and replica.recent:
            header, content, _ = replica.recent[-1]
            replica.out.append(Msg(header, content, header.key_id, True))
        elif what == 3 and replica.recent:
            header, content, _ = replica.recent[len(replica.recent) // 2]
            replica.out.append(Msg(header, content, header.key_id, False))
        elif what == 4 and replica.out and replica.out[0].header is not None:
            replica.out.popleft()
        elif what == 5:
            for header, content in replica.first_kept.values():
                replica.out.append(Msg(header, content, header.key_id, True))

    # --------------------------------------------------------------------------------------------- reader

    def recv(self, i: int) -> None:
        replica = self.replicas[i]
        if replica.mute:
            replica.out.clear()
        if not replica.out:
            return
        message = replica.out.popleft()
        if message.share is not None:
            self.shares.setdefault(message.share, set()).add(i)
        if message.header is not None:
            self.unopened.append((message.header, message.content, message.flag))
        self.advance()

    def opened(self, header: BatchHeader) -> bool:
        return bool(header.flags & (VOID | FLOOR)) or len(self.shares.get(header.key_id, ())) >= K

    @property
    def accepted(self) -> int:
        """Before we subscribed nothing is older than that."""
        return self.ms if self.accepted_ms < 0 else self.accepted_ms

    def advance(self) -> None:
        for entry in [entry for entry in self.unopened if self.opened(entry[0])]:
            self.unopened.remove(entry)
            header, content, flag = entry
            if header.flags & FLOOR:
                self.retained.floor(header)
            elif flag or header.flags & SNAPSHOT:
                self.flagged(header, content)
            elif header.in_chain and self.chain.wants(header):
                self.chain.offer(header, content or _EMPTY, self.now)
        self.deliver_due()
        for ready in self.chain.advance(self.now, REPAIR_S, self.accepted):
            self.gave_up |= ready.gave_up
            for low, high in ready.runs:
                for number in range(low, high + 1):
                    self.live(number, ready.item, number - ready.header.first)
        for held in self.chain._held:
            missing = held.header.previous > self.chain.head.number and held.header.previous_ms > self.accepted
            if not missing:
                raise BrokenPromiseError(f"stands, though nothing is missing: {held.header.first}")

    def flagged(self, header: BatchHeader, content: Records | None) -> None:
        for entry in header.retained if content is not None else ():
            assert content is not None
            told = self.all[entry.number]
            at = entry.number - header.first if not header.flags & SNAPSHOT else 0
            time_ms = content.times[at]
            seen = self.chain.head.has_seen(entry.number)
            if seen or time_ms > self.accepted:
                continue
            order = (time_ms, MEMBER, entry.number)
            self.retained.offer(Candidate(SCOPE, entry.id, told.topic, order, (entry.number, told.topic)), self.now)

    def deliver_due(self) -> None:
        for candidate in self.retained.due(self.now):
            number, topic = candidate.item
            if not self.chain.head.has_seen(number) and self.chain.head.mark(number):
                self.deliver(number, topic, "retained")

    def live(self, number: int, content: Records, at: int) -> None:
        told = self.all[number]
        if content.topic(at) != told.topic or content.payload(at) not in (b"", str(number).encode()):
            raise BrokenPromiseError(f"record {number} is another one")
        order = (content.times[at], MEMBER, number)
        if told.retain and self.retained.is_overtaken(told.topic, order, self.accepted):
            self.got[number] = "older than retained"
            return
        if told.retain:
            self.retained.delivered(told.topic, order)
        self.deliver(number, told.topic, "live")

    def deliver(self, number: int, topic: str, how: str) -> None:
        if number in self.got:
            raise BrokenPromiseError(f"record {number} delivered twice: {self.got[number]}, {how}")
        told = self.all[number]
        early = told.index <= self.renewed or self.accepted_ms < 0
        if told.index < self.order.get(topic, 0) and not self.gave_up and not early and told.reliable:
            raise BrokenPromiseError(f"topic {topic}: record {told.index} after {self.order[topic]}, nobody gave up")
        self.got[number] = how
        self.order[topic] = max(told.index, self.order.get(topic, 0))

    def resub(self) -> None:
        """Away for longer than sessions last; its state is on disk."""
        if self.joins:
            return
        for replica in self.replicas:
            replica.out.clear()
            replica.told.clear()
        self.accepted_ms, self.renewed = self.ms, self.index
        self.now += 0.002

    def rcrash(self) -> None:
        """The reader's head, keys and shares are durable; what waited was not acknowledged or is stored as it came."""
        held = [(h.header, h.item) for h in self.chain._held]
        self.chain = Chain(Head.decode(self.chain.head.encode()))
        self.retained = RetainedValues()
        for replica in self.replicas:
            replica.told.clear()
        for header, item in held:
            self.chain.offer(header, item, self.now)

    def pull(self, i: int) -> None:
        """What is missed, of one replica: an ordinary wire, never with a share."""
        replica = self.replicas[i]
        for low, high in list(self.chain.gaps(self.accepted)):
            for header, content, since in reversed(replica.recent):
                overlaps = header.first <= high and header.last >= low and header.in_chain
                if overlaps and self.now - since <= 30:
                    replica.out.append(Msg(header, content, None))
                    return

    # ------------------------------------------------------------------------------------------- schedule

    def act(self, name: str, a: int) -> None:
        topic = "ab"[a % 2]
        if name == "pub":
            self.pub([topic] * (1 + a // 2), self.joins and a >= 2, self.joins and a == 5)
        elif name == "many":
            self.pub([*"abab"][: a + 1], qos=1)
        elif name == "qos0":
            self.pub([topic], qos=0)
        elif name == "burn":
            self.numbers.draw(SCOPE, 4090 + a, self.ms)
            self.stored_next = self.numbers.durable
        elif name == "cut":
            self.cut(1 + a)
        elif name in ("send", "rr", "ack", "recv", "sub", "pull"):
            getattr(self, name)(a % N)
        elif name == "go":
            for _ in range(6):
                self.send(a % N)
                self.rr(a % N)
            for _ in range(9 if a < 3 else 0):
                self.recv(a % N)
        elif name == "flow":
            self.cut(9)
            for i in range(N):
                for _ in range(9):
                    self.send(i)
                    self.rr(i)
                    self.ack(i)
                    self.recv(i)
        elif name == "lie":
            self.lie(a)
        elif name == "pcrash":
            self.begin()
            self.down = False
        elif name == "rekey":
            self.recut()
        elif name == "refresh":
            self.keys.pop("live", None)
        elif name in ("down", "up"):
            self.down = name == "down"
        elif name == "wait":
            self.now += (1, REPAIR_S + 1, 61, HOUR_S + 20)[a % 4]
            self.advance()
        elif name == "snapshot" or name in ("rcrash", "drop", "newcomer", "resub"):
            getattr(self, name)()
        else:
            raise ValueError(name)

    def newcomer(self) -> None:
        """What one that joins now gets of the retained topics of which nothing waits in the outbox."""
        waiting = {self.all[n].topic for row in self.line.rows.values() for n in range(row.first, row.last + 1)}
        waiting |= {self.all[n].topic for n in self.gone}
        newest: dict[str, int] = {}
        for number, told in self.all.items():
            if told.retain:
                newest[told.topic] = number
        values: RetainedValues[int] = RetainedValues()
        for replica in self.replicas[1:]:
            for header, content in replica.kept.of_scope(SCOPE):
                if header.flags & FLOOR:
                    values.floor(header)
                elif sum(header.key_id in r.keys for r in self.replicas) >= K:
                    for entry in header.retained:
                        at = 0 if header.flags & SNAPSHOT else entry.number - header.first
                        order = content.times[at], MEMBER, entry.number
                        topic = self.all[entry.number].topic
                        values.offer(Candidate(SCOPE, entry.id, topic, order, entry.number), self.now)
        offered = {candidate.topic: candidate.item for candidate in values.due(self.now + RETAINED_WAIT_S)}
        for topic, want in newest.items():
            found = offered.get(topic)
            value = None if found is None or self.all[found].tombstone else found
            if topic not in waiting and value != (None if self.all[want].tombstone else want):
                raise BrokenPromiseError(f"a newcomer gets {value} of topic {topic}, the newest is {want}")

    def drain(self) -> None:
        self.down = False
        for i in range(N):
            self.sub(i)
        for _ in range(40):
            for _ in range(3):
                self.cut(9)
            for i in range(N):
                for _ in range(9):
                    self.send(i)
                    self.rr(i)
                    self.ack(i)
                for _ in range(9):
                    self.recv(i)
            for i in range(1, N):
                self.pull(i)
                self.recv(i)
            self.now += max(1.0, RETAINED_WAIT_S)
            self.advance()
            busy = self.outs or self.line.waits or any(r.out for r in self.replicas if not r.mute) or len(self.chain)
            if not busy and not any(self.lanes):
                break
        lost = [
            n for n, told in self.all.items()
            if n not in self.got and n not in self.gone and told.due and told.reliable and told.index > self.renewed
        ]  # fmt: skip
        if lost:
            raise BrokenPromiseError(f"acknowledged and never delivered: {lost}")
        if self.disk or self.outs:
            raise BrokenPromiseError(f"the outbox never empties: {self.disk}")
        if self.joins:
            self.newcomer()


def _signed(header: BatchHeader) -> bytes:
    """A frame that `decode` reads, with no signature worth the name."""
    digests = () if header.flags & (VOID | FLOOR) else (bytes(32),)
    return b"".join((header.associated(), bytes([len(digests)]), *digests, bytes(64)))


_EMPTY = Records.decode(encode(b"\0", [0], [b"-"], [b""], [b""]))
