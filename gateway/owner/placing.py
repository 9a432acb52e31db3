"""`veilmq overlay place`: from a file of regions, failures and paths to how many replicas each region should have.

Reads, calls `bridge.topology.placement` (A11, A12), and says of every path whether an overlay of these sizes could be
signed. Nothing is signed or attached here (`attaching`); where the failures come from is the operator's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb, prod
from pathlib import Path as File
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from bridge.document import DEPTH_MAX, SHARES_PER_KEY_MAX
from bridge.topology import SHARING_MIN, Path, Placement, place
from gateway.owner.description import read_model
from gateway.trust import TrustError
from keys.columnsearch import CHOICES_LIMIT
from keys.errors import OurFault
from keys.shamir import threshold_of

REGIONS_MAX = 10_000
PATHS_MAX = 100_000
REPLICAS_MAX = 1_000_000
FAILURES_MAX = 2**53


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PathEntry(_Model):
    """`regions`: from the publisher's to the subscriber's, both included."""

    regions: list[str] = Field(
        min_length=1, max_length=REGIONS_MAX, description="from the publisher's to the subscriber's"
    )
    weight: FiniteFloat = Field(default=1.0, gt=0, description="how important, for example messages a second")


class PlacingEntry(_Model):
    """The whole file. `replicas`: to be added, for every region has one; `failures`: by region, in one period."""

    replicas: int = Field(ge=0, le=REPLICAS_MAX, description="brokers to be added; every region has one already")
    failures: dict[str, int] = Field(
        min_length=1, max_length=REGIONS_MAX, description="how often replicas of each region failed, all in one period"
    )
    paths: list[PathEntry] = Field(
        min_length=1, max_length=PATHS_MAX, description="ways from publishers to subscribers"
    )
    path_max: int | None = Field(
        default=None, ge=0, description="the most that may be added along one path; absent: no maximum"
    )
    one_pack: bool = Field(default=False, description="a region on several paths gets its largest pack only")


@dataclass(frozen=True, slots=True)
class Placed:
    """What came out, with the names of the file."""

    wanted: PlacingEntry
    names: tuple[str, ...]
    placement: Placement

    def to_json(self) -> dict[str, Any]:
        sizes = self.sizes
        return {
            "regions": [
                {
                    "region": name, "failures": self.wanted.failures[name], "replicas": size,
                    "faults": (size - 1) // 2, "shares_secrets": size >= SHARING_MIN,
                }
                for name, size in sizes.items()
            ],
            "paths": [
                {"path": " - ".join(entry.regions), "weight": entry.weight, "phase_1": count, **load(entry, sizes)}
                for entry, count in zip(self.wanted.paths, self.placement.by_path, strict=True)
            ],
            "stripped": self.placement.stripped,
            "unused": self.placement.unused,
        }  # fmt: skip

    @property
    def sizes(self) -> dict[str, int]:
        """Replicas by region, in the order of the file; a region on no path keeps the one it has."""
        return {name: self.placement.sizes.get(node, 1) for node, name in enumerate(self.names)}


def place_replicas(path: File) -> Placed:
    """Raises TrustError, in one line, for a file that cannot be used."""
    wanted = read_model(path, PlacingEntry)
    wrong = next((name for name, count in wanted.failures.items() if not 0 <= count <= FAILURES_MAX), None)
    if wrong is not None:
        raise TrustError(f"{path}: failures: {wrong}: give how often its replicas failed, 0 or more")
    numbers = {name: node for node, name in enumerate(wanted.failures)}
    paths = []
    for at, entry in enumerate(wanted.paths):
        unknown = [name for name in entry.regions if name not in numbers]
        if unknown:
            raise TrustError(
                f"{path}: paths.{at}: {unknown[0]} is no region under `failures`; "
                "list it there, with 0 if it never failed"
            )
        try:
            paths.append(Path(tuple(numbers[name] for name in entry.regions), entry.weight))
        except OurFault as error:
            raise TrustError(f"{path}: paths.{at}: {error}") from None
    failures = {numbers[name]: count for name, count in wanted.failures.items()}
    try:
        found = place(paths, wanted.replicas, failures, path_max=wanted.path_max, one_pack=wanted.one_pack)
    except OurFault as error:
        raise TrustError(f"{path}: {error}") from None
    return Placed(wanted, tuple(numbers), found)


def load(entry: PathEntry, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Shares of one key at the path's end, and whether the overlay's limits allow that (`views`)."""
    counts = [sizes[name] for name in entry.regions]
    shares, steps = prod(counts), prod(comb(count, threshold_of(count)) for count in counts[1:])
    fits = shares <= SHARES_PER_KEY_MAX and steps <= CHOICES_LIMIT and len(counts) <= DEPTH_MAX
    return {"shares_per_key": shares, "fits": fits}
