"""A broker that traces: its discovery node and its tracer, fed by what local clients publish on constrained topics.

The broker asks whether a client may publish or subscribe on a constrained topic, in whatever spelling (`admit`), and
hands over what was published there (`take_accepted`, `take_arrival`). Unchanged devices are traced by what else
clients do (`entity_event`, `willed`). Everything the machines say leaves as the broker's own publication. Not here:
rules of topics (`bridge.document.constrained`), tracing (`bridge.traces.tracer`, `bridge.devices.device_tracing`),
discovery (`bridge.tracking.discovery`), files (`store`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from bridge.base import TopicError
from bridge.contract import Count, Publication, Tick
from bridge.devices import (
    Command,
    Consult,
    DeviceEvent,
    DeviceTracer,
    DeviceTracingEffect,
    ForgetDevice,
    Knows,
    Published,
    RetainedBefore,
    Show,
)
from bridge.document import Actions, Constrained, OwnTopics, constrained
from bridge.traces import (
    ADVERTISEMENTS,
    CREATION_TOPIC,
    DISCOVERY_TOPIC,
    REGISTRATION_TOPIC,
    Alert,
    AskThere,
    ClientGone,
    Complain,
    EntityEvent,
    EntityGone,
    Fleet,
    Interested,
    Registered,
    Registering,
    Relayed,
    ReportEffect,
    Reporter,
    Resumed,
    SendAway,
    Spoke,
    Stood,
    Summary,
    Tracer,
    TraceReport,
    TracingEffect,
    TracingEvent,
    advertisement_topic,
)
from bridge.traces.tracer import Say
from bridge.tracking import Asked, DiscoveryEffect, DiscoveryNode, Heard, RegistrationQueue, ShareAdvertisement
from gateway.base import Clock, Figures, behind_reads
from gateway.base.log_events import LogEvent
from gateway.mqtt5.packets import Publish, Will
from gateway.tracing.other_witnesses import OtherWitnesses
from gateway.tracing.store import TraceStore
from gateway.tracing.writing import TraceWriter

log = logging.getLogger("veilmq.traces")

REMEMBER_S = 1.0  # between two looks at what is to be kept
TICK_S = 0.005  # the pause between two looks at what is due: thousands of entities would set a timer for each ping
TOPIC_MAX_BYTES = 65_535  # the canonical spelling is longer than what a client wrote (MQTT 5, section 1.5.4)


class Publishes(Protocol):
    """The services a tracing broker needs of the broker around it."""

    def ping(self, topic: str, payload: bytes) -> None:
        """Publish as the broker itself to local clients, QoS 0: said to each entity every second."""
        ...

    def publish_statement(self, topic: str, payload: bytes, qos: int, *, stays_here: bool) -> None:
        """Publish as the broker itself: to local clients and, unless it stays here, into the overlay."""
        ...

    def show(self, topic: str, payload: bytes) -> None:
        """Publish to local clients only, retained."""
        ...

    def advertise(self, topic: str, payload: bytes, life_s: int) -> None:
        """Publish into the overlay only, retained there for so long."""
        ...

    def listens(self, topic: str) -> bool:
        """Returns True if anybody may hear publications on this topic, here or across the overlay."""
        ...

    def retained_statements(self, topic_filter: str) -> Iterable[tuple[str, bytes]]:
        """Gives topics and payloads of what is retained here a filter matches."""
        ...

    def probe_host(self, client_id: str, within_s: float) -> None:
        """Have the system notice within so long that a client's machine is gone."""
        ...

    def send_away(self, client_id: str, why: str) -> None:
        """Disconnect a client."""
        ...


class Tracing:
    """The tracing of a broker.

    `node` None: others are discovery nodes. `devices` None: unchanged devices are not traced. `reporter`: the
    machines'.
    """

    def __init__(
        self,
        tracer: Tracer,
        node: DiscoveryNode | None,
        store: TraceStore | None,
        count: Callable[[Count], None],
        clock: Clock | None = None,
        devices: DeviceTracer | None = None,
        reporter: Reporter | None = None,
        detect_within_s: float = 10.0,
        fleet: Fleet | None = None,
        caller: Callable[[bytes, str], object] = lambda alert, group: None,
        others: OtherWitnesses | None = None,
    ) -> None:
        self._others = others
        self._fleet, self._call = fleet, caller
        self._detect_within_s = detect_within_s
        self._tracer, self._node, self._store, self._devices = tracer, node, store, devices
        self._writer = None if store is None else TraceWriter(store, partial(LogEvent.TRACES_NOT_KEPT.say, log))
        self._reporter = reporter
        self._more_counts, self._clock = count, clock or Clock()
        self._broker: Publishes | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._is_awake = False  # a tick is on its way
        self._speaking = False
        self._remember_at = 0.0
        self.figures = Figures("", "tracing")
        self._admission = RegistrationQueue()
        self._is_admitting = False

    def guard_topics(self, own: OwnTopics) -> None:
        """Say where nobody but us publishes."""
        for each in (self._reporter, self._devices, self._fleet):
            if each is not None:
                each.reserve_topics(own)

    def start(self, broker: Publishes) -> None:
        """Take up what is kept; the broker serves already."""
        self._broker = broker
        self._tracer.listens = lambda topic: broker.listens(topic)  # noqa: PLW0108  one that is never asked need not say
        if self._node is not None and self._store is not None:
            self._node.restore(self._store.advertisements(self._clock.wall.ms(self._clock())))
        if self._others is not None:
            self._others.start(self._others_changed, lambda session, data: self._trace(Relayed(session, data)))
        if self._store is not None:
            self._perform_effects(self._tracer.restore(self._store.remembered(), self._clock()))
            self._set_timer()
        if self._devices is not None:
            self._perform_effects(self._devices.restore(self._clock(), broker.retained_statements))
            self._set_timer()

    def ending(self) -> None:
        """The broker is about to stop; its clients are still there."""
        if self._broker is not None and self._devices is not None:
            self._perform_effects(self._devices.ending(self._clock()))

    def stop(self) -> None:
        self._broker = None
        if self._others is not None:
            self._others.stop()
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is not None:
            self._remember()
            self._writer.close()

    def _others_changed(self, up: int) -> None:
        self._tracer.self_health.others = up

    def gauges(self) -> dict[str, int | float]:
        """Returns the present values for operators."""
        devices = 0 if self._devices is None else len(self._devices)
        return {"entities": len(self._tracer), "devices": devices, "self_health": self._tracer.self_health.score}

    def fleet_view(self, group: str, limit: int) -> dict[str, object]:
        """Returns the entities of a group, of all for "" (`Fleet.view`); empty without `traces.fleet`."""
        return {} if self._fleet is None else self._fleet.view(group, limit, self._clock())

    def _count_effect(self, effect: Count) -> None:
        self.figures.count_effect(effect)
        self._more_counts(effect)

    def __len__(self) -> int:
        """Entities and devices that are traced here."""
        return len(self._tracer) + (0 if self._devices is None else len(self._devices))

    # -------------------------------------------------------------------------------------- from local clients

    def admit(self, topic: str, client_id: str, *, publishes: bool) -> tuple[str, bool]:
        """The spelling under which a name or filter (share prefix stripped) is routed, and whether the client may.

        Every topic that is not constrained stays as it is, and is no business of ours.
        """
        try:
            parsed, name = constrained.spelled(topic)
        except TopicError:
            return topic, False
        if parsed is None:
            return topic, True
        if len(name.encode()) > TOPIC_MAX_BYTES:
            return topic, False
        may = parsed.may_publish if publishes else parsed.may_subscribe
        permitted = may(client_id, is_broker=False)
        if not permitted:
            self._count_effect(Count("constrained_refused", 1, "publish" if publishes else "subscribe"))
        return name, permitted

    def publishing(self, client_id: str, publish: Publish) -> bool:
        """Returns True if the client may publish this; the PUBLISH, acknowledged as this object, gets the routed
        spelling.
        """
        publish.topic, may = self.admit(publish.topic, client_id, publishes=True)
        return may

    def willing(self, client_id: str, will: Will) -> tuple[Will, bool]:
        """A client's will in the routed spelling, and whether it may be published. It is routed, and not heard: nobody
        registers by a will."""
        name, may = self.admit(will.topic, client_id, publishes=True)
        return (will if name == will.topic else replace(will, topic=name)), may

    def take_plain(self, client_id: str, publish: Publish) -> bool:
        """The short way of what entities answer: a QoS 0 PUBLISH that would go through `publishing` and
        `take_accepted` with the same outcome. For the very names the tracer gave to its entities, in their a single
        spelling: on these everybody may publish, and nobody but the tracer hears it, who believes what opens under the
        session's key.
        """
        session = self._tracer.session_at(publish.topic)
        if session is None:
            return False
        if self._devices is not None:
            self._watch(Knows(client_id))
        self._trace(Spoke(client_id, session, publish.payload))
        return True

    def take_accepted(self, client_id: str, publish: Publish) -> bool:
        """A client's PUBLISH that is accepted. True: it was said to the broker, and nobody else may hear it."""
        if not publish.topic.startswith(constrained.CANONICAL):
            self._watch(Published(client_id, publish.topic, publish.payload))
            return False
        self._watch(Knows(client_id))
        topic, name = constrained.spelled(publish.topic)  # whether it may be was just asked
        if topic is None:
            return False
        self._published(client_id, topic, name, publish.payload)
        return topic.stays_here and topic.constrainer == constrained.BROKER and topic.actions is Actions.SUBSCRIBE

    def willed(self, client_id: str, will: Will) -> None:
        """A client's will that is published."""
        self._watch(Published(client_id, will.topic, will.payload, will=True))

    def _published(self, client_id: str, topic: Constrained, name: str, payload: bytes) -> None:
        """A publication on a constrained topic, canonically `name`, that `client_id` was allowed to make."""
        if name == REGISTRATION_TOPIC:
            if self._admission.arrives(client_id, payload):
                self._trace(Registering(client_id, payload))
            elif not self._is_admitting:
                self._is_admitting = True
                asyncio.get_running_loop().call_soon(self._admit)
        elif name in (CREATION_TOPIC, DISCOVERY_TOPIC):
            if self._node is not None:
                self._perform_discovery(self._node.handle(Asked(client_id, payload), self._clock()))
        elif topic.event_type == constrained.TRACES and len(topic.suffixes) == 2:
            first, second = (_hex(suffix) for suffix in topic.suffixes)
            if first is not None and topic.suffixes[1] == "Interest":
                self._interested(Interested(client_id, first, payload))
            elif second is not None:
                self._trace(Spoke(client_id, second, payload))

    def entity_event(self, event: EntityEvent) -> None:
        """Takes an event of a local client."""
        if isinstance(event, EntityGone):
            self._admission.gone(event.client_id)
            self._trace(ClientGone(event.client_id, event.clean))
        self._watch(event)

    # --------------------------------------------------------------------------------------- from other brokers

    def take_arrival(self, publication: Publication) -> bool:
        """Takes a publication of another broker across the overlay. Returns True for an advertisement, which no client
        may hear.
        """
        if self._speaking or not publication.topic.startswith(constrained.CANONICAL):
            return False
        try:
            topic = constrained.parse(publication.topic)
        except TopicError:
            return True
        if topic is None or len(topic.suffixes) != 2:
            return False
        first, second = topic.suffixes
        if first == ADVERTISEMENTS:
            if self._node is not None:
                self._perform_effects(self._node.handle(Heard(publication.payload), self._clock()))
            return True
        uuid = _hex(first)
        if uuid is not None and second == "Interest":
            self._interested(Interested("", uuid, publication.payload))
        return False

    # ------------------------------------------------------------------------------------------ the machines

    def _trace(self, event: TracingEvent) -> None:
        now = self._clock()
        self._perform_effects(self._tracer.handle(event, now))
        if self._timer is None or self._due > now + TICK_S:  # else a tick comes before anybody's turn could
            self._set_timer()

    def _admit(self) -> None:
        """A few of those who wait to be registered, once in each turn of the event loop."""
        self._is_admitting = False
        if self._broker is None:
            return
        for client, data in self._admission.turn():
            self._trace(Registering(client, data))
        if len(self._admission):
            self._is_admitting = True
            asyncio.get_running_loop().call_soon(self._admit)

    def _watch(self, event: DeviceEvent | Interested) -> None:
        if self._devices is not None:
            self._perform_effects(self._devices.handle(event, self._clock()))
            self._set_timer()

    def _interested(self, event: Interested) -> None:
        self._trace(event)
        self._watch(event)

    def _perform_discovery(self, effects: Sequence[DiscoveryEffect]) -> None:
        """Performs effects of a question. An entity learns of its new topic when that is on disk: the topic outlives
        a kill.
        """
        shared = [effect for effect in effects if isinstance(effect, ShareAdvertisement)]
        if self._writer is None or not shared:
            self._perform_effects(effects)
            return
        self._perform_effects(shared)
        self._writer.when_written(
            lambda: self._perform_effects(
                [effect for effect in effects if effect not in shared] if self._broker else ()
            )
        )

    def _perform_effects(
        self, effects: Iterable[TracingEffect | DiscoveryEffect | DeviceTracingEffect | ReportEffect]
    ) -> None:
        assert self._broker is not None, "start first"
        for effect in effects:
            match effect:
                case Say(topic, payload, 0):
                    self._broker.ping(topic, payload)
                case Say(topic, payload, qos):
                    self._publish_statement(topic, payload, qos, constrained.stays_here(topic))
                case AskThere():
                    if self._others is not None:
                        self._others.ask_witnesses(effect)
                case Stood():
                    if self._fleet is not None:
                        self._show(self._fleet.stood(effect, self._clock()))
                case TraceReport(topic, payload):
                    self._broker.publish_statement(topic, payload, 1, stays_here=False)
                case SendAway(client, why):
                    LogEvent.TRACE_SENT_AWAY.say(log, client, why)
                    self._broker.send_away(client, why)
                case Complain(client, why):
                    LogEvent.TRACE_REFUSED.say(log, client, why)
                case ShareAdvertisement(advertisement):
                    if self._writer is not None:
                        self._writer.keep_advertisement(advertisement)
                    life_s = (advertisement.not_after_ms - advertisement.created_ms) // 1000
                    self._broker.advertise(advertisement_topic(advertisement.topic), advertisement.encode(), life_s)
                case Resumed(client):
                    self._broker.probe_host(client, self._detect_within_s)
                case Registered():
                    self._broker.probe_host(effect.client, self._detect_within_s)
                    if self._node is not None:
                        self._perform_effects(self._node.handle(effect, self._clock()))
                case Command(topic, payload):
                    self._broker.ping(topic, payload)
                case Show(topic, payload):
                    self._broker.show(topic, payload)
                case Consult(device, topics):
                    for topic, payload in [each for one in topics for each in self._broker.retained_statements(one)]:
                        self._watch(RetainedBefore(topic, payload, device))
                case ForgetDevice(topic):
                    if self._writer is not None:
                        self._writer.forget_topic(topic)
                case Count():
                    self._count_effect(effect)

    def _show(self, effects: Iterable[Summary | Alert]) -> None:
        assert self._broker is not None
        for effect in effects:
            if isinstance(effect, Summary):
                self._broker.show(effect.topic, effect.payload)
            else:
                self._broker.publish_statement(effect.topic, effect.payload, 1, stays_here=True)
                self._call(effect.payload, effect.topic)

    def _publish_statement(self, topic: str, payload: bytes, qos: int, stays_here: bool) -> None:
        assert self._broker is not None
        self._speaking = True  # what we say ourselves is no news to us
        try:
            self._broker.publish_statement(topic, payload, qos, stays_here=stays_here)
        finally:
            self._speaking = False

    def _set_timer(self) -> None:
        """A timer and no more: a tick that is on its way sets the next one."""
        if self._is_awake:
            return
        machines = (self._tracer, self._devices, self._reporter, self._fleet)
        dues = [each.next_deadline for each in machines if each is not None]
        deadline = min((due for due in dues if due is not None), default=None)
        if deadline is None or (self._timer is not None and self._due <= deadline):
            return  # the usual case: nobody's turn comes sooner; a tick that finds nothing due costs little
        if self._timer is not None:
            self._timer.cancel()
        self._due = deadline
        delay_s = max(TICK_S, deadline - self._clock())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _wake(self) -> None:
        """Something is due. Before anybody is judged whatever can be read is read: in the turn of the event loop
        beginning behind this one, wherever in a turn that loop looks at its timers.
        """
        now = self._clock()
        self._timer, self._is_awake = None, True
        behind_reads(lambda: self._advance_machines(now))

    def _advance_machines(self, now: float) -> None:
        """Advances the machines to `now`, after all that could be read was heard."""
        self._is_awake = False
        if self._broker is None:
            return
        if self._reporter is not None:
            self._perform_effects(self._reporter.due_reports(now))
        if self._fleet is not None:
            self._show(self._fleet.due_alerts(now))
        self._perform_effects(self._tracer.handle(Tick(), now))
        if self._devices is not None:
            self._perform_effects(self._devices.handle(Tick(), now))
        if self._writer is not None and now >= self._remember_at:
            self._remember_at = now + REMEMBER_S
            self._remember()
        self._set_timer()

    def _remember(self) -> None:
        records = self._tracer.records()
        if records and self._writer is not None:
            self._writer.remember(records)


def _hex(level: str) -> bytes | None:
    try:
        found = bytes.fromhex(level.replace("-", ""))
    except ValueError:
        return None
    return found if len(found) == 16 else None
