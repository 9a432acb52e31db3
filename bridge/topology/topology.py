"""Who is next for whom, and which way a key takes: every question about how regions are joined is asked here.

Publisher, replica, reader, groups and membership ask this object and never the document's edges, so that trees that
change, or another routing, touch this room only. One object belongs to one version of the overlay and its views;
whoever holds it makes another when it adopts another. Not here: who can hear us just now (`routes`), who wants what.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.document import Overlay, Scope
from keys.errors import NotAuthorised
from keys.identity import Certificate, Role
from keys.keyheader import KeyHeader
from keys.sharetree import Hop, Place


class Topology:
    """See the module. Regions are named by their numbers."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay

    # ------------------------------------------------------------------------------------------ regions

    def neighbours(self, region: int) -> tuple[int, ...]:
        """Regions one edge away."""
        return self._overlay.neighbours(region)

    def next_towards(self, here: int, region: int) -> int | None:
        """The neighbour of `here` on the way to `region`; None if that is `here`."""
        way = self._overlay.path(here, region)
        return way[1] if len(way) > 1 else None

    def last_before(self, home: int, here: int) -> int | None:
        """The region from which what was published in `home` comes to `here`; None if it was published here."""
        way = self._overlay.path(home, here)
        return way[-2] if len(way) > 1 else None

    def is_on_the_way(self, region: int, home: int, end: int) -> bool:
        """Whether what goes from `home` to `end` passes `region`, both ends included."""
        return region in self._overlay.path(home, end)

    def regions_between(self, home: int, end: int) -> int:
        """How many regions something crosses from `home` to `end`, both included."""
        return len(self._overlay.path(home, end))

    def carries(self, region: int, scope: Scope) -> bool:
        """Whether publications of a scope may enter a region."""
        return region in self._overlay.regions_of(scope)

    # -------------------------------------------------------------------------------------- ways of keys

    def key_hops(self, scope: Scope, home: int) -> tuple[Hop, ...]:
        """What a key header states, now: the publisher's region first, then every other region of the scope."""
        return self._overlay.key_hops(scope, home)

    def key_way(self, header: KeyHeader, home: int, end: int) -> tuple[Hop, ...]:
        """The hops that a key's shares take from its publisher in `home` to `end`, in the views it was split for."""
        return header.along(self._overlay.path(home, end))

    def place_in(self, hops: Sequence[Hop], member: str) -> Place | None:
        """Where a replica stands in the view of its region that a key was split for; None: nowhere."""
        region = self._overlay.certificate(member).region
        hop = next((hop for hop in hops if hop.region == region), None)
        view = None if hop is None else self._overlay.view(region, hop.view)
        if view is None or member not in view.members:
            return None
        return Place(region, view.number, view.place_of(member))

    # ------------------------------------------------------------------------------------------ senders

    def check_sender(self, peer: str, publisher: Certificate, here: int) -> None:
        """Raise NotAuthorised unless what `publisher` sends may come to `here` from `peer`: from itself in its home
        region, else from a replica of the region before."""
        before = self.last_before(publisher.region, here)
        if before is None:
            fits = peer == publisher.name
        else:
            certificate = self._overlay.certificate(peer)
            fits = certificate.role is Role.REPLICA and certificate.region == before
        if not fits:
            raise NotAuthorised(f"{peer} is not on the way from {publisher.name} to us")


def peers_of(overlay: Overlay, name: str) -> frozenset[str]:
    """Members that `name` has a link with: gateways and jobs with all replicas of their region, hosted ones included,
    and all key servers; replicas of neighbouring regions with each other. Key servers hear of new overlays from
    gateways and jobs.

    Replicas of a view that is to come are neighbours already, those of the view before until it is closed."""
    me = overlay.certificate(name)
    clients = {
        certificate.name: certificate.region
        for certificate in (member.certificate for member in overlay.members.values())
        if certificate.role in (Role.GATEWAY, Role.INGEST)
    }
    match me.role:
        case Role.KEY_SERVER:
            return frozenset(clients) if name in overlay.policy.key_servers else frozenset()
        case Role.HOSTED:
            return frozenset()
        case Role.REPLICA:
            regions = Topology(overlay).neighbours(me.region)
            replicas = {member for region in regions for member in overlay.replicas(region)}
            return frozenset(replicas | {client for client, region in clients.items() if region == me.region})
        case _:
            return frozenset(overlay.replicas(me.region)) | frozenset(overlay.policy.key_servers)
