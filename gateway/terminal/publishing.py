"""Publishing at a terminal: each message is sent, and waited for until the server has answered.

A lost connection is restored meanwhile; unacknowledged messages go again, by MQTT 5 in the same session. The server's
refusal of a message ends the command.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from gateway.mqtt5.packets import Publish, Version
from gateway.mqtt5.types import MqttError
from gateway.terminal.server import Server, TerminalClient, TerminalError

WINDOW = 256
"""Messages in flight: those of a fast source wait in the source, not here."""
ENDS_MAX = 2
"""Lost connections with nothing acknowledged between: MQTT 3.1.1 has no other way to refuse a message."""


@dataclass
class PublishOutcome:
    """The outcome of a publisher: messages, seconds from the first to the last answer, longest wait for an answer."""

    messages: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0


async def publish(server: Server, messages: AsyncIterator[Publish], within_s: float) -> PublishOutcome:
    """Publishes messages. Raises TerminalError: no connection, a refusal, or no answer for `within_s` seconds."""
    client = server.client()
    await client.begin_session()
    try:
        return await _Publisher(client, server, within_s).run(messages)
    finally:
        await client.end_session()


class _Publisher:
    def __init__(self, client: TerminalClient, server: Server, within_s: float) -> None:
        self._client, self._server, self._within_s = client, server, within_s
        self._sent = PublishOutcome()
        self._open = self._losses_seen = self._ends = 0
        self._failed: TerminalError | None = None
        self._moved = asyncio.Event()
        client.on_up = client.on_room = self._moved.set
        client.on_down = self._send_again

    async def run(self, messages: AsyncIterator[Publish]) -> PublishOutcome:
        begun = time.monotonic()
        async for message in messages:
            await self._until(lambda: self._open < WINDOW)
            await self._send_message(message)
        await self._until(lambda: not self._open)
        self._sent.seconds = time.monotonic() - begun
        return self._sent

    async def _send_message(self, message: Publish) -> None:
        at = time.monotonic()

        def acknowledged() -> None:
            self._open -= 1
            self._ends = 0
            self._sent.slowest_s = max(self._sent.slowest_s, time.monotonic() - at)
            self._moved.set()

        def refused(code: int) -> None:
            self._fail_with(self._client.refusal_error(f"the publication on {message.topic}", code))

        self._open += message.qos > 0
        try:
            while not self._client.publish(
                message.topic, message.payload, message.qos, message.retain, message.properties, acknowledged, refused
            ):
                self._moved.clear()
                await self._until(lambda: self._client.connected and self._moved.is_set())
        except MqttError as error:
            raise TerminalError(f"{message.topic}: {error} (0x{error.reason:02x}); correct the message") from None
        self._sent.messages += 1

    async def _until(self, holds: object) -> None:
        """Waits until a condition holds. Raises the failure, or TerminalError after the time without an answer."""
        assert callable(holds)
        while self._failed is None and not holds():
            self._moved.clear()
            try:
                async with asyncio.timeout(self._within_s):
                    await self._moved.wait()
            except TimeoutError:
                why = self._client.last_error or "see `veilmq status` of that broker"
                text = f"{self._server.address} acknowledged nothing for {self._within_s:g} s; {why}"
                raise TerminalError(f"{text} ({self._open} publications open)") from None
        if self._failed is not None:
            raise self._failed

    def _send_again(self) -> None:
        self._ends += self._open > 0
        if self._server.version != Version.V5 and self._ends >= ENDS_MAX:
            where = self._server.address
            self._fail_with(
                TerminalError(
                    f"{where} ends the connection at the publication, as MQTT 3.1.1 refuses; --mqtt 5 tells the reason"
                )
            )

    def _fail_with(self, error: TerminalError) -> None:
        self._failed = self._failed or error
        self._moved.set()
