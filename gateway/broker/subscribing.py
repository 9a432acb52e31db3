"""SUBSCRIBE and UNSUBSCRIBE: rights, answers and their times.

`routing.py` has shared subscriptions and overlapping filters, `exchange.py` delivery, `retained_sending.py` retained
messages. A member of the overlay is granted every filter, but its filters go to the overlay, never into the local
router. Source: MQTT 5.0 §3.8 to §3.11.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from amqtt.events import BrokerEvents

from bridge.base import SHARE_PREFIX, TopicError, TopicIndex, split_share
from bridge.contract import Publication
from bridge.document import constrained
from bridge.predicates import Predicate
from gateway.base import Turn
from gateway.broker.exchange import Exchange
from gateway.broker.retained_sending import Began, RetainedSending
from gateway.broker.session_shares import owner_of
from gateway.clients import (
    Client,
    ClientConnection,
    LocalGroup,
    SharedGroup,
    SharedName,
    all_predicates,
    fits,
    inner_filter,
    message_of,
    predicate_of,
    route_name,
    since_ms,
    split_expression,
    wants,
    with_predicates,
    with_since,
)
from gateway.mqtt5.bridge_clients import as_bridge
from gateway.mqtt5.flows import NONE
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Subscribe, Subscription, Unsubscribe, Version
from gateway.mqtt5.session import Granted, SessionSubscription
from gateway.mqtt5.types import ReasonCode
from gateway.plugins import Action, EdgeSession
from gateway.sockets.flushing import Later

WAITING_PAST_MAX = 256
"""Messages in a client's queue beside which no past one is added: what is live finds room."""
READINGS_MAX = 2
"""Readings of the past of one client at once; a further one is refused (0x97). Stops a client that asks for everything.
"""
ALL_READINGS_MAX = 256
"""Readings of the past of all clients; the clients of one user (or nameless clients of one address) have at most as
many as they leave free for others. Stops a user who asks under ever new client ids, and takes nothing.
"""
UNANSWERED_MAX = 1_024
"""SUBSCRIBEs of one client that wait for their SUBACK; above it no more packets of the client are read. Stops a client
that sends SUBSCRIBEs without end.
"""
FILTERS_AT_ONCE = 32
"""Filters of one SUBSCRIBE or UNSUBSCRIBE that are taken in one turn of the event loop; then others have as much time.
Stops a packet of 150,000 filters, which would keep all other clients waiting for seconds.
"""


@dataclass(frozen=True, slots=True)
class _Answer:
    """SUBACK that may have to wait, for the connection that asked. `began`: retained messages that were there then."""

    suback: bytes
    granted: Granted
    connection: ClientConnection | None
    began: Began


class Subscribing:
    """Subscriptions of the clients of a broker. A method returning `Later` waits for a plugin."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self._host = exchange, exchange.host
        self.retained = RetainedSending(exchange)
        self._unanswered: Counter[Client] = Counter()
        self._readings: dict[tuple[Client, str], Callable[[], None]] = {}  # how those of the past are ended

    def subscribe(self, client: Client, packet: Subscribe, quiet: bool = False) -> Later | None:
        """Grants, answers, and sends retained messages. `quiet`: a plugin subscribes for the client."""
        if len(packet.subscriptions) > FILTERS_AT_ONCE:
            return self._subscribe_in_turns(client, packet, quiet)
        packet, verdicts = self._judged(client, packet)
        if None in verdicts:
            return self._subscribe_asking(client, packet, quiet)
        return self._grant(client, packet, [bool(verdict) for verdict in verdicts], quiet)

    def _judged(self, client: Client, packet: Subscribe) -> tuple[Subscribe, list[bool | None]]:
        """Returns a SUBSCRIBE in the spelling in which it is routed, and what is known of the right to each filter."""
        if client.peer is None and self._exchange.past is not None:
            packet = with_since(packet)
        if self._exchange.predicates and client.peer is None:
            packet = with_predicates(packet)
        if client.bridge is not None and client.session.version != Version.V5:
            packet = as_bridge(packet)
        if client.peer is None:
            packet = self._canonical(packet)
        verdicts: list[bool | None] = []
        for asked in packet.subscriptions:
            topic_filter = inner_filter(asked)
            known = None if topic_filter is None else self._may_subscribe(client, topic_filter)
            verdicts.append(False if topic_filter is None else known)
        return packet, verdicts

    async def _subscribe_in_turns(self, client: Client, packet: Subscribe, quiet: bool) -> None:
        """Grants a long SUBSCRIBE in parts, a turn of the event loop each; the answer is one."""
        connection, existed = client.connection, set[str]()
        began = self._exchange.retained.kept_so_far, self._exchange.system.kept_so_far
        parts: list[Granted] = []
        for at in range(0, len(packet.subscriptions), FILTERS_AT_ONCE):
            asked = packet.subscriptions[at : at + FILTERS_AT_ONCE]
            part, verdicts = self._judged(client, replace(packet, subscriptions=asked))
            decided = await self._decided(client, part) if None in verdicts else list(map(bool, verdicts))
            if not client.alive or client.connection is not connection:
                return  # nobody waits for the answer: what was granted so far stays
            existed |= {one.filter for one in part.subscriptions if one.filter in client.filters}
            parts.append(self._entered(client, part, decided))
            await self._exchange.turns.wait_for_turn(owner_of(client.view))
        later = self._answer_subscribe(client, packet.packet_id, _together(parts), existed, began, quiet)
        if later is not None:
            await later

    async def permitted(self, view: EdgeSession, topic_filter: str) -> Subscription | None:
        """Returns a filter as it is routed, with its predicate, if `view` may subscribe to it, as SUBSCRIBE asks; else
        None. For parts of this process acting for a user, such as the console.
        """
        packet = Subscribe(1, (Subscription(topic_filter, 0),))
        if self._exchange.predicates:
            packet = with_predicates(packet)
        asked = self._canonical(packet).subscriptions[0]
        inner = inner_filter(asked)
        if inner is None:
            return None
        known = self._known(view, inner)
        if known is None:
            known = await self._host.ask_topic_plugins(view, inner, Action.SUBSCRIBE)
        return asked if known else None

    def _may_subscribe(self, client: Client, topic_filter: str) -> bool | None:
        return True if client.peer is not None else self._known(client.view, topic_filter)

    def _known(self, view: EdgeSession, topic_filter: str) -> bool | None:
        """True if a client may subscribe, False if not; None if plugins must be asked."""
        tracing = self._exchange.tracing
        if tracing is not None and not tracing.admit(topic_filter, view.client_id or "", publishes=False)[1]:
            return False
        may_subscribe = getattr(self._exchange.overlay, "may_subscribe", None)
        if may_subscribe is not None and not view.is_internal and not may_subscribe(topic_filter):
            return False
        return self._host.verdict(view, topic_filter, Action.SUBSCRIBE)

    def _canonical(self, packet: Subscribe) -> Subscribe:
        """Returns the packet with constrained filters in the spelling in which they are routed."""
        if self._exchange.tracing is None:
            return packet
        routed = [self._routed(each.filter) for each in packet.subscriptions]
        if all(name == each.filter for name, each in zip(routed, packet.subscriptions, strict=True)):
            return packet  # the usual case: programs use the routed spelling
        asked = tuple(replace(each, filter=name) for each, name in zip(packet.subscriptions, routed, strict=True))
        return replace(packet, subscriptions=asked)

    def _routed(self, topic_filter: str) -> str:
        base, expression = split_expression(topic_filter) if self._exchange.predicates else (topic_filter, "")
        inner = _inner(base)
        if inner is None or self._exchange.tracing is None:
            return topic_filter
        try:
            return base.removesuffix(inner) + constrained.canonical(inner) + expression
        except TopicError:
            return topic_filter  # and refused

    async def _subscribe_asking(self, client: Client, packet: Subscribe, quiet: bool) -> None:
        later = self._grant(client, packet, await self._decided(client, packet), quiet)
        if later is not None:
            await later

    def _grant(self, client: Client, packet: Subscribe, verdicts: list[bool], quiet: bool) -> Later | None:
        if not client.alive:
            return None
        existed = {asked.filter for asked in packet.subscriptions if asked.filter in client.filters}
        granted = self._entered(client, packet, verdicts)
        began = self._exchange.retained.kept_so_far, self._exchange.system.kept_so_far
        return self._answer_subscribe(client, packet.packet_id, granted, existed, began, quiet)

    async def _decided(self, client: Client, packet: Subscribe) -> list[bool]:
        """Returns the right to each filter; asks plugins, one filter after the other."""
        decided: list[bool] = []
        for asked in packet.subscriptions:
            topic_filter = inner_filter(asked)
            verdict = False if topic_filter is None else self._may_subscribe(client, topic_filter)
            if verdict is None and topic_filter is not None:
                verdict = await self._host.ask_topic_plugins(client.view, topic_filter, Action.SUBSCRIBE)
            decided.append(bool(verdict))
        return decided

    def _entered(self, client: Client, packet: Subscribe, verdicts: list[bool]) -> Granted:
        """Grants and refuses the filters of a SUBSCRIBE, and enters what is granted."""
        codes: list[int] = []
        predicates: list[Predicate] = []
        for asked, permitted in zip(packet.subscriptions, verdicts, strict=True):
            inner = inner_filter(asked)
            bound = None if inner is None or client.peer is not None else fits(inner, self._exchange.delivery.limits)
            if bound is not None:
                self._exchange.reached.note_bound(bound, client.client_id)
            if inner is None or bound is not None:
                codes.append(ReasonCode.TOPIC_FILTER_INVALID)
            elif permitted and not self._have_room(client, asked, packet, predicates):
                codes.append(ReasonCode.QUOTA_EXCEEDED)
            else:
                codes.append(asked.qos if permitted else ReasonCode.NOT_AUTHORIZED)
                if not permitted:
                    self._exchange.audit.may_not("subscribe", client, asked.filter)
        granted = client.session.enter_granted(packet, codes)
        if not self.enter_granted(client, granted, is_asked=True):  # a defect, logged and counted at its place
            self._take_back(client, granted)
            refused = [code if code >= ReasonCode.UNSPECIFIED_ERROR else ReasonCode.UNSPECIFIED_ERROR for code in codes]
            granted = client.session.enter_granted(packet, refused)
        return granted

    def _answer_subscribe(
        self, client: Client, packet_id: int, granted: Granted, existed: set[str], began: Began, quiet: bool
    ) -> Later | None:
        """Answers a SUBSCRIBE. `existed`: those of its filters the client held before."""
        answer = _Answer(client.session.suback(packet_id, granted.codes), granted, client.connection, began)
        if quiet or client.peer is not None:
            return self._send_answer(client, answer, quiet)
        self.retained.expect(client, granted, began, existed)
        return self._answer_when_counted(client, answer)

    def _have_room(self, client: Client, asked: Subscription, packet: Subscribe, predicates: list[Predicate]) -> bool:
        """True if this subscription fits too, beside the others of its packet."""
        if asked.since and not self._may_read_again(client, asked, packet):
            return False
        if not asked.predicate:
            return True
        found = all_predicates([asked])
        if not self._exchange.delivery.router.has_room(client, predicates + found):
            self._exchange.reached.note_bound("subscriptions", client.client_id)
            return False
        predicates += found
        return True

    def _answer_when_counted(self, client: Client, answer: _Answer) -> Later | None:
        """Sends the SUBACK once a quorum of replicas knows of the filters. Later packets of the client do not wait,
        except behind too many unanswered SUBSCRIBEs."""
        when_accepted = getattr(self._exchange.overlay, "when_accepted", None)
        if when_accepted is None or not answer.granted.subscriptions:
            return self._send_answer(client, answer)
        filters = [split_share(subscription.options.base)[1] for subscription in answer.granted.subscriptions]
        counted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def accepted() -> None:
            self._unanswered[client] -= 1
            if not self._unanswered[client]:
                del self._unanswered[client]
            later = self._send_answer(client, answer) if client.alive else None
            if later is not None:
                self.retained.detach(later)
            if not counted.done():
                counted.set_result(None)

        if not when_accepted(filters, accepted):
            return self._send_answer(client, answer)
        self._unanswered[client] += 1
        return _done(counted) if self._unanswered[client] > UNANSWERED_MAX else None

    def _send_answer(self, client: Client, answer: _Answer, quiet: bool = False) -> Later | None:
        connection, granted = answer.connection, answer.granted
        if connection is not None and client.connection is connection and not quiet:
            connection.write(answer.suback)
        is_told = self._host.declares(BrokerEvents.CLIENT_SUBSCRIBED)
        for subscription in granted.subscriptions if is_told else ():
            self._host.fire(
                BrokerEvents.CLIENT_SUBSCRIBED,
                client_id=client.client_id,
                topic=subscription.options.filter,
                qos=subscription.options.qos,
            )
        if quiet or client.peer is not None:
            return None
        return self.retained.send_new(client, granted.retained, answer.began)

    def _take_back(self, client: Client, granted: Granted) -> None:
        """Removes the subscriptions of a packet; subscriptions that they replaced stay removed."""
        filters = tuple(subscription.options.filter for subscription in granted.subscriptions)
        client.session.remove_subscriptions(filters)
        for topic_filter in filters:
            self._remove(client, topic_filter)

    def enter_granted(self, client: Client, granted: Granted, is_asked: bool = False) -> bool:
        """Puts granted subscriptions into the router; a member's go to the overlay instead. False: the overlay could
        not take one. `is_asked`: by a client now, so that a beginning in the past counts.
        """
        taken = True
        for subscription in granted.subscriptions:
            topic_filter, options = subscription.options.filter, subscription.options
            former = client.filters.get(topic_filter)
            if client.filters is NONE:
                client.filters = {}
            client.filters[topic_filter] = subscription
            if self._exchange.store is not None:
                self._exchange.store.note_subscription(client, topic_filter, subscription)
            if client.peer is not None:
                self._tell_overlay("peer_subscribed", client.peer, topic_filter)
                continue
            if options.since and is_asked:
                taken &= self._begin_in_the_past(client, subscription)
                continue
            fresh = self._exchange.delivery.router.subscribe(client, options, subscription.identifier)
            if former is not None and route_name(former.options) != route_name(options):
                self._leave(client, former.options)  # another `$where` makes it another group
            if self._exchange.overlay is not None:
                group, plain_filter = route_name(options)
                if self._exchange.predicates:
                    taken &= self._exchange.overlay.filter_subscribed(plain_filter, predicate_of(options)) is not False
                elif fresh:
                    taken &= self._exchange.overlay.filter_subscribed(plain_filter) is not False
                self._joined(client, group, plain_filter)
        return taken

    def _may_read_again(self, client: Client, asked: Subscription, packet: Subscribe) -> bool:
        """True if the client and its owner have few readings of the past, with those of its packet up to this one."""
        under_way = {topic_filter for reader, topic_filter in self._readings if reader is client}
        had, owner = len(under_way), owner_of(client.view)
        for each in packet.subscriptions:
            if each.since:
                under_way.add(each.filter)
            if each is asked:
                break
        more = len(under_way) - had
        of_owner = sum(owner_of(reader.view) == owner for reader, _ in self._readings)
        is_fair = not more or of_owner + more <= ALL_READINGS_MAX - len(self._readings)
        return is_fair and len(under_way) <= READINGS_MAX

    def _begin_in_the_past(self, client: Client, subscription: SessionSubscription) -> bool:
        """Reads the past for a client; then the subscription enters the router. False: the overlay cannot take it."""
        options, exchange = subscription.options, self._exchange
        plain_filter, overlay, past = options.base, exchange.overlay, exchange.past
        assert past is not None
        name = client, options.filter
        if (stop := self._readings.pop(name, None)) is not None:
            stop()
        ids = (subscription.identifier,) if subscription.identifier else ()

        def give(publication: Publication) -> Coroutine[None, None, None] | None:
            message = message_of(publication, exchange.now())
            is_own = options.no_local and publication.owner == client.client_id
            if not client.alive or is_own:
                return None
            verdict = self._host.verdict(client.view, message.topic, Action.RECEIVE)
            if verdict is None:
                return give_asking(message)
            if verdict:
                give_permitted(message)
            return None

        async def give_asking(message: Message) -> None:
            if await self._host.ask_topic_plugins(client.view, message.topic, Action.RECEIVE) and client.alive:
                give_permitted(message)

        def give_permitted(message: Message) -> None:
            if wants(options, message):
                exchange.delivery.give(client, message, min(message.qos, options.qos), False, ids, exchange.now())

        def has_room() -> bool:
            session = client.session
            return not client.is_behind and not session.paused and len(session.waiting) < WAITING_PAST_MAX

        def done() -> None:
            if self._readings.pop(name, None) is not None and client.alive and client.filters.get(options.filter):
                exchange.delivery.router.subscribe(client, options, subscription.identifier)

        is_taken = overlay is None or overlay.filter_subscribed(plain_filter, predicate_of(options)) is not False
        self._readings[name] = lambda: None
        at = since_ms(options.since, exchange.now())
        assert at is not None, "checked by `inner_filter`"
        stop = past.read_again(plain_filter, at, give, has_room, done, owner_of(client.view))
        if name in self._readings:
            self._readings[name] = stop
        return is_taken

    def unsubscribe(self, client: Client, packet: Unsubscribe) -> Later | None:
        """Removes subscriptions, and answers."""
        if len(packet.filters) > FILTERS_AT_ONCE:
            return self._unsubscribe_in_turns(client, packet)
        self._unsubscribed(client, packet.packet_id, self._removed(client, packet.filters))
        return None

    async def _unsubscribe_in_turns(self, client: Client, packet: Unsubscribe) -> None:
        """Removes the subscriptions of a long UNSUBSCRIBE in parts, a turn of the event loop each."""
        connection, codes = client.connection, list[int]()
        for at in range(0, len(packet.filters), FILTERS_AT_ONCE):
            if not client.alive or client.connection is not connection:
                return
            codes += self._removed(client, packet.filters[at : at + FILTERS_AT_ONCE])
            await self._exchange.turns.wait_for_turn(owner_of(client.view))
        self._unsubscribed(client, packet.packet_id, codes)

    def _removed(self, client: Client, filters: Sequence[str]) -> list[int]:
        """Removes subscriptions; returns the code of each."""
        if self._exchange.tracing is not None and client.peer is None:
            filters = tuple(map(self._routed, filters))
        codes = client.session.remove_subscriptions(filters)
        for topic_filter in filters:
            if self._remove(client, topic_filter):
                self._host.fire(BrokerEvents.CLIENT_UNSUBSCRIBED, client_id=client.client_id, topic=topic_filter)
        return codes

    def _unsubscribed(self, client: Client, packet_id: int, codes: Sequence[int]) -> None:
        if client.connection is not None:
            client.connection.write(client.session.unsuback(packet_id, codes))

    def end_denied(self, client: Client, may: Callable[[str], bool]) -> bool:
        """Removes subscriptions whose filter, share prefix stripped, `may` denies. False: there is none."""
        ended = [each for each, held in client.filters.items() if not may(split_share(held.options.base)[1])]
        if ended:
            client.session.remove_subscriptions(ended)
        for topic_filter in ended:
            self._remove(client, topic_filter)
            self._exchange.audit.may_not("subscribe", client, topic_filter)
        return bool(ended)

    def _remove(self, client: Client, topic_filter: str) -> bool:
        """Takes a subscription from the router and the store. False: there is none."""
        gone = client.filters.pop(topic_filter, None)
        self.retained.forget_subscriptions(client, topic_filter)
        if gone is None:
            return False
        self._end_reading(client, gone.options)
        self._leave(client, gone.options)
        if self._exchange.store is not None:
            self._exchange.store.note_subscription(client, topic_filter, None)
        return True

    def forget_session(self, client: Client, unfinished: Sequence[Message] = ()) -> None:
        """Removes the subscriptions of an ended session, and gives unfinished messages of its shared groups to other
        members.
        """
        client.alive = False
        self.retained.forget_subscriptions(client)
        if client.acks:
            client.acks.clear()
        filters, client.filters = client.filters, NONE
        for subscription in filters.values():
            self._end_reading(client, subscription.options)
            self._leave(client, subscription.options)
        if unfinished and client.peer is None and any(f.startswith(SHARE_PREFIX) for f in filters):
            held = [subscription.options for subscription in filters.values()]
            self.retained.detach(self._pass_on(owner_of(client.view), unfinished, held))

    async def _pass_on(self, owner: str, unfinished: Sequence[Message], held: Sequence[Subscription]) -> None:
        """Passes on as many copies of each message as came by shared groups: a copy was the client's own if another
        filter of it matches. Thousands of messages and filters take many turns of their owner.
        """
        turn, names = Turn(self._exchange.turns, owner), TopicIndex[tuple[int, Subscription]]()
        for number, options in enumerate(held):
            names.add(route_name(options)[1], number, (number, options))
            if turn.is_over:
                await turn.end_turn()
        copies = Counter(map(id, unfinished))
        for message in {id(message): message for message in unfinished}.values():
            groups, came_shared = list[SharedName](), copies[id(message)]
            for _, options in sorted(names.match(message.topic), key=itemgetter(0)):
                if wants(options, message):
                    group, wanted = route_name(options)
                    if group is not None:
                        groups.append((group, wanted))
                    else:
                        came_shared = copies[id(message)] - 1
                if turn.is_over:
                    await turn.end_turn()
            there = filter(None, (self._exchange.delivery.router.group(*name) for name in groups))
            for found in list(there)[: max(0, came_shared)]:
                await self._give_to_group(found, message)

    def give_shared(self, name: SharedName, message: Message) -> None:
        """Gives a message to a shared group only, as soon as no plugin has to be asked."""
        group = self._exchange.delivery.router.group(*name)
        if group is not None:
            self._exchange.in_order(self._give_to_group(group, message))

    async def _give_to_group(self, group: SharedGroup[Client], message: Message) -> None:
        allowed: set[int] = set()
        for member in list(group.members):
            verdict = self._host.verdict(member.view, message.topic, Action.RECEIVE)
            if verdict or (
                verdict is None and await self._host.ask_topic_plugins(member.view, message.topic, Action.RECEIVE)
            ):
                allowed.add(id(member.view))
        if group.members and not message.expired(self._exchange.now()):
            self._exchange.delivery.deliver_to_group(group, message, allowed, self._exchange.now())

    def _end_reading(self, client: Client, options: Subscription) -> None:
        if options.since and (stop := self._readings.pop((client, options.filter), None)) is not None:
            stop()
            # It is in no router yet: as if it had been there, so that the overlay hears of its end.
            self._exchange.delivery.router.subscribe(client, options, 0)

    def _leave(self, client: Client, options: Subscription) -> None:
        if client.peer is not None:
            self._tell_overlay("peer_unsubscribed", client.peer, options.filter)
            return
        last = self._exchange.delivery.router.unsubscribe(client, options)
        if self._exchange.overlay is None:
            return
        group, plain_filter = route_name(options)
        if group is not None:
            left = self._exchange.delivery.router.group(group, plain_filter)
            if left is None:
                self._tell_overlay("group_left", group, plain_filter)
            elif not left.wide:
                self._tell_overlay("group_joined", _described(left))
        if last:
            self._exchange.overlay.filter_unsubscribed(plain_filter)

    def _joined(self, client: Client, name: str | None, topic_filter: str) -> None:
        """Tells the overlay that a client is in a shared group, if `name` is one."""
        group = None if name is None else self._exchange.delivery.router.group(name, topic_filter)
        if group is not None:
            if self._host.covers(client.view, topic_filter):
                group.wide.add(client)
            self._tell_overlay("group_joined", replace(_described(group), owner=owner_of(client.view)))

    def rejudge(self, client: Client) -> None:
        """Tells the overlay the shared groups of a client whose own rights changed, with its login."""
        for held in client.filters.values() if self._exchange.overlay is not None else ():
            name, topic_filter = route_name(held.options)
            group = None if name is None else self._exchange.delivery.router.group(name, topic_filter)
            if group is not None:
                group.wide.discard(client)
                self._joined(client, name, topic_filter)

    def local_groups(self) -> list[LocalGroup]:
        """Returns shared groups with local members, after a new check of the members that may receive everything."""
        groups = self._exchange.delivery.router.groups()
        for group in groups:
            group.wide = {member for member in group.members if self._host.covers(member.view, group.filter)}
        return [_described(group) for group in groups]

    def review(self) -> None:
        """Tells the overlay the groups anew after a change of rights: other gateways get messages no longer permitted
        here.
        """
        if self._exchange.overlay is not None:
            for group in self.local_groups():
                self._tell_overlay("group_joined", group)

    def _tell_overlay(self, what: str, *said: str | LocalGroup) -> None:
        """Calls a method of the overlay, if the overlay has it."""
        told = getattr(self._exchange.overlay, what, None)
        if told is not None:
            told(*said)


def _described(group: SharedGroup[Client]) -> LocalGroup:
    return LocalGroup(group.name, group.filter, bool(group.wide), owner_of(next(iter(group.members)).view))


def _together(parts: Sequence[Granted]) -> Granted:
    """Returns the answers to the parts of a SUBSCRIBE as one."""
    return Granted(
        tuple(code for part in parts for code in part.codes),
        tuple(one for part in parts for one in part.subscriptions),
        tuple(one for part in parts for one in part.retained),
    )


async def _done(future: asyncio.Future[None]) -> None:
    await future


def _inner(topic_filter: str) -> str | None:
    """Returns the filter without share prefix; None if it is not valid."""
    try:
        return split_share(topic_filter)[1]
    except TopicError:
        return None
