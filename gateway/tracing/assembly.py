"""A broker with tracing: made from the configuration and joined to the broker that it serves (B1-B9).

Enforcing constrained topics is `exchange`'s and `subscribing`'s business, who ask `tracing.admit`; what is published
on them comes here through `Exchange.tracing`. Not here: the rules (`bridge.document.constrained`), the machines
(`tracing`).
"""

from __future__ import annotations

import os
import ssl
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.base import Wall, split_share
from bridge.contract import Count, Publication
from bridge.devices import (
    HOME_ASSISTANT,
    HOMIE,
    SPARKPLUG,
    Dashboards,
    DeviceRules,
    Devices,
    DeviceTracer,
    Heartbeat,
    Owner,
)
from bridge.traces import (
    ADVERTISEMENTS_FILTER,
    ANSWERS_FILTER,
    PRESETS,
    Fleet,
    Offenders,
    Preset,
    Reporter,
    Tracer,
    within,
)
from bridge.tracking import DiscoveryNode
from gateway.base import Clock, DeviceSettings, TraceSettings
from gateway.mqtt5.packets import Publish, Unsubscribe
from gateway.mqtt5.types import ReasonCode
from gateway.tracing.broker_tracing import Tracing
from gateway.tracing.other_witnesses import OtherWitnesses
from gateway.tracing.store import TraceStore
from gateway.tracing.webhook import Webhook
from gateway.trust import Card, Credentials, LocalIdentity, TrustError, read_public
from keys.delegation import admits
from keys.errors import KeysError
from keys.identity import public_key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gateway.broker import EdgeBroker
    from gateway.clients import Client

MAX_BYTES = 64 << 10  # of a certificate: stops a wrong path from being read


class Spoken:
    """The statements of tracing as the broker's own publications."""

    def __init__(self, broker: EdgeBroker) -> None:
        self._broker = broker

    def ping(self, topic: str, payload: bytes) -> None:
        exchange = self._broker.exchange
        if exchange.host.is_absent:
            exchange.delivery.flood(None, Publish(topic, payload))
        else:
            exchange.deliver_local(Publication(topic, payload, 0, time_ms=int(time.time() * 1000)))

    def publish_statement(self, topic: str, payload: bytes, qos: int, *, stays_here: bool) -> None:
        exchange = self._broker.exchange
        publication = Publication(topic, payload, qos, time_ms=int(time.time() * 1000))
        exchange.deliver_local(publication)
        if exchange.overlay is not None and not stays_here:
            exchange.overlay.publish("", publication, _nothing)

    def show(self, topic: str, payload: bytes) -> None:
        publication = Publication(topic, payload, 1, retain=True, time_ms=int(time.time() * 1000))
        self._broker.exchange.deliver_local(publication)

    def advertise(self, topic: str, payload: bytes, life_s: int) -> None:
        exchange = self._broker.exchange
        if exchange.overlay is not None:
            publication = Publication(topic, payload, 1, retain=True, expiry_s=life_s, time_ms=int(time.time() * 1000))
            exchange.overlay.publish("", publication, _nothing)

    def listens(self, topic: str) -> bool:
        exchange = self._broker.exchange
        return exchange.overlay is not None or exchange.delivery.router.reaches(topic)

    def retained_statements(self, topic_filter: str) -> Iterator[tuple[str, bytes]]:
        exchange = self._broker.exchange
        for message in exchange.retained.matching(topic_filter, time.time()):
            yield message.topic, message.payload

    def probe_host(self, client_id: str, within_s: float) -> None:
        client = self._broker.lifecycle.clients.get(client_id)
        if client is not None and client.connection is not None:
            client.connection.probe_host(within_s)

    def send_away(self, client_id: str, why: str) -> None:
        client = self._broker.lifecycle.clients.get(client_id)
        if client is not None:
            self._broker.lifecycle.dismiss(client, ReasonCode.ADMINISTRATIVE_ACTION)


def make_tracing(settings: TraceSettings, data: Path | None, count: Callable[[Count], None]) -> Tracing:
    """Raises TrustError, TraceStoreError: a line each."""
    clock = Clock()
    wall, offenders = clock.wall, Offenders()
    local = LocalIdentity.load(settings.identity)
    cards = [Card.load(path) for path in settings.nodes]
    nodes = {local.name: local.card.public_key, **{card.name: card.public_key for card in cards}}
    authority = authority_of(settings.authority)
    reporter = None
    if settings.report is not None:
        reporter = Reporter(local.name, local.card.domain, settings.report.prefix, wall)
    node = DiscoveryNode(local.name, local.identity, nodes, authority, os.urandom, wall, offenders)
    tracer = Tracer(pace_of(settings), nodes, authority, os.urandom, reporter, wall, offenders, node.verified)
    devices = None
    if settings.devices is not None:
        owner = owner_of(settings.devices, authority, data)
        dashboards = Dashboards(tuple(settings.devices.dashboards))
        machine = Devices(rules_of(settings.devices), wall)
        devices = DeviceTracer(
            machine, owner, node, authority, os.urandom, dashboards, reporter, wall, offenders
        )  # fmt: skip
    store = None if data is None else TraceStore(data / "traces.sqlite3", secret_of(local, authority, nodes))
    fleet, call = fleet_of(settings, local, wall)
    others = None if settings.other_witnesses is None else OtherWitnesses(settings.other_witnesses, local.name)
    return Tracing(tracer, node, store, count, clock, devices, reporter, settings.detect_within_s, fleet, call, others)


def secret_of(local: LocalIdentity, authority: bytes, nodes: Mapping[str, bytes]) -> bytes:
    """Returns the key under which entities are sealed at rest.

    With another authority or other nodes none of them opens: they were verified under the former ones, and are not
    verified
    again.
    """
    return b"".join((local.identity.private_bytes(), authority, *sorted(nodes.values())))


def pace_of(settings: TraceSettings) -> Preset:
    """Returns the period of pings and the patience with answers."""
    pace = PRESETS[settings.preset] if settings.preset is not None else within(settings.detect_within_s)
    floor_s = pace.floor_s if settings.floor_s is None else settings.floor_s
    return replace(pace, caution=settings.caution, floor_s=floor_s)


def fleet_of(
    settings: TraceSettings, local: LocalIdentity, wall: Wall
) -> tuple[Fleet | None, Callable[[bytes, str], object]]:
    """Returns the machine that sums up the states of entities by groups, None without `fleet` in the settings, and the
    function that calls the operators' webhook.
    """
    if settings.fleet is None:
        return None, _nothing
    name, domain, prefix = local.name, local.card.domain, settings.fleet.prefix
    fleet = Fleet(
        prefix, settings.fleet.alert_after_s, wall,
        lambda discoverers: f"{prefix}/#" in discoverers or admits(discoverers, name, domain),
    )  # fmt: skip
    return fleet, _nothing if settings.fleet.webhook is None else Webhook(settings.fleet.webhook)


def owner_of(settings: DeviceSettings, authority: bytes, data: Path | None) -> Owner:
    """In whose name unchanged devices are traced. Raises TrustError."""
    if data is None:
        raise TrustError("traces.devices: needs `data`, or every restart would lose the devices' trackers; set it")
    credentials = Credentials.load(settings.owner, time.time())
    if credentials.authority != authority:
        raise TrustError(f"{settings.owner}: is of another trust domain than traces.authority; issue it there")
    return Owner(credentials.identity, credentials.certificate, tuple(settings.discoverers))


def rules_of(settings: DeviceSettings) -> DeviceRules:
    """Returns the rules of a configuration for unchanged devices, for the machine."""
    heartbeats = tuple(Heartbeat(each.topic, each.every_s) for each in settings.heartbeats)
    spelled = {"homeassistant": HOME_ASSISTANT, "homie": HOMIE, "sparkplug": SPARKPLUG}
    conventions = tuple(spelled[each] for each in settings.conventions)
    return DeviceRules(tuple(settings.clients), heartbeats, conventions, settings.grace_s, settings.sparkplug_host)


def authority_of(path: Path) -> bytes:
    """The public key of a trust domain's `ca.pem`. Raises TrustError."""
    try:
        return public_key_of(ssl.PEM_cert_to_DER_cert(read_public(path, MAX_BYTES).decode("ascii")))
    except (KeysError, ValueError) as error:
        raise TrustError(f"{path}: is no authority ({error}); name the ca.pem of the entities' trust domain") from None


def join(tracing: Tracing, broker: EdgeBroker) -> None:
    """From now on the broker enforces constrained topics, and traces. Before the first connection."""
    exchange = broker.exchange
    exchange.tracing = tracing
    broker.operation.tracing = tracing
    tracing.guard_topics(exchange.own_topics)
    for client in list(broker.lifecycle.clients.values()):
        _take_back(tracing, broker, client)
    tracing.start(Spoken(broker))
    if exchange.overlay is not None:
        for topic_filter in (ADVERTISEMENTS_FILTER, ANSWERS_FILTER):
            exchange.overlay.filter_subscribed(topic_filter)


def _take_back(tracing: Tracing, broker: EdgeBroker, client: Client) -> None:
    """End what a session that was kept from before subscribed to and may not."""
    if client.peer is not None:
        return
    bases = {f: split_share(one.options.base)[1] for f, one in client.filters.items()}
    refused = [f for f, base in bases.items() if not tracing.admit(base, client.client_id, publishes=False)[1]]
    if refused:
        broker.lifecycle.subscribing.unsubscribe(client, Unsubscribe(1, tuple(refused)))


def _nothing(*what: object) -> None:
    """Nobody waits for what the broker itself publishes, or is called."""
