"""Receivers of a publication, with QoS and identifiers: subscriptions and shared groups.

A `DeliveryPlan` is computed once per topic and kept until a relevant subscription changes, so that a publication costs
one or two dict look-ups however many subscribers there are. Predicates are evaluated only for topics that have some.
Knows no sessions, sockets or permissions. Source: MQTT 5.0 §3.3.4 (overlapping subscriptions: a copy at the highest
QoS, with all identifiers), §3.8.3.1 (options), §4.8.2 (shared subscriptions).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from bridge.base import MEMO_CHARS, MEMO_TOPICS, TopicIndex
from bridge.predicates import Predicate, PredicateIndex, bits_of, slots_of, widen
from gateway.clients.content_filters import Carried, attributes_of, predicate_of, route_name
from gateway.mqtt5.packets import Subscription

COVERED_MAX = 1_024
"""Predicates of one filter whose cover is told to others; above it, the filter alone: joining more takes time."""
NARROWED_MAX = 4_096
"""Narrowed filters that are remembered until the next query; all others stay as wide as before."""
C = TypeVar("C")


@dataclass(slots=True, eq=False)
class RouteEntry(Generic[C]):
    """Subscription of a client. `filter`: without share prefix; `identifier` 0: none. `slots`: of its predicate in the
    router's index; None: all content, or its group has the predicate.
    """

    client: C
    filter: str
    options: Subscription
    identifier: int
    slots: tuple[int, ...] | None = None


class SharedGroup(Generic[C]):
    """Shared subscription: each publication goes to a member, in turn. `slots`: of its predicate in the router's
    index. `wide`: the members that may receive every topic the filter matches.
    """

    __slots__ = ("filter", "members", "name", "slots", "turn", "wide")

    def __init__(self, name: str, topic_filter: str, slots: tuple[int, ...] | None = None) -> None:
        self.name, self.filter, self.slots = name, topic_filter, slots
        self.members: dict[C, RouteEntry[C]] = {}
        self.wide: set[C] = set()
        self.turn = 0

    def in_turn(self) -> Iterator[RouteEntry[C]]:
        """Yields the members, beginning with the one whose turn it is; the next call begins one further."""
        members = list(self.members.values())
        start = self.turn = (self.turn + 1) % len(members)
        yield from members[start:]
        yield from members[:start]


@dataclass(slots=True, eq=False)
class Target(Generic[C]):
    """Client getting the topic by its ordinary subscriptions, however many of them match."""

    client: C
    qos: int
    retain_as_published: bool
    subscription_ids: tuple[int, ...]
    no_local: bool
    entries: tuple[RouteEntry[C], ...]

    @classmethod
    def from_entries(cls, entries: tuple[RouteEntry[C], ...]) -> Target[C]:
        return cls(
            client=entries[0].client,
            qos=max(entry.options.qos for entry in entries),
            retain_as_published=any(entry.options.retain_as_published for entry in entries),
            subscription_ids=tuple(entry.identifier for entry in entries if entry.identifier),
            no_local=any(entry.options.no_local for entry in entries),
            entries=entries,
        )

    def for_own_publication(self) -> Target[C] | None:
        """Returns the target without its No Local subscriptions, for a message the client itself published
        (§3.8.3.1).
        """
        if not self.no_local:
            return self
        entries = tuple(entry for entry in self.entries if not entry.options.no_local)
        return Target.from_entries(entries) if entries else None


@dataclass(slots=True, eq=False)
class DeliveryPlan(Generic[C]):
    """Receivers of a topic. `found` shows if the index still has the same entries; `name`: the topic in UTF-8.

    `refused`: the bound the topic exceeds, if any. `choices`: receivers with predicates, which are not among `targets`
    and `groups` (`Router.plan_for`). `is_odd`: True if `refused` or `choices` is set.
    """

    name: bytes
    found: tuple[Any, ...]
    targets: tuple[Target[C], ...]
    groups: tuple[SharedGroup[C], ...]
    refused: str | None = None
    choices: Choices[C] | None = None
    withheld: int = 0
    is_odd: bool = False


class Choices(Generic[C]):
    """Subscriptions and groups of a topic that have a predicate, and their evaluation for a message.

    Rights come first: a predicate of a client that may not receive the topic is neither evaluated nor counted, or
    counts would tell the content (`judge`).
    """

    __slots__ = ("_by_slot", "_clients", "_count", "_groups", "_index", "_mask", "_mixed", "_open", "version")

    def __init__(
        self, index: PredicateIndex, chosen: list[RouteEntry[C] | SharedGroup[C]], mixed: dict[int, list[RouteEntry[C]]]
    ) -> None:
        """`mixed`: by client, the subscriptions without predicate of clients that also have some with one."""
        self._index, self._mixed = index, mixed
        self._clients: dict[int, tuple[C, list[RouteEntry[C]]]] = {}
        self._groups = [one for one in chosen if isinstance(one, SharedGroup)]
        for one in chosen:
            if isinstance(one, RouteEntry):
                self._clients.setdefault(id(one.client), (one.client, []))[1].append(one)
        self._by_slot: dict[int, RouteEntry[C] | SharedGroup[C] | Target[C]] = {}
        held = Counter(id(one.client) for one in chosen if isinstance(one, RouteEntry))
        for one in chosen:
            alone = isinstance(one, RouteEntry) and held[id(one.client)] == 1 and id(one.client) not in mixed
            kept = Target.from_entries((one,)) if alone and isinstance(one, RouteEntry) else one
            self._by_slot.update(dict.fromkeys(one.slots or (), kept))
        self._mask = self._open = bits_of(self._by_slot)
        self._count = len(chosen) - len(self._groups)
        self.version = -1
        """Version of the rights that `judge` used; -1: they are not to be reused."""

    def receivers(self) -> Iterator[C]:
        """Yields the clients whose rights have to be known."""
        yield from (client for client, _ in self._clients.values())
        for group in self._groups:
            yield from group.members

    def judge(self, may: Callable[[C], bool], version: int = -1) -> None:
        """Sets the clients that may receive the topic from now on."""
        refused = [entries for client, entries in self._clients.values() if not may(client)]
        hidden = bits_of(slot for entries in refused for entry in entries for slot in entry.slots or ())
        self._open = self._mask & ~hidden if refused else self._mask
        self._count = sum(len(entries) for _, entries in self._clients.values()) - sum(map(len, refused))
        self.version = version

    def plan(
        self, base: DeliveryPlan[C], message: Carried, may: Callable[[C], bool] = lambda client: True
    ) -> DeliveryPlan[C]:
        """Returns the receivers of this message: those of `base`, the plan of subscriptions without predicate, and
        clients whose predicates hold. `may(client)`: True if a member of a shared group may receive the topic.
        """
        matched = self._index.match(attributes_of(message), self._open)
        found = dict.fromkeys(self._by_slot[slot] for slot in slots_of(matched))
        targets, groups = list(base.targets), list(base.groups)
        merged = {client: list(entries) for client, entries in self._mixed.items()}
        for one in found:
            if isinstance(one, Target):
                targets.append(one)
            elif isinstance(one, SharedGroup):
                groups.append(one)
            else:
                merged.setdefault(id(one.client), []).append(one)
        targets += [Target.from_entries(tuple(entries)) for entries in merged.values()]
        groups_found = sum(isinstance(one, SharedGroup) for one in found)
        withheld = self._count - (len(found) - groups_found)
        withheld += sum(group not in found and any(map(may, group.members)) for group in self._groups)
        return DeliveryPlan(base.name, base.found, tuple(targets), tuple(groups), base.refused, None, withheld)


class Router(Generic[C]):
    """Router of the subscriptions of all clients. A client `C` is compared by identity."""

    def __init__(
        self, refuses: Callable[[str], str | None] = lambda topic: None, owner: Callable[[C], str] = lambda client: ""
    ) -> None:
        """`refuses`: returns the bound a topic exceeds, which its plan then names; called once while the plan is
        remembered. `owner`: returns the user or address for whom the predicates of a client count.
        """
        self._refuses, self._owner = refuses, owner
        self._index: TopicIndex[RouteEntry[C] | SharedGroup[C]] = TopicIndex()
        self._plans: dict[str, DeliveryPlan[C]] = {}
        self._predicates = PredicateIndex()
        self.predicates = 0  # subscriptions that have one
        self.narrowed: set[str] = set()  # filters that lost a subscription while some had predicates

    def replace_refusals(self, refuses: Callable[[str], str | None]) -> None:
        """Replaces the check of the bounds of a topic, and drops all plans."""
        self._refuses = refuses
        self._plans.clear()

    def subscribe(self, client: C, options: Subscription, identifier: int = 0) -> bool:
        """Adds or replaces a subscription. True if its filter (without share prefix) is new to the broker.

        Raises `bridge.base.topics.TopicError`.
        """
        group_name, topic_filter = route_name(options)
        predicate = predicate_of(options)
        entry = RouteEntry(client, topic_filter, options, identifier)
        self.predicates += predicate is not None
        if group_name is None:
            key = _key(client, options)
            if self.predicates:
                self._forget_predicate(self._index.entry(topic_filter, key))
            if predicate is not None:
                entry.slots = self._predicates.add(predicate, self._owner(client))
            return self._index.add(topic_filter, key, entry)
        group = self.group(group_name, topic_filter)
        fresh = False
        if group is None:
            slots = None if predicate is None else self._predicates.add(predicate, self._owner(client))
            group = SharedGroup(group_name, topic_filter, slots)
            fresh = self._index.add(topic_filter, group_name, group)
        elif client in group.members:
            self.predicates -= predicate is not None
        group.members[client] = entry
        return fresh

    def has_room(self, client: C, predicates: list[Predicate]) -> bool:
        """True if subscriptions of a client with these predicates may be added."""
        return self._predicates.has_room(predicates, self._owner(client))

    def _forget_predicate(self, held: RouteEntry[C] | SharedGroup[C] | None) -> None:
        """Removes the predicate of an entry from the index, and notes its filter as narrowed."""
        if held is not None and self.predicates and len(self.narrowed) < NARROWED_MAX:
            self.narrowed.add(held.filter)
        if held is not None and held.slots is not None:
            self._predicates.remove(held.slots)
            self.predicates -= isinstance(held, RouteEntry)

    def unsubscribe(self, client: C, options: Subscription) -> bool:
        """Removes a subscription. True if no other client holds its filter (without share prefix)."""
        group_name, topic_filter = route_name(options)
        if group_name is None:
            self._forget_predicate(self._index.entry(topic_filter, _key(client, options)))
            return self._index.remove(topic_filter, _key(client, options))
        group = self.group(group_name, topic_filter)
        if group is None or group.members.pop(client, None) is None:
            return False
        group.wide.discard(client)
        self.predicates -= group.slots is not None
        if group.members:
            return False
        self._forget_predicate(group)
        return self._index.remove(topic_filter, group_name)

    def group(self, name: str, topic_filter: str) -> SharedGroup[C] | None:
        """Returns the shared group of that name and filter (without share prefix), if it has members."""
        found = self._index.entry(topic_filter, name)
        return found if isinstance(found, SharedGroup) else None

    def groups(self) -> list[SharedGroup[C]]:
        """Returns every shared group that has members."""
        found = [value for topic_filter in self._index for value in self._index.entries(topic_filter).values()]
        return [group for group in found if isinstance(group, SharedGroup)]

    def filters(self) -> list[str]:
        """Returns the distinct filters of local clients, share prefixes stripped."""
        return list(self._index)

    def wanted_of(self, topic_filter: str) -> Predicate | None:
        """Returns a predicate holding for every message a subscription of this filter wants. None: all content."""
        predicates: list[Predicate] = []
        for value in self._index.entries(topic_filter).values():
            options = next(iter(value.members.values())).options if isinstance(value, SharedGroup) else value.options
            predicate = predicate_of(options)
            if predicate is None or len(predicates) >= COVERED_MAX:
                return None
            predicates.append(predicate)
        return widen(predicates) if predicates else None

    def entries(self) -> Iterator[RouteEntry[C]]:
        """Yields every subscription of every client."""
        for topic_filter in self._index:
            for value in self._index.entries(topic_filter).values():
                if isinstance(value, SharedGroup):
                    yield from value.members.values()
                else:
                    yield value

    def reaches(self, topic: str) -> bool:
        """True if any client subscribed to the topic; remembers nothing, for topics that are not asked again."""
        return self._index.reaches(topic)

    def plan(self, topic: str) -> DeliveryPlan[C]:
        """Returns the receivers of a topic."""
        found = self._index.match(topic)
        plan = self._plans.get(topic)
        # The index hands out the same tuple until a change of its filters could alter it.
        if plan is not None and plan.found is found:
            return plan
        by_client: dict[int, list[RouteEntry[C]]] = {}
        groups: list[SharedGroup[C]] = []
        chosen: list[RouteEntry[C] | SharedGroup[C]] = []
        for value in found:
            if value.slots is not None:
                chosen.append(value)
            elif isinstance(value, SharedGroup):
                groups.append(value)
            else:
                by_client.setdefault(id(value.client), []).append(value)
        choices = None
        if chosen:
            some = {id(value.client) for value in chosen if isinstance(value, RouteEntry)}
            choices = Choices(self._predicates, chosen, {each: by_client.pop(each) for each in some & by_client.keys()})
        targets = tuple(Target.from_entries(tuple(entries)) for entries in by_client.values())
        plan = DeliveryPlan(topic.encode(), found, targets, tuple(groups), self._refuses(topic), choices)
        plan.is_odd = plan.refused is not None or choices is not None
        if len(topic) > MEMO_CHARS or topic[:1] == "$":  # as in the index
            return plan
        if len(self._plans) >= MEMO_TOPICS:
            self._plans.clear()
        self._plans[topic] = plan
        return plan

    def plan_for(self, topic: str, message: Carried) -> DeliveryPlan[C]:
        """Returns the receivers of this message of the topic."""
        plan = self.plan(topic)
        return plan if plan.choices is None else plan.choices.plan(plan, message)


def _key(client: Hashable, options: Subscription) -> Hashable:
    """Returns the key of a subscription: a client holds a filter once, and once more for every expression behind
    it.
    """
    return (client, options.predicate) if options.predicate[:1] == "?" else client
