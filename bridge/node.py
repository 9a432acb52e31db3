"""START HERE: a party of the overlay, its machines wired together.

A gateway's publication takes this way: `Committed` -> `publisher.OutboxIntake` -> `publisher.Publisher` -> `Send` to
every replica of its region -> `replica.Forwarder` at each replica, region after region -> `reader.Collector` at the
subscribing gateway -> `Deliver`. Subscriptions go the other way: `Subscribed` -> `reader.ScopeInterest` -> a signed
statement -> `wire.RoutingTable` at every replica. `document.Overlay` holds the rights of members; `wire.Admission` the
first checks of every honest party; `reader.Evidence` the evidence of shares about liars; `topology.Topology` the next
hops.

Beside that runs the upkeep of the overlay itself: `membership.Node`, the base of every node here, with newer versions
of the owner's document (`membership.adopting`), the flood guard of links (`contract.budgets`) and epoch keys.

All nodes follow `contract.machine`: the driver (gateway/overlay/driver.py) and the simulator (sim/kernel.py) drive
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from bridge.contract import (
    COPY,
    FAR_TOPIC,
    HISTORY_TOPIC,
    Acked,
    Appending,
    AskHistory,
    AskKept,
    Beat,
    Blame,
    Chain,
    Committed,
    Count,
    Delay,
    Deliver,
    Doubted,
    Effect,
    Event,
    GoOn,
    GroupJoined,
    GroupLeft,
    HoldReading,
    KeyDoubted,
    KeysChanged,
    KeyWanted,
    LinkDown,
    LinkUp,
    Loads,
    Lost,
    NotAppended,
    NotTaken,
    Numbered,
    OnDisk,
    OutboxPage,
    PageCame,
    Publication,
    PublisherGuard,
    ReadAgain,
    Recalled,
    Received,
    Restored,
    Rotated,
    Send,
    StopReading,
    Subscribed,
    Tick,
    Unstored,
    Unsubscribed,
    Wanted,
    Wire,
    Worked,
    earliest,
    unpacked,
)
from bridge.contract.refusing import REFUSALS, refusal
from bridge.document import Issuer, Overlay, RegionView, ScopeSecret, SignedSwap
from bridge.groups import GROUPS_TOPIC, LeaseRelay, SharedGroups
from bridge.measuring import PROBE_TOPIC, SUMMARY_TOPIC, IntervalProposal, Measurer, SwapProposal, objection
from bridge.membership import GRANT_TOPIC, KeyClient, KeyServerNode, Node, handed_over
from bridge.presence import PRESENCE_TOPIC, Presence, PresenceTable
from bridge.publisher import Entry, NothingLeft, OutboxIntake, Publisher, Shelf, SigningKey, clear_of
from bridge.reader import LINK_WINDOW, Collector, FarAsking, Held, Readings, ScopeInterest
from bridge.receipts import (
    PLAIN,
    RECEIPTS_TOPIC,
    Acknowledged,
    Acknowledging,
    ChainId,
    HadBatch,
    ReceiptRelay,
    SealedBatch,
    StreamNumbers,
)
from bridge.replica import FarPassing, Forwarder
from bridge.topology import potential_peers
from bridge.wire import CONTROL_ROOT, GENERATION_TOPIC, PULL_TOPIC, SUBSCRIBE_TOPIC, OwnLife, refused
from keys.envelope import PROPERTY_HEADER, DataKey, from_property
from keys.epochs import KeyName, ScopeKeys
from keys.errors import KeysError
from keys.identity import Identity

__all__ = ["LINK_WINDOW", "GatewayNode", "JobNode", "KeyServerNode", "Node", "ReaderNode", "ReplicaNode"]


class ReaderNode(Node):
    """A reader: states its interests and gets their keys."""

    def __init__(
        self,
        overlay: Overlay,
        identity: Identity,
        name: str,
        secrets: Sequence[ScopeSecret],
        keys: ScopeKeys,
        random: Callable[[int], bytes],
    ) -> None:
        """Takes `secrets`: of all scopes we may read; `keys`: their epoch keys, which come and go here."""
        super().__init__(overlay, name)
        self.secrets = list(secrets)
        self.interest = ScopeInterest(overlay, identity, name, secrets)
        self._replicas = frozenset(overlay.replicas(overlay.certificate(name).region))
        self._identity, self._signing = identity, SigningKey(identity, self._signs)
        self._keys = keys
        fetches = overlay.policy.issuer is not Issuer.OWNER
        self._client = KeyClient(overlay, identity, name, keys, random) if fetches else None

    def wanted(self, name: KeyName, now: float) -> list[Effect]:
        """Asks for a missing key under which a publisher sealed."""
        return self._client.want_key(name, now) if self._client else []

    def scopes_lacking_key(self, epoch: int) -> tuple[str, ...]:
        """Returns the clear filters of our scopes for which we have no key of this epoch."""
        keyed = [secret for secret in self.secrets if secret.scope.keyed and not secret.scope.retiring]
        names = {secret.clear_filter: KeyName(secret.scope.filter, epoch, secret.scope.bump) for secret in keyed}
        return tuple(clear for clear, name in names.items() if self._keys.get(name) is None)

    def doubted(self, name: KeyName, now: float) -> list[Effect]:
        """Takes note that a publisher sealed under another key of this name than ours."""
        return self._client.doubted(name, now) if self._client else []

    def _handle_event(self, event: Event, now: float) -> list[Effect]:
        if self._signing.successor is not None:
            self._signing.switch_if_due(self.overlay, now)
        match event:
            case LinkUp(peer) | LinkDown(peer) | Received(peer, _) | Acked(peer, _) if peer not in self._replicas:
                return self._news(self._of_server(event, now), now)
            case Tick() if self._client is not None:
                return self._news(self._client.tick(now), now) + self._handle_data_event(event, now)
            case Rotated():
                return self._rotated(event, now)
            case KeyWanted(name):
                return self.wanted(name, now)
            case KeyDoubted(name):
                return self.doubted(name, now)
        return self._handle_data_event(event, now)

    def _of_server(self, event: LinkUp | LinkDown | Received | Acked, now: float) -> list[Effect]:
        """Handles events of a key server, which speaks only about keys."""
        assert self._client is not None, "an overlay without key servers has no such neighbour"
        match event:
            case LinkUp(peer):
                return self._client.link_up(peer, now)
            case LinkDown(peer):
                return self._client.link_down(peer, now)
            case Received(peer, wire) if wire.topic != GRANT_TOPIC:
                return [Count("refused", 1, "topic"), Blame(peer, False, "a key server answers requests only")]
            case Received():
                return self._client.take_answer(event, now)
        return []

    def _handle_data_event(self, event: Event, now: float) -> list[Effect]:
        """Handles events that do not concern key servers."""
        match event:
            case Acked():
                return self.interest.acked(event)
            case NotTaken():
                return self.interest.take_refusal(event, now)
            case LinkUp(peer):
                return self.interest.link_up(peer)
            case LinkDown(peer):
                return self.interest.link_down(peer)
            case Subscribed(topic_filter, wanted, narrows):
                return self.interest.take_subscription(topic_filter, now, wanted, narrows)
            case Unsubscribed(topic_filter):
                return self.interest.drop_subscription(topic_filter, now)
            case Tick():
                return self.interest.tick(now)
            case _:
                return []

    def _news(self, effects: list[Effect], now: float) -> list[Effect]:
        """Adds the consequences to `effects` if epoch keys came."""
        return effects + self._keys_changed(now) if any(isinstance(e, KeysChanged) for e in effects) else effects

    def _keys_changed(self, now: float) -> list[Effect]:
        return []

    def _adopt_overlay(self, overlay: Overlay, now: float) -> list[Effect]:
        self._signing.switch_if_due(self.overlay, now)
        self._replicas = frozenset(overlay.replicas(overlay.certificate(self.name).region))
        self.secrets, came = handed_over(overlay, self.name, self._identity, self.secrets, self._keys)
        effects = self._adopt_own(overlay, now)
        effects += self._news(self._client.adopt_overlay(overlay, now), now) if self._client else []
        return effects + (self._news([KeysChanged()], now) if came else [])

    def _adopt_own(self, overlay: Overlay, now: float) -> list[Effect]:
        return self.interest.adopt_overlay(overlay, self.secrets, now)

    def _rotated(self, event: Rotated, now: float) -> list[Effect]:
        """Takes another key pair: boxes the owner sealed to the new key open now. We sign with the new key later."""
        self._identity = event.identity
        self._signing.rotate_identity(event.identity, now)
        if self._client is not None:
            self._client.rotate_identity(event.identity)
        return self._adopt_overlay(self.overlay, now)

    def _signs(self, identity: Identity) -> None:
        self.interest.rotate_identity(identity)

    def _deadlines(self) -> list[float | None]:
        client = self._client.next_deadline if self._client else None
        return [self.interest.next_deadline, self._signing.next_deadline, client]


FAR_REST_S = 60.0  # a receiver that asked other regions for nothing for so long reads no history of theirs


class JobNode(ReaderNode):
    """An ingest job: a reader whose receiver opens publications and reads histories. Batches in the spool get
    receipts.
    """

    def __init__(
        self,
        overlay: Overlay,
        identity: Identity,
        name: str,
        secrets: Sequence[ScopeSecret],
        keys: ScopeKeys,
        random: Callable[[int], bytes],
    ) -> None:
        super().__init__(overlay, identity, name, secrets, keys, random)
        # The receiver follows no chain, so it does not know which numbers it lacks.
        self.acknowledging = Acknowledging(overlay, identity, name, lambda author, scope: StreamNumbers())
        self._up: set[str] = set()
        self._number = 0  # of the last far request
        self._asking = FarAsking(overlay, name, identity, random, self._next_number, self._up)
        self._rests_at: float | None = None  # when nothing far is read any more

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def take_spooled(self, chain: ChainId, batch: HadBatch) -> None:
        """Takes a batch on disk. The next `Tick` sends due receipts."""
        self.acknowledging.had(chain, chain.publisher, batch)
        self._is_due_known = False

    def _handle_data_event(self, event: Event, now: float) -> list[Effect]:
        effects = super()._handle_data_event(event, now)
        match event:
            case LinkUp(peer):
                self._up.add(peer)
                effects += self.acknowledging.link_up(peer, now)
            case LinkDown(peer):
                self._up.discard(peer)
                self.acknowledging.link_down(peer)
            case AskHistory(replica, request) if replica in self.overlay.members:
                self._rests_at = now + FAR_REST_S
                self._number = max(self._number, int(now * 1000) << 16)  # above those of former processes
                effects += self._asking.sent(Send(replica, Wire(HISTORY_TOPIC, request)), now)
            case Received(_, wire) if wire.topic == FAR_TOPIC:
                effects += self._far_page(event, now)
            case Tick():
                if self._rests_at is not None and self._rests_at <= now:
                    self._rests_at = None
                    self._asking.erase_box_key()
                for effect in self.acknowledging.tick(now):
                    match effect:
                        case AskKept(mark):  # what came is on disk already
                            effects += self.acknowledging.send_kept(mark, now)
                        case _:
                            effects.append(effect)
        return effects

    def _far_page(self, event: Received, now: float) -> list[Effect]:
        try:
            page = self._asking.open_far_page(event, now)
        except KeysError as error:
            return refused(event.peer, error)
        return [] if page is None else [PageCame(page.peer, page.wire.payload)]

    def _adopt_own(self, overlay: Overlay, now: float) -> list[Effect]:
        self.acknowledging.adopt_overlay(overlay)
        self._asking.adopt_overlay(overlay)
        return super()._adopt_own(overlay, now)

    def _signs(self, identity: Identity) -> None:
        super()._signs(identity)
        self.acknowledging.rotate_identity(identity)
        self._asking.rotate_identity(identity)

    def _deadlines(self) -> list[float | None]:
        return [*super()._deadlines(), self.acknowledging.next_deadline, self._rests_at]


_OF_OUTBOX = (Appending, NotAppended, Committed, Unstored, OutboxPage)
AGAIN_AT_ONCE = 64
"""Publications that came before their tree and are judged in one turn: each may cost a verification and more."""
_UNKNOWN = float("-inf")  # as a deadline: to be asked for


class GatewayNode(ReaderNode):
    """A gateway: publishes its devices' messages, collects publications for its clients."""

    def __init__(
        self,
        overlay: Overlay,
        identity: Identity,
        name: str,
        secrets: Sequence[ScopeSecret],
        keys: ScopeKeys,
        random: Callable[[int], bytes],
        outgoing: Collection[str] | None = None,
        max_age_s: float | None = None,
        shelf: Shelf | None = None,
        generation: int = 0,
        passed_over: Mapping[int, int] | None = None,
    ) -> None:
        """Takes `outgoing`: clear filters of the scopes to publish by (None: all of `secrets`); `max_age_s`: the age
        limit of unsent entries; `shelf`: the state of the outbox on disk; `generation`, `passed_over`: of this start
        (docs/protocol.md §2.11).
        """
        super().__init__(overlay, identity, name, secrets, keys, random)
        self._outgoing = outgoing  # clear names, which stay when the owner exchanges the tokens
        self.life = OwnLife(generation, passed_over or {})
        self.publisher = Publisher(overlay, identity, name, self._sends(), keys, random, self.life, max_age_s)
        self.intake = OutboxIntake(self.publisher, shelf or NothingLeft(), max_age_s, self.publisher.scopes)
        self.collector = Collector(overlay, name, secrets, keys)
        self.interest.kept = self.collector.kept
        self.readings = Readings(overlay, name, secrets, keys, self.collector, generation << 16)
        self.asking = FarAsking(overlay, name, identity, random, self.readings.next_number, self.readings.up)
        self._early.withheld_max = LINK_WINDOW // 4
        self.groups = SharedGroups(overlay, identity, name, secrets, self.interest.is_accepted)
        self.presence = PresenceTable(overlay, name)
        self.acknowledging = Acknowledging(overlay, identity, name, self._numbers_of)
        self.collector.tells_had(self._had)
        self.acknowledged = Acknowledged(overlay, name, self.collector.sealings)
        self.publisher.told_sealed = self._take_sealed
        # Deadlines of the two halves, as they were worked out last; an event of one half leaves the other's as it is.
        self._sends_at: float | None = _UNKNOWN
        self._reads_at: float | None = _UNKNOWN

    def handle(self, event: Event, now: float) -> list[Effect]:
        # The outbox's events and the acknowledgements of its entries concern the publisher's half alone, publications
        # the reader's alone. Retained ones of others are noted in the publisher's half, too.
        to_publisher = isinstance(event, _OF_OUTBOX) or (isinstance(event, (Acked, NotTaken)) and event.ticket > 0)
        to_reader = isinstance(event, Received) and not event.wire.topic.startswith(CONTROL_ROOT)
        effects = super().handle(event, now)
        if to_reader and len(effects) == 1 and effects[0] is COPY:
            return effects
        if not to_publisher:
            self._reads_at = _UNKNOWN
        if not to_reader:
            self._sends_at = _UNKNOWN
        changed = [] if to_reader and not self.publisher.retained.changed else self.publisher.rows.changed_rows()
        if not to_publisher:
            changed = self.collector.changed_rows(now) + changed
        if changed or self._early.taken:
            effects += self._early.add_acknowledged(changed)
        if self.collector.sealings.fresh:
            effects += self.collector.sealings.news()
        if self.intake.left_from is not None and not self.keeper.removed:
            self._sends_at = _UNKNOWN
            effects += self.intake.wanted(now)
        return effects

    def secret_for(self, topic: str) -> ScopeSecret | None:
        """Returns the scope by which a clear topic leaves; None if no scope fits."""
        return self.publisher.sealer.secret_for(topic)

    def awaits(self, topic_filter: str) -> bool:
        """Returns True if a local subscription does not count at our replicas yet."""
        return self.interest.awaits(topic_filter)

    def may_publish(self, topic: str, now: float) -> bool:
        """Returns True if the policy lets us publish on a clear topic now."""
        return self.publisher.sealer.may_publish(topic, now)

    def chain_of(self, topic: str, packet_limit: int | None = None) -> Chain:
        """Returns the chain for publications on a clear topic; its batches fit into packets of `packet_limit`
        bytes.
        """
        return self.publisher.sealer.chain_of(topic, packet_limit)

    def packet_bytes(self, publication: Publication) -> int:
        """Returns the size in bytes of the largest packet of the publication on a link."""
        return self.publisher.sealer.packet_bytes(publication)

    @property
    def home(self) -> RegionView:
        """The view of our region for which publications are sealed."""
        return self.publisher.view

    @property
    def unstored(self) -> int:
        """The number of publications under way that are in memory only."""
        return self.publisher.unstored

    def _sends(self) -> list[ScopeSecret]:
        return [s for s in self.secrets if self._outgoing is None or s.clear_filter in self._outgoing]

    def _numbers_of(self, author: bytes, scope: int) -> StreamNumbers:
        stream = self.collector.stream(author, scope)
        return (
            StreamNumbers.for_receipt(stream.first or 0, stream.highest, stream.head.missed)
            if stream
            else StreamNumbers()
        )

    def _had(self, held: Held, records: Sequence[Numbered], key: DataKey | None) -> None:
        """Takes a batch of a scope with receipts that was handed out; without a key: of a plain scope."""
        header, scope = held.admitted.header, held.admitted.scope.number
        blinding = PLAIN if key is None else key.blinding(header.sequence)
        batch = HadBatch.from_records(header, held.admitted.frame, records, blinding)
        self.acknowledging.had(ChainId(header.publisher, scope), held.author, batch)

    def _take_sealed(self, entry: Entry) -> list[Effect]:
        """Takes a batch of ours in a scope with receipts."""
        header, sequence = entry.header, entry.sequence
        assert header is not None, "it was sealed just now"
        found = [e for e in unpacked(clear_of(entry.publication, sequence), sequence) if isinstance(e, Numbered)]
        blinding = PLAIN if entry.key is None else entry.key.data_key.blinding(sequence)
        frame = from_property(dict(entry.signed)[PROPERTY_HEADER])
        batch = SealedBatch.from_records(sequence, entry.secret.scope.number, entry.topic, frame, blinding, found)
        return self.acknowledged.take_sealed(batch, header)

    def _paged(self, event: OutboxPage, now: float) -> list[Effect]:
        """Takes a page of entries left on disk; after the last one rows of a former process without entries go."""
        effects = self.intake.page(event, now)
        if self.intake.left_from is None:
            self.publisher.rows.all_read()
        return effects

    def _handle_data_event(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Received(_, wire) if wire.topic == GROUPS_TOPIC:
                return self.groups.take_lease(event, now)
            case Received(peer, wire) if wire.topic == PULL_TOPIC:
                try:
                    return self.publisher.answer_request(event, now)
                except KeysError as error:
                    return refused(peer, error)
            case Received(_, wire) if wire.topic == GENERATION_TOPIC:
                return self.life.take_proof(event, self.overlay, self.name, self._signing.identity.party_id, now)
            case Received(_, wire) if wire.topic == PRESENCE_TOPIC:
                return self.presence.take_word_wire(event, now)
            case Received(_, wire) if wire.topic == RECEIPTS_TOPIC:
                return self.acknowledged.take_receipt(event, now)
            case OnDisk(mark):
                return self.acknowledging.send_kept(mark, now)
            case ReadAgain() | StopReading() | HoldReading() | GoOn():
                return self._collected(self._reads(event, now), now)
            case Received():
                kept = self._of_history(event, now)
                return self._collected(self.collector.take_wire(event, now) if kept is None else kept, now)
            case Acked(_, ticket) if ticket > 0:
                return self.publisher.acked(event, now, self.keeper.is_ahead(event.peer))
            case NotTaken(_, ticket) if ticket > 0:
                return self.publisher.take_refusal(event, now)
            case Acked():
                effects = super()._handle_data_event(event, now)
                return effects + self.groups.reviewed(now) if effects else effects
            case Appending(sequences):
                return self.intake.appending(sequences)
            case NotAppended(sequence):
                return self.intake.not_appended(sequence, now)
            case Committed():
                return self.intake.committed(event, now)
            case Unstored():
                return self.intake.unstored(event, now)
            case OutboxPage():
                return self._paged(event, now)
            case LinkUp(peer):
                # Leases before publications: a receiver of both then knows the groups that we served already.
                self.collector.skipped.up.add(peer)
                effects = super()._handle_data_event(event, now) + self.groups.link_up(peer, now)
                effects += self._collected(self.readings.link_up(peer, now), now)
                effects += self.acknowledging.link_up(peer, now)
                return effects + self.publisher.link_up(peer, now)
            case LinkDown(peer):
                self.groups.link_down(peer)
                self.collector.skipped.up.discard(peer)
                self.readings.link_down(peer, now)
                self.acknowledging.link_down(peer)
                return super()._handle_data_event(event, now) + self.publisher.link_down(peer)
            case GroupJoined(group, topic_filter, is_whole, owner):
                return self.groups.join_group((group, topic_filter), now, is_whole, owner)
            case GroupLeft(group, topic_filter):
                return self.groups.leave_group((group, topic_filter), now)
            case Subscribed(topic_filter):
                self.groups.wanted(topic_filter)
                effects = super()._handle_data_event(event, now)
                self.collector.subscriptions.follow_interest(self.interest, self.overlay, now)
                return effects
            case Unsubscribed(topic_filter):
                return [] if self.groups.postpones(topic_filter) else self._unwanted(topic_filter, now)
            case Restored():
                return self._restored(event, now)
            case Tick():
                return self._pass_time(event, now)
            case _:
                return super()._handle_data_event(event, now)

    def _restored(self, event: Restored, now: float) -> list[Effect]:
        self.interest.restore(event.rows)
        self.publisher.retained.restore(event.rows, self.intake.is_left_on_disk)
        self.publisher.rows.restore(event.rows)
        live, asked = self.readings.restore(event.rows, now)
        return self._collected(asked + self.collector.restore(live, now), now)

    def _of_history(self, event: Received, now: float) -> list[Effect] | None:
        """Returns the effects of a page, or of a wire in a scope being read on; None for any other wire."""
        try:
            if event.wire.topic == HISTORY_TOPIC:
                return self.readings.take_page(event, now)
            if event.wire.topic == FAR_TOPIC:
                page = self.asking.open_far_page(event, now)
                return [] if page is None else self.readings.take_page(page, now)
        except KeysError as error:
            return refused(event.peer, error)
        return self.readings.instead(event, now) if self.readings.is_behind else None

    def _reads(self, event: ReadAgain | StopReading | HoldReading | GoOn, now: float) -> list[Effect]:
        match event:
            case GoOn():
                return self.readings.go_on(now)
            case ReadAgain():
                return self.readings.read_again(event, now)
            case HoldReading(reading, is_held):
                return self.readings.hold_reading(reading, is_held, now)
            case StopReading(reading):
                return self.readings.stop(reading, now)

    def _pass_time(self, event: Tick, now: float) -> list[Effect]:
        effects = self._collected(self.collector.tick(now), now)
        if self.readings:
            effects += self._collected(self.readings.tick(now), now)
        else:
            self.asking.erase_box_key()
        effects += self.publisher.tick(now) + super()._handle_data_event(event, now)
        self.collector.subscriptions.follow_interest(self.interest, self.overlay, now)
        effects += self.acknowledging.tick(now)
        leases, unwanted = self.groups.tick(now)
        for topic_filter in unwanted:
            effects += self._unwanted(topic_filter, now)
        return effects + leases

    def _unwanted(self, topic_filter: str, now: float) -> list[Effect]:
        effects = self.interest.drop_subscription(topic_filter, now)
        self.collector.subscriptions.follow_interest(self.interest, self.overlay, now)
        return effects

    def _collected(self, effects: list[Effect], now: float) -> list[Effect]:
        """Returns the collector's effects, and passes news about epoch keys and retained publications to other
        machines.
        """
        passed: list[Effect] = []
        for effect in effects:
            if type(effect) is Deliver:
                retains, has_groups = effect.publication.retain, self.groups.has_any
                deliver = self.publisher.retained.take_delivery(effect) if retains else effect
                passed += self.groups.placed(deliver, now) if has_groups else (deliver,)
                continue
            match effect:
                case Wanted(name):
                    passed += self.wanted(name, now)
                case Doubted(name):
                    passed += self.doubted(name, now)
                case Send(_, wire) if wire.topic == HISTORY_TOPIC:
                    passed += self.asking.sent(effect, now)
                case _:
                    passed.append(effect)
        return passed

    def _keys_changed(self, now: float) -> list[Effect]:
        self.woken()
        read = self._collected(self.readings.keys_changed(now), now)
        return read + self._collected(self.collector.keys_changed(now), now) + self.publisher.keys_changed(now)

    def _adopt_own(self, overlay: Overlay, now: float) -> list[Effect]:
        self.presence.adopt_overlay(overlay)
        self.acknowledging.adopt_overlay(overlay)
        self.acknowledged.adopt_overlay(overlay)
        self.asking.adopt_overlay(overlay)
        self.woken()
        leases = self.groups.adopt_overlay(overlay, self.secrets, now)
        collected = self._collected(self.collector.adopt_overlay(overlay, self.secrets, now), now)
        collected += self._collected(self.readings.adopt_overlay(overlay, self.secrets, now), now)
        effects = super()._adopt_own(overlay, now)
        self.collector.subscriptions.follow_interest(self.interest, overlay, now)
        return effects + leases + collected + self.publisher.adopt_overlay(overlay, self._sends(), now)

    def _signs(self, identity: Identity) -> None:
        super()._signs(identity)
        self.publisher.rotate_identity(identity)
        self.groups.rotate_identity(identity)
        self.acknowledging.rotate_identity(identity)
        self.asking.rotate_identity(identity)

    def _deadlines(self) -> list[float | None]:
        if self._sends_at is _UNKNOWN:
            self._sends_at = self.publisher.next_deadline
            if self.intake.left_from is not None:
                self._sends_at = earliest(self._sends_at, self.intake.next_deadline)
        if self._reads_at is _UNKNOWN:
            others = self.collector.next_deadline, self.groups.next_deadline, self.readings.next_deadline
            self._reads_at = earliest(*super()._deadlines(), *others, self.acknowledging.next_deadline)
        return [self._sends_at, self._reads_at]

    def woken(self) -> None:
        """Asks all machines for their deadlines anew; for callers that drive one of them beside `handle`."""
        self._sends_at = self._reads_at = _UNKNOWN
        self._is_due_known = False


class ReplicaNode(Node):
    """A replica: forwards publications without reading them. `seeds`: as in `Forwarder`."""

    def __init__(self, overlay: Overlay, identity: Identity, name: str, seeds: Callable[[int], bytes | None]) -> None:
        super().__init__(overlay, name, identity)
        self.forwarder = Forwarder(overlay, name, seeds)
        self._leases = LeaseRelay(overlay, self.forwarder.routes, self.forwarder.routing)
        self._publishers = PublisherGuard(overlay.policy.budgets)
        self.measurer = Measurer(overlay, name, identity)
        self._presence = Presence(overlay, name, identity)
        self.presence = self._presence.table
        self._receipts = ReceiptRelay(overlay, self.forwarder.routes, self.forwarder.sealings)
        self._far = FarPassing(overlay, identity, self.forwarder.routes, self.forwarder.recorder)
        self._potential = potential_peers(overlay, name)  # peers whose links we only measure
        self._again: deque[Received] = deque()  # publications that came before their tree, to be judged now
        self._again_at: float | None = None
        self._proposed = IntervalProposal()
        self.keeper.swaps.objection = self._objection
        self._others_at: float | None = _UNKNOWN  # the deadline of leases and measurements: publications move neither

    def proposal(self, now: float) -> SwapProposal | None:
        """Returns the swap that would be signed by our measurements; None if the overlay does not measure."""
        return self._proposed.proposal_at(self.overlay, self.measurer.summaries, now)

    def _objection(self, overlay: Overlay, swap: SignedSwap, now: float) -> str:
        region = overlay.certificate(self.name).region
        return objection(overlay, region, swap, self.measurer.summaries, self.measurer.up, now)

    def _handle_event(self, event: Event, now: float) -> list[Effect]:
        if not isinstance(event, Received):
            return self._beside(event, now)
        wire = event.wire
        if wire.topic.startswith(CONTROL_ROOT):
            if wire.topic in (SUMMARY_TOPIC, PROBE_TOPIC):
                return self.measurer.take_summary_wire(event, now)
            if wire.topic == PRESENCE_TOPIC:
                return self._presence.take_word_wire(event, now)
            if wire.topic == GROUPS_TOPIC:
                return self._leases.take_lease(event, now)
            if wire.topic == RECEIPTS_TOPIC:
                return self._receipts.pass_receipt(event, now)
            if wire.topic == FAR_TOPIC:
                return self._far.take_far_wire(event, now)
        across = event.peer in self.forwarder.routes.replicas
        if across and self._publishers.in_debt and self._publishers.closed(wire, now):
            return [Count("publisher_throttled")]
        effects = self.forwarder.take_wire(event, now)
        if effects and effects[0] is COPY:
            return effects
        if self.measurer.is_on and Count("forwarded") in effects:
            self.measurer.passed_on(event, effects)
        effects += self._publishers.charge(wire, effects, now, across=across)
        if wire.topic == SUBSCRIBE_TOPIC and Count("statements") in effects:
            return self._leases.stated(event, now) + effects
        return effects

    def _beside(self, event: Event, now: float) -> list[Effect]:
        """Handles events that are no wires."""
        match event:
            case LinkUp(peer) | LinkDown(peer):
                told = self.measurer.take_link_event(event, now)
                return told if peer in self._potential else told + self._neighbour(event, now)
            case Acked():
                self.measurer.acked(event, now)
            case Lost(peer, key):
                self.forwarder.note_lost_key(peer, key, now)
            case Worked():
                self.measurer.worked(event)
            case Beat():
                return self._presence.beat(event, now)
            case Loads():
                return self.forwarder.loaded(event, now)
            case Recalled():
                return self._far.answers(self.forwarder.recalled(event, now))
            case Rotated(identity):
                self._far.rotate_identity(identity)
                self.measurer.rotate_identity(identity)
                self._presence.rotate_identity(identity)
            case Tick():
                again = self._judge_again(now) if self._again else []
                told = self._leases.tick(now) + self._receipts.tick(now) + self._far.tick(now)
                return self.forwarder.tick(now) + told + self.measurer.tick(now) + again
        return []

    def _neighbour(self, event: LinkUp | LinkDown, now: float) -> list[Effect]:
        if isinstance(event, LinkDown):
            return self.forwarder.link_down(event.peer, now)
        effects = self.forwarder.link_up(event.peer, now) + self._leases.link_up(event.peer, now)
        effects += self._presence.link_up(event.peer, now)
        return effects + self._receipts.link_up(event.peer, now)

    def handle(self, event: Event, now: float) -> list[Effect]:
        if not isinstance(event, Received):
            self._others_at = _UNKNOWN
            return super().handle(event, now)
        if event.wire.topic.startswith(CONTROL_ROOT):
            self._others_at = _UNKNOWN
        effects = super().handle(event, now)
        if self.forwarder.sealings.fresh:
            effects += self.forwarder.sealings.news()
        for effect in effects:
            if isinstance(effect, Count) and effect.name in REFUSALS:
                return effects + refusal(effects)
        return effects

    def _erase(self) -> None:
        self.forwarder.erase()
        self._again.clear()

    def _adopt_overlay(self, overlay: Overlay, now: float) -> list[Effect]:
        self._others_at = _UNKNOWN
        self._publishers.adopt_budgets(overlay.policy.budgets, overlay.by_party)
        self._leases.adopt_overlay(overlay)
        self._receipts.adopt_overlay(overlay)
        self._far.adopt_overlay(overlay)
        self.measurer.adopt_overlay(overlay)
        self._presence.adopt_overlay(overlay)
        effects = self.forwarder.adopt_overlay(overlay, now)
        self._again.extend(self.forwarder.early())
        effects += self._judge_again(now)
        before, self._potential = self._potential, potential_peers(overlay, self.name)
        for peer in sorted(self.measurer.up):  # links that stood already, and came into use or went out of use
            if peer in before ^ self._potential and peer in self.peers:
                effects += self._neighbour(LinkUp(peer) if peer in before else LinkDown(peer), now)
        return effects

    def _judge_again(self, now: float) -> list[Effect]:
        """Judges some of the publications that came before their tree, as if they came now; the rest at the next
        ticks. Their publishers pay for them.
        """
        effects: list[Effect] = []
        for _ in range(min(AGAIN_AT_ONCE, len(self._again))):
            event = self._again.popleft()
            if event.peer in self.overlay.members:
                # Their acknowledgements went long ago: no publisher can be delayed by them.
                news = [effect for effect in self._handle_event(event, now) if not isinstance(effect, Delay)]
                self._links.charge(event.peer, news, now)
                effects += news
        self._again_at = now if self._again else None
        return effects

    def _deadlines(self) -> list[float | None]:
        if self._others_at is _UNKNOWN:
            told = self._leases.next_deadline, self._receipts.next_deadline, self._far.next_deadline
            self._others_at = earliest(*told, self.measurer.next_deadline)
        return [self.forwarder.next_deadline, self._others_at, self._again_at]
