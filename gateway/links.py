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
from collections.abc import Callable, Sequence
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
from gateway.mqtt_client import Client
from gateway.metrics import FIGURES_TOPIC, Figures
from gateway.mqtt5.packets import Publish
from gateway.store import Entry, Store, StoreError

log = logging.getLogger("veilmq.links")

FIGURES_EVERY_S = 1.0
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
        availability: Availability | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._gateway = node if isinstance(node, GatewayNode) else getattr(node, "machine", None)
        self.figures = figures
        self._store = store
        self._recognise = recognise
        self._dialled = dial
        self._availability = availability
        self._clock = clock
        self._broker: LocalBroker | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []

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
            client.on_up = lambda peer=peer: self._handle(LinkUp(peer))
            client.on_down = lambda peer=peer: self._handle(LinkDown(peer))
            client.on_publish = lambda publish, peer=peer: self.peer_published(peer, publish)
            client.start()
        self._tasks.append(asyncio.get_running_loop().create_task(self._show_figures()))

    async def stop(self) -> None:
        """Close links and store; what the outbox holds is sent after the next start."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(client.close() for client in self._dialled.values()), return_exceptions=True)
        self._store.close()

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
                self._store.append(publication, lambda result: done(_code(result)))
            else:
                entry = Entry(self._store.next_sequence(), 0, publication)
                self._committed([entry])
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

    def entity_event(self, event: EntityEvent | Tick) -> None:
        """What a local client did, for its availability topic."""
        availability = self._availability
        if availability is None:
            return
        for effect in availability.handle(event, self._clock()):
            if isinstance(effect, Announce):
                self._announce(effect.publication)
            else:
                self.figures.count(effect)
        self._schedule("availability", availability.next_deadline, lambda: self.entity_event(Tick()))

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

    def _committed(self, entries: Sequence[Entry]) -> None:
        self._handle(Committed(tuple((e.sequence, e.previous, e.publication) for e in entries)))

    def _handle(self, event: Event) -> None:
        now = self._clock()
        for effect in self._node.handle(event, now):
            self._run(effect)
        self._schedule("node", self._node.next_deadline, lambda: self._handle(Tick()))

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
            on_ack = (lambda: self._handle(Acked(peer, ticket))) if ticket else None
            sent = client.publish(wire.topic, wire.payload, 1, wire.retain, wire.properties, on_ack)
        else:
            assert self._broker is not None
            sent = self._broker.send_to_peer(peer, wire.topic, wire.payload, wire.properties, lambda code: None)
        if not sent:
            self.figures.count(Count("link_overflow", 1, peer))

    def _schedule(self, what: str, deadline: float | None, call: Callable[[], None]) -> None:
        timer = self._timers.pop(what, None)
        if timer is not None:
            timer.cancel()
        if deadline is not None:
            delay_s = max(0.001, deadline - self._clock())
            self._timers[what] = asyncio.get_running_loop().call_later(delay_s, call)

    async def _show_figures(self) -> None:
        while True:
            assert self._broker is not None
            depth = self._gateway.publisher.depth if isinstance(self._gateway, GatewayNode) else 0
            links = sum(client.connected for client in self._dialled.values())
            body = self.figures.to_json(outbox_depth=depth, links_up=links, links=len(self._dialled))
            self._broker.deliver_local(Publication(FIGURES_TOPIC, body, retain=True, time_ms=int(self._clock() * 1000)))
            await asyncio.sleep(FIGURES_EVERY_S)


def _code(result: Entry | StoreError) -> int:
    return result.code if isinstance(result, StoreError) else SUCCESS
