"""The receiver's client: all replicas of the home region, through `gateway.client.RegionClient`.

Adapts names only: identity, signed overlay, rights, TLS, sessions and reconnection are that client's business,
and its errors (one line each) end the query that asked for a receiver.
"""

from __future__ import annotations

import asyncio

from gateway.client import Arrival, RegionClient
from keys.identity import Certificate
from keys.sharetree import Hop

from .errors import BadOption
from .options import Options
from .receiver import OnWire


class RegionReplicas:
    """A `receiver.ReplicaClient`, and what the signed overlay says as `keyring.Directory`.

    Raises BadOption, and TrustError, OverlayError or TlsError of the gateway.
    """

    def __init__(self, options: Options) -> None:
        if options.identity is None or options.overlay is None:
            raise BadOption("receiving needs the options identity and overlay")
        self._on_wire: OnWire | None = None
        self._client = RegionClient(options.identity, options.overlay, options.subscribed, self._arrived)

    @property
    def directory(self) -> RegionReplicas:
        return self

    def _arrived(self, arrival: Arrival) -> None:
        assert self._on_wire is not None
        self._on_wire(arrival.place, arrival.replica, arrival.wire, arrival.done)

    async def run(self, on_wire: OnWire) -> None:
        """Until cancelled; the sessions stay at the replicas."""
        self._on_wire = on_wire
        self._client.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self._client.close()

    # ------------------------------------------------------------------------------------------ directory

    def certificate(self, party_id: bytes) -> Certificate | None:
        return self._client.publisher(party_id)

    def path(self, region: int) -> tuple[Hop, ...]:
        overlay = self._client.overlay
        if region not in overlay.views:
            return ()
        return overlay.hops_between(region, self._client.home_region)

    def scope_of(self, wire_topic: str) -> str | None:
        scope = self._client.overlay.scope_of(wire_topic)
        return None if scope is None else scope.filter
