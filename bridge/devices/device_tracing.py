"""The gateway traces its unchanged devices: trace topics that it owns, tokens, traces, dashboards (B1, B4, B6, B7).

For each device of `devices` the gateway makes a trace topic, named `OWNER:DEVICE` after the credentials that own it,
and speaks on it as the broker of an entity does on the entity's (`telling`): trackers see no difference. Who may
discover the topics is the configuration's word. New topics are made at a bounded pace; until its turn comes a device
is known and not told of. Where nobody answers, interest is asked for less and less often. Not here: what is true of a
device (`life_evidence`), whom is believed (`speaking`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.base import Turns, Wall
from bridge.contract import Budget, Count
from bridge.devices.dashboards import DASHBOARDS, Dashboards, Show
from bridge.devices.devices import Devices
from bridge.devices.events import (
    Command,
    Consult,
    DeviceEffect,
    DeviceEvent,
    Remembered,
    Removed,
    Retained,
    RetainedBefore,
    Tell,
)
from bridge.devices.life_evidence import DeviceHealth
from bridge.devices.sparkplug import CERTIFICATES, NAMESPACE, state
from bridge.document import OwnTopics
from bridge.traces import (
    Complain,
    Interest,
    Interested,
    Offenders,
    Reporter,
    SendAway,
    Stood,
    TraceKind,
    TraceReport,
    Voice,
    interest_of,
)
from bridge.traces.telling import Say
from bridge.tracking import DiscoveryNode, ShareAdvertisement, entity_of
from keys.delegation import Advertisement, Delegated, Token
from keys.errors import KeysError, TooOften
from keys.identity import Certificate, Identity

TOPIC_LIFE_S = 7 * 24 * 3600
TOPIC_LEFT_S = 5.0  # of a topic's life when the next one is made: trackers ask at its end
TOPICS_PER_S, TOPICS_BURST = 20.0, 2_000.0  # new trace topics: each is signed, stored and told to other nodes
TOPICS_AT_ONCE, TOPICS_PAUSE_S = 1, 0.0025  # of them in one turn, a millisecond or two of signing; others have as long
TOKEN_LIFE_S = 600.0
RESTORED_PER_S = 200.0  # devices whose trackers are asked anew after a restart
_HEALTH = {
    TraceKind.JOIN: DeviceHealth.ALIVE, TraceKind.ALLS_WELL: DeviceHealth.ALIVE,
    TraceKind.FAILURE_SUSPICION: DeviceHealth.SUSPECTED,
    TraceKind.FAILED: DeviceHealth.FAILED, TraceKind.DISCONNECT: DeviceHealth.GONE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Owner:
    """In whose name trace topics are made: credentials of an entity. `discoverers`: who may learn the topics."""

    identity: Identity = field(repr=False)
    certificate: Certificate
    discoverers: tuple[str, ...] = ()

    def entity(self, device: str) -> str:
        """Returns the name of a device for trackers."""
        return f"{self.certificate.name}:{device}"


@dataclass(frozen=True, slots=True)
class ForgetDevice:
    """Remove a trace topic from disk."""

    topic: bytes = field(repr=False)


DeviceTracingEffect: TypeAlias = (
    Say
    | Stood
    | ShareAdvertisement
    | Show
    | Consult
    | ForgetDevice
    | TraceReport
    | Complain
    | SendAway
    | Command
    | Count
)


@dataclass(slots=True)
class _Voiced:
    """A device that is told of."""

    voice: Voice
    holder: Identity = field(repr=False)
    due: float
    health: DeviceHealth | None = None
    since_ms: int = 0
    why: str = ""


class DeviceTracer:
    """A gateway. `node`: its discovery node; `authority`: who certifies trackers; `random`: fresh secret bytes."""

    def __init__(
        self, devices: Devices, owner: Owner, node: DiscoveryNode, authority: bytes, random: Callable[[int], bytes],
        dashboards: Dashboards | None = None, reporter: Reporter | None = None, wall: Wall | None = None,
        offenders: Offenders | None = None,
    ) -> None:  # fmt: skip
        self._wall, self._offenders = wall or Wall(), offenders or Offenders()
        self._devices, self._owner, self._node = devices, owner, node
        self._authority, self._random = authority, random
        self._dashboards, self._reporter = dashboards or Dashboards(()), reporter
        self._host = devices.sparkplug_host
        self._voiced: dict[str, _Voiced] = {}
        self._topics: dict[bytes, str] = {}  # devices by trace topic
        self._waiting = Turns()  # devices without a topic
        self._heap: list[tuple[float, str]] = []  # when interest is asked for
        self._budget: Budget | None = None
        self._turn: float | None = None  # of the next device that waits

    def __len__(self) -> int:
        """Devices that are told of."""
        return len(self._voiced)

    def reserve_topics(self, own: OwnTopics) -> None:
        """Say where nobody but us publishes."""
        self._dashboards.reserve_topics(own)
        if self._host:
            own.add_shown(CERTIFICATES, f"{NAMESPACE}/STATE/{self._host}")

    @property
    def next_deadline(self) -> float | None:
        while self._heap and not self._current(self._heap[0]):
            heapq.heappop(self._heap)
        dues = [self._devices.next_deadline, self._heap[0][0] if self._heap else None, self._turn]
        return min((due for due in dues if due is not None), default=None)

    def restore(self, now: float, kept: Retained = lambda topic_filter: ()) -> list[DeviceTracingEffect]:
        """Takes up the topics of before a restart. What the configuration says otherwise by now ends. `kept`: what is
        retained a filter matches: documents and words of before.
        """
        effects: list[DeviceTracingEffect] = []
        if self._host:
            effects.append(Show(*state(self._host, True, self._wall.ms(now))))
        effects += self._dashboards.here()
        unwanted = Dashboards(tuple(kind for kind in DASHBOARDS if kind not in self._dashboards.kinds))
        for place, advertisement in enumerate(self._node.owned_by(self._owner.certificate)):
            entity = entity_of(advertisement.descriptor) or ""
            device = entity.removeprefix(self._owner.entity(""))
            as_now = (
                advertisement.discoverers == self._owner.discoverers and self._wall.ms(now) < advertisement.not_after_ms
            )
            if as_now and device != entity and device not in self._voiced:
                effects += self._take_effects(self._devices.handle(Remembered(device), now), now)
                effects += unwanted.clear_entity(entity)
                if self._devices.device(device) is not None:
                    self._speak(device, advertisement, now, now + place / RESTORED_PER_S)
                    continue
            if device != entity and device not in self._voiced:  # it may never come back to be shown otherwise
                effects += Dashboards(DASHBOARDS).clear_entity(entity)
            self._node.forget_topic(advertisement.topic)
            effects.append(ForgetDevice(advertisement.topic))
        for topic, payload in self._devices.evidence_of(kept):
            effects += self._take_effects(self._devices.handle(RetainedBefore(topic, payload), now), now)
        return effects

    def ending(self, now: float) -> list[Show]:
        """We stop: a host application says so while its nodes still hear it."""
        return [Show(*state(self._host, False, self._wall.ms(now)))] if self._host else []

    def handle(self, event: DeviceEvent | Interested, now: float) -> list[DeviceTracingEffect]:
        """Effects in the order in which they must happen."""
        effects: list[DeviceTracingEffect] = []
        if isinstance(event, Interested):
            effects += self._interested(event, now)
        else:
            effects += self._take_effects(self._devices.handle(event, now), now)
        made = 0
        while self._waiting and made < TOPICS_AT_ONCE and self._affords(now):
            effects += self._catch_up(self._waiting.take_name(), now)
            made += 1
        pause_s = TOPICS_PAUSE_S if made == TOPICS_AT_ONCE else 1 / TOPICS_PER_S
        self._turn = now + pause_s if self._waiting else None
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._current(entry):
                effects += self._gauge(entry[1], now)
        return effects

    # --------------------------------------------------------------------------------------------- telling

    def _take_effects(self, told: Sequence[DeviceEffect], now: float) -> list[DeviceTracingEffect]:
        effects: list[DeviceTracingEffect] = []
        for each in told:
            match each:
                case Tell():
                    effects += self._tell_device(each, now)
                case Removed(device):
                    effects += self._removed(device, now)
                case Count() | Command() | Show() | Consult():
                    effects.append(each)
        return effects

    def _tell_device(self, what: Tell, now: float) -> list[DeviceTracingEffect]:
        voiced = self._voiced.get(what.device)
        if voiced is None:
            known = self._devices.device(what.device)
            link = known.evidence.link if known is not None else None
            self._waiting.add(what.device, link.origin if link is not None else b"")
            return []  # told when it is its turn
        effects = self._renewed(what.device, voiced, now)
        voiced = self._voiced[what.device]
        to = Interest.CHANGES if what.change else interest_of(what.kind)
        fields = what.fields
        if to in (Interest.CHANGES, Interest.STATES):
            voiced.voice.set_state(to, what.kind, fields, now)
            since = {**fields, "since_ms": self._wall.ms(now)}
            effects += self._show(what.device, voiced, what.kind, since)
        return [*effects, *voiced.voice.tell_trace(what.kind, fields, now, to=to)]

    def _show(self, device: str, voiced: _Voiced, kind: TraceKind, fields: Mapping[str, object]) -> list[Show]:
        if kind in _HEALTH:
            voiced.health, voiced.since_ms = _HEALTH[kind], int(str(fields["since_ms"]))
            voiced.why = str(fields.get("why", ""))
        known = self._devices.device(device)
        if voiced.health is None or known is None:
            return []
        state = known.state
        return self._dashboards.show(self._owner.entity(device), voiced.health, state, voiced.since_ms, voiced.why)

    def _removed(self, device: str, now: float) -> list[DeviceTracingEffect]:
        self._waiting.drop_name(device)
        voiced = self._voiced.get(device)
        if voiced is None:
            return []
        effects = self._renewed(device, voiced, now)
        voiced = self._voiced.pop(device)
        effects += voiced.voice.tell_trace(TraceKind.REVERTING_TO_SILENT_MODE, {}, now)
        effects += [*self._dashboards.clear_entity(self._owner.entity(device)), ForgetDevice(voiced.voice.topic)]
        del self._topics[voiced.voice.topic]
        self._node.forget_topic(voiced.voice.topic)
        return effects

    def _interested(self, event: Interested, now: float) -> list[DeviceTracingEffect]:
        """A tracker's answer; what does not hold is counted."""
        device = self._topics.get(event.topic)
        if device is None:
            return []
        voiced = self._voiced[device]
        effects = self._renewed(device, voiced, now)
        voiced = self._voiced[device]
        try:
            if not voiced.voice.knows_wish(event.data):
                self._offenders.afford(event.client, "interest", now)
            effects += voiced.voice.take_interest(event.data, self._authority, now)
        except TooOften as error:
            return [*effects, Count("traces_refused", 1, type(error).__name__)]
        except KeysError as error:
            return [*effects, *self._offenders.charge(event.client, "traces_refused", error)]
        if voiced.voice.audience.gauge_at < voiced.due:
            self._ask_at(device, voiced, voiced.voice.audience.gauge_at, now)
        return effects

    def _gauge(self, device: str, now: float) -> list[DeviceTracingEffect]:
        voiced = self._voiced[device]
        effects = self._renewed(device, voiced, now)
        voiced = self._voiced[device]
        effects += voiced.voice.gauge(now)
        known = self._devices.device(device)
        if known is not None and voiced.health is not None:  # what is not said anew expires (`dashboards`)
            state_now, entity = known.state, self._owner.entity(device)
            effects += self._dashboards.show(entity, voiced.health, state_now, voiced.since_ms, voiced.why)
        self._ask_at(device, voiced, voiced.voice.audience.gauge_at, now)
        return effects

    # ---------------------------------------------------------------------------------------------- topics

    def _affords(self, now: float) -> bool:
        self._budget = self._budget or Budget(TOPICS_PER_S, TOPICS_BURST, now)
        if not self._budget.has_tokens(now):
            return False
        self._budget.spend(1.0, now)
        return True

    def _catch_up(self, device: str, now: float) -> list[DeviceTracingEffect]:
        """A trace topic for a device that is known already, and how it stands."""
        known = self._devices.anew(device)
        effects = self._made(device, now) if known else []
        return effects + [effect for each in known for effect in self._tell_device(each, now)]

    def _made(self, device: str, now: float) -> list[DeviceTracingEffect]:
        owner, entity = self._owner, self._owner.entity(device)
        made = self._node.make(owner.certificate, entity, owner.discoverers, TOPIC_LIFE_S, self._wall.ms(now))
        former = self._voiced.get(device)
        self._speak(device, made, now, now)
        effects = [ShareAdvertisement(made), Count("trace_topics"), *self._renewed(device, self._voiced[device], now)]
        if former is None:
            return effects
        self._node.forget_topic(former.voice.topic)
        return [*effects, ForgetDevice(former.voice.topic)]

    def _speak(self, device: str, advertisement: Advertisement, now: float, gauge_at: float) -> None:
        before = self._voiced.get(device)
        voice = Voice(advertisement, self._random, now, self._reporter, self._wall)
        holder = Identity.generate(self._random(32))
        voiced = self._voiced[device] = _Voiced(voice, holder, gauge_at)
        if before is not None:
            del self._topics[before.voice.topic]
            voice.inherit(before.voice)
            voiced.health, voiced.since_ms, voiced.why = before.health, before.since_ms, before.why
        self._topics[advertisement.topic] = device
        self._ask_at(device, voiced, gauge_at, now)

    def _renewed(self, device: str, voiced: _Voiced, now: float) -> list[DeviceTracingEffect]:
        """A new topic and a new token in time; a token is signed when there is something to say only."""
        effects: list[DeviceTracingEffect] = []
        now_ms = self._wall.ms(now)
        if now_ms + int(TOPIC_LEFT_S * 1000) >= voiced.voice.advertisement.not_after_ms:
            return self._made(device, now)
        token = voiced.voice.token
        if token is None or now_ms + int(TOKEN_LIFE_S * 500) >= token.not_after_ms:
            end_ms = now_ms + int(TOKEN_LIFE_S * 1000)
            topic, holder = voiced.voice.topic, voiced.holder
            made = Token(topic, holder.public_bytes, Delegated.PUBLISH, now_ms, end_ms).signed(self._owner.identity)
            voiced.voice.authorise(made, holder)
        return effects

    def _ask_at(self, device: str, voiced: _Voiced, due: float, now: float) -> None:
        voiced.voice.audience.gauge_at = due
        ends_at = self._wall.moment_of(voiced.voice.advertisement.not_after_ms) - TOPIC_LEFT_S
        voiced.due = min(due, ends_at) if now < ends_at else due
        heapq.heappush(self._heap, (voiced.due, device))
        if len(self._heap) > 4 * len(self._voiced) + 64:  # stale entries do not pile up
            self._heap = [entry for entry in self._heap if self._current(entry)]
            heapq.heapify(self._heap)

    def _current(self, entry: tuple[float, str]) -> bool:
        voiced = self._voiced.get(entry[1])
        return voiced is not None and voiced.due == entry[0]
