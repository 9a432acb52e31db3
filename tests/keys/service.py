"""A key service for tests: an owner's directory that can be edited, its servers, and the wires to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from keys.epochs import Calendar, KeyName, ScopeKeys
from keys.fetching import Ask, Effect, KeyFetcher
from keys.grants import ENDLESS, Grant, Right
from keys.identity import Certificate, Identity, Role
from keys.issuing import KeyServer
from keys.material import Material, chain, combine, deal
from keys.topictokens import covers
from tests.keys.helpers import stream

OWNER = Identity.generate(stream("owner")(32))
DAY_S = 1000
CALENDAR = Calendar(0, DAY_S, ahead_s=100, grace_s=50, skew_s=10)
NOW = 10 * DAY_S + 500.0  # in the middle of epoch 10
END_MS = 10**12
PLANT = "plant/#"


@cache
def identity_of(name: str) -> Identity:
    return Identity.generate(stream(f"identity {name}")(32))


@cache
def certificate_for(name: str, role: Role, identity: Identity, not_after_ms: int = END_MS) -> Certificate:
    return Certificate.issue(
        OWNER,
        name=name,
        role=role,
        public_key=identity.public_bytes,
        agreement_key=identity.agreement_bytes,
        domain="acme",
        region=0,
        not_after_ms=not_after_ms,
    )


@dataclass
class Book:
    """What the owner's overlay says, for `keys.issuing.Directory`."""

    servers: tuple[str, ...]
    faults: int
    chain: bool = False
    version: int = 1
    calendar: Calendar = CALENDAR
    bumps: dict[str, int] = field(default_factory=lambda: {PLANT: 0})
    grants: list[Grant] = field(default_factory=list)
    certificates: list[Certificate] = field(default_factory=list)

    def certificate(self, party: bytes) -> Certificate | None:
        return next((c for c in self.certificates if c.party_id == party), None)

    def keyed_scopes(self) -> Iterable[str]:
        return list(self.bumps)

    def bump(self, scope: str) -> int | None:
        return self.bumps.get(scope)

    def may_read(self, name: str, scope: str, epoch: int) -> bool:
        return any(g.member == name and g.may_read_all(scope, epoch) for g in self.grants)

    def may_publish_in(self, name: str, scope: str, epoch: int) -> bool:
        return any(
            g.member == name and Right.PUBLISH in g.rights and g.live(epoch) and covers(g.filter, scope)
            for g in self.grants
        )

    def readers(self, epoch: int) -> Iterable[tuple[Certificate, Sequence[str]]]:
        for certificate in self.certificates:
            scopes = [s for s in self.bumps if self.may_read(certificate.name, s, epoch)]
            if scopes:
                yield certificate, scopes


@dataclass
class Service:
    """n key servers with their directory. `answer` of a server may be replaced by a test that lies."""

    book: Book
    materials: list[Material]
    servers: dict[str, KeyServer]

    def key(self, name: KeyName) -> bytes:
        """The right key, out of all materials together."""
        found: dict[int, bytes] = {}
        for material in self.materials:
            found |= dict(material.generation_of(name.epoch).at_epoch(name.epoch).outputs(name))
        return combine(list(found.values()))

    def client(self, name: str, seed: str = "client") -> tuple[KeyFetcher, ScopeKeys]:
        keys = ScopeKeys()
        return KeyFetcher(identity_of(name), name, self.book, keys, stream(seed)), keys


def service(count: int = 4, faults: int = 1, calendar: Calendar = CALENDAR, first_epoch: int = 10) -> Service:
    """A service with a reader, a publisher without the right to read, and a stranger to every scope."""
    names = tuple(f"keys-{number}" for number in range(1, count + 1))
    book = Book(names, faults, chain=faults < 0, calendar=calendar)
    book.faults = max(0, faults)
    book.grants = [Grant("reader", "#", Right.READ), Grant("writer", "#", Right.PUBLISH)]
    members = [(name, Role.KEY_SERVER) for name in names]
    members += [(name, Role.GATEWAY) for name in ("reader", "writer", "nobody")]
    book.certificates = [certificate_for(name, role, identity_of(name)) for name, role in members]
    random = stream("deal")
    materials = [chain(first_epoch, random)] * count if book.chain else deal(count, faults, first_epoch, random)
    servers = {
        name: KeyServer(identity_of(name), name, material, book, stream(f"server {name}"), {})
        for name, material in zip(names, materials, strict=True)
    }
    return Service(book, materials, servers)


def revoke(book: Book, member: str, last_epoch: int) -> None:
    """The owner's next version, in which the member's grants end."""
    book.version += 1
    book.grants = [replace(g, last_epoch=last_epoch) if g.member == member else g for g in book.grants]


def grant(book: Book, member: str, rights: Right, first_epoch: int, last_epoch: int = ENDLESS) -> None:
    book.version += 1
    book.grants.append(Grant(member, "#", rights, first_epoch, last_epoch))


Wire = Callable[[str, bytes, float], bytes | None]
"""(server, request, now) -> its answer, or None if it is lost."""


def run(
    fetcher: KeyFetcher, effects: list[Effect], wire: Wire, now: float, until: float, log: list[Effect] | None = None
) -> float:
    """Deliver requests and answers at once and let time jump from deadline to deadline; returns the time it ended."""
    queue, seen = list(effects), [] if log is None else log
    for _ in range(10_000):
        while queue:
            effect = queue.pop(0)
            seen.append(effect)
            if isinstance(effect, Ask):
                answer = wire(effect.server, effect.data, now)
                if answer is not None:
                    queue += fetcher.take_answer(effect.server, answer, now)
        if fetcher.next_deadline >= until:
            return now
        assert fetcher.next_deadline > now, "a deadline that does not move"
        now = fetcher.next_deadline
        queue += fetcher.tick(now)
    raise AssertionError("it never comes to rest")
