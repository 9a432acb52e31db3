"""Discovery nodes of trace topics (B1): they make topics, keep signed advertisements, and answer permitted askers.

    create   opening(3, flags 0) certificate(2 + n) descriptor(2 + n) discoverers: count(2), texts life_s(4)
             request(16) time_ms(8) signature(64) of the certificate's holder
    query    opening(3, flag 1) certificate(2 + n) descriptor(2 + n) request(16) time_ms(8) signature(64)
    answer   opening(3, flag 2) sealed box to the asker: request(16) advertisement
    claim    opening(3, flag 4) sealed box to the asker: request(16) registration, which the entity signed

The node draws the topic, so that no entity claims another's. An asker that may not discover a topic gets no answer,
just as for an entity that does not exist. Nodes tell each other the advertisements they signed, so that a node that
is away is no loss. A lying node could name a topic where nobody speaks; so the other nodes also tell the topic under
which the entity registered. A query's topic is the source's `Availability/Traces/ID`, or `Liveness/ID`. Not here:
tracing (`traces.tracer`), trackers (`tracker`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from bridge.base import SortedNames, Wall
from bridge.contract import Count, FairTable
from bridge.traces.events import Registered
from bridge.traces.kinds import DESCRIPTOR, DISCOVER, answers_to
from bridge.traces.offenders import Charged, Offenders
from bridge.traces.telling import Say
from bridge.tracking.patterns import is_pattern, matches, names_for
from keys.delegation import DISCOVERERS_MAX, TOPIC_BYTES, Advertisement, globs, unfit_discoverers
from keys.errors import BadFrame, Expired, KeysError, NotAuthorised, Replayed, TooOften
from keys.frames import Kind, Reader, number, opening, sized, text
from keys.identity import SIGNATURE_BYTES, Certificate, Identity, Role, verify
from keys.sealedbox import seal_box
from keys.tracesession import REQUEST_BYTES, REQUEST_FRESH_MS, Registration

ADVERTISEMENTS_MAX = 100_000  # at one node; an entity with many topics loses its own oldest
LIFE_MAX_S = 30 * 24 * 3600  # of a trace topic
LIST_WORK_MAX, GLOB_WORK = 40_000, 100  # steps of the search for one pattern, some 50 ms; steps of a glob
REQUESTS_MAX = 65_536  # recently answered requests: a replay makes no second topic
DOMAIN_REQUEST = "veilmq/1 trace discovery"
_QUERY, _ANSWER, _CLAIM = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Request:
    """A wish for a new trace topic (`life_s` > 0), or to learn the topic of an entity (`life_s` 0)."""

    certificate: Certificate
    descriptor: str
    request: bytes
    time_ms: int
    discoverers: tuple[str, ...] = ()
    life_s: int = 0
    signature: bytes = field(default=b"", repr=False)

    def signed_bytes(self) -> bytes:
        flags = 0 if self.life_s else _QUERY
        parts = [opening(Kind.DISCOVERY, flags), sized(self.certificate.encode()), text(self.descriptor)]
        if self.life_s:
            parts += [number(len(self.discoverers), 2), *map(text, self.discoverers), number(self.life_s, 4)]
        return b"".join([*parts, self.request, number(self.time_ms, 8)])

    def signed(self, holder: Identity) -> Request:
        return replace(self, signature=holder.sign(DOMAIN_REQUEST, self.signed_bytes()))

    def encode(self) -> bytes:
        return self.signed_bytes() + self.signature

    @classmethod
    def decode(cls, data: bytes) -> Request:
        """Decodes a request. Raises BadFrame."""
        reader = Reader(data)
        query = reader.opening(Kind.DISCOVERY, _QUERY) == _QUERY
        certificate, descriptor = Certificate.decode(reader.sized()), reader.text()
        discoverers: tuple[str, ...] = ()
        life_s = 0
        if not query:
            count = reader.number(2)
            if count > DISCOVERERS_MAX:
                raise BadFrame(f"{count} discoverers of one trace topic")
            discoverers = tuple(reader.text() for _ in range(count))
            if wrong := unfit_discoverers(discoverers):
                raise BadFrame(wrong)
            life_s = reader.number(4)
            if not 1 <= life_s <= LIFE_MAX_S:
                raise BadFrame(f"a trace topic lives 1 to {LIFE_MAX_S} seconds, not {life_s}")
        request, time_ms = reader.take_bytes(REQUEST_BYTES), reader.number(8)
        signature = reader.take_bytes(SIGNATURE_BYTES)
        reader.expect_end()
        return cls(certificate, descriptor, request, time_ms, discoverers, life_s, signature)

    def verify(self, authority: bytes, now_ms: int) -> None:
        """Raises keys errors unless a certified entity or tracker signed the request within `REQUEST_FRESH_MS`."""
        if self.certificate.role is not Role.ENTITY:
            raise NotAuthorised("trace topics are for entities and trackers")
        self.certificate.verify(authority, now_ms)
        verify(self.certificate.public_key, DOMAIN_REQUEST, self.signed_bytes(), self.signature)
        if abs(now_ms - self.time_ms) > REQUEST_FRESH_MS:
            raise Expired("the request is not of now; set the asker's clock")


def _cost(request: Request) -> str:
    """Returns the name of the budget paying for a request."""
    if request.life_s:
        return "creation"
    return "pattern" if is_pattern(request.descriptor) else "discovery"


def entity_of(descriptor: str) -> str | None:
    """Returns the entity a descriptor or query names, in either spelling; None for another descriptor."""
    for prefix in DISCOVER:
        name = descriptor.removeprefix("/").removeprefix(f"{prefix}/")
        if name != descriptor.removeprefix("/") and name and "/" not in name:
            return name
    return None


def _entity_of(advertisement: Advertisement) -> str | None:
    """Returns the entity of an advertisement. If the certificate has an equal name, returns that string object: with
    tens of thousands of entities a second copy costs memory.
    """
    entity, owner = entity_of(advertisement.descriptor), advertisement.certificate.name
    return owner if entity == owner else entity


def owns(owner: str, entity: str) -> bool:
    """Returns True if the holder of a certificate named `owner` may have trace topics of this entity: `owner` itself,
    or a name `OWNER:…`. No certificate has a colon in its name, so no other entity has such a name.
    """
    return entity == owner or entity.startswith(f"{owner}:")


def open_answer(data: bytes, asker: Identity) -> tuple[bytes, Advertisement]:
    """Returns (request, advertisement) of a node's answer, unverified. Raises BadFrame, BadContent."""
    head = opening(Kind.DISCOVERY, _ANSWER)
    if data[: len(head)] != head:
        raise BadFrame("not the answer of a discovery node")
    inside = asker.open_box(data[len(head) :], head)
    return inside[:REQUEST_BYTES], Advertisement.decode(inside[REQUEST_BYTES:])


def open_found(data: bytes, asker: Identity) -> tuple[bytes, Advertisement, Registration | None]:
    """Returns (request, advertisement, registration) of a node's answer, unverified; no registration unless the answer
    is a claim. Raises BadFrame, BadContent.
    """
    head = opening(Kind.DISCOVERY, _CLAIM)
    if data[: len(head)] != head:
        return *open_answer(data, asker), None
    inside = asker.open_box(data[len(head) :], head)
    claim = Registration.decode(inside[REQUEST_BYTES:])
    return inside[:REQUEST_BYTES], Advertisement.decode(claim.advertisement), claim


# ------------------------------------------------------------------------------------------ events, effects


@dataclass(frozen=True, slots=True)
class Asked:
    """A client's publication on `CREATION_TOPIC` or `DISCOVERY_TOPIC`."""

    client: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Heard:
    """An advertisement another discovery node sent."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ShareAdvertisement:
    """An effect: tell an advertisement to the other discovery nodes, and keep it on disk."""

    advertisement: Advertisement


class Unknown(NotAuthorised):
    """An error for an honest question without an answer: the asker pays only from the budget."""


DiscoveryEvent: TypeAlias = Asked | Heard | Registered
DiscoveryEffect: TypeAlias = Say | ShareAdvertisement | Charged


class DiscoveryNode:
    """A discovery node. `nodes`: public keys of all nodes by name, ours included; `random`: fresh secret bytes of a
    length.
    """

    def __init__(
        self, name: str, identity: Identity, nodes: Mapping[str, bytes], authority: bytes,
        random: Callable[[int], bytes], wall: Wall | None = None, offenders: Offenders | None = None,
    ) -> None:  # fmt: skip
        self._wall, self._offenders = wall or Wall(), offenders or Offenders()
        self._name = name
        self._identity = identity
        self._nodes = dict(nodes)
        self._authority = authority
        self._random = random
        self._kept: FairTable[bytes, Advertisement] = FairTable(ADVERTISEMENTS_MAX)  # by trace topic
        self._newest: dict[str, bytes] = {}  # by entity: its latest trace topic
        self._names = SortedNames()  # the entities in `_newest`
        self._unverified: set[bytes] = set()  # restored after a restart, maybe under other keys
        # By entity: the trace topic of its last registration here, and the registration's other fields.
        self._claims: dict[str, tuple[Advertisement, bytes, int, bytes]] = {}
        self._answered: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def restore(self, advertisements: Iterable[Advertisement]) -> None:
        """Takes the advertisements that were kept on disk."""
        for advertisement in advertisements:
            self._keep_advertisement(advertisement)
            if self._kept.get(advertisement.topic) is not None:
                self._unverified.add(advertisement.topic)

    def owned_by(self, owner: Certificate) -> list[Advertisement]:
        """Returns the trace topics that this node made for a certificate's holder, newest first."""
        ours = (each for each in self._kept.values() if each.node == self._name)
        found = [each for each in ours if each.certificate.party_id == owner.party_id]
        return sorted(found, key=lambda each: -each.created_ms)

    def forget_topic(self, topic: bytes) -> None:
        """Forgets a topic, so that nobody learns the topic from us any more."""
        gone = self._kept.pop(topic)
        if gone is not None:
            self._unname(gone)

    def advertisement(self, topic: bytes) -> Advertisement | None:
        """Returns the advertisement we know of a trace topic; None if there is none."""
        return self._kept.get(topic)

    def verified(self, topic: bytes) -> Advertisement | None:
        """Returns the advertisement of a trace topic if we made or verified it since the last restart; else None."""
        return None if topic in self._unverified else self._kept.get(topic)

    def handle(self, event: DiscoveryEvent, now: float) -> list[DiscoveryEffect]:
        """Returns the effects of an event in order. An invalid request is counted and gets no answer."""
        try:
            if isinstance(event, Heard):
                return self._take_advertisement(event.data, self._wall.ms(now))
            if isinstance(event, Registered):
                return self._registered(event)
            request = Request.decode(event.data)
            self._offenders.afford(event.client, _cost(request), now)
            return self._answer_request(request, self._wall.ms(now))
        except (TooOften, Unknown) as error:
            return [Count("discoveries_refused", 1, type(error).__name__)]
        except KeysError as error:
            client = event.client if isinstance(event, Asked) else ""
            return [*self._offenders.charge(client, "discoveries_refused", error)]

    def _answer_request(self, request: Request, now_ms: int) -> list[DiscoveryEffect]:
        """Answers a request. Raises keys errors."""
        request.verify(self._authority, now_ms)
        self._once(request)
        entity = entity_of(request.descriptor)
        if entity is None:
            raise NotAuthorised(f"the descriptor is not {DESCRIPTOR} and an entity")
        if request.life_s:
            return self._create(request, entity, now_ms)
        if is_pattern(entity):
            return self._list(request, entity, now_ms)
        told: list[DiscoveryEffect] = []
        claim = self._claims.get(entity)
        claimed = b"" if claim is None else claim[0].topic
        for known in map(self._kept.get, {self._newest.get(entity, b""): None, claimed: None}):
            if known is not None and now_ms <= known.not_after_ms and known.may_discover(request.certificate):
                told.append(self._answer_message(request, known, claim if known.topic == claimed else None))
        if not told:
            raise Unknown("nobody of that name, or not for this asker")
        return [*told, Count("discoveries")]

    def _list(self, request: Request, pattern: str, now_ms: int) -> list[DiscoveryEffect]:
        """Tells an asker the names matching a pattern; the answer does not show if there are others."""
        asker = request.certificate
        names = list(self._discoverable(pattern, asker, now_ms))
        where = answers_to(asker.name)
        told = [Say(where, each) for each in names_for(asker, request.request, names, self._random)]
        return [*told, Count("discoveries")]

    def _discoverable(self, pattern: str, asker: Certificate, now_ms: int) -> Iterator[str]:
        """Yields the names matching a pattern and that the asker may discover. The search begins at a random place and
        ends after `LIST_WORK_MAX` steps: an asker coming again hears of other names.
        """
        first, last = self._names.beginning(pattern.removesuffix("*") if is_pattern(pattern) else pattern)
        start, work = int.from_bytes(self._random(4)), LIST_WORK_MAX
        admitted: dict[int, bool] = {}  # by the discoverers, which most entities share
        for place in range(last - first):
            name = self._names[first + (start + place) % (last - first)]
            known = self._kept.get(self._newest[name])
            if known is None or now_ms > known.not_after_ms or not matches(pattern, name):
                continue
            is_own = known.certificate.party_id == asker.party_id
            may = is_own or admitted.get(id(known.discoverers))
            if may is None:
                work -= len(known.discoverers) + GLOB_WORK * globs(known.discoverers)
                may = admitted[id(known.discoverers)] = known.may_discover(asker)
            work -= 1
            if work < 0:
                return
            if may:
                yield name

    def _create(self, request: Request, entity: str, now_ms: int) -> list[DiscoveryEffect]:
        if not owns(request.certificate.name, entity) or is_pattern(entity):
            raise NotAuthorised("an entity creates trace topics of its own")
        advertisement = self.make(request.certificate, entity, request.discoverers, request.life_s, now_ms)
        return [self._answer_message(request, advertisement), ShareAdvertisement(advertisement), Count("trace_topics")]

    def make(
        self, owner: Certificate, entity: str, discoverers: tuple[str, ...], life_s: int, now_ms: int
    ) -> Advertisement:
        """Makes a new trace topic. The caller has checked that `owner` owns the entity, and tells the other nodes."""
        drawn = bytearray(self._random(TOPIC_BYTES))
        drawn[6], drawn[8] = drawn[6] & 0x0F | 0x40, drawn[8] & 0x3F | 0x80  # RFC 9562, section 5.4: version 4
        advertisement = Advertisement(
            bytes(drawn), DESCRIPTOR + entity, owner, discoverers, now_ms, now_ms + life_s * 1000, self._name
        ).signed(self._identity)
        self._keep_advertisement(advertisement)
        return advertisement

    def _take_advertisement(self, data: bytes, now_ms: int) -> list[DiscoveryEffect]:
        advertisement = Advertisement.decode(data)
        node = self._nodes.get(advertisement.node)
        if node is None:
            raise NotAuthorised("the advertisement is of a discovery node that we do not know")
        advertisement.verify(node, self._authority, now_ms)
        self._learn_advertisement(advertisement)
        return []

    def _learn_advertisement(self, advertisement: Advertisement) -> str:
        """Keeps a verified advertisement and returns its entity. Raises NotAuthorised if the owner is another."""
        entity = _entity_of(advertisement)
        if entity is None or not owns(advertisement.certificate.name, entity):
            raise NotAuthorised("an advertisement of somebody else's trace topic")
        topic = advertisement.topic
        if self._kept.get(topic) is None or topic in self._unverified:
            self._unverified.discard(topic)
            self._keep_advertisement(advertisement)
        return entity

    def _registered(self, event: Registered) -> list[DiscoveryEffect]:
        """Takes the registration of an entity at the tracer beside us, which trusts the same nodes and authority. A
        node that was away, or hears no other node, so learns the entity's trace topic.
        """
        advertisement, claim = event.advertisement, event.registration
        entity, kept = self._learn_advertisement(advertisement), self._kept.get(advertisement.topic)
        same = kept if kept is not None and kept == advertisement else advertisement
        self._claims[entity] = same, claim.request, claim.time_ms, claim.signature
        return []

    def _keep_advertisement(self, advertisement: Advertisement) -> None:
        entity, topic = _entity_of(advertisement), advertisement.topic
        if entity is None:
            return
        gone = self._kept.put(topic, advertisement.certificate.name.encode(), advertisement)
        newest = self._kept.get(self._newest.get(entity, b""))
        if newest is None or newest.created_ms <= advertisement.created_ms:
            if entity not in self._newest:
                self._names.add(entity)
            self._newest[entity] = topic
        if gone is not None:
            self._unname(gone[1])

    def _unname(self, gone: Advertisement) -> None:
        self._unverified.discard(gone.topic)
        entity = entity_of(gone.descriptor)
        if entity is None:
            return
        if self._newest.get(entity) == gone.topic:
            del self._newest[entity]
            self._names.discard(entity)
        claim = self._claims.get(entity)
        if claim is not None and claim[0].topic == gone.topic:
            del self._claims[entity]

    def _once(self, request: Request) -> None:
        """Raises Replayed for a request that came before."""
        if request.request in self._answered:
            raise Replayed("a request that came before")
        self._answered[request.request] = None
        if len(self._answered) > REQUESTS_MAX:
            self._answered.popitem(last=False)

    def _answer_message(
        self,
        request: Request,
        advertisement: Advertisement,
        claim: tuple[Advertisement, bytes, int, bytes] | None = None,
    ) -> Say:
        head = opening(Kind.DISCOVERY, _ANSWER if claim is None else _CLAIM)
        told = advertisement if claim is None else Registration(claim[0].encode(), *claim[1:])
        inside = request.request + told.encode()
        box = seal_box(request.certificate.agreement_key, inside, head, self._random(32))
        return Say(answers_to(request.certificate.name), head + box)
