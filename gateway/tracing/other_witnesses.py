"""Our connections to the other witnesses, through which entities that are silent here are asked.

An ordinary client of each of them: it publishes what `bridge.traces.elsewhere` asks where the entity alone hears it,
and subscribes to where the entity alone answers. Who is not reached is no other witness at that moment. Not here: whom
to ask, and what follows from an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable

from bridge.contract import FairTable
from bridge.traces import AskThere
from gateway.base import OtherWitnessSettings, PrivateFileError, read_private
from gateway.client import MqttClient
from gateway.mqtt5.packets import Publish
from gateway.tracing.addresses import processes_of
from gateway.trust import TrustError

PORT = 1883
ASKED_MAX = 1_024
"""Sessions whose answers are subscribed to there; the holder with most loses the session asked longest ago."""


class OtherWitnesses:
    """`name`: ours, of which the client id is made."""

    def __init__(self, settings: OtherWitnessSettings, name: str) -> None:
        """Raises TrustError."""
        password, context = None, None
        try:
            if settings.password_file is not None:
                password = read_private(settings.password_file).rstrip(b"\r\n")
            if settings.cafile is not None:
                context = ssl.create_default_context(cafile=str(settings.cafile))
        except (PrivateFileError, OSError, ssl.SSLError) as error:
            raise TrustError(f"traces.other_witnesses: {error}; correct the file") from None
        self._clients = [
            MqttClient(
                host, port, client_id=f"{name}-asks", ssl=context, username=settings.username, password=password,
            )
            for processes in processes_of(settings.brokers, PORT) for host, port in processes
        ]  # fmt: skip
        self._asked: FairTable[bytes, str] = FairTable(ASKED_MAX)  # by holder
        self._closing: asyncio.Future[list[None]] | None = None

    @property
    def reached_count(self) -> int:
        """The number of witnesses that are reached now."""
        return sum(client.connected for client in self._clients)

    def start(self, changed: Callable[[int], object], heard: Callable[[bytes, bytes], object]) -> None:
        """Connects to every witness. Calls `changed(up)` with the number of reached witnesses whenever one comes or
        goes, and `heard(session, data)` for each answer.
        """
        self._heard = heard
        for client in self._clients:
            client.on_up = client.on_down = lambda: changed(self.reached_count)
            client.on_publish = self._came
            client.start()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop ended, and its connections with it
            loop = asyncio.get_running_loop()
            self._closing = asyncio.gather(*(loop.create_task(client.close()) for client in self._clients))

    def ask_witnesses(self, asked: AskThere) -> None:
        """At each that is reached: one the entity does not know has nobody who listens."""
        gone = self._asked.put(asked.session, asked.holder.encode(), asked.answers_at)
        if gone is not None:
            for client in self._clients:
                client.unsubscribe(gone[1])
        for client in self._clients:
            client.subscribe(asked.answers_at, 0)
            client.publish(asked.topic, asked.payload)

    def _came(self, publish: Publish) -> None:
        """That broker is believed nothing: what opens under a session's key is the entity's."""
        for session in publish.topic.split("/")[-2:-1]:
            with contextlib.suppress(ValueError):
                self._heard(bytes.fromhex(session), publish.payload)
