"""A region of three replicas and its gateways in memory: what the sample's receiver gets, truly sealed.

No socket, no broker, no files, no clock. Every secret comes from a seed that anybody may know: what is sealed here is
an example and protects nothing. Not here: what the gateways publish (`sample`), receiving it (`collector`).
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bridge.contract import Numbered, Publication, Wire, packed
from bridge.document import Member, Overlay, Policy, RegionView, Scope, batch_topic, retained_topic
from keys.envelope import (
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    DataKey,
    KeyHeader,
    KeyName,
    MessageHeader,
    Mode,
    content_digest,
    make_key,
    sign_header,
    to_property,
)
from keys.epochs import scope_key
from keys.grants import Grant, Right
from keys.identity import Certificate, Identity, Role
from keys.sharetree import Hop, Share, encode_shares
from keys.topictokens import retained_id
from spark_ingest.secrets import GrantedScope, Grants

REGION = Hop(region=1, view=1, threshold=2, count=3)
REPLICAS = tuple(f"replica-{place}" for place in range(1, REGION.count + 1))
MESSAGES_A_KEY = 64
NOT_AFTER_MS = 253_402_300_799_000
"""Year 9999: a sample does not go off."""


def bytes_from(seed: str) -> Callable[[int], bytes]:
    """A deterministic source of `n` bytes: equal seeds give equal ones."""
    counter = itertools.count()
    return lambda size: hashlib.shake_256(f"veilmq sample/{seed}/{next(counter)}".encode()).digest(size)


@dataclass(frozen=True, slots=True)
class SampledPublication:
    """A publication a device handed to its gateway `at`, and the gateway sealed at `sealed_at` (UNIX seconds)."""

    topic: str
    payload: bytes
    at: float
    sealed_at: float
    retain: bool = False
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Sealed:
    """A publication as the region carries it: a wire a replica."""

    published: SampledPublication
    wires: Mapping[str, Wire]


class SampleRegion:
    """The owner's word on the sample's members and scopes; its gateways' keys, which may publish everywhere."""

    def __init__(self, seed: str, filters: Sequence[str], gateways: Sequence[str]) -> None:
        random = bytes_from(f"{seed}/owner")
        owner = Identity.generate(random(32))
        self._root = random(32)
        self.sources = {name: bytes_from(f"{seed}/{name}") for name in (*gateways, *REPLICAS)}
        """What each member draws its secrets from."""
        self.identities = {name: Identity.generate(source(32)) for name, source in self.sources.items()}
        members = [
            Member(
                Certificate.issue(
                    owner,
                    name=name,
                    role=Role.REPLICA if name in REPLICAS else Role.GATEWAY,
                    public_key=identity.public_bytes,
                    agreement_key=identity.agreement_bytes,
                    domain=f"sample-{name}",
                    region=REGION.region,
                    not_after_ms=NOT_AFTER_MS,
                )
            )
            for name, identity in self.identities.items()
        ]
        grants = tuple(Grant(name, "#", Right.PUBLISH) for name in gateways)
        policy = Policy("sample", 1, (), tuple(map(Scope, filters)), grants)
        self.overlay = Overlay.sign(
            owner, policy, [RegionView(REGION.region, REGION.view, "sample", REPLICAS)], members
        )

    def epoch_key(self, name: KeyName) -> bytes:
        return scope_key(self._root, *name)

    def held_grants(self) -> Grants:
        """Returns the grants of a job that may read everything: the keys of bump 0."""
        names = [KeyName(scope.filter, 0, 0) for scope in self.overlay.policy.scopes]
        return Grants(
            {name.scope: GrantedScope(name.scope, True, None, {name: self.epoch_key(name)}) for name in names}
        )


@dataclass(slots=True)
class _Key:
    header: KeyHeader
    key: DataKey
    shares: Sequence[Share] = field(repr=False)
    left: int = MESSAGES_A_KEY


class SampleGateway:
    """Seals what its devices publish, as a gateway does: a data key for 64 messages."""

    def __init__(self, region: SampleRegion, name: str) -> None:
        self._region = region
        self._random, self._identity = region.sources[name], region.identities[name]
        self._sequence = 0
        self._previous: dict[int, int] = defaultdict(int)
        self._keys: dict[KeyName, _Key] = {}

    def seal(self, publications: Sequence[SampledPublication], bump: int = 0) -> Iterator[Sealed]:
        """All of them, in this order. `bump`: of the epoch key; the job holds those of bump 0 only."""
        for published in publications:
            scope = self._region.overlay.scope_of(published.topic)
            assert scope is not None, "the sample publishes in its scopes"
            topic = batch_topic(scope.number)
            if published.retain:
                topic = retained_topic(scope.number, retained_id(None, published.topic), self._identity.party_id)
            key, header, content = self._sealed_message(published, scope, topic, bump)
            told = to_property(sign_header(self._identity, header, topic).encode())
            wires = {}
            for replica, share in zip(REPLICAS, key.shares, strict=True):
                properties = (
                    (PROPERTY_HEADER, told),
                    (PROPERTY_KEY, to_property(key.header.encode())),
                    (PROPERTY_SHARES, to_property(encode_shares([share]))),
                )
                wires[replica] = Wire(topic, content, 1, published.retain, properties)
            yield Sealed(published, wires)

    def _sealed_message(
        self, published: SampledPublication, scope: Scope, topic: str, bump: int
    ) -> tuple[_Key, MessageHeader, bytes]:
        self._sequence += 1
        key = self._key(scope, bump)
        header = MessageHeader(
            publisher=self._identity.party_id,
            key_id=key.header.key_id,
            sequence=self._sequence,
            previous=self._previous[scope.number],
            time_ms=int(published.sealed_at * 1000),
            deadline_ms=0,
            qos=1,
            retain=published.retain,
            tombstone=False,
            mode=Mode.COPIES,
            digests=(bytes(32),),
        )
        self._previous[scope.number] = self._sequence
        publication = Publication(
            published.topic, published.payload, 1, published.retain, properties=published.properties,
            time_ms=int(published.at * 1000),
        )  # fmt: skip
        clear = packed(published.topic, [Numbered(self._sequence, publication)]).payload
        content = key.key.seal(header.prefix(), self._sequence, topic, clear)
        return key, replace(header, digests=(content_digest(content),)), content

    def _key(self, scope: Scope, bump: int) -> _Key:
        name = KeyName(scope.filter, 0, bump)
        key = self._keys.get(name)
        if key is None or not key.left:
            header, data_key, shares = make_key(
                self._identity,
                name,
                (REGION,),
                self._sequence,
                MESSAGES_A_KEY,
                self._region.epoch_key(name),
                self._random,
            )
            key = self._keys[name] = _Key(header, data_key, shares)
        key.left -= 1
        return key
