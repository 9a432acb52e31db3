"""Memory of the publications that passed a single replica: nothing goes on twice (docs/protocol.md §4, §5.3).

The memory holds the numbers of each publisher that passed, with their times of sealing. A snapshot has the number of
an old publication: a snapshot is news if newer than the retained publication. Not here: content in pieces
(`content_relay`).
"""

from __future__ import annotations

from collections.abc import Container

from bridge.contract import Repeats, claim_of
from bridge.replica.content_relay import Carrying
from bridge.replica.resplitting import HeldKey
from bridge.replica.retained import Retained
from bridge.wire import Admitted


class Passed:
    """The publications that passed a single replica; `retained`, `content`: the retained ones and the recent
    content.
    """

    def __init__(self, retained: Retained[HeldKey], content: Carrying) -> None:
        self._retained, self._content = retained, content
        self._repeats: dict[bytes, Repeats] = {}  # by publisher, all of whom are certified

    def forget_all_but(self, parties: Container[bytes]) -> None:
        """Forgets parties that are no members any more."""
        self._repeats = {party: seen for party, seen in self._repeats.items() if party in parties}

    def is_long_over(self, told: str, wire_topic: str) -> bool:
        """Returns True if a header claims a publication that passed so long ago that nothing of it is news, true or
        not.

        A flood of replays is not worth verifying.
        """
        claim = claim_of(told)
        repeats = self._repeats.get(claim.publisher)
        if claim.order:
            if not self._retained.outranks(wire_topic, claim.order):
                return False
        elif repeats is None or not repeats.knows_sealing(claim.sequence, claim.sealed_ms, claim.life):
            return False
        return not self._content.recalls((claim.publisher, claim.sequence))

    def seen(self, admitted: Admitted, wire_topic: str) -> bool:
        """Returns True if a verified header passed before, and marks it as passed."""
        header = admitted.header
        if header.snapshot:
            return self._retained.outranks(wire_topic, header.order) or self._content.passes(header)
        repeats = self._repeats.get(header.publisher)
        if repeats is None:
            repeats = self._repeats[header.publisher] = Repeats()
        return repeats.seen(header.sequence, header.time_ms, (header.generation, header.counter))
