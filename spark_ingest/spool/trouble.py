"""Why a receiver does not receive, told beside its segments for those who look from outside.

A word for people, not part of what the spool promises: nothing is synced, and a disk that takes it not is not waited
for. Not here: what the trouble is (`receiver`).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

TROUBLE = "TROUBLE"
TROUBLE_CHARS = 2_000


def tell_trouble(directory: Path, trouble: str | None) -> None:
    """From now on that; None: all is well. Never raises for what the disk does."""
    path = directory / TROUBLE
    with contextlib.suppress(OSError):
        if trouble is None:
            path.unlink(missing_ok=True)
        elif directory.is_dir():
            path.touch(mode=0o600)
            path.write_text(trouble[:TROUBLE_CHARS])


def told_trouble(directory: Path) -> str | None:
    """What the receiver that writes there said last."""
    try:
        with (directory / TROUBLE).open(errors="replace") as file:
            return " ".join(file.read(TROUBLE_CHARS).split()) or None
    except OSError:
        return None
