"""The owner looks at what replicas measured, and signs one change of the tree that spares most (paper D).

    gathered     signed summaries as running replicas give them; whoever hands them over can only leave some out
    proposed     the swap, inside the owner's `links`, that may be signed on top of what was signed last
    apply_swap   the next version with it, which members follow live (`bridge.document.trees`)

Not here: asking the replicas, what is proposed (`bridge.measuring.proposing`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from pathlib import Path

from bridge.document import TREE_GRACE_S, Overlay
from bridge.measuring import (
    InterestSummary,
    ReplicaSummary,
    SwapProposal,
    check_author,
    decode_said,
    proposal,
    swapped,
)
from gateway.owner.record import locked, open_record_of
from gateway.owner.signing import check_certificates, next_version, publish
from gateway.owner.views import carried
from gateway.trust import TrustDomain, TrustError
from keys.errors import KeysError

SUMMARIES_MAX = 65_536  # that one answer of a replica may hold; stops one that never ends


def gathered(told: Iterable[str], overlay: Overlay) -> list[ReplicaSummary | InterestSummary]:
    """Returns of each replica the newest summary and its interests, each signed by it, of what anybody handed over; the
    rest is left out."""
    newest: dict[str, ReplicaSummary] = {}
    interests: dict[tuple[str, int], InterestSummary] = {}
    for each in list(told)[:SUMMARIES_MAX]:
        try:
            said = decode_said(base64.b64decode(each, validate=True))
            check_author(said, overlay)
        except (KeysError, binascii.Error, TypeError, ValueError):
            continue
        if isinstance(said, InterestSummary):
            interests[said.member, said.interval] = said
        elif said.member not in newest or said.interval > newest[said.member].interval:
            newest[said.member] = said
    return [*newest.values(), *interests.values()]


def proposed(overlay: Overlay, told: Iterable[ReplicaSummary | InterestSummary], now: float) -> SwapProposal:
    """What would be signed now. Raises TrustError if the owner never let replicas measure."""
    found = proposal(overlay, told, now)
    if found is None:
        raise TrustError("the overlay has no `organise`, so that nobody measures; add it to the description and sign")
    return found


def apply_swap(
    out: Path, owner: Path, told: Iterable[str], now: float, grace_s: int = TREE_GRACE_S
) -> tuple[SwapProposal, Overlay | None]:
    """Sign what `proposal` finds; None if that is nothing. `grace_s`: how long the former tree stays open. Raises
    TrustError, OverlayError."""
    domain = TrustDomain.load(owner)
    with locked(domain):
        record, previous = open_record_of(domain, out)
        check_certificates(out, previous, now)
        found = proposed(previous, gathered(told, previous), now)
        if found.swap is None:
            return found, None
        policy = swapped(previous, found.swap, now, grace_s)
        overlay = next_version(domain, record, previous, carried(previous, now), {}, now, policy=policy)
        publish(domain, record, overlay, out)
        return found, overlay


def edges_lines(overlay: Overlay) -> str:
    """How the description has to name edges and potential links from now on."""

    def named(edges: Iterable[tuple[int, int]]) -> str:
        return ", ".join(f"[{overlay.latest[a].name}, {overlay.latest[b].name}]" for a, b in edges)

    told = f"edges: [{named(overlay.policy.edges)}]"
    organising = overlay.policy.organising
    if organising is None:
        return told
    numbers = f"interval_s: {organising.interval_s}, hops: {organising.hops}, min_gain: {organising.min_gain_percent}"
    rest = f"dwell_s: {organising.dwell_s}, processing: {organising.processing_percent}"
    return f"{told}\norganise: {{links: [{named(organising.links)}], {numbers}, {rest}}}"
