"""The organiser's swaps in force, and the arrangement of regions that they make (docs/protocol.md §5.6).

    arrangement            how regions are joined: the owner's, with every swap in force since
    swaps                  the swaps in force, each on top of the one before
    offered                on top of the last of them, and not in force: too few have endorsed them, so far
    proof                  two swaps of one number: no further swap of their author is offered
    hears(news, now)       the overlay with new, valid swaps and endorsements
    carrying(old)          a newer version of the owner's with the swaps in force in `old`
    swap_news              all of it, for a member that may lack it

A swap is in force once k replicas of every region on its cycle endorsed it, in a view that is open or to come. Of two
swaps that both got there the one with the higher number counts, then the one with the higher digest, so that all
members come to a tree, in any order of news. Nothing else is asked here, so that a swap is in force under every
version of the owner's alike: endorsers ask whether the policy allows it, and whether the tree `bears` it. The owner's
next tree has a number beyond all that the organiser may give (`OWNER_STEPS`); a tree taking up swaps may be lower than
the tree in force at a member that had others (`may_follow`). So no version of the owner's is ever held up.

None of this changes a value, as in `succession`. Not here: who endorses, how news spread (`bridge.membership`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from bridge.document.arrangement import Arrangement
from bridge.document.policy import Policy
from bridge.document.succession import Succession
from bridge.document.swaps import NUMBERS_MOST, SWAPS_MOST, SignedSwap, SwapEndorsement, SwapNews
from bridge.document.trees import Trees
from keys.errors import KeysError
from keys.identity import Role

OFFERED_MOST = 4  # swaps that wait for endorsements; the highest numbers count


@dataclass(frozen=True, slots=True)
class _Step:
    """The arrangement behind a swap, or the owner's signed one."""

    arrangement: Arrangement
    digest: bytes
    swap: SignedSwap | None = None

    @property
    def rank(self) -> tuple[int, bytes]:
        return self.arrangement.change.number, b"" if self.swap is None else self.swap.digest


class Reorganised(Succession):
    """An overlay's knowledge of swaps, as the module's head tells."""

    owner: bytes
    policy: Policy
    offered: tuple[SignedSwap, ...]
    proof: tuple[SignedSwap, ...]
    swap_endorsements: frozenset[SwapEndorsement]
    _steps: tuple[_Step, ...]

    def _arrange(self) -> None:
        """Sets the arrangement the owner signed, without swaps."""
        arrangement = Arrangement.from_policy(self.policy)
        self._steps = (_Step(arrangement, arrangement.digest(self.policy.overlay)),)
        self.offered, self.proof, self.swap_endorsements = (), (), frozenset()

    @property
    def arrangement(self) -> Arrangement:
        return self._steps[-1].arrangement

    @property
    def tree_digest(self) -> bytes:
        """The digest the next swap has to name."""
        return self._steps[-1].digest

    @property
    def swaps(self) -> tuple[SignedSwap, ...]:
        return tuple([step.swap for step in self._steps if step.swap is not None])

    @property
    def swap_news(self) -> SwapNews:
        swaps = {swap.digest: swap for swap in (*self.swaps, *self.offered, *self.proof)}
        return SwapNews(tuple(swaps.values()), tuple(sorted(self.swap_endorsements, key=SwapEndorsement.encode)))

    def swap_numbers_left(self, given: int = 0) -> int:
        """Returns how many more numbers the organiser may give; 0 if the most swaps are in force already.

        `given`: the highest number that it gave.
        """
        given = max([given, self.arrangement.change.number, *(swap.number for swap in self.offered)])
        return 0 if len(self._steps) > SWAPS_MOST else self._base.change.number + NUMBERS_MOST - given

    def swap_endorsers(self, swap: SignedSwap) -> frozenset[str]:
        """Returns the members that agreed to the swap, as far as we heard until it was in force."""
        return frozenset(each.member for each in self.swap_endorsements if each.digest == swap.digest)

    def cycle(self, swap: SignedSwap) -> tuple[int, ...]:
        """Returns the regions on the cycle of an offered swap, from an end of the new edge to the other."""
        return self.trees.newest.path(*swap.added)

    def is_organisers(self, swap: SignedSwap) -> bool:
        """Returns True if the policy's organiser signed the swap with its present key: the key before may be
        stolen.
        """
        organising = self.policy.organising
        member = self.members.get(organising.organiser) if organising else None
        if member is None:
            return False
        named = member.certificate
        return (named.name, named.public_key) == (swap.author, swap.certificate.public_key)

    def bears(self, swap: SignedSwap) -> bool:
        """Returns True if the overlay would load had the owner signed the result of an offered swap. Asked by
        endorsers.
        """
        after = self._after(swap, self._steps[-1])
        return after is not None and self._bears(after.arrangement)

    def may_follow(self, old: Self) -> bool:
        """Returns True if a member that has `old` may take the trees of this version of the owner's.

        Its numbers count on, or it took up other swaps than are in force there.
        """
        others = self._base.change.number - old._base.change.number
        return self.trees.follows(old.trees) or 0 < others <= NUMBERS_MOST

    # ------------------------------------------------------------------------------------------- news

    def hears(self, news: SwapNews, now: float | None = None) -> Self:
        """Returns the overlay with new, valid news; itself if there is none.

        `now`: None where time counts from signatures, as at a start. Raises BadSignature for a swap no honest member
        would have passed on.
        """
        known = {swap.digest for swap in (*self.swaps, *self.offered, *self.proof)}
        fresh = {swap.digest: swap for swap in news.swaps if swap.digest not in known}
        for swap in fresh.values():
            swap.verify(self.owner)
        proof = self.proof or self._proof(tuple(fresh.values()))
        pool = {swap.digest: swap for swap in self.offered} | fresh
        named = pool.keys() | {swap.digest for swap in self.swaps}
        endorsements = self.swap_endorsements | self._agreed(news.endorsements, named)
        steps = self._best(pool.values(), endorsements)
        offered: list[SignedSwap] = []
        if not proof and len(steps) <= SWAPS_MOST:
            waiting = [swap for swap in pool.values() if self._waits(swap, steps[-1])]
            offered = sorted(waiting, key=lambda swap: (-swap.number, swap.digest))[:OFFERED_MOST]
        named = {step.swap.digest for step in steps if step.swap} | {swap.digest for swap in offered}
        kept = frozenset(each for each in endorsements if each.digest in named)
        same = (steps, tuple(offered), proof, kept) == (self._steps, self.offered, self.proof, self.swap_endorsements)
        return self if same else self._rearranged(steps, tuple(offered), proof, kept, now)

    def carrying(self, old: Self) -> Self:
        """Returns this version of the owner's with the swaps in force and offered in `old`.

        A swap in force is not judged again: its endorsers may have left since, and its author may organise no more.
        """
        digests = [step.digest for step in old._steps]
        made = self
        if self._steps[0].digest in digests:
            steps = [self._steps[0]]
            for step in old._steps[digests.index(self._steps[0].digest) + 1 :]:
                assert step.swap is not None
                after = self._after(step.swap, steps[-1])
                if after is None:
                    break
                steps.append(after)
            if steps[-1].rank > self._steps[-1].rank:
                swaps = {step.swap.digest for step in steps if step.swap}
                endorsements = frozenset(
                    each for each in old.swap_endorsements if each.digest in swaps and self._still_holds(each, old)
                )
                made = self._rearranged(tuple(steps), (), self.proof, endorsements, None)
        try:
            return made.hears(SwapNews((*old.offered, *old.proof), tuple(old.swap_endorsements)))
        except KeysError:
            return made  # of another owner's members, which a test may make

    def unproven(self, region: int) -> tuple[SignedSwap, ...]:
        """Returns swaps in force a newcomer could not prove by the listed keys of the region's latest view.

        Their endorsers left since, or have other keys.
        """
        latest = self.latest[region]
        return tuple(
            step.swap
            for before, step in itertools.pairwise(self._steps)
            if step.swap is not None and region in before.arrangement.way(*step.swap.added)
            and not latest.quorum(self.swap_endorsers(step.swap))
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------- details

    def _still_holds(self, endorsement: SwapEndorsement, old: Self) -> bool:
        """Returns True if the members of this version can check the endorsement, as the members of `old` could."""
        member, before = self.members.get(endorsement.member), old.members.get(endorsement.member)
        if member is None or member.certificate.role is not Role.REPLICA:
            return False
        same = before is not None and set(before.certificates) <= set(member.certificates)
        return same or endorsement.is_of(member.certificates)

    @property
    def _base(self) -> Arrangement:
        return self._steps[0].arrangement

    def _rearranged(
        self, steps: tuple[_Step, ...], offered: tuple[SignedSwap, ...], proof: tuple[SignedSwap, ...],
        endorsements: frozenset[SwapEndorsement], now: float | None,
    ) -> Self:  # fmt: skip
        changes: dict[str, Any] = {"_steps": steps, "offered": offered, "proof": proof}
        if steps[-1].digest != self._steps[-1].digest:
            arrangement = steps[-1].arrangement
            trees = Trees.at_start(arrangement.change, arrangement.edges, self.latest)
            changes["trees"] = trees if now is None else trees.beside(self.trees, now)
        made = self._changed(swap_endorsements=endorsements, **changes)
        return made if now is None else made.as_of(now)

    def _proof(self, fresh: Sequence[SignedSwap]) -> tuple[SignedSwap, ...]:
        """Returns two swaps of a number by the organiser's key, which no honest organiser signs; empty without
        them.
        """
        by_number: dict[tuple[int, bytes], SignedSwap] = {}
        for swap in (*self.swaps, *self.offered, *fresh):
            if self.is_organisers(swap):
                other = by_number.setdefault((swap.number, swap.certificate.public_key), swap)
                if other.digest != swap.digest:
                    return (other, swap)
        return ()

    def _agreed(self, endorsements: Iterable[SwapEndorsement], swaps: Collection[bytes]) -> frozenset[SwapEndorsement]:
        """Returns new endorsements of replicas of these swaps, one of each replica."""
        heard = {(each.digest, each.member) for each in self.swap_endorsements}
        agreed = []
        for each in endorsements:
            member = self.members.get(each.member)
            if each.digest not in swaps or (each.digest, each.member) in heard or member is None:
                continue
            if member.certificate.role is Role.REPLICA and each.is_of(member.certificates):
                heard.add((each.digest, each.member))
                agreed.append(each)
        return frozenset(agreed)

    def _best(self, pool: Iterable[SignedSwap], endorsements: Iterable[SwapEndorsement]) -> tuple[_Step, ...]:
        """Returns the owner's arrangement and the longest chain of swaps on top of it."""
        endorsers: dict[bytes, set[str]] = {}
        for each in endorsements:
            endorsers.setdefault(each.digest, set()).add(each.member)
        reached = {step.digest: self._steps[: at + 1] for at, step in enumerate(self._steps)}
        for swap in sorted(pool, key=lambda swap: (swap.number, swap.digest)):
            before = reached.get(swap.former)
            if before is None or not self._endorsed(swap, before[-1], endorsers.get(swap.digest, ())):
                continue
            after = self._after(swap, before[-1])
            if after is not None and len(before) <= SWAPS_MOST:
                reached[after.digest] = (*before, after)
        return max(reached.values(), key=lambda steps: steps[-1].rank)

    def _waits(self, swap: SignedSwap, last: _Step) -> bool:
        """Returns True if the swap may still come into force behind the last one."""
        return self.is_organisers(swap) and self._after(swap, last) is not None

    def _endorsed(self, swap: SignedSwap, before: _Step, endorsers: Collection[str]) -> bool:
        """Returns True if k replicas of every region on the cycle, of a view each, endorsed the swap."""
        if not endorsers:
            return False
        ring = before.arrangement.way(*swap.added)
        views = [self.latest.get(region) for region in ring]
        return len(ring) > 1 and all(
            latest is not None and any(view.quorum(endorsers) for view in (latest, latest.former) if view)
            for latest in views
        )

    def _after(self, swap: SignedSwap, before: _Step) -> _Step | None:
        """Returns the step a swap makes of `before`; None if it is no swap of this tree, or its tree is forbidden."""
        old = before.arrangement
        ends = {*swap.added, *swap.removed}
        is_next = (swap.former, swap.number) == (before.digest, old.change.number + swap.steps)
        if not is_next or swap.number > self._base.change.number + NUMBERS_MOST or not ends <= self.latest.keys():
            return None
        ring = old.way(*swap.added)
        if len(ring) < 3 or set(swap.removed) not in map(set, itertools.pairwise(ring)):
            return None  # both ends are one, or joined already, or the removed edge is not on the cycle
        new = old.swapped(swap.added, swap.removed, swap.since_ms, swap.grace_s, swap.steps)
        return _Step(new, new.digest(self.policy.overlay), swap)

    def _bears(self, arrangement: Arrangement) -> bool:
        """Returns True if the overlay would load had the owner signed this arrangement."""
        raise NotImplementedError


def read_swap_news(swaps: Iterable[bytes], endorsements: Iterable[bytes], owner: bytes) -> SwapNews:
    """Reads swaps and endorsements of a document, and returns those signed by parties the owner certified.

    An unreadable one is no fault of the owner's.
    """
    read: list[SignedSwap] = []
    agreed: list[SwapEndorsement] = []
    for one in swaps:
        with contextlib.suppress(KeysError):
            swap = SignedSwap.decode(one)
            swap.verify(owner)
            read.append(swap)
    for one in endorsements:
        with contextlib.suppress(KeysError):
            agreed.append(SwapEndorsement.decode(one))
    return SwapNews(tuple(read), tuple(agreed))
