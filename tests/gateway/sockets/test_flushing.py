"""The last word reaches a client that is still writing: closing at once would reset the connection before that."""

from __future__ import annotations

import asyncio

import pytest

from gateway.mqtt5.packets import Disconnect, Publish, PubRel
from gateway.mqtt5.types import ReasonCode
from gateway.sockets import connection as module
from gateway.sockets.flushing import end_writing
from tests.gateway.harness import Wire, on_loop, serving
from tests.waits import until


@on_loop
async def test_a_client_beyond_the_receive_maximum_is_told_while_it_goes_on_writing() -> None:
    async with serving({"limits": {"receive_maximum": 20}}) as broker:
        wire = await Wire.connect(broker, "c")
        wire.send(*(Publish("t", b"x", 2, packet_id=number) for number in range(1, 22)))
        await until(lambda: broker.lifecycle.clients.get("c") is None or not broker.lifecycle.clients["c"].connection)
        for number in range(1, 21):  # as one does that has not seen that it is over
            wire.send(PubRel(number))
            await wire.writer.drain()
            await asyncio.sleep(0)
        packets = await wire.closed()
        assert isinstance(packets[-1], Disconnect)
        assert packets[-1].code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
        wire.cut()
        await until(lambda: not broker.lifecycle.connections)


@on_loop
async def test_one_that_never_closes_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_GRACE_S", 0.05)
    async with serving() as broker:
        wire = await Wire.connect(broker, "c")
        wire.raw(b"\xff\xff\xff\xff\xff")
        assert isinstance((await wire.closed())[-1], Disconnect)
        for _ in range(20):
            wire.raw(bytes(60_000))
        await until(lambda: not broker.lifecycle.connections)


@on_loop
async def test_what_comes_after_the_last_word_is_dropped() -> None:
    async with serving() as broker:
        sub = await Wire.connect(broker, "sub")
        await sub.subscribe("t")
        wire = await Wire.connect(broker, "c")
        wire.raw(b"\xff\xff\xff\xff\xff")
        await until(lambda: not broker.lifecycle.clients.get("c"))
        wire.publish("t", b"too late")
        await wire.writer.drain()
        wire.cut()
        await until(lambda: len(broker.lifecycle.connections) == 1)
        assert await sub.published() == []


@pytest.mark.parametrize(
    ("can", "error", "ends"), [(True, None, True), (False, None, False), (True, OSError(107), False)]
)
def test_the_end_of_writing_to_a_peer_that_is_gone_is_no_defect(can: bool, error: OSError | None, ends: bool) -> None:
    """A peer that resets its connection while its farewell is written: a traceback in the log for each."""

    class Transport:
        def can_write_eof(self) -> bool:
            return can

        def write_eof(self) -> None:
            if error is not None:
                raise error

    assert end_writing(Transport()) is ends
