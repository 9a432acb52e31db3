"""One bad client beside others, in combinations: wills, client ids, groups, retained messages and rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.broker import subscribing
from gateway.mqtt5.packets import (
    Disconnect,
    PubAck,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt5.parsing import FILTERS_MAX
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, on_loop, serving
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.gateway.test_rights_first import come, config, write
from tests.waits import until


@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@on_loop
async def test_what_a_user_publishes_counts_for_the_user_wills_too(tmp_path: Path, version: Version) -> None:
    """Attack: a user retains under each of a thousand client ids, by their wills: each was an owner of its own."""
    path, overlay = tmp_path / "security.json", FakeOverlay()
    write(path, mallory="topic readwrite #")
    async with serving(config(path), overlay=overlay) as broker:
        will = Will("far/will", b"x", 1, True)
        one = await come(broker, "mallory", version, will=will)
        one.publish("far/own", b"x", 1, retain=True)
        await until(lambda: overlay.published)
        one.cut()
        await until(lambda: len(overlay.published) == 2)
        assert [each.owner for _, each in overlay.published] == ["user mallory"] * 2


@on_loop
async def test_nameless_clients_of_one_address_are_one_owner() -> None:
    overlay = FakeOverlay()
    async with serving(overlay=overlay) as broker:
        for name in ("one", "two"):
            wire = await Wire.connect(broker, name)
            wire.publish("far/own", b"x", 1)
            await until(lambda: overlay.done)
            overlay.done.pop()(0)
            await wire.expect(PubAck)
        assert [(client, each.owner) for client, each in overlay.published] == [("one", "here"), ("two", "here")]


@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@on_loop
async def test_a_packet_of_many_filters_is_taken_in_turns(version: Version, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: SUBSCRIBEs of 150,000 filters: all other clients waited for seconds, while one packet was taken."""
    at_once: list[int] = []
    for name in ("_entered", "_removed"):
        taken = getattr(subscribing.Subscribing, name)

        def counted(self: Any, client: Any, asked: Any, *more: Any, taken: Any = taken) -> Any:
            at_once.append(len(getattr(asked, "subscriptions", asked)))
            return taken(self, client, asked, *more)

        monkeypatch.setattr(subscribing.Subscribing, name, counted)
    filters = tuple(f"s/{n}" for n in range(1000))
    async with serving() as broker:
        one, other = await Wire.connect(broker, "one", version), await Wire.connect(broker, "other")
        one.send(Subscribe(7, tuple(Subscription(each, 1) for each in filters)))
        other.publish("s/999", b"x", 1)  # other clients' packets are taken between two turns
        assert (await one.expect(SubAck)).codes == (1,) * 1000
        other.publish("s/998", b"y", 1)
        assert (await one.expect(Publish)).topic in {"s/998", "s/999"}
        one.send(Unsubscribe(8, filters), Subscribe(9, (Subscription("s/1", 0),)))
        assert (await one.expect(UnsubAck)).packet_id == 8
        assert (await one.expect(SubAck)).packet_id == 9, "in the order of the client"
        assert set(broker.lifecycle.clients["one"].filters) == {"s/1"}
        assert max(at_once) <= subscribing.FILTERS_AT_ONCE
        assert sum(at_once) == 2001


@on_loop
async def test_more_filters_than_anybody_may_hold_are_not_even_parsed() -> None:
    async with serving() as broker:
        for packet in (
            Subscribe(1, (Subscription("s", 0),) * (FILTERS_MAX + 1)),
            Unsubscribe(1, ("s",) * (FILTERS_MAX + 1)),
        ):
            wire = await Wire.connect(broker, "one")
            wire.send(packet)
            assert (await wire.expect(Disconnect)).code == ReasonCode.QUOTA_EXCEEDED
