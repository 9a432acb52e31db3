"""Attaching and detaching of replicas while members run (A13): signs the next view of a region.

    attach    a replica joins a region at its last place
    detach    a replica leaves; replicas at later places move up by one place

The previous view stays in the document as the *former* view and stays open for a grace, so that publications on their
way arrive; with a grace of 0 it ends as soon as members learn of the change. Until the former view has ended, and
until the owner has seen that k of its replicas endorsed the change, the region changes no further: a second change
would leave behind the replicas that have not followed the first. The owner sees endorsements in any member's copy of
the overlay file, put in place of its own.

Members follow a signed view by `bridge.document.succession`. Not here: whole regions, their trust and the tree
(`trees`), which change by `overlay sign`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge.document import VIEW_GRACE_S, Member, Overlay
from bridge.document.overlay import RegionView
from gateway.owner.cards import member_of
from gateway.owner.description import ADDRESS
from gateway.owner.record import locked, open_record_of
from gateway.owner.signing import check_certificates, next_version, publish
from gateway.owner.views import carried, closes_s, without_strangers
from gateway.trust import Card, TrustDomain, TrustError, date_of
from keys.identity import Role


class NotYetError(TrustError):
    """An error because the region's last change is not over: the command may succeed later."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The version that was signed, or would be. `view`: the new view of the region that `replica` joined or left."""

    overlay: Overlay
    view: RegionView
    replica: str

    @property
    def former(self) -> RegionView:
        assert self.view.former is not None
        return self.view.former


def attach(
    out: Path,
    owner: Path,
    region: str,
    card: Path,
    address: str,
    now: float,
    *,
    grace_s: int = VIEW_GRACE_S,
    dry_run: bool = False,
) -> Changed:
    """Signs the next version, in which the replica with this card is in the region.

    Raises TrustError, OverlayError.
    """
    newcomer = Card.load(card)
    if newcomer.role is not Role.REPLICA:
        raise TrustError(f"{card}: is the card of a {newcomer.role}, not of a replica")

    def change(overlay: Overlay, domain: TrustDomain) -> tuple[RegionView, dict[str, Member]]:
        view = next((view for view in overlay.latest.values() if view.name == region), None)
        if view is None:
            known = ", ".join(view.name for view in overlay.latest.values())
            raise TrustError(f"there is no region {region}; known are {known}")
        _check_address(address)
        if newcomer.name in view.members:
            raise TrustError(f"{newcomer.name} is in region {region} already; nothing to change")
        view = _settled(overlay, view, now)
        if newcomer.name in without_strangers(overlay, carried(overlay, now)):
            raise TrustError(f"{newcomer.name} is a member already; issue the replica under another name")
        # The certificate ends with those of other members: `overlay sign` renews all together.
        not_after_ms = max(overlay.certificate(name).not_after_ms for name in view.members)
        following = view.successor((*view.members, newcomer.name), int(now * 1000), grace_s)
        return following, {newcomer.name: member_of(domain, newcomer, view.region, address, not_after_ms)}

    overlay, view = _change(out, owner, now, change, dry_run)
    return Changed(overlay, view, newcomer.name)


def detach(
    out: Path, owner: Path, member: str, now: float, *, grace_s: int = VIEW_GRACE_S, dry_run: bool = False
) -> Changed:
    """Signs the next version, in which this replica is in no region. Raises TrustError, OverlayError."""

    def change(overlay: Overlay, domain: TrustDomain) -> tuple[RegionView, dict[str, Member]]:
        view = next((view for view in overlay.latest.values() if member in view.members), None)
        if view is None:
            known = sorted(name for each in overlay.latest.values() for name in each.members)
            raise TrustError(f"no replica {member} is in a region; known are {', '.join(known)}")
        view = _settled(overlay, view, now)
        stay = [name for name in view.members if name != member]
        if len(stay) <= 2 and not view.trusted:
            raise TrustError(
                f"region {view.name} would keep {len(stay)} replicas, which cannot share a secret; attach another first"
            )
        if not stay:
            raise TrustError(f"{member} is the last replica of region {view.name}; attach another first")
        return view.successor(stay, int(now * 1000), grace_s), {}

    overlay, view = _change(out, owner, now, change, dry_run)
    return Changed(overlay, view, member)


def _change(
    out: Path,
    owner: Path,
    now: float,
    change: Callable[[Overlay, TrustDomain], tuple[RegionView, Mapping[str, Member]]],
    dry_run: bool,
) -> tuple[Overlay, RegionView]:
    domain = TrustDomain.load(owner)
    with locked(domain):
        record, previous = open_record_of(domain, out)
        check_certificates(out, previous, now)
        following, added = change(previous, domain)
        views = [following if view.region == following.region else view for view in carried(previous, now)]
        overlay = next_version(domain, record, previous, views, added, now)
        if not dry_run:
            publish(domain, record, overlay, out)
    return overlay, overlay.latest[following.region]


def _settled(overlay: Overlay, view: RegionView, now: float) -> RegionView:
    """Returns the view if the region may change. Raises NotYetError while the last change is not over."""
    if view.former is None:
        return view
    if now < closes_s(view):
        raise NotYetError(
            f"region {view.name} changed just now, and its former view is open until {date_of(closes_s(view))}; "
            f"try again in {closes_s(view) - now:.0f} s"
        )
    if not overlay.in_force(view.region):
        seen = len(overlay.endorsers(view.region) & set(view.former.members))
        raise NotYetError(
            f"view {view.number} of region {view.name} has {seen} of {view.former.threshold} endorsements here; give "
            "the overlay file to its replicas, then put a member's copy of it in place of yours"
        )
    return view


def _check_address(address: str) -> None:
    if not re.fullmatch(ADDRESS, address):
        raise TrustError(f"{address}: is no address; write HOST:PORT")
