"""The machine that reads the histories of replicas into the spool beside the live collector.

One scope after the other is read, by `bridge.reader.Replay`, from where it was asked for up to now. It begins when
enough replicas know the subscriptions: from then on everything comes live. The record says how far it is, so that a
receiver that was stopped goes on there. What is in the spool already is no row again, so reading too much harms
nothing. Pure. Not here: which publications are believed (`past`), the record's file (`spool.backfilled`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from bridge.contract import HISTORY_TOPIC, Blame, Count, Doubted, Effect, Received, Send, Wanted, Wire, number_of
from bridge.document import Scope
from bridge.reader import OVERLAP_S, Replay
from bridge.topology import FarWays, asked_of, keeping
from bridge.wire import AHEAD_S
from gateway.overlay import Publish
from keys.envelope import KeyName
from keys.errors import KeysError
from spark_ingest.receiving.collector import SpoolCollector
from spark_ingest.receiving.division import Part
from spark_ingest.receiving.past import PastPublications
from spark_ingest.receiving.sealings import Group
from spark_ingest.spool.backfilled import BackfillRecord, ScopeRecord

READY_MAX = 4_096  # publications that wait for the disk; beyond that the reading rests
TURN_RECORDS = 32  # taken in one turn; links are served in between
LANES_MAX = 64  # backfills of one receiver, each of a worker; their requests have different numbers


class Backfill:
    """The backfill of one session of a receiver. Not thread-safe: all calls in the thread of the receiver."""

    def __init__(
        self,
        record: BackfillRecord | None,
        live: SpoolCollector,
        part: Part | None,
        send: Callable[[str, str, bytes], None],
        want: Callable[[list[KeyName]], None],
        now: float,
        lane: int = 0,
    ) -> None:
        """Takes `record`: what was asked for, and how far that is; None: nothing. `part`: the publications for this
        receiver; `send`: to a replica, topic and payload; `want`: asks for epoch keys; `lane`: of the worker.
        """
        self.record = record
        self._live, self._part, self._send, self._want = live, part, send, want
        self._numbers = count((int(now * 1000) << 16) + lane, LANES_MAX)
        self._replay: Replay | None = None
        self._past: PastPublications | None = None
        self._up: set[str] = set()
        self._upto_ms = 0  # clock of the reading when the last group was taken, if nothing was left behind it
        self._writing: tuple[PastPublications, ScopeRecord] | None = None
        self.figures = live.figures

    def asks(self, since_ms: int) -> None:
        """Begins anew, from another time."""
        self._replay = self._past = None
        self.record = BackfillRecord(since_ms)

    @property
    def told(self) -> str:
        """The progress in words."""
        return "" if self.record is None else self.record.told

    @property
    def is_over(self) -> bool:
        """True if nothing is to be read."""
        return self.record is None or self.record.is_over

    # ------------------------------------------------------------------------------------------- reading

    def go_on(self, name: str, scopes: Sequence[Scope], up: Sequence[str], now: float) -> None:
        """Goes on. `name`: of the job; `scopes`: those subscribed; `up`: connected replicas."""
        if self.record is None or self.record.is_over:
            return
        if self._replay is None and not self._begin_next_scope(name, scopes, up, now):
            return
        assert self._replay is not None
        assert self._past is not None
        if self._live.overlay is not self._replay.overlay:
            self._perform_effects(self._replay.adopt_overlay(self._live.overlay, now))
        for peer in self._up - set(up):
            self._replay.link_down(peer)
        for peer in sorted(set(up) - self._up):
            self._perform_effects(self._replay.link_up(peer, now))
        self._up = set(up)
        self._perform_effects(self._replay.hold_reading(self._past.ready > READY_MAX, now))
        self._perform_effects(self._replay.tick(now))
        for _ in range(TURN_RECORDS):
            self._perform_effects(self._replay.go_on(now))
        if self._replay.is_done and not self._past.ready and self._writing is None:
            self._ends()

    def _begin_next_scope(self, name: str, scopes: Sequence[Scope], up: Sequence[str], now: float) -> bool:
        """Begins the next scope; returns False at the end."""
        assert self.record is not None
        for scope in scopes:
            known = self.record.scopes.get(scope.number)
            if scope.history is None or (known is not None and known.is_over):
                continue
            since = max(self.record.since_ms / 1000, now - scope.history.seconds)
            until_ms = int((now + AHEAD_S) * 1000)
            if known is None:
                known = ScopeRecord(int(since * 1000), until_ms, int(since * 1000))
                self.record.scopes[scope.number] = known
            known.until_ms, begins = until_ms, max(since, known.upto_ms / 1000 - OVERLAP_S)
            overlay, region = self._live.overlay, keeping(self._live.overlay, name, scope)
            self._past = PastPublications(self._live, self._part, region)
            self._past.learn(self._live.granted.check_values)
            ways = FarWays(overlay, self._live.home, region).count
            numbers = self._numbers.__next__
            self._replay = Replay(
                overlay, name, self._past, scope, begins, numbers, until_ms=until_ms, region=region, ways=ways
            )
            self._upto_ms, self._up = int(begins * 1000), set(up)
            self._perform_effects(self._replay.ask_eras(asked_of(overlay, self._live.home, region, up), now))
            return True
        self.record.is_over = True
        return False

    def _ends(self) -> None:
        """Notes the end of a scope."""
        assert self.record is not None
        assert self._replay is not None
        known = self.record.scopes[self._replay.scope.number]
        known.is_over, known.is_refused = True, self._replay.is_denied
        self._replay = self._past = None

    @staticmethod
    def is_page(publish: Publish) -> bool:
        """Returns True for a page of a history."""
        return publish.topic == HISTORY_TOPIC

    @staticmethod
    def lane_of(page: Publish) -> int:
        """Returns the lane of the backfill that asked for a page. Raises BadFrame."""
        return number_of(page.payload) % LANES_MAX

    def take_page(self, replica: str, page: Publish, now: float) -> None:
        """Takes a page of a replica."""
        try:
            asked = number_of(page.payload)
        except KeysError:
            self.figures["refused_history", replica] += 1
            return
        if self._replay is not None and self._replay.answers(replica, asked):
            self._perform_effects(
                self._replay.take_page(Received(replica, Wire(HISTORY_TOPIC, page.payload), True), now)
            )

    def keys_changed(self, now: float) -> None:
        """Goes on with epoch keys that came."""
        if self._replay is not None and self._past is not None:
            self._past.learn(self._live.granted.check_values)
            self._perform_effects(self._replay.keys_changed(now))

    def _perform_effects(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(peer, wire):
                    self._send(peer, wire.topic, wire.payload)
                case Wanted(name) | Doubted(name):
                    self._want([name])
                case Blame(member, named):
                    self.figures["named" if named else "suspected", member] += 1
                case Count(name, amount, label):
                    self.figures[name, label] += amount

    @property
    def next_deadline(self) -> float | None:
        """The time at which `go_on` is wanted."""
        if self._replay is None:
            return None
        return 0.0 if self._replay.has_more else self._replay.next_deadline

    # ------------------------------------------------------------------------------------------- writing

    @property
    def ready(self) -> int:
        """The number of publications waiting to be written."""
        return 0 if self._past is None else self._past.ready

    def take_group(self, max_rows: int, max_bytes: int, now: float) -> Group | None:
        """Returns the next publications to write, `note_written` then; None if there are none."""
        if self._past is None or self._replay is None or self.record is None or self._writing is not None:
            return None
        group = self._past.take_group(max_rows, max_bytes, now)
        if not self._past.ready:
            self._upto_ms = int(self._replay.clock * 1000)
        if group is not None:
            self._writing = self._past, self.record.scopes[self._replay.scope.number]
        return group

    def note_written(self, group: Group) -> None:
        """Notes that the group is on disk."""
        assert self.record is not None
        assert self._writing is not None
        past, known = self._writing
        self._writing = None
        past.note_written(group)
        self.record.rows += len(group.records)
        known.upto_ms = max(known.upto_ms, self._upto_ms)
