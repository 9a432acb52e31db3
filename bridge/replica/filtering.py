"""Record of the publications that one replica left out, so that the next receiver knows that nothing is missing (C10).

For each stream (publisher, scope) of a scope with shown attributes, the record holds the runs of numbers left out for
each neighbour, and the runs left out for us by f + 1 replicas of the region before (*vouched*). From both follows the
number beside the next publication for a neighbour: all after that number, up to its predecessor, was left out
(`wire.skips`). If the others' word comes after the publication was passed on, its header goes once more.

In scopes going by planes these are runs of *ways*, each named by its end: a gateway here, or the replica of a plane in
a next region, whichever replica takes its copy. A word on a plane counts for its ways only.

Bounded: a forgotten run is not vouched for, and is asked for like any gap. Not here: covers (`wire.covers`), sending
(`forwarder`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.base import Intervals
from bridge.contract import FairTable
from bridge.wire.skips import agreed
from keys.envelope import MessageHeader

STREAMS_MAX = 16_384
RUNS_MAX = 16
"""Runs of one stream and neighbour; the lowest go first."""
VOTES_MAX = 16
"""Publications of a stream for which replicas' words are kept."""
GIVEN_MAX = 8
"""Last publications of a neighbour for which more may have to be said."""

StreamKey: TypeAlias = tuple[bytes, str]
"""Publisher and the scope's wire filter."""


@dataclass(slots=True)
class _Given:
    """A publication a neighbour got, and the number after which all before it was left out."""

    sequence: int
    previous: int
    low: int
    ways: tuple[str, ...]


@dataclass(slots=True)
class _Filtered:
    vouched: Intervals = field(default_factory=Intervals)
    left_out: dict[str, Intervals] = field(default_factory=dict)
    given: dict[str, list[_Given]] = field(default_factory=dict)
    votes: OrderedDict[int, dict[str, int]] = field(default_factory=OrderedDict)

    def low(self, ways: Iterable[str], number: int) -> int:
        """Returns the number after which all up to `number` was left out on each of these ways."""
        return max((self._low(way, number) for way in ways), default=number)

    def given_on(self, way: str, header: MessageHeader) -> tuple[str, _Given]:
        """Returns who got a publication that went on a way, and its record: a new one of the way's end, if dropped."""
        for peer, lately in self.given.items():
            for given in lately:
                if given.sequence == header.sequence and way in given.ways:
                    return peer, given
        lately = self.given.setdefault(way, [])
        lately.append(_Given(header.sequence, header.previous, header.previous, (way,)))
        del lately[:-GIVEN_MAX]
        return way, lately[-1]

    def _low(self, way: str, number: int) -> int:
        while begins := list(self._run_starts(way, number)):
            number = min(begins) - 1
        return number

    def _run_starts(self, way: str, number: int) -> Iterable[int]:
        for runs in (self.vouched, self.left_out.get(way, _NONE)):
            yield from (low for low, high in runs if low <= number <= high)


_NONE = Intervals()


class Filtering:
    """A replica's record of left out publications."""

    def __init__(self) -> None:
        self._streams: FairTable[StreamKey, _Filtered] = FairTable(STREAMS_MAX)

    def __len__(self) -> int:
        """Returns the number of kept streams."""
        return len(self._streams)

    def passes(
        self, scope: str, header: MessageHeader, given: Mapping[str, Iterable[str]], left_out: Collection[str]
    ) -> None:
        """Notes that a publication is passed on to some peers, each on its ways, and left out on other ways.

        Its scope shows attributes, and the other ways lead to members wanting the scope.
        """
        stream = self._stream((header.publisher, scope))
        for way in left_out if header.qos else ():  # a publication of QoS 0 is no predecessor
            _add(stream.left_out.setdefault(way, Intervals()), header.previous + 1, header.sequence)
        for peer, ways in given.items():
            lately, known = stream.given.setdefault(peer, []), tuple(ways)
            lately.append(_Given(header.sequence, header.previous, stream.low(known, header.previous), known))
            del lately[:-GIVEN_MAX]

    def claim(self, peer: str, scope: str, header: MessageHeader) -> int | None:
        """Returns the `low` to send the peer beside this publication; None: nothing."""
        stream = self._streams.get((header.publisher, scope))
        lately = () if stream is None else stream.given.get(peer, ())
        given = next((each for each in reversed(lately) if each.sequence == header.sequence), None)
        return None if given is None or given.low >= given.previous else given.low

    def take_gap_word(
        self, scope: str, header: MessageHeader, peer: str, low: int, threshold: int
    ) -> list[tuple[str, int]]:
        """Takes the word of a replica of the region before that it left something out.

        Returns peers that may learn more now, each with the number of the publication to say it beside.
        """
        stream = self._stream((header.publisher, scope))
        votes = stream.votes.setdefault(header.sequence, {})
        votes[peer] = min(low, votes.get(peer, low))
        while len(stream.votes) > VOTES_MAX:
            stream.votes.popitem(last=False)
        low_of_all = agreed(votes, threshold)
        if low_of_all is None or not stream.vouched.without(low_of_all + 1, header.previous):
            return []
        _add(stream.vouched, low_of_all + 1, header.previous)
        return _lowered(stream)

    def believed(
        self, scope: str, header: MessageHeader, low: int, ways: Iterable[str], is_passed: bool = False
    ) -> list[tuple[str, int]]:
        """Takes the word of a single replica that is believed alone, on these ways. Returns as `take_gap_word` does.

        `is_passed`: the publication was passed on before. Then the publication may no more be among the last of a
        neighbour, nor its gap among the last runs.
        """
        stream, told = self._stream((header.publisher, scope)), list[tuple[str, int]]()
        for way in ways:
            runs = stream.left_out.setdefault(way, Intervals())
            if is_passed and header.sequence not in runs:
                (peer, given), lower = stream.given_on(way, header), stream.low((way,), low)
                if given.ways == (way,) and lower < given.low:
                    given.low = lower
                    told.append((peer, header.sequence))
            _add(runs, low + 1, header.previous)
        return told + _lowered(stream)

    def forget_all_but(self, members: Collection[str], publishers: Collection[bytes]) -> None:
        """Forgets the runs of numbers left out for neighbours beside `members`, and all streams of publishers beside
        `publishers`.
        """
        for key, stream in list(self._streams.items()):
            if key[0] not in publishers:
                self._streams.pop(key)
                continue
            for table in (stream.left_out, stream.given):
                for peer in [peer for peer in table if peer not in members]:
                    del table[peer]

    def _stream(self, key: StreamKey) -> _Filtered:
        stream = self._streams.get(key)
        if stream is None:
            stream = _Filtered()
            self._streams.put(key, key[0], stream)
        return stream


def _lowered(stream: _Filtered) -> list[tuple[str, int]]:
    """Returns peers for which more was left out than was said, each with the number of the publication."""
    told = []
    for peer, lately in stream.given.items():
        for given in lately:
            lower = stream.low(given.ways, given.low)
            if lower < given.low:
                given.low = lower
                told.append((peer, given.sequence))
    return told


def _add(runs: Intervals, low: int, high: int) -> None:
    runs.add(low, high)
    while len(runs) > RUNS_MAX:
        runs.drop_lowest()
