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
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Self

from bridge.base import Row, Transitions
from bridge.document.region_view import Endorsement, Member, RegionView
from bridge.document.trees import Phase, Trees
from keys.errors import BadShare, BadSignature, Expired, UnknownView
from keys.identity import Certificate, Role
from keys.sharetree import Hop


class ViewPhase(IntEnum):
    """The phase of a region's newest view at a member."""

    AWAITED = 0
    IN_FORCE = 1
    ALONE = 2


class ViewTurn(StrEnum):
    """An event in the life of a region's newest view."""

    ENDORSED = "endorsed"
    CLOSED = "closed"


VIEW = Transitions(
    "A view of a region",
    (ViewPhase.AWAITED,),
    (
        Row(ViewTurn.ENDORSED, (ViewPhase.AWAITED,), ViewPhase.IN_FORCE,
            "publishers seal for it; the view before stays open for the grace time, from now on"),
        Row(ViewTurn.CLOSED, (ViewPhase.AWAITED, ViewPhase.IN_FORCE), ViewPhase.ALONE,
            "the grace time is over, or the owner leaves the view before out: keys for that view are erased"),
    ),
    "the next view; the first view of a region has none before it, and is alone at once",
)  # fmt: skip


class _Standing(NamedTuple):
    """The phase of a view, and the time in ms at which that phase began here."""

    phase: ViewPhase
    since_ms: int

    def after(self, turn: ViewTurn, at_ms: int) -> _Standing:
        return _Standing(VIEW.after((turn, self.phase)), at_ms)


class Succession:
    """An overlay's knowledge of its regions' views, as the module's head tells."""

    latest: dict[int, RegionView]
    members: dict[str, Member]
    views: dict[int, RegionView]
    endorsements: frozenset[Endorsement]
    trees: Trees

    def _judge_endorsements(self, endorsements: Iterable[Endorsement]) -> None:
        self.endorsements = frozenset(self._believed(endorsements, ()))
        self._standings = self._judged({}, None)
        self._derive_open_views()

    def in_force(self, region: int) -> bool:
        """Returns True if `latest` is in force, not the view before."""
        return self._standings[region].phase is not ViewPhase.AWAITED

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
        phase, since_ms = self._standings[region]
        return since_ms / 1000 + self.latest[region].grace_s if phase is ViewPhase.IN_FORCE else None

    @property
    def next_closing(self) -> float | None:
        """Returns when `as_of` gives another overlay next, in UNIX seconds; None if never."""
        changes = (*map(self.closes_at, self.latest), self.trees.next_change())
        return min((at for at in changes if at is not None), default=None)

    def as_of(self, now: float) -> Self:
        """Returns the overlay without views and trees whose time is over; itself if there are none."""
        closings = ((region, self.closes_at(region)) for region in self.latest)
        over = [region for region, closes_at in closings if closes_at is not None and closes_at <= now]
        phase = self.trees.phase_at(now)
        if not over and phase is self.trees.phase:
            return self
        closed = {region: self._standings[region].after(ViewTurn.CLOSED, int(now * 1000)) for region in over}
        return self._changed(_standings=self._standings | closed, trees=replace(self.trees, phase=phase))

    def endorsed(self, endorsements: Iterable[Endorsement], now: float) -> Self:
        """Returns the overlay with new, valid endorsements; itself if there are none."""
        news = frozenset(self._believed(endorsements, self.endorsements))
        if not news:
            return self
        return self._changed(endorsements=self.endorsements | news)._moved(self._standings, now)

    def following(self, old: Self, now: float) -> Self:
        """Returns this version as the next of `old`: views in force or closed there are so here. `unendorsed` is asked
        first.
        """
        same = {r for r, view in self.latest.items() if r in old.latest and old.latest[r].digest == view.digest}
        merged = self.endorsements | set(self._believed(old.endorsements, self.endorsements))
        changed = self._changed(endorsements=merged, trees=self._trees_after(old, now))
        return changed._moved({region: old._standings[region] for region in same}, now)

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

    def _moved(self, before: Mapping[int, _Standing], now: float) -> Self:
        """Returns the overlay with views that stood so before and move by what is known now."""
        return self._changed(_standings=self._judged(before, int(now * 1000))).as_of(now)

    def _judged(self, before: Mapping[int, _Standing], now_ms: int | None) -> dict[int, _Standing]:
        """Returns how the latest views stand. `now_ms`: None at a start, when a view counts from its signature."""
        found = {}
        for region, latest in self.latest.items():
            at_ms = latest.since_ms if now_ms is None else now_ms
            standing = before.get(region, _Standing(ViewPhase.AWAITED, at_ms))
            if latest.former is None:
                is_over = standing.phase is ViewPhase.ALONE
                standing = standing if is_over else standing.after(ViewTurn.CLOSED, at_ms)
            elif standing.phase is ViewPhase.AWAITED and latest.former.quorum(self.endorsers(region)):
                standing = standing.after(ViewTurn.ENDORSED, at_ms)
            found[region] = standing
        return found

    def _changed(self, **fields: Any) -> Self:
        made = copy.copy(self)
        for name, value in fields.items():
            setattr(made, name, value)
        made._derive_open_views()
        return made

    def _derive_open_views(self) -> None:
        """Derives the open views from the phases of the latest ones."""
        self._open: dict[int, tuple[RegionView, ...]] = {}
        for region, latest in self.latest.items():
            phase, former = self._standings[region].phase, latest.former
            if former is None or phase is ViewPhase.ALONE:
                self._open[region] = (latest,)
            else:
                self._open[region] = (former,) if phase is ViewPhase.AWAITED else (latest, former)
        self.views = {region: views[0] for region, views in self._open.items()}

    def _believed(self, endorsements: Iterable[Endorsement], known: Iterable[Endorsement]) -> Iterator[Endorsement]:
        """Yields new endorsements a replica of the region signed for its latest view, one of each replica.

        With its key a replica could make any number of different ones.
        """
        heard = {(endorsement.region, endorsement.member) for endorsement in known}
        for endorsement in endorsements:
            view, member = self.latest.get(endorsement.region), self.members.get(endorsement.member)
            author = (endorsement.region, endorsement.member)
            if view is None or member is None or author in heard or not endorsement.names_view(view):
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
