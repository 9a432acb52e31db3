"""The progress of a running receiver, written by its thread and read by any other.

It holds plain numbers and whole objects that are replaced, never changed in place, so that a reader needs no lock.
Not
here: how progress is shown (`metrics`), the state of the spool (`status`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from bridge.document import Overlay
from gateway.base.log_events import LogEvent

_log = logging.getLogger(__name__)


class ReplicaLink(NamedTuple):
    """The connection to a replica. `pieces`: received PUBLISH packets; `bytes`: all received bytes, inside TLS."""

    replica: str
    up: bool
    pieces: int
    bytes: int


@dataclass(slots=True)
class Progress:
    """The progress since the process began, over sessions."""

    groups: int = 0
    rows: int = 0
    bytes: int = 0
    """Bytes of groups on disk."""
    fsync_s: float = 0.0
    """Seconds spent in fsync of groups."""
    waiting: int = 0
    """Publications that are whole, or given up, and not on disk."""
    full: bool = False
    """The spool is at its cap: nothing is acknowledged."""
    clock_off: bool = False
    """This machine's clock cannot be believed: nothing is acknowledged, or nothing that looks like a replay."""
    reads_back: bool = False
    """Histories of replicas are being read into the spool."""
    accepted: bool = False
    """Enough replicas know all our subscriptions: no publication from now on is missed."""
    links: tuple[ReplicaLink, ...] = ()


def summed(several: Iterable[Progress]) -> Progress:
    """Returns the sum of the progress of a receiver's workers; they have no links."""
    total = Progress(accepted=True)
    for each in several:
        total.groups += each.groups
        total.rows += each.rows
        total.bytes += each.bytes
        total.fsync_s += each.fsync_s
        total.waiting += each.waiting
        total.full |= each.full
        total.clock_off |= each.clock_off
        total.reads_back |= each.reads_back
        total.accepted &= each.accepted
    return total


def tell_links(receiver: str, progress: Progress, links: Iterable[ReplicaLink], accepted: bool) -> None:
    """Logs connections that came or went, and the moment from which nothing is missed."""
    links = tuple(links)
    before = {link.replica: link.up for link in progress.links}
    for link in links:
        if link.up is not before.get(link.replica, False):
            event = LogEvent.RECEIVER_LINK_UP if link.up else LogEvent.RECEIVER_LINK_DOWN
            event.say(_log, receiver, link.replica)
    progress.links = links
    if accepted and not progress.accepted:
        LogEvent.RECEIVER_SUBSCRIBED.say(_log, receiver)
    progress.accepted = accepted


def too_few(links: Collection[ReplicaLink], overlay: Overlay, region: int) -> str | None:
    """Returns a line when the connected replicas cannot make a publication of `region` whole, None if they can.

    Without known `links` the result is None.
    """
    up = [link.replica for link in links if link.up]
    view = overlay.views[region]
    if not links or view.quorum(up) or (view.former is not None and view.former.quorum(up)):
        return None
    missing = ", ".join(sorted(link.replica for link in links if not link.up))
    return (
        f"{len(up)} of {len(links)} replicas can be reached, and {view.threshold} are needed for a row; no connection "
        f"to {missing}: see to them and to the network, and that the identity is valid"
    )
