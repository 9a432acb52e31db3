"""What the owner-signed overlay says, as far as a receiver asks; who implements it has verified the signatures.

`replicas.RegionReplicas` answers from the gateway's overlay. The overlay may change while a receiver runs, its views
too: nothing here is remembered across publications. Not here: who is reachable, and any key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from keys.envelope import Mode
from keys.epochs import Calendar
from keys.identity import Certificate
from keys.sharetree import Hop


class Scope(Protocol):
    """Topics that share one epoch key (`bridge.document.policy.Scope` is one)."""

    @property
    def filter(self) -> str:
        """Its wire filter, which names it."""

    @property
    def mode(self) -> Mode: ...

    @property
    def bump(self) -> int:
        """Rises when the owner shuts somebody out at once."""

    @property
    def keyed(self) -> bool:
        """Whether it takes an epoch key to read it."""


class Directory(Protocol):
    """Members, rights, epochs and paths of regions."""

    @property
    def calendar(self) -> Calendar: ...

    @property
    def hosted(self) -> frozenset[str]:
        """Replicas that are somebody's ordinary brokers: they let in whatever they are given."""

    def certificate(self, party_id: bytes) -> Certificate | None:
        """The member with this id, also by its key of before a rotation."""

    @property
    def edition(self) -> object:
        """Another one whenever members, rights or views changed."""

    def path(self, region: int) -> tuple[int, ...]:
        """Regions from a publisher's region to ours, both included; () if none."""

    def check_view(self, hop: Hop) -> None:
        """Raises UnknownView, Expired or BadShare unless a key may name this view now."""

    def place(self, hop: Hop, replica: str) -> int | None:
        """1..n: where a replica of ours stands in this view; None: nowhere, or the view is not open."""

    def faults(self) -> int:
        """f of our region in its view in force."""

    def honest_among(self, replicas: Collection[str]) -> bool:
        """Whether these are more replicas of ours than can be bad: f + 1 of one open view."""

    def scope_of(self, wire_topic: str) -> Scope | None:
        """The most specific scope of a wire topic."""

    def scope_named(self, wire_filter: str) -> Scope | None:
        """The scope that a key header names."""

    def may_publish(self, name: str, wire_topic: str, epoch: int) -> bool:
        """Whether the member has the right to a topic in an epoch."""

    def may_publish_in(self, name: str, wire_filter: str, epoch: int) -> bool:
        """Whether the member has the right to some topic of a scope in an epoch."""
