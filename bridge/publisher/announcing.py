"""How a publication leaves for one replica: with its key, behind it, or alone; what a stock broker needs besides (A9).

A key rides on publications or stands alone on its own topic, as its scope says. Who joins late at a replica of ours
gets the live keys from it; from a stock broker only what comes next, so there every publication carries its key. Not
here: what is sent when (`publisher`), which key (`data_keys`).
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from bridge.contract import Publication, Send, Wire
from bridge.document.region_view import RegionView
from bridge.publisher.data_keys import LiveKey
from keys.sharetree import Place


def sends(
    peer: str,
    view: RegionView,
    wire: Wire,
    key: LiveKey | None,
    publication: Publication,
    ticket: int,
    now: float,
    *,
    hosted: bool,
) -> list[Send]:
    """One publication for the member `peer` of our region's `view`."""
    if hosted and publication.expiry_s is not None:
        ends_s = publication.time_ms / 1000 + publication.expiry_s
        wire = replace(wire, expiry_s=max(1, ceil(ends_s - now)))
    if key is None:
        return [Send(peer, wire, ticket)]
    if key.alone and not hosted:
        before = [] if key.told(peer) else [key_alone(peer, view, key)]
        return [*before, Send(peer, wire, ticket)]
    if hosted or wire.retain or key.announcement_due(peer, now):
        carried = key.carried(_place(peer, view))
        wire = replace(wire, properties=wire.properties + carried)
    return [Send(peer, wire, ticket)]


def key_alone(peer: str, view: RegionView, key: LiveKey) -> Send:
    """A key on its own topic, with the share of that replica."""
    key.tell(peer)
    return Send(peer, key.wire(_place(peer, view)))


def _place(peer: str, view: RegionView) -> Place:
    return Place(view.region, view.number, view.place_of(peer))
