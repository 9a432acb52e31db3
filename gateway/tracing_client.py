"""Being traced, and tracking, over paho-mqtt: the client library for programs (B3, B6).

    with TracedEntity("pump-7/", "gateway.example.net") as pump:
        pump.state("READY")
        pump.load({"cpu": 0.2})

    with Tracker("desk/", "gateway.example.net") as desk:
        desk.follow("pump-7")
        for seen in desk:
            print(seen.entity, seen.kind.name, dict(seen.fields))

The directory is the one that `veilmq trust issue --role entity` made. A thread of paho's reads, one of ours keeps
time; every method may be called from any thread, also from asyncio, where `async for` works in place of `for`. The
client id is the credentials' name: constrained topics name it. Not here: what is said and believed (`bridge.traced`,
`bridge.tracking`).
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from bridge import traced, tracking
from bridge.machine import Tick
from bridge.traced import Connected, Keep, Listen, Told, Wishes
from bridge.traces import EVERYTHING, Interest, TraceKind
from bridge.tracing import Say
from bridge.tracking import Follow, Leave, Observed, Unfollow
from gateway.credentials import Credentials
from gateway.private import read_private
from gateway.trust import TrustError

OBSERVED_MAX = 100_000  # traces that a program has not taken; the oldest go
KEEP_ALIVE_S = 30
PORT = 1883


class _Machine(Protocol):
    @property
    def next_deadline(self) -> float | None: ...

    def handle(self, event: Any, now: float) -> Sequence[Any]: ...


class _Driven:
    """Runs one machine over one paho client."""

    def __init__(
        self,
        directory: Path | str,
        host: str,
        port: int = PORT,
        *,
        configure: Callable[[mqtt.Client], object] = lambda client: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`configure` may set TLS, user name and password on the paho client. Raises TrustError."""
        self.credentials = Credentials.load(Path(directory), clock())
        self._clock = clock
        self._machine = self._make()
        self._wake = threading.Condition()
        self._ended = False
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2, self.credentials.name, protocol=MQTTProtocolVersion.MQTTv5
        )
        configure(self._client)
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        self._address = (host, port)
        self._timer = threading.Thread(target=self._keep_time, name=f"veilmq {self.credentials.name}", daemon=True)

    def _make(self) -> _Machine:
        raise NotImplementedError

    # --------------------------------------------------------------------------------------------- lifetime

    def start(self) -> Self:
        """Connect in the background and stay connected."""
        self._client.connect_async(*self._address, keepalive=KEEP_ALIVE_S, clean_start=True)
        self._client.loop_start()
        self._timer.start()
        return self

    def stop(self) -> None:
        """Disconnect; nothing is said to trackers but what a DISCONNECT says."""
        with self._wake:
            self._ended = True
            self._wake.notify()
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ------------------------------------------------------------------------------------------ the machine

    def _on_connect(
        self, client: mqtt.Client, userdata: Any, flags: mqtt.ConnectFlags, code: ReasonCode, properties: Any
    ) -> None:
        if not code.is_failure:
            self._handle(Connected())

    def _on_message(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        self._handle(Told(message.topic, bytes(message.payload)))

    def _handle(self, event: Any) -> None:
        self._do(lambda now: self._machine.handle(event, now))

    def _do(self, act: Callable[[float], Sequence[Any]]) -> None:
        """One thing at a time; what follows from it leaves in its order."""
        with self._wake:
            for effect in act(self._clock()):
                self._perform(effect)
            self._wake.notify()

    def _perform(self, effect: Any) -> None:
        match effect:
            case Listen(topic):
                self._client.subscribe(topic, qos=1)
            case Leave(topic):
                self._client.unsubscribe(topic)
            case Say(topic, payload, qos):
                self._client.publish(topic, payload, qos)
            case Keep(advertisement):
                self.credentials.keep(advertisement)

    def _keep_time(self) -> None:
        with self._wake:
            while not self._ended:
                deadline = self._machine.next_deadline
                left_s = None if deadline is None else deadline - self._clock()
                if left_s is None or left_s > 0:
                    self._wake.wait(left_s)
                    continue
                for effect in self._machine.handle(Tick(), self._clock()):
                    self._perform(effect)


def connection(
    username: str | None = None, password_file: Path | None = None, cafile: Path | None = None
) -> Callable[[mqtt.Client], None]:
    """How to connect: `configure` of the classes here. Raises PrivateFileError or TrustError at once."""
    password = None if password_file is None else read_private(password_file).decode().strip()
    if cafile is not None and not cafile.exists():
        raise TrustError(f"{cafile}: no such file; name the gateway's certificate authority")

    def configure(client: mqtt.Client) -> None:
        if username is not None:
            client.username_pw_set(username, password)
        if cafile is not None:
            client.tls_set(str(cafile))

    return configure


class TracedEntity(_Driven):
    """A program that is traced. `wishes`: who may discover it, whether traces are sealed."""

    def __init__(self, directory: Path | str, host: str, port: int = PORT, *, wishes: Wishes | None = None,
                 **options: Any) -> None:  # fmt: skip
        self._wishes = wishes
        super().__init__(directory, host, port, **options)

    def _make(self) -> _Machine:
        own = self.credentials
        self._entity = traced.TracedEntity(
            own.identity, own.certificate, own.nodes, own.authority, os.urandom, self._wishes, own.advertisement()
        )
        return self._entity

    @property
    def stage(self) -> traced.Stage:
        """How far it is: without a trace topic, unregistered, traced."""
        with self._wake:
            return self._entity.stage

    def state(self, state: TraceKind | str) -> None:
        """INITIALIZING, RECOVERING, READY or SHUTDOWN. Raises ValueError, KeyError for anything else."""
        kind = TraceKind[state] if isinstance(state, str) else state
        self._do(lambda now: self._entity.state(kind))

    def load(self, fields: Mapping[str, object]) -> None:
        """What trackers should know of the load: JSON values by name."""
        self._do(lambda now: self._entity.load(fields))

    def silent(self) -> None:
        """No more traces until it connects again."""
        self._do(lambda now: self._entity.silent())

    def renounce(self) -> None:
        """Take a new trace topic: the old one is known to whom it should not be (B9)."""
        self._do(self._entity.renounce)


class Tracker(_Driven):
    """A program that tracks: follow entities, iterate over what is observed."""

    def __init__(self, directory: Path | str, host: str, port: int = PORT, **options: Any) -> None:
        self._observed: queue.Queue[Observed | None] = queue.Queue()
        super().__init__(directory, host, port, **options)

    def _make(self) -> _Machine:
        own = self.credentials
        return tracking.Tracker(own.identity, own.certificate, own.nodes, own.authority, os.urandom)

    def follow(self, entity: str, interest: Interest = EVERYTHING) -> None:
        """Track an entity from now on; one that does not exist yet, or may not be discovered, is asked for again."""
        self._handle(Follow(entity, interest))

    def unfollow(self, entity: str) -> None:
        self._handle(Unfollow(entity))

    def next(self, timeout_s: float | None = None) -> Observed | None:
        """The next trace that holds; None after `timeout_s`, or once it was stopped."""
        try:
            return self._observed.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def __iter__(self) -> Iterator[Observed]:
        while (seen := self.next()) is not None:
            yield seen

    async def __aiter__(self) -> AsyncIterator[Observed]:
        while (seen := await asyncio.to_thread(self.next)) is not None:
            yield seen

    def stop(self) -> None:
        super().stop()
        self._observed.put(None)

    def _perform(self, effect: Any) -> None:
        if not isinstance(effect, Observed):
            super()._perform(effect)
            return
        if self._observed.qsize() >= OBSERVED_MAX:
            self._observed.get_nowait()
        self._observed.put(effect)
