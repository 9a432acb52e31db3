"""The stage on which schedules are played: the product's machines of one overlay, with links, disks and the broker's
sessions between them that do nothing of themselves.

Everything that a machine says and that the model forbids is raised at once. Not here: what happens when, and what of it
has to arrive (`schedules`).
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from bridge.contract.claims import claim_of
from bridge.contract.machine import (
    Acked,
    Blame,
    Count,
    Deliver,
    Effect,
    Event,
    Forget,
    Keep,
    LeaveOnDisk,
    LinkUp,
    Machine,
    NotTaken,
    Publication,
    ReadPage,
    Received,
    Refuse,
    Restored,
    Send,
    Tick,
    Wire,
)
from bridge.document.policy import Refresh, Scope
from bridge.topology import peers_of
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, Mode
from papers.sim.outbox import SimulatedOutbox
from tests.sim.world import NOW, make_world

SITE, READER, JOINER = "site", "control", "joiner"
LIARS = ("r1a", "r2a")
_CONTENT = frozenset({PROPERTY_HEADER, PROPERTY_KEY})
REGION = {1: ("r1a", "r1b", "r1c"), 2: ("r2a", "r2b", "r2c")}


class BrokenPromiseError(AssertionError):
    """The machines and the model disagree."""


@dataclass
class Told:
    """What the model knows of one record."""

    publication: Publication
    due: bool
    """Whether it has to be delivered: acknowledged to its device and not of the kind that may go."""
    arrives: bool = True
    """Whether it may be delivered at all."""


@dataclass
class Session:
    """What a replica's broker keeps for the subscriber until it is acknowledged."""

    kept: OrderedDict[int, Wire] = field(default_factory=OrderedDict)
    unsent: deque[int] = field(default_factory=deque)


class Stage:
    """See the module. `far`: the subscriber is in a region of its own. Raises `BrokenPromiseError`."""

    def __init__(self, mode: Mode, far: bool, on_topic: bool, max_age_s: float | None, seed: int) -> None:
        self.rng = random.Random(seed)
        sizes, edges = ({1: 3, 2: 3}, [(1, 2)]) if far else ({1: 3}, [])
        self.home = 2 if far else 1
        scopes = [Scope("plant/#", mode, refresh=Refresh(messages=5), keys_on_topic=on_topic)]
        self.world = make_world(sizes, edges, {SITE: 1, READER: self.home, JOINER: self.home}, scopes, seed=seed)
        self.world.max_age_s = max_age_s
        self.now = NOW
        self.outbox = SimulatedOutbox(self.world.chain_of, self.world.is_plain)
        self.world.outboxes[SITE] = self.outbox
        self.nodes: dict[str, Machine] = {}
        self.links: dict[tuple[str, str], deque[tuple[Wire, int]]] = {}
        self.answers: dict[tuple[str, str], deque[Acked | NotTaken]] = {}
        self.sessions: dict[str, Session] = {}
        self.tickets = 0
        self.rows: dict[str, dict[bytes, bytes]] = {SITE: {}, READER: {}}
        self.unwritten: dict[bytes, bytes | None] = {}
        self.undelivered: list[Deliver] = []
        self.unacknowledged: list[tuple[str, int]] = []
        self.got: list[Deliver] = []
        self.joined: dict[str, Publication] = {}
        self.all: dict[int, Told] = {}
        self.next = 0
        self.down: set[str] = set()
        self.carried: list[Wire] = []
        self.is_mute = self.is_faulty = self.gave_up = self.is_draining = self.may_be_late = False
        self.lives = 0  # of the publisher
        self.has_dropped = False  # the publisher, what was too old: a value that is retained comes all the same, late
        self.sealed: dict[tuple[str, int], bytes] = {}
        self.ticks: dict[str, float] = {}
        for name in self.world.overlay.members:
            if name != JOINER:
                self.start(name)
        for name in list(self.nodes):
            for peer in self.peers(name):
                self.handle(name, LinkUp(peer))

    # ------------------------------------------------------------------------------------------ mechanics

    def peers(self, name: str) -> list[str]:
        overlay = self.nodes[name].overlay  # type: ignore[attr-defined]
        return sorted(peer for peer in peers_of(overlay, name) if peer in self.nodes)

    def start(self, name: str) -> None:
        """A process begins on its disk, with the overlay that its former life had adopted."""
        self.world.clocks = {SITE: self.now - NOW}
        newest = self.world.overlay
        former = self.nodes.get(name, self.nodes.get(READER))
        self.world.overlay = newest if former is None else former.overlay  # type: ignore[attr-defined]
        self.nodes[name] = self.world.node(name, random.Random(f"{name}{self.now}"))
        self.world.overlay = newest
        if name == SITE:
            self.lives += 1
            self.next = max(self.next, int(self.now * 1000) << 10)
        if name in self.rows:
            self.handle(name, Restored(tuple(self.rows[name].items())))

    def handle(self, name: str, event: Event) -> list[Effect]:
        effects = self.nodes[name].handle(event, self.now)
        for effect in effects:
            self.effect(name, effect)
        return effects

    def effect(self, name: str, effect: Effect) -> None:
        match effect:
            case Send(peer, wire, ticket) if peer in self.nodes:
                self.sent(name, peer, wire, ticket)
            case Forget(sequences) if name == SITE:
                self.outbox.forget_entries(sequences)
            case LeaveOnDisk(sequences):
                self.outbox.leave_on_disk(sequences)
            case ReadPage(start):
                self.handle(name, self.outbox.page(start))
            case Keep(rows) if name == READER:
                self.unwritten.update(rows)
            case Keep(rows) if name == SITE:
                self.write(SITE, rows)
            case Deliver() if name == READER:
                self.undelivered.append(effect)
            case Deliver() if name == JOINER and effect.publication.retain:
                self.joined[effect.publication.topic] = effect.publication
            case Blame(member, True, why) if member not in LIARS and name not in LIARS:
                raise BrokenPromiseError(f"{member} was named: {why}")
            case Count("outbox_expired"):
                self.has_dropped = True
                self.is_faulty |= self.lives > 1  # a former life may have sealed it: not promised (protocol, 2.6)
            case Count("holes" | "incomplete") if name == READER:
                self.gave_up = True
                if self.is_draining and not self.is_faulty:
                    raise BrokenPromiseError("the subscriber waited for what nobody sends")
            case Count("unsealable" | "held_overflow" | "keyless_overflow"):
                raise BrokenPromiseError(f"{name}: {effect.name}")
            case _:
                pass

    def write(self, name: str, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Rows on a party's disk."""
        for key, row in rows:
            self.rows[name].pop(key, None)
            self.rows[name].update({} if row is None else {key: row})

    def sent(self, name: str, peer: str, wire: Wire, ticket: int) -> None:
        if name == SITE:
            self.check_nonce(wire)
        is_told = not _CONTENT.isdisjoint(dict(wire.properties))
        if self.is_mute and name in LIARS and peer != SITE and is_told:
            return
        if peer in (READER, JOINER) and name in REGION[self.home] and is_told:
            self.offer(name, peer, wire)
        elif SITE not in (name, peer) or not self.down & {name, peer}:
            self.links.setdefault((name, peer), deque()).append((wire, ticket))
            if peer == LIARS[0] and PROPERTY_HEADER in dict(wire.properties):
                self.carried.append(wire)

    def check_nonce(self, wire: Wire) -> None:
        told = dict(wire.properties).get(PROPERTY_HEADER)
        if told is None or self.mode_is_plain:
            return
        claim, key_id = claim_of(told), told[28:48]
        if wire.payload and self.sealed.setdefault((key_id, claim.sequence), wire.payload) != wire.payload:
            raise BrokenPromiseError(f"number {claim.sequence} was sealed twice under one key")

    @property
    def mode_is_plain(self) -> bool:
        return self.world.secrets[0].scope.mode is Mode.PLAIN

    def offer(self, replica: str, reader: str, wire: Wire) -> None:
        """Into the broker's session of a subscriber."""
        if reader == JOINER:
            self.links.setdefault((replica, JOINER), deque()).append((wire, 0))
            return
        session = self.sessions.setdefault(replica, Session())
        self.tickets += 1
        session.kept[self.tickets] = wire
        session.unsent.append(self.tickets)

    def arrives(self, source: str, target: str) -> bool:
        """The next wire on a link comes."""
        link = self.links.get((source, target))
        if not link or target not in self.nodes:
            return False
        wire, ticket = link.popleft()
        effects = self.handle(target, Received(source, wire))
        if ticket:
            why = next((effect.reason for effect in effects if isinstance(effect, Refuse)), None)
            self.is_faulty |= why is not None  # it comes again later than predecessors are waited for
            answer = Acked(target, ticket) if why is None else NotTaken(target, ticket, why)
            self.answers.setdefault((source, target), deque()).append(answer)
        return True

    def answered(self, source: str, target: str) -> bool:
        """The next acknowledgement on a link comes."""
        answers = self.answers.get((source, target))
        if not answers:
            return False
        self.handle(source, answers.popleft())
        return True

    def reads(self, replica: str) -> bool:
        """The subscriber gets what its session at a replica has next."""
        session = self.sessions.get(replica)
        if session is None or not session.unsent:
            return False
        number = session.unsent.popleft()
        self.handle(READER, Received(replica, session.kept[number]))
        self.unacknowledged.append((replica, number))
        return True

    def store(self) -> None:
        """The subscriber's disk has what happened; what that took is delivered and acknowledged."""
        known = {delivery.sequence for delivery in self.got}
        for delivery in self.undelivered:
            if delivery.sequence in known:
                raise BrokenPromiseError(f"record {delivery.sequence} was delivered twice")
            known.add(delivery.sequence)
            self.got.append(delivery)
            self.check(delivery)
        self.write(READER, self.unwritten.items())
        for replica, number in self.unacknowledged:
            self.sessions[replica].kept.pop(number, None)
        self.undelivered, self.unwritten, self.unacknowledged = [], {}, []

    def check(self, delivery: Deliver) -> None:
        told = self.all.get(delivery.sequence)
        if told is None or not told.arrives:
            raise BrokenPromiseError(f"record {delivery.sequence} is delivered, which nobody published")
        got, wanted = delivery.publication, told.publication
        if (got.topic, got.payload, got.qos) != (wanted.topic, wanted.payload, wanted.qos):
            raise BrokenPromiseError(f"record {delivery.sequence} was altered")
        may_be_late = self.gave_up or self.may_be_late or (self.has_dropped and (got.retain or self.lives > 1))
        if delivery.late and got.qos and not may_be_late:
            raise BrokenPromiseError(f"record {delivery.sequence} is late, and nobody gave up")
        before = [d.sequence for d in self.got[:-1] if d.publication.topic == got.topic]
        if not delivery.late and before and delivery.sequence < max(before):
            raise BrokenPromiseError(f"record {delivery.sequence} comes after {max(before)}, and is not late")

    def tick(self, until: float) -> None:
        """Time passes; links stand still."""
        for _ in range(2000):
            due = {name: node.next_deadline for name, node in self.nodes.items()}
            found = [(max(at, self.ticks.get(name, 0.0)), name) for name, at in due.items() if at is not None]
            at, name = min(found, default=(until + 1, ""))
            if at > until:
                break
            self.now = max(self.now, at)
            self.ticks[name] = self.now + 0.05
            self.handle(name, Tick())
        self.now = until

    def turn(self, names: Iterable[str] | None = None, apart: str = "") -> bool:
        """All that is on links, of these parties, comes once, with the acknowledgements. What somebody `apart` sends
        stays on its way, and so do acknowledgements and what sessions hold."""
        busy = False
        for source, target in list(self.links):
            if source != apart and (names is None or {source, target} & set(names)):
                busy |= sum(self.arrives(source, target) for _ in range(len(self.links[source, target]))) > 0
        if apart:
            return busy
        for source, target in list(self.answers):
            busy |= sum(self.answered(source, target) for _ in range(len(self.answers[source, target]))) > 0
        for replica in list(self.sessions):
            busy |= sum(self.reads(replica) for _ in range(len(self.sessions[replica].unsent))) > 0
        return busy

    def settle(self, seconds: float) -> None:
        """Fair links for a while."""
        until = self.now + seconds
        while self.now < until:
            for _ in range(20):
                if not self.turn():
                    break
            self.store()
            self.tick(min(until, self.now + max(0.1, seconds / 40)))
        self.store()
