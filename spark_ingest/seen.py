"""Which publications are in the spool already: by publisher and sequence, over restarts.

Unlike `keys.replay.SequenceWindow` it can be asked without marking (a publication counts as seen only when it
is on disk), it is written into the spool's state at every roll, and it lets a *retained* publication that is
older than the window in once: retained state may be older than the 65,536 publications that its publisher sent
since. Everything else that is older than the window counts as seen.
"""

from __future__ import annotations

import base64
import zlib
from collections import OrderedDict
from typing import Any

WINDOW_SIZE = 65_536
RETAINED_TOPICS_MAX = 100_000
"""Stops publishers with ever new topics from filling memory; the topic that was quiet longest is forgotten."""


class _Window:
    __slots__ = ("bits", "highest")

    def __init__(self, highest: int = -1, bits: int = 0) -> None:
        self.highest = highest
        self.bits = bits  # bit i: sequence highest - i was seen

    def mark(self, sequence: int) -> None:
        ahead = sequence - self.highest
        if ahead >= WINDOW_SIZE:
            self.bits, self.highest = 1, sequence
        elif ahead > 0:
            self.bits = (self.bits << ahead | 1) & ((1 << WINDOW_SIZE) - 1)
            self.highest = sequence
        elif -ahead < WINDOW_SIZE:
            self.bits |= 1 << -ahead


class Seen:
    """What was written. Feed it verified publications only: a forged high sequence would make others look old."""

    def __init__(self) -> None:
        self._windows: dict[bytes, _Window] = {}
        self._retained: OrderedDict[tuple[bytes, str], int] = OrderedDict()

    def knows(self, publisher: bytes) -> bool:
        """Whether anything of this publisher was written."""
        return publisher in self._windows

    def __contains__(self, publication: tuple[bytes, int, str, bool]) -> bool:
        """Whether (publisher, sequence, wire topic, retain) was written, or is too old to tell."""
        publisher, sequence, wire_topic, retain = publication
        window = self._windows.get(publisher)
        if window is None or sequence > window.highest:
            return False
        behind = window.highest - sequence
        if behind < WINDOW_SIZE:
            return bool(window.bits >> behind & 1)
        return not retain or sequence <= self._retained.get((publisher, wire_topic), -1)

    def mark(self, publisher: bytes, sequence: int, wire_topic: str, retain: bool) -> None:
        """It is on disk."""
        window = self._windows.get(publisher)
        if window is None:
            window = self._windows[publisher] = _Window()
        window.mark(sequence)
        if retain:
            topic = (publisher, wire_topic)
            self._retained[topic] = max(sequence, self._retained.get(topic, -1))
            self._retained.move_to_end(topic)
            if len(self._retained) > RETAINED_TOPICS_MAX:
                self._retained.popitem(last=False)

    def to_json(self) -> dict[str, Any]:
        """For the spool's state."""
        return {
            "windows": {
                publisher.hex(): [window.highest, _pack(window.bits)] for publisher, window in self._windows.items()
            },
            "retained": [[publisher.hex(), topic, at] for (publisher, topic), at in self._retained.items()],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Seen:
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError for anything else."""
        seen = cls()
        for publisher, (highest, bits) in document["windows"].items():
            seen._windows[bytes.fromhex(publisher)] = _Window(int(highest), _unpack(bits))
        for publisher, topic, at in document["retained"]:
            seen._retained[bytes.fromhex(publisher), str(topic)] = int(at)
        return seen


def _pack(bits: int) -> str:
    return base64.b64encode(zlib.compress(bits.to_bytes(WINDOW_SIZE // 8), 1)).decode()


def _unpack(text: str) -> int:
    data = zlib.decompress(base64.b64decode(text, validate=True), bufsize=WINDOW_SIZE // 8)
    return int.from_bytes(data[: WINDOW_SIZE // 8])
