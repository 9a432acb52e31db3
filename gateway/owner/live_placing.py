"""Advice from running members on the next replica to attach or detach (A11, A12).

Members are asked at their metrics ports, each by its name: an answer there speaks for that member alone, so f liars in
a region have f voices. `bridge.topology.witnesses` decides which reports count; omega of a path follows from the
publications that gateways send and get, as replicas of their regions report; `bridge.topology.replica_proposals`
proposes the step. `attaching` signs a step.

Not here: asking members (the command does), placement of a planned overlay (`replica_numbers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, isfinite
from pathlib import Path as File
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from bridge.document import Overlay, key_load
from bridge.topology import LinkSeen, Path, PlaceStep, ReplicaFigures, agreed, next_step
from gateway.owner.description import ADDRESS, read_model
from gateway.trust import Card, TrustError
from keys.envelope import Mode
from keys.identity import Role
from keys.shamir import threshold_of
from keys.wrapping import is_long

SPARES_MAX = 256  # cards in one folder
NUMBER_MAX = 1e12
"""Larger reported numbers are cut to this bound, so that no number of one member hides another's."""
RATE_MIN = 1e-3
"""Messages a second assumed for a path without traffic so far: the path counts, but little."""
FIELDS = ("failures", "down_s", "watched_s", "from_per_s", "to_per_s")


class SpareEntry(BaseModel):
    """A file of the folder of spares: the entry a region has for each of its replicas."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    card: File = Field(description="card.json that the party made, as seen from the file")
    address: str = Field(pattern=ADDRESS, description="HOST:PORT of its overlay listener")


@dataclass(frozen=True, slots=True)
class Spare:
    """A replica that may be attached."""

    name: str
    card: File
    address: str


@dataclass(frozen=True, slots=True)
class PlaceAdvice:
    """The next step and its grounds.

    `failures`: by region, the replicas that k witnesses saw fail, with numbers of failures. `silent`: members without
    a usable answer, with the reason.
    """

    step: PlaceStep | None
    region: str
    failures: Mapping[str, Mapping[str, float]]
    rates: Mapping[str, float]
    silent: Mapping[str, str]
    witnesses: int


def spares_in(folder: File, overlay: Overlay) -> list[Spare]:
    """Returns the replicas of the folder's `*.yaml` that are in no region yet, by file name. Raises TrustError."""
    if not folder.is_dir():
        raise TrustError(f"{folder}: is no folder; give one with a file NAME.yaml for each spare: card, address")
    found: list[Spare] = []
    for path in sorted(folder.glob("*.yaml")):
        entry = read_model(path, SpareEntry)
        card = Card.load(folder / entry.card)
        if card.role is not Role.REPLICA:
            raise TrustError(f"{path}: {folder / entry.card} is the card of a {card.role}, not of a replica")
        if card.name not in overlay.members:
            found.append(Spare(card.name, folder / entry.card, entry.address))
        if len(found) > SPARES_MAX:
            raise TrustError(f"{folder}: has more than {SPARES_MAX} spares; keep some elsewhere")
    return found


def advise(overlay: Overlay, answers: Mapping[str, Mapping[str, Any]], spares: int) -> PlaceAdvice:
    """Returns advice from `answers` to `/status`, by the name of the asked member.

    A member without a usable answer counts as a witness that saw nothing.
    """
    reports: dict[str, Mapping[str, LinkSeen]] = {}
    silent: dict[str, str] = {}
    for name, answer in answers.items():
        said = _said(name, answer, overlay)
        if isinstance(said, str):
            silent[name] = said
        else:
            reports[name] = said
    regions = {region: list(view.members) for region, view in sorted(overlay.latest.items())}
    counted = {one: agreed(reports, regions, one, region) for region, members in regions.items() for one in members}
    figures = ReplicaFigures(
        {name: one.failures for name, one in counted.items()}, {name: one.down for name, one in counted.items()}
    )
    rates, paths = _paths(overlay, reports, regions)
    step = next_step(regions, paths, figures, spares, lambda sizes: _fits(overlay, sizes))
    failures = {
        overlay.latest[region].name: {one: counted[one].failures for one in members if counted[one].failures}
        for region, members in regions.items()
    }
    name = overlay.latest[step.region].name if step else ""
    return PlaceAdvice(step, name, failures, rates, silent, len(reports))


def _said(name: str, answer: Mapping[str, Any], overlay: Overlay) -> dict[str, LinkSeen] | str:
    """Returns the links that one member saw, or the reason why its answer cannot be used."""
    findings = answer.get("findings")
    standing, seen = answer.get("overlay"), answer.get("seen")
    if not isinstance(standing, dict) or not isinstance(seen, dict):
        first = findings[0] if isinstance(findings, list) and findings else {}
        return str(first.get("text", ""))[:300] if isinstance(first, dict) and "text" in first else "no member answers"
    if standing.get("name") != name:
        return f"{str(standing.get('name'))[:60]} answers there"
    found: dict[str, LinkSeen] = {}
    for peer, one in seen.items():
        if peer not in overlay.members or not isinstance(one, dict):
            continue
        numbers = [one.get(field) for field in FIELDS]
        if not all(isinstance(each, int | float) and isfinite(each) and each >= 0 for each in numbers):
            return f"what it says of {peer} are no numbers"
        found[peer] = LinkSeen(*(min(float(each), NUMBER_MAX) for each in numbers if each is not None))
    return found


def _paths(
    overlay: Overlay, reports: Mapping[str, Mapping[str, LinkSeen]], regions: Mapping[int, Sequence[str]]
) -> tuple[dict[str, float], list[Path]]:
    """Returns messages a second of gateways and jobs, and weighted paths between their regions.

    The rate of a region is split over the other regions in proportion to the messages that they get.
    """
    rates: dict[str, float] = {}
    sent, got = dict.fromkeys(regions, 0.0), dict.fromkeys(regions, 0.0)
    homes: set[int] = set()
    for name, member in overlay.members.items():
        certificate = member.certificate
        if certificate.role not in (Role.GATEWAY, Role.INGEST):
            continue
        one = agreed(reports, regions, name, certificate.region)
        sent[certificate.region] += one.from_per_s
        got[certificate.region] += one.to_per_s
        rates[name] = one.from_per_s
        homes.add(certificate.region)
    whole = sum(got.values())
    paths = []
    for start in sorted(homes or regions):
        for end in sorted(homes or regions):
            part = got[end] / whole if whole else 0.0
            paths.append(Path(overlay.path(start, end), max(RATE_MIN, sent[start] * part)))
    return rates, paths


def _fits(overlay: Overlay, sizes: Mapping[int, int]) -> bool:
    """Returns True if the overlay's limits (`Overlay`) allow regions of these sizes, during a change and after."""
    tree = overlay.trees.newest
    for scope in overlay.policy.scopes:
        if scope.mode is Mode.PLAIN:
            continue
        within = sorted(overlay.regions_of(scope) & tree.regions)
        for path in (tree.path(start, end) for start in within for end in within):
            counts = [max(sizes[region], len(overlay.latest[region].members)) for region in path]
            choices = [comb(count, threshold_of(count)) for count in counts]
            if key_load(counts, choices, wrapped=is_long(tree.longest(path[0], within))).fault:
                return False
    return True
