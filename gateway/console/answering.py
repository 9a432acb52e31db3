"""What each operation of the API does. Whether the user may ask at all was decided before (`serving`).

Topics are a matter of MQTT rights: each is asked of the broker's plugins as if the user had connected with it. What is
published goes through the broker as a client's message would.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from contextlib import suppress
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from bridge.base import TopicError, check_filter, check_name
from gateway.base.config_console import Console
from gateway.client import LocalEnd, MqttClient
from gateway.clients import INTERNAL
from gateway.console.asking import Act, ApiError, ApiRequest
from gateway.console.editing import Editing
from gateway.console.operations import document
from gateway.console.shown import LIST_MAX, Shown, message_json
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Publish
from gateway.plugins import EdgeSession
from gateway.plugins.host import Action

STREAMS_MAX = 50
STREAM_QUEUE = 500
STREAM_LOOK_S = 0.5
PUBLISH_S = 10.0


class Answering:
    """See the module. `editing`: what changes users and tokens."""

    def __init__(self, settings: Console, shown: Shown, editing: Editing) -> None:
        self._settings, self._shown, self._editing = settings, shown, editing
        self._broker, self._host = shown.broker, shown.broker.host
        self._streams = 0
        self._clients: set[MqttClient] = set()
        self._publisher: LocalEnd | None = None
        self._closing: set[asyncio.Task[None]] = set()

    # --------------------------------------------------------------------------------------------- users

    def _view(self, user: str, password: str | None = None, address: str = "") -> EdgeSession:
        """The user as plugins see a client."""
        view = EdgeSession()
        view.client_id = f"console-{user}"
        view.username, view.password, view.remote_address = user, password, address
        view.clean_session, view.is_anonymous = True, False
        return view

    def act(self, name: str) -> Act:
        """Returns what does an operation."""
        return getattr(self if hasattr(self, name) else self._editing, name)  # type: ignore[no-any-return]

    async def authenticate(self, user: str, password: str, address: str) -> bool:
        """Whether plugins let the user in. Nobody gets in without a name, or where no plugin knows names."""
        if not user or not password:
            return False
        return await self._host.proves(self._view(user, password, address))

    async def _may(self, user: str, topic: str, action: Action) -> bool:
        view = self._view(user)
        known = self._host.verdict(view, topic, action)
        return known if known is not None else await self._host.ask(view, topic, action)

    async def me(self, asked: ApiRequest) -> Any:
        is_admin = asked.user in self._settings.admins
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
        if not await self._may(asked.user, topic, Action.PUBLISH):
            raise ApiError(403, f"{asked.user} may not publish to {topic}")
        if self._publisher is None:
            self._publisher = LocalEnd(f"{INTERNAL}console/publisher", self._broker)
            self._clients.add(self._publisher)
            await self._publisher.connect()
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def settle(code: int) -> None:
            if not done.done():
                done.set_result(code)

        taken = self._publisher.publish(
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
        topic_filter = self._filter(asked)
        found: list[dict[str, Any]] = []
        for message in list(self._shown.retained(topic_filter, LIST_MAX)):
            if len(found) < asked.limit and await self._may(asked.user, message.topic, Action.RECEIVE):
                found.append(message_json(message))
        return {"messages": found}

    async def clear_retained(self, asked: ApiRequest) -> Any:
        if not self._shown.clear_retained(asked.query.get("topic", "")):
            raise ApiError(404, "nothing is retained on this topic")
        return {}

    def _filter(self, asked: ApiRequest) -> str:
        topic_filter = asked.query.get("filter", "#")
        try:
            return check_filter(topic_filter)
        except TopicError as error:
            raise ApiError(400, str(error)) from None

    async def stream(self, asked: ApiRequest) -> web.StreamResponse:
        """Until the browser goes; a slow one misses messages, and is told how many."""
        topic_filter = self._filter(asked)
        if topic_filter.startswith("$share/") or not await self._may(asked.user, topic_filter, Action.SUBSCRIBE):
            raise ApiError(403, f"{asked.user} may not subscribe to {topic_filter}")
        if self._streams >= STREAMS_MAX:
            raise ApiError(503, f"{STREAMS_MAX} streams are open; close one")
        queue: asyncio.Queue[Publish | None] = asyncio.Queue(STREAM_QUEUE + 1)
        missed = [0]

        def arrived(publish: Publish) -> None:
            if queue.qsize() >= STREAM_QUEUE:
                missed[0] += 1
            else:
                queue.put_nowait(publish)

        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store",
                                               "X-Content-Type-Options": "nosniff"})  # fmt: skip
        client = LocalEnd(f"{INTERNAL}console/{secrets.token_hex(8)}", self._broker)
        client.on_publish = arrived
        self._streams += 1
        self._clients.add(client)
        try:
            await response.prepare(asked.request)
            await client.connect()
            client.subscribe(topic_filter, 0, on_answer=lambda code: queue.put_nowait(None))
            with suppress(ConnectionError):
                while asked.goes_on():
                    try:
                        publish = await asyncio.wait_for(queue.get(), STREAM_LOOK_S)
                    except TimeoutError:
                        await response.write(b": still here\n\n")
                        continue
                    if publish is None:
                        await response.write(b"event: subscribed\ndata: {}\n\n")
                    elif asked.goes_on() and await self._may(asked.user, publish.topic, Action.RECEIVE):
                        message = Message(publish.topic, publish.payload, publish.qos, publish.retain)
                        line = json.dumps({**message_json(message), "missed": missed[0], "time": time.time()})
                        await response.write(f"data: {line}\n\n".encode())
        finally:
            self._streams -= 1
            self._clients.discard(client)
            await client.close()
        return response

    # -------------------------------------------------------------------------------------------- showing

    async def overview(self, asked: ApiRequest) -> Any:
        return self._shown.overview()

    async def overlay(self, asked: ApiRequest) -> Any:
        return self._shown.overlay()

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
        if not self._shown.forget(asked.id):
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
        """Close what is open inside the broker."""
        loop = asyncio.get_running_loop()
        self._closing = {loop.create_task(client.close()) for client in self._clients}
