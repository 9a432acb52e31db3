"""The standing of a party of the overlay at one moment, for operators: data only, gathered from the driver.

Not here: which of it is good or bad (`gateway/health`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.document import Overlay
from bridge.node import GatewayNode, ReaderNode, ReplicaNode
from bridge.presence import RegionPresence
from bridge.topology import potential_peers
from gateway.base import HistoryState, ReaderState
from gateway.overlay.broker_overlay import BrokerOverlay
from gateway.overlay.local_rights import ScopeRights
from keys.identity import CARRIERS, Role


@dataclass(frozen=True, slots=True)
class RegionStanding:
    """A region, or (`name` empty) the key servers, as far as we dial its members. `away`: why, by name."""

    name: str
    members: tuple[str, ...]
    up: tuple[str, ...]
    needed: int
    away: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OverlayStanding:
    """`versions`: what each connected neighbour has; `clocks`: seconds by which theirs ran ahead when it connected.

    `keys_missing`: scopes, by clear filter, without a key of the present epoch; `keys_late`: without one of the next
    though it could have been fetched for `late_s` seconds. `oldest_s`: how long the oldest in the outbox waits that too
    few replicas have; what only one that is away lacks is in `outbox_depth`, and waits for nothing else.
    `outlived`: a later start of our identity runs elsewhere. `failures`: exceptions of our machine.
    `refusals`: why replicas take nothing of ours. `refused`: why we took nothing of a neighbour lately. `proposal`:
    which swap of the tree replicas speak for, as `SwapProposal.to_json` has it; empty where nobody measures. `swaps`:
    what the organiser changed and offers; empty where there is none. `presence`: what was heard of each region of an
    overlay of several. `rights`: of a gateway, in each scope. `classical`: members to which keys are sealed with X25519
    alone. `histories`: how far those of a replica reach. `readers`: receipts of what a gateway published.
    """

    name: str
    role: str
    version: int
    regions: tuple[RegionStanding, ...] = ()
    key_servers: RegionStanding | None = None
    versions: Mapping[str, int] = field(default_factory=dict)
    clocks: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[str, float] = field(default_factory=dict)
    outbox_depth: int = 0
    outbox_bytes: int = 0
    outbox_bytes_max: int = 0
    oldest_s: float = 0.0
    epoch: int = 0
    keys_missing: tuple[str, ...] = ()
    keys_late: tuple[str, ...] = ()
    late_s: float = 0.0
    epoch_left_s: float = 0.0
    removed: bool = False
    outlived: bool = False
    failures: int = 0
    refusals: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    proposal: Mapping[str, object] = field(default_factory=dict)
    swaps: Mapping[str, object] = field(default_factory=dict)
    presence: tuple[RegionPresence, ...] = ()
    rights: tuple[ScopeRights, ...] = ()
    classical: tuple[str, ...] = ()
    histories: tuple[HistoryState, ...] = ()
    readers: tuple[ReaderState, ...] = ()


def standing(links: BrokerOverlay, now: float, outbox_bytes_max: int) -> OverlayStanding:
    """Look at everything. `now`: UNIX time in seconds."""
    node, store, keeping, dials = links.parts
    overlay = keeping.overlay
    policy, calendar = overlay.policy, overlay.policy.calendar
    by_region: dict[int, list[str]] = {}
    servers = []
    potential = potential_peers(overlay, links.figures.name)
    for peer in dials:
        if peer not in overlay.members or peer in potential:
            continue
        certificate = overlay.certificate(peer)
        if certificate.role in CARRIERS:
            by_region.setdefault(certificate.region, []).append(peer)
        elif certificate.role is Role.KEY_SERVER:
            servers.append(peer)
    up = set(dials.connected_peers)

    def of(name: str, peers: list[str], needed: int) -> RegionStanding:
        away = {peer: dials[peer].last_error for peer in peers if peer not in up}
        return RegionStanding(name, tuple(peers), tuple(p for p in peers if p in up), needed, away)

    lacking_from = node.publisher.lacking_from if isinstance(node, GatewayNode) else 0
    oldest = store.first_from(lacking_from) if store.depth else None
    epoch = calendar.epoch_at(now)
    own = overlay.members.get(links.figures.name)
    late_s = now - calendar.fetch_from_s(epoch + 1) if calendar.length_s else 0.0
    return OverlayStanding(
        name=links.figures.name,
        role=links.figures.role,
        version=policy.version,
        regions=tuple(
            of(overlay.views[region].name, peers, overlay.views[region].threshold)
            for region, peers in sorted(by_region.items())
        ),
        key_servers=of("", servers, _servers_needed(len(policy.key_servers), policy.server_faults))
        if servers
        else None,
        versions=node.versions,
        clocks={peer: ahead_s for peer in up if (ahead_s := dials[peer].clock_ahead_s) is not None},
        named=dict(links.figures.named),
        ends={f"certificate of {links.figures.name} in the overlay": own.certificate.not_after_ms / 1000}
        if own
        else {},
        outbox_depth=store.depth,
        outbox_bytes=store.held_bytes,
        outbox_bytes_max=outbox_bytes_max if isinstance(node, GatewayNode) else 0,
        oldest_s=max(0.0, now - oldest[1] / 1000) if oldest and oldest[1] else 0.0,
        epoch=epoch,
        keys_missing=node.scopes_lacking_key(epoch) if isinstance(node, ReaderNode) else (),
        keys_late=node.scopes_lacking_key(epoch + 1) if late_s > 0 and isinstance(node, ReaderNode) else (),
        late_s=late_s,
        epoch_left_s=calendar.end_s(epoch) - now if calendar.length_s else 0.0,
        removed=node.removed,
        failures=links.figures.counts["machine_failed"],
        refusals=dict(node.publisher.refusals.reasons) if isinstance(node, GatewayNode) else {},
        refused=links.refusal_reasons(now),
        outlived=isinstance(node, GatewayNode) and node.life.outlived_by > 0,
        proposal=found.to_json() if isinstance(node, ReplicaNode) and (found := node.proposal(now)) else {},
        presence=node.presence.regions(now)
        if isinstance(node, GatewayNode | ReplicaNode) and len(overlay.views) > 1 and not node.removed
        else (),
        rights=links.rights(),
        classical=tuple(overlay.classical()),
        histories=tuple(links.figures.histories()),
        readers=tuple(links.figures.readers()),
        swaps=_swaps(node.keeper.swaps.why if isinstance(node, ReplicaNode) else "", overlay),
    )


def summaries(links: BrokerOverlay) -> list[str]:
    """Returns the signed frames of what replicas measured that this one heard, in base64; none at other parties."""
    node = links.parts.node
    told = node.measurer.summaries if isinstance(node, ReplicaNode) else ()
    return [base64.b64encode(said.encode()).decode() for said in told]


def _swaps(why: str, overlay: Overlay) -> dict[str, object]:
    """Returns the organiser's changes and offers; empty where nobody organises. `why`: we do not endorse its offer."""
    organising = overlay.policy.organising
    if organising is None or not organising.organiser:
        return {}
    found: dict[str, object] = {"organiser": organising.organiser, "in_force": len(overlay.swaps)}
    found |= {"stopped": bool(overlay.proof), "offered": None}
    if overlay.offered:
        swap = overlay.offered[0]
        add, remove = (" - ".join(overlay.latest[r].name for r in edge) for edge in (swap.added, swap.removed))
        endorsers = sorted(overlay.swap_endorsers(swap))
        found["offered"] = {
            "number": swap.number, "add": add, "remove": remove, "endorsed": endorsers, "objection": why,
        }  # fmt: skip
    return found


def _servers_needed(servers: int, faults: int) -> int:
    """Answers making a key: all but those that may lie or be away."""
    return servers - faults if faults else 1
