"""Announcement of data keys to one replica: with a publication, before it, or alone; extras for a stock broker (A9).

A key rides on publications or stands alone on its own topic, as its scope says. A late subscriber at a replica gets
the live keys from the replica; a stock broker gives only later messages, so there every publication carries its key.
`publisher` decides on the time of sending, `data_keys` on the key.
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
    """Returns the messages of one publication for the member `peer` of the home region's `view`."""
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
    """Returns a key on its own topic, with the share of that replica."""
    key.tell(peer)
    return Send(peer, key.wire(_place(peer, view)))


def _place(peer: str, view: RegionView) -> Place:
    return Place(view.region, view.number, view.place_of(peer))
