"""The parts of the spool belonging to a receiver: its own part, and those of any number of workers.

`main`, `main.w1of2`, `main.w2of2`: an identity and a single session at each replica, so that a piece acknowledged late
may come to a part that did not write it. A file of scope keys goes with each: `scope_keys.json`,
`scope_keys.w1of2.json`.

Pure but for a look into the spool. Not here: receivers sharing devices, each under an identity of its own.
"""

from __future__ import annotations

import re
from pathlib import Path

_WORKER = re.compile(r"(.+?)(\.w\d+of\d+)")


def part_of(receiver: str, number: int, count: int) -> str:
    """Returns the name of a worker's part."""
    return f"{receiver}.w{number}of{count}"


def grants_of(grants: Path, part: str, other: str) -> Path:
    """Returns the file of scope keys of part `other`. `grants`: the file of `part`."""
    return grants.with_name(grants.stem.removesuffix(_split(part)[1]) + _split(other)[1] + grants.suffix)


def kin(spool: Path, part: str) -> list[str]:
    """Returns the other existing parts of a part's receiver."""
    found = sorted(path.name for path in spool.iterdir() if path.is_dir()) if spool.is_dir() else []
    return [name for name in found if name != part and _split(name)[0] == _split(part)[0]]


def _split(part: str) -> tuple[str, str]:
    worker = _WORKER.fullmatch(part)
    return (part, "") if worker is None else (worker[1], worker[2])
