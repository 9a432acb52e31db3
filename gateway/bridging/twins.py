"""Copies of a message coming by two ways, detected by their content where no mark shows it. No I/O.

Marks (`mapping`) end a message at a broker that it has passed. They do not show that two bridges bring a single
message each, and MQTT 3.1.1 has no properties to carry them. Here a broker remembers for TWIN_S each message that came
over a bridge, or left over a bridge without marks. A message with the topic and content of a remembered one is its
copy if it comes by another way, once a way: what a way brings for the second time is a new message.

Limits: where a way has no marks, an equal message of another publisher within TWIN_S may be taken for a copy. A circle
whose turn takes longer than TWIN_S is not ended, nor a circle in which a message comes again by its own way, since a
publisher repeating itself looks the same. If one of two ways to a broker loses marks, each brings its copy.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass, replace
from hashlib import blake2b

from bridge.base import NameWeights

TWIN_S = 3.0
"""Seconds that a message is remembered: a turn of a circle through other brokers, with time to spare."""
ECHO_S = 60.0
"""Seconds that a certain echo is remembered, of a broker that knows neither No Local nor the private bit."""
UNMARKED = "unmarked"
"""The mark of a message that came over a way without marks, and may have lost earlier ones."""
WAYS_MAX = 16
"""Ways that bring one message; then it is settled. Stops copies under ever new client ids from filling memory."""
EQUAL_MAX = 256
"""Equal messages that are remembered on one topic; the oldest, whose copies have come, are forgotten. Stops a publisher
that repeats itself from making each further message slow.
"""
TWINS_MAX = 20_000
"""Messages that are remembered; beyond it the heaviest branch of topics loses the oldest of one topic. A flood fills no
memory, and makes copies of its own messages pass, not of messages below other prefixes.
"""


@dataclass(frozen=True, slots=True)
class _Seen:
    """Message on a topic that came or left. `ways`: ways without a further copy: its own, those of copies, and former
    ways of an equal message.
    `marks` None: the message left over a way without marks, and any other way may bring a copy. `came`: did not
    leave.
    """

    topic: str
    ways: frozenset[str]
    marks: frozenset[str] | None
    until_s: float
    came: bool = False


class Twins:
    """Memory of a broker. `now` is in seconds, of any clock that does not go back."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, list[_Seen]] = OrderedDict()
        self._of_topic: dict[str, deque[bytes]] = {}  # a key for each message, oldest first
        self._weights = NameWeights()
        self._count = 0

    def remember_leaving(
        self, way: str, topic: str, payload: bytes, now: float, has_marks: bool, lasts_s: float = TWIN_S
    ) -> None:
        """Remembers a leaving message, by its local topic. If it has marks, only a message that lost them elsewhere is
        its copy.
        """
        key = _key(topic, payload)
        ways = {way}.union(*(one.ways for one in self._seen.get(key, ()) if one.came))
        marks = frozenset({UNMARKED}) if has_marks else None
        self._remember(key, _Seen(topic, frozenset(ways), marks, now + lasts_s), now)

    def is_copy(
        self, way: str, topic: str, payload: bytes, marks: Collection[str], now: float, known: str = "", meets: str = ""
    ) -> bool:
        """Returns True if a message coming by `way` is the copy of one that came or left by another; remembers any
        other message. `marks`: names of brokers that it has passed; copies have one in common. On a way without marks,
        `known` is remembered instead, and `meets` is the mark of its copy.
        """
        key, passed = _key(topic, payload), frozenset(marks)
        for one in self._seen.get(key, ()):
            is_akin = one.marks is None or one.marks & passed or meets in one.marks
            if way not in one.ways and one.until_s >= now and is_akin:
                self._note_copy(key, one, way, now)
                return True
        kept = passed - {UNMARKED} | ({known} if known else set())
        self._remember(key, _Seen(topic, frozenset({way}), kept, now + TWIN_S, came=True), now)
        return False

    def _remember(self, key: bytes, one: _Seen, now: float) -> None:
        equal = self._seen.setdefault(key, [])
        equal.append(one)
        self._seen.move_to_end(key)
        self._count += 1
        keys = self._of_topic.setdefault(one.topic, deque())
        keys.append(key)
        self._weights.set_weight(one.topic, len(keys))
        if len(equal) > EQUAL_MAX:
            self._drop_twin(key, equal[0])
        while self._count > TWINS_MAX:
            spent = self._of_topic[self._weights.heaviest()][0]
            self._drop_twin(spent, self._seen[spent][0])
        oldest = next(iter(self._seen))
        for each in [old for old in self._seen[oldest] if old.until_s < now]:
            self._drop_twin(oldest, each)

    def _note_copy(self, key: bytes, one: _Seen, way: str, now: float) -> None:
        """Notes that the copy of a message came by a way. Others may follow in TWIN_S: a ring with a double link has
        three ways.
        """
        if len(one.ways) >= WAYS_MAX:
            self._drop_twin(key, one)
            return
        seen = self._seen[key]
        seen[seen.index(one)] = replace(one, ways=one.ways | {way}, until_s=min(one.until_s, now + TWIN_S))

    def _drop_twin(self, key: bytes, one: _Seen) -> None:
        kept = self._seen[key]
        kept.remove(one)
        self._count -= 1
        if not kept:
            del self._seen[key]
        keys = self._of_topic[one.topic]
        keys.remove(key)  # most often the first
        if keys:
            self._weights.set_weight(one.topic, len(keys))
        else:
            del self._of_topic[one.topic]
            self._weights.drop_name(one.topic)


def _key(topic: str, payload: bytes) -> bytes:
    name = topic.encode()
    return blake2b(len(name).to_bytes(4, "big") + name + payload, digest_size=16).digest()
