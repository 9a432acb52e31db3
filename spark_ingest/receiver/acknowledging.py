"""Acknowledgements a receiver owes, collected and handed to each connection at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from gateway.overlay import Publish


class Sender(Protocol):
    """A sender of messages; `gateway.overlay.region_client.Client` is one."""

    def acknowledge_all(self, publishes: Sequence[Publish]) -> None:
        """Acknowledges these messages, which are durable or not wanted.

        Called with the received objects themselves, in the loop's thread, at any time.
        """


Owed: TypeAlias = tuple[Sender, Publish]


def acknowledge(owed: Iterable[Owed]) -> None:
    """Acknowledges messages at their senders, each sender's in the order given."""
    by_sender: dict[int, tuple[Sender, list[Publish]]] = {}
    for sender, publish in owed:
        known = by_sender.get(id(sender))
        if known is None:
            known = by_sender[id(sender)] = (sender, [])
        known[1].append(publish)
    for sender, publishes in by_sender.values():
        sender.acknowledge_all(publishes)
