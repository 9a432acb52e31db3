"""Subscribing at a terminal: messages are written out until a number of them, a time, or Ctrl-C.

A message is acknowledged once it is written. After a lost connection the client returns and subscribes anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from gateway.client.wanted import MAX_SUBSCRIPTIONS
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.types import MalformedPacket, ReasonCode, check_topic_filter
from gateway.terminal.server import Server, TerminalClient, TerminalError
from gateway.terminal.written import Form, one_line

WINDOW = 256
"""Messages that the server sends before the first of them is written out."""


@dataclass(frozen=True)
class SubscribeOptions:
    """The messages a subscriber wants. `count`, `seconds`: it ends after so many; None: it goes on.

    `retain_handling`: of MQTT 5; 2 leaves retained messages out.
    """

    filters: Sequence[str]
    qos: int = 1
    count: int | None = None
    seconds: float | None = None
    retain_handling: int = 0
    no_local: bool = False


async def subscribe(
    server: Server,
    wanted: SubscribeOptions,
    out: BinaryIO,
    form: Form = one_line,
    wall: Callable[[], float] = time.time,
    subscribed: Callable[[], object] = lambda: None,
) -> int:
    """Writes messages to `out`; returns their number. `subscribed`: called once all filters are granted.

    Raises TerminalError for an unusable filter, no connection, or a refusal; OSError where `out` takes nothing.
    """
    for topic_filter in wanted.filters:
        try:
            check_topic_filter(topic_filter)
        except MalformedPacket as error:
            raise TerminalError(f"{topic_filter!r}: {error}; correct the filter") from None
    if len(wanted.filters) > MAX_SUBSCRIPTIONS:
        raise TerminalError(f"more than {MAX_SUBSCRIPTIONS} filters; use wildcards")
    client = server.client(manual_ack=True, receive_maximum=WINDOW)
    subscriber = _Subscriber(client, wanted, out, form, wall, subscribed)
    await client.begin_session()
    try:
        return await subscriber.run()
    finally:
        await client.end_session()


class _Subscriber:
    def __init__(
        self, client: TerminalClient, wanted: SubscribeOptions, out: BinaryIO, form: Form, wall: Callable[[], float],
        subscribed: Callable[[], object],
    ) -> None:  # fmt: skip
        self._client, self._wanted, self._out, self._form, self._wall = client, wanted, out, form, wall
        self._missing, self._subscribed = set(wanted.filters), subscribed
        self._written = 0
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        client.on_publish = self._take_publish

    async def run(self) -> int:
        for topic_filter in self._wanted.filters:
            self._client.subscribe(
                topic_filter, self._wanted.qos, no_local=self._wanted.no_local and topic_filter[:7] != "$share/",
                retain_handling=self._wanted.retain_handling,
                on_answer=partial(self._answered, topic_filter),
            )  # fmt: skip
        await asyncio.wait([self._end], timeout=self._wanted.seconds)
        if self._end.done():
            self._end.result()
        return self._written

    def _answered(self, topic_filter: str, code: int) -> None:
        if code >= ReasonCode.UNSPECIFIED_ERROR:
            self._finish_with(self._client.refusal_error(f"the subscription to {topic_filter}", code))
            return
        if topic_filter in self._missing:
            self._missing.discard(topic_filter)
            if not self._missing:
                self._subscribed()

    def _take_publish(self, publish: Publish) -> None:
        if self._end.done():
            return  # not acknowledged: a kept session brings it to the next command
        try:
            self._out.write(self._form(publish, self._wall()))
            self._out.flush()
        except OSError as error:
            self._finish_with(error)
            return
        if publish.qos:
            self._client.acknowledge(publish)
        self._written += 1
        if self._written == self._wanted.count:
            self._finish_with(None)

    def _finish_with(self, error: Exception | None) -> None:
        if self._end.done():
            return
        if error is None:
            self._end.set_result(None)
        else:
            self._end.set_exception(error)
