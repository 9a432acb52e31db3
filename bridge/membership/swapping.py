"""Swaps of the organiser's: how they and their endorsements spread, and when a replica endorses one
(paper D, D5; docs/protocol.md §5.6, §9.17).

Everybody passes on what is new and holds, on `$veil/swaps`; who links up is told all that counts. Who hears of a swap
that does not follow from what it knows asks for all of it. A replica on the cycle looks again and again, for
`ENDORSE_S` after it heard of a swap, whether it has an objection; the one with the highest number counts, none lower
than one that it endorsed, and between two of one tree `ENDORSE_S` pass: so the earlier has had its time before the
later one can get there. Not here: what an objection is (`bridge.measuring.judging`), what is in force
(`document.reorganised`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from bridge.contract import Effect, Send, Wire
from bridge.document import Overlay, SignedSwap, SwapEndorsement, SwapNews
from keys.identity import Identity

SWAPS_TOPIC = "$veil/swaps"
ENDORSE_S = 60.0  # so long after it was heard of, a swap is endorsed or never
JUDGE_EVERY_S = 1.0
CLOCKS_S = 120.0  # what was signed so long ago, or ahead, is not endorsed
NEWS_BURST, NEWS_EVERY_S = 3, 10.0  # questions to one neighbour for all that it has

Objection: TypeAlias = Callable[[Overlay, SignedSwap, float], str]
"""Why a replica does not endorse an offered swap now; empty if it does."""


class SwapEndorser:
    """What one replica has to say about swaps. `objection` None: nothing, ever. `why`: of the newest one offered."""

    def __init__(self, name: str, identity: Identity | None, objection: Objection | None = None) -> None:
        self._name, self._identity, self.objection = name, identity, objection
        self._offered: tuple[bytes, float] | None = None  # the newest, and when we heard of it
        self._signed: tuple[bytes, float] | None = None  # the tree that we agreed to change, and when
        self._highest: tuple[bytes, int] = b"", 0  # that we agreed to, of the key that organises
        self._judge_at = 0.0
        self._standing: tuple[int, bytes] | None = None  # version and tree of which we looked ...
        self._proves = False  # ... or are to look, whether what is in force is proven
        self.why = ""

    def rotate(self, identity: Identity) -> None:
        if self._identity is not None:
            self._identity, self._proves = identity, True

    def adopt(self, overlay: Overlay, now: float) -> None:
        """Other swaps may be offered, or endorsed by us, now or before a restart."""
        for swap in (*overlay.swaps, *overlay.offered):
            if self._name in overlay.swap_endorsers(swap) and overlay.is_organisers(swap):
                key = swap.certificate.public_key
                self._highest = key, max(self._highest_of(key), swap.number)
                if self._signed is None and swap.former == overlay.tree_digest:
                    self._signed = swap.former, now  # before a restart: when, we do not know
        newest = overlay.offered[0].digest if overlay.offered else None
        if newest is None:
            self._offered, self.why = None, ""
        elif self._offered is None or self._offered[0] != newest:
            self._offered, self._judge_at, self.why = (newest, now), now, ""
        standing = overlay.policy.version, overlay.tree_digest
        if standing != self._standing:
            self._standing, self._proves = standing, True

    def due(self, overlay: Overlay, now: float) -> tuple[SwapEndorsement, ...]:
        """What we endorse now."""
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
        return (SwapEndorsement.of(swap, self._name, self._identity),)

    def _proofs(self, overlay: Overlay, identity: Identity) -> tuple[SwapEndorsement, ...]:
        """Of what is in force here, where too few of our region's latest view could be believed by somebody new."""
        region = self._region(overlay)
        if region is None or self._name not in overlay.latest[region].members:
            return ()
        unproven = [swap for swap in overlay.unproven(region) if self._name not in overlay.swap_endorsers(swap)]
        return tuple([SwapEndorsement.of(swap, self._name, identity) for swap in unproven])

    def next_deadline(self, overlay: Overlay, now_before: float) -> float | None:
        """When `due` may say something next. `now_before`: the last moment that we know of."""
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
        """Of another key the owner wants to hear, whatever numbers the one before used up."""
        return self._highest[1] if self._highest[0] == key else 0

    def _region(self, overlay: Overlay) -> int | None:
        """Ours; None where the overlay lists us no more."""
        member = overlay.members.get(self._name)
        return member.certificate.region if member is not None and member.certificate.region in overlay.latest else None


def news_since(before: Overlay, after: Overlay) -> SwapNews:
    """What `after` knows and `before` did not."""
    old, new = before.swap_news, after.swap_news
    digests = {swap.digest for swap in old.swaps}
    known = before.swap_endorsements
    return SwapNews(
        tuple([swap for swap in new.swaps if swap.digest not in digests]),
        tuple([each for each in new.endorsements if each not in known]),
    )


def is_known(news: SwapNews, overlay: Overlay) -> bool:
    """Whether all of it concerns swaps that count here, so that there is nothing to ask for."""
    digests = {swap.digest for swap in overlay.swap_news.swaps}
    named = {swap.digest for swap in news.swaps} | {each.digest for each in news.endorsements}
    return named <= digests


def told(news: SwapNews, peers: Collection[str]) -> list[Effect]:
    """Wires that tell these neighbours; none if there is nothing to tell."""
    wire = Wire(SWAPS_TOPIC, news.encode())
    return [Send(peer, wire) for peer in sorted(peers)] if news else []


def question(peer: str) -> Sequence[Effect]:
    """Ask a neighbour for all that it has."""
    return [Send(peer, Wire(SWAPS_TOPIC, SwapNews().encode()))]
