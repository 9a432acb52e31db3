"""Views over time: the view in force of each region, its open views, and the views that may follow.

Of each region an `Overlay` holds the newest view the owner signed (`latest`) and, inside it, the view before
(`RegionView.former`). Which of the two are *open*, hence may be named by keys, is a part of the value:

    latest[region]         the newest signed view; the owner's commands go on from it (`RegionView.successor`)
    views[region]          the view *in force*: `latest` if it has no predecessor here or k of the predecessor's
    members
                           endorsed it, else the predecessor. Publications are sealed for the view in force
    open_views(region)     the view in force and, until `closes_at`, its predecessor
    replicas(region)       members of all of these and of a `latest` that is not in force yet: whom to have links with
    endorsed(news, now)    the overlay with more endorsements: `latest` may be in force then
    trees                  how regions are joined, and were before (`trees`)
    at(now)                the overlay with predecessors closed whose time is over, and a new tree in force;
                           `next_closing` says when
    following(old, now)    a newer version, as adopted by a member that has `old` in force

None of these changes a value: each gives another one, which the machines adopt (`adopting`, `membership`). To attach
or detach, the owner signs the next version with `latest[region].successor(members, now_ms, grace_s)` for that view
(from `latest.values()`, never from `views.values()`). A detached replica stays listed as a member until a later
version drops it, after the grace, together with the view's `former`.

Several changes of a region follow each other: while a predecessor is open the owner signs no further one (its commands
refuse to); if it does, the last predecessor alone is open. A member that missed a change adopts a later one that k
members of its view in force endorsed. A view that does not follow is not adopted (`unendorsed`), whoever signed it.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any, Self

from bridge.document.region_view import Endorsement, Member, RegionView
from bridge.document.trees import Phase, Trees
from keys.errors import BadShare, BadSignature, Expired, UnknownView
from keys.identity import Certificate, Role
from keys.sharetree import Hop


class Succession:
    """An overlay's knowledge of its regions' views, as the module's head tells."""

    latest: dict[int, RegionView]
    members: dict[str, Member]
    views: dict[int, RegionView]
    endorsements: frozenset[Endorsement]
    trees: Trees

    def _begin(self, endorsements: Iterable[Endorsement]) -> None:
        self._in_force_ms: dict[int, int] = {}  # since when we know that `latest` is in force, by region
        self._closed: frozenset[int] = frozenset()  # regions whose view before is over
        self.endorsements = frozenset(self._believed(endorsements, ()))
        self._settle()

    def in_force(self, region: int) -> bool:
        """Returns True if `latest` is in force, not the view before."""
        former = self.latest[region].former
        return region in self._in_force_ms or former is None or former.quorum(self.endorsers(region))

    def endorsers(self, region: int) -> frozenset[str]:
        """Returns the replicas that agreed to `latest`."""
        return frozenset(e.member for e in self.endorsements if e.region == region)

    def open_views(self, region: int) -> tuple[RegionView, ...]:
        """Returns the views that keys may name: the view in force first."""
        return self._open[region]

    def view(self, region: int, view_number: int) -> RegionView | None:
        """Returns the open view of that number, or None."""
        return next((view for view in self._open[region] if view.number == view_number), None)

    def check_view(self, hop: Hop) -> None:
        """Raises unless a key may name this view.

        UnknownView: the view is not in force here yet. Expired: it is closed. BadShare: the region is unknown, or the
        threshold is not the view's.
        """
        if hop.region not in self.latest:
            raise BadShare(f"key was split for a region {hop.region}, which is not here")
        view = self.view(hop.region, hop.view)
        if view is None and hop.view > self.views[hop.region].number:
            raise UnknownView(f"key was split for view {hop.view} of region {hop.region}, which is to come here")
        if view is None:
            raise Expired(f"view {hop.view} of region {hop.region} is closed")
        if view.hop != hop:
            raise BadShare("key was split for other views than ours")

    def honest_among(self, region: int, members: Collection[str]) -> bool:
        """Returns True if these include f + 1 members of one open view: then at least one is honest.

        The liars of two views may be more than f together.
        """
        return any(len(view.members_among(members)) > view.faults for view in self._open[region])

    def replicas(self, region: int) -> tuple[str, ...]:
        """Returns the members of the open views and of a view that is not in force yet."""
        views = (*self._open[region], self.latest[region])
        return tuple(dict.fromkeys(name for view in views for name in view.members))

    def forwarders(self, region: int) -> tuple[str, ...]:
        """Returns the members of the open views, which pass publications on."""
        return tuple(dict.fromkeys(name for view in self._open[region] for name in view.members))

    def closes_at(self, region: int) -> float | None:
        """Returns when the view before the one in force ends, in UNIX seconds; None if none is open.

        Time counts from when we learned the new view is in force; at a start, from its signature. Endorsements may
        take long, and publications sealed until then are still on their way.
        """
        if len(self._open[region]) < 2:
            return None
        latest = self.latest[region]
        return self._in_force_ms.get(region, latest.since_ms) / 1000 + latest.grace_s

    @property
    def next_closing(self) -> float | None:
        """Returns when `at` gives another overlay next, in UNIX seconds; None if never."""
        changes = (*map(self.closes_at, self.latest), self.trees.next_change())
        return min((at for at in changes if at is not None), default=None)

    def at(self, now: float) -> Self:
        """Returns the overlay without views and trees whose time is over; itself if there are none."""
        over = {region for region in self.latest if (self.closes_at(region) or float("inf")) <= now}
        phase = self.trees.phase_at(now)
        if not over and phase is self.trees.phase:
            return self
        return self._changed(_closed=self._closed | over, trees=replace(self.trees, phase=phase))

    def endorsed(self, endorsements: Iterable[Endorsement], now: float) -> Self:
        """Returns the overlay with new, valid endorsements; itself if there are none."""
        news = frozenset(self._believed(endorsements, self.endorsements))
        if not news:
            return self
        return self._changed(endorsements=self.endorsements | news)._noted(self, now).at(now)

    def following(self, old: Self, now: float) -> Self:
        """Returns this version as the next of `old`: views in force or closed there are so here. `unendorsed` is asked
        first.
        """
        same = {r for r, view in self.latest.items() if r in old.latest and old.latest[r].digest == view.digest}
        in_force = {region: at for region, at in old._in_force_ms.items() if region in same}
        in_force |= {region: self.latest[region].since_ms for region in same - set(in_force) if old.in_force(region)}
        merged = self.endorsements | set(self._believed(old.endorsements, self.endorsements))
        changed = self._changed(
            endorsements=merged, _in_force_ms=in_force, _closed=old._closed & same, trees=self._trees_after(old, now)
        )
        return changed._noted(old, now).at(now)

    def _trees_after(self, old: Self, now: float) -> Trees:
        """Returns the trees with the progress of a change: its progress in `old`, or its beginning.

        If the owner did not know the tree in force when it signed a further one, that tree stays open, not the signed
        former.
        """
        trees = self.trees
        if (trees.newest.number, trees.newest.edges) == (old.trees.newest.number, old.trees.newest.edges):
            phase = Phase.ALONE if trees.former is None else old.trees.phase
            return replace(trees, known_ms=old.trees.known_ms, phase=phase)
        made = trees.beside(old.trees, now)
        # However long ago it was signed: publications sealed for the former tree may wait at our replicas.
        return made if made.former is None else replace(made, phase=min(made.phase, Phase.IN_FORCE))

    def unendorsed(self, old: Self) -> list[str]:
        """Returns the regions (by name) whose views do not follow from the views in force in `old`.

        A view follows if it is equal, the next, or endorsed by k members of the old one. A version with another view
        is not adopted, whoever signed it.
        """
        strange = []
        for region in sorted(self.latest.keys() & old.latest.keys()):
            view, present = self.latest[region], old.views[region]
            known = {view.digest, view.former.digest if view.former else b""}
            rival = view.number <= old.latest[region].number and view.digest != old.latest[region].digest
            if rival or (present.digest not in known and not present.quorum(self.endorsers(region))):
                strange.append(view.name)
        return strange

    def _noted(self, before: Self, now: float) -> Self:
        """Returns the overlay with the time `now` for views that came into force since `before`."""
        news = {
            region: int(now * 1000)
            for region in self.latest
            if region not in self._in_force_ms
            and self.in_force(region)
            and not (region in before.latest and before.views[region].digest == self.latest[region].digest)
        }
        return self._changed(_in_force_ms=self._in_force_ms | news) if news else self

    def _changed(self, **fields: Any) -> Self:
        made = copy.copy(self)
        for name, value in fields.items():
            setattr(made, name, value)
        made._settle()
        return made

    def _settle(self) -> None:
        """Derives the open views from endorsements and from closed views."""
        self._open: dict[int, tuple[RegionView, ...]] = {}
        for region, latest in self.latest.items():
            if latest.former is None:
                self._open[region] = (latest,)
            elif not self.in_force(region):
                self._open[region] = (latest.former,)
            else:
                self._open[region] = (latest,) if region in self._closed else (latest, latest.former)
        self.views = {region: views[0] for region, views in self._open.items()}

    def _believed(self, endorsements: Iterable[Endorsement], known: Iterable[Endorsement]) -> Iterator[Endorsement]:
        """Yields new endorsements a replica of the region signed for its latest view, one of each replica.

        With its key a replica could make any number of different ones.
        """
        heard = {(endorsement.region, endorsement.member) for endorsement in known}
        for endorsement in endorsements:
            view, member = self.latest.get(endorsement.region), self.members.get(endorsement.member)
            author = (endorsement.region, endorsement.member)
            if view is None or member is None or author in heard or not endorsement.names(view):
                continue
            if (member.certificate.role, member.certificate.region) != (Role.REPLICA, endorsement.region):
                continue
            if any(_signed_by(certificate, endorsement) for certificate in member.certificates):
                heard.add(author)
                yield endorsement


def _signed_by(certificate: Certificate, endorsement: Endorsement) -> bool:
    try:
        endorsement.verify(certificate.public_key)
    except BadSignature:
        return False
    return True
