"""What a receiver outside the broker needs: an MQTT 5 client, and a region of the overlay as a single source of wires.

`RegionClient` connects to every replica of its home region under its own identity, states what it wants, and hands
over each wire together with the replica it came from; it fetches epoch keys and follows changes of the overlay.
Nothing
is opened here: whoever receives the wires recombines shares and decrypts with `keys`, knowing certificates, hops,
scope
secrets and epoch keys from the properties below. It does not collect, deduplicate or order either.

`MqttClient` and what else a receiver names are re-exported, so that it need not know how the gateway is divided.
"""

from __future__ import annotations

import logging
import os
import random as random_module
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bridge.base import overlaps
from bridge.contract import (
    FAR_TOPIC,
    HISTORY_TOPIC,
    Acked,
    AskHistory,
    KeyDoubted,
    KeyWanted,
    NotTaken,
    PageCame,
    Prove,
    Received,
    Subscribed,
    Tick,
    Wire,
)
from bridge.document import Overlay, OverlayError, ScopeSecret
from bridge.membership import GRANT_TOPIC, OVERLAY_TOPIC, SWAPS_TOPIC, VIEWS_TOPIC
from bridge.node import JobNode
from bridge.receipts import ChainId, HadBatch
from bridge.wire import KEYS_TOPIC, SESSION_S
from gateway.base import ConfigError, Figures, LinkState, PrivateFileError, read_private, stamp
from gateway.base.log_events import LogEvent
from gateway.client import Address, ClientError, LinkTls, MqttClient, TlsError, split_host_port
from gateway.mqtt5.copies import Copies
from gateway.mqtt5.packets import Properties, Publish
from gateway.mqtt5.types import MqttError
from gateway.overlay import hosted
from gateway.overlay.dials import Dials
from gateway.overlay.driver import Driver, Linked, OfHistory
from gateway.overlay.peer_refusals import reason_in
from gateway.trust import (
    LiveOverlay,
    LocalIdentity,
    TrustError,
    load_overlay,
    load_secrets,
    load_working_key,
    take_listed_key,
)
from keys.epochs import KeyName
from keys.identity import Certificate, Role

log = logging.getLogger("veilmq.links")

__all__ = [
    "KEYS_TOPIC",
    "Arrival",
    "ClientError",
    "ConfigError",
    "MqttClient",
    "MqttError",
    "OverlayError",
    "PrivateFileError",
    "Properties",
    "Publish",
    "RegionClient",
    "ScopeSecret",
    "TlsError",
    "TrustError",
    "Wire",
    "load_working_key",
    "read_private",
]

SESSION_EXPIRY_S = SESSION_S[Role.INGEST]
KEEP_ALIVE_S = 10
CONTROL_TOPICS = frozenset({GRANT_TOPIC, OVERLAY_TOPIC, SWAPS_TOPIC, VIEWS_TOPIC, FAR_TOPIC})


@dataclass(slots=True)
class Arrival:
    """A wire from a replica. It stays unacknowledged, and counts against Receive Maximum, until `acknowledge`."""

    replica: str
    wire: Wire
    _publish: Publish = field(repr=False)
    _client: MqttClient = field(repr=False)

    def acknowledge(self) -> None:
        """PUBACK: what it brought is durable. On the event loop, in any order, at any time later."""
        self._client.acknowledge(self._publish)


def dial(
    overlay: Overlay,
    name: str,
    replica: str,
    tls: LinkTls,
    *,
    session_expiry_s: int,
    logins: Mapping[str, hosted.Login],
    elsewhere: Callable[[], Sequence[Address]] = tuple,
    **options: Any,
) -> MqttClient:
    """The client that member `name` reaches a replica with: mutual TLS, the replica's certified key, a kept session.

    `logins`: at hosted brokers, which are reached as any client reaches them, and never `elsewhere`: their name counts,
    not a key. `options`: further arguments of `MqttClient`.
    """
    if replica in overlay.hosted:
        login = logins.get(replica, hosted.NOBODY)
        return hosted.dial(overlay, name, replica, login, session_expiry_s=session_expiry_s, **options)
    return MqttClient(
        *split_host_port(overlay.members[replica].address),
        client_id=name,
        ssl=tls.client,
        verify_peer=lambda der: tls.recognise(der) == replica,
        keep_alive_s=KEEP_ALIVE_S,
        clean_start=False,
        session_expiry_s=session_expiry_s,
        elsewhere=elsewhere,
        **options,
    )


def _wire(publish: Publish) -> Wire:
    return Wire(publish.topic, publish.payload, publish.qos, publish.retain, publish.properties.user)


def _one_by_one(
    on_arrival: Callable[[Arrival], object], replica: str, publishes: Sequence[Publish], client: MqttClient
) -> None:
    for publish in publishes:
        on_arrival(Arrival(replica, _wire(publish), publish, client))


class RegionClient(Linked):
    """All replicas of the home region of the identity in `identity_dir`, and the key servers. `start` it on a loop.

    `on_arrival` gets every wire, those of `KEYS_TOPIC` (live keys for a new subscription) included. Who gives
    `on_arrivals` gets instead what a single read brought at once, as it was decoded: the replica, its messages, and
    the client whose `acknowledge_all` takes them when what they brought is durable. `on_keys` is called when
    `scope_keys` or `secrets` changed. `filters`: clear filters; the scopes that they touch are subscribed as wholes,
    so replicas learn nothing finer. `logins`: a file of logins at hosted brokers, as `overlay.hosted` of a gateway
    holds them. Sessions survive us: what comes meanwhile waits at the replicas, within their bounds. The overlay may
    change while we run. Raises TrustError, OverlayError, TlsError, ConfigError: a line each.
    """

    def __init__(
        self,
        identity_dir: Path,
        overlay_file: Path,
        filters: Iterable[str],
        on_arrival: Callable[[Arrival], object] = lambda arrival: None,
        *,
        on_arrivals: Callable[[str, Sequence[Publish], MqttClient], object] | None = None,
        on_keys: Callable[[], object] = lambda: None,
        logins: Path | None = None,
        receive_maximum: int = 4096,
        session_expiry_s: int = SESSION_EXPIRY_S,
        random: Callable[[], float] = random_module.random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._on_arrivals = on_arrivals or partial(_one_by_one, on_arrival)
        self._on_keys, self._clock = on_keys, clock
        local = LocalIdentity.load(identity_dir)
        seen = stamp(overlay_file)
        overlay = load_overlay(overlay_file, int(clock() * 1000), identity_dir / "overlay.pin")
        self.local = take_listed_key(local, overlay)
        if self.local.role not in (Role.GATEWAY, Role.INGEST):
            raise TrustError(f"{local.name} is a {local.role}, which cannot read; take the identity of an ingest job")
        self._tls = LinkTls(local.name, self.local.cert, self.local.key_path, overlay.members, clock)
        self._logins = hosted.logins(overlay, local.name, logins)
        self._live = LiveOverlay(overlay_file, self.local, self._tls, overlay, seen)
        secrets, self.scope_keys = load_secrets(self.local, overlay)
        """The epoch keys that we hold now."""
        self.filters = tuple(filters)
        self._node = JobNode(overlay, self.local.identity, local.name, secrets, self.scope_keys, os.urandom)
        missing = [f for f in self.filters if not any(overlaps(s.clear_filter, f) for s in self._readable())]
        if missing:
            raise TrustError(
                f"no scope that we may read holds {', '.join(missing)}; ask the overlay's owner for the right"
            )
        self._receive_maximum, self._session_expiry_s, self._random = receive_maximum, session_expiry_s, random
        self._copies = Copies()
        self._page: PageCame | None = None  # that the message at hand brought, from a replica of another region
        self._dials = Dials(self._dial)
        self.figures = Figures(self.local.name, self.local.role.value, links=self._dials.link_states)
        """What our node counted, and whom it suspects."""
        self._driver = Driver(self._node, self._live, self._dials, self.figures, self, clock)
        for topic_filter in self.filters:
            self._driver.handle(Subscribed(topic_filter))

    # ------------------------------------------------------------------------------------- lifetime

    def start(self) -> None:
        """Connect to every replica and key server in the background, and keep subscribed."""
        self._dials.start(self.peers_to_dial(), self)
        self._driver.start()

    async def close(self) -> None:
        """Leave; the sessions stay at the replicas, so nothing that is sent meanwhile is lost."""
        await self._driver.stop()
        await self._dials.close()

    @property
    def connected_replicas(self) -> tuple[str, ...]:
        """Replicas to which the connection stands."""
        return tuple(peer for peer in self._dials.connected_peers if peer in self._replicas)

    def link_states(self) -> list[LinkState]:
        """Returns the state of the connection to each replica."""
        return [state for state in self._dials.link_states() if state.peer in self._replicas]

    def clocks(self) -> dict[str, float]:
        """Seconds by which the clock of each connected replica was ahead of ours when it connected, if it told."""
        ahead = {replica: self._dials[replica].clock_ahead_s for replica in self.connected_replicas}
        return {replica: ahead_s for replica, ahead_s in ahead.items() if ahead_s is not None}

    @property
    def errors(self) -> dict[str, str]:
        """Why there is no connection, by replica or key server."""
        return {r: c.last_error for r, c in self._dials.items() if not c.connected and c.last_error}

    @property
    def is_accepted(self) -> bool:
        """A quorum of the region knows everything we want."""
        return all(self._node.interest.is_accepted(secret.scope.filter) for secret in self.read_scopes)

    # ---------------------------------------------------------------------------- what the overlay says

    @property
    def overlay(self) -> Overlay:
        """The version in force."""
        return self._live.overlay

    def keep_evidence(self, proof: Prove) -> None:
        """Keeps evidence beside the identity, once for each author and lie."""
        self._live.keep_evidence(proof)

    @property
    def secrets(self) -> Sequence[ScopeSecret]:
        """The member's knowledge of the scopes beside their epoch keys."""
        return self._node.secrets

    @property
    def read_scopes(self) -> list[ScopeSecret]:
        """The scopes to which the client subscribes."""
        return [s for s in self._readable() if any(overlaps(s.clear_filter, f) for f in self.filters)]

    @property
    def home_region(self) -> int:
        """The region whose replicas we listen to."""
        return self.overlay.certificate(self.local.name).region

    def publisher(self, party_id: bytes) -> Certificate | None:
        """The certificate of a publisher by the 16 bytes that headers name it with."""
        return self.overlay.by_party.get(party_id)

    def want_key(self, name: KeyName) -> None:
        """A key header named an epoch key we lack: ask the key servers for it. On the event loop."""
        self._driver.handle(KeyWanted(name))

    def doubt(self, name: KeyName) -> None:
        """A publisher's check value contradicts the key we hold under this name. On the event loop."""
        self._driver.handle(KeyDoubted(name))

    def ask_replica(self, replica: str, topic: str, payload: bytes) -> None:
        """Send a replica a request of ours; one of another region only for its history. On the event loop; dropped
        without a connection.
        """
        if topic == HISTORY_TOPIC:
            self._driver.handle(AskHistory(replica, payload))
        else:
            self.send_wire(replica, Wire(topic, payload), 0)

    def take_spooled(self, batches: Iterable[tuple[ChainId, HadBatch]]) -> None:
        """These batches are on disk: sign receipts of them, in their time. On the event loop."""
        for chain, batch in batches:
            self._node.take_spooled(chain, batch)
        self._driver.handle(Tick())

    # -------------------------------------------------------------------------------- called by dials

    def link_published(self, peer: str, publish: Publish, client: MqttClient) -> None:
        self._published(peer, client, (publish,))

    def _published(self, peer: str, client: MqttClient, publishes: Sequence[Publish]) -> None:
        """Takes the messages of a read."""
        ours = peer in self._replicas
        if not ours or not CONTROL_TOPICS.isdisjoint([publish.topic for publish in publishes]):
            for publish in publishes:
                if not ours or publish.topic in CONTROL_TOPICS:
                    self._driver.handle(Received(peer, _wire(publish)))
                    if self._page is None:
                        client.acknowledge(publish)
                    else:  # it is acknowledged as the page that it brought
                        asked, self._page = self._page, None
                        page = replace(publish, topic=HISTORY_TOPIC, payload=asked.page)
                        self._on_arrivals(asked.replica, (page,), client)
            publishes = [publish for publish in publishes if ours and publish.topic not in CONTROL_TOPICS]
        if publishes:
            self._on_arrivals(peer, publishes, client)

    # ------------------------------------------------------------------------------------- details

    @property
    def _replicas(self) -> tuple[str, ...]:
        return self.overlay.replicas(self.home_region)

    def _readable(self) -> list[ScopeSecret]:
        epoch = self.overlay.policy.calendar.epoch_at(self._clock())
        return [s for s in self.secrets if self.overlay.may_read(self.local.name, s.scope, epoch)]

    def _dial(self, peer: str) -> MqttClient:
        client = dial(
            self.overlay,
            self.local.name,
            peer,
            self._tls,
            logins=self._logins,
            session_expiry_s=self._session_expiry_s,
            receive_maximum=self._receive_maximum,
            manual_ack=True,
            random=self._random,
            copies=self._copies,
        )
        client.on_publishes = partial(self._published, peer, client)
        return client

    # ------------------------------------------------------------------------------ hands of the driver

    def send_wire(self, peer: str, wire: Wire, ticket: int) -> None:
        client = self._dials.get(peer)
        if client is not None:
            on_ack = partial(self._driver.handle, Acked(peer, ticket)) if ticket else None
            on_refused = partial(self._take_refusal, peer, ticket) if ticket else None
            client.publish(wire.topic, wire.payload, wire.qos, wire.retain, wire.properties, on_ack, on_refused)

    def _take_refusal(self, peer: str, ticket: int, code: int) -> None:
        client = self._dials.get(peer)
        reason = None if client is None else reason_in(client.acks.refusal)
        self._driver.handle(NotTaken(peer, ticket, reason or f"0x{code:02x}"))

    def keys_changed(self) -> None:
        self._on_keys()

    def of_history(self, effect: OfHistory) -> None:
        assert isinstance(effect, PageCame), "a job keeps no history"
        self._page = effect

    def adopted(self, overlay: Overlay, removed: bool) -> None:
        self.local = self._live.local
        self._on_keys()
        if removed:
            LogEvent.NOT_LISTED.say(log)

    def peers_to_dial(self) -> list[str]:
        return sorted(self._node.peers)
