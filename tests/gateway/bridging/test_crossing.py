"""One direction of a bridge between clients that only note what they are asked: nothing twice, nothing too early."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gateway.bridging import crossing
from gateway.bridging.crossing import Way
from gateway.bridging.relaying import RelayClient
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.types import ReasonCode
from tests.waits import until


class Side:
    """Either client: what was published to it, what was acknowledged on it."""

    def __init__(self) -> None:
        self.connected, self.session_present, self.takes = True, True, True
        self.published: list[tuple[bytes, int, Any, Any]] = []
        self.acknowledged: list[int] = []

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool, properties: Any, done: Any, no: Any) -> bool:
        if self.takes:
            self.published.append((payload, qos, done, no))
        return self.takes

    def acknowledge(self, publish: Publish) -> None:
        assert self.connected
        self.acknowledged.append(publish.packet_id)


@pytest.fixture
def way() -> tuple[Way, Side, Side]:
    source, target = Side(), Side()
    return Way(cast(RelayClient, source), cast(RelayClient, target), "m"), source, target


def message(packet_id: int, qos: int = 1, payload: bytes = b"x") -> Publish:
    return Publish("a", payload, qos, packet_id=packet_id)


def test_acknowledged_when_the_other_side_has_it_and_not_before(way: tuple[Way, Side, Side]) -> None:
    one, source, target = way
    one.pass_on(message(1), message(1))
    assert source.acknowledged == []
    target.published[0][2]()
    assert source.acknowledged == [1]
    one.pass_on(message(1), message(1))  # the identifier is free again: another message
    assert len(target.published) == 2


def test_what_a_source_repeats_after_a_cut_is_passed_on_once(way: tuple[Way, Side, Side]) -> None:
    one, source, target = way
    one.pass_on(message(1), message(1))
    one.pass_on(message(2), message(2))
    source.connected = False
    target.published[0][2]()  # taken while the source is away
    source.connected = True
    one.source_connected()
    target.published[1][2]()  # taken after it came back, before it repeated
    assert source.acknowledged == []
    one.pass_on(message(1), message(1))
    one.pass_on(message(2), message(2))
    assert source.acknowledged == [1, 2]
    assert len(target.published) == 2


def test_the_repetition_is_acknowledged_not_the_message_of_the_former_connection(way: tuple[Way, Side, Side]) -> None:
    """A client has no acknowledgement for an object of a former connection: the source would repeat for ever."""
    one, source, target = way
    first, again = message(1), message(1)
    acknowledged: list[Publish] = []
    source.acknowledge = acknowledged.append  # type: ignore[method-assign]
    one.pass_on(first, first)
    one.source_connected()
    one.pass_on(again, again)
    target.published[0][2]()
    assert [each is again for each in acknowledged] == [True]
    assert len(target.published) == 1


def test_a_source_that_lost_its_session_means_other_messages(way: tuple[Way, Side, Side]) -> None:
    one, source, target = way
    one.pass_on(message(1), message(1))
    source.session_present = False
    one.source_connected()
    one.pass_on(message(1, payload=b"new"), message(1, payload=b"new"))
    assert [payload for payload, *_ in target.published] == [b"x", b"new"]


def test_without_qos_2_of_its_own_it_crosses_as_1_and_qos_0_waits_for_nobody(way: tuple[Way, Side, Side]) -> None:
    one, source, target = way
    one.pass_on(message(1, qos=2), message(1, qos=2))
    one.pass_on(message(0, qos=0), message(0, qos=0))
    assert [qos for _, qos, *_ in target.published] == [1, 0]
    assert source.acknowledged == []
    target.takes = False
    one.pass_on(message(0, qos=0), message(0, qos=0))
    assert one.passed == 1


def test_a_final_refusal_is_counted_and_a_passing_one_is_tried_again(
    way: tuple[Way, Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, source, target = way
    monkeypatch.setattr(crossing, "AGAIN_S", 0.001)

    async def go() -> None:
        one.pass_on(message(1), message(1))
        target.published[0][3](ReasonCode.NOT_AUTHORIZED)
        assert (one.refused, source.acknowledged) == (1, [1])
        one.pass_on(message(2), message(2))
        target.published[1][3](ReasonCode.QUOTA_EXCEEDED)
        await until(lambda: len(target.published) >= 3)
        assert source.acknowledged == [1]
        target.published[2][2]()
        assert source.acknowledged == [1, 2]
        target.takes = False  # its queue is full
        one.pass_on(message(3), message(3))
        await asyncio.sleep(0.01)
        target.takes = True
        await until(lambda: len(target.published) >= 4)

    asyncio.run(go())
