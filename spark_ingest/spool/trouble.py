"""The trouble of a receiver: the reason for which it does not receive, in a file beside its segments.

The file is for people, not part of the spool's promises: nothing is synced, and nobody waits for a disk refusing it.
Not here: the causes of trouble (`receiver`).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

TROUBLE = "TROUBLE"
TROUBLE_CHARS = 2_000


def tell_trouble(directory: Path, trouble: str | None) -> None:
    """Writes the receiver's trouble; None if all is well. Never raises for faults of the disk."""
    path = directory / TROUBLE
    with contextlib.suppress(OSError):
        if trouble is None:
            path.unlink(missing_ok=True)
        elif directory.is_dir():
            path.touch(mode=0o600)
            path.write_text(trouble[:TROUBLE_CHARS])


def told_trouble(directory: Path) -> str | None:
    """Returns the last trouble the receiver of a directory told, None for none."""
    try:
        with (directory / TROUBLE).open(errors="replace") as file:
            return " ".join(file.read(TROUBLE_CHARS).split()) or None
    except OSError:
        return None
