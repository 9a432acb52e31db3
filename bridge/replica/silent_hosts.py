"""Replicas before ours that hang with their links up: nobody but a receiver of others' copies can notice that (C10).

In a scope that goes by planes and shows attributes, the replica of a plane in the region before ours is believed about
gaps. Another replica there may serve that plane in its place. Words of such another replica wait here. If the replica
of the plane brings nothing for `SILENT_S` after the first waiting word, the replica is *silent*: then words of others
count, until it brings something again. A replica bringing publications is never silent, so a liar gains nothing
against a plane whose replica works. Not here: the plane of a word (`plane_routing`), its effect (`filtering`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bridge.contract import FairTable

SILENT_S = 0.5
"""Seconds by which a replica may be behind the one that serves its plane, as at readers (`reader.skipped`)."""
WORDS_MAX = 1_024
"""Words that wait for one replica. A publisher with many loses its own first: its gaps are asked for, as others'."""

W = TypeVar("W")


@dataclass(slots=True)
class _Waiting(Generic[W]):
    since: float
    words: FairTable[int, W] = field(default_factory=lambda: FairTable(WORDS_MAX))
    count: int = 0


class SilentHosts(Generic[W]):
    """The replicas before ours for which others speak, each with the words that wait."""

    def __init__(self) -> None:
        self.waiting: dict[str, _Waiting[W]] = {}
        """By name of the replica; empty as a rule."""

    def __len__(self) -> int:
        """Returns the number of words that wait."""
        return sum(len(waiting.words) for waiting in self.waiting.values())

    def brought(self, host: str) -> None:
        """Notes that a replica brought a publication: words of others for its plane count no more."""
        self.waiting.pop(host, None)

    def is_silent(self, host: str, now: float) -> bool:
        """Returns True if others spoke for a replica for `SILENT_S`, and it brought nothing meanwhile."""
        waiting = self.waiting.get(host)
        return waiting is not None and now >= waiting.since + SILENT_S

    def said(self, host: str, publisher: bytes, word: W, now: float) -> None:
        """Keeps the word of another replica serving the host's plane, about a gap of a publisher."""
        waiting = self.waiting.get(host)
        if waiting is None:
            waiting = self.waiting[host] = _Waiting(now)
        waiting.count += 1
        waiting.words.put(waiting.count, publisher, word)

    def take_due_words(self, now: float) -> list[W]:
        """Takes the words for replicas that are silent now, in the order in which they came."""
        found: list[W] = []
        for host, waiting in self.waiting.items():
            if len(waiting.words) and self.is_silent(host, now):
                found += waiting.words.values()
                waiting.words = FairTable(WORDS_MAX)
        return found

    def forget_words(self) -> None:
        """Forgets all words: places and planes may differ in another version of the overlay."""
        self.waiting.clear()

    @property
    def next_deadline(self) -> float | None:
        """The time at which the next replica is silent; None if no word waits."""
        return min((each.since + SILENT_S for each in self.waiting.values() if len(each.words)), default=None)
