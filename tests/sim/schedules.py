"""One publisher, its replicas and one subscriber, step by step: what happens when is a list of (action, number).

The model is `Told`: what a schedule published, and what of it has to arrive. The machines are the product's own, with
their signatures and ciphers (`stage`). At the end the world is drained over fair links (the first replica of a region
may go on lying), and every record is compared with what the model says of it: each that was acknowledged is delivered
once, in order on its topic unless it is marked late; nothing else is delivered; no number is sealed twice under one
key; nobody honest is named; nothing waits for ever; a newcomer gets the newest retained value of each topic, and
nothing that was cleared, whatever a liar brings it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from bridge.contract.batches import Numbered, packed
from bridge.contract.claims import claim_of
from bridge.contract.machine import (
    Committed,
    LinkDown,
    LinkUp,
    Offered,
    Publication,
    Subscribed,
    Tick,
    Unstored,
)
from bridge.document import is_retained_topic
from bridge.membership.adopting import canonical
from bridge.publisher.own_retained import RETELL_EVERY_S
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, Mode
from tests.sim.changing import changed
from tests.sim.stage import JOINER, LIARS, READER, REGION, SITE, BrokenPromiseError, Stage, Told

Step: TypeAlias = tuple[str, int]
TOPICS = ("plant/a", "plant/b", "plant/c")
WAITS_S = (1.0, 11.0, 61.0, 2000.0)
ACTIONS = (
    "pub", "pub", "batch", "retain", "clear", "qos0", "short", "go", "go", "arrive", "answer", "hear", "read", "store",
    "flow", "die", "reborn", "forget", "cut", "dark", "heal", "wait", "lie", "mute", "view",
)  # fmt: skip


class Schedule(Stage):
    """See the module. `fresh`: the subscriber has got nothing yet, and something went before it came. `all_restart`: in
    the end all replicas lose their memory. Raises `BrokenPromiseError`."""

    def __init__(
        self,
        mode: Mode = Mode.COPIES,
        far: bool = False,
        on_topic: bool = False,
        fresh: bool = False,
        max_age_s: float | None = None,
        seed: int = 1,
        all_restart: bool = False,
    ) -> None:
        super().__init__(mode, far, on_topic, max_age_s, seed)
        self.last = 0
        self.values: dict[str, int] = {}
        self.view_at = 0.0
        self.all_restart = all_restart
        self.may_be_late = fresh
        if fresh:
            self.publish(["plant/first"])
            self.settle(1.0)
            self.all[self.next - 1].due = False
        self.handle(READER, Subscribed("plant/#"))
        self.settle(4.0)
        if not fresh:
            self.publish(["plant/first"])
            self.settle(1.0)

    # -------------------------------------------------------------------------------------------- actions

    def act(self, name: str, number: int) -> None:
        self.now += 0.004
        replica, near = REGION[1][number % 3], REGION[self.home]
        match name:
            case "pub":
                self.publish([TOPICS[number % 3]], qos=1 + number % 2)
            case "batch":
                self.publish([TOPICS[at % 2] for at in range(2 + number)])
            case "retain" | "clear":
                self.publish([TOPICS[number % 3]], retain=True, empty=name == "clear")
            case "qos0":
                self.publish([TOPICS[number % 3]], qos=0)
            case "short":
                self.publish([TOPICS[number % 3]], expiry_s=5)
            case "go":
                for _ in range(4):
                    self.arrives(SITE, replica)
            case "arrive":
                self.arrives(SITE, replica)
            case "answer":
                self.answered(SITE, replica)
            case "hear":
                for _ in range(4):
                    self.turn(apart=SITE)
            case "read":
                if self.home == 2:
                    self.turn(near)
                self.reads(near[number % len(near)])
            case "store":
                self.store()
            case "flow":
                self.turn()
                self.turn()
                self.store()
            case "wait":
                if WAITS_S[number % 4] > 100 and not self.is_clean():
                    return
                self.tick(self.now + WAITS_S[number % 4])
            case _:
                getattr(self, f"do_{name}")(number, replica)

    def is_clean(self) -> bool:
        """No second fault beside the first replica's: nothing that a replica may drop for its age."""
        return not any(self.links.values())

    def publish(
        self,
        topics: Sequence[str],
        qos: int = 1,
        retain: bool = False,
        empty: bool = False,
        expiry_s: int | None = None,
    ) -> None:
        payloads = [b"" if empty else b"%d %d" % (self.next, at) for at in range(len(topics))]
        self.commit(
            [
                Publication(topic, payload, qos, retain, expiry_s=expiry_s, time_ms=int(self.now * 1000) + at)
                for at, (topic, payload) in enumerate(zip(topics, payloads, strict=True))
            ]
        )

    def commit(self, publications: Sequence[Publication]) -> None:
        """One commit of the outbox: a batch, or what is retained alone."""
        first = self.next
        self.next += len(publications)
        self.now += 0.001 * len(publications)
        records = [Numbered(first + at, each) for at, each in enumerate(publications)]
        one = publications[0]
        for number, publication in records:
            stays = publication.qos > 0 and publication.expiry_s is None
            self.all[number] = Told(publication, stays)
            if publication.retain:
                before = self.values.get(publication.topic)
                if self.may_be_late and before is not None:  # of what may be old, the last is the one that counts
                    self.all[before].due = False
                self.values[publication.topic] = number
        entry = one if one.retain else packed("plant/#", records)
        if not one.qos:
            self.handle(SITE, Unstored(first, entry))
            return
        previous, self.last = self.last, first
        self.outbox.put_entries([(first, previous, entry)])
        self.handle(SITE, Committed(((first, previous, entry),)))

    def clear(self, name: str, *others: str) -> None:
        """All that is on links of a party, or on those to these others, is gone."""
        for pairs in (self.links, self.answers):
            for pair in [pair for pair in pairs if name in pair and (not others or set(others) & set(pair))]:
                pairs[pair].clear()

    def connect(self, name: str, peers: Iterable[str]) -> None:
        for peer in peers:
            self.handle(peer, LinkUp(name))
            self.handle(name, LinkUp(peer))

    def do_die(self, *_: object) -> None:
        """The publisher is killed and starts again, with all that was on its links gone."""
        self.clear(SITE)
        self.outbox.crashed()
        for name in self.peers(SITE):
            self.handle(name, LinkDown(SITE))
        self.now += 0.5
        self.start(SITE)
        self.down.clear()
        self.connect(SITE, self.peers(SITE))
        self.handle(SITE, Tick())

    def do_reborn(self, number: int, _: str) -> None:
        """The subscriber is killed, or stopped, and starts again on its disk; sessions repeat what it has not
        acknowledged."""
        if number % 2:
            self.store()
        self.undelivered, self.unwritten, self.unacknowledged = [], {}, []
        self.clear(READER)
        self.now += 0.3
        self.start(READER)
        self.handle(READER, Subscribed("plant/#"))
        self.connect(READER, self.peers(READER))
        for session in self.sessions.values():
            session.unsent = deque(session.kept)

    def do_forget(self, *_: object) -> None:
        """The first replica loses its memory and its sessions."""
        self.is_faulty = True
        self.restart(LIARS[0])

    def restart(self, *replicas: str) -> None:
        """Replicas lose their memory and their sessions, all at the same time."""
        self.unacknowledged = [each for each in self.unacknowledged if each[0] not in replicas]
        for replica in replicas:
            self.clear(replica)
            self.sessions.pop(replica, None)
            for peer in self.peers(replica):
                self.handle(peer, LinkDown(replica))
        for replica in replicas:
            self.start(replica)
        for replica in replicas:
            self.connect(replica, self.peers(replica))

    def do_cut(self, _: int, replica: str) -> None:
        """A link of the publisher is down, with all that is on it; of two at most."""
        if len(self.down) < 2:
            self.take_down({replica})

    def do_dark(self, *_: object) -> None:
        """All links of the publisher are down."""
        self.take_down({*REGION[1]} - self.down)

    def take_down(self, replicas: set[str]) -> None:
        self.down |= replicas
        for replica in sorted(replicas):
            self.clear(SITE, replica)
            self.handle(SITE, LinkDown(replica))
            self.handle(replica, LinkDown(SITE))

    def do_heal(self, *_: object) -> None:
        down, self.down = self.down, set()
        self.connect(SITE, sorted(down & set(self.peers(SITE))))

    def do_mute(self, *_: object) -> None:
        self.is_mute, self.is_faulty = not self.is_mute, True

    def do_lie(self, number: int, _: str) -> None:
        """The first replica sends again what it carried: the oldest, the newest, flagged, spoilt, without its key."""
        if not self.carried:
            return
        self.is_faulty = True
        wire = self.carried[self.rng.randrange(len(self.carried))] if number % 2 else self.carried[-1]
        properties = dict(wire.properties)
        match number // 2:
            case 0:
                wire = replace(wire, retain=True)
            case 1:
                wire = replace(wire, payload=wire.payload[:-1] + b"?") if wire.payload else wire
            case 2:
                properties.pop(PROPERTY_KEY, None)
                properties.pop(PROPERTY_SHARES, None)
                wire = replace(wire, properties=tuple(properties.items()))
        if self.home == 1:
            self.offer(LIARS[0], READER, wire)
            return
        properties.pop(PROPERTY_SHARES, None)  # they are for another place
        wire = replace(wire, properties=tuple(properties.items()))
        for peer in REGION[2]:
            self.links.setdefault((LIARS[0], peer), deque()).append((wire, 0))

    def do_view(self, _: int, replica: str) -> None:
        """The owner's next view of the publisher's region: the same replicas at other places."""
        behind = [n for n in self.nodes.values() if n.overlay.policy.version < self.world.overlay.policy.version]
        if self.now < self.view_at or behind:
            return
        members = self.world.overlay.latest[1].members
        overlay = changed(self.world, self.world.overlay, 1, (*members[1:], members[0]), self.now, grace_s=5)
        self.world.overlay, self.view_at = overlay, self.now + 20.0
        self.handle(replica, Offered(canonical(overlay)))

    # ---------------------------------------------------------------------------------------------- the end

    def drain(self) -> None:
        """Fair links, then what the model says of every record."""
        self.do_heal()
        for replica in list(self.sessions):
            while self.reads(replica):
                pass
        self.settle(1.0)
        self.is_draining = True
        if self.world.max_age_s is not None:  # what is older may have been dropped
            oldest_ms = (self.now - self.world.max_age_s + 10) * 1000
            for told in self.all.values():
                told.due &= told.publication.time_ms > oldest_ms
        self.settle(8.0)
        if not self.is_faulty and (late := self.lacking()):
            raise BrokenPromiseError(f"the subscriber has to wait for {len(late)} records, {late[0]} first")
        self.settle(52.0)
        self.settle(3.0)
        if lost := self.lacking():
            raise BrokenPromiseError(f"{len(lost)} acknowledged records were never delivered, {lost[0]} first")
        if self.outbox.rows:
            raise BrokenPromiseError(f"the outbox keeps {sorted(self.outbox.rows)[:3]}")
        if any(session.kept for session in self.sessions.values()):
            raise BrokenPromiseError("a session never empties")
        self.check_newcomer()

    def lacking(self) -> list[int]:
        """Numbers that the subscriber must get and has not."""
        got = {delivery.sequence for delivery in self.got}
        return [number for number, told in self.all.items() if told.due and number not in got]

    def check_newcomer(self) -> None:
        """Somebody joins, to whom a liar brings all that was ever retained; once more when all replicas lost their
        memory, every second time with the publisher."""
        self.joins()
        if not self.all_restart:
            return
        self.tick(self.now + RETELL_EVERY_S)
        replicas = [name for name in self.nodes if name in (*REGION[1], *REGION[2])]
        if self.rng.random() < 0.5:
            self.do_die()
        self.restart(*replicas)
        self.settle(3.0)
        self.joins()

    def joins(self) -> None:
        self.joined.clear()
        self.start(JOINER)
        self.connect(JOINER, self.peers(JOINER))
        self.handle(JOINER, Subscribed("plant/#"))
        self.lie_to_joiner()
        self.settle(2.0)
        self.lie_to_joiner()
        self.settle(13.0)
        for topic, number in self.values.items() if self.world.max_age_s is None else ():
            wanted, got = self.all[number].publication, self.joined.get(topic)
            if (got.payload if got else b"") != wanted.payload:
                raise BrokenPromiseError(f"a newcomer gets {got} of {topic}, the newest is {wanted}")

    def lie_to_joiner(self) -> None:
        """The first replica of its region brings all that was retained and is no more."""
        numbers = {*self.values.values()}
        carried = [wire for wire in self.carried if is_retained_topic(wire.topic)]
        old = [wire for wire in carried if claim_of(dict(wire.properties)[PROPERTY_HEADER]).sequence not in numbers]
        self.rng.shuffle(old)
        for wire in old:
            properties = dict(wire.properties)
            if self.home == 2:
                properties.pop(PROPERTY_SHARES, None)  # they are for another place
            self.offer(REGION[self.home][0], JOINER, replace(wire, properties=tuple(properties.items())))


def run(steps: Iterable[Step], of: Callable[..., Schedule] = Schedule, **options: object) -> str | None:
    """What is broken after a schedule; None if nothing is."""
    try:
        schedule = of(**options)
        for name, number in steps:
            schedule.act(name, number)
        schedule.drain()
    except BrokenPromiseError as broken:
        return str(broken)
    return None


def shrunk(steps: Sequence[Step], of: Callable[..., Schedule] = Schedule, **options: object) -> list[Step]:
    """A shorter schedule that breaks something, too."""
    found, again = list(steps), True
    while again:
        again = False
        for size in (8, 4, 2, 1):
            at = 0
            while at < len(found):
                less = found[:at] + found[at + size :]
                if run(less, of, **options) is not None:
                    found, again = less, True
                else:
                    at += 1
    return found


NEXT_KEY: tuple[Step, ...] = (("pub", 0), ("pub", 1), ("pub", 2), ("pub", 0), ("flow", 0))
_HEARD: tuple[Step, ...] = (("hear", 0), ("go", 0), ("hear", 0))
NEXT_VIEW: tuple[Step, ...] = (("view", 0), *_HEARD, *_HEARD, ("wait", 0), ("wait", 0), ("wait", 0), *_HEARD)
TEMPLATES: dict[str, tuple[Step, ...]] = {
    "a share was acknowledged before the subscriber died": (
        *NEXT_KEY, ("mute", 0), ("pub", 0), ("pub", 1), ("go", 1), ("read", 1), ("store", 0), ("reborn", 0), ("go", 2),
        ("read", 2),
    ),
    "the subscriber dies between two copies": (
        ("pub", 0), ("go", 0), ("go", 1), ("go", 2), ("read", 0), ("read", 1), ("store", 0), ("reborn", 1),
    ),
    "shares came with what was delivered before the subscriber died": (
        ("pub", 0), ("pub", 1), ("pub", 2), ("flow", 0), ("pub", 0), ("pub", 1), ("go", 1), ("go", 2),
        ("wait", 2), ("reborn", 1),
    ),
    "sealed anew when one had acknowledged it": (
        *NEXT_KEY, ("mute", 0), ("cut", 2), ("pub", 0), ("go", 1), ("read", 1), ("store", 0), ("answer", 1), *NEXT_VIEW,
        ("heal", 0), ("flow", 0),
    ),
    "sealed anew when it was on its way": (
        *NEXT_KEY, ("mute", 0), ("cut", 2), ("pub", 0), *NEXT_VIEW, ("heal", 0), ("flow", 0),
    ),
    "expires on its way": (
        ("pub", 0), ("short", 1), ("pub", 1), ("go", 1), ("wait", 1), ("go", 2), ("go", 0), ("flow", 0),
        ("pub", 2),
    ),
    "expires on its way to one": (
        ("short", 1), ("cut", 2), ("wait", 1), ("pub", 1), ("go", 1), ("go", 0), ("heal", 0), ("flow", 0),
    ),
    "expires before it leaves": (
        ("dark", 0), ("pub", 0), ("short", 1), ("pub", 1), ("wait", 1), ("heal", 0), ("flow", 0),
    ),
    "too old when one has it and what follows it": (
        *NEXT_KEY, ("cut", 1), ("cut", 2), ("pub", 0), ("pub", 1), ("pub", 2), ("pub", 0), ("pub", 0), ("go", 0),
        ("go", 0), ("read", 0), ("read", 0), ("store", 0), ("wait", 1), ("wait", 1), ("pub", 1), ("wait", 1),
        ("wait", 1), ("heal", 0), ("flow", 0),
    ),
    "left out by one, comes late": (
        ("pub", 0), ("flow", 0), ("mute", 0), ("pub", 0), ("arrive", 0), ("mute", 0), ("pub", 0), ("arrive", 0),
        ("read", 0), ("store", 0), ("wait", 1), ("go", 1), ("read", 1), ("flow", 0),
    ),
    "retained when the next view begins": (
        ("retain", 1), ("flow", 0), *NEXT_VIEW, ("heal", 0), ("flow", 0), ("wait", 1),
    ),
    "a liar brings a later one first": (
        ("pub", 0), ("pub", 0), ("pub", 1), ("lie", 0), ("read", 0), ("store", 0), ("wait", 1), ("go", 1),
        ("go", 2),
    ),
    "sealed anew after the publisher died": (
        *NEXT_KEY, ("mute", 0), ("batch", 3), ("pub", 1), ("go", 1), ("read", 1), ("die", 0), ("go", 2), ("read", 2),
        ("store", 0),
        ("reborn", 1),
    ),
    "the subscriber dies before it takes what is retained": (
        ("retain", 1), ("go", 0), ("go", 1), ("go", 2), ("read", 0), ("read", 1), ("read", 2), ("store", 0),
        ("reborn", 1),
    ),
    "values of one topic come in any order": (
        ("retain", 1), ("go", 0), ("go", 1), ("retain", 1), ("go", 2), ("read", 2), ("go", 1), ("clear", 1),
        ("flow", 0),
        ("forget", 0), ("retain", 2), ("go", 0),
    ),
}  # fmt: skip


RETAINING = ("retain", "retain", "clear", "flow", "view", "die", "forget", "wait")


def drawn(seed: int, more: Sequence[str] = ()) -> list[Step]:
    """A random schedule: some of the actions, in any order, and `more`; every second time about what chance alone
    hardly finds."""
    rng = random.Random(seed)
    some = [*rng.sample(ACTIONS, rng.randint(5, len(ACTIONS))), "pub", "go", "read", *more]
    steps = [(rng.choice(some), rng.randrange(6)) for _ in range(rng.randint(5, 40))]
    if seed % 2:
        known = [step for step in rng.choice(tuple(TEMPLATES.values())) if rng.random() < 0.95]
        at = rng.randrange(min(len(steps), 12))
        steps[at : at + len(known)] = known
    return steps
