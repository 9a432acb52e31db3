"""The receiver's client: all replicas of the home region, through `gateway.overlay.region_client.RegionClient`.

Adapts names only: identity, signed overlay and its changes, rights, keys, TLS, sessions and reconnection are that
client's business, and its errors (one line each) end the query that asked for a receiver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from gateway.overlay import Client, Publish, RegionClient
from keys.envelope import KeyName
from keys.epochs import Calendar
from keys.identity import Certificate
from keys.sharetree import Hop
from spark_ingest.errors import BadOption
from spark_ingest.options import Options
from spark_ingest.receiver.progress import Link
from spark_ingest.receiver.receiver import OnArrivals
from spark_ingest.receiving import Scope
from spark_ingest.secrets import GrantedScope, Grants


class RegionReplicas:
    """A `receiver.ReplicaClient`, and what the signed overlay says as `directory.Directory`.

    Raises BadOption, and TrustError, OverlayError or TlsError of the gateway.
    """

    def __init__(self, options: Options) -> None:
        if options.identity is None or options.overlay is None:
            raise BadOption("receiving needs the options identity and overlay")
        self._on_arrivals: OnArrivals | None = None
        self._on_keys: Callable[[], None] | None = None
        self._client = RegionClient(
            options.identity,
            options.overlay,
            options.subscribed,
            on_arrivals=self._arrived,
            on_keys=self._keys_changed,
            logins=options.hosted,
        )

    @property
    def directory(self) -> RegionReplicas:
        return self

    def _arrived(self, replica: str, publishes: Sequence[Publish], client: Client) -> None:
        assert self._on_arrivals is not None
        self._on_arrivals(replica, publishes, client)

    def _keys_changed(self) -> None:
        if self._on_keys is not None:
            self._on_keys()

    def held(self) -> Grants:
        """The scopes that the job may read now, with the epoch keys that it has."""
        keys: dict[str, dict[KeyName, bytes]] = {}
        for name, key in self._client.scope_keys:
            keys.setdefault(name.scope, {})[name] = key
        scopes = [(secret.scope, secret.token_key) for secret in self._client.secrets]
        return Grants(
            {
                scope.filter: GrantedScope(scope.filter, scope.keyed, token_key, keys.get(scope.filter, {}))
                for scope, token_key in scopes
            }
        )

    def want(self, names: Collection[KeyName]) -> None:
        """Ask the key service for them, as far as there is one."""
        for name in names:
            self._client.want(name)

    def ask(self, replica: str, topic: str, payload: bytes) -> None:
        """Request content that does not come of a replica."""
        self._client.ask(replica, topic, payload)

    @property
    def accepted(self) -> bool:
        """Whether enough replicas know all that we want."""
        return self._client.accepted

    def links(self) -> list[Link]:
        """How each connection is."""
        states = self._client.links()
        return [Link(each.peer, each.up, each.figures.received, each.figures.received_bytes) for each in states]

    async def run(self, on_arrivals: OnArrivals, on_keys: Callable[[], None]) -> None:
        """Until cancelled; the sessions stay at the replicas."""
        self._on_arrivals, self._on_keys = on_arrivals, on_keys
        self._client.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self._client.close()

    # ------------------------------------------------------------------------------------------ directory

    @property
    def calendar(self) -> Calendar:
        return self._client.overlay.policy.calendar

    @property
    def hosted(self) -> frozenset[str]:
        return self._client.overlay.hosted

    def certificate(self, party_id: bytes) -> Certificate | None:
        return self._client.publisher(party_id)

    @property
    def edition(self) -> object:
        return self._client.overlay

    def path(self, region: int) -> tuple[int, ...]:
        overlay = self._client.overlay
        return overlay.path(region, self._client.home_region) if region in overlay.views else ()

    def check_view(self, hop: Hop) -> None:
        self._client.overlay.check_view(hop)

    def place(self, hop: Hop, replica: str) -> int | None:
        view = self._client.overlay.view(hop.region, hop.view)
        return None if view is None or replica not in view.members else view.place_of(replica)

    def faults(self) -> int:
        return self._client.overlay.views[self._client.home_region].faults

    def honest_among(self, replicas: Collection[str]) -> bool:
        return self._client.overlay.honest_among(self._client.home_region, replicas)

    def scope_of(self, wire_topic: str) -> Scope | None:
        return self._client.overlay.scope_of(wire_topic)

    def scope_named(self, wire_filter: str) -> Scope | None:
        return self._client.overlay.scope_named(wire_filter)

    def may_publish(self, name: str, wire_topic: str, epoch: int) -> bool:
        return self._client.overlay.may_publish(name, wire_topic, epoch)

    def may_publish_in(self, name: str, wire_filter: str, epoch: int) -> bool:
        overlay = self._client.overlay
        scope = overlay.scope_named(wire_filter)
        return scope is not None and overlay.may_publish_in(name, scope, epoch)
