"""Counters for people: the work of this party, the members that it suspects and names (docs/protocol.md §7), its
links.

Kept in memory and published once a second as a single retained JSON object on `$SYS/veilmq/figures` to local clients.
Not here: the broker's own counters (`traffic.py`) and the endpoint showing both (`prometheus.py`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.contract import Blame, Count

FIGURES_TOPIC = "$SYS/veilmq/figures"
RECEIPTS_ROOT = "$veilmq/receipts/"
"""Beginning of the topics on which local clients hear of receipts."""
LABELS_MAX = 1000  # distinct figures; a peer that invents reasons cannot grow the object


LINKS_SHOWN_MAX = 256  # of these in the JSON object, which is sent anew every second; Prometheus is shown all


@dataclass(slots=True)
class LinkFigures:
    """Counters of the connections of a link since it is kept. Bytes are MQTT packets before TLS."""

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    connections: int = 0
    acknowledge_s: float | None = None
    """Seconds from writing a message to its acknowledgement, at the last measurement; one message is measured at a
    time.
    """
    tls_group: str = ""
    """Group of the key agreement of the present or last connection, where Python can say it."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """State of a link at this moment. `dialled`: this side connected; else `peer` connected, and counts its own
    reconnects.
    """

    peer: str
    dialled: bool
    up: bool
    in_flight: int
    """Messages to the peer without an acknowledgement."""
    waiting: int
    """Messages that wait for room in the peer's window."""
    figures: LinkFigures

    @property
    def reconnects(self) -> int:
        return max(0, self.figures.connections - 1)

    def to_dict(self) -> dict[str, Any]:
        one = self.figures
        shown: dict[str, Any] = {
            "up": self.up,
            "in_flight": self.in_flight,
            "waiting": self.waiting,
            "reconnects": self.reconnects,
        }
        shown |= {"sent": one.sent, "sent_bytes": one.sent_bytes}
        shown |= {"received": one.received, "received_bytes": one.received_bytes}
        shown |= {"tls_group": one.tls_group} if one.tls_group else {}
        return shown if one.acknowledge_s is None else {**shown, "acknowledge_s": round(one.acknowledge_s, 6)}


@dataclass(frozen=True, slots=True)
class HistoryState:
    """How far the history of a scope reaches at a replica. `scope`: its wire filter; `first_ms`, `last_ms`: when its
    oldest and newest publications were sealed, 0 for none; `refused`: why the disk takes nothing, empty while it does.
    """

    scope: str
    first_ms: int = 0
    last_ms: int = 0
    bytes: int = 0
    refused: str = ""

    def span(self, name: str) -> ReplicaSpan:
        """Returns the reach as that of the replica of this name."""
        return ReplicaSpan(name, self.first_ms, self.refused or ("" if self.first_ms else "has nothing"))


@dataclass(frozen=True, slots=True)
class ReplicaSpan:
    """Reach of one replica. `first_ms`: 0 if the replica has nothing, or has not said; `note`: why, or empty."""

    replica: str
    first_ms: int
    note: str


@dataclass(frozen=True, slots=True)
class ScopeSpan:
    """Reach of the histories of a scope in one region. `scope`: the clear filter; `days`: that the owner gives;
    `needed`: replicas that a reader needs, 0 if unknown; `first_ms`: since when so many have something.
    """

    scope: str
    region: str
    days: int
    needed: int
    first_ms: int
    replicas: tuple[ReplicaSpan, ...]


@dataclass(frozen=True, slots=True)
class ReaderState:
    """Standing of a reader towards publications of this gateway in a scope with receipts. `scope`: its wire filter;
    `time_ms`: of the newest receipt, by the reader's clock; `through`: the last number that it speaks of; `missing`:
    intervals that the reader lacks; `unreceived_s`: age of the oldest publication without a receipt, 0 for none.
    """

    reader: str
    scope: str
    time_ms: int
    through: int
    missing: int
    unreceived_s: float


@dataclass(slots=True)
class Figures:
    """Counts by name (and label), suspicions by member, and the named members. `links` returns the states of the
    links, `histories` those of a replica's histories, `readers` those of a gateway's readers.
    """

    name: str
    role: str
    counts: Counter[str] = field(default_factory=Counter)
    suspected: Counter[str] = field(default_factory=Counter)
    named: dict[str, str] = field(default_factory=dict)
    links: Callable[[], Sequence[LinkState]] = tuple
    histories: Callable[[], Sequence[HistoryState]] = tuple
    readers: Callable[[], Sequence[ReaderState]] = tuple
    heard: dict[str, LinkFigures] = field(default_factory=dict)
    """Counters of publications from members that connected here; bounded by the number of members of the overlay."""

    def count_effect(self, effect: Count) -> None:
        key = f"{effect.name}.{effect.label}" if effect.label else effect.name
        if key in self.counts or len(self.counts) < LABELS_MAX:
            self.counts[key] += effect.amount

    def count_received(self, peer: str, payload_bytes: int) -> None:
        """Counts a publication of a member that connected here."""
        heard = self.heard.get(peer)
        if heard is None:
            heard = self.heard[peer] = LinkFigures()
        heard.received += 1
        heard.received_bytes += payload_bytes

    def forget_all_but(self, members: Container[str]) -> None:
        """Drops the counters of members that left."""
        for name in [name for name in self.heard if name not in members]:
            del self.heard[name]

    def blame(self, effect: Blame) -> bool:
        """Notes a suspicion or a name; returns True the first time for this member."""
        if effect.named:
            return self.named.setdefault(effect.member, effect.why) is effect.why
        self.suspected[effect.member] += 1
        return self.suspected[effect.member] == 1

    def to_dict(self, **more: Any) -> dict[str, Any]:
        return {
            "name": self.name,
            "role": self.role,
            "counts": dict(sorted(self.counts.items())),
            "suspected": dict(sorted(self.suspected.items())),
            "named": sorted(self.named),
            "peers": self._peers(),
            **more,
        }

    def to_json(self, **more: Any) -> bytes:
        return json.dumps(self.to_dict(**more), separators=(",", ":")).encode()

    def _peers(self) -> dict[str, dict[str, Any]]:
        """Returns link states by member, then by the side that connected."""
        shown: dict[str, dict[str, Any]] = {}
        for link in self.links()[:LINKS_SHOWN_MAX]:
            shown.setdefault(link.peer, {})["dialled" if link.dialled else "accepted"] = link.to_dict()
        return shown
