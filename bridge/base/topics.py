"""Topic names and filters: validity, matching, overlap, the most specific scope, and an index over filters.

Pure and synchronous. Knows nothing of clients, QoS or ACLs: `TopicIndex` maps filters to values of its owner. Shared
subscriptions are parsed here (`split_share`), but the broker chooses members. Source: MQTT 5.0 §4.7 (names and
filters), §4.8.2 (`$share`), §4.7.2 (`$` topics and leading wildcards).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, TypeVar

V = TypeVar("V")

SHARE_PREFIX = "$share/"
MAX_NAME_BYTES = 65_535
"""The longest name: a UTF-8 string of MQTT has a 16-bit length (§1.5.4)."""
MAX_LEVELS = 128
"""Stops a name of thousands of empty levels from making every walk of the tree slow."""
MEMO_TOPICS = 32_768
"""Stops a stream of fresh topic names from filling memory with remembered matches. A broker that uses more names than
that in turn finds none of them remembered: a tracing broker (`traces.tracer.ENTITIES_MAX`) pings on 20,000.
"""
MEMO_CHARS = 1_024
"""Stops a stream of long names from filling memory: longer names are matched anew each time."""


class TopicError(ValueError):
    """An error: a topic name or filter that MQTT does not allow; the message names the broken rule."""


def _check_text(text: str, what: str) -> None:
    if not text:
        raise TopicError(f"empty topic {what}")
    if "\0" in text:
        raise TopicError(f"topic {what} contains U+0000")
    if len(text) > MAX_NAME_BYTES or len(text.encode()) > MAX_NAME_BYTES:
        raise TopicError(f"topic {what} is longer than {MAX_NAME_BYTES} bytes")
    if text.count("/") >= MAX_LEVELS:
        raise TopicError(f"topic {what} has more than {MAX_LEVELS} levels")


def check_name(topic: str) -> str:
    """Returns `topic` if it is a valid topic name (§4.7.1.1, §4.7.3). Raises `TopicError` otherwise."""
    _check_text(topic, "name")
    if "+" in topic or "#" in topic:
        raise TopicError("topic name contains a wildcard")
    return topic


def check_filter(topic_filter: str) -> str:
    """Returns `topic_filter` if valid, without regard to `$share` (§4.7.1). Raises `TopicError` otherwise."""
    _check_text(topic_filter, "filter")
    if "+" in topic_filter or "#" in topic_filter:
        levels = topic_filter.split("/")
        for level in levels:
            if "+" in level and level != "+":
                raise TopicError("'+' must fill a whole level")
            if "#" in level and level != "#":
                raise TopicError("'#' must fill a whole level")
        if "#" in levels[:-1]:
            raise TopicError("'#' must be the last level")
    return topic_filter


def split_share(topic_filter: str) -> tuple[str | None, str]:
    """Splits `$share/{group}/{filter}` into (group, filter); (None, filter) if not shared. Validates both.

    Raises `TopicError` (§4.8.2: a group is not empty and has neither '/', '+' nor '#').
    """
    if not topic_filter.startswith(SHARE_PREFIX):
        if topic_filter == "$share":
            raise TopicError("shared subscription without a group")
        return None, check_filter(topic_filter)
    group, slash, inner = topic_filter[len(SHARE_PREFIX) :].partition("/")
    if not group or not slash or not inner:
        raise TopicError("a shared subscription is $share/{group}/{filter}")
    if "+" in group or "#" in group:
        raise TopicError("the group of a shared subscription contains a wildcard")
    _check_text(topic_filter, "filter")
    return group, check_filter(inner)


def has_wildcard(topic_filter: str) -> bool:
    """Returns True if a valid filter may match more than one name."""
    return "+" in topic_filter or topic_filter.endswith("#")


def matches(topic_filter: str, topic: str) -> bool:
    """Returns True if the valid filter (share prefix stripped) matches the topic name."""
    if topic_filter == topic:
        return True
    if not has_wildcard(topic_filter):
        return False
    return covers(topic_filter, topic)


def _hides_dollar(wild: str, other: str) -> bool:
    """Returns True if `wild` begins with a wildcard and `other` with '$': a leading wildcard matches no such name
    (§4.7.2).
    """
    return other[:1] == "$" and wild[:1] in ("+", "#")


def covers(scope: str, topic_filter: str) -> bool:
    """Returns True if `scope` matches every topic that `topic_filter` matches. A name is a filter."""
    if _hides_dollar(scope, topic_filter):
        return False
    wide, narrow = scope.split("/"), topic_filter.split("/")
    if narrow in (["#"], ["", "#"]):
        # The empty name is no name, so `+/#` matches every name that `#` matches, and `/+/#` each that `/#` does.
        narrow[-1:] = ["+", "#"]
    for place, level in enumerate(wide):
        if level == "#":
            return True
        if place == len(narrow) or narrow[place] == "#":
            return False
        if level not in ("+", narrow[place]):
            return False
    return len(wide) == len(narrow)


def intersection(a: str, b: str) -> str | None:
    """Returns the one filter matching exactly the topics of both filters; None if there are none."""
    if _hides_dollar(a, b) or _hides_dollar(b, a):
        return None
    left, right = a.split("/"), b.split("/")
    if left == ["#"]:
        return b
    if right == ["#"]:
        return a
    common: list[str] = []
    for place in range(max(len(left), len(right))):
        if place < len(left) and left[place] == "#":
            return "/".join(common + right[place:]) or None  # the empty name is no name
        if place < len(right) and right[place] == "#":
            return "/".join(common + left[place:]) or None
        if place >= len(left) or place >= len(right):
            return None
        if left[place] == "+":
            common.append(right[place])
        elif right[place] in ("+", left[place]):
            common.append(left[place])
        else:
            return None
    return "/".join(common)


def overlaps(a: str, b: str) -> bool:
    """Returns True if both filters match some topic."""
    return intersection(a, b) is not None


def specificity(topic_filter: str) -> tuple[int, ...]:
    """Returns a sort key: smaller is more specific, level by level (a name before '+' before '#')."""
    return tuple(1 if level == "+" else 2 if level == "#" else 0 for level in topic_filter.split("/"))


def most_specific(filters: Iterable[str], topic_filter: str) -> str | None:
    """Returns the most specific of `filters` covering the topic or filter; ties cannot occur for a name."""
    fitting = [candidate for candidate in filters if covers(candidate, topic_filter)]
    return min(fitting, key=lambda each: (specificity(each), each)) if fitting else None


class _Level(Generic[V]):
    """A level of the tree of wildcard filters."""

    __slots__ = ("any_level", "below", "here", "rest")

    def __init__(self) -> None:
        self.below: dict[str, _Level[V]] = {}
        self.any_level: _Level[V] | None = None
        self.here: dict[Hashable, V] = {}
        self.rest: dict[Hashable, V] = {}

    def is_empty(self) -> bool:
        return not (self.below or self.any_level or self.here or self.rest)


class TopicIndex(Generic[V]):
    """An index of (filter, key) to a value, which finds the values a topic name reaches.

    Filters without wildcards are a single dict look-up; the others live in a tree. The answers for the last
    `memo_topics` names of at most `MEMO_CHARS` are remembered until a change could alter them. Names beginning with
    `$` are not remembered: every traced entity has several, seldom used. Filters must be valid and free of `$share`
    prefixes.
    """

    def __init__(self, memo_topics: int = MEMO_TOPICS) -> None:
        # A pair for a single entry, as with names that one client has alone: a dict is four times as large.
        self._exact: dict[str, dict[Hashable, V] | tuple[Hashable, V]] = {}
        self._wild: dict[str, dict[Hashable, V]] = {}
        self._root: _Level[V] = _Level()
        self._memo: dict[str, tuple[V, ...]] = {}
        self._memo_topics = memo_topics

    def __len__(self) -> int:
        """Returns the number of distinct filters."""
        return len(self._exact) + len(self._wild)

    def __iter__(self) -> Iterator[str]:
        yield from self._exact
        yield from self._wild

    def __contains__(self, topic_filter: object) -> bool:
        return topic_filter in self._exact or topic_filter in self._wild

    def entries(self, topic_filter: str) -> dict[Hashable, V]:
        """Returns a copy of the entries of exactly this filter (not of filters matching it)."""
        return dict(self._held(topic_filter))

    def entry(self, topic_filter: str, key: Hashable) -> V | None:
        """Returns the value of (filter, key), if there is one."""
        return self._held(topic_filter).get(key)

    def _held(self, topic_filter: str) -> dict[Hashable, V]:
        found = self._exact.get(topic_filter) or self._wild.get(topic_filter) or {}
        return {found[0]: found[1]} if isinstance(found, tuple) else found

    def add(self, topic_filter: str, key: Hashable, value: V) -> bool:
        """Stores `value` under (filter, key), replacing an earlier one. Returns True if the filter is new here."""
        if not has_wildcard(topic_filter):
            self._memo.pop(topic_filter, None)
            entries = self._held(topic_filter)
            fresh = not entries
            entries[key] = value
            self._exact[topic_filter] = entries if len(entries) > 1 else (key, value)
            return fresh
        self._memo.clear()
        levels = topic_filter.split("/")
        node = self._root
        for level in levels[:-1] if levels[-1] == "#" else levels:
            if level == "+":
                if node.any_level is None:
                    node.any_level = _Level()
                node = node.any_level
            else:
                node = node.below.setdefault(level, _Level())
        entries = node.rest if levels[-1] == "#" else node.here
        fresh = not entries
        entries[key] = value
        self._wild[topic_filter] = entries
        return fresh

    def remove(self, topic_filter: str, key: Hashable) -> bool:
        """Drops (filter, key); an unknown pair is ignored. Returns True for the filter's last entry."""
        entries = self._held(topic_filter)
        if key not in entries:
            return False
        del entries[key]  # for a filter with one entry a copy, which is dropped
        is_wild = has_wildcard(topic_filter)
        if is_wild:
            self._memo.clear()
        else:
            self._memo.pop(topic_filter, None)
        if entries:
            return False
        if is_wild:
            del self._wild[topic_filter]
            self._prune(topic_filter.split("/"))
        else:
            del self._exact[topic_filter]
        return True

    def _prune(self, levels: list[str]) -> None:
        path: list[tuple[_Level[V], str]] = []
        node = self._root
        for level in levels[:-1] if levels[-1] == "#" else levels:
            path.append((node, level))
            below = node.any_level if level == "+" else node.below.get(level)
            assert below is not None, "a filter of the table is in the tree"
            node = below
        for parent, level in reversed(path):
            if not node.is_empty():
                return
            if level == "+":
                parent.any_level = None
            else:
                del parent.below[level]
            node = parent

    def match(self, topic: str) -> tuple[V, ...]:
        """Returns the values of every filter matching the name, a value once for each such filter."""
        found = self._memo.get(topic)
        if found is None:
            found = self._find(topic)
            if len(topic) > MEMO_CHARS or topic[:1] == "$":
                return found
            if len(self._memo) >= self._memo_topics:
                self._memo.clear()
            self._memo[topic] = found
        return found

    def reaches(self, topic: str) -> bool:
        """Returns True if any filter matches the name. Remembers nothing: for names that are asked about once."""
        return topic in self._exact or (bool(self._wild) and bool(self._find(topic)))

    def _find(self, topic: str) -> tuple[V, ...]:
        held = self._exact.get(topic, ())
        found: list[V] = list(held.values() if isinstance(held, dict) else held[1:])
        if not self._wild:
            return tuple(found)
        levels = topic.split("/")
        nodes = [self._root]
        for place, level in enumerate(levels):
            dollar = place == 0 and level[:1] == "$"
            following: list[_Level[V]] = []
            for node in nodes:
                if node.rest and not dollar:
                    found.extend(node.rest.values())
                if (below := node.below.get(level)) is not None:
                    following.append(below)
                if node.any_level is not None and not dollar:
                    following.append(node.any_level)
            nodes = following
            if not nodes:
                break
        for node in nodes:
            # `a/#` matches its parent `a` as well (§4.7.1.2).
            found.extend(node.here.values())
            found.extend(node.rest.values())
        return tuple(found)


class _Name:
    """A level of the tree of names; `below` is keyed by the next level."""

    __slots__ = ("below", "name")

    def __init__(self) -> None:
        self.below: dict[str, _Name] = _NOTHING_BELOW
        self.name: str | None = None

    def level(self, level: str) -> _Name:
        """Returns the node of the next level, made if it is not there."""
        if self.below is _NOTHING_BELOW:
            self.below = {}
        node = self.below.get(level)
        if node is None:
            node = self.below[level] = _Name()
        return node


_NOTHING_BELOW: dict[str, _Name] = {}
"""The levels below each name that ends the tree: most names do, and a dictionary of their own takes 64 bytes."""


class NameTree:
    """A set of topic names finding the names a filter matches: the mirror image of `TopicIndex`.

    For retained messages: a filter `plant/+/state` visits `plant` and its children, not every name.
    """

    def __init__(self) -> None:
        self._root = _Name()

    def add(self, topic: str) -> None:
        node = self._root
        for level in topic.split("/"):
            node = node.level(level)
        node.name = topic

    def discard(self, topic: str) -> None:
        """Removes a name; an unknown name is ignored."""
        path: list[tuple[_Name, str]] = []
        node: _Name | None = self._root
        for level in topic.split("/"):
            assert node is not None
            path.append((node, level))
            node = node.below.get(level)
            if node is None:
                return
        assert node is not None
        node.name = None
        for parent, level in reversed(path):
            below = parent.below[level]
            if below.below or below.name is not None:
                return
            del parent.below[level]

    def matching(self, topic_filter: str) -> Iterator[str]:
        """Yields the names the valid filter matches, in no order.

        The tree may change between two names: a name that was there all the time comes once, one that came or went
        meanwhile once or not at all.
        """
        levels = topic_filter.split("/")
        waiting = [(iter((self._root,)), 0)]  # for each level above the next node: nodes to visit, and their place
        while waiting:
            nodes, place = waiting[-1]
            node = next(nodes, None)
            if node is None:
                waiting.pop()
                continue
            level = levels[place] if place < len(levels) else ""
            # `a/#` matches its parent `a` as well (§4.7.1.2).
            if node.name is not None and (place == len(levels) or level == "#"):
                yield node.name
            if place == len(levels) or not node.below:
                continue
            if level in ("+", "#"):
                found = list(node.below.values()) if node is not self._root else self._without_dollar()
                waiting.append((iter(found), place if level == "#" else place + 1))
            elif (below := node.below.get(level)) is not None:
                waiting.append((iter((below,)), place + 1))

    def _without_dollar(self) -> list[_Name]:
        """Returns the first levels that wildcards match (MQTT-4.7.2-1)."""
        return [below for name, below in self._root.below.items() if name[:1] != "$"]
