"""The latest sealed headers of each publisher, and the evidence against a publisher that signed two of one number.

Source: docs/protocol.md §13. A publisher that shows one region one content and another region another one gives them
one number under one data key. An honest gateway never signs two such headers: what it seals anew is under another
data key. Whoever has verified both has the evidence. Not here: what contradicts what (`bridge.document.evidence`).
"""

from __future__ import annotations

from bridge.contract import Blame, Count, Effect, FairTable, Prove
from bridge.document import Contradiction, Lie, Overlay, SignedStatement
from keys.envelope import MessageHeader
from keys.identity import SIGNATURE_BYTES, Certificate
from keys.message import NO_KEY

SEALINGS_MAX = 8_192  # headers at hand; of the publisher with most the oldest goes


class Sealings:
    """The headers that were verified lately, by data key and number. Each publisher is accused once."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._known: FairTable[tuple[bytes, bytes, int], tuple[bytes, str]] = FairTable(SEALINGS_MAX)
        self._accused: set[bytes] = set()
        self.fresh: list[Effect] = []
        """Accusations that are not told yet."""

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, and forgets accusations of parties that are no members any more."""
        self._overlay = overlay
        self._accused &= overlay.by_party.keys()

    def has_header(self, header: MessageHeader, frame: bytes, wire_topic: str) -> bool:
        """Returns True if this very header is at hand, verified."""
        return self._known.get((header.publisher, header.key_id, header.sequence)) == (frame, wire_topic)

    def saw(self, header: MessageHeader, frame: bytes, wire_topic: str, publisher: Certificate) -> None:
        """Takes a header with a verified signature. `frame`: header and signature."""
        if header.key_id == NO_KEY:
            return
        name = header.publisher, header.key_id, header.sequence
        known = self._known.get(name)
        if known is None:
            self._known.put(name, header.publisher, (frame, wire_topic))
        elif header.publisher not in self._accused and (known[0][:-SIGNATURE_BYTES], known[1]) != (
            frame[:-SIGNATURE_BYTES],
            wire_topic,
        ):
            self._contradicts(publisher, known, (frame, wire_topic))

    def news(self) -> list[Effect]:
        """Returns the accusations since the last call."""
        news, self.fresh = self.fresh, []
        return news

    def _contradicts(self, publisher: Certificate, one: tuple[bytes, str], other: tuple[bytes, str]) -> None:
        """Accuses a publisher. Nobody is named by a former key: who has stolen it may have signed both."""
        first, second = (
            SignedStatement(frame[:-SIGNATURE_BYTES], frame[-SIGNATURE_BYTES:], topic) for frame, topic in (one, other)
        )
        made = Contradiction(Lie.PUBLICATIONS, self._overlay.owner, first, second, publisher.encode())
        proven = made.check_proof()
        self._accused.add(publisher.party_id)
        is_present = self._overlay.certificate(publisher.name).party_id == publisher.party_id
        self.fresh += [Blame(publisher.name, is_present, proven.says), Prove(made, proven)]
        self.fresh += [Count("named", 1, publisher.name)] if is_present else []
