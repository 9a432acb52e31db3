"""Being traced, and tracking, over paho-mqtt: the client library for programs (B3, B6).

    with TracedEntity("pump-7/", "gateway.example.net") as pump:
        pump.state("READY")
        pump.load({"cpu": 0.2})

    with Tracker("desk/", "gateway.example.net") as desk:
        desk.follow("pump-7")
        for seen in desk:
            print(seen.entity, seen.kind.name, dict(seen.fields))

The directory is the one that `veilmq trust issue --role entity` made. A list of addresses in place of the host makes
each of these brokers a *witness* of the entity, an odd number of them: what a majority says is believed. A tracker
connects to as many brokers as it likes, the witnesses or others hearing them. Threads of paho's read, one of ours
keeps time; every method may be called from any thread, also from asyncio, where `async for` works in place of `for`.
The client id is the credentials' name: constrained topics name it. Not here: what is said and believed
(`bridge.tracking.witnessed`, `bridge.tracking.tracker`).
"""

from __future__ import annotations

import asyncio
import os
import queue
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from bridge.contract import Tick
from bridge.traces import EVERYTHING, Interest, TraceKind
from bridge.traces.tracer import Say
from bridge.tracking import (
    Follow,
    KeepEntity,
    Leave,
    Listen,
    Observed,
    Opinion,
    Told,
    Unfollow,
    Wishes,
    WitnessedEntity,
)
from bridge.tracking import entity as traced
from bridge.tracking import tracker as tracking
from gateway.base import Clock, read_private
from gateway.tracing.addresses import Address, Hosts, home_of, processes_of
from gateway.trust import Credentials, TrustError

OBSERVED_MAX = 100_000  # traces that a program has not taken; the oldest go
KEEP_ALIVE_S = 30
RECONNECT_MAX_S = 20  # between two tries: whoever lost a broker is back within a minute
PORT = 1883


_Effects: TypeAlias = Iterable[tuple[int | None, Any]]  # with the connection that each concerns; None: all of them


class _Driven:
    """Runs a single machine over paho clients, one for each broker."""

    def __init__(
        self,
        directory: Path | str,
        host: Hosts,
        port: int = PORT,
        *,
        configure: Callable[[mqtt.Client], object] = lambda client: None,
        clock: Clock | None = None,
    ) -> None:
        """`host`: of a broker, or several: hosts, `HOST:PORT`, or pairs; `HOST:FIRST-LAST` are the processes of a
        broker (`addresses`). `configure` may set TLS, user name and password on each paho client. Raises TrustError.
        """
        self.credentials = Credentials.load(Path(directory), time.time())
        self._clock = clock or Clock()
        self._amiss: dict[int, str] = {}  # by connection, what keeps it from being one
        brokers = processes_of(host, port)
        self._addresses = [found for each in brokers for found in self._meant(each)]
        if len(set(self._addresses)) < len(self._addresses):
            raise TrustError("a broker is named twice, where our two connections would end each other; name it once")
        self._wake = threading.Condition()
        self._ended = False
        self._clients = [self._client(index, configure) for index in range(len(self._addresses))]
        self._up = [False] * len(self._clients)
        self._timer = threading.Thread(target=self._keep_time, name=f"veilmq {self.credentials.name}", daemon=True)

    def _meant(self, processes: Sequence[Address]) -> Sequence[Address]:
        """Returns the processes of a broker to which this client connects."""
        return processes

    def _client(self, index: int, configure: Callable[[mqtt.Client], object]) -> mqtt.Client:
        client = mqtt.Client(CallbackAPIVersion.VERSION2, self.credentials.name, protocol=MQTTProtocolVersion.MQTTv5)
        configure(client)
        client.reconnect_delay_set(1, RECONNECT_MAX_S)

        def connected(c: mqtt.Client, data: Any, flags: mqtt.ConnectFlags, code: ReasonCode, properties: Any) -> None:
            if code.is_failure:
                self._is_amiss(index, f"refuses us: {code}")
            else:
                self._do(lambda now: self._is_up(index, now))

        def gone(c: mqtt.Client, data: Any, flags: Any, code: ReasonCode, properties: Any) -> None:
            if self._up[index]:
                self._is_amiss(index, f"ended the connection: {code}")
            self._do(lambda now: self._is_down(index, now))

        def subscribed(c: mqtt.Client, data: Any, mid: int, codes: list[ReasonCode], properties: Any) -> None:
            for code in codes:
                if code.is_failure:
                    self._is_amiss(index, f"does not let us subscribe: {code}")

        def published(c: mqtt.Client, data: Any, mid: int, code: ReasonCode, properties: Any) -> None:
            if code.is_failure:
                self._is_amiss(index, f"does not let us publish: {code}")

        def came(c: mqtt.Client, data: Any, message: mqtt.MQTTMessage) -> None:
            self._do(lambda now: self._take_told(index, Told(message.topic, bytes(message.payload)), now))

        client.on_connect, client.on_disconnect, client.on_message = connected, gone, came
        client.on_connect_fail = lambda c, data: self._is_amiss(index, "cannot be reached")
        client.on_subscribe, client.on_publish = subscribed, published
        return client

    def _is_amiss(self, index: int, why: str) -> None:
        host, port = self._addresses[index]
        with self._wake:
            self._amiss[index] = f"{host}:{port} {why}"

    def _is_up(self, index: int, now: float) -> _Effects:
        self._up[index] = True
        self._amiss.pop(index, None)
        return self._broker_connected(index, now)

    def _is_down(self, index: int, now: float) -> _Effects:
        self._up[index] = False
        return self._disconnected(now) if not any(self._up) else []

    @property
    def amiss(self) -> tuple[str, ...]:
        """Returns the faults of connections, a line each; empty where all is well or nothing is known yet."""
        with self._wake:
            return tuple(self._amiss.values())

    @property
    def is_connected(self) -> bool:
        """To any broker."""
        return any(self._up)

    # ------------------------------------------------------------------------------------------ the machine

    def _broker_connected(self, index: int, now: float) -> _Effects:
        raise NotImplementedError

    def _disconnected(self, now: float) -> _Effects:
        """No connection is left."""
        return []

    def _take_told(self, index: int, told: Told, now: float) -> _Effects:
        raise NotImplementedError

    def _advance_machine(self, now: float) -> _Effects:
        raise NotImplementedError

    def _machine_deadline(self) -> float | None:
        raise NotImplementedError

    # --------------------------------------------------------------------------------------------- lifetime

    def start(self) -> Self:
        """Connect in the background and stay connected."""
        for client, address in zip(self._clients, self._addresses, strict=True):
            client.connect_async(*address, keepalive=KEEP_ALIVE_S, clean_start=True)
            client.loop_start()
        self._timer.start()
        return self

    def stop(self) -> None:
        """Disconnect; nothing is said to trackers but what a DISCONNECT says."""
        with self._wake:
            self._ended = True
            self._wake.notify()
        for client in self._clients:
            client.disconnect()
        for client in self._clients:
            client.loop_stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ---------------------------------------------------------------------------------------------- effects

    def _do(self, act: Callable[[float], _Effects]) -> None:
        """A thing at a time; what follows from it leaves in its order."""
        with self._wake:
            for index, effect in act(self._clock()):
                self._perform_effect(index, effect)
            self._wake.notify()

    def _perform_effect(self, index: int | None, effect: Any) -> None:
        """Performs an effect. A message to an absent broker is lost: the machine begins anew once the broker is
        back.
        """
        if isinstance(effect, KeepEntity):
            self.credentials.keep_advertisement(effect.advertisement)
            return
        for client in [c for i, c in enumerate(self._clients) if index in (i, None) and self._up[i]]:
            match effect:
                case Listen(topic):
                    client.subscribe(topic, qos=1)
                case Leave(topic):
                    client.unsubscribe(topic)
                case Say(topic, payload, qos):
                    client.publish(topic, payload, qos)

    def _keep_time(self) -> None:
        with self._wake:
            while not self._ended:
                deadline = self._machine_deadline()
                left_s = None if deadline is None else deadline - self._clock()
                if left_s is None or left_s > 0:
                    self._wake.wait(left_s)
                    continue
                for index, effect in self._advance_machine(self._clock()):
                    self._perform_effect(index, effect)


def connection(
    username: str | None = None, password_file: Path | None = None, cafile: Path | None = None
) -> Callable[[mqtt.Client], None]:
    """Returns how to connect: `configure` of the classes here. Raises PrivateFileError or TrustError at once."""
    try:
        password = None if password_file is None else read_private(password_file).decode().strip()
    except UnicodeDecodeError:
        raise TrustError(f"{password_file}: holds no text; write the password into it") from None
    if cafile is not None:
        try:
            ssl.create_default_context(cafile=cafile)
        except (OSError, ValueError) as error:
            why = "no such file" if isinstance(error, FileNotFoundError) else f"is no authority ({error})"
            raise TrustError(f"{cafile}: {why}; name the gateway's certificate authority") from None

    def configure(client: mqtt.Client) -> None:
        if username is not None:
            client.username_pw_set(username, password)
        if cafile is not None:
            client.tls_set(str(cafile))

    return configure


class TracedEntity(_Driven):
    """A program that is traced. `host`: several are its witnesses, each best run by somebody else. `wishes`: who may
    discover it, whether traces are sealed."""

    def __init__(self, directory: Path | str, host: Hosts, port: int = PORT, *, wishes: Wishes | None = None,
                 **options: Any) -> None:  # fmt: skip
        """Raises TrustError; keys.errors.OurFault for a number of brokers without a majority."""
        super().__init__(directory, host, port, **options)
        own, wishes = self.credentials, wishes or Wishes()
        self._entity = WitnessedEntity(
            own.identity, own.certificate, own.nodes, own.authority, os.urandom, wishes, own.advertisement(),
            witnesses=len(self._addresses), wall=self._clock.wall,
        )  # fmt: skip

    def _meant(self, processes: Sequence[Address]) -> Sequence[Address]:
        return [home_of(self.credentials.name, processes)]

    def _broker_connected(self, index: int, now: float) -> _Effects:
        return self._entity.handle(traced.BrokerConnected(), index, now)

    def _take_told(self, index: int, told: Told, now: float) -> _Effects:
        return self._entity.handle(told, index, now)

    def _advance_machine(self, now: float) -> _Effects:
        return self._entity.tick(now)

    def _machine_deadline(self) -> float | None:
        return self._entity.next_deadline

    @property
    def stage(self) -> traced.Stage:
        """The stage of the entity: without a trace topic, unregistered, traced; with several witnesses, by a
        majority.
        """
        with self._wake:
            return self._entity.stage

    @property
    def stages(self) -> tuple[traced.Stage, ...]:
        """The stage of the entity with each witness."""
        with self._wake:
            return self._entity.stages

    def state(self, state: TraceKind | str) -> None:
        """INITIALIZING, RECOVERING, READY or SHUTDOWN. Raises ValueError, KeyError for anything else."""
        kind = TraceKind[state] if isinstance(state, str) else state
        self._do(lambda now: self._entity.set_state(kind, now))

    def load(self, fields: Mapping[str, object]) -> None:
        """Tells trackers the load: JSON values by name."""
        self._do(lambda now: self._entity.report_load(fields, now))

    def silent(self) -> None:
        """No more traces until it connects again."""
        self._do(self._entity.silent)

    def renounce(self) -> None:
        """Take a new trace topic: the old one is known to whom it should not (B9)."""
        self._do(self._entity.renounce)


class Tracker(_Driven):
    """A program that tracks: follow entities, iterate over what is observed."""

    def __init__(self, directory: Path | str, host: Hosts, port: int = PORT, **options: Any) -> None:
        super().__init__(directory, host, port, **options)
        self._observed: queue.Queue[Observed | None] = queue.Queue()
        own = self.credentials
        self._tracker = tracking.Tracker(
            own.identity, own.certificate, own.nodes, own.authority, os.urandom, self._clock.wall
        )

    def _broker_connected(self, index: int, now: float) -> _Effects:
        """Subscribes and asks at a broker that is connected now: each broker gets all subscriptions and questions."""
        effects = self._tracker.handle(traced.BrokerConnected(), now)
        return [(index if isinstance(effect, Listen) else None, effect) for effect in effects]

    def _take_told(self, index: int, told: Told, now: float) -> _Effects:
        return self._handle(told, now)

    def _advance_machine(self, now: float) -> _Effects:
        return self._handle(Tick(), now)

    def _machine_deadline(self) -> float | None:
        return self._tracker.next_deadline

    def _disconnected(self, now: float) -> _Effects:
        return self._handle(traced.Disconnected(), now)

    def _handle(self, event: traced.Disconnected | Told | Tick | Follow | Unfollow, now: float) -> _Effects:
        return [(None, effect) for effect in self._tracker.handle(event, now)]

    def follow(self, entity: str, interest: Interest = EVERYTHING) -> None:
        """Tracks an entity from now on; one that does not exist yet, or may not be discovered, is asked for again. A
        second call changes the interest."""
        self._do(lambda now: self._handle(Follow(entity, interest), now))

    def unfollow(self, entity: str) -> None:
        """Tracks an entity no longer; of a pattern those whom nothing else names. What was observed is still handed
        out."""
        self._do(lambda now: self._handle(Unfollow(entity), now))

    def trouble(self, entity: str) -> str | None:
        """Why nothing is observed of an entity, in a few words; None while there is nothing to say."""
        with self._wake:
            return self._tracker.trouble_with(entity, self._clock())

    def opinions(self, entity: str) -> tuple[Opinion, ...]:
        """Returns the last statement of each witness of an entity; empty before one spoke.

        A witness that dissents is wrong, cut off, or lies.
        """
        with self._wake:
            return self._tracker.opinions(entity, self._clock())

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

    def _perform_effect(self, index: int | None, effect: Any) -> None:
        if not isinstance(effect, Observed):
            super()._perform_effect(index, effect)
            return
        if self._observed.qsize() >= OBSERVED_MAX:
            self._observed.get_nowait()
        self._observed.put(effect)
