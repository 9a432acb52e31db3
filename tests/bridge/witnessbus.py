"""One entity, its witnesses and its trackers: each witness a broker of its own, some of which lie, all are heard."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from bridge.contract.machine import Count, Tick
from bridge.document import constrained
from bridge.traces.events import AskThere, Relayed
from bridge.traces.kinds import (
    CREATION_TOPIC,
    DISCOVERY_TOPIC,
    OWN,
    REGISTRATION_TOPIC,
    RELAYED,
    Interest,
    TraceKind,
    body_of,
    gauge_topic,
    interest_of,
    key_topic,
    own_fields,
    trace_topic,
)
from bridge.traces.presets import LAN
from bridge.traces.tracer import ClientGone, Interested, Registered, Registering, Say, Spoke, Tracer
from bridge.tracking.discovery import Asked, DiscoveryNode
from bridge.tracking.entity import BrokerConnected, KeepEntity, Leave, Listen, Told, Wishes
from bridge.tracking.tracker import Follow, Observed, Tracker
from bridge.tracking.witnessed import WitnessedEntity
from keys.delegation import Advertisement, Seat, Token, Trace
from keys.frames import Kind, opening
from keys.identity import Identity
from keys.ownword import OwnWord
from keys.sealedbox import seal_box
from tests.bridge.tracebus import NOW, identity
from tests.keys.test_delegation import AUTHORITY, certified

ENTITY = "pump"


@dataclass
class WitnessBus:
    """`n` witnesses, each a discovery node, too. Links keep order; each message takes `delay_s`. `steady`: the bad ones
    say that it failed while it lives, and that all is well afterwards; else whatever comes to mind."""

    n: int = 3
    bad: tuple[int, ...] = ()
    seed: int = 1
    steady: bool = False
    wishes: Wishes = field(default_factory=lambda: Wishes(("desk*",)))
    delay_s: tuple[float, float] = (0.001, 0.02)
    now: float = NOW
    observed: dict[str, list[tuple[float, Observed]]] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    told: list[tuple[str, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        keys = {f"node-{i}": identity(f"node {i}") for i in range(self.n)}
        public = {name: key.public_bytes for name, key in keys.items()}
        self._public, authority = public, AUTHORITY.public_bytes
        self.tracers = [Tracer(LAN, public, authority, self.rng.randbytes) for _ in range(self.n)]
        self.nodes = [DiscoveryNode(name, key, public, authority, self.rng.randbytes) for name, key in keys.items()]
        self.dead: set[int] = set()  # witnesses that are gone
        self.cut: set[int] = set()  # witnesses whose connection to the entity is
        self.relays: set[int] = set(range(self.n))  # that pass on what other witnesses ask
        self.heard_at: list[set[str]] = [set() for _ in range(self.n)]  # topics that the entity listens to, by witness
        self.alive = True
        self.kept: Advertisement | None = None
        self.trackers: dict[str, Tracker] = {}
        self.filters: dict[str, set[str]] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._last: dict[object, float] = {}
        self.liars = {i: Liar(self, i) for i in self.bad}
        self.be_born()

    # ----------------------------------------------------------------------------------------------- parties

    def be_born(self) -> None:
        """The entity starts, and connects to all its witnesses."""
        key = identity(ENTITY)
        self.alive = True
        self.entity = WitnessedEntity(
            key, certified(key, ENTITY), self._public, AUTHORITY.public_bytes, self.rng.randbytes, self.wishes,
            self.kept, witnesses=self.n,
        )  # fmt: skip
        for witness in range(self.n):
            if witness not in self.dead:
                self.entity_does(self.entity.handle(BrokerConnected(), witness, self.now))

    def die(self, *, told: bool = False) -> None:
        """`told`: the honest brokers see that its connections end."""
        self.alive = False
        for witness, tracer in enumerate(self.tracers):
            if told and witness not in self.bad:
                self._broker(witness, tracer.handle(ClientGone(ENTITY, clean=False), self.now))

    def tracker(self, name: str = "desk", interest: Interest | None = None) -> Tracker:
        key = identity(name)
        made = self.trackers[name] = Tracker(
            key, certified(key, name), self._public, AUTHORITY.public_bytes, self.rng.randbytes
        )
        self.filters[name], self.observed[name] = set(), []
        self._tracker_does(name, made.handle(BrokerConnected(), self.now))
        wish = Follow(ENTITY) if interest is None else Follow(ENTITY, interest)
        self._tracker_does(name, made.handle(wish, self.now))
        return made

    def kinds(self, tracker: str = "desk") -> list[TraceKind]:
        return [seen.kind for _, seen in self.observed[tracker]]

    # ------------------------------------------------------------------------------------------------- time

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            deadlines: list[tuple[float | None, Callable[[], None]]] = [
                (tracer.next_deadline, lambda i=i: self._tick(i))  # type: ignore[misc]
                for i, tracer in enumerate(self.tracers) if i not in self.dead
            ]  # fmt: skip
            deadlines += [(liar.next_lie, liar.lie) for liar in self.liars.values()]
            if self.alive:
                deadlines.append((self.entity.next_deadline, lambda: self.entity_does(self.entity.tick(self.now))))
            deadlines += [
                (each.next_deadline, lambda n=name: self._tracker_does(n, self.trackers[n].handle(Tick(), self.now)))  # type: ignore[misc]
                for name, each in self.trackers.items()
            ]
            at, act = min(((at, act) for at, act in deadlines if at is not None), key=lambda pair: pair[0])
            if self._queue and self._queue[0][0] <= at:
                at, act = self._queue[0][0], self._queue[0][2]
            if at > until:
                break
            if self._queue and self._queue[0][2] is act:
                heapq.heappop(self._queue)
            self.now = max(self.now, at)
            act()
        self.now = until

    def _tick(self, witness: int) -> None:
        self._broker(witness, self.tracers[witness].handle(Tick(), self.now))

    def _later(self, link: object, act: Callable[[], None]) -> None:
        at = self._last[link] = max(self.now + self.rng.uniform(*self.delay_s), self._last.get(link, 0.0))
        self._order += 1
        heapq.heappush(self._queue, (at, self._order, act))

    # ------------------------------------------------------------------------------------------------ effects

    def entity_does(self, effects: Iterable[tuple[int, object]]) -> None:
        for witness, effect in effects:
            if isinstance(effect, KeepEntity):
                self.kept = effect.advertisement
            elif isinstance(effect, Listen):
                self.heard_at[witness].add(effect.topic)
            elif isinstance(effect, Leave):
                self.heard_at[witness].discard(effect.topic)
            elif isinstance(effect, Say) and witness not in self.cut:
                self._later(("up", witness), lambda w=witness, e=effect: self._from(w, ENTITY, e))  # type: ignore[misc]

    def _tracker_does(self, name: str, effects: Iterable[object]) -> None:
        for effect in effects:
            match effect:
                case Listen(topic):
                    self.filters[name].add(topic)
                case Leave(topic):
                    self.filters[name].discard(topic)
                case Observed():
                    self.observed[name].append((self.now, effect))
                case Say():
                    for witness in range(self.n):
                        self._later((name, witness), lambda w=witness, e=effect: self._from(w, name, e))  # type: ignore[misc]
                case Count(figure, amount, _):
                    self.counted[figure] = self.counted.get(figure, 0) + amount

    def _from(self, witness: int, client: str, say: Say) -> None:
        """A client's publication, at one broker."""
        if witness in self.dead or (client == ENTITY and not self.alive):
            return
        node, tracer = self.nodes[witness], self.tracers[witness]
        parsed = constrained.parse(say.topic)
        assert parsed is not None
        if say.topic in (CREATION_TOPIC, DISCOVERY_TOPIC):
            self._broker(witness, node.handle(Asked(client, say.payload), self.now))
        elif say.topic == REGISTRATION_TOPIC:
            effects = tracer.handle(Registering(client, say.payload), self.now)
            self._broker(witness, effects)
            for effect in effects:
                if isinstance(effect, Registered):
                    node.handle(effect, self.now)
        elif parsed.suffixes[2:] == (RELAYED,):  # the witness that asked listens here
            session = bytes.fromhex(parsed.suffixes[1])
            for asking in set(range(self.n)) - {witness}:
                self._broker(asking, self.tracers[asking].handle(Relayed(session, say.payload), self.now))
        elif parsed.suffixes[1:2] == ("Interest",):
            uuid = bytes.fromhex(parsed.suffixes[0].replace("-", ""))
            self._broker(witness, tracer.handle(Interested(client, uuid, say.payload), self.now))
        else:
            self._broker(
                witness, tracer.handle(Spoke(client, bytes.fromhex(parsed.suffixes[1]), say.payload), self.now)
            )

    def _broker(self, witness: int, effects: Iterable[object]) -> None:
        for effect in effects:
            if isinstance(effect, Say):
                parsed = constrained.parse(effect.topic)
                assert parsed is not None
                if parsed.constrainer == ENTITY:
                    self._later(("down", witness), lambda w=witness, e=effect: self._to_entity(w, e))  # type: ignore[misc]
                elif witness not in self.bad or parsed.suffixes[-1] == "Answers":
                    self.publish(witness, effect.topic, effect.payload)
            elif isinstance(effect, AskThere):
                for other in self.relays - {witness} - self.dead:
                    if effect.topic in self.heard_at[other]:
                        say = Say(effect.topic, effect.payload, 0)
                        self._later(("down", other), lambda w=other, e=say: self._to_entity(w, e))  # type: ignore[misc]
            elif isinstance(effect, Count):
                self.counted[effect.name] = self.counted.get(effect.name, 0) + effect.amount

    def _to_entity(self, witness: int, say: Say) -> None:
        if self.alive and witness not in self.dead | self.cut:
            self.entity_does(self.entity.handle(Told(say.topic, say.payload), witness, self.now))

    def publish(self, witness: int, topic: str, payload: bytes) -> None:
        """A broker's word, to every tracker that listens."""
        self.told.append((topic, payload))
        for name, listening in self.filters.items():
            if topic in listening:
                self._later((witness, name), lambda n=name: self._hears(n, topic, payload))  # type: ignore[misc]

    def _hears(self, name: str, topic: str, payload: bytes) -> None:
        self._tracker_does(name, self.trackers[name].handle(Told(topic, payload), self.now))


class Liar:
    """A witness that uses all that it was given, and all that it ever heard, as it likes. It keeps tokens that ended,
    too; of the others it knows what they publish."""

    def __init__(self, bus: WitnessBus, witness: int) -> None:
        self.bus, self.witness = bus, witness
        self.rng = random.Random(f"liar {bus.seed} {witness}")
        self.next_lie = NOW + 1
        self.number = 1 << 20
        self.own: dict[bytes, tuple[Token, Identity]] = {}
        self.kinds = [kind for kind in TraceKind if kind is not TraceKind.GAUGE_INTEREST]

    def lie(self) -> None:
        self.next_lie += 0.25
        for traced in self.bus.tracers[self.witness]._traced.values():
            right = traced.voice.right
            if right is not None:
                token, secret = right
                self.own[token.public_key] = token, Identity.from_private_bytes(secret)
        if not self.own or self.bus.kept is None:
            return
        for _ in range(2):
            lies = [self._word, self._word, self._replay, self._stolen, self._wrong_key, self._its_own]
            topic, payload = self.rng.choice(lies)()
            self.bus.publish(self.witness, topic, payload)

    def _word(self) -> tuple[str, bytes]:
        """Whatever comes to mind, under any token that was ever ours."""
        token, holder = self.rng.choice(list(self.own.values()))
        kind = self.rng.choice([*self.kinds, TraceKind.FAILED, TraceKind.ALLS_WELL])
        if self.bus.steady:
            kind = TraceKind.FAILED if self.bus.alive else TraceKind.ALLS_WELL
        self.number += 1
        said = body_of({"latency_ms": self.rng.randrange(10_000), "word": "AAAA"})
        trace = Trace(token, kind, self.number, int(self.bus.now * 1000), said)
        return trace_topic(token.topic, interest_of(kind)), trace.signed(holder).encode()

    def _its_own(self) -> tuple[str, bytes]:
        """Something that the entity is made to say of itself, or that it said as something else."""
        token, holder = self.rng.choice(list(self.own.values()))
        kind = self.rng.choice(sorted(OWN))
        now_ms = int(self.bus.now * 1000)
        self.number += 1
        forged = own_fields(OwnWord(token.since_ms, self.number, now_ms, kind, b'{"state":"NONSENSE"}').signed(holder))
        heard = [
            again[1]
            for each in self.bus.tracers[self.witness]._traced.values()
            for again in each.voice.present_states.values()
        ]
        said = body_of(self.rng.choice([forged, *heard]))
        trace = Trace(token, kind, self.number, now_ms, said)
        return trace_topic(token.topic, interest_of(kind)), trace.signed(holder).encode()

    def _replay(self) -> tuple[str, bytes]:
        return self.rng.choice(self.bus.told[-2_000:] or [self._word()])

    def _stolen(self) -> tuple[str, bytes]:
        """A token of another witness with our key, or ours with another number on it."""
        token, holder = self.rng.choice(list(self.own.values()))
        other = (self.witness + 1) % self.bus.n
        heard = [Trace.decode(p) for t, p in self.bus.told[-100:] if "/PublishOnly/" in t]
        theirs = [each.token for each in heard if each.token.seat is not None and each.token.seat.witness == other]
        forged = replace(token, seat=Seat(other, self.bus.n, token.since_ms))
        token = self.rng.choice([forged, *theirs[:1]])
        self.number += 1
        trace = Trace(token, TraceKind.FAILED, self.number, int(self.bus.now * 1000), b"{}").signed(holder)
        return trace_topic(token.topic, Interest.CHANGES), trace.encode()

    def _wrong_key(self) -> tuple[str, bytes]:
        """A trace key that opens nothing; or a question, so that the others are kept busy."""
        assert self.bus.kept is not None
        topic = self.bus.kept.topic
        if self.rng.random() < 0.5:
            token, holder = self.rng.choice(list(self.own.values()))
            self.number += 1
            asked = Trace(token, TraceKind.GAUGE_INTEREST, self.number, int(self.bus.now * 1000), b"{}")
            return gauge_topic(topic), asked.signed(holder).encode()
        head = opening(Kind.TRACE_KEY) + topic
        name = self.rng.choice(list(self.bus.trackers) or ["desk"])
        tracker = identity(name).agreement_bytes
        box = seal_box(tracker, self.rng.randbytes(32), head, self.rng.randbytes(32))
        return key_topic(name, topic), head + box
