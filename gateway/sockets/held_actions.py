"""What a connection keeps because something that came earlier is undecided, in order, with its size.

A client with a long window keeps many actions, and each that goes on its way may have to wait again: taking one,
keeping one and asking whether it is enough cost the same however many there are. Not here: what is waited for
(`connection.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from gateway.mqtt5.packets import Publish
from gateway.mqtt5.session import Action

HELD_ACTIONS, HELD_BYTES = 1_024, 1 << 20
"""Of a client whose publication waits for a receiver, so much more is read and kept, lest it could not acknowledge what
it is sent, and two clients that publish to each other would wait for each other."""


class HeldActions:
    """Actions of one connection; going over it takes them out. `payload_bytes`: of the publications among them."""

    __slots__ = ("_actions", "_answers", "payload_bytes")

    def __init__(self, actions: Iterable[Action] = ()) -> None:
        self._actions: deque[Action] = deque()
        self._answers = self.payload_bytes = 0
        for action in actions:
            self.put(action)

    def __len__(self) -> int:
        return len(self._actions)

    def __iter__(self) -> Iterator[Action]:
        """Take one after the other; what is not taken stays."""
        while self._actions:
            action = self._actions.popleft()
            self._count(action, -1)
            yield action

    def put(self, action: Action) -> None:
        self._actions.append(action)
        self._count(action, 1)

    def put_back(self, action: Action) -> None:
        """The one that was taken last, whose turn has not come."""
        self._actions.appendleft(action)
        self._count(action, 1)

    def take_answers(self) -> Sequence[bytes]:
        """Those that are bytes to write, taken out of their places."""
        if not self._answers:
            return ()
        found = [one for one in self._actions if type(one) is bytes]
        self._actions = deque(one for one in self._actions if type(one) is not bytes)
        self._answers = 0
        return found

    @property
    def is_enough(self) -> bool:
        """No more should be read."""
        return len(self._actions) > HELD_ACTIONS or self.payload_bytes > HELD_BYTES

    def _count(self, action: Action, by: int) -> None:
        kind = type(action)
        if kind is Publish:
            self.payload_bytes += by * len(action.payload)  # type: ignore[union-attr]
        elif kind is bytes:
            self._answers += by
