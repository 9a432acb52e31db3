"""Random schedules of outages of a broker under publishers that repeat by the book: each gets on, and loses nothing.

An example is a list of steps: publications, and beginnings and ends of outages, in any order. After them all outages
end. Then all that was sent is acknowledged, at the receiver and in the overlay: in order, and at QoS 2 once.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.contract import Publication
from gateway.data import NoRoomError
from gateway.mqtt5.packets import Packet, PubAck, PubComp, PubRec, Version
from gateway.mqtt5.types import ReasonCode
from gateway.sessions import store as session_store
from tests.bench import soak_clients
from tests.bench.soak_clients import Flow, Receiver
from tests.gateway.harness import Wire, serving
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.waits import until

ENDS_S = 10.0
KINDS = [(version, qos) for version in (Version.V311, Version.V5) for qos in (1, 2)]
STEPS = (
    "publish", "publish", "publish", "publish",
    "outbox full", "outbox room", "outbox slow", "outbox writes", "outbox refuses",
    "disk full", "disk refuses once", "disk room",
    "hold", "read", "cut", "take over", "restart",
)  # fmt: skip


class Overlay(FakeOverlay):
    """An overlay with an outbox that takes, refuses (`is_full`) or takes its time (`is_slow`) and then takes or
    refuses: a quorum or a key is away. `stored`: what it has answered for, by topic."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = self.is_slow = False
        self.stored: dict[str, list[int]] = {}
        self._undecided: list[tuple[Callable[[], None], Callable[[int], None]]] = []

    def publish_run(self, client_id: str, run: object, done: object) -> int:
        return 0

    def publish(self, client_id: str, publication: Publication, done: Callable[[int], None]) -> bool:
        def store() -> None:
            self.stored.setdefault(publication.topic, []).append(int(publication.payload))
            done(ReasonCode.SUCCESS)

        if self.is_full:
            done(ReasonCode.QUOTA_EXCEEDED)
        elif self.is_slow:
            self._undecided.append((store, done))
        else:
            self.write()
            store()
        return True

    def write(self) -> None:
        undecided, self._undecided = self._undecided, []
        for store, _ in undecided:
            store()

    def refuse(self) -> None:
        undecided, self._undecided = self._undecided, []
        for _, done in undecided:
            done(ReasonCode.QUOTA_EXCEEDED)

    def forget(self) -> None:
        self._undecided.clear()


class Reader(Receiver):
    """A receiver that acknowledges nothing while it `is_holding`."""

    is_holding = False
    _held: tuple[Packet, ...] = ()

    def begin(self, has_session: bool) -> None:
        self._held = ()
        super().begin(has_session)

    def send(self, *packets: Packet) -> None:
        if self.is_holding and all(isinstance(one, PubAck | PubRec | PubComp) for one in packets):
            self._held += packets
        else:
            super().send(*packets)

    def hold(self, is_holding: bool) -> None:
        self.is_holding = is_holding
        if not is_holding:
            held, self._held = self._held, ()
            self.send(*held)


class Again(Flow):
    """A publisher that publishes again what is refused, as programs do: those numbers (`anew`) have no order."""

    def __init__(self, port: int, version: Version, qos: int) -> None:
        super().__init__(port, f"ward/{version.name}-{qos}", version, qos, 1.0)
        self.anew = set[int]()

    def publish_next(self) -> None:
        if self.is_up:
            self.sent += 1
            self.publish(b"%d" % self.sent, self.sent)

    def publish_refused(self) -> None:
        if self.is_up:
            refused, self.refused = sorted(self.refused), set()
            self.anew.update(refused)
            for number in refused:
                self.publish(b"%d" % number, number)

    def is_finished(self) -> bool:
        self.publish_refused()
        return not self.unfinished and not self.refused


class Ward:
    """A broker with an outbox, a receiver and a publisher of each kind; a method a step."""

    def __init__(self, directory: Path) -> None:
        self._config = {
            "data": str(directory),
            "limits": {"queue_messages": 20, "in_flight": 4, "hold_s": 1_000, "shutdown_s": 0.05},
        }
        self.overlay = Overlay()
        self.broker: Any = None
        self.reader = Reader(0, "reader", Version.V5, ("ward/#",))
        self.flows = [Again(0, version, qos) for version, qos in KINDS]
        self._is_full = self._refuses_once = self._has_refused = self._has_lost = False
        self._serving = AsyncExitStack()

    async def start(self) -> None:
        self.broker = await self._serving.enter_async_context(serving(self._config, overlay=self.overlay))
        for line in (self.reader, *self.flows):
            line.port = self.broker.port("default")
        database = self.broker.exchange.store._database
        commit = database.commit

        def refuse_if_full(changes: object) -> None:
            if self._is_full or self._refuses_once:
                self._refuses_once, self._has_refused = False, True
                raise NoRoomError("disk is full")
            commit(changes)

        database.commit = refuse_if_full

    async def stop(self) -> None:
        """Ends the process, and what its outbox has not written by then."""
        self._has_lost = self._has_lost or self._is_full or self._refuses_once
        await self._serving.aclose()
        self.overlay.forget()

    async def take(self, step: str) -> None:
        match step:
            case "publish":
                for flow in self.flows:
                    flow.publish_next()
                    flow.publish_refused()
            case "outbox full" | "outbox room":
                self.overlay.is_full = step == "outbox full"
            case "outbox slow" | "outbox writes":
                self.overlay.is_slow = step == "outbox slow"
                self.overlay.write()
            case "outbox refuses":
                self.overlay.refuse()
            case "disk full" | "disk room":
                self._is_full = step == "disk full"
            case "disk refuses once":
                self._refuses_once = True
            case "hold" | "read":
                self.reader.hold(step == "hold")
            case "cut":
                for line in (self.reader, *self.flows):
                    line.cut()
            case "take over":
                for flow in self.flows:
                    stays = {"session_expiry_s": 100} if flow.version == Version.V5 else {}
                    with contextlib.suppress(AssertionError, OSError, TimeoutError):
                        await Wire.connect(
                            self.broker, flow.client_id, flow.version, clean_start=False, properties=stays
                        )
            case "restart":
                await self.stop()
                await self.start()
        await self.let_happen()

    async def let_happen(self) -> None:
        """What was written to a socket is read."""
        for _ in range(20):
            await asyncio.sleep(0)
        with contextlib.suppress(AssertionError, OSError, TimeoutError):
            await (await Wire.connect(self.broker, "clock")).barrier()

    async def mend(self) -> None:
        """All outages end."""
        for step in ("outbox room", "outbox writes", "disk room", "read"):
            await self.take(step)
        self._refuses_once = False

    def is_finished(self) -> bool:
        return not [flow for flow in self.flows if not (flow.is_finished() and self._has_all(self.reader.books, flow))]

    @staticmethod
    def _has_all(books: dict[str, list[int]], flow: Again) -> bool:
        return set(books.get(flow.topic, ())) == set(range(1, flow.sent + 1))

    def faults(self) -> Iterator[str]:
        for flow in self.flows:
            for where, books in (("receiver", self.reader.books), ("overlay", self.overlay.stored)):
                came = books.get(flow.topic, [])
                if not self._has_all(books, flow):
                    yield f"{flow.topic}, {where}: {came} of {flow.sent}, unfinished {sorted(flow.unfinished)}"
                first = [number for number in dict.fromkeys(came) if number not in flow.anew]
                if first != sorted(first):
                    yield f"{flow.topic}, {where}: order {came}"
                # The overlay has its own disk: what this one refuses it may have taken, and gets again. And a process
                # that ends with a full disk loses the last changes of sessions, such as a PUBREC.
                is_again = self._has_lost or (where == "overlay" and self._has_refused)
                if flow.qos == 2 and not is_again and len(set(came)) != len(came):
                    yield f"{flow.topic}, {where}: twice {came}"
            if flow.lost_sessions:
                yield f"{flow.topic}: lost its session"


async def live_through(steps: list[str], directory: Path) -> None:
    ward = Ward(directory)
    await ward.start()
    lines = (ward.reader, *ward.flows)
    running = [asyncio.create_task(line.run()) for line in lines]
    try:
        await until(lambda: ward.reader.subscribed and all(line.is_up for line in lines))
        for step in steps:
            await ward.take(step)
        await ward.mend()
        with contextlib.suppress(AssertionError):
            await until(ward.is_finished, ENDS_S)
        found = list(ward.faults())
        assert not found, found
        for task in running:
            assert not task.done(), task.exception()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await ward.stop()


def check(steps: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.setattr(session_store, "RETRY_S", 0.02)
        patch.setattr(soak_clients, "AGAIN_S", 0.01)
        asyncio.run(live_through(steps, Path(directory) / "data"))


SCHEDULES = st.lists(st.sampled_from(STEPS), min_size=1, max_size=30)


@settings(max_examples=12)
@given(SCHEDULES)
@example([
    "hold", "publish", "publish", "disk full", "disk room", "publish", "publish", "outbox slow", "outbox room",
    "restart", "hold", "read", "outbox full",
])  # fmt: skip
@example(["outbox slow", "publish", "publish", "outbox refuses", "publish", "outbox writes"])
def test_everybody_gets_on_after_any_schedule_of_outages(steps: list[str]) -> None:
    check(steps)


def test_what_sessions_know_and_the_outbox_does_not_is_offered_again_after_a_restart() -> None:
    check(["outbox slow", "publish", "restart", "publish"])
    check(["outbox slow", "publish", "restart", "restart", "publish", "outbox writes", "restart", "publish"])


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@settings(max_examples=300)
@given(SCHEDULES)
def test_everybody_gets_on_after_many_schedules_of_outages(steps: list[str]) -> None:
    check(steps)
