"""Retained messages for a new subscription: the messages of this broker, and values arriving over the overlay.

Messages of this broker follow the SUBACK, a part at a time, as fast as the client reads. A scope of the overlay
without
a local subscriber is different: its values are still under way, and the broker's own copies may be out of date. A new
subscription to such a scope *expects* values. A value that replicas had retained goes to an expecting subscription as
a
retained message on arrival, if the retain handling allows retained messages; older copies of this broker follow when
the scope is settled. Earlier subscribers missed such a value and get a normal publication. Not here: settling of
scopes
(`gateway.overlay.settling`), SUBACK (`subscribing.py`). Source: MQTT 5.0 §3.3.1.3, §3.8.3.1, §3.8.4.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from bridge.base import TopicIndex, matches, split_share
from bridge.contract import Publication
from gateway.base import TURN_S, Turn
from gateway.base.log_events import LogEvent
from gateway.broker.exchange import Exchange
from gateway.broker.session_shares import owner_of
from gateway.clients import Client, SharedName, message_of, wants
from gateway.mqtt5.message import Message
from gateway.mqtt5.session import Granted, SessionSubscription
from gateway.plugins import Action
from gateway.sockets.flushing import Later

log = logging.getLogger("veilmq.broker")

RETAINED_TURN_BYTES = 1 << 20
"""Retained messages of a new subscription are handed over in parts of so many bytes."""

LOOKS_AT_ONCE = 512
"""Filters and retained messages of new subscriptions that are looked at in one turn of the event loop; the turn ends
sooner by the clock, since one filter may walk over many names. Stops a SUBSCRIBE of which the client may receive
little, or that matches little among many names.
"""
PAUSED_S = 0.01
"""Seconds between two checks if a client takes retained messages again."""

Began: TypeAlias = tuple[int, int]
"""Counts of messages retained, by clients and by the system, when a subscription began."""


@dataclass(slots=True)
class _Expected:
    """Subscription that expects values. `wants`: the retain handling allows retained messages. `owed`: clear filters of
    scopes whose older messages of this broker are still to be sent.
    """

    subscription: SessionSubscription
    began: Began
    wants: bool
    owed: set[str] = field(default_factory=set)


class _Expecting:
    """Subscriptions of a client that expect values, by filter, with an index for topics of values: thousands of values
    may come for thousands of filters.
    """

    __slots__ = ("_names", "by_filter")

    def __init__(self) -> None:
        self.by_filter: dict[str, _Expected] = {}
        self._names: TopicIndex[str] = TopicIndex(memo_topics=1)  # values come for ever new names

    def put_filter(self, topic_filter: str, expected: _Expected) -> None:
        self.by_filter[topic_filter] = expected
        self._names.add(split_share(expected.subscription.options.base)[1], topic_filter, topic_filter)

    def drop_filter(self, topic_filter: str) -> None:
        """Takes a subscription out, if it is here."""
        gone = self.by_filter.pop(topic_filter, None)
        if gone is not None:
            self._names.remove(split_share(gone.subscription.options.base)[1], topic_filter)

    def matching(self, topic: str) -> list[tuple[str, _Expected]]:
        return [(each, self.by_filter[each]) for each in self._names.match(topic)]


class _AtOnce:
    """Retained messages sent at once in one turn of the event loop, to all clients: a read may bring a thousand
    SUBSCRIBEs, and the client takes nothing before the turn is over.
    """

    __slots__ = ("ends", "given_bytes", "looks")

    def __init__(self) -> None:
        self.looks, self.given_bytes, self.ends = 0, 0, time.perf_counter() + TURN_S

    @property
    def is_enough(self) -> bool:
        return self.looks > LOOKS_AT_ONCE or self.given_bytes > RETAINED_TURN_BYTES or time.perf_counter() > self.ends


class RetainedSending:
    """Sender of retained messages of a broker."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self._host = exchange, exchange.host
        # By client and filter: bounded by subscriptions, and gone when their scopes are settled.
        self._expected: dict[Client, _Expecting] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._following: set[Client] = set()  # clients with a task that sends owed messages
        self._at_once: _AtOnce | None = None  # in this turn of the event loop

    def detach(self, later: Later) -> None:
        """Runs a coroutine without a waiting connection."""
        task = asyncio.get_running_loop().create_task(later)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LogEvent.CONNECTION_FAILED.say(log, "retained messages", exc_info=error)

    # ------------------------------------------------------------------------------------- new subscriptions

    def _unsettled(self, subscription: SessionSubscription) -> list[str]:
        unsettled = getattr(self._exchange.overlay, "unsettled", None)
        return [] if unsettled is None else unsettled([split_share(subscription.options.base)[1]])

    def expect(self, client: Client, granted: Granted, began: Began, existed: Collection[str]) -> None:
        """Enters granted subscriptions to unsettled scopes. `existed`: earlier filters of the client."""
        if self._exchange.overlay is None:
            return
        entitled = {subscription.options.filter for subscription in granted.retained}
        for subscription in granted.subscriptions:
            topic_filter = subscription.options.filter
            former = self._of(client).get(topic_filter)
            if (former is None and topic_filter in existed) or not (scopes := self._unsettled(subscription)):
                continue
            if topic_filter in entitled:
                expected = _Expected(subscription, began, True, set(scopes))
            elif former is not None:
                expected = _Expected(subscription, former.began, former.wants, former.owed)
            else:
                expected = _Expected(subscription, began, False)
            self._expected.setdefault(client, _Expecting()).put_filter(topic_filter, expected)

    def _of(self, client: Client) -> Mapping[str, _Expected]:
        mine = self._expected.get(client)
        return {} if mine is None else mine.by_filter

    def forget_subscriptions(self, client: Client, topic_filter: str | None = None) -> None:
        """Drops a single subscription of a client, or all subscriptions of an ended session (None)."""
        if topic_filter is None:
            self._expected.pop(client, None)
        elif (mine := self._expected.get(client)) is not None:
            mine.drop_filter(topic_filter)
            if not mine.by_filter:
                del self._expected[client]

    def send_new(self, client: Client, subscriptions: Sequence[SessionSubscription], began: Began) -> Later | None:
        """Sends retained messages for acknowledged subscriptions; messages of unsettled scopes follow later."""
        mine = self._of(client)
        asked = {each.options.filter: mine.get(each.options.filter) for each in subscriptions}
        owed = {name: tuple(one.owed) for name, one in asked.items() if one is not None and one.owed}
        # One after the other while their messages are looked for: thousands take longer than a turn.
        held = (one for one in subscriptions if client.filters.get(one.options.filter) is one)
        if owed and client not in self._following:
            self._following.add(client)
            self.detach(self._send_owed(client))
        return self._send_pending(
            client, self._retained_for(((one, owed.get(one.options.filter, ())) for one in held), began)
        )

    async def _send_owed(self, client: Client) -> None:
        """Sends older messages of unsettled scopes after settling, or after the longest wait."""
        turn = Turn(self._exchange.turns, owner_of(client.view))
        try:
            while owed := {scope for one in self._of(client).values() for scope in one.owed}:
                await self._until_settled(owed)
                for one in list(self._of(client).values()):
                    scopes, one.owed = one.owed & owed, one.owed - owed
                    later = self._send_pending(client, self._of_scopes(one, scopes)) if scopes else None
                    if later is not None:
                        await later
                    if turn.is_over:
                        await turn.end_turn()
                for topic_filter, one in list(self._of(client).items()):
                    is_here = self._of(client).get(topic_filter) is one
                    if is_here and not one.owed and not self._unsettled(one.subscription):
                        self.forget_subscriptions(client, topic_filter)
                    if turn.is_over:
                        await turn.end_turn()
        finally:
            self._following.discard(client)

    async def _until_settled(self, scopes: Collection[str]) -> None:
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done() -> None:
            if not settled.done():
                settled.set_result(None)

        when_settled = getattr(self._exchange.overlay, "when_settled", None)
        if when_settled is not None and when_settled(scopes, done):
            await settled

    # ------------------------------------------------------------------------------------------ from the overlay

    def deliver_stored(self, publication: Publication, groups_lost: Collection[SharedName] = ()) -> None:
        """Routes a publication from the retained state of replicas. Raises TopicError."""
        exchange = self._exchange
        if exchange.tracing is not None and exchange.tracing.take_arrival(publication):
            return
        message = message_of(publication, exchange.now())
        was_here = message.topic in exchange.retained
        if message.retain:
            exchange.retain(None, message)
        plan = exchange.delivery.router.plan_for(message.topic, message)
        receivers = [target.client for target in plan.targets]
        receivers += [member for group in plan.groups for member in group.members]
        expecting = {client for client in receivers if self._expects(client, message, was_here)}
        later = exchange.delivery.route(message, None, groups_lost, expecting)
        if later is not None:
            exchange.in_order(later)

    def _expects(self, client: Client, message: Message, was_here: bool) -> bool:
        """Returns whether subscriptions of the client to the topic expect values, and sends the value to them.

        A client with an old value of this broker (`was_here`) hears of a cleared topic as earlier subscribers do.
        """
        found = False
        mine = self._expected.get(client)
        for topic_filter, one in () if mine is None else mine.matching(message.topic):
            if not self._unsettled(one.subscription) and not one.owed:
                self.forget_subscriptions(client, topic_filter)
                continue
            if was_here and one.wants and not one.owed and not message.payload:
                continue
            found = True
            if one.wants and message.retain and message.payload and wants(one.subscription.options, message):
                later = self._send_pending(client, iter([(one.subscription, message)]))
                if later is not None:
                    self._exchange.in_order(later)
        return found

    # ------------------------------------------------------------------------------------------------- sending

    def _of_scopes(
        self, one: _Expected, scopes: Collection[str]
    ) -> Iterator[tuple[SessionSubscription, Message] | None]:
        """Yields retained messages of these scopes, and None for each message of another scope."""
        for found in self._retained_for([(one.subscription, ())], one.began):
            is_of_them = found is not None and any(matches(scope, found[1].topic) for scope in scopes)
            yield found if is_of_them else None

    def _retained_for(
        self, subscriptions: Iterable[tuple[SessionSubscription, Collection[str]]], began: Began
    ) -> Iterator[tuple[SessionSubscription, Message] | None]:
        """Yields retained messages of each subscription, without topics of the filters in the second place; None before
        each subscription.
        """
        now = self._exchange.now()
        for subscription, left_out in subscriptions:
            yield None
            topic_filter, is_choosy = subscription.options.base, bool(subscription.options.predicate)
            stores = [self._exchange.retained]
            if topic_filter.startswith("$"):  # wildcards match no such name (MQTT-4.7.2-1)
                stores.append(self._exchange.system)
            for store, until in zip(stores, began, strict=False):
                for message in store.matching(topic_filter, now, until):
                    if left_out and any(matches(each, message.topic) for each in left_out):
                        continue
                    if not is_choosy or wants(subscription.options, message):
                        yield subscription, message

    def _send_pending(
        self, client: Client, pending: Iterator[tuple[SessionSubscription, Message] | None]
    ) -> Later | None:
        """Sends a few messages at once; returns a coroutine for many messages, a slow client or a slow plugin."""
        now, at_once = self._exchange.now(), self._at_once
        if at_once is None:
            at_once = self._at_once = _AtOnce()
            asyncio.get_running_loop().call_soon(self._turn_ends)
        for one in pending:
            at_once.looks += 1
            if at_once.is_enough:
                return self._send_slowly(client, chain([one], pending))
            if one is None:
                continue
            subscription, message = one
            verdict = self._host.verdict(client.view, message.topic, Action.RECEIVE)
            if verdict is None or client.session.paused or client.is_behind:
                return self._send_slowly(client, chain([one], pending))
            if verdict:
                at_once.given_bytes += message.held_bytes
                self._give(client, subscription, message, now)
        return None

    def _turn_ends(self) -> None:
        self._at_once = None

    async def _send_slowly(self, client: Client, pending: Iterator[tuple[SessionSubscription, Message] | None]) -> None:
        """Sends a part at a time: 100,000 messages for a client without reading fill no memory, and names the client
        may not receive, or that do not match, keep nobody else waiting.
        """
        connection, given_bytes, looks = client.connection, RETAINED_TURN_BYTES, 0
        turn, now = Turn(self._exchange.turns, owner_of(client.view)), self._exchange.now()
        for one in pending:
            looks += 1
            if looks >= LOOKS_AT_ONCE or turn.is_over:
                await turn.end_turn()
                looks, now = 0, self._exchange.now()
            if one is None:
                continue
            subscription, message = one
            verdict = self._host.verdict(client.view, message.topic, Action.RECEIVE)
            if verdict is None:
                verdict = await self._host.ask_topic_plugins(client.view, message.topic, Action.RECEIVE)
            if given_bytes >= RETAINED_TURN_BYTES or client.session.paused:
                given_bytes = 0
                await turn.end_turn()
                # Something else may have filled its buffer again, or what was given waits for the disk: `room` tells of
                # neither, and would come back at once for ever.
                while connection is not None and await connection.room() and client.session.paused:  # noqa: ASYNC110
                    await asyncio.sleep(PAUSED_S)
                now = self._exchange.now()
            if client.is_behind and connection is not None:
                connection.read_on()  # otherwise its acknowledgements would wait
                await self._exchange.holding.until_taken(client)
                now = self._exchange.now()
            if not client.alive:
                return
            if verdict:
                given_bytes += len(message.payload) + len(message.topic)
                self._give(client, subscription, message, now)

    def _give(self, client: Client, subscription: SessionSubscription, message: Message, now: float) -> None:
        qos, identifier = min(message.qos, subscription.options.qos), subscription.identifier
        if not (qos or identifier) and client.connection is not None and self._exchange.delivery.followed is None:
            data = client.session.recall(message)
            if data is not None:
                client.connection.write(data)
                return
        self._exchange.delivery.give(client, message, qos, True, (identifier,) if identifier else (), now)
