"""What a receiver outside the broker needs: an MQTT 5 client, and a region of the overlay as one source of wires.

`RegionClient` connects to every replica of its home region under its own identity, states what it wants, and hands
over each wire together with the place it came from. Nothing is opened here: whoever receives them recombines
shares and decrypts with `keys`, knowing certificates, hops and scope secrets from the properties below. It does
not collect, deduplicate or order either.

`Client` and what else a receiver names are re-exported, so that it need not know how the gateway is divided.
"""

from __future__ import annotations

import asyncio
import random as random_module
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bridge.interest import Interest
from bridge.machine import Acked, Effect, Send, Watch, Wire
from bridge.sealing import ScopeSecret
from bridge.subscriptions import KEYS_TOPIC
from bridge.topics import overlaps
from bridge.views import Overlay, OverlayError
from gateway.mqtt5.packets import Publish
from gateway.mqtt_client import Client, ClientError
from gateway.overlay_file import grant_path, load_grant, load_overlay
from gateway.tls import LinkTls, TlsError
from gateway.trust import LocalIdentity, TrustError
from keys.identity import Certificate, Role
from keys.sharetree import Hop

__all__ = [
    "KEYS_TOPIC",
    "Arrival",
    "Client",
    "ClientError",
    "OverlayError",
    "Publish",
    "RegionClient",
    "ScopeSecret",
    "TlsError",
    "TrustError",
    "Wire",
]

SESSION_EXPIRY_S = 7 * 86_400
KEEP_ALIVE_S = 10


@dataclass(slots=True)
class Arrival:
    """One wire from one replica. It stays unacknowledged, and counts against Receive Maximum, until `done`."""

    place: int
    """1..n in the view of the home region: the sender's coordinate in labels of shares."""
    replica: str
    wire: Wire
    _publish: Publish = field(repr=False)
    _client: Client = field(repr=False)

    def done(self) -> None:
        """PUBACK: what it brought is durable. On the event loop, in any order, at any time later."""
        self._client.acknowledge(self._publish)


def dial(overlay: Overlay, name: str, replica: str, tls: LinkTls, *, session_expiry_s: int, **options: Any) -> Client:
    """The client that member `name` reaches a replica with: mutual TLS, the replica's certified key, a kept session.

    `options`: further arguments of `Client`.
    """
    host, _, port = overlay.members[replica].address.rpartition(":")
    return Client(
        host.strip("[]"),
        int(port),
        client_id=name,
        ssl=tls.client,
        verify_peer=lambda der: tls.recognise(der) == replica,
        keep_alive_s=KEEP_ALIVE_S,
        clean_start=False,
        session_expiry_s=session_expiry_s,
        **options,
    )


class RegionClient:
    """All replicas of the home region of the identity in `identity_dir`. `start` it on an event loop.

    `on_arrival` gets every wire, those of `KEYS_TOPIC` (live keys for a new subscription) included.
    `filters`: clear filters; the scopes that they touch are subscribed as wholes, so replicas learn nothing finer.
    Sessions survive us: what comes meanwhile waits at the replicas, within their bounds.
    Raises TrustError, OverlayError, TlsError: one line each.
    """

    def __init__(
        self,
        identity_dir: Path,
        overlay_file: Path,
        filters: Iterable[str],
        on_arrival: Callable[[Arrival], object],
        *,
        receive_maximum: int = 4096,
        session_expiry_s: int = SESSION_EXPIRY_S,
        random: Callable[[], float] = random_module.random,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.local = LocalIdentity.load(identity_dir)
        self.overlay: Overlay = load_overlay(overlay_file, int(clock() * 1000), identity_dir / "overlay.pin")
        name = self.local.name
        tls = LinkTls(name, self.local.cert, self.local.key, self.overlay.members)
        if self.local.role is Role.REPLICA:
            raise TrustError(f"{name} is a replica, which cannot read; take the identity of an ingest job")
        self.secrets: Sequence[ScopeSecret] = load_grant(grant_path(self.local, overlay_file), self.overlay, name)
        readable = [s for s in self.secrets if self.overlay.may_read(name, s.scope)]
        self.filters = tuple(filters)
        self.scopes = [s for s in readable if any(overlaps(s.clear_filter, f) for f in self.filters)]
        """What we subscribe to."""
        missing = [f for f in self.filters if not any(overlaps(s.clear_filter, f) for s in readable)]
        if missing:
            raise TrustError(
                f"no scope that we may read holds {', '.join(missing)}; ask the overlay's owner for the right"
            )
        self._on_arrival = on_arrival
        self._clock = clock
        self._interest = Interest(self.overlay, self.local.identity, name, self.secrets)
        for topic_filter in self.filters:
            self._interest.subscribed(topic_filter, clock())
        self._timer: asyncio.TimerHandle | None = None
        self._clients = {
            replica: dial(
                self.overlay,
                name,
                replica,
                tls,
                session_expiry_s=session_expiry_s,
                receive_maximum=receive_maximum,
                manual_ack=True,
                random=random,
            )
            for replica in self.overlay.views[self.home_region].members
        }

    # ------------------------------------------------------------------------------------- lifetime

    def start(self) -> None:
        """Connect to every replica in the background, and keep subscribed."""
        view = self.overlay.views[self.home_region]
        for replica, client in self._clients.items():
            client.on_publish = self._receiver(view.place_of(replica), replica, client)
            client.on_up = partial(self._link, replica, True)
            client.on_down = partial(self._link, replica, False)
            client.start()
        self._arm()

    async def close(self) -> None:
        """Leave; the sessions stay at the replicas, so nothing that is sent meanwhile is lost."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.gather(*(client.close() for client in self._clients.values()))

    @property
    def up(self) -> tuple[str, ...]:
        """Replicas to which the connection stands."""
        return tuple(replica for replica, client in self._clients.items() if client.connected)

    @property
    def errors(self) -> dict[str, str]:
        """Why there is no connection, by replica."""
        return {r: c.last_error for r, c in self._clients.items() if not c.connected and c.last_error}

    @property
    def accepted(self) -> bool:
        """A quorum of the region knows everything that we want."""
        return all(self._interest.accepted(secret.scope.filter) for secret in self.scopes)

    # ---------------------------------------------------------------------------- what the overlay says

    @property
    def home_region(self) -> int:
        """The region whose replicas we listen to; with `view_number` the last coordinates of our labels."""
        return self.overlay.certificate(self.local.name).region

    @property
    def view_number(self) -> int:
        return self.overlay.views[self.home_region].number

    @property
    def threshold(self) -> int:
        """k of the home region: so many replicas' shares are enough."""
        return self.overlay.views[self.home_region].threshold

    def publisher(self, party_id: bytes) -> Certificate | None:
        """The certificate of a publisher by the 16 bytes that headers name it with."""
        return self.overlay.by_party.get(party_id)

    def hops_from(self, publisher: Certificate) -> tuple[Hop, ...]:
        """The regions that a publication of this publisher crossed to reach us, its own first."""
        return self.overlay.hops_between(publisher.region, self.home_region)

    def secret_of(self, wire_filter: str) -> ScopeSecret | None:
        """What we know of the scope that a key header names."""
        return next((s for s in self.secrets if s.scope.filter == wire_filter), None)

    # ------------------------------------------------------------------------------------- details

    def _receiver(self, place: int, replica: str, client: Client) -> Callable[[Publish], object]:
        def receive(publish: Publish) -> None:
            wire = Wire(publish.topic, publish.payload, publish.qos, publish.retain, publish.properties.user)
            self._on_arrival(Arrival(place, replica, wire, publish, client))

        return receive

    def _link(self, replica: str, up: bool) -> None:
        self._run(self._interest.link_up(replica) if up else self._interest.link_down(replica))

    def _run(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Watch):
                client = self._clients[effect.peer]
                if effect.on:
                    client.subscribe(effect.filter, qos=1)
                else:
                    client.unsubscribe(effect.filter)
            elif isinstance(effect, Send):
                self._send(effect)

    def _send(self, effect: Send) -> None:
        peer, wire, ticket = effect.peer, effect.wire, effect.ticket
        self._clients[peer].publish(
            wire.topic,
            wire.payload,
            wire.qos,
            wire.retain,
            wire.properties,
            lambda: self._run(self._interest.acked(Acked(peer, ticket))),
        )

    def _arm(self) -> None:
        deadline = self._interest.next_deadline
        if deadline is not None:
            delay_s = max(0.0, deadline - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._renew)

    def _renew(self) -> None:
        self._run(self._interest.tick(self._clock()))
        self._arm()
