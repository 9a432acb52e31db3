"""Constrained topics (B2): names whose structure says who may publish or subscribe, and how far they travel.

    $Constrained/{event type}/{constrainer}/{allowed actions}/{distribution}/{suffixes}

    event type       the kind of message, default `RealTime`
    constrainer      `Broker` (default), or the only entity that may do the allowed actions
    allowed actions  `PublishOnly`: only it publishes, everybody may subscribe; `SubscribeOnly`: the reverse;
                     `PublishSubscribe` (default): only it does either
    distribution     `Disseminate` (default), or `Suppress`: stays at the broker where it was published or subscribed

Missing elements have their defaults, so a single topic has many spellings; brokers route and store only the
*canonical* spelling, with all elements. `/Constrained/…` and `Constrained/…` are accepted as aliases and never routed:
a leading `/` makes an empty level, which `#` matches, and everybody would see every trace topic. A level is taken for
an element in the order above; a level that is no value of any element begins the suffixes. So an entity is a
constrainer only where an action follows it.

A filter may have wildcards behind the first suffix only: the first suffix is a trace topic, which must stay
unguessable. Not here: identities of clients, tokens (`keys.delegation`), traces (`traces`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from bridge.base import TopicError

CANONICAL = "$Constrained"
ALIASES = (("", "Constrained"), ("Constrained",))
BROKER = "Broker"
REAL_TIME = "RealTime"
TRACES = "Traces"
PARSED_KEPT = 64
"""Number of parsed topics kept: within a turn a topic is parsed several times. Their number bounds memory where clients
write long topics.
"""


class Actions(StrEnum):
    """The actions that only the constrainer may do."""

    PUBLISH = "PublishOnly"
    SUBSCRIBE = "SubscribeOnly"
    BOTH = "PublishSubscribe"


class Distribution(StrEnum):
    """The distance a message or a subscription travels."""

    DISSEMINATE = "Disseminate"
    SUPPRESS = "Suppress"


# The source spells them in several ways; hyphens, underscores and case do not count.
_ACTIONS = {
    "publishonly": Actions.PUBLISH, "publish": Actions.PUBLISH,
    "subscribeonly": Actions.SUBSCRIBE, "subscribe": Actions.SUBSCRIBE,
    "publishsubscribe": Actions.BOTH,
}  # fmt: skip
_DISTRIBUTIONS = {
    "disseminate": Distribution.DISSEMINATE,
    "suppress": Distribution.SUPPRESS, "limited": Distribution.SUPPRESS,
}  # fmt: skip
_WRITTEN_ACTIONS = {str(each): each for each in Actions}
_WRITTEN_DISTRIBUTIONS = {str(each): each for each in Distribution}


def _spelling(level: str) -> str:
    return level.replace("-", "").replace("_", "").lower()


@dataclass(frozen=True, slots=True)
class Constrained:
    """A constrained topic name or filter."""

    event_type: str
    constrainer: str
    actions: Actions
    distribution: Distribution
    suffixes: tuple[str, ...]

    def __str__(self) -> str:
        """Returns the canonical spelling."""
        levels = (CANONICAL, self.event_type, self.constrainer, self.actions, self.distribution, *self.suffixes)
        return "/".join(levels)

    def may_publish(self, name: str, *, is_broker: bool) -> bool:
        """Returns True if a client called `name`, or the broker itself, may publish."""
        return self.actions is Actions.SUBSCRIBE or self._is_constrainer(name, is_broker)

    def may_subscribe(self, name: str, *, is_broker: bool) -> bool:
        return self.actions is Actions.PUBLISH or self._is_constrainer(name, is_broker)

    @property
    def stays_here(self) -> bool:
        """True if neither messages nor subscriptions leave this broker."""
        return self.distribution is Distribution.SUPPRESS

    def _is_constrainer(self, name: str, is_broker: bool) -> bool:
        return is_broker if self.constrainer == BROKER else not is_broker and name == self.constrainer


def is_constrained(topic: str) -> bool:
    """Returns True if a name or filter (without `$share/group/`) is constrained, in any spelling."""
    levels = topic.split("/", 2)
    return levels[0] == CANONICAL or any(tuple(levels[: len(alias)]) == alias for alias in ALIASES)


def parse(topic: str) -> Constrained | None:
    """Parses a constrained name or filter (without `$share/group/`); returns None for any other.

    Raises TopicError for a name without topic, or a filter with wildcards where none may be.
    """
    return spelled(topic)[0]


@lru_cache(maxsize=PARSED_KEPT)
def spelled(topic: str) -> tuple[Constrained | None, str]:
    """Parses a name or filter like `parse`, and returns its canonical spelling too.

    A canonical string is returned itself, not a copy, since every subscription of a large fleet keeps its own.
    """
    if not is_constrained(topic):
        return None, topic
    levels = topic.split("/")
    written = _written_out(levels)
    if written is not None:
        return written, topic
    parsed = _parsed(levels)
    name = str(parsed)
    return parsed, topic if name == topic else name


def _parsed(levels: list[str]) -> Constrained:
    """Parses the levels. Raises TopicError."""
    rest = levels[2:] if levels[0] == "" else levels[1:]
    event_type, constrainer = REAL_TIME, BROKER
    actions, distribution = Actions.BOTH, Distribution.DISSEMINATE
    if rest and not _is_element(rest[0]):
        event_type = rest.pop(0)
    if rest and (rest[0] == BROKER or (len(rest) > 1 and _spelling(rest[1]) in _ACTIONS and not _is_element(rest[0]))):
        constrainer = rest.pop(0)
    if rest and _spelling(rest[0]) in _ACTIONS:
        actions = _ACTIONS[_spelling(rest.pop(0))]
    if rest and _spelling(rest[0]) in _DISTRIBUTIONS:
        distribution = _DISTRIBUTIONS[_spelling(rest.pop(0))]
    if not event_type or not constrainer:
        raise TopicError("a constrained topic has no empty element; write its event type or leave the level out")
    if any(level in ("+", "#") for level in (event_type, constrainer, *rest[:1])):
        raise TopicError("a constrained filter has wildcards behind its first suffix only")
    return Constrained(event_type, constrainer, actions, distribution, tuple(rest))


def _written_out(levels: list[str]) -> Constrained | None:
    """Parses the usual case, written by programs: a trace topic with every element in its canonical spelling."""
    if len(levels) < 6 or levels[0] != CANONICAL or levels[1] != TRACES:
        return None
    actions, distribution = _WRITTEN_ACTIONS.get(levels[3]), _WRITTEN_DISTRIBUTIONS.get(levels[4])
    constrainer = levels[2]
    if actions is None or distribution is None or (constrainer != BROKER and _is_element(constrainer)):
        return None
    if constrainer in ("", "+", "#") or levels[5] in ("+", "#"):
        return None
    return Constrained(TRACES, constrainer, actions, distribution, tuple(levels[5:]))


def stays_here(topic: str) -> bool:
    """Returns True if a canonical name or filter is constrained and not disseminated."""
    if not topic.startswith(CANONICAL):
        return False
    try:
        parsed = parse(topic)
    except TopicError:
        return False
    return parsed is not None and parsed.stays_here


def canonical(topic: str) -> str:
    """Returns the spelling under which a name or filter is routed: its own, unless constrained. Raises TopicError."""
    return spelled(topic)[1]


def _is_element(level: str) -> bool:
    """Returns True if a level can only be an element standing behind the event type."""
    return level == BROKER or _spelling(level) in _ACTIONS or _spelling(level) in _DISTRIBUTIONS
