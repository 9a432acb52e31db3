"""Which clients get a publication, at which QoS and with which identifiers: subscriptions and shared groups.

A `DeliveryPlan` is computed once per topic and kept until a subscription that matters changes, so that a publication
costs one or two dict look-ups however many subscribers there are. Knows no sessions, sockets or permissions.
Source: MQTT 5.0 §3.3.4 (overlapping subscriptions: one copy at the highest QoS, with all identifiers),
§3.8.3.1 (options), §4.8.2 (shared subscriptions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bridge.base import MEMO_CHARS, MEMO_TOPICS, TopicIndex, split_share
from gateway.mqtt5.packets import Subscription

C = TypeVar("C")


@dataclass(slots=True, eq=False)
class RouteEntry(Generic[C]):
    """One subscription of one client. `filter`: without share prefix; `identifier` 0: none."""

    client: C
    filter: str
    options: Subscription
    identifier: int


class SharedGroup(Generic[C]):
    """A shared subscription: each publication goes to one member, in turn."""

    __slots__ = ("filter", "members", "name", "turn")

    def __init__(self, name: str, topic_filter: str) -> None:
        self.name, self.filter = name, topic_filter
        self.members: dict[C, RouteEntry[C]] = {}
        self.turn = 0

    def in_turn(self) -> Iterator[RouteEntry[C]]:
        """The members, beginning with the one whose turn it is; the next call begins one further."""
        members = list(self.members.values())
        start = self.turn = (self.turn + 1) % len(members)
        yield from members[start:]
        yield from members[:start]


@dataclass(slots=True, eq=False)
class Target(Generic[C]):
    """One client that gets the topic by its ordinary subscriptions, however many of them match."""

    client: C
    qos: int
    retain_as_published: bool
    subscription_ids: tuple[int, ...]
    no_local: bool
    entries: tuple[RouteEntry[C], ...]

    @classmethod
    def of(cls, entries: tuple[RouteEntry[C], ...]) -> Target[C]:
        return cls(
            client=entries[0].client,
            qos=max(entry.options.qos for entry in entries),
            retain_as_published=any(entry.options.retain_as_published for entry in entries),
            subscription_ids=tuple(entry.identifier for entry in entries if entry.identifier),
            no_local=any(entry.options.no_local for entry in entries),
            entries=entries,
        )

    def for_own_publication(self) -> Target[C] | None:
        """What is left of the target where it published the message itself (No Local, §3.8.3.1)."""
        if not self.no_local:
            return self
        entries = tuple(entry for entry in self.entries if not entry.options.no_local)
        return Target.of(entries) if entries else None


@dataclass(slots=True, eq=False)
class DeliveryPlan(Generic[C]):
    """Receivers of one topic. `found` tells whether the index still says the same; `name`: the topic in UTF-8.

    `refused`: the bound that the topic exceeds, if any.
    """

    name: bytes
    found: tuple[Any, ...]
    targets: tuple[Target[C], ...]
    groups: tuple[SharedGroup[C], ...]
    refused: str | None = None


class Router(Generic[C]):
    """Subscriptions of all clients. A client `C` is compared by identity."""

    def __init__(self, refuses: Callable[[str], str | None] = lambda topic: None) -> None:
        """`refuses`: the bound that a topic exceeds, which its plan then names; asked once while it is remembered."""
        self._refuses = refuses
        self._index: TopicIndex[RouteEntry[C] | SharedGroup[C]] = TopicIndex()
        self._plans: dict[str, DeliveryPlan[C]] = {}

    def refuse(self, refuses: Callable[[str], str | None]) -> None:
        """Another answer to which bound a topic exceeds."""
        self._refuses = refuses
        self._plans.clear()

    def subscribe(self, client: C, options: Subscription, identifier: int = 0) -> bool:
        """Add or replace a subscription. True if its filter (without share prefix) is new to the broker.

        Raises `bridge.base.topics.TopicError`.
        """
        group_name, topic_filter = split_share(options.filter)
        entry = RouteEntry(client, topic_filter, options, identifier)
        if group_name is None:
            return self._index.add(topic_filter, id(client), entry)
        group = self.group(group_name, topic_filter)
        fresh = False
        if group is None:
            group = SharedGroup(group_name, topic_filter)
            fresh = self._index.add(topic_filter, group_name, group)
        group.members[client] = entry
        return fresh

    def unsubscribe(self, client: C, topic_filter: str) -> bool:
        """Remove a subscription. True if nobody else holds its filter (without share prefix)."""
        group_name, topic_filter = split_share(topic_filter)
        if group_name is None:
            return self._index.remove(topic_filter, id(client))
        group = self.group(group_name, topic_filter)
        if group is None or group.members.pop(client, None) is None or group.members:
            return False
        return self._index.remove(topic_filter, group_name)

    def group(self, name: str, topic_filter: str) -> SharedGroup[C] | None:
        """The shared group of that name and filter (without share prefix), if it has members."""
        found = self._index.entry(topic_filter, name)
        return found if isinstance(found, SharedGroup) else None

    def groups(self) -> list[tuple[str, str]]:
        """Name and filter of every shared group that has members."""
        found = [value for topic_filter in self._index for value in self._index.entries(topic_filter).values()]
        return [(group.name, group.filter) for group in found if isinstance(group, SharedGroup)]

    def filters(self) -> list[str]:
        """Distinct filters that local clients hold, share prefixes stripped."""
        return list(self._index)

    def entries(self) -> Iterator[RouteEntry[C]]:
        """Every subscription of every client."""
        for topic_filter in self._index:
            for value in self._index.entries(topic_filter).values():
                if isinstance(value, SharedGroup):
                    yield from value.members.values()
                else:
                    yield value

    def plan(self, topic: str) -> DeliveryPlan[C]:
        """Who gets the topic."""
        found = self._index.match(topic)
        plan = self._plans.get(topic)
        # The index hands out the same tuple until a change of its filters could alter it.
        if plan is not None and plan.found is found:
            return plan
        by_client: dict[int, list[RouteEntry[C]]] = {}
        groups: list[SharedGroup[C]] = []
        for value in found:
            if isinstance(value, SharedGroup):
                groups.append(value)
            else:
                by_client.setdefault(id(value.client), []).append(value)
        targets = tuple(Target.of(tuple(entries)) for entries in by_client.values())
        plan = DeliveryPlan(topic.encode(), found, targets, tuple(groups), self._refuses(topic))
        if len(topic) > MEMO_CHARS:
            return plan
        if len(self._plans) >= MEMO_TOPICS:
            self._plans.clear()
        self._plans[topic] = plan
        return plan
