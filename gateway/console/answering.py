"""What each operation of the API does. Whether the user may ask at all was decided before (`serving`).

Topics are a matter of MQTT rights: each is asked of the broker's plugins as if the user had connected with it. What is
published goes through the broker as a client's message would.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from bridge.base import TopicError, check_filter, check_name
from gateway.auth.api_tokens import ApiTokenError, ApiTokens
from gateway.auth.dynamic import DynamicPlugin
from gateway.auth.password_hashes import make_hash
from gateway.auth.security import Security, SecurityError, User, UserGroup
from gateway.base.config_console import Console
from gateway.client import LocalEnd, MqttClient
from gateway.clients import INTERNAL
from gateway.console.logins import Logins
from gateway.console.operations import document
from gateway.console.shown import LIST_MAX, Shown, message_json
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Publish
from gateway.plugins import EdgeSession
from gateway.plugins.host import Action

STREAMS_MAX = 50
STREAM_QUEUE = 500
STREAM_LOOK_S = 2.0
PUBLISH_S = 10.0


class ApiError(Exception):
    """An answer that is an error: HTTP status and a line for whoever asked."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request. `id`: the last part of the path, where it names something; `goes_on()`: the login counts still."""

    user: str
    address: str
    id: str
    query: Mapping[str, str]
    body: dict[str, Any]
    request: web.Request
    goes_on: Callable[[], bool]

    @property
    def limit(self) -> int:
        text = self.query.get("limit", "")
        return min(max(int(text), 1), LIST_MAX) if text.isascii() and text.isdigit() else 100


class Answering:
    """See the module. `dynamic`: the plugin whose users may be changed, if it is configured."""

    def __init__(
        self, settings: Console, shown: Shown, logins: Logins, tokens: ApiTokens, dynamic: DynamicPlugin | None
    ) -> None:
        self._settings, self._shown, self._dynamic = settings, shown, dynamic
        self._logins, self._tokens = logins, tokens
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

    async def authenticate(self, user: str, password: str, address: str) -> bool:
        """Whether plugins let the user in. Nobody gets in without a name, or where no plugin knows names."""
        if not user or not password:
            return False
        return await self._host.proves(self._view(user, password, address))

    def exists(self, user: str) -> bool:
        """Whether the user may still be let in, as far as we can know."""
        if self._dynamic is None:
            return True
        known = self._dynamic.security.users.get(user)
        return known is not None and known.enabled

    def end_all(self, user: str) -> None:
        """Every login and token of a user. Raises PrivateFileError."""
        self._logins.end_all(user)
        self._tokens.revoke_all(user)

    async def _may(self, user: str, topic: str, action: Action) -> bool:
        view = self._view(user)
        known = self._host.verdict(view, topic, action)
        return known if known is not None else await self._host.ask(view, topic, action)

    async def me(self, asked: ApiRequest) -> Any:
        is_admin = asked.user in self._settings.admins
        return {"user": asked.user, "admin": is_admin, "write": is_admin and self._settings.write,
                "users": self._dynamic is not None}  # fmt: skip

    async def document(self, asked: ApiRequest) -> Any:
        return document()

    async def tokens(self, asked: ApiRequest) -> Any:
        whose = None if asked.user in self._settings.admins else asked.user
        found = self._tokens.of(whose, time.time())
        return {"tokens": [{"id": t.id, "user": t.user, "ends": t.ends, "note": t.note} for t in found]}

    async def issue_token(self, asked: ApiRequest) -> Any:
        most = self._settings.token_days
        days, note = int(asked.body.get("days", most)), str(asked.body.get("note", ""))
        try:
            secret, token = self._tokens.issue(asked.user, days, most, note, time.time())
        except ApiTokenError as error:
            raise ApiError(400, str(error)) from None
        return {"token": secret, "id": token.id, "ends": token.ends}

    async def revoke_token(self, asked: ApiRequest) -> Any:
        whose = None if asked.user in self._settings.admins else asked.user
        if not self._tokens.revoke(asked.id, whose):
            raise ApiError(404, "there is no such token")
        return {}

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
                while asked.goes_on() and self.exists(asked.user):
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

    # -------------------------------------------------------------------------------------------- changing

    async def users(self, asked: ApiRequest) -> Any:
        security = self._known().security
        users = {
            name: {"groups": user.groups, "acl": user.acl, "enabled": user.enabled}
            for name, user in security.users.items()
        }
        groups = {name: {"acl": group.acl} for name, group in security.groups.items()}
        return {"users": users, "groups": groups, "everybody": {"acl": security.everybody.acl}}

    async def put_user(self, asked: ApiRequest) -> Any:
        security = self._known().security.model_copy(deep=True)
        known, body = security.users.get(asked.id), asked.body
        hashed = known.hash if known else ""
        if password := body.get("password"):
            hashed = await asyncio.to_thread(make_hash, password.encode(), secrets.token_bytes)
        if not hashed:
            raise ApiError(400, "a new user needs a password")
        security.users[asked.id] = User(
            hash=hashed,
            groups=body.get("groups", known.groups if known else []),
            acl=body.get("acl", known.acl if known else []),
            enabled=body.get("enabled", known.enabled if known else True),
        )
        self._change(security)
        if password or not security.users[asked.id].enabled:
            self._send_away(asked.id)
        return {}

    async def remove_user(self, asked: ApiRequest) -> Any:
        security = self._known().security.model_copy(deep=True)
        if security.users.pop(asked.id, None) is None:
            raise ApiError(404, "there is no such user")
        self._change(security)
        self._send_away(asked.id)
        return {}

    async def put_group(self, asked: ApiRequest) -> Any:
        security = self._known().security.model_copy(deep=True)
        security.groups[asked.id] = UserGroup(acl=asked.body.get("acl", []))
        self._change(security)
        return {}

    async def remove_group(self, asked: ApiRequest) -> Any:
        security = self._known().security.model_copy(deep=True)
        if security.groups.pop(asked.id, None) is None:
            raise ApiError(404, "there is no such group")
        self._change(security)
        return {}

    async def put_everybody(self, asked: ApiRequest) -> Any:
        security = self._known().security.model_copy(deep=True)
        security.everybody = UserGroup(acl=asked.body.get("acl", []))
        self._change(security)
        return {}

    def _known(self) -> DynamicPlugin:
        if self._dynamic is None:
            raise ApiError(404, "users are in files here; configure gateway.auth.dynamic.DynamicPlugin to change them")
        self._dynamic.look()
        return self._dynamic

    def _change(self, security: Security) -> None:
        dynamic = self._known()
        try:
            security.check()
            security.save(dynamic.path)
        except SecurityError as error:
            raise ApiError(400, str(error)) from None
        dynamic.reread({})()
        self._host.forget_verdicts(client.view for client in self._broker.lifecycle.clients.values())

    def _send_away(self, user: str) -> None:
        """Whoever was let in under this name has to log in again."""
        self.end_all(user)
        for client in list(self._broker.lifecycle.clients.values()):
            if client.view.username == user and client.peer is None:
                self._shown.disconnect(client.client_id)

    def stop(self) -> None:
        """Close what is open inside the broker."""
        loop = asyncio.get_running_loop()
        self._closing = {loop.create_task(client.close()) for client in self._clients}
