"""Routes of a replica: the neighbours that can hear it, and the next neighbour on each way.

Publications and shares take the same links, so forwarding and re-splitting ask the same questions. Not here: the
interests of members (`wire.statements`), the sent wires (`replica.forwarder`, `replica.resplitting`).
"""

from __future__ import annotations

from bridge.document import Overlay
from bridge.topology.planes import Planes
from bridge.topology.topology import Topology
from keys.identity import Certificate, Role


class Routes:
    """A replica's neighbourhood under the overlay in force. `up`: peers whose link can carry our wires."""

    def __init__(self, overlay: Overlay, name: str) -> None:
        self.overlay = overlay
        self.name = name
        self.region = overlay.certificate(name).region
        self.topology, self.planes = Topology(overlay), Planes(overlay)
        self.replicas = _replicas(overlay)
        self.up: set[str] = set()
        self.added: frozenset[str] = frozenset()
        """Replicas that became neighbours with the last change: their links are still to come."""

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, or other views or trees of it."""
        before = self._beside()
        self.overlay, self.topology, self.planes = overlay, Topology(overlay), Planes(overlay)
        self.replicas = _replicas(overlay)
        self.added = self._beside() - before
        self.up.intersection_update(overlay.members)

    def _beside(self) -> frozenset[str]:
        regions = self.topology.neighbours(self.region)
        return frozenset(name for region in regions for name in self.overlay.replicas(region))

    def is_replica(self, peer: str) -> bool:
        return peer in self.replicas

    def region_of(self, peer: str) -> int:
        return self.overlay.certificate(peer).region

    def towards(self, region: int, tree: int) -> int | None:
        """Returns the neighbouring region on the way to `region`; None for our region, or if there is no way."""
        return self.topology.next_towards(self.region, region, tree)

    def leads_back(self, member: str, sender: int) -> bool:
        """Returns True if a member's statements came to us from the region `sender`, along every open tree."""
        return self.topology.leads_back(self.region, self.region_of(member), sender)

    def replicas_up(self, region: int) -> list[str]:
        """Returns the replicas of a region that can hear us, also of views to come: they must know statements before
        that.
        """
        return [member for member in self.overlay.replicas(region) if member in self.up]

    def members_up(self, region: int) -> list[str]:
        """Returns the replicas of a region's open views that can hear us."""
        return [member for member in self.overlay.forwarders(region) if member in self.up]

    def lie_between(self, publisher: Certificate, member: str, region: int, tree: int) -> bool:
        """Returns True if wires from `publisher` to `member` in `region` come through here."""
        return publisher.name != member and self.topology.is_on_the_way(self.region, publisher.region, region, tree)


def _replicas(overlay: Overlay) -> frozenset[str]:
    of_all = (member.certificate for member in overlay.members.values())
    return frozenset(certificate.name for certificate in of_all if certificate.role is Role.REPLICA)
