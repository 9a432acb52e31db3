"""Swaps of the organiser: the spread of swaps and endorsements, and the rule by which a replica endorses a swap
(paper D, D5; docs/protocol.md §5.6, §9.17).

Every member passes on valid news on `$veil/swaps`; a neighbour linking up is told all that counts. A member hearing of
a swap that does not follow from the swaps it knows asks for all of them. A replica on the cycle checks every
`JUDGE_EVERY_S`, for `ENDORSE_S` after it heard of a swap, for an objection. Only the swap with the highest number
counts, never one with a lower number than a swap the replica endorsed. Between two endorsements for a tree `ENDORSE_S`
pass, so that the earlier swap has had its time before the later can get there. Not here: the objections
(`bridge.measuring.swap_objection`), the swaps in force (`document.reorganised`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from bridge.contract import Effect, Send, Wire
from bridge.document import Overlay, SignedSwap, SwapEndorsement, SwapNews
from keys.identity import Identity

SWAPS_TOPIC = "$veil/swaps"
ENDORSE_S = 60.0  # a swap is endorsed within this time after it was heard of, or never
JUDGE_EVERY_S = 1.0
CLOCKS_S = 120.0  # a swap signed longer ago than this, or further ahead, is not endorsed
NEWS_BURST, NEWS_EVERY_S = 3, 10.0  # questions to one neighbour for all that it has

Objection: TypeAlias = Callable[[Overlay, SignedSwap, float], str]
"""The reason why a replica does not endorse an offered swap now; empty if the replica endorses."""


class SwapEndorser:
    """The endorser of swaps for a replica. `objection` None: it endorses nothing, ever. `why`: the objection to the
    newest offered swap.
    """

    def __init__(self, name: str, identity: Identity | None, objection: Objection | None = None) -> None:
        self._name, self._identity, self.objection = name, identity, objection
        self._offered: tuple[bytes, float] | None = None  # the newest, and the time we heard of it
        self._signed: tuple[bytes, float] | None = None  # the tree that we agreed to change, and the time
        self._highest: tuple[bytes, int] = b"", 0  # organiser's key, and the highest number endorsed under it
        self._judge_at = 0.0
        self._standing: tuple[int, bytes] | None = None  # version and tree whose proofs we checked ...
        self._proves = False  # ... or are to check
        self.why = ""

    def rotate_identity(self, identity: Identity) -> None:
        if self._identity is not None:
            self._identity, self._proves = identity, True

    def adopt_overlay(self, overlay: Overlay, now: float) -> None:
        """Takes note of the offered swaps, and of those we endorsed, now or before a restart."""
        for swap in (*overlay.swaps, *overlay.offered):
            if self._name in overlay.swap_endorsers(swap) and overlay.is_organisers(swap):
                key = swap.certificate.public_key
                self._highest = key, max(self._highest_of(key), swap.number)
                if self._signed is None and swap.former == overlay.tree_digest:
                    self._signed = swap.former, now  # before a restart: the time is unknown
        newest = overlay.offered[0].digest if overlay.offered else None
        if newest is None:
            self._offered, self.why = None, ""
        elif self._offered is None or self._offered[0] != newest:
            self._offered, self._judge_at, self.why = (newest, now), now, ""
        standing = overlay.policy.version, overlay.tree_digest
        if standing != self._standing:
            self._standing, self._proves = standing, True

    def due_endorsements(self, overlay: Overlay, now: float) -> tuple[SwapEndorsement, ...]:
        """Returns the endorsements that are due now."""
        if self._proves and overlay.swaps and self._identity is not None:
            self._proves = False
            if proofs := self._proofs(overlay, self._identity):
                return proofs
        swap = self._candidate(overlay, now)
        if swap is None or now < self._next_at(overlay) or self.objection is None or self._identity is None:
            return ()
        self._judge_at = now + JUDGE_EVERY_S
        self.why = self.objection(overlay, swap, now) or ("" if overlay.bears(swap) else "the tree must not be")
        if self.why:
            return ()
        self._signed = swap.former, now
        return (SwapEndorsement.sign_swap(swap, self._name, self._identity),)

    def _proofs(self, overlay: Overlay, identity: Identity) -> tuple[SwapEndorsement, ...]:
        """Returns endorsements of swaps in force for which too few endorsers of our region's latest view remain to
        convince a newcomer.
        """
        region = self._region(overlay)
        if region is None or self._name not in overlay.latest[region].members:
            return ()
        unproven = [swap for swap in overlay.unproven(region) if self._name not in overlay.swap_endorsers(swap)]
        return tuple([SwapEndorsement.sign_swap(swap, self._name, identity) for swap in unproven])

    def next_deadline(self, overlay: Overlay, now_before: float) -> float | None:
        """Returns the time at which an endorsement may next be due. `now_before`: the time of the last event."""
        if self._proves and overlay.swaps and self._identity is not None:
            return now_before
        return self._next_at(overlay) if self._candidate(overlay, now_before) is not None else None

    def _next_at(self, overlay: Overlay) -> float:
        waits = self._signed is not None and self._signed[0] == overlay.tree_digest
        return max(self._judge_at, self._signed[1] + ENDORSE_S) if self._signed and waits else self._judge_at

    def _candidate(self, overlay: Overlay, now: float) -> SignedSwap | None:
        if self._offered is None or not overlay.offered or self._identity is None or self.objection is None:
            return None
        swap, (digest, heard_at) = overlay.offered[0], self._offered
        late = max(now, self._next_at(overlay)) >= heard_at + ENDORSE_S
        if swap.digest != digest or late or swap.number <= self._highest_of(swap.certificate.public_key):
            return None
        if abs(now - swap.since_ms / 1000) > CLOCKS_S:
            return None
        region = self._region(overlay)
        on_it = region in overlay.cycle(swap) and region is not None and self._name in overlay.views[region].members
        return swap if on_it else None

    def _highest_of(self, key: bytes) -> int:
        """Returns the highest number endorsed under this key of the organiser; 0 under another key, since the owner
        wants to hear a new organiser whatever numbers the former used up.
        """
        return self._highest[1] if self._highest[0] == key else 0

    def _region(self, overlay: Overlay) -> int | None:
        """Returns our region; None if the overlay does not list us any more."""
        member = overlay.members.get(self._name)
        return member.certificate.region if member is not None and member.certificate.region in overlay.latest else None


def news_since(before: Overlay, after: Overlay) -> SwapNews:
    """Returns the swaps and endorsements that `after` knows and `before` does not."""
    old, new = before.swap_news, after.swap_news
    digests = {swap.digest for swap in old.swaps}
    known = before.swap_endorsements
    return SwapNews(
        tuple([swap for swap in new.swaps if swap.digest not in digests]),
        tuple([each for each in new.endorsements if each not in known]),
    )


def is_known(news: SwapNews, overlay: Overlay) -> bool:
    """Returns True if all news concern swaps counting here, so that there is nothing to ask for."""
    digests = {swap.digest for swap in overlay.swap_news.swaps}
    named = {swap.digest for swap in news.swaps} | {each.digest for each in news.endorsements}
    return named <= digests


def told(news: SwapNews, peers: Collection[str]) -> list[Effect]:
    """Returns the wires telling news of swaps to the given neighbours; none if there are no news."""
    wire = Wire(SWAPS_TOPIC, news.encode())
    return [Send(peer, wire) for peer in sorted(peers)] if news else []


def question(peer: str) -> Sequence[Effect]:
    """Returns the wire asking a neighbour for all its swaps."""
    return [Send(peer, Wire(SWAPS_TOPIC, SwapNews().encode()))]
