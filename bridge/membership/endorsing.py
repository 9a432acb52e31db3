"""Endorsements of views: replicas of the view before make them, and every member is told
(A13, A14; docs/protocol.md §5.6).

A replica endorses a view as soon as it has adopted the owner's version with that view, if the replica is a member of
the view before. Where the view adds replicas, the replica waits `ATTACH_S` first: the neighbours dial the newcomers
as soon as *they* adopt. A newcomer whose links are up before its view counts has heard every statement before the
first publication (Algorithm 4 connects and replicates routing state before it announces the new threshold).

Endorsements flood as wires of their own (`$veil/views`): a member hearing a valid new endorsement passes it on. A
neighbour that links up, or says that it has our version, is told all endorsements we know. Not here: the consequences
of endorsements (`document.succession`, `adopting`).
"""

from __future__ import annotations

from collections.abc import Collection

from bridge.contract import Effect, Send, Wire
from bridge.document import Overlay
from bridge.document.region_view import Endorsement
from keys.identity import Identity

VIEWS_TOPIC = "$veil/views"
ATTACH_S = 2.0  # time for the links of a new replica; after it the replica counts as away


class Endorser:
    """The endorser of views for a member; only a replica has an `identity` and endorses."""

    def __init__(self, name: str, identity: Identity | None) -> None:
        self._name = name
        self._identity = identity
        self._due: dict[int, float] = {}  # by region (ours): the time to endorse its latest view
        self._told: dict[str, None] = {}  # neighbours that were told since they had our version

    def rotate_identity(self, identity: Identity, overlay: Overlay, now: float) -> None:
        """Takes another key pair, and plans to endorse again: signatures of the former key may no longer count."""
        if self._identity is not None:
            self._identity = identity
            self.adopt_overlay(overlay, now)

    def adopt_overlay(self, overlay: Overlay, now: float) -> None:
        """Takes another version, and plans the endorsement of each view needing ours."""
        self._told.clear()
        self._due.clear()
        member = overlay.members.get(self._name)
        if self._identity is None or member is None:
            return
        region = member.certificate.region
        latest = overlay.latest[region]
        if latest.former is None or self._name not in latest.former.members:
            return
        if self._name not in overlay.endorsers(region):
            adds = set(latest.members) - set(latest.former.members)
            self._due[region] = now + (ATTACH_S if adds and not overlay.in_force(region) else 0.0)

    def due_endorsements(self, overlay: Overlay, now: float) -> list[Endorsement]:
        """Returns the endorsements that are due now."""
        regions = [region for region, at in self._due.items() if at <= now]
        for region in regions:
            del self._due[region]
        assert self._identity is not None or not regions
        return [Endorsement.sign_view(overlay.latest[r], self._name, self._identity) for r in regions if self._identity]

    @property
    def next_deadline(self) -> float | None:
        return min(self._due.values(), default=None)

    def link_up(self, peer: str, overlay: Overlay) -> list[Effect]:
        self._told.pop(peer, None)
        return told(_open(overlay), [peer])

    def agrees(self, peer: str, overlay: Overlay) -> list[Effect]:
        """Tells the open endorsements to a neighbour that has our version, once: it may have heard them before it had
        the version.
        """
        if peer in self._told:
            return []
        self._told[peer] = None
        return told(_open(overlay), [peer])


def _open(overlay: Overlay) -> list[Endorsement]:
    """Returns the endorsements a member may still lack. Once the owner drops the view before, nobody needs them."""
    return [each for each in overlay.endorsements if overlay.latest[each.region].former is not None]


def told(endorsements: Collection[Endorsement], peers: Collection[str]) -> list[Effect]:
    """Returns the wires telling endorsements to the given neighbours."""
    payloads = sorted(endorsement.encode() for endorsement in endorsements)
    return [Send(peer, Wire(VIEWS_TOPIC, payload)) for peer in sorted(peers) for payload in payloads]
