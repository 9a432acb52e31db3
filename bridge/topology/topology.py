"""The ways between regions: every question about the joins of regions is asked here.

Publisher, replica, reader, groups and membership ask this object and never the document's edges, so that trees that
change, or another routing, touch this room only. An object belongs to a version of the overlay and its views; a member
that adopts another version makes another object. Each of two open trees (`document.trees`) has ways of its own: a
travelling wire names the number of its tree, and so does a question for a way; a closed tree has no ways. Not here:
the neighbours that can hear us now (`routes`), interests.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.document import Overlay, Scope
from bridge.topology.potential import potential_peers
from keys.errors import BadShare, NotAuthorised
from keys.identity import Certificate, Role
from keys.keyheader import KeyHeader
from keys.sharetree import Hop, Place
from keys.wrapping import is_long


class Topology:
    """The ways between regions in a single version of the overlay. Regions are named by their numbers."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._open = {tree.number: tree for tree in overlay.trees.open}
        self._senders: set[tuple[str, str, int, int, int]] = set()  # as `check_sender` is asked: those that fit

    # ------------------------------------------------------------------------------------------ regions

    def neighbours(self, region: int) -> tuple[int, ...]:
        """Returns the regions a single edge away, in any open tree."""
        return self._overlay.neighbours(region)

    def is_open(self, tree: int) -> bool:
        """Returns True if a wire on its way may name this tree."""
        return tree in self._open

    def way(self, home: int, end: int, tree: int) -> tuple[int, ...]:
        """Returns the regions from `home` to `end`, both included; none if the tree has no way, or is not open."""
        found = self._open.get(tree)
        return () if found is None else found.path(home, end)

    def next_towards(self, here: int, region: int, tree: int) -> int | None:
        """Returns the neighbour of `here` on the way to `region`; None for `here` itself, or if there is no way."""
        way = self.way(here, region, tree)
        return way[1] if len(way) > 1 else None

    def leads_back(self, here: int, region: int, sender: int) -> bool:
        """Returns True if statements of `region` come to `here` from the region `sender`, along every open tree."""
        return all(each.path(here, region)[1:2] == (sender,) for each in self._open.values())

    def last_before(self, home: int, here: int, tree: int) -> int | None:
        """Returns the region from which publications of `home` come to `here`; None if `home` is `here`, or there is no
        way.
        """
        way = self.way(home, here, tree)
        return way[-2] if len(way) > 1 else None

    def was_before(self, region: int, home: int, here: int) -> bool:
        """Returns True if publications of `home` come to `here` from `region`, in the newest tree or the former: other
        members may close a tree a little later.
        """
        trees = self._overlay.trees
        ways = [tree.path(home, here) for tree in (trees.newest, trees.former) if tree is not None]
        return any(way[-2:-1] == (region,) for way in ways)

    def is_on_the_way(self, region: int, home: int, end: int, tree: int) -> bool:
        """Returns True if the way from `home` to `end` passes `region`, both ends included."""
        return region in self.way(home, end, tree)

    def regions_between(self, home: int, end: int, tree: int) -> int:
        """Returns the number of regions from `home` to `end`, both included; at least one."""
        return max(1, len(self.way(home, end, tree)))

    def carries(self, region: int, scope: Scope) -> bool:
        """Returns True if publications of a scope may enter a region."""
        return region in self._overlay.regions_of(scope)

    # -------------------------------------------------------------------------------------- ways of keys

    def key_hops(self, scope: Scope, home: int) -> tuple[Hop, ...]:
        """Returns the hops of a new key header: the publisher's region first, then every other region of the scope."""
        return self._overlay.key_hops(scope, home)

    def needs_wrapping(self, hops: Sequence[Hop], tree: int) -> bool:
        """Returns True if a key with these hops is wrapped: a way from its first region to another one is long."""
        found = self._open.get(tree)
        return found is not None and is_long(found.longest(hops[0].region, [hop.region for hop in hops]))

    def key_way(self, header: KeyHeader, home: int, end: int) -> tuple[Hop, ...]:
        """Returns the hops of a key's shares from its publisher in `home` to `end`, in the views for which the key was
        split. Raises BadShare if its tree has no way.
        """
        way = self.way(home, end, header.tree)
        if not way:
            raise BadShare(f"tree {header.tree} has no way from region {home} to {end}")
        return header.along(way)

    def place_in(self, hops: Sequence[Hop], member: str) -> Place | None:
        """Returns the place of a replica in the view of its region for which a key was split; None if the view does not
        list it.
        """
        region = self._overlay.certificate(member).region
        hop = next((hop for hop in hops if hop.region == region), None)
        view = None if hop is None else self._overlay.view(region, hop.view)
        if view is None or member not in view.members:
            return None
        return Place(region, view.number, view.place_of(member))

    # ------------------------------------------------------------------------------------------ senders

    def check_plane_sender(self, peer: str, publisher: Certificate, here: int, tree: int) -> None:
        """Raises NotAuthorised as `check_sender` does, but lets another replica of our region pass wires on too, as
        planes need. Our own wires never come back to us, so no copy goes in a circle.
        """
        certificate = self._overlay.certificate(peer)
        if certificate.role is not Role.REPLICA or certificate.region != here:
            self.check_sender(peer, publisher, here, tree)

    def check_sender(self, peer: str, publisher: Certificate, here: int, tree: int) -> None:
        """Raises NotAuthorised unless wires of `publisher` may come to `here` from `peer`: from the publisher itself in
        its home region, else from a replica of the region before.
        """
        asked = peer, publisher.name, publisher.region, here, tree
        if asked in self._senders:
            return
        before = self.last_before(publisher.region, here, tree)
        if before is None:
            fits = peer == publisher.name and publisher.region == here
        else:
            certificate = self._overlay.certificate(peer)
            fits = certificate.role is Role.REPLICA and certificate.region == before
        if not fits:
            raise NotAuthorised(f"{peer} is not on the way from {publisher.name} to us")
        self._senders.add(asked)


def peers_of(overlay: Overlay, name: str) -> frozenset[str]:
    """Returns the members that `name` has a link with. Gateways and jobs: all replicas of their region, hosted ones
    included, and all key servers. Replicas: replicas of neighbouring regions, of their own region where a scope goes
    by planes, and of potential links. Key servers: gateways and jobs, from which they hear of new overlays.

    Replicas of a view to come are neighbours already; replicas of the view before, until it closes.
    """
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
