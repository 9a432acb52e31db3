"""Delivery of publications to their local receivers: routes, shared groups, rights to receive. No acknowledgements.

`routing.Router` finds the receivers, plugins decide on rights, and each receiver's session makes the bytes. Packets
from clients and their answers are in `exchange.py`. Source: MQTT 5.0 §3.3.4, §4.8.2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from amqtt.broker import RetainedApplicationMessage
from amqtt.events import BrokerEvents

from gateway.base import FairTurns, Limits
from gateway.base.followed import FollowedMessages
from gateway.broker import followed_clients
from gateway.broker.holding import Holding
from gateway.broker.session_shares import owner_of
from gateway.clients import Circling, Client, DeliveryPlan, Reached, Router, SharedName, Target, fits
from gateway.mqtt5.encoding import encode_publish
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Publish, Version
from gateway.operation import Traffic
from gateway.plugins import Action, PluginHost
from gateway.sockets.flushing import Later


class ClientDelivery:
    """Deliverer of publications to the local clients that subscribed to them."""

    def __init__(self, host: PluginHost, limits: Limits, now: Callable[[], float]) -> None:
        self.host, self.limits, self.now = host, limits, now
        self.reached, self.traffic, self.turns = Reached(now), Traffic(), FairTurns()
        self.router: Router[Client] = Router(partial(fits, limits=limits), lambda client: owner_of(client.view))
        self.holding = Holding(limits, self.reached, self.traffic, now, self.turns)
        self.circles: Circling | None = None  # circles of bridged messages; None: no bridges
        self.followed: FollowedMessages | None = None  # None: no administrator follows messages

    def adopt_limits(self, limits: Limits) -> None:
        """Takes other bounds from now on."""
        self.limits = self.holding.limits = limits
        self.router.replace_refusals(partial(fits, limits=limits))

    def flood(self, sender: Client | None, publish: Publish) -> None:
        """Delivers QoS 0 on the hot path, where no plugin has to be asked. No sender: the broker.

        Has the effect of `_deliver`, without a `Message` where no receiver needs one: encoded once per version.
        """
        plan, publisher = self.router.plan(publish.topic), "" if sender is None else sender.client_id
        if plan.is_odd:
            if plan.refused is not None:
                self.reached.note_bound(plan.refused, publisher)
                return
            plan = self._chosen(plan, publish)
        flooded = 0
        encoded: list[bytes | None] = [None, None]
        message: Message | None = None
        for target in plan.targets:
            client = target.client
            connection, plain = client.connection, client.plain
            if connection is None:
                client.session.figures.dropped_qos0 += 1
                continue
            if plain is None or target.subscription_ids or target.no_local or client.session.paused:
                if message is None:
                    message = Message(publish.topic, publish.payload, publisher=publisher)
                self._deliver_to(target, message, sender, self.now())
                continue
            data = encoded[plain]
            if data is None:
                version = Version.V5 if plain else Version.V311
                data = encoded[plain] = encode_publish(plan.name, publish.payload, version=version)
            flooded += 1
            connection.write(data)
        if flooded:
            self.traffic.flooded += flooded
            self.traffic.flooded_bytes += flooded * len(publish.payload)
        if plan.groups:
            message = message or Message(publish.topic, publish.payload, publisher=publisher)
            for group in plan.groups:
                self.deliver_to_group(group, message, None, self.now())

    def forward_run(self, run: Sequence[Message]) -> bool:
        """Delivers messages of the overlay on one topic, in order, with the effect of `forward` for each. False:
        nothing was done.
        """
        plan = self.router.plan(run[0].topic)
        if plan.is_odd or plan.groups:
            return False
        for target in plan.targets:
            client, sent = target.client, 0
            connection = client.connection
            if target.qos and client.plain is not None and not target.subscription_ids and connection is not None:
                packets = client.session.send_run(run, target.qos)
                connection.write_all(packets)
                sent = len(packets)
            for message in run[sent:]:
                self._deliver_to(target, message, None, self.now())
        return True

    def forward(self, sender: Client | None, message: Message) -> bool:
        """Delivers QoS 1 and 2 without retain flag and properties, with the effect of `route`, on the hot path. False:
        nothing was done, call `route`. No sender: the overlay.
        """
        plan = self.router.plan(message.topic)
        if plan.is_odd or plan.groups:
            return False
        own_qos = message.qos
        for target in plan.targets:
            client, qos = target.client, target.qos
            qos = min(qos, own_qos)
            if qos and client.plain is not None and not target.subscription_ids and not target.no_local:
                connection, session = client.connection, client.session
                if connection is not None:
                    if (data := session.send_at_once(message, qos)) is not None:
                        connection.write(data)
                        continue
                    if session.queue_at_once(message, qos):
                        continue
            self._deliver_to(target, message, sender, self.now())
        return True

    # ---------------------------------------------------------------------------------------------- routing

    def _chosen(
        self,
        plan: DeliveryPlan[Client],
        message: Message | Publish,
        may: Callable[[Client], bool] = lambda client: True,
    ) -> DeliveryPlan[Client]:
        """Returns the receivers of this message; evaluates predicates only of clients that may receive it."""
        choices = plan.choices
        if choices is None:
            return plan
        if self.host.filters_topics and choices.version != self.host.rights_version:
            choices.judge(may, self.host.rights_version if self.host.is_prompt else -1)
        plan = choices.plan(plan, message, may)
        self.traffic.evaluated += 1
        self.traffic.withheld += plan.withheld
        return plan

    def _judged_clients(self, plan: DeliveryPlan[Client]) -> list[Client]:
        """Returns the clients on whose rights a message of the plan's topic depends."""
        receivers = [target.client for target in plan.targets]
        receivers += [member for group in plan.groups for member in group.members]
        if plan.choices is not None:
            receivers += plan.choices.receivers()
        return receivers

    def route(
        self,
        message: Message,
        sender: Client | None,
        lost: Collection[SharedName] = (),
        without: Collection[Client] = (),
    ) -> Later | None:
        """Hands a message to its local receivers, except shared groups that are `lost` to another gateway, and the
        clients `without`.
        """
        plan = self.router.plan(message.topic)
        if not self.host.filters_topics and not without:
            self._deliver(self._chosen(plan, message), message, sender, None, lost)
            return None
        left_out = {id(client.view) for client in without}

        def may(client: Client) -> bool:
            view = client.view
            return id(view) not in left_out and self.host.verdict(view, message.topic, Action.RECEIVE) is True

        if not self.host.is_prompt:
            views = [client.view for client in self._judged_clients(plan) if id(client.view) not in left_out]
            if None in [self.host.verdict(view, message.topic, Action.RECEIVE) for view in views]:
                return self._route_asking(plan, message, sender, lost, left_out)
        plan = self._chosen(plan, message, may)
        receivers = self._judged_clients(plan)
        allowed = [id(client.view) for client in receivers if may(client)]
        self._deliver(plan, message, sender, None if len(allowed) == len(receivers) else set(allowed), lost)
        return None

    async def _route_asking(
        self,
        plan: DeliveryPlan[Client],
        message: Message,
        sender: Client | None,
        lost: Collection[SharedName],
        left_out: Collection[int],
    ) -> None:
        allowed: set[int] = set()
        for receiver in self._judged_clients(plan):
            if id(receiver.view) in left_out:
                continue
            verdict = self.host.verdict(receiver.view, message.topic, Action.RECEIVE)
            if verdict is None:
                verdict = await self.host.ask_topic_plugins(receiver.view, message.topic, Action.RECEIVE)
            if verdict:
                allowed.add(id(receiver.view))
        # Subscriptions may have changed meanwhile: the present receivers, as far as plugins were asked about them.
        plan = self._chosen(self.router.plan(message.topic), message, lambda client: id(client.view) in allowed)
        self._deliver(plan, message, sender, allowed, lost)

    def _deliver(
        self,
        plan: DeliveryPlan[Client],
        message: Message,
        sender: Client | None,
        allowed: set[int] | None,
        lost: Collection[SharedName],
    ) -> None:
        now, followed = self.now(), self.followed
        if followed is not None and not (plan.targets or plan.groups):
            followed_clients.nobody(followed, message)
        for target in plan.targets:
            if allowed is None or id(target.client.view) in allowed:
                self._deliver_to(target, message, sender, now)
            elif followed is not None:
                followed_clients.left_out(followed, target.client, message)
        for group in plan.groups:
            if not lost or (group.name, group.filter) not in lost:
                self.deliver_to_group(group, message, allowed, now)

    def _deliver_to(self, target: Target[Client], message: Message, sender: Client | None, now: float) -> None:
        client = target.client
        if client is sender and target.no_local:
            own = target.for_own_publication()
            if own is None:
                return
            target = own
        if client.bridge is not None and self.circles is not None:
            message = self.circles.given(client.client_id, client.bridge, message)
        qos = min(target.qos, message.qos)
        retain = message.retain and target.retain_as_published
        if retain and not qos and client.view.is_internal:
            qos = 1  # a bridge of ours: what is retained is kept for it, or the other broker's would stay old
        if client.connection is None:
            self._keep_for(client, message, qos, retain, target.subscription_ids, now)
            return
        if client.is_behind and qos:
            if sender is None:
                self.holding.burden(client)
            elif client is not sender and not client.session.fits(message):
                # The message has waited for this receiver, and for another or a plugin since.
                client.session.is_stretched = True
        self.give(client, message, qos, retain, target.subscription_ids, now)

    def deliver_to_group(self, group: Any, message: Message, allowed: set[int] | None, now: float) -> None:
        """Delivers to a member in turn: preferably a connected one that keeps up (§4.8.2), else the one with the least
        queue.
        """
        second, least = None, (True, 0)
        for entry in group.in_turn():
            client: Client = entry.client
            if allowed is not None and id(client.view) not in allowed:
                continue
            qos = min(entry.options.qos, message.qos)
            retain = message.retain and entry.options.retain_as_published
            identifiers = (entry.identifier,) if entry.identifier else ()
            is_away = client.connection is None
            if is_away or client.session.paused or client.is_behind or now < client.hold_again_at:
                backlog = (is_away, len(client.session.waiting))
                if (qos or not is_away) and (second is None or backlog < least):
                    second, least = (client, message, qos, retain, identifiers, now), backlog
                continue
            self.give(client, message, qos, retain, identifiers, now)
            return
        if second is not None:
            if second[0].is_behind:
                self.holding.burden(second[0])
            self._keep_for(*second)

    def _keep_for(
        self, client: Client, message: Message, qos: int, retain: bool, ids: tuple[int, ...], now: float
    ) -> None:
        self.give(client, message, qos, retain, ids, now)
        if qos and client.connection is None and self.host.declares(BrokerEvents.RETAINED_MESSAGE):
            kept = RetainedApplicationMessage(None, message.topic, message.payload, qos)
            self.host.fire(BrokerEvents.RETAINED_MESSAGE, client_id=client.client_id, retained_message=kept)

    def give(self, client: Client, message: Message, qos: int, retain: bool, ids: tuple[int, ...], now: float) -> None:
        data = client.session.deliver(message, qos, retain, now, ids)
        if self.followed is not None:
            followed_clients.given(self.followed, client, message, qos, data is not None)
        if client.connection is None:
            return
        if data is not None:
            client.connection.write(data)
        if qos:
            self.holding.given(client)
