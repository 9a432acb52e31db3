"""Availability of a gateway's local clients: signs of life in, a single retained publication per entity out.

Connection, traffic, keep-alive and the end of a connection become `PREFIX/GATEWAY/ENTITY/availability`, a retained
JSON object that Home Assistant reads with `availability_template: "{{ value_json.state }}"`. The machine publishes
changes, and for a live entity a single refresh of `last_seen` per `refresh_s`; a client that flaps costs at most a
single publication per `settle_s`.

This first form of liveness does not ping, does not vote with other witnesses and does not trace (B4, B5, B9). The
gateway's own death shows as entities a restarted gateway remembers (`EntityRemembered`) and declares offline unless
they come back. Judgements use a steady clock; the wall's time is only told.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote, unquote

from bridge.base import Belongings, Wall
from bridge.contract import Count, Publication, Tick
from bridge.document import OwnTopics

DEFAULT_PREFIX = "entities"
ONLINE = "online"
OFFLINE = "offline"
MAX_ENTITIES = 100_000
"""Stops a client that connects under ever new names from filling memory and the retained store."""
MAX_LEVEL_BYTES = 200
"""Stops a 64 KiB client id from making a topic that no broker accepts."""
KEEP_ALIVE_FACTOR = 1.5
"""MQTT 5.0 §3.1.2.10: a client is dead one and a half keep-alive periods after its last packet."""


# ---------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class EntityConnected:
    """A local client was accepted, maybe in place of its former connection. `keep_alive_s` 0: no keep-alive
    promised.
    """

    client_id: str
    keep_alive_s: int
    origin: str = ""
    """The client's address, which answers for the client: a user name is often only claimed."""
    owner: str = ""
    """The client's user or address, of whose absent clients the oldest is forgotten where there are too many."""
    is_named: bool = True
    """False: the broker drew the client id, for want of the client's own (MQTT 5.0 §3.1.3.1)."""


@dataclass(frozen=True, slots=True)
class EntitySeen:
    """A packet of a client arrived; at most a single event a second and client."""

    client_id: str


@dataclass(frozen=True, slots=True)
class EntityGone:
    """A client's connection ended and no other took its place. `clean`: by DISCONNECT with code 0.

    `reason`: a few words for people, may be empty. `owner`: the client's user or address.
    """

    client_id: str
    clean: bool
    reason: str
    owner: str = ""


@dataclass(frozen=True, slots=True)
class EntityRemembered:
    """An entity that was announced as online before a restart, in that state since `since_ms`."""

    client_id: str
    since_ms: int
    last_seen_ms: int


EntityEvent: TypeAlias = EntityConnected | EntitySeen | EntityGone
AvailabilityEvent: TypeAlias = EntityEvent | EntityRemembered | Tick


# --------------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Announce:
    """An effect: publish as the gateway itself, retained, QoS 1, by the rules of any local publication."""

    publication: Publication


AvailabilityEffect: TypeAlias = Announce | Count


# ---------------------------------------------------------------------------------------------- names


def entity_level(client_id: str) -> str:
    """Returns `client_id` as a single topic level: percent-encoded UTF-8, so `/ + # $` and controls cannot act.

    Different ids give different levels. An encoding over MAX_LEVEL_BYTES is cut and gets a hash after `%-`, which no
    encoding contains.
    """
    encoded = quote(client_id, safe="") or "%-"
    if len(encoded) <= MAX_LEVEL_BYTES:
        return encoded
    digest = hashlib.sha256(client_id.encode()).hexdigest()[:32]
    return f"{encoded[: MAX_LEVEL_BYTES // 2]}%-{digest}"


def announced_before(gateway: str, topic: str, payload: bytes, prefix: str = DEFAULT_PREFIX) -> EntityRemembered | None:
    """Reads a retained document of this gateway from before a restart. Returns the client if the document says online;
    else None.
    """
    beginning = f"{prefix}/{entity_level(gateway)}/"
    if not (topic.startswith(beginning) and topic.endswith("/availability")):
        return None
    try:
        body = json.loads(payload)
        client_id, since_ms, seen_ms = str(body["entity"]), int(body["since"]), int(body["last_seen"])
        is_online = body["state"] == ONLINE
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    is_ours = is_online and availability_topic(gateway, client_id, prefix) == topic
    return EntityRemembered(client_id, since_ms, seen_ms) if is_ours else None


def client_id_of(level: str) -> str | None:
    """Returns the id that `entity_level` encoded; None if the level was cut."""
    if level == "%-":
        return ""
    return None if "%-" in level else unquote(level)


def availability_topic(gateway: str, client_id: str, prefix: str = DEFAULT_PREFIX) -> str:
    """Returns the topic of the availability of a gateway's client."""
    return f"{prefix}/{entity_level(gateway)}/{entity_level(client_id)}/availability"


# -------------------------------------------------------------------------------------------- machine


@dataclass(slots=True)
class _Entity:
    """The state of an entity. `since_ms`, `seen_ms`: the wall's time, only to be told."""

    state: str
    since_ms: int
    last_seen: float
    seen_ms: int
    reason: str
    keep_alive_s: int = 0
    owner: str = ""
    connected: bool = False
    dirty: bool = True
    announced: float = float("-inf")
    """The time of the last publication."""
    due: float | None = None
    """The time of the next check; an entry in the heap with another time is stale."""


class Availability:
    """A machine over the events above; `handle(event, now)` and `next_deadline` as in `bridge/contract/machine.py`.

    `refresh_s`: the period in which `last_seen` of a live, unchanged entity is published again. `settle_s`: shortest
    time between two publications about an entity. `rejoin_s`: the time a remembered entity may take to come back
    before the machine declares it offline.
    """

    def __init__(
        self,
        gateway: str,
        *,
        prefix: str = DEFAULT_PREFIX,
        refresh_s: float = 300.0,
        settle_s: float = 1.0,
        rejoin_s: float = 60.0,
        max_entities: int = MAX_ENTITIES,
        wall: Wall | None = None,
    ) -> None:
        if not prefix or any(c in prefix for c in "+#\0") or prefix.startswith(("$", "/")):
            raise ValueError(f"availability prefix {prefix!r} is not a plain topic; take one like 'entities'")
        if refresh_s < settle_s:
            raise ValueError("refresh_s is shorter than settle_s: an entity would be due before it may be published")
        self._wall = wall or Wall()
        self._gateway = gateway
        self._prefix = prefix
        self._refresh_s = refresh_s
        self._settle_s = settle_s
        self._rejoin_s = rejoin_s
        self._max_entities = max_entities
        self._entities: dict[str, _Entity] = {}
        self._offline: Belongings[str, str] = Belongings()  # by owner, oldest first: may be evicted
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._entities)

    def reserve_topics(self, own: OwnTopics) -> None:
        """Reserves the availability topics, so that no client says who is available."""
        own.add_documents(self._prefix, entity_level(self._gateway), "availability")

    def state_of(self, client_id: str) -> str | None:
        """Returns `online`, `offline`, or None for an entity never seen (or evicted)."""
        entity = self._entities.get(client_id)
        return entity.state if entity else None

    @property
    def next_deadline(self) -> float | None:
        """The time for the next `handle(Tick(), now)`; None if nothing is due."""
        heap = self._heap
        while heap and not self._current(heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def handle(self, event: AvailabilityEvent, now: float) -> Sequence[AvailabilityEffect]:
        effects: list[AvailabilityEffect] = []
        if isinstance(event, EntitySeen):
            self._on_seen(event, now, effects)
        elif isinstance(event, EntityConnected):
            self._on_connected(event, now, effects)
        elif isinstance(event, EntityGone):
            self._on_gone(event, now, effects)
        elif isinstance(event, EntityRemembered):
            self._on_remembered(event, now, effects)
        self._run_due(now, effects)
        return effects

    # ------------------------------------------------------------------------------------------ events

    def _on_connected(self, event: EntityConnected, now: float, effects: list[AvailabilityEffect]) -> None:
        entity = self._entities.get(event.client_id) or self._admit(event.client_id, now, effects)
        if entity is None:
            return
        self._not_away(event.client_id, entity)
        entity.owner = event.owner or event.client_id
        entity.keep_alive_s = event.keep_alive_s
        entity.connected = True
        self._seen(entity, now)
        self._turn(event.client_id, entity, ONLINE, "connected", now)
        self._judge_silence(event.client_id, entity, now, effects)

    def _on_seen(self, event: EntitySeen, now: float, effects: list[AvailabilityEffect]) -> None:
        entity = self._entities.get(event.client_id)
        if entity is None or not entity.connected:
            return
        self._seen(entity, now)
        if entity.state == OFFLINE:  # silent beyond its keep-alive, but the connection held
            self._turn(event.client_id, entity, ONLINE, "seen again", now)
            self._judge_silence(event.client_id, entity, now, effects)

    def _on_gone(self, event: EntityGone, now: float, effects: list[AvailabilityEffect]) -> None:
        entity = self._entities.get(event.client_id)
        if entity is None:
            return
        entity.connected = False
        reason = event.reason or ("disconnected" if event.clean else "connection lost")
        self._turn(event.client_id, entity, OFFLINE, reason, now)
        self._judge_silence(event.client_id, entity, now, effects)

    def _on_remembered(self, event: EntityRemembered, now: float, effects: list[AvailabilityEffect]) -> None:
        if event.client_id in self._entities:
            return
        entity = self._admit(event.client_id, now, effects)
        if entity is None:
            return
        entity.state = ONLINE
        entity.since_ms, entity.seen_ms = event.since_ms, event.last_seen_ms
        entity.announced = now
        self._schedule_check(event.client_id, entity, now + self._rejoin_s)

    # ----------------------------------------------------------------------------------------- details

    def _seen(self, entity: _Entity, now: float) -> None:
        entity.last_seen, entity.seen_ms = now, self._wall.ms(now)

    def _admit(self, client_id: str, now: float, effects: list[AvailabilityEffect]) -> _Entity | None:
        """Makes a new entry, to be turned online. In a full table the oldest offline entity of the owner with most
        makes room, and its retained publication is cleared; None if no entity is offline.
        """
        if len(self._entities) >= self._max_entities:
            if not self._offline:
                effects.append(Count("availability_refused"))
                return None
            oldest = self._offline.oldest_of_most()
            self._not_away(oldest, self._entities.pop(oldest))
            topic = availability_topic(self._gateway, oldest, self._prefix)
            effects.append(Announce(Publication(topic, b"", qos=1, retain=True, time_ms=self._wall.ms(now))))
        entity = _Entity(OFFLINE, self._wall.ms(now), now, self._wall.ms(now), "", owner=client_id)
        self._entities[client_id] = entity
        return entity

    def _not_away(self, client_id: str, entity: _Entity) -> None:
        if client_id in self._offline.things_of(entity.owner):
            self._offline.drop_thing(entity.owner, client_id)

    def _turn(self, client_id: str, entity: _Entity, state: str, reason: str, now: float) -> None:
        if entity.state == state and entity.reason:
            return
        if entity.state != state:
            entity.since_ms = self._wall.ms(now)
        entity.state = state
        entity.reason = reason
        entity.dirty = True
        self._not_away(client_id, entity)
        if state == OFFLINE:
            self._offline.add(entity.owner, client_id)

    def _run_due(self, now: float, effects: list[AvailabilityEffect]) -> None:
        heap = self._heap
        while heap and heap[0][0] <= now:
            entry = heapq.heappop(heap)
            if self._current(entry):
                entity = self._entities[entry[1]]
                entity.due = None
                self._judge_silence(entry[1], entity, now, effects)

    def _judge_silence(self, client_id: str, entity: _Entity, now: float, effects: list[AvailabilityEffect]) -> None:
        """Judges silence, publishes changes as the pace allows, and plans the next check."""
        if now >= (silent := self._silent_at(entity)):
            if entity.connected:
                self._turn(client_id, entity, OFFLINE, "keep alive exceeded", silent)
            else:
                self._turn(client_id, entity, OFFLINE, "not back after restart", now)
        refresh = entity.state == ONLINE and now >= entity.announced + self._refresh_s
        if (entity.dirty or refresh) and now >= entity.announced + self._settle_s:
            effects.append(Announce(self._publication(client_id, entity, now)))
            entity.dirty = False
            entity.announced = now
        if entity.dirty:
            self._schedule_check(client_id, entity, entity.announced + self._settle_s)
        elif entity.state == ONLINE:
            self._schedule_check(client_id, entity, min(self._silent_at(entity), entity.announced + self._refresh_s))

    def _silent_at(self, entity: _Entity) -> float:
        if not entity.connected:
            return entity.announced + self._rejoin_s
        if not entity.keep_alive_s:
            return float("inf")
        return entity.last_seen + KEEP_ALIVE_FACTOR * entity.keep_alive_s

    def _publication(self, client_id: str, entity: _Entity, now: float) -> Publication:
        body = {
            "state": entity.state,
            "since": entity.since_ms,
            "last_seen": entity.seen_ms,
            "reason": entity.reason,
            "entity": client_id,
            "gateway": self._gateway,
        }
        return Publication(
            availability_topic(self._gateway, client_id, self._prefix),
            json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(),
            qos=1,
            retain=True,
            content_type="application/json",
            payload_format=1,
            time_ms=self._wall.ms(now),
        )

    def _schedule_check(self, client_id: str, entity: _Entity, due: float) -> None:
        if entity.due is not None and entity.due <= due:
            return  # an earlier check is planned, and plans the next
        entity.due = due
        heapq.heappush(self._heap, (due, client_id))
        if len(self._heap) > 4 * len(self._entities) + 64:  # stale entries do not pile up
            self._heap = [(e.due, name) for name, e in self._entities.items() if e.due is not None]
            heapq.heapify(self._heap)

    def _current(self, entry: tuple[float, str]) -> bool:
        entity = self._entities.get(entry[1])
        return entity is not None and entity.due == entry[0]
