"""Schedules in which the owner changes scopes, and what the publisher may publish, while its batches wait.

As `schedules`, with other steps: in memory and on disk wait batches of scopes that are divided, put together again,
taken out and brought back. The model: each record is delivered once, in order in its scope, or it is one that nobody
may have any more, and then it is counted. Only what was sealed before a change is exempt, since readers may have got
it: of QoS 1 it may come twice, of QoS 2 it may be given up, and counted. What is sealed is out of the links before the
owner changes anything: a reader judges by the policy that it has. What reaches a reader after the owner took its scope
away, or waits there for its predecessor meanwhile, the reader cannot open any more, and counts.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bridge.contract.batches import Numbered, numbers_of, packed
from bridge.contract.machine import Committed, Count, Deliver, Effect, Event, Offered, Publication, Received, Tick, Wire
from bridge.document import ScopeSecret
from bridge.membership.adopting import canonical
from bridge.node import GatewayNode
from bridge.publisher.publisher import UNAUTHORISED_S
from keys.envelope import PROPERTY_HEADER, Mode
from keys.epochs import KeyName, scope_key
from keys.grants import Right
from tests.sim import schedules
from tests.sim.schedules import Schedule, Step
from tests.sim.stage import READER, SITE, BrokenPromiseError, Told
from tests.sim.world import ROOT

TOPICS = ("plant/a", "plant/b", "plant/c")
SCOPES = (
    ("plant/#",),
    ("plant/#", "plant/a"),
    TOPICS,
    ("plant/a", "plant/c"),
    ("plant/#", "plant/b"),
)
NUMBERS = {name: at for at, name in enumerate(("plant/#", *TOPICS), 1)}
RIGHTS = ("#", "#", "plant/a", "plant/b")
ACTIONS = (
    "pub", "batch", "batch", "batch", "qos2", "go", "go", "answer", "flow", "die", "cut", "dark", "dark", "heal",
    "wait", "scopes", "scopes", "rights", "reborn",
)  # fmt: skip


class Changing(Schedule):
    """See the module. Raises `BrokenPromiseError`."""

    def __init__(self, far: bool = False, seed: int = 1) -> None:
        self.last_of: dict[str, int] = {}
        self.sent_records: set[int] = set()
        self.dropped = 0
        self.records_in: dict[str, tuple[int, ...]] = {}  # by signed header
        self.arrived: set[int] = set()  # at the reader
        self.turned_away: set[int] = set()  # of these, what it had when it said that it could not open something
        self.may_repeat: set[int] = set()
        self.grants = "#"
        super().__init__(Mode.COPIES, far=far, seed=seed)

    # -------------------------------------------------------------------------------------------- actions

    def act(self, name: str, number: int) -> None:
        if name == "qos2":
            self.now += 0.004
            self.publish([TOPICS[(number + at) % 3] for at in range(1 + number)], qos=2)
        elif name == "batch":
            self.now += 0.004
            self.publish([TOPICS[(number + at) % 3] for at in range(2 + number)])
        elif name == "wait":
            self.tick(self.now + (1.0, 5.0)[number % 2])
        else:
            super().act(name, number)

    def commit(self, publications: Sequence[Publication]) -> None:
        """One commit of the outbox: a batch of each scope. What the publisher may not publish is refused at once."""
        site = self.site
        taken = [each for each in publications if site.may_publish(each.topic, self.now)]
        first, self.next = self.next, self.next + len(taken)
        self.now += 0.001 * len(taken)
        chains: dict[str, list[Numbered]] = {}
        for number, each in enumerate(taken, first):
            chains.setdefault(site.chain_of(each.topic).name, []).append(Numbered(number, each))
            self.all[number] = Told(each, True)
        entries = []
        for chain, records in sorted(chains.items(), key=lambda found: found[1][0].number):
            number = records[0].number
            entries.append((number, self.last_of.get(chain, 0), packed(chain, records)))
            self.last_of[chain] = number
        self.outbox.put_entries(entries)
        if entries:
            self.handle(SITE, Committed(tuple(entries)))

    @property
    def site(self) -> GatewayNode:
        node = self.nodes[SITE]
        assert isinstance(node, GatewayNode)
        return node

    def do_scopes(self, number: int, _: str) -> None:
        """The owner has other scopes."""
        old = self.world.secrets[0].scope
        names = SCOPES[number % len(SCOPES)]
        scopes = tuple(replace(old, filter=name, number=NUMBERS[name]) for name in names)
        for scope in scopes:
            self.world.keys.put_key(KeyName(scope.filter, 0, 0), scope_key(ROOT, scope.filter, 0))
        self.change([ScopeSecret(scope, scope.filter) for scope in scopes], scopes=scopes)

    def do_rights(self, number: int, _: str) -> None:
        """The owner lets the publisher publish on less, or on all."""
        filter_ = RIGHTS[number % len(RIGHTS)]
        grants = tuple(
            replace(grant, filter=filter_) if grant.member == SITE and Right.PUBLISH in grant.rights else grant
            for grant in self.world.overlay.policy.grants
        )
        self.change(self.world.secrets, grants=grants)

    def change(self, secrets: list[ScopeSecret], **policy: object) -> None:
        while self.turn():
            pass
        self.store()
        self.may_be_late = True  # what waited for a scope or a right comes behind what did not
        self.may_repeat.update(self.sent_records)
        overlay = self.world.overlay = self.world.with_policy(**policy)
        self.world.secrets = secrets
        for name in sorted(self.nodes, key=lambda name: name == SITE):  # the publisher last: its readers are ready
            node = self.nodes[name]
            if isinstance(node, GatewayNode):
                node.secrets = list(secrets)
            if name == SITE:
                while self.turn(apart=SITE):
                    pass
            self.handle(name, Offered(canonical(overlay)))
        while self.turn(apart=SITE):
            pass

    # ------------------------------------------------------------------------------------------ what is said

    def sent(self, name: str, peer: str, wire: Wire, ticket: int) -> None:
        entry = self.site.publisher._entries.get(ticket) if name == SITE and ticket > 0 else None
        if entry is not None:
            numbers = self.records_in[header_of(wire)] = tuple(numbers_of(entry.publication, ticket))
            self.sent_records.update(numbers)
        super().sent(name, peer, wire, ticket)

    def handle(self, name: str, event: Event) -> list[Effect]:
        if name == READER and isinstance(event, Received):
            self.arrived.update(self.records_in.get(header_of(event.wire), ()))
        return super().handle(name, event)

    def check(self, delivery: Deliver) -> None:
        """In one scope there is one order; none between what came by one and, after a change, by another."""
        everything = self.got
        self.got = [each for each in everything if each.scope == delivery.scope]
        super().check(delivery)
        self.got = everything

    def effect(self, name: str, effect: Effect) -> None:
        if name == SITE and isinstance(effect, Count) and effect.name == "not_authorised_dropped":
            self.dropped += effect.amount
        elif isinstance(effect, Count) and (effect.name == "unopened" or (name == READER and effect.name == "refused")):
            self.turned_away |= self.arrived
        elif isinstance(effect, Count) and effect.name in ("holes", "incomplete", "outbox_expired"):
            self.gave_up = True
        else:
            super().effect(name, effect)

    def store(self) -> None:
        known = {delivery.sequence for delivery in self.got}
        fresh: list[Deliver] = []
        for delivery in self.undelivered:
            number = delivery.sequence
            again = number in known or number in {each.sequence for each in fresh}
            if not (again and number in self.may_repeat and delivery.publication.qos == 1):
                fresh.append(delivery)
        self.undelivered = fresh
        super().store()

    # ---------------------------------------------------------------------------------------------- the end

    def drain(self) -> None:
        """Fair links, then a day: what is still here may not go, and is counted."""
        self.do_heal()
        for _ in range(3):
            self.settle(20.0)
        takes = {topic for topic in TOPICS if self.site.may_publish(topic, self.now)}
        lacking = self.lacking()
        waits = {n for n in self.may_repeat if n in self.turned_away or self.all[n].publication.qos == 2}
        lost = [n for n in lacking if self.all[n].publication.topic in takes and n not in waits]
        if lost:
            raise BrokenPromiseError(f"{len(lost)} records that may go were never delivered, {lost[0]} first")
        self.now += UNAUTHORISED_S + 60.0
        for _ in range(3):
            self.handle(SITE, Tick())
            self.now += 1.0
        silent = [n for n in lacking if n not in self.turned_away & self.may_repeat]
        if self.dropped < len(silent):
            raise BrokenPromiseError(f"{len(silent)} records are lost, and {self.dropped} are counted")
        if self.outbox.rows:
            raise BrokenPromiseError(f"the outbox keeps {sorted(self.outbox.rows)[:3]}")
        if any(name[:1] == b"p" for name in self.rows[SITE]):
            raise BrokenPromiseError("parts of rows that are gone are kept")


def header_of(wire: Wire) -> str:
    """As it stands on the wire; empty if it has none."""
    return dict(wire.properties).get(PROPERTY_HEADER, "")


def run(steps: Iterable[Step], **options: object) -> str | None:
    """What is broken after a schedule; None if nothing is."""
    return schedules.run(steps, Changing, **options)


def drawn(seed: int) -> list[Step]:
    """A random schedule; every second time the links are down first."""
    rng = random.Random(seed)
    steps = [(rng.choice(ACTIONS), rng.randrange(6)) for _ in range(rng.randint(6, 40))]
    return [("dark", 0), ("batch", 4), *steps] if seed % 2 else steps


def shrunk(steps: Sequence[Step], **options: object) -> list[Step]:
    """A shorter schedule that breaks something, too."""
    return schedules.shrunk(steps, Changing, **options)
