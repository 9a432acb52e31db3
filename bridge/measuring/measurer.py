"""The measurements of a replica: its links by probes, its work, its gateways' publications, absent neighbours
(docs/protocol.md §15.1).

A probe is a wire like others, so the acknowledgement shows the time of the link and its queue; potential links carry
nothing else (`topology.potential_peers`). At the end of each interval the replica signs a summary and the filter of
its gateways' publications. Summaries of others are verified once, kept, and passed on along the open trees as far as
the authors signed, and to the organiser if linked here. Without the owner's `organise` the replica measures nothing.
Not here: the consequences.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from bridge.contract import Acked, Blame, Count, Effect, FairBytes, LinkDown, LinkUp, Received, Send, Wire, Worked
from bridge.document import Overlay
from bridge.measuring.summaries import (
    FAILED_MAX,
    HOPS_MAX,
    INTERESTS_KEPT,
    LINKS_MAX,
    REGIONS_MAX,
    SUMMARY_TOPIC,
    UNKNOWN_US,
    ByRegion,
    InterestSummary,
    ReplicaSummary,
    check_said,
    decode_said,
)
from bridge.organising import InterestFilter, believed
from bridge.topology import peers_of
from bridge.wire import CONTROL_ROOT
from keys.envelope import PROPERTY_HEADER, from_property, header_of
from keys.errors import BadFrame, KeysError
from keys.identity import Identity, Role

PROBE_TOPIC = f"{CONTROL_ROOT}/probe"
PROBES = 8  # probes to each replica in an interval
RTTS = 8  # round trips of one peer, of which the median counts
NO_TICKET = 0  # the ticket of a link that went
AWAY_S = 10.0  # after this time without acknowledgement of a probe its peer is away
TOLD_INTERVALS = 3  # summaries that tell a failure, for one may be lost
EXACT = 1_000_000  # microseconds in a second
CACHE_IDS = 8192
"""The number of ids of an interval that a replica remembers (the paper's number), fair by publisher: one that floods
loses its own.
"""


class Measurer:
    """A machine measuring for its replica. The replica calls it before and after all other machines."""

    def __init__(self, overlay: Overlay, name: str, identity: Identity) -> None:
        self._overlay, self._name, self._identity = overlay, name, identity
        self.is_on = overlay.policy.organising is not None
        self._region = overlay.certificate(name).region
        self.up: set[str] = set()  # replicas to which a link stands
        self._clients: set[str] = set()  # other members with a link
        self._probes: dict[str, tuple[int, float]] = {}  # by peer: the ticket, and the time of sending
        self._rtts: dict[str, deque[float]] = {}
        self._failed: dict[tuple[str, int], int] = {}  # (replica, second), and the last interval that tells it
        self._away: set[str] = set()
        self._ticket = 0
        self._ids: FairBytes[bytes, None] = FairBytes(CACHE_IDS, 1)
        self._rates: Counter[int] = Counter()
        self._forwarded = self._worked_us = self._queued = 0
        self._interval: int | None = None  # the running interval
        self._probe_at = 0.0
        self._said: dict[str, ReplicaSummary] = {}  # by replica, the newest
        self._filters: dict[str, list[InterestSummary]] = {}  # by replica, the newest

    @property
    def summaries(self) -> tuple[ReplicaSummary | InterestSummary, ...]:
        """The newest summary and the newest interests of each replica, ours included, all verified."""
        return (*self._said.values(), *(each for filters in self._filters.values() for each in filters))

    def rotate_identity(self, identity: Identity) -> None:
        self._identity = identity

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, or other views or trees of it, and forgets all that are no longer
        members.
        """
        self._overlay, self.is_on = overlay, overlay.policy.organising is not None
        peers = peers_of(overlay, self._name) if self._name in overlay.members else frozenset[str]()
        for table, kept in (
            (self._rtts, peers), (self._probes, peers), (self._said, overlay.members), (self._filters, overlay.members),
        ):  # fmt: skip
            for name in table.keys() - kept:
                del table[name]
        self.up.intersection_update(peers)
        self._clients.intersection_update(peers)
        self._away.intersection_update(peers)

    @property
    def next_deadline(self) -> float | None:
        organising = self._overlay.policy.organising
        if organising is None:
            return None
        if self._interval is None:
            return 0.0
        return min(self._probe_at, (self._interval + 1) * organising.interval_s)

    # ---------------------------------------------------------------------------------------------- events

    def take_link_event(self, event: LinkUp | LinkDown, now: float) -> list[Effect]:
        """Takes note of a link that came, began anew, or went. An organiser linking up is told the summaries heard
        before.
        """
        if not self._is_replica(event.peer):
            (self._clients.add if isinstance(event, LinkUp) else self._clients.discard)(event.peer)
            listens = isinstance(event, LinkUp) and event.peer == self._organiser
            return [
                Send(event.peer, Wire(SUMMARY_TOPIC, each.encode())) for each in (self.summaries if listens else ())
            ]
        if isinstance(event, LinkUp):
            self.up.add(event.peer)
            self._probes.pop(event.peer, None)
            self._away.discard(event.peer)
        elif event.peer in self.up:
            self.up.discard(event.peer)
            self._probes.setdefault(event.peer, (NO_TICKET, now))
        return []

    def worked(self, event: Worked) -> None:
        """Takes the shell's measurements since its last call."""
        self._worked_us += event.processor_us
        self._queued = event.queued

    def acked(self, event: Acked, now: float) -> None:
        ticket, sent_at = self._probes.get(event.peer, (NO_TICKET, 0.0))
        if ticket != NO_TICKET and ticket == event.ticket:
            del self._probes[event.peer]
            self._away.discard(event.peer)
            if 0 <= now - sent_at < AWAY_S:
                self._rtts.setdefault(event.peer, deque(maxlen=RTTS)).append(now - sent_at)

    def passed_on(self, event: Received, effects: Iterable[Effect]) -> None:
        """Takes note of a verified publication, seen for the first time, and of its effects. Asked if we measure."""
        self._forwarded += 1
        receivers = {effect.peer for effect in effects if isinstance(effect, Send)}
        wanted = any(peer in self._overlay.members and not self._is_replica(peer) for peer in receivers)
        if wanted or not self._is_replica(event.peer):
            header = header_of(from_property(dict(event.wire.properties)[PROPERTY_HEADER]))
            self._ids.put(header.publisher + header.sequence.to_bytes(8), header.publisher, None, 0)
            publisher = self._overlay.by_party.get(header.publisher)
            if wanted and publisher is not None:
                self._rates[publisher.region] += 1

    def take_summary_wire(self, event: Received, now: float) -> list[Effect]:
        """Takes a summary, an interest, or a probe, which asks for nothing.

        An invalid frame is dropped, counted and charged to the link. The sender is suspected only for a frame no
        honest member can take for a summary: members and their keys may have changed at the sender before they change
        here.
        """
        if event.wire.topic == PROBE_TOPIC:
            return []
        try:
            said = decode_said(event.wire.payload)
            return self._take_summary(said, event, now)
        except BadFrame as error:
            return [Count("refused", 1, type(error).__name__), Blame(event.peer, False, str(error))]
        except KeysError as error:
            return [Count("refused", 1, type(error).__name__)]

    def tick(self, now: float) -> list[Effect]:
        organising = self._overlay.policy.organising
        if organising is None:
            return []
        interval = int(now // organising.interval_s)
        if self._interval is None or interval < self._interval:  # the owner may change its length
            self._interval, self._probe_at = interval, now
        effects: list[Effect] = []
        if interval > self._interval:
            effects += self._tell_summary(interval)
            self._interval = interval
        if now >= self._probe_at:
            self._probe_at = now + organising.interval_s / PROBES
            effects += self._probe(now)
        return effects

    # ------------------------------------------------------------------------------------------- measuring

    def _probe(self, now: float) -> list[Effect]:
        assert self._overlay.policy.organising is not None
        told_until = int(now // self._overlay.policy.organising.interval_s) + TOLD_INTERVALS
        effects: list[Effect] = []
        for peer in sorted(self.up | self._probes.keys()):
            _, sent_at = self._probes.get(peer, (NO_TICKET, now))
            if peer not in self._probes:
                self._ticket += 1
                self._probes[peer] = self._ticket, now
                effects.append(Send(peer, Wire(PROBE_TOPIC, b""), self._ticket))
            elif now - sent_at >= AWAY_S and peer not in self._away:
                self._away.add(peer)
                self._failed[peer, int(sent_at)] = told_until
        return effects

    def _tell_summary(self, interval: int) -> list[Effect]:
        """Signs and sends the summary of the interval whose end has the number `interval`."""
        organising = self._overlay.policy.organising
        assert organising is not None
        head = (self._name, self._region, interval, organising.interval_s)
        self._failed = {failure: until for failure, until in self._failed.items() if until >= interval}
        summary = ReplicaSummary(
            *head, self._overlay.trees.in_force.number, HOPS_MAX,
            processing_us=min(self._worked_us // self._forwarded, UNKNOWN_US) if self._forwarded else UNKNOWN_US,
            queued=min(self._queued, UNKNOWN_US), forwarded=min(self._forwarded, UNKNOWN_US),
            links=self._links(), rates=tuple(sorted(self._rates.items()))[:REGIONS_MAX],
            failed=tuple(sorted(self._failed))[-FAILED_MAX:],
        ).signed(self._identity)  # fmt: skip
        told = InterestFilter()
        told.add_ids(one for one, _ in self._ids.items())
        self._ids = FairBytes(CACHE_IDS, 1)
        interest = InterestSummary(*head, organising.hops, told.encode()).signed(self._identity)
        self._forwarded = self._worked_us = 0
        self._rates.clear()
        self._said[self._name] = summary
        self._keep_interests(interest)
        return self._onwards(summary, None) + self._onwards(interest, None)

    def _links(self) -> ByRegion:
        """Returns the median time of links by region over its replicas, of which f may answer late to look far."""
        by_region: dict[int, list[float]] = {}
        for peer, rtts in self._rtts.items():
            if rtts and peer in self.up:
                middle = believed(sorted(rtts), 0)
                by_region.setdefault(self._overlay.certificate(peer).region, []).append(middle or 0.0)
        found = {region: believed(values, 0) or 0.0 for region, values in by_region.items()}
        return tuple(sorted((region, round(rtt * EXACT)) for region, rtt in found.items()))[:LINKS_MAX]

    # ---------------------------------------------------------------------------------------------- others

    def _take_summary(self, said: ReplicaSummary | InterestSummary, event: Received, now: float) -> list[Effect]:
        """Takes a summary or interest of another replica. Raises keys errors."""
        organising = self._overlay.policy.organising
        if organising is None or said.interval_s != organising.interval_s:
            return [Count("summaries_unknown")]  # of a former version, or of a version to come
        if said.member == self._name or said.ended_s <= self._newest_s(said):
            return []
        check_said(said, self._overlay, now)
        if isinstance(said, ReplicaSummary):
            self._said[said.member] = said
        else:
            self._keep_interests(said)
        return [Count("summaries"), *self._onwards(said, event)]

    def _keep_interests(self, interest: InterestSummary) -> None:
        """Keeps interests beside earlier ones: other replicas may have told only of the earlier intervals."""
        self._filters[interest.member] = [*self._filters.get(interest.member, []), interest][-INTERESTS_KEPT:]

    def _newest_s(self, said: ReplicaSummary | InterestSummary) -> int:
        if isinstance(said, ReplicaSummary):
            known = self._said.get(said.member)
            return known.ended_s if known else -1
        return self._filters[said.member][-1].ended_s if said.member in self._filters else -1

    def _onwards(self, said: ReplicaSummary | InterestSummary, event: Received | None) -> list[Effect]:
        """Passes a frame on to neighbours in its reach, except back to its sender. The frame also goes back into its
        author's region, whose replicas have no links with each other.
        """
        regions = {
            region for tree in self._overlay.trees.open for region in tree.neighbours(self._region)
            if len(tree.path(said.region, region)) <= said.hops + 1
        }  # fmt: skip
        wire = Wire(SUMMARY_TOPIC, said.encode()) if event is None else event.wire
        skipped = {said.member, event.peer if event else ""}
        peers = {peer for region in regions for peer in self._overlay.replicas(region)} & self.up
        peers |= self._clients & {self._organiser}
        return [Send(peer, wire) for peer in sorted(peers - skipped)]

    @property
    def _organiser(self) -> str:
        organising = self._overlay.policy.organising
        return organising.organiser if organising else ""

    def _is_replica(self, peer: str) -> bool:
        return self._overlay.certificate(peer).role is Role.REPLICA
