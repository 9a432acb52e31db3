"""Potential links: pairs of replicas of unjoined regions that probe each other (paper D, D2).

The owner's `links` name the regions. The replicas of two regions at equal places are pairs. The further replicas of a
larger region are paired from the other region's first on again, so that every replica has a pair to measure. Such a
link carries probes, summaries and versions of the overlay, and no publication. Before a link the organiser offers is
joined, all replicas of its two ends are linked. Not here: the measurements.
"""

from __future__ import annotations

from bridge.document import Overlay
from keys.identity import Role


def potential_peers(overlay: Overlay, name: str) -> frozenset[str]:
    """Returns the replicas that `name` has a link with only to measure it."""
    organising, member = overlay.arrangement.organising, overlay.members.get(name)
    if organising is None or member is None or member.certificate.role is not Role.REPLICA:
        return frozenset()
    here = member.certificate.region
    joined = {here, *overlay.neighbours(here)}
    others = {other for edge in organising.links if here in edge for other in edge} - joined
    peers = {peer for other in others for peer in _paired(overlay, name, here, other)}
    for swap in overlay.offered:
        if here in swap.added and overlay.arrangement.allows(swap.added):
            peers.update(peer for other in set(swap.added) - joined for peer in overlay.replicas(other))
    return frozenset(peers)


def _paired(overlay: Overlay, name: str, here: int, there: int) -> list[str]:
    ours, theirs = overlay.views[here].members, overlay.views[there].members
    if name not in ours:
        return []
    place = ours.index(name)
    return [
        peer for at, peer in enumerate(theirs)
        if at == place % len(theirs) or place == at % len(ours)
    ]  # fmt: skip
