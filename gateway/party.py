"""Assembly of a party of the overlay from its configuration: identity, signed overlay, grant, TLS, store and node.

Every fault of the files is reported here, in a line, before anything listens. The running parts are in
`gateway.overlay`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.contract import Count, OverlayNode
from bridge.document import Issuer, Overlay, OverlayError, Scope, ScopeSecret
from bridge.node import LINK_WINDOW, GatewayNode, KeyServerNode, ReplicaNode
from gateway.attached import Attached
from gateway.base import (
    ConfigError,
    Figures,
    LinkFigures,
    LinkState,
    OverlaySettings,
    Settings,
    collect_by_clock,
    stamp,
    use_large_pages,
)
from gateway.base.log_events import LogEvent
from gateway.broker import LINK_LIMITS, EdgeBroker, Lifecycle, run_broker
from gateway.client import LinkTls, MqttClient
from gateway.data import DataDirectory, StoreError
from gateway.mqtt5.types import ReasonCode
from gateway.outbox import Store
from gateway.overlay import (
    BrokerOverlay,
    Dials,
    GatewayOverlay,
    Keeping,
    KeyCache,
    KeyMaterial,
    KeyMaterialError,
    KeyServerOverlay,
    LocalEntities,
    ReaderRows,
    ReplicaOverlay,
    dial,
    logins,
)
from gateway.receipts import RECEIPTS_PURPOSE, ReceiptKeeper
from gateway.trust import LiveOverlay, LocalIdentity, load_overlay, load_secrets, take_listed_key
from keys.envelope import Mode
from keys.epochs import ScopeKeys
from keys.errors import KeysError
from keys.identity import Role
from keys.material import Material

if TYPE_CHECKING:
    from gateway.overlay import Neighbours

log = logging.getLogger("veilmq.links")

NO_DATA = "a member of an overlay needs a data directory; add `data: DIR` or --data DIR"
SEED_AGAIN_S = 10.0
"""Seconds between attempts at a disk that keeps no seed."""
SESSION_EXPIRY_S = 3600  # seconds that a replica queues for us while we are away: a gateway's `bridge.wire.SESSION_S`


class Party:
    """The files of a member, loaded and checked; nothing runs yet.

    If the overlay lists the key that was prepared by a rotation, that key is taken now. Raises TrustError,
    OverlayError, TlsError or ConfigError, each a line.
    """

    def __init__(self, settings: Settings) -> None:
        if settings.overlay is None:
            raise ConfigError("the configuration has no overlay section; add identity and overlay file")
        self.settings = settings
        where = self.where = settings.overlay
        local = LocalIdentity.load(where.identity)
        seen = stamp(where.overlay)
        self.overlay = load_overlay(where.overlay, int(time.time() * 1000), where.identity / "overlay.pin")
        check_listed(local.name, self.overlay, where.overlay)
        self.local = take_listed_key(local, self.overlay)
        self.tls = LinkTls(self.local.name, self.local.cert, self.local.key_path, self.overlay.members)
        self.live = LiveOverlay(where.overlay, self.local, self.tls, self.overlay, seen)
        self.granted: list[ScopeSecret] = []
        self.outgoing: list[ScopeSecret] = []
        self.keys = ScopeKeys()
        if self.local.role in (Role.GATEWAY, Role.INGEST):
            self.granted, self.keys = load_secrets(self.local, self.overlay)
            self.outgoing = outgoing_scopes(where, self.overlay, self.granted)
        lost = not_granted(where, self.granted)
        if lost and self.local.role is not Role.GATEWAY:
            raise ConfigError(lost[0])
        for text in lost:
            LogEvent.SCOPE_NOT_GRANTED.say(log, text)
        self.logins = logins(self.overlay, self.name, where.hosted)
        if (self.local.role is Role.KEY_SERVER) != (where.key_server is not None):
            raise ConfigError(
                f"overlay.key_server is for key servers, {self.local.name} is a {self.local.role}; "
                "add it to a key server's configuration only"
            )

    @property
    def name(self) -> str:
        return self.local.name


def check_listed(name: str, overlay: Overlay, path: Path) -> None:
    """Raises OverlayError unless the overlay in the file `path` has a use for the member."""
    if name not in overlay.members:
        raise OverlayError(f"{name} is no member of {path}; ask the owner to add your card")
    certificate = overlay.certificate(name)
    if certificate.role is Role.REPLICA and name not in overlay.replicas(certificate.region):
        raise OverlayError(f"{name} is in no view of {path}; it was detached: ask the owner to attach it")


def outgoing_scopes(where: OverlaySettings, overlay: Overlay, granted: Sequence[ScopeSecret]) -> list[ScopeSecret]:
    """Returns the scopes of outgoing publications, listed by `protect` and `share_plain` and granted by the owner.

    Raises ConfigError if the lists differ from the owner's policy: the sealed topics and modes must be no surprise.
    """
    by_filter = {secret.clear_filter: secret for secret in granted}
    region_names = {view.region: view.name for view in overlay.views.values()}
    chosen = []
    for protect in where.protect:
        secret = by_filter.get(protect.filter)
        if secret is None:
            continue
        scope = secret.scope
        allowed = sorted(region_names[r] for r in overlay.regions_of(scope))
        said = {
            "mode": (protect.mode or "sealed", _mode_in_words(scope, protect.mode is None)),
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
        if secret is None:
            continue
        if secret.scope.mode is not Mode.PLAIN:
            raise ConfigError(f"share_plain: {plain} is no plain scope of the policy; make them equal")
        chosen.append(secret)
    return chosen


def not_granted(where: OverlaySettings, granted: Sequence[ScopeSecret]) -> list[str]:
    """Returns a line for each filter of `protect` and `share_plain` whose scope the owner does not grant us.

    A gateway starts nevertheless: publications to these scopes are refused, all others are served.
    """
    ours = {secret.clear_filter for secret in granted}
    wanted = [("protect", protect.filter) for protect in where.protect]
    wanted += [("share_plain", plain) for plain in where.share_plain]
    return [
        f"{section}: no scope {topic_filter} was granted to us; ask the overlay's owner for it"
        for section, topic_filter in wanted
        if topic_filter not in ours
    ]


def _mode_in_words(scope: Scope, any_sealed: bool) -> str:
    """Returns the scope's content mode as in the configuration; with `any_sealed` a single word for all sealed
    modes.
    """
    return "sealed" if any_sealed and scope.mode is not Mode.PLAIN else scope.mode.name.lower()


def build(
    party: Party, wrap: Callable[[OverlayNode], OverlayNode] | None = None, neighbours: Neighbours | None = None
) -> BrokerOverlay:
    """Puts the parts together.

    `wrap` may wrap the node (the demo's liar); `neighbours`: members found on the local network. Raises ConfigError,
    StoreError, KeyMaterialError.
    """
    settings = party.settings
    if settings.data is None:
        raise ConfigError(NO_DATA)
    data = DataDirectory.open(settings.data)
    store = Store(data, party.where.outbox_bytes)
    try:
        node, cache, material = _node(party, data, store)
    except BaseException:
        store.close()
        raise
    dials = Dials(partial(_dial, party, neighbours))
    figures = Figures(party.name, party.local.role.value, links=dials.link_states)
    keeping = Keeping(data, party.live, party.keys, cache, material)
    if party.local.role is Role.REPLICA:
        return ReplicaOverlay(wrap(node) if wrap else node, figures, store, keeping, dials, data.path / "history")
    if not isinstance(node, GatewayNode):
        return KeyServerOverlay(wrap(node) if wrap else node, figures, store, keeping, dials)
    prefix = settings.availability.topic_prefix if settings.availability.enabled else None
    return GatewayOverlay(
        node,
        figures,
        store,
        keeping,
        dials,
        ReaderRows(data.sealing_key(b"reader state"), party.overlay.owner, party.name),
        ReceiptKeeper(data.path, partial(data.sealing_key, RECEIPTS_PURPOSE), figures.count_effect),
        None if prefix is None else LocalEntities(party.name, prefix),
        protected=[protect.filter for protect in party.where.protect],
        plain=party.where.share_plain,
        full_is_local=party.where.outbox_full == "local",
    )


def _dial(party: Party, neighbours: Neighbours | None, peer: str) -> MqttClient:
    return dial(
        party.live.overlay,
        party.name,
        peer,
        party.tls,
        session_expiry_s=SESSION_EXPIRY_S,
        logins=party.logins,
        limits=LINK_LIMITS,
        receive_maximum=LINK_WINDOW,
        manual_ack=party.local.role is Role.GATEWAY,
        random=random.SystemRandom().random,
        elsewhere=partial(neighbours.addresses, peer) if neighbours else tuple,
    )


def accepted_links(lifecycle: Lifecycle, figures: Figures) -> list[LinkState]:
    """Returns the links that members dialled. Bytes are payloads here: the broker counts no other bytes by client."""
    states = []
    for peer, client in lifecycle.peers.items():
        session, heard = client.session, figures.heard.get(peer, LinkFigures())
        counted = LinkFigures(session.figures.delivered, session.figures.delivered_bytes)
        counted.received, counted.received_bytes = heard.received, heard.received_bytes
        up, in_flight = client.connection is not None, len(session.outbound.unacknowledged)
        states.append(LinkState(peer, False, up, in_flight, len(session.waiting), counted))
    return states


def _node(party: Party, data: DataDirectory, store: Store) -> tuple[OverlayNode, KeyCache | None, KeyMaterial | None]:
    """Returns the node of our role with its initial state, the key cache and the key material."""
    overlay, local = party.overlay, party.local
    if local.role is Role.REPLICA:
        return ReplicaNode(overlay, local.identity, party.name, SplitSeeds(data)), None, None
    if local.role is Role.KEY_SERVER:
        material = KeyMaterial(data.path, data.sealing_key(b"key material"), overlay.owner, party.name)
        return key_server_node(party, material), None, material
    cache = None
    if overlay.policy.issuer is not Issuer.OWNER:
        cache = KeyCache(data.path, data.sealing_key(b"key cache"), overlay.owner, party.name)
        cache.load(party.keys)
    node = GatewayNode(
        overlay,
        local.identity,
        party.name,
        party.granted,
        party.keys,
        os.urandom,
        outgoing=[*(protect.filter for protect in party.where.protect), *party.where.share_plain],
        max_age_s=party.where.outbox_age_s or None,
        shelf=store,
        generation=data.generation,
        passed_over=data.passed_over,
    )
    node.publisher.sealer.padding = party.where.padding
    return node, cache, None


class SplitSeeds:
    """The seeds of a replica's splits, by epoch.

    While the disk keeps no seed, none is given and no share is split: another seed after a restart would contradict
    the replica's earlier splits. Content is still forwarded.
    """

    def __init__(self, data: DataDirectory, clock: Callable[[], float] = time.monotonic) -> None:
        self._data, self._clock = data, clock
        self._refused: tuple[int, float] | None = None

    def __call__(self, epoch: int) -> bytes | None:
        """Returns the seed of an epoch; None while the disk refuses it, which is tried again after `SEED_AGAIN_S`."""
        if self._refused is not None:
            refused, at = self._refused
            if refused == epoch and self._clock() - at < SEED_AGAIN_S:
                return None
        try:
            return self._data.split_seed(epoch)
        except StoreError as error:
            LogEvent.SPLIT_SEED_NOT_KEPT.say(log, error, epoch)
            self._refused = epoch, self._clock()
            return None


def key_server_node(party: Party, files: KeyMaterial) -> KeyServerNode:
    """Returns the key server with its kept material or the owner's new material. Raises KeyMaterialError."""
    assert party.where.key_server is not None
    source = party.where.key_server.material
    kept, handed_over = files.load(), files.handed_over(source)
    if kept is None and handed_over is None:
        raise KeyMaterialError(f"{source}: no such file, and no material is kept; ask the overlay's owner for it")
    try:
        material = None if kept is None else Material.decode(kept)
        if handed_over is not None:
            fresh = Material.decode(handed_over)
            material = fresh if material is None else material.followed_by(fresh)
            files.take_in(source, material.encode())
    except KeysError as error:
        raise KeyMaterialError(f"{source}: {error}; ask the overlay's owner for the right file") from None
    assert material is not None
    return KeyServerNode(party.overlay, party.local.identity, party.name, material, files.archived(), os.urandom)


def serve(
    settings: Settings,
    wrap: Callable[[OverlayNode], OverlayNode] | None = None,
    read: Callable[[], Settings] | None = None,
) -> None:
    """Runs a broker in the role of its settings until SIGTERM or SIGINT. Raises the errors of `Party` and the broker.

    `read` returns the configuration anew, for SIGHUP.
    """
    run = asyncio.run
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415  not there on every platform

        run = uvloop.run
    run(_serve(settings, wrap, read))


async def _serve(
    settings: Settings, wrap: Callable[[OverlayNode], OverlayNode] | None, read: Callable[[], Settings] | None
) -> None:
    if settings.overlay is None:
        with contextlib.ExitStack() as ends:
            beside = Attached(settings, None)
            joined = _traced(settings, ends, lambda count: None), _watched(settings, ends), beside.begin_parts

            def serves(broker: EdgeBroker) -> None:
                for join in joined:
                    join(broker)
                collect_by_clock(asyncio.get_running_loop())

            try:
                await run_broker(settings, started=serves, read=read)
            finally:
                await beside.end_parts()
        return
    party = Party(settings)
    async with contextlib.AsyncExitStack() as stack:
        neighbours = None
        if party.where.discovery.advertise or party.where.discovery.find:
            from gateway.overlay.neighbours import Neighbours  # noqa: PLC0415  zeroconf is heavy, and few want it

            neighbours = await stack.enter_async_context(Neighbours(party.where.discovery, party.live))
        links = build(party, wrap, neighbours)
        dialled = links.figures.links
        trace, watch = _traced(settings, stack, links.figures.count_effect), _watched(settings, stack)
        beside = Attached(settings, links)

        def started(broker: EdgeBroker) -> None:
            links.figures.links = lambda: [*dialled(), *accepted_links(broker.lifecycle, links.figures)]
            broker.exchange.own_topics = links.own_topics
            links.start(broker.local, partial(end_session, broker.lifecycle))
            trace(broker)
            watch(broker)
            beside.begin_parts(broker)
            if neighbours is not None:
                neighbours.advertise(settings, broker.port)
            collect_by_clock(asyncio.get_running_loop())

        use_large_pages()
        try:
            await run_broker(settings, links, overlay_context=party.tls.server, started=started, read=read)
        finally:
            await beside.end_parts()
            await links.stop()


def _traced(
    settings: Settings, ends: contextlib.ExitStack | contextlib.AsyncExitStack, count: Callable[[Count], None]
) -> Callable[[EdgeBroker], None]:
    """Returns a function joining tracing to a broker, if configured; tracing ends with `ends`.

    Raises TrustError.
    """
    if settings.traces is None:
        return lambda broker: None
    from gateway.tracing.assembly import join, make_tracing  # noqa: PLC0415  few have it

    tracing = make_tracing(settings.traces, settings.data, count)
    ends.callback(tracing.stop)
    return partial(join, tracing)


def _watched(
    settings: Settings, ends: contextlib.ExitStack | contextlib.AsyncExitStack
) -> Callable[[EdgeBroker], None]:
    """Returns a function letting configured brokers watch this one; watching ends with `ends`. Raises TrustError."""
    if settings.watched is None:
        return lambda broker: None
    from gateway.tracing.watched import Watched  # noqa: PLC0415  few have it

    watched = Watched(settings.watched)
    ends.callback(watched.end_tracing)
    return lambda broker: watched.begin_tracing()


def end_session(lifecycle: Lifecycle, peer: str) -> None:
    """Closes the connection of a member the overlay no longer lists, and drops its session."""
    client = lifecycle.peers.get(peer)
    if client is None:
        return
    lifecycle.dismiss(client, ReasonCode.NOT_AUTHORIZED)
    for action in client.session.end_session() if client.alive else ():
        lifecycle.perform(client, action)
