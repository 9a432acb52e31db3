"""The organiser: a member the owner lets number and sign changes of an edge in its place (paper D, D5).

The organiser hears the summaries of all replicas from the replicas of its region, proposes as the owner would
(`measuring.swap_proposal`), signs, and waits. A swap is open at a time; if too few replicas have endorsed it after
`ENDORSE_S`, the next may be signed, and after each failure the wait doubles, up to `BACKOFF_MOST_S`. A number is never
given twice: the highest is on disk before anybody hears of it. The organiser carries nothing, reads nothing and is
believed in nothing: without it nothing is swapped, and nothing else changes. Not here: the network
(`gateway.overlay.organiser`).
"""

from __future__ import annotations

from bridge.contract import Blame, Count, Effect, Event, Keep, Received, Rotated, Tick
from bridge.document import Arrangement, Overlay, SignedSwap
from bridge.measuring import (
    INTERESTS_KEPT,
    SUMMARY_TOPIC,
    InterestSummary,
    ReplicaSummary,
    SwapProposal,
    check_said,
    decode_said,
    proposal,
)
from bridge.membership import ENDORSE_S, Node
from bridge.organising import Swap
from keys.errors import BadFrame, KeysError
from keys.frames import number
from keys.identity import Identity

PROPOSE_EVERY_S = 1.0
HIGHEST = b"highest swap"
BACKOFF_MOST_S = 3600.0


class OrganiserNode(Node):
    """The organiser's node. `signs`: True to sign the proposals, False to show them only."""

    def __init__(
        self, overlay: Overlay, identity: Identity, name: str, signs: bool = False, highest: int = 0
    ) -> None:  # fmt: skip
        """Takes `highest`: the highest number given before this start (`Keep` with `HIGHEST`)."""
        super().__init__(overlay, name)
        self._highest = highest
        self._identity, self.signs = identity, signs
        self._said: dict[str, ReplicaSummary] = {}
        self._interests: dict[str, list[InterestSummary]] = {}  # the newest of each replica
        self._propose_at = 0.0
        self._failed = 0
        self._open: SignedSwap | None = None
        self.proposed: SwapProposal | None = None
        """The swap that we would sign now; None if the overlay does not measure."""
        self.signed: SwapProposal | None = None
        """The last signed proposal since this start."""

    @property
    def summaries(self) -> tuple[ReplicaSummary | InterestSummary, ...]:
        """The newest summary and the newest interests of each replica, all verified."""
        return (*self._said.values(), *(each for two in self._interests.values() for each in two))

    @property
    def open_swap(self) -> SignedSwap | None:
        """The swap we signed, not yet in force."""
        return next((swap for swap in self.overlay.offered if swap.author == self.name), None)

    def standing(self) -> str:
        """Returns the reason why we can sign nothing; empty if we can."""
        organising = self.overlay.policy.organising
        if organising is None or organising.organiser != self.name:
            return f"{self.name} is not the organiser of version {self.overlay.policy.version}"
        if self.overlay.proof:
            return f"{self.name} signed two swaps of number {self.overlay.proof[0].number}, and signs no more"
        if self.overlay.swap_numbers_left(self._highest) <= 0:
            return "the owner has to sign a version before the next swap: it takes up those that are in force"
        return ""

    # --------------------------------------------------------------------------------------------- events

    def _handle_event(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Received(_, wire) if wire.topic == SUMMARY_TOPIC:
                return self._take_summary(event, now)
            case Tick() if now >= self._propose_at:
                self._propose_at = now + PROPOSE_EVERY_S
                return self._propose(now)
            case Rotated(identity):
                self._identity = identity
        return []

    def _take_summary(self, event: Received, now: float) -> list[Effect]:
        try:
            said = decode_said(event.wire.payload)
            if said.ended_s <= self._newest_s(said):
                return []
            check_said(said, self.overlay, now)
        except BadFrame as error:
            return [Count("refused", 1, type(error).__name__), Blame(event.peer, False, str(error))]
        except KeysError as error:
            return [Count("refused", 1, type(error).__name__)]
        if isinstance(said, ReplicaSummary):
            self._said[said.member] = said
        else:
            self._interests[said.member] = [*self._interests.get(said.member, []), said][-INTERESTS_KEPT:]
        return [Count("summaries")]

    def _newest_s(self, said: ReplicaSummary | InterestSummary) -> int:
        if isinstance(said, ReplicaSummary):
            return self._said[said.member].ended_s if said.member in self._said else -1
        return self._interests[said.member][-1].ended_s if said.member in self._interests else -1

    def _propose(self, now: float) -> list[Effect]:
        self.proposed = proposal(self.overlay, self.summaries, now)
        swap = self.proposed.swap if self.proposed else None
        if self._open is not None and self._open in self.overlay.swaps:
            self._open, self._failed = None, 0
        if swap is None or not self.signs or self.standing() or self._waits(now) or not self._is_listed():
            return []
        self._failed += self._open is not None
        self.signed = self.proposed
        self._open = self._signed_swap(swap, now)
        self._highest = self._open.number
        kept = Keep(((HIGHEST, number(self._highest, 4)),))
        return [kept, *self._adopted(self.keeper.offer_swap(self._open, now), now)]

    def _is_listed(self) -> bool:
        """Returns True if the overlay lists our present key: we hear of a new key a moment before we take it."""
        return self.overlay.certificate(self.name).public_key == self._identity.public_bytes

    def _waits(self, now: float) -> bool:
        """Returns True if the last signed swap may still come into force, or failed lately."""
        newest = self.overlay.offered[0] if self.overlay.offered else self._open
        if newest is None:
            return False
        wait_s = min(ENDORSE_S * 2.0**self._failed, BACKOFF_MOST_S)
        return now < newest.since_ms / 1000 + wait_s

    def _signed_swap(self, swap: Swap, now: float) -> SignedSwap:
        arrangement: Arrangement = self.overlay.arrangement
        assert arrangement.organising is not None
        given = max([self._highest, arrangement.change.number, *(each.number for each in self.overlay.offered)])
        made = SignedSwap(
            given + 1, given + 1 - arrangement.change.number, self.overlay.tree_digest, int(now * 1000),
            arrangement.organising.grace_s, swap.added, swap.removed, self.overlay.certificate(self.name),
        )  # fmt: skip
        return made.signed(self._identity)

    def _adopt_overlay(self, overlay: Overlay, now: float) -> list[Effect]:
        self._said = {name: said for name, said in self._said.items() if name in overlay.members}
        self._interests = {name: two for name, two in self._interests.items() if name in overlay.members}
        return []

    def _deadlines(self) -> list[float | None]:
        return [self._propose_at if self.overlay.policy.organising is not None else None]
