"""`veilmq ingest consumers`: the readers of a spool, how far behind each is, and the time of its last read.

A look from outside: works while receivers and queries run, and disturbs neither. Not here: positions themselves and
forgetting a consumer (`consumers`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from spark_ingest.errors import SpoolError, SpoolGap
from spark_ingest.spool.consumers import is_held, read_place
from spark_ingest.spool.segments import CONSUMERS, Offset, Size, as_offset
from spark_ingest.spool.view import SpoolView


@dataclass(frozen=True, slots=True)
class ConsumerStanding:
    """The progress of a consumer. `behind`: the amount still to read, None where a part of it is gone."""

    name: str
    position: Offset
    behind: Size | None
    behind_s: float | None
    """The time since the reception of the first unread row."""
    committed: float
    """UNIX time of its last commit."""
    retain_s: float
    running: bool


def standings(root: Path) -> list[ConsumerStanding]:
    """Returns all consumers of a spool, by name. Raises SpoolError."""
    if not root.is_dir():
        raise SpoolError(f"{root} is no spool: there is no such directory; name the one that a receiver writes")
    view = SpoolView(root)
    latest = view.latest()
    found = []
    for path in sorted((root / CONSUMERS).glob("*.json")):
        try:
            committed = path.stat().st_mtime
        except FileNotFoundError:
            continue  # forgotten just now
        place = read_place(path)
        if place is None:
            continue
        position = as_offset(place.positions)
        running = is_held(path.with_suffix(".lock"))
        behind, behind_s = _behind(view, position, latest)
        found.append(ConsumerStanding(path.stem, position, behind, behind_s, committed, place.retain_s, running))
    return found


def _behind(view: SpoolView, position: Offset, latest: Offset) -> tuple[Size | None, float | None]:
    try:
        sizes = view.sizes_between(position, latest).values()
        behind_s = max(view.age_s(position, time.time()).values(), default=0.0)
    except SpoolGap:
        return None, None
    return Size(sum(size.sealed_batches for size in sizes), sum(size.bytes for size in sizes)), round(behind_s, 3)


def print_standings(found: Sequence[ConsumerStanding], *, as_json: bool) -> None:
    """Prints a table for people, or a JSON object a line for programs."""
    if as_json:
        for each in found:
            behind = None if each.behind is None else each.behind._asdict()
            print(json.dumps({**asdict(each), "behind": behind}))
        return
    from rich.console import Console  # noqa: PLC0415  executors import this room and print nothing
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for title, justify in (("consumer", "left"), ("running", "left"), ("sealed batches behind", "right"),
                           ("bytes behind", "right"),
                           ("seconds behind", "right"), ("read last", "right"), ("position", "left")):  # fmt: skip
        table.add_column(title, justify="right" if justify == "right" else "left", no_wrap=title != "position")
    for each in found:
        number, size = (
            ("?", "?") if each.behind is None else (f"{each.behind.sealed_batches:,}", f"{each.behind.bytes:,}")
        )
        at = ", ".join(f"{name} {place['segment']}:{place['byte']}" for name, place in each.position.items())
        late = "?" if each.behind_s is None else f"{each.behind_s:,.1f}"
        ago = f"{max(0.0, time.time() - each.committed):,.0f} s ago"
        table.add_row(each.name, "yes" if each.running else "no", number, size, late, ago, at or "-")
    Console(soft_wrap=True).print(table if found else "no query has read this spool", highlight=False)
