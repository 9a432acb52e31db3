"""The publications that are in the spool already: by author and sequence, over restarts.

A publication counts as seen only when it is on disk. The windows are written into the spool's state at every roll. A
*retained* publication that is older than its author's window is let in once: retained values may be older than all
later publications of the author. Every other publication older than the window counts as seen. The author of a
publication a member's next key signs anew is its former key (`bridge.reader.intake`, also in the state).

The state also holds the time from which all written publications are known (`since_ms`): a publication that was
sealed
later and is not seen never came, however old it is.
"""

from __future__ import annotations

import base64
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from bridge.reader import Lineages
from keys.replay import SequenceWindow

BLOCKS_MAX = 1 << 15
"""Blocks of 4,096 numbers of an author: 134 million of an honest one, so that months of history are told from what is
in the spool. An author that marks one number in each takes 16 MiB.
"""
RETAINED_TOPICS_MAX = 100_000
"""Stops publishers with ever new topics from filling memory; the topic that was quiet longest is forgotten."""


class Seen:
    """The written publications. To be fed verified publications only: a forged high sequence would make others
    look old.
    """

    def __init__(self, beside: Sequence[Seen] = ()) -> None:
        """Takes `beside`: the publications that others wrote for this receiver until it began."""
        self._beside = tuple(beside)
        self.lineages: Lineages | None = None
        """Who is the author of what: those that are asked about here are authors."""
        self.told: list[tuple[bytes, bytes]] = []
        """Of lineages, by a former process."""
        self._since_ms: int | None = None
        self._windows: dict[bytes, SequenceWindow] = {}
        self._retained: OrderedDict[tuple[bytes, str], int] = OrderedDict()

    def goes_by(self, lineages: Lineages) -> None:
        """Keeps these lineages in the state from now on, and tells them the knowledge of a former process."""
        for each in (*self._beside, self):
            lineages.restore(each.told)
        self.lineages = lineages

    def begins(self, now_ms: int) -> None:
        """Notes that a receiver begins to write. An earlier begin, on this clock, counts."""
        self._since_ms = now_ms if self._since_ms is None else min(self._since_ms, now_ms)

    @property
    def since_ms(self) -> int | None:
        """The time from which all written publications are known; None: nobody has begun."""
        known = (self._since_ms, *(each.since_ms for each in self._beside))
        return min((at for at in known if at is not None), default=None)

    def would_know(self, time_ms: int, now: float) -> bool:
        """Returns True if a publication sealed at `time_ms` would be known, had it been written."""
        since_ms = self.since_ms
        return since_ms is not None and since_ms < time_ms <= now * 1000

    def knows_author(self, author: bytes) -> bool:
        """Returns True if a publication of this author was written."""
        return author in self._windows or any(each.knows_author(author) for each in self._beside)

    def has_written(self, author: bytes, sequence: int, wire_topic: str, retain: bool) -> bool:
        """Returns True if this publication was written, or is too old to tell."""
        for each in self._beside:
            if each.has_written(author, sequence, wire_topic, retain):
                return True
        window = self._windows.get(author)
        if window is None or sequence > window.highest:
            return False
        if window.reaches(sequence):
            return sequence in window
        return not retain or sequence <= self._retained.get((author, wire_topic), -1)

    def mark_written(self, author: bytes, sequence: int, wire_topic: str, retain: bool) -> None:
        """Marks a publication as written."""
        window = self._windows.get(author)
        if window is None:
            window = self._windows[author] = SequenceWindow(BLOCKS_MAX)
        window.seen(sequence)
        if retain:
            topic = (author, wire_topic)
            self._retained[topic] = max(sequence, self._retained.get(topic, -1))
            self._retained.move_to_end(topic)
            if len(self._retained) > RETAINED_TOPICS_MAX:
                self._retained.popitem(last=False)

    def to_json(self) -> dict[str, Any]:
        """Returns the state for the spool; parts beside have states of their own."""
        lineages = self.told if self.lineages is None else self.lineages.all_rows()
        return {
            "since_ms": self._since_ms,
            "lineages": [[key.hex(), row.hex()] for key, row in lineages],
            "windows": {publisher.hex(): _pack(window) for publisher, window in self._windows.items()},
            "retained": [[publisher.hex(), topic, at] for (publisher, topic), at in self._retained.items()],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any], beside: Sequence[Seen] = ()) -> Seen:
        """Returns the state that `to_json` wrote. Raises KeyError, TypeError or ValueError for other documents."""
        seen = cls(beside)
        since_ms = document.get("since_ms")  # None of a version that did not write it
        seen._since_ms = None if since_ms is None else int(since_ms)
        seen.told = [(bytes.fromhex(key), bytes.fromhex(row)) for key, row in document.get("lineages", ())]
        for publisher, window in document["windows"].items():
            seen._windows[bytes.fromhex(publisher)] = _unpack(window)
        for publisher, topic, at in document["retained"]:
            seen._retained[bytes.fromhex(publisher), str(topic)] = int(at)
        return seen


def _pack(window: SequenceWindow) -> str:
    return base64.b64encode(zlib.compress(window.to_bytes(), 1)).decode()


def _unpack(text: str) -> SequenceWindow:
    try:
        return SequenceWindow.from_bytes(zlib.decompress(base64.b64decode(text, validate=True)), BLOCKS_MAX)
    except zlib.error as error:
        raise ValueError(f"a window that cannot be unpacked: {error}") from None
