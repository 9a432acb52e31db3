"""Register of the administrators that follow single publications through this process, live: `veilmq log trace`.

Each place that a publication passes says its step here, if somebody follows at all. A step has names, numbers and
sizes: never a payload, property or secret. A message of the overlay is named `publisher/number`, as every member that
passes it on may know; a wish for a client, topic or address finds its first steps, and its name the later ones.
Pure but for the clock that is passed in. Not here: who may follow (`gateway.following`, `gateway.console`).
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from bridge.base import OperatorError, TopicError, check_filter, matches

FOLLOWINGS_MAX = 8  # open at once in a process
STEPS_MAX = 2_000
"""Steps that wait for one administrator; further ones are counted as missed. Stops a terminal that does not read."""
PASSED_MAX = 4_000
"""Last steps that nobody asked for yet, kept while somebody follows: another member may name their message."""
MESSAGES_MAX = 10_000  # names of messages that one administrator follows; the oldest goes
CLIENTS_MAX = 1_000  # clients that came from an address that is followed; the oldest goes
SHOWN_CHARACTERS = 300
"""Characters of one value that are shown. Stops a client id or topic of 64 KiB from filling a screen."""


class FollowError(OperatorError):
    """An error of somebody that wants to follow, in a line: cause and cure."""


@dataclass(frozen=True, slots=True)
class MessageStep:
    """Step of a publication. `message`: its name in the overlay, empty until it has one; `then`: the name of the batch
    that takes it along. `publisher`: the local client that published it.
    """

    at: float
    name: str
    message: str = ""
    then: str = ""
    client: str = ""
    publisher: str = ""
    topic: str = ""
    address: str = ""
    about: dict[str, Any] = field(default_factory=dict)

    def to_dict(self, member: str) -> dict[str, Any]:
        """Returns what an administrator sees, without empty values."""
        at = datetime.fromtimestamp(self.at, UTC)
        shown: dict[str, Any] = {
            "time": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z", "member": member, "step": self.name,
            "message": self.message, "batch": self.then if self.then != self.message else "", "client": self.client,
            "publisher": self.publisher, "topic": self.topic, "address": self.address, **self.about,
        }  # fmt: skip
        return {key: _cut(value) for key, value in shown.items() if value not in ("", None)}


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS:
        return f"{value[:SHOWN_CHARACTERS]}..."
    return value


@dataclass(frozen=True, slots=True)
class Wish:
    """Wish of an administrator: publications of or for a client, on topics of a filter, of clients at addresses. What
    is empty asks for nothing in particular; everything empty asks for all.
    """

    client: str = ""
    topic: str = ""
    network: IPv4Network | IPv6Network | None = None

    @classmethod
    def read(cls, client: str = "", topic: str = "", address: str = "") -> Wish:
        """Returns the wish in these words. Raises FollowError."""
        if topic:
            try:
                check_filter(topic)
            except TopicError as error:
                raise FollowError(f"--topic {topic}: {error}; give a filter such as plant/#") from None
        network = None
        if address:
            try:
                network = ip_network(address, strict=False)
            except ValueError:
                text = f"--address {address}: no address and no network; give one such as 192.0.2.7 or 192.0.2.0/24"
                raise FollowError(text) from None
        return cls(client, topic, network)

    @property
    def is_all(self) -> bool:
        """True if every publication is wished for."""
        return not (self.client or self.topic or self.network)


class Following:
    """Following of one administrator: its wish, and the steps that wait to be shown. `arrived()`: called after one."""

    def __init__(self, wish: Wish, passed: deque[MessageStep]) -> None:
        self.wish, self._passed = wish, passed
        self._steps: deque[MessageStep] = deque()
        self._messages: OrderedDict[str, None] = OrderedDict()
        self._clients: OrderedDict[str, None] = OrderedDict()
        self.missed = 0
        self.arrived: Callable[[], None] = lambda: None

    def take_step(self) -> MessageStep | None:
        """Returns the oldest waiting step; None if there is none."""
        return self._steps.popleft() if self._steps else None

    def name_message(self, message: str) -> None:
        """Follows a message that another member named, from the steps on that have passed already."""
        if message in self._messages:
            return
        _remember(self._messages, message, MESSAGES_MAX)
        for step in list(self._passed):
            if message in (step.message, step.then) and not self._is_of_another(step):
                self._keep_step(step)

    def offer(self, step: MessageStep) -> None:
        """Takes a step if it is wished for."""
        if self._wants(step):
            self._keep_step(step)

    def _keep_step(self, step: MessageStep) -> None:
        for name in (step.message, step.then):
            if name:
                _remember(self._messages, name, MESSAGES_MAX)
        if self.wish.network is not None and step.client and not step.publisher:
            _remember(self._clients, step.client, CLIENTS_MAX)
        if len(self._steps) >= STEPS_MAX:
            self.missed += 1
            return
        self._steps.append(step)
        self.arrived()

    def _wants(self, step: MessageStep) -> bool:
        wish = self.wish
        if wish.is_all:
            return True
        if step.message in self._messages:
            return not self._is_of_another(step)
        if wish.client and wish.client not in (step.client, step.publisher):
            return False
        if wish.topic and not (step.topic and matches(wish.topic, step.topic)):
            return False
        return wish.network is None or self._comes_from(step, wish.network)

    def _is_of_another(self, step: MessageStep) -> bool:
        """Returns True for the step of another record of a batch: the first record has the name of the whole batch."""
        return bool(self.wish.topic and step.topic) and not matches(self.wish.topic, step.topic)

    def _comes_from(self, step: MessageStep, network: IPv4Network | IPv6Network) -> bool:
        if step.client in self._clients or step.publisher in self._clients:
            return True
        try:
            return ip_address(step.address.rpartition(":")[0].strip("[]")) in network
        except ValueError:
            return False


def _remember(names: OrderedDict[str, None], name: str, most: int) -> None:
    names[name] = None
    names.move_to_end(name)
    if len(names) > most:
        names.popitem(last=False)


class FollowedMessages:
    """Register of a process. `member`: its name. `changed(on)`: called when the first one begins to follow, and when
    the last one ends: only in between are steps to be said.
    """

    def __init__(self, member: str, changed: Callable[[bool], None], clock: Callable[[], float] = time.time) -> None:
        self.member, self._changed, self._clock = member, changed, clock
        self._open: list[Following] = []
        self._passed: deque[MessageStep] = deque(maxlen=PASSED_MAX)
        self.current = ""
        """The name of the message that is in hand at this moment, for steps which have no other."""

    def begin_following(self, wish: Wish) -> Following:
        """Begins to follow. Raises FollowError if there are too many already."""
        if len(self._open) >= FOLLOWINGS_MAX:
            raise FollowError(f"{FOLLOWINGS_MAX} follow messages of {self.member} already; end one of them first")
        following = Following(wish, self._passed)
        self._open.append(following)
        if len(self._open) == 1:
            self._changed(True)
        return following

    def end_following(self, following: Following) -> None:
        """Ends a following."""
        if following in self._open:
            self._open.remove(following)
            if not self._open:
                self._passed.clear()
                self.current = ""
                self._changed(False)

    def say_step(
        self, name: str, *, message: str = "", then: str = "", client: str = "", publisher: str = "", topic: str = "",
        address: str = "", **about: Any,
    ) -> None:  # fmt: skip
        """Offers a step to everybody that follows. `about`: sizes, codes, names of members."""
        step = MessageStep(self._clock(), name, message or self.current, then, client, publisher, topic, address, about)
        self._passed.append(step)
        for following in self._open:
            following.offer(step)
