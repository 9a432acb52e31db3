"""The overlay's shell in the broker: runs one `bridge.node` over real links, a real clock and a real store.

Events come from four sides: local clients (`publish`, `subscribed`, ... called by the broker), members that dialled
us (`peer_*`), members that we dialled (`client.Client`), and the clock. Effects go back the same four ways. A
gateway dials every replica of its region; replicas dial each other, one connection for each direction, so that the
sender is always the MQTT client. No rule of the protocol is here: they are in `bridge/`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Protocol

from bridge.availability import Announce, Availability, AvailabilityEvent
from bridge.machine import (
    Acked,
    Blame,
    Committed,
    Count,
    Deliver,
    Effect,
    Event,
    Forget,
    LinkDown,
    LinkUp,
    Machine,
    Publication,
    Received,
    Send,
    Subscribed,
    Tick,
    Unsubscribed,
    UserProperties,
    Watch,
    Wire,
)
from bridge.node import GatewayNode
from gateway.metrics import FIGURES_TOPIC, Figures
from gateway.mqtt5.packets import Publish
from gateway.mqtt_client import Client
from gateway.store import Entry, Store, StoreError

log = logging.getLogger("veilmq.links")

FIGURES_EVERY_S = 1.0
CLOSE_S = 5.0  # a member that does not take our farewell holds up the end, and the last commit, no longer
UNSTORED_MAX = 10_000  # QoS 0 publications behind one group commit: a stalled disk does not fill memory
TOPICS_MAX = 65_536  # topics whose last stored sequence is remembered for QoS 0; the oldest is forgotten
RELINK_S = 1.0
SUCCESS = 0x00
TOPIC_NAME_INVALID = 0x90


class LocalBroker(Protocol):
    """What the shell needs of `EdgeBroker`."""

    def deliver_local(self, publication: Publication) -> None: ...

    def send_to_peer(
        self, peer: str, topic: str, payload: bytes, properties: UserProperties, on_ack: Callable[[int], None]
    ) -> bool: ...

    def local_filters(self) -> Sequence[str]: ...


class Links:
    """One party's overlay. Made by `gateway.party.build`; given to `EdgeBroker` as its `overlay`."""

    def __init__(
        self,
        node: Machine,
        figures: Figures,
        store: Store,
        recognise: Callable[[bytes], str | None],
        dial: dict[str, Client],
        entities: Availability | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._gateway = node if isinstance(node, GatewayNode) else getattr(node, "machine", None)
        self.figures = figures
        self._store = store
        self._recognise = recognise
        self._dialled = dial
        self._entities = entities
        self._clock = clock
        self._broker: LocalBroker | None = None
        self._timers: dict[str, tuple[asyncio.TimerHandle, float]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._storing: dict[int, None] = {}  # appended, not yet reported by the disk; in order
        self._unstored: deque[tuple[int, Publication]] = deque()
        self._last_stored: OrderedDict[str, int] = OrderedDict()

    # ------------------------------------------------------------------------------------------- lifetime

    def start(self, broker: LocalBroker) -> None:
        """Take up what the outbox holds, then dial; the broker serves already."""
        self._broker = broker
        self._store.on_committed = self._committed
        pending = list(self._store.pending())
        if pending:
            self._committed(pending)
        for topic_filter in broker.local_filters():
            self.subscribed(topic_filter)
        for peer, client in self._dialled.items():
            client.on_up = partial(self._handle, LinkUp(peer))
            client.on_down = partial(self._handle, LinkDown(peer))
            client.on_publish = partial(self.peer_published, peer)
            client.start()
        self._tasks.append(asyncio.get_running_loop().create_task(self._show_figures()))

    async def stop(self) -> None:
        """Close links and store; what the outbox holds is sent after the next start."""
        for timer, _ in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        closing = [asyncio.ensure_future(client.close()) for client in self._dialled.values()]
        if closing:
            _, late = await asyncio.wait(closing, timeout=CLOSE_S)
            for task in late:
                task.cancel()
        self._store.close()

    def gauges(self) -> dict[str, int]:
        """What is so at this moment, for the figures."""
        return {
            "outbox_depth": self._gateway.publisher.depth if isinstance(self._gateway, GatewayNode) else 0,
            "links_up": sum(client.connected for client in self._dialled.values()),
            "links": len(self._dialled),
        }

    # -------------------------------------------------------------------- local clients (called by broker)

    def publish(self, client_id: str, publication: Publication, done: Callable[[int], None]) -> bool:
        """A local client's publication. False: its topic stays local. True: `done(code)` once it is durable."""
        gateway = self._gateway
        if not isinstance(gateway, GatewayNode) or gateway.publisher.secret_for(publication.topic) is None:
            return False
        response = publication.response_topic
        if response is not None and gateway.publisher.secret_for(response) is None:
            log.warning("refused a publication of %s: its response topic is in no protected scope", client_id)
            done(TOPIC_NAME_INVALID)
            return True
        try:
            if publication.qos:
                sequence = self._store.append(publication, lambda result: self._stored(sequence, result, done))
                self._storing[sequence] = None
            elif len(self._unstored) < UNSTORED_MAX:
                self._unstored.append((self._store.next_sequence(), publication))
                done(SUCCESS)
                if not self._storing:
                    self._committed(())
            else:
                self.figures.count(Count("qos0_dropped"))
                done(SUCCESS)
        except StoreError as error:
            log.error("%s", error)
            done(error.code)
        return True

    def subscribed(self, topic_filter: str) -> None:
        """The first local subscription of a filter."""
        self._handle(Subscribed(topic_filter))

    def unsubscribed(self, topic_filter: str) -> None:
        self._handle(Unsubscribed(topic_filter))

    def entity_event(self, event: AvailabilityEvent) -> None:
        """What a local client did, for its availability topic."""
        machine = self._entities
        if machine is None:
            return
        for effect in machine.handle(event, self._clock()):
            if isinstance(effect, Announce):
                self._announce(effect.publication)
            else:
                self.figures.count(effect)
        self._schedule("availability", machine.next_deadline, partial(self.entity_event, Tick()))

    def _announce(self, publication: Publication) -> None:
        assert self._broker is not None
        self._broker.deliver_local(publication)
        self.publish("", publication, lambda code: None)

    # ------------------------------------------------------------------------ members (called by broker)

    def recognise(self, certificate_der: bytes, client_id: str) -> str | None:
        """The member behind a TLS certificate; its client id must be its name."""
        name = self._recognise(certificate_der)
        return name if name == client_id else None

    def peer_connected(self, peer: str, session: object) -> None:
        """A member dialled us. A replica only sends on this connection: for ours to it, we dial."""
        if peer not in self._dialled:
            self._handle(LinkUp(peer))

    def peer_disconnected(self, peer: str) -> None:
        if peer not in self._dialled:
            self._handle(LinkDown(peer))

    def peer_published(self, peer: str, publish: Publish) -> None:
        wire = Wire(publish.topic, publish.payload, publish.qos, publish.retain, publish.properties.user)
        self._handle(Received(peer, wire))

    # ------------------------------------------------------------------------------------ the machine

    def _stored(self, sequence: int, result: Entry | StoreError, done: Callable[[int], None]) -> None:
        """The disk's answer to one append; entries themselves come in `_committed`."""
        del self._storing[sequence]
        if isinstance(result, StoreError):
            log.error("%s", result)
            asyncio.get_running_loop().call_soon(self._committed, ())
            done(result.code)
        else:
            done(SUCCESS)

    def _committed(self, entries: Sequence[Entry]) -> None:
        """Hand entries to the node in order of sequence, and with them QoS 0 publications that waited their turn.

        QoS 0 is not stored, but must not overtake: its number would make a stored one before it look like a repeat.
        """
        ready = [(e.sequence, e.previous, e.publication) for e in entries]
        first_storing = next(iter(self._storing), None)
        while self._unstored and (first_storing is None or self._unstored[0][0] < first_storing):
            sequence, publication = self._unstored.popleft()
            ready.append((sequence, 0, publication))
        ready.sort(key=itemgetter(0))
        chained = []
        for sequence, previous, publication in ready:
            topic = publication.topic
            if publication.qos:
                self._last_stored[topic] = sequence
                self._last_stored.move_to_end(topic)
                if len(self._last_stored) > TOPICS_MAX:
                    self._last_stored.popitem(last=False)
            chained.append((sequence, previous if publication.qos else self._last_stored.get(topic, 0), publication))
        if chained:
            self._handle(Committed(tuple(chained)))

    def _handle(self, event: Event) -> None:
        now = self._clock()
        for effect in self._node.handle(event, now):
            self._run(effect)
        self._schedule("node", self._node.next_deadline, partial(self._handle, Tick()))

    def _run(self, effect: Effect) -> None:
        match effect:
            case Send(peer, wire, ticket):
                self._send(peer, wire, ticket)
            case Deliver(_, _, publication):
                assert self._broker is not None
                self._broker.deliver_local(publication)
            case Forget(sequences):
                self._store.forget(sequences)
            case Watch(peer, topic_filter, on):
                client = self._dialled[peer]
                if on:
                    client.subscribe(topic_filter, qos=1)
                else:
                    client.unsubscribe(topic_filter)
            case Count():
                self.figures.count(effect)
            case Blame(member, named, why):
                if self.figures.blame(effect):
                    log.warning("%s %s: %s", "named" if named else "suspected", member, why)

    def _send(self, peer: str, wire: Wire, ticket: int) -> None:
        client = self._dialled.get(peer)
        if client is not None:
            on_ack = partial(self._handle, Acked(peer, ticket)) if ticket else None
            sent = client.publish(wire.topic, wire.payload, 1, wire.retain, wire.properties, on_ack)
        else:
            assert self._broker is not None
            sent = self._broker.send_to_peer(peer, wire.topic, wire.payload, wire.properties, lambda code: None)
        if not sent:
            self.figures.count(Count("link_overflow", 1, peer))
            if ticket and client is not None:
                self._relink(peer, client)

    def _relink(self, peer: str, client: Client) -> None:
        """What was not taken will never be acknowledged: begin anew with this peer, which repeats what it lacks."""
        self._handle(LinkDown(peer))
        loop = asyncio.get_running_loop()
        loop.call_later(RELINK_S, lambda: self._handle(LinkUp(peer)) if client.connected else None)

    def _schedule(self, what: str, deadline: float | None, call: Callable[[], None]) -> None:
        timer, due = self._timers.get(what, (None, None))
        if timer is not None:
            if due == deadline and not timer.cancelled() and timer.when() > asyncio.get_running_loop().time():
                return  # the usual case: most events change no deadline
            timer.cancel()
            del self._timers[what]
        if deadline is not None:
            delay_s = max(0.001, deadline - self._clock())
            self._timers[what] = (asyncio.get_running_loop().call_later(delay_s, call), deadline)

    async def _show_figures(self) -> None:
        while True:
            assert self._broker is not None
            body = self.figures.to_json(**self.gauges())
            self._broker.deliver_local(Publication(FIGURES_TOPIC, body, retain=True, time_ms=int(self._clock() * 1000)))
            await asyncio.sleep(FIGURES_EVERY_S)
