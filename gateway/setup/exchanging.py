"""Exchange of the signed overlay between the owner's copy and the copies in members' folders on a machine.

A signed overlay has to reach a single member, and endorsements have to come back before a region may change again. On
a machine `veilmq up` carries both: the newest version that verifies, with the most endorsements, replaces every older
copy. A copy by another owner is left alone. Members also pass new versions on among themselves.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bridge.document import Overlay, OverlayError
from gateway.base import FileStamp, PrivateFileError, stamp, write_public
from gateway.base.log_events import LogEvent
from gateway.setup.folders import IDENTITY
from gateway.trust import Card, TrustError, load_overlay

log = logging.getLogger("veilmq.up")


def newest(copies: Sequence[Path], now_ms: int) -> tuple[Path, Overlay] | None:
    """Returns the verified copy with the highest version and then the most endorsements, or None.

    The owner of the first verified copy counts; copies by other owners are ignored.
    """
    best: tuple[Path, Overlay] | None = None
    owner: bytes | None = None
    for path in copies:
        with contextlib.suppress(TrustError, OverlayError):
            overlay = load_overlay(path, now_ms)
            owner = owner or overlay.owner
            if overlay.owner == owner and (best is None or _rank(overlay) > _rank(best[1])):
                best = path, overlay
    return best


def _rank(overlay: Overlay) -> tuple[int, int]:
    return overlay.policy.version, len(list(overlay.endorsements))


class CopiedFiles:
    """The copies of the overlay, compared only after a copy changed."""

    def __init__(self) -> None:
        self._seen: dict[Path, FileStamp | None] = {}

    def exchange(self, signed: Path, folders: Sequence[Path], now_ms: int) -> None:
        """Writes the newest copy over older and missing ones.

        `signed`: the owner's copy; `folders`: the members' copies.
        """
        copies = [signed, *folders]
        stamps = {path: stamp(path) for path in copies}
        if not signed.exists() or stamps == self._seen:
            return
        found = newest(copies, now_ms)
        if found is None:
            return
        source, overlay = found
        content = source.read_bytes()
        for path in copies:
            if path == source or not _is_for(path, overlay):
                continue
            try:
                # Checked again just before the write: the owner may have signed the next version there meanwhile.
                if write_public(path, content, still=partial(_lacks, path, overlay, now_ms)):
                    LogEvent.OVERLAY_PASSED_ON.say(log, overlay.policy.version, source, path)
            except PrivateFileError as error:
                LogEvent.OVERLAY_NOT_PASSED_ON.say(log, error)
        self._seen = stamps  # stamps from before: a change meanwhile is found the next time


def _is_for(path: Path, overlay: Overlay) -> bool:
    """Returns True if the overlay has the folder's member, which could not start with the overlay otherwise."""
    card = path.parent / IDENTITY / "card.json"
    if not card.exists():
        return True
    try:
        return Card.load(card).name in overlay.members
    except TrustError:
        return False


def _lacks(path: Path, overlay: Overlay, now_ms: int) -> bool:
    """Returns True if the copy is older than `overlay`, missing or invalid, and not by another owner."""
    try:
        theirs = load_overlay(path, now_ms)
    except (TrustError, OverlayError):
        return True
    return theirs.owner == overlay.owner and _rank(theirs) < _rank(overlay)
