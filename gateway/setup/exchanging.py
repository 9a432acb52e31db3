"""The owner's copy of the signed overlay and those in the folders of members on the same machine, kept in step.

What the owner signs has to reach one member, and endorsements have to come back before a region may change again. On
one machine `veilmq up` carries both: the newest version that verifies, with the most endorsements, goes to all who have
an older one. A copy by another owner is left alone. Members pass on what is new among themselves besides.
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
    """Of the copies that are there and verify, the one with the highest version and then the most endorsements.

    The owner of the first copy counts; others are passed over.
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
    """Looks at the copies again only where one of them changed since the last time."""

    def __init__(self) -> None:
        self._seen: dict[Path, FileStamp | None] = {}

    def exchange(self, signed: Path, folders: Sequence[Path], now_ms: int) -> None:
        """`signed`: the owner's copy; `folders`: those of members, whether they have a copy yet or not."""
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
                # Looked at when it is our turn to write: meanwhile the owner may have signed the next version there.
                if write_public(path, content, still=partial(_lacks, path, overlay, now_ms)):
                    LogEvent.OVERLAY_PASSED_ON.say(log, overlay.policy.version, source, path)
            except PrivateFileError as error:
                LogEvent.OVERLAY_NOT_PASSED_ON.say(log, error)
        self._seen = stamps  # of before: what came while we looked, or we wrote, is looked at the next time


def _is_for(path: Path, overlay: Overlay) -> bool:
    """Whether the folder's member is in: one that the owner has not attached yet could not start with it."""
    card = path.parent / IDENTITY / "card.json"
    if not card.exists():
        return True
    try:
        return Card.load(card).name in overlay.members
    except TrustError:
        return False


def _lacks(path: Path, overlay: Overlay, now_ms: int) -> bool:
    """Whether there is no copy as good, and none of another owner, which is not ours to replace."""
    try:
        theirs = load_overlay(path, now_ms)
    except (TrustError, OverlayError):
        return True
    return theirs.owner == overlay.owner and _rank(theirs) < _rank(overlay)
