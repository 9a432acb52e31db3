"""Streams of the API: messages of a filter, or steps of messages, as server-sent events, until the browser goes.

The stream's client in the broker may receive everything. So a message is judged by the user's rights before anything
else: before predicates, and before it takes the place of another one. A slow browser misses messages, and is told how
many. The backlog is bounded in messages and bytes: only the shown part of a payload waits. A stream ends within a
second of the login or token that opened it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from bridge.base import Belongings
from gateway.base.config_console import STREAMS_MAX
from gateway.base.followed import FollowedMessages, FollowError, Following, Wish
from gateway.broker import EdgeBroker
from gateway.client import LocalEnd
from gateway.clients import INTERNAL, wants
from gateway.console.asking import ApiError, ApiRequest
from gateway.console.shown import PAYLOAD_SHOWN_BYTES, message_json
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Publish, Subscription
from gateway.plugins import EdgeSession, PluginHost
from gateway.plugins.host import Action

WAITING_MAX, WAITING_BYTES_MAX = 500, 1 << 20
"""Messages that wait for one stream, and the bytes of their topics and of the shown parts of their payloads."""
LOOK_S = 0.5
"""Seconds between two checks if the login that opened a stream still counts."""
ALIVE_S = 5.0
"""Seconds without a message after which the browser gets a sign of life."""
STALLED_S = 20.0
"""Seconds after which a browser that takes none of the written bytes is cut off."""
FAILED = 0x80
"""The lowest code of SUBACK that is a refusal (MQTT 5.0 §3.9.3)."""


class StreamBacklog:
    """Messages waiting for a stream."""

    def __init__(self) -> None:
        self._messages: deque[tuple[Message, int, int]] = deque()
        self._bytes = 0
        self.missed = 0
        self.arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def add_message(self, publish: Publish, is_counted: bool = True) -> None:
        """Keeps the shown part of a message, or counts it as missed, if `is_counted`."""
        payload = bytes(publish.payload[: PAYLOAD_SHOWN_BYTES + 1])  # one byte more shows that it is cut
        size = len(payload) + len(publish.topic.encode())
        if len(self._messages) >= WAITING_MAX or self._bytes + size > WAITING_BYTES_MAX:
            self.missed += is_counted
            return
        self._bytes += size
        message = Message(publish.topic, payload, publish.qos, publish.retain)
        self._messages.append((message, len(publish.payload), size))
        self.arrived.set()

    def take_message(self) -> dict[str, Any] | None:
        """Returns the oldest message; None if there is none."""
        if not self._messages:
            self.arrived.clear()
            return None
        message, length, size = self._messages.popleft()
        self._bytes -= size
        return {**message_json(message), "bytes": length}


@dataclass(eq=False, slots=True)
class OpenStream:
    """Stream of a user. `is_over`: it ends at the next look, for a stream of another user."""

    user: str
    is_over: bool = False


class StreamRights:
    """Rights of a stream's user to receive messages. `view`: returns the user as plugins see a client."""

    def __init__(self, host: PluginHost, view: Callable[[], EdgeSession]) -> None:
        self._host, self._view = host, view
        self._known, self._version = view(), host.rights_version

    def known(self, topic: str) -> bool | None:
        """Returns the verdict on a topic if no plugin has to be asked, else None."""
        if self._version != self._host.rights_version:
            self._known, self._version = self._view(), self._host.rights_version
        return self._host.verdict(self._known, topic, Action.RECEIVE)

    async def may_receive(self, topic: str) -> bool:
        known = self.known(topic)
        return known if known is not None else await self._host.ask_topic_plugins(self._known, topic, Action.RECEIVE)


class Streams:
    """Open streams of a console. `view`: returns the asking user as plugins see a client."""

    def __init__(self, broker: EdgeBroker, view: Callable[[ApiRequest], EdgeSession]) -> None:
        self._broker, self._view = broker, view
        self._open: Belongings[str, OpenStream] = Belongings()  # the oldest of each user first
        self._count = 0
        self.clients: set[LocalEnd] = set()

    async def serve(self, asked: ApiRequest, wanted: Subscription) -> web.StreamResponse:
        """Serves a stream of messages to its end. Raises ApiError if there are too many streams."""
        client = LocalEnd(f"{INTERNAL}console/{secrets.token_hex(8)}", self._broker)
        self.clients.add(client)
        try:
            return await self._stream(asked, lambda response: self._write_messages(asked, wanted, client, response))
        finally:
            self.clients.discard(client)
            await client.close()

    async def follow_messages(self, asked: ApiRequest, followed: FollowedMessages, wish: Wish) -> web.StreamResponse:
        """Serves a stream of the steps of messages to its end. Raises ApiError if there are too many streams."""
        try:
            following = followed.begin_following(wish)
        except FollowError as error:
            raise ApiError(503, str(error)) from None
        try:
            return await self._stream(asked, lambda response: _tell_steps(following, followed.member, response))
        finally:
            followed.end_following(following)

    async def _stream(
        self, asked: ApiRequest, tell: Callable[[web.StreamResponse], Coroutine[Any, Any, None]]
    ) -> web.StreamResponse:
        stream = self._begin_stream(asked.user)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store",
                                               "X-Content-Type-Options": "nosniff"})  # fmt: skip
        try:
            await response.prepare(asked.request)
            telling = asyncio.ensure_future(tell(response))
            try:
                while asked.goes_on() and not telling.done() and not stream.is_over:
                    await asyncio.wait([telling], timeout=LOOK_S)
            finally:
                telling.cancel()
                with suppress(ConnectionError, TimeoutError, asyncio.CancelledError):
                    await telling
        finally:
            self._end_stream(stream)
        response.force_close()
        return response

    def _begin_stream(self, user: str) -> OpenStream:
        """Counts a new stream, for which the user with most loses its oldest. Raises ApiError if nobody has more."""
        if self._count >= STREAMS_MAX:
            gone = self._open.oldest_of_more(user)
            if gone is None:
                raise ApiError(503, f"{STREAMS_MAX} streams are open; close one")
            self._end_stream(gone)
        stream = OpenStream(user)
        self._open.add(user, stream)
        self._count += 1
        return stream

    def _end_stream(self, stream: OpenStream) -> None:
        if not stream.is_over:
            stream.is_over = True
            self._open.drop_thing(stream.user, stream)
            self._count -= 1

    async def _write_messages(
        self, asked: ApiRequest, wanted: Subscription, client: LocalEnd, response: web.StreamResponse
    ) -> None:
        """Writes arriving messages. Returns where the broker refuses the filter; raises TimeoutError for a browser that
        does not read.
        """
        waiting, rights = StreamBacklog(), StreamRights(self._broker.host, partial(self._view, asked))
        answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def answer(code: int) -> None:
            if not answered.done():
                answered.set_result(code)

        def came(publish: Publish) -> None:
            known = rights.known(publish.topic)
            if known is not False and wants(wanted, publish):
                # What a plugin has to be asked about tells nothing by being missed.
                waiting.add_message(publish, is_counted=bool(known) or not wanted.predicate)

        client.on_publish = came
        await client.connect()
        client.subscribe(wanted.base, 0, on_answer=answer)
        if await answered >= FAILED:
            await _write(response, "event: refused\ndata: {}\n\n")
            return
        await _write(response, "event: subscribed\ndata: {}\n\n")
        while True:
            line = waiting.take_message()
            if line is None:
                try:
                    await asyncio.wait_for(waiting.arrived.wait(), ALIVE_S)
                except TimeoutError:
                    await _write(response, ": still here\n\n")
            elif await rights.may_receive(line["topic"]):
                line |= {"missed": waiting.missed, "time": time.time()}
                await _write(response, f"data: {json.dumps(line)}\n\n")


async def _tell_steps(following: Following, member: str, response: web.StreamResponse) -> None:
    """Writes steps of messages as they come. Raises TimeoutError for a browser that does not read."""
    arrived = asyncio.Event()
    following.arrived = arrived.set
    await _write(response, "event: subscribed\ndata: {}\n\n")
    while True:
        arrived.clear()
        while (step := following.take_step()) is not None:
            shown = {**step.to_dict(member), "missed": following.missed}
            await _write(response, f"data: {json.dumps(shown, default=str)}\n\n")
        try:
            await asyncio.wait_for(arrived.wait(), ALIVE_S)
        except TimeoutError:
            await _write(response, ": still here\n\n")


async def _write(response: web.StreamResponse, text: str) -> None:
    await asyncio.wait_for(response.write(text.encode()), STALLED_S)
