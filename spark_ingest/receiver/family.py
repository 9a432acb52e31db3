"""Parts of the spool that are of one receiver: its own, without workers, and those of any number of workers.

`main`, `main.w1of2`, `main.w2of2`: one identity, one session at each replica, so that what is acknowledged late may
come to a part that did not write it. A file of scope keys goes with each: `scope_keys.json`, `scope_keys.w1of2.json`.

Pure but for a look into the spool. Not here: receivers that share devices, each under an identity of its own.
"""

from __future__ import annotations

import re
from pathlib import Path

_WORKER = re.compile(r"(.+?)(\.w\d+of\d+)")


def part_of(receiver: str, number: int, count: int) -> str:
    """The part of one worker."""
    return f"{receiver}.w{number}of{count}"


def grants_of(grants: Path, part: str, other: str) -> Path:
    """The file of scope keys of another part. `grants`: of `part`."""
    return grants.with_name(grants.stem.removesuffix(_split(part)[1]) + _split(other)[1] + grants.suffix)


def kin(spool: Path, part: str) -> list[str]:
    """Other parts of the same receiver that are there."""
    found = sorted(path.name for path in spool.iterdir() if path.is_dir()) if spool.is_dir() else []
    return [name for name in found if name != part and _split(name)[0] == _split(part)[0]]


def _split(part: str) -> tuple[str, str]:
    worker = _WORKER.fullmatch(part)
    return (part, "") if worker is None else (worker[1], worker[2])
