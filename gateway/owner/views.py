"""Views of regions from a signed version to the next, and their check against the description.

A view that follows another carries the former view, and members that left stay listed, until the former view is over:
its time has passed *and* the owner has seen that k of its replicas endorsed the change. The owner is no member, so it
sees endorsements only in a member's copy of the overlay file (`attaching`). Not here: making the next view
(`attaching`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from bridge.document import Member, Overlay
from bridge.document.overlay import RegionView
from gateway.owner.description import Description, RegionEntry
from gateway.trust import TrustError
from keys.identity import CARRIERS


def carried(overlay: Overlay, now: float) -> list[RegionView]:
    """Returns the newest view of each region, with its former view unless that is over."""
    return [replace(view, former=None) if _is_over(overlay, view, now) else view for view in overlay.latest.values()]


def closes_s(view: RegionView) -> float:
    """Returns the UNIX time in seconds at which the former view ends, if the change came into force at once."""
    return view.since_ms / 1000 + view.grace_s


def _is_over(overlay: Overlay, view: RegionView, now: float) -> bool:
    return view.former is not None and overlay.in_force(view.region) and now >= closes_s(view)


def leaving(overlay: Overlay, views: Iterable[RegionView]) -> dict[str, Member]:
    """Returns the replicas, unchanged, that these views name only in a former view."""
    views = list(views)
    gone = {name for view in views if view.former for name in view.former.members}
    gone -= {name for view in views for name in view.members}
    return {name: overlay.members[name] for name in sorted(gone)}


def without_strangers(overlay: Overlay, views: Iterable[RegionView]) -> dict[str, Member]:
    """Returns the members without replicas that none of these views names."""
    named = {name for view in views for each in (view, view.former) if each for name in each.members}
    return {
        name: member
        for name, member in overlay.members.items()
        if member.certificate.role not in CARRIERS or name in named
    }


def described_views(
    description: Path,
    wanted: Description,
    ids: dict[str, int],
    members: dict[str, Member],
    previous: Overlay | None,
    now: float,
) -> list[RegionView]:
    """Returns views in the description's order.

    Raises TrustError if the description names other replicas than were signed.
    """
    before = {view.region: view for view in carried(previous, now)} if previous else {}
    names: dict[int, list[str]] = {}
    for name, member in members.items():
        if member.certificate.role in CARRIERS:
            names.setdefault(member.certificate.region, []).append(name)
    return [
        _described_view(description, entry, number, names.get(number, ()), before.get(number))
        for entry, number in ((region, ids[region.name]) for region in wanted.regions)
    ]


def _described_view(
    description: Path, entry: RegionEntry, number: int, names: Sequence[str], previous: RegionView | None
) -> RegionView:
    """Returns the view of a described region. `names`: replicas with listed cards. `previous`: the signed view.

    Raises TrustError if replicas differ from the signed view. Any other difference makes a view without a
    predecessor, which takes a restart.
    """
    if previous is None:
        return RegionView(number, 1, entry.name, tuple(names), entry.trusted)
    missing = [name for name in previous.members if name not in names]
    strange = [name for name in names if name not in previous.members]
    if missing:
        raise TrustError(
            f"{description}: region {entry.name}: {', '.join(missing)} is signed and not listed; add its card and "
            f"address, or let it leave by `veilmq overlay detach`"
        )
    if strange:
        raise TrustError(
            f"{description}: region {entry.name}: {', '.join(strange)} is listed and not signed; let it join by "
            "`veilmq overlay attach`, or remove it here if it was detached"
        )
    if (previous.name, previous.trusted) == (entry.name, entry.trusted):
        return previous
    return RegionView(number, previous.number + 1, entry.name, previous.members, entry.trusted)
