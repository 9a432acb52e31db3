"""How payloads look to a person, and which clients are shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bridge.traces import Stood, TraceKind
from gateway.console.shown import PAYLOAD_SHOWN_BYTES, LogTail, Shown, text_of
from tests.gateway.harness import Wire, serving
from tests.gateway.traced_site import Site


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"21.5", "21.5"),
        (b"", ""),
        ("Grüße\n".encode(), "Grüße\n"),
        (b"\x00\xff", "00 ff"),
        (b"a\x1b[31m", "61 1b 5b 33 31 6d"),
    ],
)
def test_text_is_shown_as_text_and_the_rest_as_bytes(payload: bytes, shown: str) -> None:
    assert text_of(payload) == shown


def test_a_long_payload_is_cut() -> None:
    assert text_of(b"x" * (PAYLOAD_SHOWN_BYTES + 1)) == "x" * PAYLOAD_SHOWN_BYTES + " ..."
    assert text_of(("ü" * PAYLOAD_SHOWN_BYTES).encode()).endswith("ü ...")


def test_how_traced_entities_stand_is_shown_by_group_and_nothing_where_nobody_traces(tmp_path: Path) -> None:
    async def go() -> None:
        async with serving() as plain:
            assert Shown(plain, dict, "veilmq/traces", LogTail()).fleet("", 10) == {}
        site = Site(tmp_path)
        config = site.config()
        async with site.serving(traces=config["traces"]) as broker:
            assert Shown(broker, dict, "veilmq/traces", LogTail()).fleet("", 10) == {}, "it is not configured"
        async with site.serving(traces={**config["traces"], "fleet": {"prefix": "fleet"}}) as broker:
            tracing: Any = broker.exchange.tracing
            for entity, kind in (("shop:plug", TraceKind.JOIN), ("shop:lamp", TraceKind.FAILED)):
                tracing._fleet.stood(Stood(entity, kind, ("fleet/#",)), 0.0)
            found = Shown(broker, dict, "veilmq/traces", LogTail()).fleet("shop", 10)
            assert found["groups"] == [{"group": "shop", "alive": 1, "suspected": 0, "failed": 1, "disconnected": 0}]
            assert [each["entity"] for each in found["entities"]] == ["shop:lamp", "shop:plug"]

    asyncio.run(go())


def test_clients_sessions_and_retained_messages() -> None:
    async def go() -> None:
        async with serving() as broker:
            shown = Shown(broker, lambda: {"level": "well"}, "veilmq/traces", LogTail())
            wire = await Wire.connect(broker, "pump", properties={"session_expiry_s": 60})
            await wire.subscribe("a/#", 1)
            wire.publish("veilmq/traces/g1/pump/availability", b"online", retain=True)
            await wire.barrier()
            assert shown.overview()["clients"] == 1
            found: Any = shown.client("pump")
            assert (found["connected"], found["filters"]["a/#"]["qos"]) == (True, 1)
            assert shown.clients(10, "nobody")["total"] == 0
            assert shown.subscriptions(0)["more"]
            assert shown.entities(10) == [{"gateway": "g1", "entity": "pump", "state": "online"}]
            assert shown.clear_retained("veilmq/traces/g1/pump/availability")
            assert not shown.clear_retained("veilmq/traces/g1/pump/availability")
            assert shown.disconnect("pump")
            await wire.closed()
            assert not shown.disconnect("pump")
            assert shown.client("pump")["connected"] is False  # type: ignore[index]
            assert shown.forget_client("pump")
            assert shown.client("pump") is None

    asyncio.run(go())
