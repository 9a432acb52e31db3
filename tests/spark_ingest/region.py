"""A region of replicas and a publisher without network: what a receiver would get, made with the real envelope."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridge.contract.batches import Numbered, packed
from bridge.contract.machine import Publication, Wire
from bridge.document.overlay import Member, RegionView
from bridge.document.overlay import Overlay as SignedOverlay
from bridge.document.policy import REFRESH_MESSAGES_MAX, Issuer, Policy, Refresh, Scope, numbered
from bridge.document.wire_topics import batch_topic, retained_topic
from bridge.wire.key_repository import key_topic
from bridge.wire.pieces import cut, wire
from gateway.overlay.region_client import Properties, Publish
from keys.derivation import Derivation
from keys.envelope import (
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    DataKey,
    KeyHeader,
    KeyName,
    MessageHeader,
    Mode,
    SignedHeader,
    content_digest,
    make_key,
    sign_header,
    to_property,
)
from keys.epochs import Calendar, scope_key
from keys.grants import ENDLESS, Grant, Right
from keys.identity import Certificate, Identity, Role
from keys.sharetree import Hop, Share, encode_shares, resplit
from keys.topictokens import matches, retained_id, tokenise_topic
from papers.attacks.firsthop import certified
from spark_ingest.receiving.collector import SpoolCollector
from spark_ingest.receiving.sealings import Group
from spark_ingest.secrets.grants import GrantedScope, Grants, encode_grants
from spark_ingest.spool.writer import SpoolWriter

NOW = 1_800_000_000.0
OWNER = Identity.generate(bytes(31) + b"o")
FAR_MS = int((NOW + 1e8) * 1000)
ROOT = hashlib.sha256(b"root of the tests' scope keys").digest()
TOKEN_KEY = hashlib.sha256(b"token key of the tests").digest()


def published(wire: Wire) -> Publish:
    """As a client decodes it."""
    return Publish(wire.topic, wire.payload, wire.qos, wire.retain, properties=Properties(user=wire.properties))


def stream_of_bytes(seed: str) -> Callable[[int], bytes]:
    """A deterministic source of `n` bytes."""
    counter = itertools.count()

    def draw(size: int) -> bytes:
        return hashlib.shake_256(f"{seed}/{next(counter)}".encode()).digest(size)

    return draw


def epoch_key(name: KeyName) -> bytes:
    return scope_key(ROOT, *name)


def check_values(names: Iterable[KeyName]) -> dict[KeyName, bytes]:
    """What a collector learns of epoch keys."""
    return {name: Derivation(epoch_key(name)).check_value for name in names}


def identity_of(name: str, region: int) -> Identity:
    """Of a member that is no publisher."""
    return Identity.generate(hashlib.sha256(f"{name} of {region}".encode()).digest())


@functools.cache
def member(name: str, role: Role, region: int) -> Member:
    """Of a trust domain of its own."""
    return certified(OWNER, identity_of(name, region), name, role, region, FAR_MS)


class Overlay:
    """What the owner of a path of regions says, and may change. The last region is the receiver's: r1, r2, ...

    `signed`: as members have it.
    """

    def __init__(
        self,
        scopes: Sequence[str] = ("plant/#", "entities/#"),
        path: Sequence[Hop] = (Hop(1, 1, 2, 3),),
        calendar: Calendar = Calendar(),  # noqa: B008  frozen
    ) -> None:
        self.scopes = numbered(Scope(each, refresh=Refresh(messages=REFRESH_MESSAGES_MAX)) for each in scopes)
        self.hops = tuple(path)
        self.calendar = calendar
        self.members: dict[bytes, Certificate] = {}
        self.grants: list[Grant] = []
        self._signed: tuple[object, SignedOverlay] | None = None

    def change(self, **fields: Any) -> None:
        """The owner changes all scopes."""
        if "keyed" in fields:
            fields["shares_only"] = not fields.pop("keyed")
        self.scopes = tuple(replace(scope, **fields) for scope in self.scopes)

    @property
    def home(self) -> int:
        return self.hops[-1].region

    @property
    def signed(self) -> SignedOverlay:
        now = (self.hops, self.scopes, self.calendar, tuple(self.members.values()), tuple(self.grants))
        if self._signed is None or self._signed[0] != now:
            self._signed = now, self._sign()
        return self._signed[1]

    def views(self) -> list[RegionView]:
        """Of the regions of the path."""
        return [RegionView(hop.region, hop.view, f"region {hop.region}", self.replicas(hop)) for hop in self.hops]

    def replicas(self, hop: Hop) -> tuple[str, ...]:
        return tuple(f"{'r' if hop is self.hops[-1] else f'b{hop.region}-'}{n}" for n in range(1, hop.count + 1))

    def _sign(self) -> SignedOverlay:
        views = self.views()
        carriers = {name: view.region for view in views for name in (*view.members, *(view.former or view).members)}
        members = {name: member(name, Role.REPLICA, region) for name, region in carriers.items()}
        for certificate in self.members.values():  # of one name the last, with the one before
            before = members.get(certificate.name)
            members[certificate.name] = Member(certificate, before=None if before is None else before.certificate)
        servers = ("keys",) if self.calendar.length_s else ()
        members |= {name: member(name, Role.KEY_SERVER, self.home) for name in servers}
        policy = Policy(
            "tests", 1, tuple((a.region, b.region) for a, b in itertools.pairwise(self.hops)), self.scopes,
            tuple(self.grants), self.calendar, Issuer.CHAIN if servers else Issuer.OWNER, servers,
        )  # fmt: skip
        return SignedOverlay(OWNER.public_bytes, policy, views, members.values())

    def scope_of(self, wire_topic: str) -> Scope | None:
        return next((scope for scope in self.scopes if matches(scope.filter, wire_topic)), None)

    def scope_named(self, wire_filter: str) -> Scope | None:
        return next((scope for scope in self.scopes if scope.filter == wire_filter), None)

    def names(self, epochs: Iterable[int] = range(3), bumps: Iterable[int] = range(2)) -> set[KeyName]:
        """Epoch keys of all scopes."""
        return {KeyName(s.filter, e, b) for s in self.scopes for e, b in itertools.product(epochs, bumps)}

    def held(self, names: Collection[KeyName] | None = None, token_key: bytes | None = None) -> Grants:
        """What the job has."""
        names = self.names() if names is None else names
        return Grants(
            {
                scope.filter: GrantedScope(
                    scope.filter,
                    scope.keyed,
                    token_key,
                    {name: epoch_key(name) for name in names if scope.keyed and name.scope == scope.filter},
                )
                for scope in self.scopes
            }
        )


class Publisher:
    """One gateway: seals publications and splits keys for the overlay's first region."""

    def __init__(
        self, overlay: Overlay, name: str = "gw1", *, publish: Sequence[str] = ("#",), last_epoch: int = ENDLESS,
        key: int = 0,
    ) -> None:  # fmt: skip
        """`key`: with another number it has another key; of one name the one made before is its former one."""
        self.overlay = overlay
        self.random = stream_of_bytes(f"{name}/{key}" if key else name)
        self.identity = Identity.generate(self.random(32))
        self.certificate = Certificate.issue(
            OWNER, name=name, role=Role.GATEWAY, public_key=self.identity.public_bytes,
            agreement_key=self.identity.agreement_bytes, domain="plant", region=overlay.hops[0].region,
            not_after_ms=FAR_MS,
        )  # fmt: skip
        overlay.members[self.identity.party_id] = self.certificate
        overlay.grants += [Grant(name, each, Right.PUBLISH, 0, last_epoch) for each in publish]
        self.sequence = 0
        self.messages = 1 << 16
        """That a data key is for."""
        self.keys: dict[str, tuple[KeyHeader, DataKey, list[Share]]] = {}
        self.pinned: set[str] = set()

    def new_key(self, scope: str, epoch: int | None = None, bump: int | None = None, *, time: float = NOW) -> None:
        """Under the present epoch key, or under another one, which then is used until the next call."""
        rule = self.overlay.scope_named(scope)
        assert rule is not None
        pinned = epoch is not None or bump is not None
        (self.pinned.add if pinned else self.pinned.discard)(scope)
        at = self.overlay.calendar.epoch_at(time) if epoch is None else epoch
        name = KeyName(scope, at, rule.bump if bump is None else bump)
        secret = epoch_key(name) if rule.keyed else None
        self.keys[scope] = make_key(
            self.identity, name, self.overlay.hops, self.sequence + 1, self.messages, secret, self.random
        )

    def key_for(self, scope: Scope, time: float) -> tuple[KeyHeader, DataKey, list[Share]]:
        """The data key in use; a new one in another epoch or after a bump."""
        key = self.keys.get(scope.filter)
        name = KeyName(scope.filter, self.overlay.calendar.epoch_at(time), scope.bump)
        if key is None or (key[0].epoch_key != name and scope.filter not in self.pinned):
            self.new_key(scope.filter, time=time)
        return self.keys[scope.filter]

    def seal(
        self, topic: str, payload: bytes = b"{}", *, wire_topic: str | None = None, time: float = NOW,
        sequence: int = 0, clear: bytes | None = None, token_key: bytes | None = None, **fields: Any,
    ) -> Sealed:  # fmt: skip
        """A publication as every replica will carry it. `fields`: of MessageHeader (qos, retain, ...) or Publication.

        `clear`: what is sealed instead of one record. `token_key`: of a scope that hides topics.
        """
        self.sequence = sequence or self.sequence + 1
        scope = self.overlay.scope_of(tokenise_topic(topic, token_key) if token_key else topic)
        assert scope is not None
        retain = bool(fields.get("retain"))
        if wire_topic is None:
            about = retained_id(token_key, topic)
            retained = retained_topic(scope.number, about, self.identity.party_id)
            wire_topic = retained if retain else batch_topic(scope.number)
        own = {name: fields.pop(name) for name in ("properties", "content_type") if name in fields}
        qos = fields.get("qos", 1)
        one = Publication(fields.pop("inner_topic", topic), payload, qos, retain, time_ms=int(time * 1000), **own)
        inner = packed(topic, [Numbered(self.sequence, one)]).payload if clear is None else clear
        header = MessageHeader(
            publisher=self.identity.party_id, key_id=bytes(16), sequence=self.sequence, previous=0,
            time_ms=int(time * 1000), deadline_ms=0, qos=1, retain=False, tombstone=False, mode=scope.mode,
            digests=(bytes(32),),
        )  # fmt: skip
        header = replace(header, **fields)
        if header.mode is Mode.PLAIN:
            key = None
            content = inner
        else:
            key = self.key_for(scope, time)
            header = replace(header, key_id=key[0].key_id)
            content = key[1].seal(header.prefix(), self.sequence, wire_topic, inner)
        pieces = cut(content, header.mode, self.overlay.hops[0].count)
        header = replace(header, digests=tuple(map(content_digest, pieces)))
        return Sealed(wire_topic, content, sign_header(self.identity, header, wire_topic), key, pieces)


@dataclass
class Sealed:
    """One publication; `piece(i)` is what replica i (1..n) of the receiver's region sends."""

    topic: str
    content: bytes
    signed: SignedHeader
    key: tuple[KeyHeader, DataKey, list[Share]] | None
    pieces: tuple[bytes, ...] = ()

    @property
    def publication(self) -> tuple[bytes, int]:
        return self.signed.header.publisher, self.signed.header.sequence

    def shares_at(self, place: int, overlay: Overlay | None = None) -> list[Share]:
        """What replica `place` of the last region holds."""
        assert self.key is not None
        header, _, shares = self.key
        for hop in (overlay.hops if overlay else header.hops)[1:]:
            seeds = {share.label: hashlib.sha256(repr(share.label[-1]).encode()).digest() for share in shares}
            shares = [each for share in shares for each in resplit(share, header.digest, hop, seeds[share.label])]
        return [share for share in shares if share.label[-1].place == place]

    def piece(
        self, place: int, *, with_key: bool = True, content: bytes | None = None, shares: Sequence[Share] | None = None
    ) -> Wire:
        properties = [(PROPERTY_HEADER, to_property(self.signed.encode()))]
        if with_key and self.key is not None:
            properties.append((PROPERTY_KEY, to_property(self.key[0].encode())))
            held = self.shares_at(place) if shares is None else shares
            if held:
                properties.append((PROPERTY_SHARES, to_property(encode_shares(held))))
        payload = self.content if content is None else content
        return Wire(self.topic, payload, properties=tuple(properties))

    def entry(self, place: int) -> Wire:
        """The key alone, as replica `place` keeps it where keys stand on a topic of their own."""
        assert self.key is not None
        key = self.piece(place).properties[1:]
        return Wire(key_topic(self.key[0].scope, self.key[0].publisher), b"", retain=True, properties=key)

    def part(self, place: int, *indexes: int, with_key: bool = True) -> Wire:
        """The same with some pieces of the content only."""
        pieces = {index: self.pieces[index] for index in indexes}
        told = wire(self.topic, self.signed.header, self.piece(place, with_key=with_key).properties, pieces)
        return Wire(self.topic, told.payload, properties=told.properties)


def collector_of(overlay: Overlay, **options: Any) -> SpoolCollector:
    return SpoolCollector(overlay.signed, overlay.home, **options)


class Link:
    """The replicas' side of a collector: sends pieces, remembers what was acknowledged.

    `known`: the epoch keys that executors have, `options`: of Collector.
    """

    def __init__(self, overlay: Overlay, known: Collection[KeyName] | None = None, **options: Any) -> None:
        self.overlay = overlay
        self.collector = collector_of(overlay, **options)
        self.collector.learn(check_values(overlay.names() if known is None else known))
        self.acknowledged: list[tuple[int, Wire]] = []
        self.sent = 0

    def send(self, place: int, wire: Wire, now: float = NOW) -> None:
        self.sent += 1
        self.follow(now)
        self.collector.receive(f"r{place}", wire, lambda: self.acknowledged.append((place, wire)), now)

    def follow(self, now: float = NOW) -> None:
        """As the receiver does: the owner may have signed another version."""
        if self.overlay.signed is not self.collector.overlay:
            self.collector.adopt_overlay(self.overlay.signed, now)

    def publish(self, sealed: Sealed, places: Sequence[int] = (1, 2, 3), now: float = NOW, **piece: Any) -> None:
        for place in places:
            self.send(place, sealed.piece(place, **piece), now)

    def write(self, writer: SpoolWriter | None = None, max_rows: int = 500) -> list[Group]:
        """Everything that is ready, in groups, to a spool if given; acknowledges as the receiver does."""
        groups = []
        while group := self.collector.take_group(max_rows):
            groups.append(group)
            if writer is not None:
                writer.append(group.records, group.keys)
            for ack in self.collector.note_written(group):
                ack()
        return groups


def corrupt(share: Share) -> Share:
    return replace(share, value=bytes([share.value[0] ^ 1]) + share.value[1:])


def records(groups: Sequence[Group]) -> Iterator[Any]:
    for group in groups:
        yield from group.records


def token_topic(topic: str) -> str:
    return tokenise_topic(topic, TOKEN_KEY)


def write_grants(path: Path, grants: Grants | None = None, spool_key: bytes | None = None) -> Path:
    """A file of scope keys as a receiver writes it: those of an overlay without changes, if nothing else is given."""
    fresh = path.with_name(path.name + ".new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(encode_grants((grants or Overlay().held()).scopes.values(), spool_key))
    return fresh.replace(path)
