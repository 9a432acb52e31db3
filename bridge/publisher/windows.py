"""Windows towards the replicas of the home region: lacking entries, entries in flight, and valid acknowledgements.

Each replica has a lane of its own, so that an absent or slow one delays no other. A lane has two queues taking
turns: *late* entries (read from disk, or lacked by a returning replica) and *new* ones, so that a backlog delays each
new publication by one place and stops none. Late entries in flight still stand before new ones, so they have a window
of their own, which shrinks when acknowledgements become slow; a replica keeping up has the whole window. Within a
scope there is a single order: a new entry waits behind the scope's late ones. `publisher` and `sealing` decide on the
time of sealing.

`Refusals` offers refused entries again: after a second, then twice as long with each round in which the replica took
less than it refused, a minute at most. A refusal is no acknowledgement (docs/protocol.md §5.8): the entry stays, and
counts as lacking there. Before the next offer the gateway seals old entries anew. `contract.refusing` gives reasons.

`StandIns` serves the plane of a silent replica, in a scope with planes (paper item C8). Each replica of the region
gets
each publication and serves its own plane. A replica that has acknowledged nothing for `SLOW_S`, or whose link is down,
may not serve its plane: then another one gets a further copy, whose vector names that plane. The copy does not count
in
the outbox, and a served subscriber hears of it at most twice. `replica.plane_routing` uses the vector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from bridge.contract import Send
from bridge.document import Overlay
from bridge.publisher.entry import Entry
from bridge.topology import Planes
from bridge.wire import PROPERTY_ROUTE
from keys.replay import BLOCK_NUMBERS, BLOCKS_MAX

WINDOW_MAX = 256  # publications in flight to one replica
LATE_WINDOW_MIN = 32
QUEUED_S = 0.05  # by so much longer than at best may an acknowledgement take before fewer late ones are in flight
AHEAD_MAX = BLOCKS_MAX // 2
"""Blocks of numbers of new entries that may go while others are late: replicas tell so many blocks apart, and would
drop late entries as too old behind more of them.
"""
AGAIN_S = 1.0
AGAIN_MAX_S = 60.0
RESEAL_AFTER_S = 1800.0
"""Seconds after which sealed bytes that too few replicas have are sealed anew: replicas refuse wires an hour old."""
SLOW_S = 0.5


class RunAhead:
    """Blocks of numbers of new entries that went while others were late. Distances between numbers say nothing:
    numbers leap at every start.
    """

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: set[int] = set()

    def may_go(self, sequence: int) -> bool:
        """Returns True if replicas would still tell late entries from replays."""
        return len(self._blocks) < AHEAD_MAX or sequence // BLOCK_NUMBERS in self._blocks

    def went(self, sequence: int) -> None:
        self._blocks.add(sequence // BLOCK_NUMBERS)

    def forget_blocks(self) -> None:
        """Forgets all blocks: nothing is late."""
        self._blocks.clear()


@dataclass(slots=True)
class Lane:
    """The queues and the window of a replica. `outdated` counts awaited acknowledgements of former sealings."""

    late: deque[tuple[int, str]]
    new: deque[tuple[int, str]] = field(default_factory=deque)
    in_flight: dict[int, float] = field(default_factory=dict)  # when each was sent
    outdated: dict[int, int] = field(default_factory=dict)
    late_window: float = LATE_WINDOW_MIN
    _late_in_flight: set[int] = field(default_factory=set)
    _late_chains: dict[str, int] = field(default_factory=dict)  # how many of each scope are in `late`
    _new_is_next: bool = True
    _ahead: RunAhead = field(default_factory=RunAhead)
    _quickest_s: float = float("inf")

    def __post_init__(self) -> None:
        self._replace(self.late, deque())

    def __len__(self) -> int:
        """Returns the number of waiting entries."""
        return len(self.late) + len(self.new)

    def append(self, sequence: int, chain: str, late: bool) -> None:
        if late or chain in self._late_chains:
            if not self.late:
                self._ahead.forget_blocks()
            self.late.append((sequence, chain))
            self._late_chains[chain] = self._late_chains.get(chain, 0) + 1
        else:
            self.new.append((sequence, chain))

    def take_into_flight(self, now: float, may: Callable[[int], bool] | None = None, lacked: int = 0) -> list[int]:
        """Moves entries into flight as far as the windows have room, one of each queue in turn. A queue stands still
        while its first entry may not go; without `may` all may. If both stand still, sendable entries come first:
        `lacked` counts the sendable entries the replica lacks. Otherwise two leading lanes, each behind an entry
        unsealed in the other, would wait for ever.
        """
        taken = self._take_by_turns(now, may)
        if taken or may is None or lacked <= len(self.in_flight) or not self._stands(may):
            return taken
        self._bring_forward(may)
        return self._take_by_turns(now, may)

    def _take_by_turns(self, now: float, may: Callable[[int], bool] | None) -> list[int]:
        taken: list[int] = []
        late_stands = new_stands = False
        while len(self.in_flight) < WINDOW_MAX:
            late = bool(self.late) and not late_stands and len(self._late_in_flight) < self.late_window
            new = bool(self.new) and not new_stands and not (self.late and self._runs_ahead())
            if not (late or new):
                break
            is_new = new and (self._new_is_next or not late)
            sequence = self.new[0][0] if is_new else self.late[0][0]
            if may is not None and not may(sequence):
                late_stands, new_stands = late_stands or not is_new, new_stands or is_new
                continue
            if is_new:
                self.new.popleft()
                if self.late:
                    self._ahead.went(sequence)
            else:
                self._pop_late()
            self._new_is_next = not is_new
            self.in_flight[sequence] = now
            taken.append(sequence)
        return taken

    def _runs_ahead(self) -> bool:
        """Returns True if too many new entries went while others were late. Asked while some are."""
        return not self._ahead.may_go(self.new[0][0])

    def _pop_late(self) -> None:
        sequence, chain = self.late.popleft()
        left = self._late_chains[chain] - 1
        if left:
            self._late_chains[chain] = left
        else:
            del self._late_chains[chain]
        self._late_in_flight.add(sequence)

    def _stands(self, may: Callable[[int], bool]) -> bool:
        """Returns True if entries wait, and the first of neither queue may go."""
        late = bool(self.late) and may(self.late[0][0])
        new = bool(self.new) and may(self.new[0][0]) and not (self.late and self._runs_ahead())
        return len(self) > 0 and not (late or new)

    def _bring_forward(self, may: Callable[[int], bool]) -> None:
        """Moves sendable entries to the front of their queues, in order. Each scope keeps its order: no unsealed entry
        of the scope comes before a sealed one.
        """
        late = deque(sorted(self.late, key=lambda waiting: not may(waiting[0])))
        self._replace(late, deque(sorted(self.new, key=lambda waiting: not may(waiting[0]))))

    def note_acknowledged(self, sequence: int, now: float) -> None:
        sent_at = self.in_flight.pop(sequence, now)
        self._late_in_flight.discard(sequence)
        took_s = now - sent_at
        if took_s < 0:  # the clock was set back
            self._quickest_s = float("inf")
            return
        self._quickest_s = min(self._quickest_s, took_s)
        change = max(-1.0, 1 - (took_s - self._quickest_s) / QUEUED_S)  # half a message at most
        self.late_window = min(WINDOW_MAX, max(LATE_WINDOW_MIN, self.late_window + change / 2))

    def put_back(self, sequence: int) -> None:
        """Removes an entry from the ones in flight."""
        self.in_flight.pop(sequence, None)
        self._late_in_flight.discard(sequence)

    def answers_former(self, sequence: int) -> bool:
        """Returns True if the peer's next answer is to a former sealing (links keep order), and counts that answer."""
        outdated = self.outdated.pop(sequence, 0)
        if outdated > 1:
            self.outdated[sequence] = outdated - 1
        return outdated > 0

    def requeue(self, entries: Iterable[tuple[int, str]]) -> None:
        """Entries that were taken wait again, in order of sequence. What is in no scope with something late stays new:
        else a new publication would wait for the whole backlog when an epoch ends. More than a window of it is late."""
        back = set(entries)
        new = {*self.new, *(entry for entry in back if entry[1] not in self._late_chains)}
        if len(new) > WINDOW_MAX:
            new = set()
            back.update(self.new)
        self._replace(deque(sorted({*back, *self.late} - new)), deque(sorted(new)))

    def keep_waiting(self, sequences: Callable[[int], bool]) -> None:
        """Forgets waiting entries that are gone."""
        late = deque(waiting for waiting in self.late if sequences(waiting[0]))
        self._replace(late, deque(waiting for waiting in self.new if sequences(waiting[0])))

    def _replace(self, late: deque[tuple[int, str]], new: deque[tuple[int, str]]) -> None:
        if not self.late:
            self._ahead.forget_blocks()
        self.late, self.new = late, new
        self._late_chains = {}
        for _, chain in late:
            self._late_chains[chain] = self._late_chains.get(chain, 0) + 1


class Lanes:
    """The lanes of all replicas whose link is up."""

    def __init__(self) -> None:
        self.lanes: dict[str, Lane] = {}
        self._any_back = False

    def __iter__(self) -> Iterator[tuple[str, Lane]]:
        return iter(self.lanes.items())

    def __len__(self) -> int:
        return len(self.lanes)

    def open_lane(self, peer: str, lacking: Iterable[tuple[int, str]]) -> None:
        """Opens a lane. `lacking` holds sequence and chain of each entry the peer has not acknowledged, in any
        order.
        """
        self.lanes[peer] = Lane(deque(sorted(lacking)))
        self._any_back = True

    def is_any_back(self) -> bool:
        """Returns True if a link came up since the last call."""
        back, self._any_back = self._any_back, False
        return back

    def close_lane(self, peer: str) -> None:
        self.lanes.pop(peer, None)

    def append(self, sequence: int, chain: str, late: bool) -> None:
        for lane in self.lanes.values():
            lane.append(sequence, chain, late)

    def note_acknowledged(self, peer: str, sequence: int, now: float) -> bool:
        """Opens the window. Returns False if the peer acknowledged a former sealing."""
        lane = self.lanes.get(peer)
        if lane is None:
            return True
        if lane.outdated and lane.answers_former(sequence):
            return False
        lane.note_acknowledged(sequence, now)
        return True

    def note_refused(self, peer: str, sequence: int) -> bool:
        """Takes a refusal. Returns False if it concerns a former sealing, or no request."""
        lane = self.lanes.get(peer)
        if lane is None:
            return False
        if lane.answers_former(sequence):
            return False
        lane.put_back(sequence)
        return True

    def outdate(self, sequence: int) -> None:
        """Ignores the copies of an entry on their way, since it will be sealed anew."""
        for lane in self.lanes.values():
            if sequence in lane.in_flight:
                lane.put_back(sequence)
                lane.outdated[sequence] = lane.outdated.get(sequence, 0) + 1

    def withdraw(self, sequences: Collection[int]) -> None:
        """Removes entries from all queues and from flight: they come again, perhaps in other chains."""
        for sequence in sequences:
            self.outdate(sequence)
        for lane in self.lanes.values() if sequences else ():
            lane.keep_waiting(lambda sequence: sequence not in sequences)

    def requeue(self, entries: Iterable[tuple[int, str]], lacks: Callable[[str, int], bool]) -> None:
        """Puts entries, each a sequence and its chain, back into every lane whose replica lacks them."""
        back = set(entries)
        for peer, lane in self.lanes.items() if back else ():
            lane.requeue(entry for entry in back if entry[0] not in lane.in_flight and lacks(peer, entry[0]))

    def keep_waiting(self, sequences: Callable[[int], bool], count: int) -> None:
        """Forgets waiting entries that are gone, if the lanes are long enough: `count` sequences are not gone."""
        for lane in self.lanes.values():
            if len(lane) > 2 * count + WINDOW_MAX:
                lane.keep_waiting(sequences)


@dataclass(frozen=True, slots=True)
class _Round:
    """The entries that one replica refused, and the time of the next offer. `waits`: entry -> None, in order."""

    again_at: float
    waits: dict[int, None] = field(default_factory=dict)


class Refusals:
    """The refusals at one gateway, bounded for each replica by the entries in memory."""

    def __init__(self) -> None:
        self.rounds: dict[str, _Round] = {}
        self._pauses: dict[str, float] = {}
        self._refused: dict[str, int] = {}  # how much more than it took each refused since its last round began
        self.reasons: dict[str, str] = {}
        """The last reason of each replica that has refused and taken nothing since."""

    def note_refused(self, peer: str, sequence: int, reason: str, now: float) -> None:
        self.reasons[peer] = reason
        if peer not in self.rounds:
            if self._refused.pop(peer, 0) <= 0:
                self._pauses.pop(peer, None)
            self._pauses[peer] = min(2 * self._pauses.get(peer, AGAIN_S / 2), AGAIN_MAX_S)
            self.rounds[peer] = _Round(now + self._pauses[peer])
        self._refused[peer] = self._refused.get(peer, 0) + 1
        self.rounds[peer].waits[sequence] = None

    def note_acknowledged(self, peer: str) -> None:
        """Counts an entry a replica took. Once the replica took as many as it refused since a round began, the next
        round counts as the first: a replica taking one in a thousand would otherwise get all the others every second.
        """
        self.reasons.pop(peer, None)
        if peer in self._refused:
            self._refused[peer] -= 1

    def due_offers(self, now: float) -> Iterator[tuple[str, int]]:
        """Yields replicas and entries to offer again now."""
        for peer in [peer for peer, found in self.rounds.items() if found.again_at <= now]:
            for sequence in self.rounds.pop(peer).waits:
                yield peer, sequence

    @property
    def next_deadline(self) -> float | None:
        return min([found.again_at for found in self.rounds.values()], default=None) if self.rounds else None


class StandIns:
    """The stand-ins of a gateway in region `home`."""

    def __init__(self, overlay: Overlay, home: int) -> None:
        self._home = home
        self._marks: dict[str, int] = {}  # by silent replica: up to which sequence others got what it may not serve
        self.adopt_overlay(overlay)

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Adopts another version of the overlay, or other views."""
        self._planes, self._members = Planes(overlay), overlay.views[self._home].members
        self.is_used = any(scope.by_planes for scope in overlay.policy.scopes)
        self._marks.clear()

    def next_deadline(self, lanes: Lanes) -> float | None:
        """Returns the time at which a replica without answers counts as silent."""
        if not self.is_used:
            return None
        oldest = (next(iter(lane.in_flight.values()), None) for peer, lane in lanes if peer not in self._marks)
        return min((at + SLOW_S for at in oldest if at is not None), default=None)

    def sends(self, entries: dict[int, Entry], lanes: Lanes, now: float) -> list[Send]:
        """Returns further copies of entries that silent replicas have not acknowledged, each once."""
        if not self.is_used or not entries:
            return []
        at = {peer: next(iter(lane.in_flight.values()), now) for peer, lane in lanes}
        silent = [peer for peer in self._members if now - at.get(peer, 0.0) >= SLOW_S]
        others = [peer for peer in self._members if peer not in silent]
        for peer in [peer for peer in self._marks if peer not in silent]:
            del self._marks[peer]
        return [send for peer in silent if others for send in self._instead_of(peer, others[0], entries)]

    def _instead_of(self, peer: str, other: str, entries: dict[int, Entry]) -> list[Send]:
        mark, found = self._marks.get(peer, -1), list[Send]()
        self._marks[peer] = max(mark, next(reversed(entries)))
        for sequence in reversed(entries):  # what is new stands last
            if sequence <= mark:
                break
            entry, scope = entries[sequence], entries[sequence].secret.scope
            if entry.wire is None or peer in entry.acked or entry.publication.retain or not self._planes.is_open(scope):
                continue
            place = self._planes.place_of(scope, peer)
            if place is not None:
                route = (PROPERTY_ROUTE, str(1 << place[1]))
                found.append(Send(other, replace(entry.wire, properties=(*entry.wire.properties, route))))
        return found[::-1]
