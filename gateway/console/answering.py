"""Operations of the API. `serving` has already decided if the user may ask at all.

Rights on topics are MQTT rights: the broker's plugins decide as if the user had connected with MQTT. A publication
goes through the broker as a client's message would.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from itertools import islice
from typing import Any
from weakref import WeakValueDictionary

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from bridge.base import TopicError, check_filter, check_name
from gateway.base.config_console import Console
from gateway.base.followed import FollowedMessages, FollowError, Wish
from gateway.base.log_events import LogEvent
from gateway.client import LocalEnd
from gateway.clients import INTERNAL, split_expression, wants
from gateway.console.asking import Act, ApiError, ApiRequest
from gateway.console.editing import Editing
from gateway.console.logins import ConsoleUser
from gateway.console.operations import document
from gateway.console.shown import LIST_MAX, Shown, message_json
from gateway.console.streams import Streams
from gateway.mqtt5.packets import Subscription
from gateway.plugins import BusyError, EdgeSession
from gateway.plugins.host import Action

log = logging.getLogger("veilmq.console")

PUBLISH_S = 10.0
LOGINS_WAITING = 64
"""Logins that wait for their password to be verified, one after the other; more are told to come again."""
LOOKS_AT_ONCE = 64
"""Retained messages that a question looks at in one turn of the event loop; then the broker has as long for others.
Stops users of the console who ask for all that is retained, again and again.
"""


class Answering:
    """Answers to the operations of a console. `editing`: changes users and tokens; `followed`: of messages."""

    def __init__(self, settings: Console, shown: Shown, editing: Editing, followed: FollowedMessages) -> None:
        self._settings, self._shown, self._editing = settings, shown, editing
        self._broker, self._host = shown.broker, shown.broker.host
        self._streams = Streams(self._broker, lambda asked: self._view(asked.user, groups=asked.groups))
        self._followed = followed
        self._proving, self._waiting = asyncio.Lock(), 0
        self._looking = asyncio.Lock()  # one question at a time looks at retained messages, a few in a turn
        self._of_user: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # and one of each user
        self._closing: set[asyncio.Task[None]] = set()

    # --------------------------------------------------------------------------------------------- users

    @staticmethod
    def _view(
        user: str, password: str | None = None, address: str = "", groups: tuple[str, ...] | None = None
    ) -> EdgeSession:
        """Returns the user as plugins see a client, under an id no client has."""
        view = EdgeSession()
        view.groups = groups
        view.client_id = f"{INTERNAL}console/{user}"
        view.username, view.password, view.remote_address = user, password, address
        view.clean_session, view.is_anonymous, view.from_console = True, False, True
        return view

    def act(self, name: str) -> Act:
        """Returns the function of an operation."""
        return getattr(self if hasattr(self, name) else self._editing, name)  # type: ignore[no-any-return]

    async def authenticate(self, user: str, password: str, address: str) -> ConsoleUser | None:
        """Returns the user if plugins let it in. A login without a name, or where no plugin knows names, is refused.

        A password is verified at a time: guesses at the console take nothing from MQTT. Raises ApiError if too many
        wait.
        """
        if not user or not password:
            return None
        if self._waiting >= LOGINS_WAITING:
            raise ApiError(503, "many log in just now; try again")
        self._waiting += 1
        try:
            async with self._proving:
                view = self._view(user, password, address)
                if not await self._host.proves(view):
                    return None
                ends = None if view.lasts_s is None else time.time() + view.lasts_s
                return ConsoleUser(str(view.username), view.groups, ends)
        except BusyError:
            raise ApiError(503, "many log in just now; try again") from None
        finally:
            self._waiting -= 1

    async def _may_receive(self, asked: ApiRequest, topic: str) -> bool:
        view = self._view(asked.user, groups=asked.groups)
        known = self._host.verdict(view, topic, Action.RECEIVE)
        return known if known is not None else await self._host.ask_topic_plugins(view, topic, Action.RECEIVE)

    async def me(self, asked: ApiRequest) -> Any:
        is_admin = self._settings.has_admin(asked.user, asked.groups)
        return {"user": asked.user, "admin": is_admin, "write": is_admin and self._settings.write,
                "users": self._editing.knows_users}  # fmt: skip

    async def document(self, asked: ApiRequest) -> Any:
        return document()

    # ------------------------------------------------------------------------------------------ messages

    async def publish(self, asked: ApiRequest) -> Any:
        body = asked.body
        topic, qos = body["topic"], int(body.get("qos", 0))
        try:
            check_name(topic)
        except TopicError as error:
            raise ApiError(400, str(error)) from None
        if qos not in (0, 1) or topic.startswith("$"):
            raise ApiError(400, "qos is 0 or 1, and a topic does not begin with $ here")
        routed = await self._broker.exchange.permitted(self._view(asked.user, groups=asked.groups), topic)
        if routed is None:
            raise ApiError(403, f"{asked.user} may not publish to {topic}")
        if routed.startswith("$"):
            raise ApiError(400, "constrained topics are for clients; connect one over MQTT")
        publisher = LocalEnd(f"{INTERNAL}console/{secrets.token_hex(8)}", self._broker, username=asked.user)
        self._streams.clients.add(publisher)
        try:
            await publisher.connect()
            return await self._publish_as_user(publisher, topic, body)
        finally:
            self._streams.clients.discard(publisher)
            await publisher.close()

    async def _publish_as_user(self, publisher: LocalEnd, topic: str, body: dict[str, Any]) -> Any:
        """Publishes for a user, by a client of its own: it waits behind nothing of others, and counts for the user."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def settle(code: int) -> None:
            if not done.done():
                done.set_result(code)

        taken = publisher.publish(
            topic, body["payload"].encode(), 1, bool(body.get("retain", False)), (), lambda: settle(0), settle
        )
        if not taken:
            raise ApiError(503, "the broker does not take it now; try again")
        try:
            code = await asyncio.wait_for(done, PUBLISH_S)
        except TimeoutError:
            raise ApiError(503, "the broker has not taken it; it may still") from None
        if code:
            raise ApiError(409, f"the broker refused it (0x{code:02x})")
        return {"topic": topic}

    async def retained(self, asked: ApiRequest) -> Any:
        wanted = await self._permitted(asked)
        found: list[dict[str, Any]] = []
        async with self._of_user.setdefault(asked.user, asyncio.Lock()):
            messages, is_more = self._shown.retained(wanted.base), True
            while is_more and len(found) < asked.limit:
                async with self._looking:  # users take turns: locks are given in the order in which they were asked for
                    began = time.perf_counter()
                    if not asked.goes_on():
                        raise ApiError(401, "the login is over; log in again")
                    few = list(islice(messages, LOOKS_AT_ONCE))
                    is_more = len(few) == LOOKS_AT_ONCE
                    for message in few:
                        if len(found) >= asked.limit or not await self._may_receive(asked, message.topic):
                            continue
                        if wants(wanted, message):
                            found.append(message_json(message))
                    await asyncio.sleep(time.perf_counter() - began)
        return {"messages": found}

    async def clear_retained(self, asked: ApiRequest) -> Any:
        if not self._shown.clear_retained(asked.query.get("topic", "")):
            raise ApiError(404, "nothing is retained on this topic")
        return {}

    async def _permitted(self, asked: ApiRequest) -> Subscription:
        """Returns the requested subscription, as it is routed. Raises ApiError where SUBSCRIBE would be refused."""
        topic_filter = asked.query.get("filter", "#")
        try:
            check_filter(split_expression(topic_filter)[0])
        except TopicError as error:
            raise ApiError(400, str(error)) from None
        found = None
        if not topic_filter.startswith("$share/"):
            found = await self._broker.lifecycle.subscribing.permitted(
                self._view(asked.user, groups=asked.groups), topic_filter
            )
        if found is None:
            raise ApiError(403, f"{asked.user} may not subscribe to {topic_filter}")
        return found

    async def stream(self, asked: ApiRequest) -> web.StreamResponse:
        return await self._streams.serve(asked, await self._permitted(asked))

    async def trace(self, asked: ApiRequest) -> web.StreamResponse:
        wanted = {name: asked.query.get(name, "") for name in ("client", "topic", "address")}
        if not any(wanted.values()):
            raise ApiError(400, "which messages? name a client, topic or address")
        try:
            wish = Wish.read(**wanted)
        except FollowError as error:
            raise ApiError(400, str(error)) from None
        LogEvent.FOLLOWED.say(log, user=asked.user, client=wish.client, topic=wish.topic, address=wanted["address"])
        return await self._streams.follow_messages(asked, self._followed, wish)

    # -------------------------------------------------------------------------------------------- showing

    async def overview(self, asked: ApiRequest) -> Any:
        return self._shown.overview()

    async def day(self, asked: ApiRequest) -> Any:
        return self._broker.operation.day()

    async def overlay(self, asked: ApiRequest) -> Any:
        return self._shown.shown_overlay()

    async def clients(self, asked: ApiRequest) -> Any:
        return self._shown.clients(asked.limit, asked.query.get("search", ""))

    async def client(self, asked: ApiRequest) -> Any:
        found = self._shown.client(asked.id)
        if found is None:
            raise ApiError(404, "there is no such client")
        return found

    async def disconnect(self, asked: ApiRequest) -> Any:
        if not self._shown.disconnect(asked.id):
            raise ApiError(404, "there is no such client connected")
        return {}

    async def forget(self, asked: ApiRequest) -> Any:
        if not self._shown.forget_client(asked.id):
            raise ApiError(404, "there is no such client")
        return {}

    async def subscriptions(self, asked: ApiRequest) -> Any:
        return self._shown.subscriptions(asked.limit, asked.query.get("search", ""))

    async def entities(self, asked: ApiRequest) -> Any:
        return {"entities": self._shown.entities(LIST_MAX)}

    async def fleet(self, asked: ApiRequest) -> Any:
        return self._shown.fleet(asked.query.get("group", ""), asked.limit)

    async def log(self, asked: ApiRequest) -> Any:
        return {"lines": self._shown.log()}

    async def metrics(self, asked: ApiRequest) -> Any:
        registry, operation = CollectorRegistry(), self._broker.operation

        class Collected(Collector):
            def collect(self) -> Any:
                return operation.collect()

            def describe(self) -> Any:
                return ()

        registry.register(Collected())
        return web.Response(body=generate_latest(registry), content_type="text/plain")

    def stop(self) -> None:
        """Closes the streams' clients inside the broker."""
        loop = asyncio.get_running_loop()
        self._closing = {loop.create_task(client.close()) for client in self._streams.clients}
