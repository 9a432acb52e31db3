"""The receiver's client: all replicas of the home region, through `gateway.overlay.region_client.RegionClient`.

This module adapts names only: identity, signed overlay and its changes, rights, keys, TLS, sessions and reconnection
are that client's business, and its errors (a line each) end the query that asked for a receiver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from bridge.contract import Prove
from bridge.document import Overlay, Scope, ScopeSecret
from gateway.overlay import MqttClient, Publish, RegionClient
from keys.envelope import KeyName
from keys.identity import Role
from spark_ingest.errors import BadOption
from spark_ingest.options import Options
from spark_ingest.receiver.progress import ReplicaLink
from spark_ingest.receiver.receiver import OnArrivals
from spark_ingest.receiving import SpooledBatch
from spark_ingest.secrets import GrantedScope, Grants


class RegionReplicas:
    """A `receiver.ReplicaClient`.

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
        local = self._client.local
        if local.role is not Role.INGEST:
            raise BadOption(
                f"identity {options.identity} is that of {local.role.value} {local.name}, whose sessions this job "
                "would take over: let the owner issue one for the job, veilmq trust issue --role ingest"
            )

    @property
    def overlay(self) -> Overlay:
        """The version in force."""
        return self._client.overlay

    @property
    def home_region(self) -> int:
        """The region to whose replicas the client listens."""
        return self._client.home_region

    @property
    def name(self) -> str:
        """The member that reads."""
        return self._client.local.name

    def read_scopes(self) -> list[Scope]:
        """Returns the subscribed scopes."""
        return [secret.scope for secret in self._client.read_scopes]

    def _arrived(self, replica: str, publishes: Sequence[Publish], client: MqttClient) -> None:
        assert self._on_arrivals is not None
        self._on_arrivals(replica, publishes, client)

    def _keys_changed(self) -> None:
        if self._on_keys is not None:
            self._on_keys()

    def held_grants(self) -> Grants:
        """Returns the scopes the job may read now, with the epoch keys that it has."""
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

    def want_keys(self, names: Collection[KeyName]) -> None:
        """Asks the key service, if there is one, for keys; again for a held key that publishers contradict."""
        for name in names:
            self._client.doubt(name)

    def ask_replica(self, replica: str, topic: str, payload: bytes) -> None:
        """Requests content a replica did not send by itself."""
        self._client.ask_replica(replica, topic, payload)

    def keep_evidence(self, proof: Prove) -> None:
        """Keeps evidence beside the identity."""
        self._client.keep_evidence(proof)

    def secrets(self) -> Sequence[ScopeSecret]:
        """Returns the member's knowledge of the scopes beside their epoch keys."""
        return self._client.secrets

    def take_spooled(self, batches: Sequence[SpooledBatch]) -> None:
        """Signs receipts of batches that are on disk, in their time."""
        self._client.take_spooled(batches)

    @property
    def is_accepted(self) -> bool:
        """True if enough replicas know all our subscriptions."""
        return self._client.is_accepted

    @property
    def reads_back(self) -> bool:
        """True if histories may be read now: from now on everything else comes live."""
        return self._client.is_accepted

    def connected_replicas(self) -> list[str]:
        """Returns the connected replicas."""
        return [each.peer for each in self._client.link_states() if each.up]

    def link_states(self) -> list[ReplicaLink]:
        """Returns the state of each connection."""
        states = self._client.link_states()
        return [ReplicaLink(each.peer, each.up, each.figures.received, each.figures.received_bytes) for each in states]

    def clocks(self) -> list[float]:
        """Returns the leads of replicas' clocks over ours at CONNACK, in seconds, of those that told their time."""
        return list(self._client.clocks().values())

    async def run(self, on_arrivals: OnArrivals, on_keys: Callable[[], None]) -> None:
        """Runs until cancelled; the sessions stay at the replicas."""
        self._on_arrivals, self._on_keys = on_arrivals, on_keys
        self._client.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self._client.close()
