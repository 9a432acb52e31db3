"""Reorganisation by the owner: signs the change of the tree saving most, by the replicas' measurements (paper D).

    gathered     signed summaries from running replicas; whoever passes them on can only leave some out
    proposed     the swap, inside the owner's `links`, that may be signed on top of the last signed version
    apply_swap   the next version with the swap, which members follow live (`bridge.document.trees`)

Not here: asking the replicas, choice of the swap (`bridge.measuring.swap_proposal`).
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

SUMMARIES_MAX = 65_536  # items of a replica's answer; stops an endless answer


def gathered(told: Iterable[str], overlay: Overlay) -> list[ReplicaSummary | InterestSummary]:
    """Returns each replica's newest summary and its interests, among items with a valid signature of their replica.

    Invalid and older items are left out.
    """
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
    """Returns the swap that would be signed now. Raises TrustError if the description never let replicas measure."""
    found = proposal(overlay, told, now)
    if found is None:
        raise TrustError("the overlay has no `organise`, so that nobody measures; add it to the description and sign")
    return found


def apply_swap(
    out: Path, owner: Path, told: Iterable[str], now: float, grace_s: int = TREE_GRACE_S
) -> tuple[SwapProposal, Overlay | None]:
    """Signs the swap that `proposal` finds; returns None in the place of a version if there is no swap.

    `grace_s`: seconds for which the former tree stays open. Raises TrustError, OverlayError.
    """
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
    """Returns the lines with which the description has to name edges and potential links from now on."""

    def named(edges: Iterable[tuple[int, int]]) -> str:
        return ", ".join(f"[{overlay.latest[a].name}, {overlay.latest[b].name}]" for a, b in edges)

    told = f"edges: [{named(overlay.policy.edges)}]"
    organising = overlay.policy.organising
    if organising is None:
        return told
    numbers = f"interval_s: {organising.interval_s}, hops: {organising.hops}, min_gain: {organising.min_gain_percent}"
    rest = f"dwell_s: {organising.dwell_s}, processing: {organising.processing_percent}"
    return f"{told}\norganise: {{links: [{named(organising.links)}], {numbers}, {rest}}}"
