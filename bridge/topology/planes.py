"""Planes: the replicas that serve as brokers of the structured overlay, and the gateways that hang on them (C2, C3).

Plane j of a region is the replica at place j + 1 of its view in force; a scope has as many planes as its smallest
region has replicas, further replicas stand by. A gateway hangs on a plane for each scope, derived from the gateway's
name, so that nobody has to be told. Content of sealed scopes goes from place to place anyway, and may take detours.
While a region changes its view, members may disagree about places: then `is_open` returns False, and publications go as
in any other scope. While two trees of regions are open, the same holds.
"""

from __future__ import annotations

import hashlib

from bridge.document import Overlay, Scope
from bridge.topology.scot import PlanePlace


class Planes:
    """The planes of a version of the overlay and its views."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._counts: dict[str, int] = {}  # by scope: number of planes, 0 while they are not open
        self._hosts: dict[tuple[str, str], int] = {}  # by member and scope

    def is_open(self, scope: Scope) -> bool:
        """Returns True if publications of the scope go by planes now."""
        return scope.by_planes and self.plane_count(scope) > 0

    def detours(self, scope: Scope) -> bool:
        """Returns True if content of a sealed scope may now take a detour over another replica of a next region."""
        return scope.planes and not scope.by_planes and self.plane_count(scope) > 0

    def plane_count(self, scope: Scope) -> int:
        """Returns the number of planes of a scope; 0 while one of its regions changes its view, or two trees are
        open.
        """
        found = self._counts.get(scope.filter)
        if found is None:
            regions = self._overlay.regions_of(scope)
            settled = all(self._overlay.replicas(r) == self._overlay.views[r].members for r in regions)
            settled = settled and len(self._overlay.trees.open) == 1
            found = min(len(self._overlay.views[r].members) for r in regions) if settled else 0
            self._counts[scope.filter] = found
        return found

    def replica(self, place: PlanePlace) -> str:
        """Returns the replica at a place."""
        region, plane = place
        return self._overlay.views[region].members[plane]

    def place_of(self, scope: Scope, replica: str) -> PlanePlace | None:
        """Returns the place of a replica; None if the replica stands by, or is not in the view in force."""
        region = self._overlay.certificate(replica).region
        members = self._overlay.views[region].members[: self.plane_count(scope)]
        return (region, members.index(replica)) if replica in members else None

    def host(self, scope: Scope, member: str) -> int:
        """Returns the plane a gateway hangs on. Called while `is_open` is True."""
        asked = member, scope.filter
        found = self._hosts.get(asked)
        if found is None:
            digest = hashlib.sha256(f"{member}\0{scope.filter}".encode()).digest()
            found = self._hosts[asked] = int.from_bytes(digest[:8]) % self.plane_count(scope)
        return found

    def host_replica(self, scope: Scope, member: str) -> str:
        """Returns the replica of a gateway's own region the gateway hangs on. Called while `is_open` is True."""
        return self.replica((self._overlay.certificate(member).region, self.host(scope, member)))
