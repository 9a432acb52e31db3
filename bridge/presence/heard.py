"""The table of words of presence at a member, and the machine of a replica that tells and passes them on
(docs/protocol.md §15.2).

A word travels along the edges between regions to every replica, and from the replicas of a region to its gateways. A
member hearing nothing of a replica for `LOST_S` takes it for silent: the replica is down, or no way from it to here is
open. Not here: how links are made, and what is reported to an operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.contract import Beat, Blame, Count, Effect, Received, Send, Wire
from bridge.document import Overlay
from bridge.organising import believed
from bridge.presence.word import BEAT_S, LINKED_MAX, PRESENCE_TOPIC, PresenceWord
from bridge.topology import Topology
from keys.errors import BadFrame, KeysError, NotFresh
from keys.identity import Identity, Role

LOST_S = 3.5 * BEAT_S
"""Seconds without a word after which a replica is silent: two words may be lost on the way."""
EARLY_S = 300.0
"""The largest difference of clocks (docs/protocol.md §5.2)."""


@dataclass(frozen=True, slots=True)
class RegionPresence:
    """What a member heard of a region.

    `heard`: seconds since the last word by replica. `silent`: replicas without a word for `LOST_S` or longer.
    `reaches`: by name of a neighbouring region, how many of its replicas this region is linked to, as the median of
    its
    replicas says; empty if too few of them spoke.
    """

    name: str
    members: tuple[str, ...]
    needed: int
    heard: Mapping[str, float] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    reaches: Mapping[str, int] = field(default_factory=dict)


class PresenceTable:
    """The newest word of each replica that this member heard, all verified."""

    def __init__(self, overlay: Overlay, name: str) -> None:
        self._overlay, self._name = overlay, name
        self._words: dict[str, tuple[PresenceWord, float]] = {}  # by replica, with the time of arrival
        self._awaited: dict[str, float] = {}  # by replica, the time since which a word is expected

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, and forgets replicas that are no longer members."""
        self._overlay = overlay
        for table in (self._words, self._awaited):
            for name in table.keys() - overlay.members:
                del table[name]

    def take_word_wire(self, event: Received, now: float) -> list[Effect]:
        """Takes a word. An invalid one is dropped, counted and charged to the link; only a frame no honest member
        sends makes its sender suspected.
        """
        try:
            return [Count("presence")] if self.take_word(event.wire.payload, now) else []
        except BadFrame as error:
            return [Count("refused", 1, type(error).__name__), Blame(event.peer, False, str(error))]
        except KeysError as error:
            return [Count("refused", 1, type(error).__name__)]

    def keep_word(self, word: PresenceWord, now: float) -> None:
        """Keeps a verified word, or our own."""
        self._words[word.member] = word, now

    def take_word(self, frame: bytes, now: float) -> PresenceWord | None:
        """Returns the word if it is newer than what is known of its author. Raises keys errors."""
        word = PresenceWord.decode(frame)
        known = self._words.get(word.member)
        if word.member == self._name or (known is not None and word.beat <= known[0].beat):
            return None
        if abs(now - word.beat * BEAT_S) > EARLY_S:
            raise NotFresh(f"a word of presence of {now - word.beat * BEAT_S:.0f} s ago")
        word.check_author(self._overlay)
        self.keep_word(word, now)
        return word

    def regions(self, now: float) -> tuple[RegionPresence, ...]:
        """Returns what was heard of each region, in the order of their numbers. The first call begins the wait for
        replicas that were not heard yet.
        """
        return tuple(self._region(region, now) for region in sorted(self._overlay.views))

    def fresh(self, now: float) -> list[PresenceWord]:
        """Returns the words of replicas that are not silent, in the order of their names."""
        return [word for _, (word, at) in sorted(self._words.items()) if now - at < LOST_S]

    def _region(self, region: int, now: float) -> RegionPresence:
        view = self._overlay.views[region]
        spoken: dict[str, PresenceWord] = {}
        heard, silent = {}, []
        for name in view.members:
            if name in self._overlay.hosted:
                continue
            word, at = self._words.get(name, (None, self._awaited.setdefault(name, now)))
            if now - at >= LOST_S and name != self._name:
                silent.append(name)
            elif word is not None:
                spoken[name] = word
            if word is not None and name != self._name:
                heard[name] = max(0.0, now - at)
        reaches = {}
        for other in self._overlay.neighbours(region):
            there = self._overlay.views[other]
            counts = [len(set(word.linked) & set(there.members)) for word in spoken.values()]
            middle = believed(counts, view.faults)
            if middle is not None:
                reaches[there.name] = int(middle)
        return RegionPresence(view.name, view.members, view.threshold, heard, tuple(silent), reaches)


class Presence:
    """The machine of a replica: its own words at each beat of the shell, and words of others that pass."""

    def __init__(self, overlay: Overlay, name: str, identity: Identity) -> None:
        self._overlay, self._name, self._identity = overlay, name, identity
        self.table = PresenceTable(overlay, name)
        self._up: frozenset[str] = frozenset()

    def rotate_identity(self, identity: Identity) -> None:
        self._identity = identity

    def adopt_overlay(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self.table.adopt_overlay(overlay)

    def beat(self, event: Beat, now: float) -> list[Effect]:
        """Signs and sends a word about this moment. A replica without neighbouring regions has nobody to tell."""
        self._up = frozenset(event.up)
        own = self._overlay.certificate(self._name).region
        nearby = self._overlay.neighbours(own)
        if not nearby:
            return []
        linked = sorted({peer for region in nearby for peer in self._overlay.replicas(region)} & self._up)
        word = PresenceWord(self._name, own, int(now // BEAT_S), tuple(linked[:LINKED_MAX])).signed(self._identity)
        self.table.keep_word(word, now)
        return self._onwards(word, Wire(PRESENCE_TOPIC, word.encode()), "")

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """Tells a gateway of our region all that is known: words passed while it had no link here."""
        if not self._is_own_gateway(peer):
            return []
        return [Send(peer, Wire(PRESENCE_TOPIC, word.encode())) for word in self.table.fresh(now)]

    def _is_own_gateway(self, name: str) -> bool:
        certificate = self._overlay.certificate(name)
        own = self._overlay.certificate(self._name).region
        return (certificate.role, certificate.region) == (Role.GATEWAY, own)

    def take_word_wire(self, event: Received, now: float) -> list[Effect]:
        """Takes a word of another replica, and passes it on if it is new."""
        effects = self.table.take_word_wire(event, now)
        if Count("presence") not in effects:
            return effects
        return effects + self._onwards(PresenceWord.decode(event.wire.payload), event.wire, event.peer)

    def _onwards(self, word: PresenceWord, wire: Wire, sender: str) -> list[Effect]:
        """Passes a word to replicas of the next regions and to our gateways, where a connection stands.

        A word goes back towards its sender's region only if that is its author's, whose replicas have no links with
        each other.
        """
        own = self._overlay.certificate(self._name).region
        before = self._overlay.certificate(sender).region if sender else own
        regions = [r for r in Topology(self._overlay).neighbours(own) if r != before or r == word.region]
        peers = {peer for region in regions for peer in self._overlay.replicas(region)}
        peers |= {name for name in self._overlay.members if self._is_own_gateway(name)}
        return [Send(peer, wire) for peer in sorted((peers & self._up) - {word.member, sender, self._name})]
