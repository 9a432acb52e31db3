"""Assembly of contents from pieces at a reader, with requests for missing pieces (docs/protocol.md §4, §5.2).

Replicas of the reader's region send headers and pieces; the first sufficient pieces give the content. If too few pieces
come in time, the reader asks the replicas of the region in turn, beginning with the announcers of the publication. A
hole in a stream, a predecessor nobody announced, is requested in the same way. The broker's collector and the ingest
receiver use this module. Other modules verify headers and recognise delivered publications.

`Skipped` has statements of replicas that publications before another one were left out because nobody here wants them
(`wire.skips`). If f + 1 replicas of the home region agree, one of them is honest: then the reader neither waits for the
gap nor requests it. In a scope that is split into planes, the replica of the reader's plane suffices, since the reader
depends on that replica anyway. While that replica is away, or has not brought the publication within `SILENT_S`, any
replica of the region suffices, since one of them alone serves the plane. A left out publication that is wanted after
all may still come, late. `collector` handles all other waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.contract import Count, Effect, FairBudget, FairBytes, FairTable
from bridge.document import Overlay, Scope
from bridge.topology import Planes
from bridge.wire import PULL_S, REQUESTS_BURST, REQUESTS_PER_S, Admitted, Name, Pulls, agreed, read_skip
from bridge.wire import pieces as content
from keys.envelope import MessageHeader

ASSEMBLING_BYTES = 64 << 20  # of pieces of publications that are not whole yet; a flooder loses its own first
ASSEMBLING_OVERHEAD_BYTES = 1024
HOLE_S = 0.1  # before a predecessor is asked for: publications overtake each other


@dataclass(slots=True)
class _Parts:
    """The pieces of a publication that have arrived, and its announcers."""

    header: MessageHeader
    since: float
    pieces: dict[int, bytes] = field(default_factory=dict, repr=False)
    announcers: list[str] = field(default_factory=list)


class Assembling:
    """Publications with missing pieces. `replicas` are the replicas of the reader's region."""

    def __init__(self, replicas: Sequence[str]) -> None:
        self.replicas = tuple(replicas)
        self._parts: FairBytes[Name, _Parts] = FairBytes(ASSEMBLING_BYTES, ASSEMBLING_OVERHEAD_BYTES)
        self._pulls = Pulls()
        self._holes = FairBudget(REQUESTS_PER_S, REQUESTS_BURST, 0.0)

    def __len__(self) -> int:
        """Returns the number of held publications and requests; 0 if nothing is being assembled or requested."""
        return len(self._parts) + len(self._pulls)

    def take_pieces(
        self, peer: str, header: MessageHeader, pieces: Mapping[int, bytes], hops: int, now: float
    ) -> bytes | None:
        """Takes pieces of a wanted publication from a replica. Returns the content once enough pieces are there, and
        forgets the publication.

        `pieces` fit their digests. `hops` counts regions on the way from the publisher. Raises BadContent if all
        pieces came and give no content: the publisher's fault.
        """
        name = (header.publisher, header.sequence)
        known = self._parts.get(name)
        if known is None or known.header.order < header.order:  # sealed anew, which counts
            if content.suffices(header, pieces):
                self.forget_pieces(name)
                return content.join(header, pieces)
            known = _Parts(header, now)
            self._parts.put(name, header.publisher, known, 0)
        elif known.header.digests != header.digests:
            return content.join(header, pieces) if content.suffices(header, pieces) else None
        if peer not in known.announcers:
            known.announcers.append(peer)
        fresh = {index: piece for index, piece in pieces.items() if index not in known.pieces}
        if fresh:
            known.pieces.update(fresh)
            self._pulls.content_came(self._pulls.get(name), peer, now - known.since)
        if content.suffices(header, known.pieces):
            self.forget_pieces(name)
            return content.join(header, known.pieces)
        self._parts.grow(name, sum(map(len, fresh.values())))
        self._pulls.begin_pull(name, header.time_ms, header.publisher, now, PULL_S * (hops + 1))
        return None

    def holds_pieces(self, header: MessageHeader) -> bool:
        """Returns True if pieces of the publication are here or requested."""
        name = (header.publisher, header.sequence)
        return self._parts.get(name) is not None or self._pulls.get(name) is not None

    def holds_any(self, name: Name) -> bool:
        """Returns True if pieces of a publication of that name are here."""
        return self._parts.get(name) is not None

    def miss(self, name: Name, above: int, now: float) -> bool:
        """Requests a missing predecessor, and the publications before it down to number `above`, which is here.
        Returns True if the request is new.
        """
        before = self._pulls.get(name)
        return self._pulls.begin_pull(name, 0, name[0], now, HOLE_S, above) is not before

    def asked_for(self, name: Name) -> bool:
        """Returns True if at least one replica was asked for the publication."""
        pull = self._pulls.get(name)
        return pull is not None and bool(pull.asked)

    def forget_pieces(self, name: Name) -> None:
        """Forgets the pieces and the request of a publication: the content is whole, or nothing waits for it any
        more.
        """
        self._parts.pop(name)
        self._pulls.end_pull(name)

    def tick(self, now: float) -> list[Effect]:
        """Requests missing pieces that are due, and gives up requests that took too long."""
        asking, gone = self._pulls.due_pulls(now)
        effects: list[Effect] = [Count("content_given_up", len(gone))] if gone else []
        for pull in gone:
            self._parts.pop(pull.name)
        for pull in asking:
            known = self._parts.get(pull.name)
            if known is None and pull.time_ms:  # evicted, and not a hole
                self._pulls.end_pull(pull.name)
                continue
            if known is None and not self._holes.spend_one(pull.name[0], now):
                continue  # it comes up again
            sends = self._pulls.ask_next(pull, self._sources(known), () if known is None else _lacking(known))
            effects += [*sends, Count("pulls")] if sends else []
        return effects

    def _sources(self, known: _Parts | None) -> list[str]:
        announcers = [] if known is None else [peer for peer in known.announcers if peer in self.replicas]
        return [*dict.fromkeys((*announcers, *self.replicas))]

    @property
    def next_deadline(self) -> float | None:
        return self._pulls.next_deadline


def _lacking(known: _Parts) -> tuple[int, ...]:
    """Returns the numbers of just enough missing pieces, beginning with pieces needing no arithmetic."""
    missing = [index for index in range(len(known.header.digests)) if index not in known.pieces]
    return tuple(missing[: content.needed(len(known.header.digests)) - len(known.pieces)])


SKIPS_MAX = 16_384
"""Publications whose statements are remembered; a flooder's own are forgotten first."""

SILENT_S = 0.5
"""Seconds by which the replica of the reader's plane may be behind the replica that stands in for it."""

SkipName: TypeAlias = tuple[bytes, str, int]
"""Publisher, wire topic, sequence."""


class Skipped:
    """Statements about gaps, by publication, at one reader."""

    def __init__(self, overlay: Overlay, name: str) -> None:
        """Takes the name of the reader."""
        self._name = name
        self.up: set[str] = set()
        """Replicas with a link to this reader."""
        self._lows: FairTable[SkipName, dict[str, int]] = FairTable(SKIPS_MAX)
        self.adopt_overlay(overlay)

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Adopts another version of the overlay, or other views."""
        self._view, self._planes = overlay.views[overlay.certificate(self._name).region], Planes(overlay)

    def __len__(self) -> int:
        return len(self._lows)

    def word(self, admitted: Admitted, peer: str, properties: Mapping[str, str]) -> int | None:
        """Returns the number after which, as a replica says, all was left out before the publication that it brings;
        None if the replica says nothing. Silence of the replica of the reader's plane means that nothing was left out.
        Raises BadFrame.
        """
        low, scope = read_skip(properties, admitted.header), admitted.scope
        if low is None and scope.shown and self._planes.is_open(scope):
            return admitted.header.previous if peer == self._planes.host_replica(scope, self._name) else None
        return low

    def wakes(self, name: SkipName, scope: Scope, arrived: float, now: float) -> float | None:
        """Returns the time at which to check a waiting publication again, if only replicas other than that of the
        reader's plane say that nothing is missing before it; None for the ordinary time.
        """
        lows, at = self._lows.get(name), arrived + SILENT_S
        if not lows or now >= at or not self._planes.is_open(scope):
            return None
        return None if self._planes.host_replica(scope, self._name) in lows else at

    def note_statement(self, name: SkipName, peer: str, low: int) -> None:
        """Notes a replica's statement that everything after `low` was left out."""
        lows = self._lows.get(name)
        if lows is None:
            lows = {}
            self._lows.put(name, name[0], lows)
        lows[peer] = min(low, lows.get(peer, low))

    def bridges(self, name: SkipName, highest: int, scope: Scope, waited_s: float = 0.0) -> bool:
        """Returns True if nothing is missing between the delivered number `highest` and this publication of the scope,
        which has waited for `waited_s`.
        """
        lows = self._lows.get(name)
        if lows is None:
            return False
        said = {peer: low for peer, low in lows.items() if peer in self._view.members}
        needed = self._view.threshold
        if self._planes.is_open(scope):
            host = self._planes.host_replica(scope, self._name)
            if said.get(host, name[2]) <= highest:
                return True
            is_silent = host not in said and waited_s >= SILENT_S
            needed = 1 if is_silent or host not in self.up else needed
        low = agreed(said, needed)
        return low is not None and low <= highest

    def forget_statements(self, name: SkipName) -> None:
        """Forgets a publication waiting no more."""
        self._lows.pop(name)
