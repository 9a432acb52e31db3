"""From a configuration to a party of the overlay: identity, signed overlay, grant, TLS, store and node put together.

Everything that can be wrong with the files is said here, in one line, before anything listens. What the parts do
when they run is `links`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable, Sequence

from bridge.availability import Availability
from bridge.machine import Machine
from bridge.node import GatewayNode, ReplicaNode, peers_of
from bridge.sealing import ScopeSecret
from bridge.views import Overlay, OverlayError
from gateway.broker import EdgeBroker, run_broker
from gateway.client import dial
from gateway.config import ConfigError, OverlaySettings, Settings
from gateway.links import Links
from gateway.metrics import Figures
from gateway.overlay_file import grant_path, load_grant, load_overlay
from gateway.store import Store
from gateway.tls import LinkTls
from gateway.trust import LocalIdentity
from keys.envelope import Mode
from keys.identity import Role

EPOCH = 0
SESSION_EXPIRY_S = 3600  # how long a replica queues for us while we are away


class Party:
    """One member's files, loaded and checked: enough to say what would happen, nothing running yet.

    Raises TrustError, OverlayError, TlsError or ConfigError, each one line.
    """

    def __init__(self, settings: Settings) -> None:
        if settings.overlay is None:
            raise ConfigError("the configuration has no overlay section; add identity and overlay file")
        self.settings = settings
        where = settings.overlay
        self.local = LocalIdentity.load(where.identity)
        self.overlay = load_overlay(where.overlay, int(time.time() * 1000), where.identity / "overlay.pin")
        if self.local.name not in self.overlay.members:
            raise OverlayError(f"{self.local.name} is no member of {where.overlay}; ask the owner to add your card")
        self.tls = LinkTls(self.local.name, self.local.cert, self.local.key, self.overlay.members)
        self.granted: list[ScopeSecret] = []
        self.outgoing: list[ScopeSecret] = []
        if self.local.role is not Role.REPLICA:
            grant = grant_path(self.local, where.overlay)
            self.granted = load_grant(grant, self.overlay, self.local.name)
            self.outgoing = outgoing_scopes(where, self.overlay, self.granted)

    @property
    def name(self) -> str:
        return self.local.name

    def dials(self) -> list[str]:
        """Members that we connect to: replicas we have a link with."""
        peers = peers_of(self.overlay, self.name)
        return sorted(p for p in peers if self.overlay.certificate(p).role is Role.REPLICA)


def outgoing_scopes(where: OverlaySettings, overlay: Overlay, granted: Sequence[ScopeSecret]) -> list[ScopeSecret]:
    """The scopes that local publications leave by, as `protect` and `share_plain` list them.

    Raises ConfigError where they differ from the owner's policy: what is sealed, and how, must not be a surprise.
    """
    by_filter = {secret.clear_filter: secret for secret in granted}
    region_names = {view.region: view.name for view in overlay.views.values()}
    chosen = []
    for protect in where.protect:
        secret = by_filter.get(protect.filter)
        if secret is None:
            raise ConfigError(f"protect: no scope {protect.filter} was granted to us; ask the overlay's owner for it")
        scope = secret.scope
        allowed = sorted(region_names[r] for r in overlay.regions_of(scope))
        said = {
            "mode": (protect.mode, scope.mode.name.lower()),
            "tokens": (protect.tokens, scope.tokens),
            "regions": (sorted(protect.regions or allowed), allowed),
        }
        for what, (ours, policy) in said.items():
            if ours != policy:
                raise ConfigError(
                    f"protect: {protect.filter}: {what} is {ours} here, {policy} in the owner's policy; make them equal"
                )
        chosen.append(secret)
    for plain in where.share_plain:
        secret = by_filter.get(plain)
        if secret is None or secret.scope.mode is not Mode.PLAIN:
            raise ConfigError(f"share_plain: {plain} is no plain scope of the policy granted to us; ask the owner")
        chosen.append(secret)
    return chosen


def build(party: Party, wrap: Callable[[Machine], Machine] | None = None) -> Links:
    """Put the parts together; `wrap` may stand between node and links (the demo's liar)."""
    settings = party.settings
    if settings.data is None:
        raise ConfigError("a member of an overlay needs a data directory; add `data: DIR` or --data DIR")
    store = Store.open(settings.data)
    node: Machine
    if party.local.role is Role.REPLICA:
        node = ReplicaNode(party.overlay, party.name, store.split_seed(EPOCH))
    else:
        node = GatewayNode(
            party.overlay, party.local.identity, party.name, party.granted, os.urandom, outgoing=party.outgoing
        )
    clients = {
        peer: dial(
            party.overlay,
            party.name,
            peer,
            party.tls,
            session_expiry_s=SESSION_EXPIRY_S,
            random=random.SystemRandom().random,
        )
        for peer in party.dials()
    }
    availability = None
    if settings.availability.enabled and party.local.role is Role.GATEWAY:
        availability = Availability(party.name, prefix=settings.availability.topic_prefix)
    figures = Figures(party.name, party.local.role.value)
    return Links(wrap(node) if wrap else node, figures, store, party.tls.recognise, clients, availability)


def serve(settings: Settings, wrap: Callable[[Machine], Machine] | None = None) -> None:
    """Run a broker in the role that its settings say until SIGTERM or SIGINT. Raises what `Party` and the broker do."""
    run = asyncio.run
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415  not there on every platform

        run = uvloop.run
    run(_serve(settings, wrap))


async def _serve(settings: Settings, wrap: Callable[[Machine], Machine] | None) -> None:
    if settings.overlay is None:
        await run_broker(settings)
        return
    party = Party(settings)
    links = build(party, wrap)

    def started(broker: EdgeBroker) -> None:
        links.start(broker)

    try:
        await run_broker(settings, links, overlay_context=party.tls.server, started=started)
    finally:
        await links.stop()
