"""Data plane between connections: publish, retain, acknowledgements, members.

amqtt's plugins decide on rights (`plugin.PluginHost`), `delivery.py` finds receivers. A method returning a coroutine
(`Later`) could not finish without waiting; the connection then holds back all later packets. Not here: waits for
receivers (`holding.py`), SUBSCRIBE (`subscribing.py`), wills (`wills.py`), CONNECT and the end of sessions
(`lifecycle.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from amqtt.events import BrokerEvents, MQTTEvents

from bridge.base import check_name
from bridge.contract import Publication, is_bare
from bridge.document import OwnTopics
from gateway.base import RECEIPTS_ROOT, TURN_S, Limits
from gateway.base.followed import FollowedMessages
from gateway.base.log_events import LogEvent
from gateway.base.spans import PublicationSpans
from gateway.broker import followed_clients
from gateway.broker import member_sessions as members
from gateway.broker.delivery import ClientDelivery
from gateway.broker.holding import Backlog
from gateway.broker.offering import offer_for, offer_run
from gateway.broker.session_shares import owner_of
from gateway.clients import (
    FINAL_REFUSALS,
    INTERNAL,
    Client,
    ClientConnection,
    Constraining,
    EdgeRetained,
    EntityEvent,
    EntitySeen,
    OverlayPort,
    OwedAck,
    Past,
    RetainedStore,
    SharedName,
    StoreFullError,
    Undecided,
    message_of,
    publication_of,
    without_reserved,
)
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import NO_PROPERTIES, Packet, Publish, Version
from gateway.mqtt5.session import Action as SessionAction
from gateway.mqtt5.session import Close
from gateway.mqtt5.types import ReasonCode
from gateway.plugins import Action, EdgeSession, PacketView, PluginHost, application_message
from gateway.sockets.audit import Audit
from gateway.sockets.flushing import UNACKNOWLEDGED, Later, Waiting
from gateway.sockets.held_actions import is_plain

if TYPE_CHECKING:
    from gateway.history import LocalHistory
    from gateway.sessions import SessionStore

log = logging.getLogger("veilmq.clients")

RESERVED_TOPICS = ("$SYS/", RECEIPTS_ROOT)
"""Topics below which only the broker itself publishes, and on these names, which filters of all below match, too."""
SEEN_INTERVAL_S = 1.0
"""Seconds between two `EntitySeen` of one client, at least."""
ASK_S = 30.0
"""Seconds that a plugin has to decide if a client may publish. After them the client's connection ends, and the client
repeats the publication. Stops a plugin that hangs from silencing a client for ever.
"""
SYSTEM_TOPICS, SYSTEM_BYTES = 10_000, 16 << 20
"""Stops a plugin of amqtt that invents names below `$SYS/` from filling memory."""


OFFERED_MAX = 128
"""Publications of a client that are offered to the overlay before the time is looked at. Stops a read of many small
ones from keeping others waiting.
"""


def is_reserved(topic: str) -> bool:
    """Returns True if only the broker itself publishes on a topic."""
    return topic[:1] == "$" and f"{topic}/".startswith(RESERVED_TOPICS)


class Exchange:
    """Router of publications between clients. A thread, the event loop's."""

    def __init__(self, host: PluginHost, limits: Limits, now: Callable[[], float]) -> None:
        self.delivery = ClientDelivery(host, limits, now)
        self.host, self.now, self.holding = host, now, self.delivery.holding
        self.reached, self.traffic, self.turns = self.delivery.reached, self.delivery.traffic, self.delivery.turns
        self.audit = Audit(now)
        self.overlay: OverlayPort | None = None
        self.history: LocalHistory | None = None  # of a broker without overlay
        self.watchers: list[Callable[[EntityEvent], None]] = []
        self.tracing: Constraining | None = None  # constrained topics; None: they are ordinary ones
        self.own_topics = OwnTopics()  # besides topics below RESERVED_TOPICS
        self.retained = RetainedStore(limits.retained_messages, limits.retained_bytes)
        self.retained.full = self.reached.note_bound
        # Messages of the broker and its plugins below `$SYS/`: with bounds of their own, and not stored.
        self.system = RetainedStore(SYSTEM_TOPICS, SYSTEM_BYTES)
        # Store of persistent sessions and retained messages; None: in memory only.
        self.store: SessionStore | None = None
        # Runs, in order, unfinished work without a connection to hold back. False: there is no room for it.
        self.in_order: Callable[[Later], bool] = _no_queue
        # Wills that a plugin has not yet allowed or refused, by client.
        self.undecided: dict[str, list[Undecided]] = {}
        self.spans: PublicationSpans | None = None  # None: no collector of OpenTelemetry is told
        # True if subscriptions may have predicates (`clients/content_filters.py`).
        self.predicates = False
        # Closes a client's connection as its session wants; the lifecycle fills it in.
        self.close: Callable[[Client, Close], None] = _no_lifecycle

    @property
    def past(self) -> Past | None:
        """Returns the history that clients may read now, the broker's own or the overlay's; None: there is none."""
        mine: Past | None = self.history if self.history is not None else cast("Past | None", self.overlay)
        return mine if getattr(mine, "has_history", False) else None

    def record_in(self, history: LocalHistory | None) -> None:
        """Adds what local clients get to the broker's own history from now on; None: no longer. Short ways stay unused
        meanwhile.
        """
        self.history = history
        self.host.watched("history", history is not None and history.has_history)

    def record_message(self, message: Message, publisher: str, view: Any) -> None:
        """Adds a message to the broker's own history, if there is one. `view`: the client's; None: nobody's."""
        if self.history is not None:
            owner = publisher if view is None else owner_of(view)
            self.history.record_publication(publication_of(message, self.now()), publisher, owner)

    def adopt_limits(self, limits: Limits) -> None:
        self.delivery.adopt_limits(limits)
        self.retained.adopt_bounds(limits.retained_messages, limits.retained_bytes)

    # ------------------------------------------------------------------------------------------- from clients

    def take_packets(self, client: Client, packets: Sequence[Packet], now: float) -> list[SessionAction]:
        """Takes the packets of a read through the session, with the events that plugins asked for. An exception of the
        broker ends the client's connection.
        """
        try:
            return self._take_packets(client, packets, now)
        except Exception as error:  # noqa: BLE001  counted, and the log has its traceback
            self.traffic.defects.note_error(log, LogEvent.CONNECTION_FAILED, error, client.client_id)
            return [client.session.close(ReasonCode.UNSPECIFIED_ERROR, "internal error")]

    def _take_packets(self, client: Client, packets: Sequence[Packet], now: float) -> list[SessionAction]:
        if self.host.sees_packets_received:
            for packet in packets:
                view = PacketView(packet, client.session.version)
                self.host.fire(MQTTEvents.PACKET_RECEIVED, packet=view, session=client.view)
        if client.peer is not None:
            members.hear_acks(client, packets)
        elif now - client.seen_at >= SEEN_INTERVAL_S:
            self._seen(client, now)
        if not client.is_behind:
            return client.session.take_packets(packets, now)
        before = Backlog.of_client(client)
        actions = client.session.take_packets(packets, now)
        self.holding.note_read(client, before)
        return actions

    def took_alone(self, client: Client, acknowledged: Sequence[int], now: float) -> int:
        """Takes a read that is one PINGREQ, or PUBACKs of the packet identifiers `acknowledged`, if no more than a
        PINGRESP follows. Returns how many packets were taken; `take_packets` must take the next one.
        """
        if client.is_behind or client.peer is not None or self.host.sees_packets_received:
            return 0
        session = client.session
        try:
            taken = session.take_pubacks(acknowledged, now) if acknowledged else session.note_sign_of_life(now)
            if taken and now - client.seen_at >= SEEN_INTERVAL_S:
                self._seen(client, now)
        except Exception as error:  # noqa: BLE001  counted, and the log has its traceback
            self.traffic.defects.note_error(log, LogEvent.CONNECTION_FAILED, error, client.client_id)
            self.close(client, session.close(ReasonCode.UNSPECIFIED_ERROR, "internal error"))
            return 0
        return taken

    def took_publish(self, client: Client, topic: str, payload: bytes, now: float) -> bool:
        """Routes a read that is one plain PUBLISH of QoS 1, if it needs nothing but routes; the caller acknowledges it.
        False: `take_packets` must take it.
        """
        if self.holding.behind or client.is_behind or client.pace is not None or client.undecided is not None:
            return False
        if topic[0] == "$" or self.host.sees_packets_received or not self._routes_runs(client):
            return False
        if not client.session.begins_plainly(now):
            return False
        if now - client.seen_at >= SEEN_INTERVAL_S:
            self._seen(client, now)
        return self.delivery.forward(client, Message(topic, payload, 1, publisher=client.client_id))

    def _seen(self, client: Client, now: float) -> None:
        client.seen_at = now
        client.session.outbound.give_back_tables()
        client.session.inbound.give_back_tables()
        if self.overlay is not None or self.tracing is not None or self.watchers:
            self.tell_entity_event(EntitySeen(client.client_id))

    def waiting_bytes(self, client: Client) -> list[bytes]:
        """Returns the waiting bytes of a client whose write buffer drained, without expired messages."""
        waited = client.session.resume(self.now())
        if client.is_behind:
            self.holding.let_in(client)
        return waited

    def route_publish(self, client: Client, publish: Publish) -> Later | Waiting | None:
        """Authorises, routes and acknowledges a PUBLISH whose alias is resolved."""
        host = self.host
        if not publish.retain and publish.properties is NO_PROPERTIES and host.is_absent and client.bridge is None:
            if self.tracing is None:
                if self.overlay is None and publish.topic[0] != "$":
                    if not publish.qos:
                        self.delivery.flood(client, publish)
                        return None
                    if not self.holding.behind and self._passed_plainly(client, publish):
                        return None
            elif not publish.qos and client.peer is None and self.tracing.take_plain(client.client_id, publish):
                return None
            if publish.qos == 1 and self.passes_runs(client):
                passed, waits = self.pass_run(client, (publish,))
                if passed or waits is not None:
                    return waits
        if client.peer is not None:
            assert self.overlay is not None
            members.published(client, publish, self.overlay)
            return None
        if self.delivery.followed is not None:
            followed_clients.came(self.delivery.followed, client, publish)
        verdict = self.tracing is None or self.tracing.publishing(client.client_id, publish)
        verdict = verdict and publish.topic not in self.own_topics
        if host.sees_messages:
            message = application_message(publish)
            host.fire(BrokerEvents.MESSAGE_RECEIVED, client_id=client.client_id, message=message)
        if verdict and host.filters_topics:
            known = host.verdict(client.view, publish.topic, Action.PUBLISH)
            if known is None:
                return self._publish_asking(client, publish)
            verdict = known
        later = self._accept(client, publish, verdict)
        return host.catch_up() if later is None and host.is_behind else later

    def passes_runs(self, client: Client) -> bool:
        """True if plain publications of this client need nothing but the overlay, or routes, and acknowledgements."""
        if not self.host.is_absent or self.tracing is not None or client.bridge is not None or client.peer is not None:
            return False
        return self.spans is None if self.overlay is not None else self.store is None and not client.acks

    def _routes_runs(self, client: Client) -> bool:
        """True if plain publications of this client need nothing but routes and acknowledgements."""
        return self.overlay is None and self.passes_runs(client)

    def pass_run(self, client: Client, run: Sequence[Publish]) -> tuple[int, Waiting | None]:
        """Routes leading plain publications of QoS 1 and acknowledges the run with a write. Ends at a publication with
        a slow receiver or for the general path. Returns the length of the run, and the wait of the next publication.
        """
        if self.overlay is not None:
            return self._offer_run(client, run, self.overlay), None
        passed, later, publisher = 0, None, client.client_id
        for publish in run:
            topic = publish.topic
            if topic[0] == "$":
                break
            if self.holding.behind and (later := self._hold_plain(client, publish)) is not None:
                break
            if not self.delivery.forward(client, Message(topic, publish.payload, 1, publisher=publisher)):
                break
            passed += 1
        self._acknowledge_run(client, run if passed == len(run) else run[:passed])
        return passed, later

    def _offer_run(self, client: Client, run: Sequence[Publish], overlay: OverlayPort) -> int:
        """Offers leading plain publications without local receivers to the overlay. Returns how many are taken."""
        count, last = 0, ""
        for publish in run[:OFFERED_MAX]:
            topic = publish.topic
            if topic == last:
                count += 1
                continue
            found, last = self.delivery.router.plan(topic), topic
            if found.is_odd or found.targets or found.groups or topic[0] == "$" or topic in self.own_topics:
                break
            count += 1
        if not count:
            return 0
        count = offer_run(
            overlay, client, run[:count], self._send_decided_acks, self.traffic.defects, self.delivery.circles
        )
        if count and client.session.inbound.full and client.connection is not None:
            self._make_wait(client, client.connection)
        return count

    def _make_wait(self, client: Client, connection: ClientConnection) -> None:
        """Reads no more of a client with too many unacknowledged publications. MQTT 5 clients know our Receive Maximum;
        others are made to wait.
        """
        self.reached.note_bound("receive_maximum", client.client_id)
        connection.pause(UNACKNOWLEDGED)

    def _acknowledge_run(self, client: Client, run: Sequence[Publish]) -> None:
        data = client.session.acknowledge_all(run) if run else b""
        if data and client.connection is not None:
            client.connection.write(data)

    def _hold_plain(self, client: Client, publish: Publish) -> Waiting | None:
        """Returns the wait of a plain publication, or None without a slow receiver."""
        obstacles = partial(self._plain_obstacles, client, publish)
        receivers = obstacles(())
        if not receivers or client.connection is None:
            return None
        client.connection.read_on()
        return self.holding.hold_publication(
            obstacles, partial(self._pass_held, client, publish, self.now()), receivers, client
        )

    def _plain_obstacles(self, client: Client, publish: Publish, passed: Collection[Client]) -> list[Client]:
        """Returns `_obstacles` of a plain publication with fewer calls: no plugin decides."""
        plan = self.delivery.router.plan(publish.topic)
        if plan.is_odd or plan.groups:
            return self._obstacles(client, publish, set(passed))
        for target in plan.targets:
            receiver = target.client
            if receiver.is_behind and target.qos and receiver is not client and receiver not in passed:
                return [receiver]
        return []

    def _pass_held(self, client: Client, publish: Publish, since: float) -> Later | None:
        """Passes a publication after a wait, and following publications of the publisher within the room."""
        if not is_plain(publish) or not self._routes_runs(client):
            return self._pass_on(client, publish, since)
        publisher = client.client_id
        if not self.delivery.forward(client, Message(publish.topic, publish.payload, 1, publisher=publisher)):
            return self._pass_on(client, publish, since)
        passed, ends = [publish], perf_counter() + TURN_S
        connection = client.connection
        while connection is not None and (following := connection.next_held()) is not None:
            if perf_counter() > ends or not self._has_room(client, following):
                break
            if not self.delivery.forward(client, Message(following.topic, following.payload, 1, publisher=publisher)):
                break
            connection.take_held()
            passed.append(following)
        self._acknowledge_run(client, passed)
        return None

    def _has_room(self, client: Client, publish: Publish) -> bool:
        """True if every slow receiver of a plain publication has room."""
        plan = self.delivery.router.plan(publish.topic)
        if plan.is_odd or plan.groups:
            return False
        for target in plan.targets:
            receiver = target.client
            if receiver.is_behind and target.qos and receiver is not client and not self.holding.has_room(receiver):
                return False
        return True

    async def permitted(self, view: EdgeSession, topic: str) -> str | None:
        """Returns the spelling under which a topic is routed if `view` may publish there, as PUBLISH asks; else None.
        For parts of this process acting for a user, such as the console.
        """
        name, may = topic, True
        if self.tracing is not None:
            name, may = self.tracing.admit(topic, view.client_id or "", publishes=True)
        if not may or name in self.own_topics or is_reserved(name):
            return None
        known = self.host.verdict(view, name, Action.PUBLISH)
        if known is None:
            known = await self.host.ask_topic_plugins(view, name, Action.PUBLISH)
        return name if known else None

    def _passed_plainly(self, client: Client, publish: Publish) -> bool:
        """Routes QoS 1 and 2 the short way, with an acknowledgement waiting for the disk where necessary."""
        if publish.qos == 2 and client.session.inbound.half_done:
            return False
        store, message = self.store, Message(publish.topic, publish.payload, publish.qos, publisher=client.client_id)
        if store is None:
            if not self.delivery.forward(client, message):
                return False
            self._acknowledge(client, publish)
            return True
        before = store.changes
        if store.is_full or not self.delivery.forward(client, message):
            return False
        self._acknowledge_publish(client, OwedAck(publish), message, before)
        return True

    async def _publish_asking(self, client: Client, publish: Publish) -> None:
        async with asyncio.timeout(ASK_S):
            permitted = await self.host.ask_topic_plugins(client.view, publish.topic, Action.PUBLISH)
        later = self._accept(client, publish, permitted)
        if later is not None:
            await later
        if self.host.is_behind:
            await self.host.catch_up()

    def _refuse(self, client: Client, publish: Publish) -> None:
        # A 3.1.1 client is acknowledged as if all were well (MQTT-3.3.5-2 there leaves that or closing).
        self.audit.may_not("publish", client, publish.topic)
        self._acknowledge(client, publish, ReasonCode.NOT_AUTHORIZED)

    def _accept(self, client: Client, publish: Publish, permitted: bool) -> Later | Waiting | None:
        if not permitted or is_reserved(publish.topic):
            self._refuse(client, publish)
            return None
        if self.host.sees_messages:
            self.host.fire(
                BrokerEvents.MESSAGE_BROADCAST,
                client_id=client.client_id,
                message=application_message(publish),
            )
        if (refused := self.reached.check_publish(publish, self.delivery.limits, client.client_id)) is not None:
            self._acknowledge(client, publish, refused)
            return None
        if self._has_been_here(client, publish):
            self._acknowledge(client, publish)
            return None
        store = self.store
        if store is not None and store.is_full and publish.qos and self._must_store(client, publish):
            client.owe(self._owed(client, publish, ReasonCode.QUOTA_EXCEEDED))
            self._send_decided_acks(client)
            return None
        if self.tracing is not None and self.tracing.take_accepted(client.client_id, publish) and publish.qos < 2:
            self._acknowledge(client, publish)
            return None
        if publish.qos and self.holding.behind and client.connection is not None:
            obstacles = partial(self._obstacles, client, publish)
            if receivers := obstacles(set()):  # neither routed nor acknowledged before they have room
                client.connection.read_on()
                if self.delivery.followed is not None:
                    followed_clients.waits(self.delivery.followed, client, publish, receivers)
                return self.holding.hold_publication(
                    obstacles, partial(self._pass_on, client, publish, self.now()), receivers
                )
        return self._pass_on(client, publish, self.now())

    def _has_been_here(self, client: Client, publish: Publish) -> bool:
        """True if a bridge brought a message that this broker has had; bridges of this broker have checked before."""
        circles = self.delivery.circles
        if circles is None or client.view.is_internal or (client.bridge is None and not publish.properties.user):
            return False
        return circles.drops_publish(client.client_id, client.bridge, publish)

    def _obstacles(self, client: Client, publish: Publish, passed: set[Client]) -> list[Client]:
        """Returns the receivers for which a publication waits, without clients that may not receive it, as far as a
        plugin decides at once.
        """

        def may(receiver: Client) -> bool:
            return self.host.verdict(receiver.view, publish.topic, Action.RECEIVE) is not False

        return self.holding.obstacle(
            self.delivery.router.plan_for(publish.topic, publish), publish.qos, client, passed, may
        )

    def _pass_on(self, client: Client, publish: Publish, since: float) -> Later | None:
        """Routes and acknowledges a permitted publication within bounds. `since`: the time of its arrival, when its
        expiry began.
        """
        message = Message.from_publish(publish, since, client.client_id)
        if self.spans is not None:
            return self._pass_traced(client, publish, message, self.spans)
        return self._pass_message(client, publish, message, None)

    def _pass_traced(self, client: Client, publish: Publish, message: Message, spans: PublicationSpans) -> Later | None:
        """Passes a publication within a span, which is the parent of what follows."""
        properties, before = message.properties, message.properties.user
        user, end = spans.span_of_published(message.topic, message.qos, len(message.payload), before)
        if user is not before:
            message.properties = replace(properties, user=user)
        later = self._pass_message(client, publish, message, end)
        if self.overlay is None:
            end(ReasonCode.SUCCESS)
        return later

    def _pass_message(
        self, client: Client, publish: Publish, message: Message, answered: Callable[[int], None] | None
    ) -> Later | None:
        store = self.store
        before = 0 if store is None else store.changes
        owed = self._owed(client, publish)
        settle = self._send_decided_acks if publish.qos < 2 or store is None else partial(self._settle_offered, owed)
        if self.overlay is not None and not offer_for(
            self.overlay,
            client,
            owed,
            message,
            self.now(),
            settle,
            self.traffic.defects,
            self.delivery.circles,
            answered,
        ):
            return None
        if owed.is_repeated:  # its receivers here have it
            self._acknowledge_publish(client, owed, message, before)
            return None
        owed.is_routed = True
        if publish.retain:
            self.retain(client.view, message)
        self.record_message(message, client.client_id, client.view)
        later = self.delivery.route(message, client)
        if later is not None:
            return self._answer_after(later, client, owed, message, before)
        self._acknowledge_publish(client, owed, message, before)
        return None

    @staticmethod
    def _owed(client: Client, publish: Publish, code: int | None = None) -> OwedAck:
        """Returns an acknowledgement that knows whether receivers here have its message already."""
        owed, inbound = OwedAck(publish, code), client.session.inbound
        owed.is_routed = owed.is_repeated = bool(inbound.half_done) and inbound.is_half_done(publish)
        return owed

    def _must_store(self, client: Client, publish: Publish) -> bool:
        if publish.retain or (publish.qos == 2 and client.session.journal is not None):
            return True
        plan = self.delivery.router.plan_for(publish.topic, publish)
        receivers = [target.client for target in plan.targets]
        receivers += [member for group in plan.groups for member in group.members]
        return any(receiver.session.journal is not None for receiver in receivers)

    async def _answer_after(self, later: Later, client: Client, owed: OwedAck, message: Message, before: int) -> None:
        await later
        self._acknowledge_publish(client, owed, message, before)

    def _acknowledge_publish(self, client: Client, owed: OwedAck, message: Message, before: int) -> None:
        """Acknowledges now, or when the message is on disk for sessions or the overlay needing it.

        `before`: changes of the store before the message was routed.
        """
        publish, store = owed.publish, self.store
        if not publish.qos:
            return
        touched = store is not None and (store.changes != before or publish.qos == 2)
        owed.answers += touched and store is not None and store.owe(client, owed, publish, message)
        client.decide(owed, ReasonCode.SUCCESS)
        if owed.code == ReasonCode.SUCCESS and not client.acks:
            self._acknowledge(client, publish)
            return
        client.owe(owed)
        if client.is_refused or (client.acks and client.acks[0].code is not None):
            self._send_decided_acks(client)
        if client.acks and client.session.inbound.full and client.connection is not None:
            self._make_wait(client, client.connection)

    def _acknowledge(self, client: Client, publish: Publish, code: int = 0) -> None:
        if publish.qos and client.acks:
            client.owe(OwedAck(publish, code))
            self._send_decided_acks(client)
            return
        if self.delivery.followed is not None:
            followed_clients.answered(self.delivery.followed, client, publish, code)
        if not publish.qos:
            return
        data = client.session.acknowledge(publish, code)
        if data and client.connection is not None:
            client.connection.write(data)

    def _send_decided_acks(self, client: Client) -> None:
        """Sends the acknowledgements that are decided, in the order of their messages (MQTT-4.6.0-2)."""
        session, acks = client.session, client.acks
        if client.is_refused:
            self._turn_away(client)
        while acks and (code := acks[0].code) is not None:
            owed = acks.popleft()
            if owed.run and code == ReasonCode.SUCCESS and self.delivery.followed is None:
                self._acknowledge_run(client, owed.run)
                continue
            for publish in owed.run or (owed.publish,):
                if self.delivery.followed is not None:
                    followed_clients.answered(self.delivery.followed, client, publish, code)
                if code in FINAL_REFUSALS:
                    self.audit.may_not("publish", client, publish.topic, code)
                if session.version == Version.V5 or not owed.refuses:
                    # "Packet too large" is no code of PUBACK and PUBREC (MQTT 5.0 §3.4.2.1, §3.5.2.1).
                    said = ReasonCode.QUOTA_EXCEEDED if code == ReasonCode.PACKET_TOO_LARGE else ReasonCode(code)
                    data = session.acknowledge(publish, said)
                    if data and client.connection is not None:
                        client.connection.write(data)
        # A client that owes PUBRELs is read again, however many there are.
        if client.connection is not None and not (acks and session.inbound.full):
            client.connection.resume(UNACKNOWLEDGED)

    def _settle_offered(self, owed: OwedAck, client: Client) -> None:
        """Settles after an answer of the overlay to a publication of QoS 2."""
        if self.store is not None and owed.is_good_so_far:
            self.store.offered(client, owed.publish)
        self._send_decided_acks(client)

    def _turn_away(self, client: Client) -> None:
        """Ends the connection of a client after a refusal that its client is not told: the client keeps the message and
        repeats.

        That is each refusal below MQTT 5, and in every version one of a message that receivers here have, at QoS 2: a
        program that is told publishes anew, and those receivers would have the message twice. The end does not wait for
        earlier acknowledgements: no later message may overtake the refused message.
        """
        client.is_refused, session, forgone = False, client.session, False
        for owed in client.acks:
            if not owed.refuses:
                continue
            if self._is_half_done(client, owed):
                forgone |= session.inbound.settle_half_done(owed.publish)
            elif session.version != Version.V5:
                for publish in owed.run or (owed.publish,):
                    forgone |= session.inbound.settle_routed(publish, refused=True)
        if not forgone:
            return
        if client.undecided is not None and not isinstance(client.undecided, asyncio.Task):
            client.undecided.cancel()  # a later publication that waits for receivers would overtake the refused one
        if client.connection is not None:
            self.close(client, session.close(ReasonCode.QUOTA_EXCEEDED, "publication refused"))

    def _is_half_done(self, client: Client, owed: OwedAck) -> bool:
        """True if receivers here have a refused message of QoS 2 that its client will repeat."""
        publish = owed.publish
        if not owed.is_routed or publish.qos < 2 or not client.session.session_expiry_s:
            return False
        plan = self.delivery.router.plan_for(publish.topic, publish)
        return bool(plan.targets or plan.groups)

    def follow_publications(self, followed: FollowedMessages | None) -> None:
        """Says the steps of publications there from now on; None: nowhere. Short ways stay unused meanwhile."""
        self.delivery.followed = followed
        self.host.watched("administrators", followed is not None)

    def keep_in(self, store: SessionStore | None) -> None:
        """Reports every change to the store from now on; None: no longer."""
        self.store = store
        self.retained.changed = None if store is None else store.note_retained
        if store is not None:
            store.decided = self._send_decided_acks

    def retain(self, view: Any, message: Message) -> None:
        """Keeps a message for later subscribers, or clears its topic, and tells plugins."""
        try:
            store = self.system if is_reserved(message.topic) else self.retained
            is_changed = store.retain_message(message)
        except StoreFullError as error:
            self.reached.note_bound(error.bound, message.topic)
            return
        if is_changed and store is self.retained and self.host.declares(BrokerEvents.RETAINED_MESSAGE):
            kept = EdgeRetained(view, message)
            self.host.fire(BrokerEvents.RETAINED_MESSAGE, client_id=None, retained_message=kept)

    # --------------------------------------------------------------------------------------- overlay, watchers

    def inject(self, message: Message, view: Any = None, groups_lost: Collection[SharedName] = ()) -> None:
        """Retains and routes a message no connection waits for."""
        if message.properties is NO_PROPERTIES and message.qos and not (message.retain or groups_lost):
            if self.host.is_absent and not self.holding.behind and self.delivery.forward(None, message):
                return
        elif self.overlay is not None and message.properties.user:
            message.properties = without_reserved(message.properties)
        if message.retain:
            self.retain(view, message)
        self.record_message(message, message.publisher, view)
        later = self.delivery.route(message, None, groups_lost)
        if later is not None:
            self.in_order(later)

    def tell_entity_event(self, event: EntityEvent) -> None:
        """Tells the overlay and tracing an event of a local client. Parts of this process are no clients."""
        if event.client_id.startswith(INTERNAL):
            return
        if self.overlay is not None:
            self.overlay.entity_event(event)
        if self.tracing is not None:
            self.tracing.entity_event(event)
        for watcher in self.watchers:
            watcher(event)

    def deliver_run(self, publications: Sequence[Publication]) -> None:
        """Delivers publications of the overlay in order, with the effect of `deliver_local` for each; plain ones on a
        topic go to their receivers together. Raises TopicError.
        """
        run: list[Message] = []
        goes_together, last = self.tracing is None and self.host.is_absent, ""
        for publication in publications:
            topic, qos = publication.topic, publication.qos
            if run and topic != last:
                self._inject_run(run)
                run = []
            if goes_together and qos and not publication.retain and is_bare(publication):
                last = topic if run else check_name(topic)
                run.append(Message(topic, publication.payload, qos))
                continue
            if run:
                self._inject_run(run)
                run = []
            self.deliver_local(publication)
        if run:
            self._inject_run(run)

    def _inject_run(self, run: Sequence[Message]) -> None:
        """Routes plain messages of QoS 1 and 2 on one topic."""
        if self.holding.behind or not self.delivery.forward_run(run):
            for message in run:
                self.inject(message)

    def deliver_local(self, publication: Publication, groups_lost: Collection[SharedName] = ()) -> None:
        """Delivers a publication of the overlay, to local clients only. Raises TopicError."""
        if self.tracing is not None and self.tracing.take_arrival(publication):
            return
        circles, user = self.delivery.circles, publication.properties
        if user and circles is not None and circles.drops_arrival(publication.topic, publication.payload, user):
            return
        self.inject(message_of(publication, self.now()), groups_lost=groups_lost)


def _no_lifecycle(client: Client, close: Close) -> None:
    raise RuntimeError("the broker has not started")


def _no_queue(later: Later) -> bool:
    later.close()
    raise RuntimeError("the broker has not started")
