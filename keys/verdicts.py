"""Verdicts on the outputs of key servers: which outputs are believed for a key, and who contradicts them
(docs/protocol.md §6.4).

An output of a set of servers counts once f + 1 of its members signed it, at least one of them honest. The key is
the XOR over all sets of one deal. Where f is 0 (a chain, or three servers) a single vote suffices, the majority wins,
and nobody is called a liar: of two different votes neither is provably false. Not here: asking, verifying signatures
(`fetching`).
"""

from __future__ import annotations

from collections import Counter

from keys.material import combine, sets_held, sets_of
from keys.requests import Outputs

DEALS_KEPT = 2  # of one server: what was in force and what a rekey put in its place


class Verdict:
    """The votes on a key. `servers`: names in the owner's order. Raises `OurFault` for servers that cannot be a key
    service.
    """

    __slots__ = (
        "_avoid",
        "_chosen",
        "_deal",
        "_faults",
        "_key",
        "_liars",
        "_open",
        "_place",
        "_servers",
        "_sets",
        "_votes",
    )

    def __init__(self, servers: tuple[str, ...], faults: int, *, chain: bool) -> None:
        self._servers = servers
        self._faults = 0 if chain else faults
        self._place = (0, 0) if chain else (len(servers), faults)
        self._sets = len(sets_of(*self._place))
        self._votes: dict[str, dict[bytes, dict[int, bytes]]] = {}
        self._key: bytes | None = None
        self._open = True  # words came that may change the key
        self._liars: set[str] = set()
        self._deal = b""
        self._chosen: dict[int, bytes] = {}
        self._avoid: dict[int, bytes] = {}

    def hear(self, server: str, said: Outputs) -> bool:
        """Counts a verified vote of one of the servers. Returns False if its sets are not that server's: it counts for
        nothing.
        """
        number = self._servers.index(server) + 1
        if tuple(index for index, _ in said.outputs) != sets_held(*self._place, number):
            return False
        deals = self._votes.setdefault(server, {})
        deals.pop(said.deal, None)
        deals[said.deal] = dict(said.outputs)
        if len(deals) > DEALS_KEPT:
            del deals[next(iter(deals))]
        if not self._faults or said.deal != self._deal:  # none is, before there is a key
            self._open = True
        elif self._contradicts(deals):
            self._liars.add(server)
        return True

    def voters(self) -> set[str]:
        """Returns the servers whose vote counts."""
        return set(self._votes)

    def doubt(self) -> None:
        """Notes that publishers use another key: an output with as many votes against it as for it is dropped."""
        self._avoid, self._open = dict(self._chosen), True

    def agreed_key(self) -> bytes | None:
        """Returns the scope key, as soon as every set of one deal has an output that is believed; None before.

        Of several deals the latest counts; where f is 0 anybody can invent one, and the deal with most votes counts.
        """
        if not self._open:
            return self._key
        self._open = False
        found: dict[bytes, dict[int, bytes]] = {}
        ranks: dict[bytes, tuple[int, bool, bytes]] = {}
        for deal, count in Counter(deal for votes in self._votes.values() for deal in votes).items():
            if count < 2 * self._faults + 1:
                continue  # f of them are not in some set, of which f + 1 are needed
            believed = {index: self._output(deal, index) for index in range(self._sets)}
            chosen = {index: output for index, (output, words) in believed.items() if words > self._faults}
            if len(chosen) == self._sets:
                found[deal] = chosen
                least = min(words for _, words in believed.values())
                ranks[deal] = (0, False, deal) if self._faults else (least, chosen != self._avoid, deal)
        if found:
            self._deal = max(found, key=ranks.__getitem__)
            self._chosen = found[self._deal]
            self._key = combine(list(self._chosen.values()))
            self._liars |= {
                server for server, deals in self._votes.items() if self._faults and self._contradicts(deals)
            }
        return self._key

    def liars(self) -> set[str]:
        """Returns servers that signed another output than a believed one; empty where f is 0, and before there is
        a key.
        """
        return set(self._liars)

    def _contradicts(self, deals: dict[bytes, dict[int, bytes]]) -> bool:
        return any(output != self._chosen[index] for index, output in deals.get(self._deal, {}).items())

    def _output(self, deal: bytes, index: int) -> tuple[bytes, int]:
        """Returns the output that most servers of the set signed, and their number; (b"", 0) if none did."""
        words = [votes[deal][index] for votes in self._votes.values() if deal in votes and index in votes[deal]]
        counts = Counter(words)
        if not counts:
            return b"", 0
        present, avoid = self._chosen.get(index), self._avoid.get(index)
        best = max(counts, key=lambda output: (counts[output], output != avoid, output == present))
        return best, counts[best]
