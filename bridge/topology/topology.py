"""Who is next for whom, and which way a key takes: every question about how regions are joined is asked here.

Publisher, replica, reader, groups and membership ask this object and never the document's edges, so that trees that
change, or another routing, touch this room only. One object belongs to one version of the overlay and its views;
whoever holds it makes another when it adopts another. Of two open trees (`document.trees`) each has ways of its own:
what travels names the number of its tree, and whoever asks for a way names it too; one that is closed has no ways.
Not here: who can hear us just now (`routes`), who wants what.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.document import Overlay, Scope
from bridge.topology.potential import potential_peers
from keys.errors import BadShare, NotAuthorised
from keys.identity import Certificate, Role
from keys.keyheader import KeyHeader
from keys.sharetree import Hop, Place


class Topology:
    """See the module. Regions are named by their numbers."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._open = {tree.number: tree for tree in overlay.trees.open}

    # ------------------------------------------------------------------------------------------ regions

    def neighbours(self, region: int) -> tuple[int, ...]:
        """Regions one edge away, in any open tree."""
        return self._overlay.neighbours(region)

    def is_open(self, tree: int) -> bool:
        """Whether something on its way may name this tree."""
        return tree in self._open

    def way(self, home: int, end: int, tree: int) -> tuple[int, ...]:
        """The regions from `home` to `end`, both included; none where the tree has no way, or is not open."""
        found = self._open.get(tree)
        return () if found is None else found.path(home, end)

    def next_towards(self, here: int, region: int, tree: int) -> int | None:
        """The neighbour of `here` on the way to `region`; None if that is `here`, or there is no way."""
        way = self.way(here, region, tree)
        return way[1] if len(way) > 1 else None

    def leads_back(self, here: int, region: int, sender: int) -> bool:
        """Whether what was stated in `region` came to `here` from the region `sender`, whatever tree it came along."""
        return all(each.path(here, region)[1:2] == (sender,) for each in self._open.values())

    def last_before(self, home: int, here: int, tree: int) -> int | None:
        """The region from which what was published in `home` comes to `here`; None if it was published here."""
        way = self.way(home, here, tree)
        return way[-2] if len(way) > 1 else None

    def was_before(self, region: int, home: int, here: int) -> bool:
        """Whether what is published in `home` comes to `here` from `region`, in a tree that is open or was until now:
        others may close one a little later."""
        trees = self._overlay.trees
        ways = [tree.path(home, here) for tree in (trees.newest, trees.former) if tree is not None]
        return any(way[-2:-1] == (region,) for way in ways)

    def is_on_the_way(self, region: int, home: int, end: int, tree: int) -> bool:
        """Whether what goes from `home` to `end` passes `region`, both ends included."""
        return region in self.way(home, end, tree)

    def regions_between(self, home: int, end: int, tree: int) -> int:
        """How many regions something crosses from `home` to `end`, both included; at least one."""
        return max(1, len(self.way(home, end, tree)))

    def carries(self, region: int, scope: Scope) -> bool:
        """Whether publications of a scope may enter a region."""
        return region in self._overlay.regions_of(scope)

    # -------------------------------------------------------------------------------------- ways of keys

    def key_hops(self, scope: Scope, home: int) -> tuple[Hop, ...]:
        """What a key header states, now: the publisher's region first, then every other region of the scope."""
        return self._overlay.key_hops(scope, home)

    def key_way(self, header: KeyHeader, home: int, end: int) -> tuple[Hop, ...]:
        """The hops that a key's shares take from its publisher in `home` to `end`, in the views it was split
        for. Raises BadShare where its tree has no way."""
        way = self.way(home, end, header.tree)
        if not way:
            raise BadShare(f"tree {header.tree} has no way from region {home} to {end}")
        return header.along(way)

    def place_in(self, hops: Sequence[Hop], member: str) -> Place | None:
        """Where a replica stands in the view of its region that a key was split for; None: nowhere."""
        region = self._overlay.certificate(member).region
        hop = next((hop for hop in hops if hop.region == region), None)
        view = None if hop is None else self._overlay.view(region, hop.view)
        if view is None or member not in view.members:
            return None
        return Place(region, view.number, view.place_of(member))

    # ------------------------------------------------------------------------------------------ senders

    def check_plane_sender(self, peer: str, publisher: Certificate, here: int, tree: int) -> None:
        """The same in planes, where another replica of our region may pass it on, too. Nobody else: what went on from
        us never comes back, so no copy goes in a circle."""
        certificate = self._overlay.certificate(peer)
        if certificate.role is not Role.REPLICA or certificate.region != here:
            self.check_sender(peer, publisher, here, tree)

    def check_sender(self, peer: str, publisher: Certificate, here: int, tree: int) -> None:
        """Raise NotAuthorised unless what `publisher` sends may come to `here` from `peer`: from itself in its home
        region, else from a replica of the region before."""
        before = self.last_before(publisher.region, here, tree)
        if before is None:
            fits = peer == publisher.name and publisher.region == here
        else:
            certificate = self._overlay.certificate(peer)
            fits = certificate.role is Role.REPLICA and certificate.region == before
        if not fits:
            raise NotAuthorised(f"{peer} is not on the way from {publisher.name} to us")


def peers_of(overlay: Overlay, name: str) -> frozenset[str]:
    """Members that `name` has a link with: gateways and jobs with all replicas of their region, hosted ones included,
    and all key servers; replicas of neighbouring regions with each other, and those of one region where a
    scope goes by planes, and those that measure a link that could be. Key servers hear of new overlays from gateways
    and jobs.

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
            if any(scope.planes and me.region in overlay.regions_of(scope) for scope in overlay.policy.scopes):
                regions = (*regions, me.region)
            replicas = {member for region in regions for member in overlay.replicas(region)} - {name}
            replicas |= potential_peers(overlay, name)
            return frozenset(replicas | {client for client, region in clients.items() if region == me.region})
        case _:
            return frozenset(overlay.replicas(me.region)) | frozenset(overlay.policy.key_servers)
