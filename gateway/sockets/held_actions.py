"""Actions a connection holds behind an undecided publication, in order, with their size.

A client with a long window has many held actions, and every publication among them may have to wait again. Taking an
action, putting an action and asking for the size cost constant time. Not here: the wait (`connection.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard

from gateway.mqtt5.packets import NO_PROPERTIES, Publish
from gateway.mqtt5.session import Action, ServerSession
from gateway.sockets.flushing import Waiting

HELD_ACTIONS, HELD_BYTES = 1_024, 1 << 20
"""Actions and bytes that are still read and kept of a client whose publication waits for a receiver.

Otherwise the client could not acknowledge its own messages, and two clients that publish to each other would block.
"""


def is_plain(action: Action) -> TypeGuard[Publish]:
    """True for a publication of QoS 1 without retain flag and properties, as `Core.pass_run` takes."""
    return type(action) is Publish and action.qos == 1 and not action.retain and action.properties is NO_PROPERTIES


class HeldActions:
    """Queue of held actions of a connection; iteration takes them out. `payload_bytes`: of the publications among
    them, whose number is `publications`.
    """

    __slots__ = ("_actions", "_answers", "payload_bytes", "publications")

    def __init__(self, actions: Iterable[Action] = ()) -> None:
        self._actions: deque[Action] = deque()
        self._answers = self.payload_bytes = self.publications = 0
        for action in actions:
            self.put_action(action)

    def __len__(self) -> int:
        return len(self._actions)

    def __iter__(self) -> Iterator[Action]:
        """Takes one action after the other; the rest stays."""
        while self._actions:
            yield self.take_action()

    def put_action(self, action: Action) -> None:
        self._actions.append(action)
        self._count_action(action, 1)

    def put_back(self, action: Action) -> None:
        """Puts the action that was taken last back in front."""
        self._actions.appendleft(action)
        self._count_action(action, 1)

    def next_plain(self) -> Publish | None:
        """Returns the next action without removal, if the action is a plain publication."""
        return action if self._actions and is_plain(action := self._actions[0]) else None

    def take_action(self) -> Action:
        """Takes out the next action."""
        action = self._actions.popleft()
        self._count_action(action, -1)
        return action

    def take_answers(self) -> Sequence[bytes]:
        """Takes out all actions that are bytes to write."""
        if not self._answers:
            return ()
        found = [one for one in self._actions if type(one) is bytes]
        self._actions = deque(one for one in self._actions if type(one) is not bytes)
        self._answers = 0
        return found

    @property
    def is_enough(self) -> bool:
        """True if reading should pause."""
        return len(self._actions) > HELD_ACTIONS or self.payload_bytes > HELD_BYTES

    def _count_action(self, action: Action, by: int) -> None:
        kind = type(action)
        if kind is Publish:
            self.payload_bytes += by * len(action.payload)  # type: ignore[union-attr]
            self.publications += by
        elif kind is bytes:
            self._answers += by


def forgo(session: ServerSession, actions: Iterable[Action]) -> None:
    """Forgets publications whose connection ended first: the session takes their repetitions as new."""
    for action in actions:
        if type(action) is Publish and action.qos:
            session.inbound.forgo(action)


async def ended(undecided: Waiting) -> None:
    """Returns when a publication of a former connection is decided or has failed."""
    await asyncio.wait((undecided,))
