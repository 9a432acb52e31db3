"""Reports of traces at a real broker: who is reported, who reads it, and that no client reports in a gateway's name."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from bridge.tracking.entity import Stage, Wishes
from gateway.base.config import ConfigError, parse
from gateway.mqtt5.packets import Disconnect, PubAck, Version, Will
from gateway.mqtt5.types import ReasonCode
from gateway.tracing.client import TracedEntity
from tests.gateway.harness import Wire
from tests.gateway.traced_site import WAIT_S, Site
from tests.waits import wait_until

REPORTS = "entities/gate/pump/trace"


def reporting(site: Site, **report: Any) -> dict[str, Any]:
    return {"traces": {**site.config()["traces"], "report": {"prefix": "entities", **report}}}


def test_who_consents_is_reported_to_every_reader_of_the_topic(site: Site) -> None:
    heard: list[dict[str, Any]] = []
    with site.running(**reporting(site)) as port:
        reader = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="reader")
        reader.on_message = lambda client, userdata, message: heard.append(
            {"topic": message.topic, "qos": message.qos, **json.loads(message.payload)}
        )
        ready: list[int] = []
        reader.on_subscribe = lambda client, userdata, mid, codes, properties: ready.append(mid)
        reader.connect("127.0.0.1", port)
        reader.subscribe("entities/#", 1)
        reader.loop_start()
        assert wait_until(lambda: bool(ready))
        secret = Wishes(("desk",), secured=True)
        named = Wishes(("desk", "entities/#"), secured=True)
        with (
            TracedEntity(site.credentials("valve"), "127.0.0.1", port, wishes=secret) as valve,
            TracedEntity(site.credentials("pump"), "127.0.0.1", port, wishes=named) as pump,
        ):
            valve.state("READY")
            pump.state("READY")
            pump.load({"cpu": 0.5})  # lost if it is not registered yet
            assert wait_until(lambda: valve.stage is pump.stage is Stage.TRACED)
            pump.load({"cpu": 0.25})
            assert wait_until(lambda: {"READY", "LOAD_INFORMATION", "ALLS_WELL"} <= {each["kind"] for each in heard})
        assert wait_until(lambda: heard[-1]["kind"] == "DISCONNECT")
        reader.disconnect()
        reader.loop_stop()
    assert {(each["topic"], each["entity"], each["gateway"], each["qos"]) for each in heard} == {
        (REPORTS, "pump", "gate", 1)
    }
    assert [each["number"] for each in heard] == list(range(1, len(heard) + 1))
    assert heard[0]["kind"] == "JOIN"


def test_unchanged_devices_are_reported_too(site: Site, tmp_path: Path) -> None:
    config = reporting(site)
    owner = str(site.credentials("works"))
    config["traces"]["devices"] = {"owner": owner, "discoverers": ["gate"], "clients": ["thermo*"], "grace_s": 0}
    heard: list[tuple[str, dict[str, Any]]] = []

    async def heard_of(reader: Wire, kind: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while kind not in [body["kind"] for _, body in heard]:
                heard.extend((topic, json.loads(payload)) for topic, payload in await reader.published())
                await asyncio.sleep(0.02)

    async def scenario() -> None:
        async with site.serving(**config, data=str(tmp_path / "data")) as broker:
            reader = await Wire.connect(broker, "reader")
            assert await reader.subscribe("entities/#", 1) == 1
            device = await Wire.connect(broker, "thermometer", Version.V311)
            device.publish("plant/heat", b"21", qos=1)
            await device.expect(PubAck)
            await heard_of(reader, "JOIN")
            device.cut()
            await heard_of(reader, "FAILED")

    asyncio.run(scenario())
    assert {topic for topic, _ in heard} == {"entities/gate/works%3Athermometer/trace"}
    assert {body["entity"] for _, body in heard} == {"works:thermometer"}


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_no_client_reports_in_a_gateways_name(site: Site, version: Version) -> None:
    async def scenario() -> None:
        async with site.serving(**reporting(site)) as broker:
            reader = await Wire.connect(broker, "reader")
            assert await reader.subscribe("entities/#", 1) == 1
            forger = await Wire.connect(broker, "forger", version)
            for topic in (REPORTS, "entities/elsewhere/pump/trace"):
                forger.publish(topic, b"{}")
                forger.publish(topic, b"{}", retain=True)
                forger.publish(topic, b"{}", qos=1)
                ack = await forger.expect(PubAck)
                assert version < Version.V5 or ack.code == ReasonCode.NOT_AUTHORIZED
            dying = await Wire.connect(broker, "dying", will=Will(REPORTS, b"{}"))
            dying.send(Disconnect(0x04))
            assert await dying.closed() == []
            aliasing = await Wire.connect(broker, "aliasing")
            aliasing.publish(REPORTS, b"{}", qos=1, properties={"topic_alias": 3})
            aliasing.publish("", b"{}", qos=1, properties={"topic_alias": 3})
            codes = [(await aliasing.expect(PubAck)).code for _ in range(2)]
            assert codes == [ReasonCode.NOT_AUTHORIZED] * 2
            assert await reader.published() == []
            forger.publish("entities/gate/pump/trace/x", b"1", qos=1)
            forger.publish("other/gate/pump/trace", b"2", qos=1)
            forger.publish("entities/gate/pump/state", b"3", qos=1)
            for _ in range(3):
                await forger.expect(PubAck)
            assert [payload for _, payload in await reader.published()] == [b"1", b"3"], "other topics are free"

    asyncio.run(scenario())


@pytest.mark.parametrize("prefix", ["", "a/+", "a/#", "$SYS/x", "/a", "a\0"])
def test_a_prefix_that_is_no_plain_topic_is_refused(site: Site, prefix: str) -> None:
    with pytest.raises(ConfigError, match=r"traces\.report\.prefix") as error:
        parse(site.config() | reporting(site, prefix=prefix))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("protect", "plain", "may"),
    [(["entities/#"], ["open/#"], True), (["entities/#"], ["#"], True), ([], ["open/#"], True),
     (["entities/#"], ["entities/gate/#"], False), ([], ["#"], False), (["#"], ["entities/#"], False),
     (["entities/gate/#"], ["#"], False), (["entities/#"], ["+/+/+/trace"], True)],
)  # fmt: skip
def test_reports_that_replicas_would_read_are_refused(
    site: Site, protect: list[str], plain: list[str], may: bool
) -> None:
    overlay = {
        "identity": "gate", "overlay": "overlay.json", "share_plain": plain,
        "protect": [{"filter": each} for each in protect],
    }  # fmt: skip
    content = site.config() | reporting(site) | {"overlay": overlay}
    if may:
        assert parse(content, directory=Path("/etc/veilmq")).traces is not None
    else:
        with pytest.raises(ConfigError, match=r"traces\.report"):
            parse(content)
