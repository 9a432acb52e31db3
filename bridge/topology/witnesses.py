"""Reports of members about each other, and the agreed figure: as much as k replicas of a region report (A11, B9).

Each member notes how often its link to another broke, the time the link was down, and the traffic over it. An agreed
figure about a member is the largest that k = floor(n/2) + 1 of the n replicas of a region reach with their reports; a
silent replica reports 0. So with at most n - k liars among them the figure is never outside the honest reports. If
several regions report on a member, the largest agreed figure counts, since each region follows the same rule. Replicas
of a member's own region are not asked: they have no link with it.

Pure: links and time come from outside. Not here: the way of reports, the consequences (`replica_proposals`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from keys.shamir import threshold_of

WINDOW_S = 7 * 86_400.0
"""The age in seconds after which a report is forgotten: older figures say little of the next week."""
BIN_S = 3_600.0
"""The seconds of one bin: forgetting by the hour, a link that flaps takes no more room than a steady link."""
PEERS_MAX = 4_096
"""Bounds the memory of a witness; an overlay has fewer members."""


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """A member as another sees it, over at most the last week: the breaks of the link, the seconds that it was down, of
    `watched_s` in all, and messages a second from and to the member.
    """

    failures: float = 0.0
    down_s: float = 0.0
    watched_s: float = 0.0
    from_per_s: float = 0.0
    to_per_s: float = 0.0

    @property
    def down(self) -> float:
        """The part of the time the link was down."""
        return min(1.0, self.down_s / self.watched_s) if self.watched_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class LinkNow:
    """A link at one moment: `up` if it stands, the total of messages that came and went, and the number of times the
    link was made, if known, so that a break between two looks is noticed too.
    """

    up: bool
    received: int = 0
    sent: int = 0
    made: int = 0


@dataclass(slots=True)
class _Bin:
    """An hour: failures, seconds down and watched, messages from and to."""

    hour: int
    sums: list[float] = field(default_factory=lambda: [0.0] * 5)


class LinkWitness:
    """The notes of a member about its links; the caller shows the links every few seconds (`note_links`)."""

    def __init__(self) -> None:
        self._bins: dict[str, list[_Bin]] = {}
        self._last: dict[str, LinkNow] = {}
        self._at: float | None = None

    def note_links(self, links: Mapping[str, LinkNow], now: float) -> None:
        """Takes all links, at a time that never runs back. While none of them stands the fault is ours, and nothing is
        noted. A link counts from its first standing: a member that has not started yet has not failed.
        """
        passed_s = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        if not any(link.up for link in links.values()):
            return
        hour = int(now // BIN_S)
        oldest = int((now - WINDOW_S) // BIN_S)
        for gone in self._bins.keys() - links.keys():
            del self._bins[gone]
            del self._last[gone]
        for peer, link in links.items():
            before = self._last.get(peer)
            if before is None and (not link.up or len(self._last) >= PEERS_MAX):
                continue
            self._last[peer] = link
            bins = self._bins.setdefault(peer, [])
            if not bins or bins[-1].hour != hour:
                bins.append(_Bin(hour))
            while bins[0].hour < oldest:
                del bins[0]
            if before is None:
                continue
            sums = bins[-1].sums
            sums[0] += before.up and (not link.up or link.made > before.made)
            sums[1] += 0.0 if link.up else passed_s
            sums[2] += passed_s
            sums[3] += max(0, link.received - before.received)
            sums[4] += max(0, link.sent - before.sent)

    def seen(self) -> dict[str, LinkSeen]:
        """Returns the figures of every member whose link ever stood."""
        found = {}
        for peer, bins in self._bins.items():
            failures, down_s, watched_s, came, went = (sum(each) for each in zip(*(b.sums for b in bins), strict=True))
            per_s = 1 / watched_s if watched_s > 0 else 0.0
            found[peer] = LinkSeen(failures, down_s, watched_s, came * per_s, went * per_s)
        return found


Reports = Mapping[str, Mapping[str, LinkSeen]]
"""The reports by witness, and then by member."""


def agreed(reports: Reports, regions: Mapping[int, Collection[str]], member: str, home: int) -> LinkSeen:
    """Returns the agreed figures of a replica or gateway of region `home`. In the result `watched_s` is 1, and `down_s`
    a part of it. A gateway is linked with replicas of its own region, so these report on it.
    """
    is_replica = member in regions.get(home, ())
    counted = LinkSeen(watched_s=1.0)
    for region, members in regions.items():
        if region == home and is_replica:
            continue
        said = [reports.get(witness, {}).get(member, LinkSeen()) for witness in members]
        if said:
            counted = LinkSeen(
                max(counted.failures, _by_k([one.failures for one in said])),
                max(counted.down_s, _by_k([one.down for one in said])),
                1.0,
                max(counted.from_per_s, _by_k([one.from_per_s for one in said])),
                max(counted.to_per_s, _by_k([one.to_per_s for one in said])),
            )
    return counted


def _by_k(said: Sequence[float]) -> float:
    """Returns the largest number that k of the reports reach."""
    return sorted(said, reverse=True)[threshold_of(len(said)) - 1]
