"""Turns of the event loop: whose work is done now, and whose later.

Work that can wait is queued by its owner (`FairTurns`): one owner's turn, then everything else that is ready, then the
next owner's. So a client with much work waits for itself, and all others for one turn.

A broker that was held up finds timers that ended and data that came long ago. In any order in which the event loop
takes them, a client that sent in time must not be taken for silent (`behind_reads`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from time import perf_counter

TURN_S = 0.001
"""Seconds of one owner's turn, in which many small pieces of its work may be done. Stops a client with much work, or a
user with a thousand clients, from keeping all others waiting.
"""
ALONE_S = 0.005
"""Seconds of a turn while nobody else sends. A burst of one client is taken whole then, so that one commit and one
batch of a scope hold it. Turns of `TURN_S` would make several of both.
"""
SHARED_S = 0.05
"""Seconds after the data of another connection in which nobody sends alone."""
READS_S = 0.002
"""Seconds for which reads of clients are taken as they come, in one turn of the event loop; later ones wait for the
turn of their owner. Stops reads of many connections that would be taken one after the other, before anything else.
"""


def behind_reads(act: Callable[[], None]) -> None:
    """Calls `act` after all data that can be read by now was read: in the turn of the event loop behind the next
    one.
    """
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, act)


class FairTurns:
    """Queue of the work that can wait, by owner. An owner is a user, or the address of nameless clients; the empty one
    is the broker itself.
    """

    def __init__(self) -> None:
        self.first: Callable[[], None] = _nothing
        """Called before each turn: what was made for others leaves first."""
        self._reader: object = None  # whose data came last
        self._shared_until = 0.0  # until then others count as sending
        self._waiting: OrderedDict[str, deque[Callable[[], object]]] = OrderedDict()  # who is next first
        self._is_running = False
        self._reads_end = 0.0  # when reads of this turn of the event loop have had their time; 0: at its beginning

    def call(self, owner: str, act: Callable[[], object]) -> None:
        """Calls `act` in a turn of its owner. Acts of an owner are called in order, several in a turn while it lasts;
        one that returns True ends the turn.
        """
        acts = self._waiting.get(owner)
        if acts is None:
            acts = self._waiting[owner] = deque()
        acts.append(act)
        if not self._is_running:
            self._is_running = True
            behind_reads(self._give_next_turn)

    async def wait_for_turn(self, owner: str) -> None:
        """Returns in a turn that the caller has for itself."""
        turn = asyncio.get_running_loop().create_future()
        self.call(owner, partial(_begin, turn))
        await turn

    def _give_next_turn(self) -> None:
        """Gives the next owner its turn."""
        owner, acts = self._waiting.popitem(last=False)
        ends = perf_counter() + TURN_S
        try:
            self.first()
            while acts and not acts.popleft()() and perf_counter() < ends:
                pass
        finally:
            if acts:
                more = self._waiting.pop(owner, None)  # that the acts have made
                self._waiting[owner] = acts if more is None else acts + more
            self._is_running = bool(self._waiting)
            if self._is_running:
                behind_reads(self._give_next_turn)

    def note_data(self, reader: object) -> None:
        """Notes that data of a connection came."""
        if self._reader is not reader:
            self._reader, self._shared_until = reader, perf_counter() + SHARED_S

    @property
    def is_alone(self) -> bool:
        """True if nobody but the connection whose data came last has sent for `SHARED_S`."""
        return perf_counter() >= self._shared_until

    @property
    def read_s(self) -> float:
        """The seconds for which a read is taken before others have a turn."""
        return ALONE_S if self.is_alone else TURN_S

    def reads_go_on(self) -> bool:
        """Returns True if a read may be taken as it comes, in this turn of the event loop."""
        now = perf_counter()
        if not self._reads_end:
            self._reads_end = now + READS_S
            asyncio.get_running_loop().call_soon(self._end_reads)
        return now < self._reads_end

    def _end_reads(self) -> None:
        self._reads_end = 0.0


def _nothing() -> None:
    """Does nothing."""


def _begin(turn: asyncio.Future[None]) -> bool:
    """Begins the turn of a caller that waits for it. False: it waits no longer."""
    if turn.done():
        return False
    turn.set_result(None)
    return True


class Turn:
    """Turn of a long task, of its owner: `is_over` is asked between two pieces, and `end_turn` awaited if so."""

    __slots__ = ("_ends", "_owner", "_turns")

    def __init__(self, turns: FairTurns, owner: str) -> None:
        self._turns, self._owner, self._ends = turns, owner, perf_counter() + TURN_S

    @property
    def is_over(self) -> bool:
        return perf_counter() > self._ends

    async def end_turn(self) -> None:
        """Returns when the next turn of the task begins."""
        await self._turns.wait_for_turn(self._owner)
        self._ends = perf_counter() + TURN_S
