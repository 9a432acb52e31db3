"""Work of `veilmq overlay place`: numbers of replicas per region, from a file of regions, failures and paths.

Gives every region the three replicas that sharing a secret takes, and distributes the rest by `bridge.topology` (A11,
A12). Takes back the last replicas for which trust domains are missing, or with which a path would have too many
shares: an overlay of these sizes can be signed. Nothing is signed or attached here (`attaching`). The operator
supplies the numbers of failures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb
from pathlib import Path as File
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from bridge.document import DEPTH_MAX, key_load
from bridge.topology import SHARING_MIN, Path, Placement, place
from gateway.owner.description import read_model
from gateway.trust import TrustError
from keys.errors import OurFault
from keys.shamir import threshold_of
from keys.wrapping import is_long

FIRST = SHARING_MIN - 1  # added replicas with which a region of one can share secrets
REGIONS_MAX = 10_000  # of the path to place
PATHS_MAX = 100_000  # of one file
REPLICAS_MAX = 1_000_000  # of all regions
FAILURES_MAX = 2**53  # that a figure may state: whole numbers of a double


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PathEntry(_Model):
    """A path of publications. `regions`: from the publisher's to the subscriber's, both included."""

    regions: list[str] = Field(
        min_length=1, max_length=REGIONS_MAX, description="from the publisher's to the subscriber's"
    )
    weight: FiniteFloat = Field(default=1.0, gt=0, description="how important, for example messages a second")


class PlacingEntry(_Model):
    """The whole file.

    `replicas`: to be added, since every region has one. `failures`, `domains`: numbers by region.
    """

    replicas: int = Field(ge=0, le=REPLICAS_MAX, description="brokers to be added; every region has one already")
    failures: dict[str, int] = Field(
        min_length=1, max_length=REGIONS_MAX, description="how often replicas of each region failed, all in one period"
    )
    domains: dict[str, int] = Field(
        default={},
        max_length=REGIONS_MAX,
        description="how many trust domains could run a replica of a region, each one at most; absent: enough",
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
    """The result of a placement, with the names of the file."""

    wanted: PlacingEntry
    names: tuple[str, ...]
    placement: Placement
    sizes: dict[str, int]
    """Replicas by region, in the order of the file."""

    def to_json(self) -> dict[str, Any]:
        sizes = self.sizes
        return {
            "regions": [
                {
                    "region": name, "failures": self.wanted.failures[name], "replicas": size,
                    "faults": (size - 1) // 2,
                }
                for name, size in sizes.items()
            ],
            "paths": [
                {"path": " - ".join(entry.regions), "weight": entry.weight, "phase_1": count, **load(entry, sizes)}
                for entry, count in zip(self.wanted.paths, self.placement.by_path, strict=True)
            ],
            "stripped": self.placement.stripped,
            "unused": self.wanted.replicas - self.placement.stripped - sum(size - 1 for size in sizes.values()),
        }  # fmt: skip


def place_replicas(path: File) -> Placed:
    """Returns sizes of regions with which the overlay can be signed.

    Raises TrustError, in a line, if the file cannot be used or no such sizes exist.
    """
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
    _refuse_what_nobody_signs(path, wanted)
    failures = {numbers[name]: count for name, count in wanted.failures.items()}
    rest = wanted.replicas - FIRST * len(numbers)
    try:
        found = place(
            paths, rest, failures, path_max=wanted.path_max, one_pack=wanted.one_pack, least=SHARING_MIN
        )  # fmt: skip
    except OurFault as error:
        raise TrustError(f"{path}: {error}") from None
    sizes = {name: found.sizes.get(node, SHARING_MIN) for name, node in numbers.items()}
    return Placed(wanted, tuple(numbers), found, _signed_sizes(wanted, sizes))


def _at_least(entry: PathEntry) -> int:
    return FIRST * len(entry.regions)


def _refuse_what_nobody_signs(path: File, wanted: PlacingEntry) -> None:
    """Raises TrustError if three replicas in each region are too many already, or are not available."""
    regions = wanted.failures.keys()
    if wanted.replicas < FIRST * len(regions):
        raise TrustError(
            f"{path}: replicas: {wanted.replicas} are too few: each of {len(regions)} regions needs {FIRST} more, "
            f"since fewer than {SHARING_MIN} cannot share a secret; give {FIRST * len(regions)} or more"
        )
    for name, count in wanted.domains.items():
        if name not in regions:
            raise TrustError(f"{path}: domains: {name} is no region under `failures`")
        if count < SHARING_MIN:
            raise TrustError(f"{path}: domains: {name}: {count} cannot share a secret; find {SHARING_MIN} or more")
    for at, entry in enumerate(wanted.paths):
        if len(entry.regions) > DEPTH_MAX:
            raise TrustError(f"{path}: paths.{at}: shares of a key pass {DEPTH_MAX} regions at most; cut the path")
        if wanted.path_max is not None and wanted.path_max < _at_least(entry):
            raise TrustError(
                f"{path}: path_max: {wanted.path_max} is too few for paths.{at}, whose regions need {_at_least(entry)} "
                "to share secrets"
            )


def _signed_sizes(wanted: PlacingEntry, sizes: dict[str, int]) -> dict[str, int]:
    """Returns sizes cut down to the available trust domains and to the shares a path may have.

    Two replicas at a time are taken off the largest region of a path with too many shares; of equal regions, off the
    one with the fewest failures.
    """
    sizes = {name: min(size, (wanted.domains.get(name, size) - 1) // 2 * 2 + 1) for name, size in sizes.items()}
    for entry in wanted.paths:
        while not load(entry, sizes)["fits"]:
            largest = max(entry.regions, key=lambda name: (sizes[name], -wanted.failures[name]))
            sizes[largest] -= 2
    return sizes


def load(entry: PathEntry, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Returns the shares and wraps of a key at the path's end, and whether the overlay's limits allow them."""
    counts = [sizes[name] for name in entry.regions]
    choices = [comb(count, threshold_of(count)) for count in counts]
    found = key_load(counts, choices, wrapped=is_long(len(counts)))
    wraps = {"wraps_per_key": found.wraps} if found.wraps else {}
    return {"shares_per_key": found.shares, **wraps, "fits": not found.fault}
