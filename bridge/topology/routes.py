"""Where one replica stands in the overlay: its place, which neighbours can hear it, what may come from whom.

Publications and shares take the same links, so forwarding and re-splitting ask the same questions. Not here: who wants
what (`subscriptions`), what is sent (`forwarding`, `resplitting`).
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.document import Overlay
from keys.errors import NotAuthorised
from keys.identity import Certificate, Role
from keys.sharetree import Hop, Place


class Routes:
    """One replica's neighbourhood under the overlay in force. `up`: peers whose link can carry what we send.

    What a key's shares need depends on the views that the key was split for (`hops`), which may be those before the
    present ones; a replica may have another place in each, or none.
    """

    def __init__(self, overlay: Overlay, name: str) -> None:
        self.overlay = overlay
        self.name = name
        self.region = overlay.certificate(name).region
        self.up: set[str] = set()

    def adopt(self, overlay: Overlay) -> None:
        """Another version of the overlay, or other views of it, of the same regions."""
        self.overlay = overlay
        self.up.intersection_update(overlay.members)

    def place_in(self, hops: Sequence[Hop], member: str) -> Place | None:
        """Where a replica stands in the view of its region that a key was split for; None: nowhere."""
        region = self.region_of(member)
        hop = next((hop for hop in hops if hop.region == region), None)
        view = None if hop is None else self.overlay.view(region, hop.view)
        if view is None or member not in view.members:
            return None
        return Place(region, view.number, view.place_of(member))

    def is_replica(self, peer: str) -> bool:
        return self.overlay.certificate(peer).role is Role.REPLICA

    def region_of(self, peer: str) -> int:
        return self.overlay.certificate(peer).region

    def towards(self, region: int) -> int | None:
        """The neighbouring region on the way to `region`; None if that is ours."""
        path = self.overlay.path(self.region, region)
        return path[1] if len(path) > 1 else None

    def replicas_up(self, region: int) -> list[str]:
        """Replicas of a region that can hear us, also those that are to come: what they must know before that."""
        return [member for member in self.overlay.replicas(region) if member in self.up]

    def members_up(self, region: int) -> list[str]:
        """Replicas of a region's open views that can hear us."""
        return [member for member in self.overlay.forwarders(region) if member in self.up]

    def lie_between(self, publisher: Certificate, member: str, region: int) -> bool:
        """Whether what `publisher` sends to `member` in `region` comes through here."""
        return publisher.name != member and self.region in self.overlay.path(publisher.region, region)

    def check(self, peer: str, home: int, publisher: str) -> None:
        """Raise NotAuthorised unless `peer` is the publisher, in its home region, or of the region before ours."""
        path = self.overlay.path(home, self.region)
        certificate = self.overlay.certificate(peer)
        if len(path) == 1:
            fits = peer == publisher
        else:
            fits = certificate.role is Role.REPLICA and certificate.region == path[-2]
        if not fits:
            raise NotAuthorised(f"{peer} is not on the way from {publisher} to us")
