"""Levels with which a bridge of 3.1.1 greets: our own, then the private bit, then neither. Each is left out at once for
a broker that refuses it, and none but the last is asked where the operator says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.base import BridgeSettings
from gateway.bridging.ends import RemoteEnd
from gateway.mqtt5.actions import SessionLimits
from gateway.mqtt5.bridge_clients import KIN as KIN_PROPERTY
from gateway.mqtt5.bridge_clients import MARK
from gateway.mqtt5.client_session import ClientSession
from gateway.mqtt5.encoding import encode
from gateway.mqtt5.packets import KIN_LEVEL, ConnAck, Properties, Version
from tests.gateway.harness import on_loop
from tests.waits import until

SILENCE = b"nothing"
REFUSED, ACCEPTED = b"\x20\2\0\1", b"\x20\2\0\0"
ACCEPTED_5, REFUSED_5, NOT_AUTHORIZED_5 = b"\x20\3\0\0\0", b"\x20\3\0\x84\0", b"\x20\3\0\x87\0"
KIN = encode(ConnAck(False, properties=Properties(user=(KIN_PROPERTY, (MARK, "b")))), Version.V5)
OURS = KIN_LEVEL


class Stub:
    """A broker that answers CONNECT as `answers` says for the level, and then closes a refused connection."""

    def __init__(self, answers: dict[int, bytes]) -> None:
        self._answers = {OURS: REFUSED, **answers}
        self.levels: list[int] = []
        self.cuts: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read(1_000)
        if not data:
            return  # cut before CONNECT
        self.levels.append(data[8])
        answer = self._answers[data[8]]
        writer.write(answer if answer != SILENCE else b"")
        self.cuts.append(writer)
        if answer not in (ACCEPTED, ACCEPTED_5, KIN, SILENCE):
            writer.close()


async def levels(answers: dict[int, bytes], tries: int, **more: Any) -> tuple[list[int], str]:
    stub = Stub(answers)
    server = await asyncio.start_server(stub.serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    settings = BridgeSettings.model_validate({"addresses": [address], "topics": [{}], "version": "3.1.1", **more})
    remote = RemoteEnd(settings, "c", None, SessionLimits())
    remote.start()

    def tried() -> bool:
        if remote.connected:
            stub.cuts[-1].transport.abort()
        return len(stub.levels) >= tries and (remote.connected or bool(remote.last_error))

    await until(tried)
    said = remote.last_error
    await remote.close()
    server.close()
    return stub.levels, said


@on_loop
async def test_a_broker_that_takes_the_bit_is_never_asked_without() -> None:
    assert (await levels({0x84: ACCEPTED, 4: ACCEPTED}, 3))[0] == [OURS, 0x84, 0x84]


@on_loop
async def test_a_refusal_is_remembered_and_a_close_without_a_word_is_not() -> None:
    assert (await levels({0x84: REFUSED, 4: ACCEPTED}, 4))[0] == [OURS, 0x84, 4, 4]
    assert (await levels({0x84: b"", 4: ACCEPTED}, 5))[0] == [OURS, 0x84, 4, 0x84, 4]
    assert (await levels({OURS: b"", 0x84: ACCEPTED}, 4))[0] == [OURS, 0x84, OURS, 0x84]


@on_loop
async def test_a_veilmq_that_takes_our_level_is_asked_for_no_other() -> None:
    assert (await levels({OURS: KIN}, 2))[0] == [OURS, OURS]


@on_loop
async def test_a_broker_that_takes_any_level_for_one_that_it_knows_is_no_veilmq() -> None:
    for answer in (ACCEPTED, ACCEPTED_5, REFUSED_5):
        tried, said = await levels({OURS: answer, 0x84: ACCEPTED}, 3)
        assert tried == [OURS, 0x84, 0x84]
        assert "VeilMQ" not in said
        assert "MQTT 5" not in said


@on_loop
async def test_a_refusal_by_a_veilmq_is_said_as_it_is() -> None:
    tried, said = await levels({OURS: NOT_AUTHORIZED_5}, 2)
    assert set(tried) == {OURS}
    assert "NOT_AUTHORIZED" in said


@on_loop
async def test_another_refusal_is_no_matter_of_the_bit_and_is_said_as_it_is() -> None:
    tried, said = await levels({0x84: b"\x20\2\0\5", 4: ACCEPTED}, 3)
    assert set(tried) == {OURS, 0x84}
    assert "NOT_AUTHORIZED" in said


@on_loop
async def test_a_broker_without_3_1_1_is_not_told_to_speak_5() -> None:
    tried, said = await levels({0x84: REFUSED, 4: REFUSED}, 3)
    assert tried[:3] == [OURS, 0x84, 4]
    assert "MQTT 5" not in said


@on_loop
async def test_the_operator_may_leave_the_bit_out() -> None:
    assert (await levels({4: ACCEPTED}, 2, try_private=False))[0] == [4, 4]


@on_loop
async def test_a_broker_that_waits_for_more_of_a_connect_that_it_does_not_know_is_asked_by_the_next_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClientSession, "CONNACK_TIMEOUT_S", 0.01)
    assert (await levels({OURS: SILENCE, 0x84: ACCEPTED}, 3))[0] == [OURS, 0x84, 0x84]
    tried, said = await levels({5: SILENCE}, 1, version="5")
    assert set(tried) == {5}
    assert 'MQTT 5; write version: "3.1.1" for this bridge' in said


@on_loop
async def test_a_bridge_of_mqtt_5_is_told_what_to_write_for_a_broker_of_3_1_1() -> None:
    tried, said = await levels({5: REFUSED}, 1, version="5")
    assert set(tried) == {5}
    assert 'write version: "3.1.1" for this bridge' in said
