"""`veilmq overlay history`: how far the history of a scope reaches back at each replica, and in each region."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.commands.printing import Json, print_json, print_table, utc_text
from gateway.commands.status import asked

if TYPE_CHECKING:
    from bridge.document import Overlay, Scope


@dataclass(frozen=True, slots=True)
class ReplicaReach:
    """What one replica says of its history. `first_ms`, `last_ms`: of its oldest and newest publications; 0: none.
    `trouble`: why nothing is known, or nothing is kept now; empty if all is well.
    """

    replica: str
    region: str
    first_ms: int = 0
    last_ms: int = 0
    bytes: int = 0
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class RegionReach:
    """How far a region reaches. `needed`: replicas that a reader needs; `first_ms`: since when so many have something,
    0 if too few have.
    """

    region: str
    needed: int
    first_ms: int


def register(overlay_app: typer.Typer) -> None:
    """Adds the command to `veilmq overlay`."""
    overlay_app.command("history")(history)


def history(
    scope: Annotated[str, typer.Argument(metavar="SCOPE", help="The scope's filter, or its number.")],
    overlay: Annotated[
        Path, typer.Option(metavar="FILE", help="overlay.json: ask all replicas whose folders lie beside it.")
    ] = Path("overlay.json"),
    ask: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="Metrics port of a replica elsewhere; repeatable.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Show how far back each replica has a scope, and how far a region's readers can read.

    Exit status 1 if in some region too few replicas answer or keep.
    """
    from gateway.commands.overlay_status import ask_all, binds_beside
    from gateway.trust import load_overlay

    known = load_overlay(overlay, int(time.time() * 1000))
    binds = [bind for name, bind in binds_beside(overlay).items() if name in known.members]
    answers = ask_all(list(dict.fromkeys([*binds, *(ask or ())])), asked)
    replicas, regions = reach(known, named(known, scope, answers), answers)
    if as_json:
        print_json({"replicas": [asdict(one) for one in replicas], "regions": [asdict(one) for one in regions]})
    else:
        _print(replicas, regions)
    return 0 if all(region.first_ms for region in regions) else 1


def named(overlay: Overlay, scope: str, answers: Sequence[Mapping[str, Any]] = ()) -> Scope:
    """Returns the scope of a filter or number. Raises TrustError for one that is not there, or has no history.

    `answers`: of gateways, which know the clear filters of scopes whose names are hidden.
    """
    from gateway.trust import TrustError

    rights = [one for answer in answers for one in (answer.get("overlay") or {}).get("rights", ())]
    clear = {one["scope"]: str(one["number"]) for one in rights}
    kept = [each for each in overlay.policy.scopes if each.history is not None]
    for each in kept:
        if clear.get(scope, scope) in (each.filter, str(each.number)):
            return each
    listed = ", ".join(f"{each.filter} ({each.number})" for each in kept) or "none; its owner sets `history`"
    raise TrustError(f"{scope}: no scope with a history; those of the overlay are: {listed}")


def reach(
    overlay: Overlay, scope: Scope, answers: list[dict[str, Any]]
) -> tuple[list[ReplicaReach], list[RegionReach]]:
    """Returns the reach of each replica in the regions that take the scope, and of each of these regions.

    `answers`: those to `/status`. Of a region of n replicas as many are needed as a reading waits for: f + 1, and k.
    """
    told: dict[str, Mapping[str, Any]] = {}
    for answer in answers:
        if isinstance(one := answer.get("overlay"), dict):
            told[str(one.get("name"))] = one
    replicas: list[ReplicaReach] = []
    regions: list[RegionReach] = []
    taken = scope.history.regions if scope.history is not None else ()
    for number in sorted(taken or overlay.regions_of(scope)):
        view = overlay.views[number]
        mine = [_of(name, view.name, told.get(name), scope) for name in view.members]
        replicas += mine
        needed = max(view.faults + 1, view.threshold)
        since = sorted(one.first_ms for one in mine if one.first_ms)
        regions.append(RegionReach(view.name, needed, since[needed - 1] if len(since) >= needed else 0))
    return replicas, regions


def _of(replica: str, region: str, told: Mapping[str, Any] | None, scope: Scope) -> ReplicaReach:
    if told is None:
        return ReplicaReach(replica, region, trouble="not asked, or does not answer")
    for one in told.get("histories", ()):
        if one["scope"] == scope.filter:
            said = one["refused"] or ("" if one["first_ms"] else "has nothing yet")
            return ReplicaReach(replica, region, one["first_ms"], one["last_ms"], one["bytes"], said)
    return ReplicaReach(replica, region, trouble="keeps no history of it")


def _print(replicas: list[ReplicaReach], regions: list[RegionReach]) -> None:
    print_table(
        "",
        ["region", "replica", "since", "until", "MB", ""],
        [
            [one.region, one.replica, _at(one.first_ms), _at(one.last_ms), f"{one.bytes / 1e6:.1f}", one.trouble]
            for one in replicas
        ],
    )
    for region in regions:
        since = f"since {_at(region.first_ms)}" if region.first_ms else "nothing: too few replicas answer or keep"
        print(f"readers of {region.region} need {region.needed} replicas, which have {since}")


def _at(time_ms: int) -> str:
    return utc_text(time_ms) if time_ms else ""
