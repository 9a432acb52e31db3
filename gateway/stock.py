"""The gateway as a plugin of an unmodified amqtt broker: its MQTT 3.1.1 devices stay, their topics travel sealed.

    plugins:
      gateway.stock.GatewayPlugin:
        settings: gateway.yaml     # `data` and `overlay` as for `veilmq broker`; its listeners are not used

Messages that amqtt received and permitted go into the outbox; arriving messages are broadcast to amqtt's clients. The
guarantees are weaker than those of `veilmq broker`, because amqtt tells a plugin of a message and does not ask it: a
device has its PUBACK before the outbox is on disk; wills stay local, amqtt publishes them without telling; there is
no MQTT 5, so properties of publications are lost; amqtt's own queues have no bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amqtt.broker import BrokerContext
from amqtt.plugins.base import BasePlugin
from amqtt.session import ApplicationMessage

from bridge.contract import Publication, UserProperties
from bridge.predicates import Predicate
from gateway.base import ConfigError, load
from gateway.base.log_events import LogEvent
from gateway.broker import EdgeBroker
from gateway.clients import LocalGroup, SharedName
from gateway.overlay import BrokerOverlay
from gateway.party import Party, build
from keys.identity import Role

log = logging.getLogger("veilmq.stock")

ARRIVED_MAX = 10_000
"""Deliveries that may wait for amqtt; further ones of QoS 0 and 1 are dropped and counted: amqtt has no
back-pressure.
"""


class GatewayPlugin(BasePlugin[BrokerContext]):  # type: ignore[misc]
    """The gateway's plugin. A wrong setting is a line in the log, and amqtt does not start."""

    @dataclass
    class Config:
        """The options of the plugin. `settings`: path of a gateway's YAML file."""

        settings: str = ""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        if isinstance(getattr(context, "_broker_instance", None), EdgeBroker):
            raise ConfigError(
                "gateway.stock.GatewayPlugin is for amqtt's own broker; remove it, `overlay` does the same"
            )
        if not self.config.settings:
            raise ConfigError("gateway.stock.GatewayPlugin: settings: missing; name the gateway's YAML file")
        party = Party(load(Path(self.config.settings)))
        if party.local.role is not Role.GATEWAY:
            raise ConfigError(f"{party.name} is a {party.local.role}; the plugin needs the identity of a gateway")
        self._party = party
        self._links: BrokerOverlay | None = None
        self._shell = _Shell(context)
        self._filters: frozenset[str] = frozenset()

    async def on_broker_post_start(self) -> None:
        self._links = build(self._party)
        self._shell.start()
        self._links.start(self._shell)
        self._filters = frozenset(self._shell.local_filters())

    async def on_broker_pre_shutdown(self) -> None:
        if self._links is not None:
            await self._links.stop()
            self._links = None
        await self._shell.stop()

    async def on_broker_message_broadcast(self, *, client_id: str, message: ApplicationMessage) -> None:
        """Publishes a client's message, permitted by amqtt's topic plugins, in the overlay."""
        if self._links is None or message is None:
            return
        publication = Publication(
            topic=message.topic,
            payload=bytes(message.data or b""),
            qos=message.qos or 0,
            retain=bool(message.publish_packet is not None and message.publish_packet.retain_flag),
            time_ms=int(time.time() * 1000),
        )
        self._links.publish(client_id, publication, _log_refusal(publication.topic))

    async def on_broker_client_subscribed(self, *, client_id: str, topic: str, qos: int) -> None:
        self._follow_filters()

    async def on_broker_client_unsubscribed(self, *, client_id: str, topic: str) -> None:
        self._follow_filters()

    async def on_broker_client_disconnected(self, *, client_id: str, client_session: Any) -> None:
        self._follow_filters()  # a clean session ends its subscriptions without another event

    def _follow_filters(self) -> None:
        """Tells the overlay of new and removed local filters."""
        if self._links is None:
            return
        now = frozenset(self._shell.local_filters())
        for topic_filter in sorted(now - self._filters):
            self._links.filter_subscribed(topic_filter)
        for topic_filter in sorted(self._filters - now):
            self._links.filter_unsubscribed(topic_filter)
        self._filters = now


class _Shell:
    """The broker as `BrokerOverlay` needs it, made from amqtt's context."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._arrived: asyncio.Queue[Publication] = asyncio.Queue(ARRIVED_MAX)
        self._task: asyncio.Task[None] | None = None
        self._dropped = 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._hand_on(), name="deliveries to amqtt")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def deliver_local(self, publication: Publication, groups_lost: Collection[SharedName] = ()) -> None:
        try:
            self._arrived.put_nowait(publication)
        except asyncio.QueueFull:
            self._dropped += 1
            if self._dropped & (self._dropped - 1) == 0:  # 1, 2, 4, ...: a flood of losses must not flood the log
                LogEvent.AMQTT_BEHIND.say(log, self._dropped)

    def deliver_run(self, publications: Sequence[Publication]) -> None:
        for publication in publications:
            self.deliver_local(publication)

    def deliver_stored(self, publication: Publication, groups_lost: Collection[SharedName] = ()) -> None:
        """Delivers to all local subscribers, since amqtt does not tell new subscriptions."""
        self.deliver_local(publication, groups_lost)

    def deliver_shared(self, name: SharedName, publication: Publication) -> None:
        """Does nothing: amqtt knows no shared subscriptions."""

    def local_groups(self) -> Sequence[LocalGroup]:
        return ()

    def kept_rows(self) -> Mapping[bytes, bytes]:
        """Returns no rows: amqtt keeps none of ours."""
        return {}

    def retained_payloads(self, topic_filter: str) -> Sequence[tuple[str, bytes]]:
        """Returns nothing: amqtt keeps retained messages in memory, so none survive a restart."""
        return ()

    def keep_rows(self, rows: Sequence[tuple[bytes, bytes | None]], is_patient: bool = False) -> None:
        """Does nothing: amqtt's sessions are in memory, so no client can get a message twice after a restart."""

    def when_kept(self, done: Callable[[], None], is_patient: bool = False) -> None:
        done()

    def end_unreadable(self, may: Callable[[str], bool]) -> None:
        """Does nothing: amqtt gives a plugin no way to end a subscription. `veilmq status` reports the lost right."""

    def local_filters(self) -> Sequence[str]:
        return [topic_filter for topic_filter, held in self._context.subscriptions.items() if held]

    def wanted_of(self, topic_filter: str) -> Predicate | None:
        """Returns None: amqtt knows no predicates."""
        return None

    def narrowed(self) -> Sequence[str]:
        return ()

    def send_to_peer(
        self, peer: str, topic: str, payload: bytes, properties: UserProperties, on_ack: Callable[[int], None]
    ) -> bool:
        """Returns False: a gateway dials all its peers, and no peer dials a stock broker."""
        return False

    async def _hand_on(self) -> None:
        while True:
            publication = await self._arrived.get()
            # Without a QoS amqtt uses the subscription's, which may exceed the publication's.
            await self._context.broadcast_message(publication.topic, publication.payload, publication.qos)
            if publication.retain:
                await self._context.retain_message(publication.topic, publication.payload, publication.qos)


def _log_refusal(topic: str) -> Callable[[int], None]:
    def done(code: int) -> None:
        if code >= 0x80:
            LogEvent.AMQTT_NOT_TAKEN.say(log, topic, code)

    return done
