"""History of a scope: days, room and regions in which replicas keep publications.

The owner sets a history in the policy (docs/protocol.md §9.7, §12). Recording stands in `replica.recording`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from keys.envelope import Mode
from keys.errors import BadFrame
from keys.frames import Reader, number

HISTORY_LEAST = (1, 16)
HISTORY_MOST = (3_660, 1 << 24)
"""The least and the greatest days and megabytes that an owner can give."""
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class History:
    """Days and megabytes at each replica, and the numbers of regions that take the scope in any case; none: all."""

    days: int
    megabytes: int
    regions: tuple[int, ...] = ()

    def encode(self) -> bytes:
        regions = [number(len(self.regions), 1), *(number(region, 4) for region in self.regions)]
        return number(self.days, 2) + number(self.megabytes, 4) + b"".join(regions)

    @classmethod
    def read(cls, frame: Reader) -> History:
        """Reads a history. Raises BadFrame for numbers out of range, and for regions out of order."""
        days, megabytes = frame.number(2), frame.number(4)
        regions = tuple(frame.number(4) for _ in range(frame.number(1)))
        inside = zip(HISTORY_LEAST, (days, megabytes), HISTORY_MOST, strict=True)
        if not all(least <= value <= most for least, value, most in inside) or list(regions) != sorted(set(regions)):
            raise BadFrame(f"a history of {days} days, {megabytes} MB, regions {regions}; at most {HISTORY_MOST}")
        return cls(days, megabytes, regions)

    @property
    def seconds(self) -> float:
        return self.days * DAY_S


def unkept(name: str, mode: Mode, by_planes: bool, sizes: Mapping[int, int], hosted: Collection[str]) -> str:
    """Returns why replicas cannot keep the history of a scope, or nothing.

    `name`: the scope's filter; `by_planes`: each copy goes by one plane; `sizes`: replicas of each region of the scope;
    `hosted`: hosted brokers there.
    """
    if hosted:
        return f"scope {name:.40} has a history, and the hosted broker {min(hosted)} keeps none; leave its region out"
    if by_planes:
        return (
            f"scope {name:.40} has a history and goes by planes, so that one replica of a region alone would keep each "
            "publication; route it by regions"
        )
    if mode is Mode.ONE:
        return f"scope {name:.40} has a history, and in mode one a single replica would keep the content; use copies"
    if mode in (Mode.BLOCKS, Mode.AUTO) and (lacking := _too_few_blocks(sizes)):
        return (
            f"scope {name:.40} has a history, and of content cut into blocks by region {lacking[0]} a majority of "
            f"region {lacking[1]} keeps too few; use mode copies, or regions of one size"
        )
    return ""


def _too_few_blocks(sizes: Mapping[int, int]) -> tuple[int, int] | None:
    """Returns two regions if some majority of the second has too few blocks of content published in the first."""
    for home, total in sizes.items():
        wanted = total - (total - 1) // 2
        for region, count in sizes.items():
            held = sorted(min(wanted, len(range(place, total, count))) for place in range(count))
            if sum(held[: count // 2 + 1]) < wanted:
                return home, region
    return None
