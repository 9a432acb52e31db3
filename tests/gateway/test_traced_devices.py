"""Devices that know nothing of VeilMQ, over paho: what `veilmq traces watch` and dashboards show of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from bridge.devices.dashboards import entity_id
from bridge.devices.life_evidence import DeviceHealth
from bridge.traces.kinds import TraceKind
from gateway.base.config import ConfigError, parse
from gateway.checking.check import check
from gateway.mqtt5.packets import Publish
from gateway.tracing.broker_tracing import Tracing
from gateway.tracing.client import TracedEntity, Tracker
from tests.gateway.harness import Wire
from tests.gateway.overlay_processes import ENVIRONMENT
from tests.gateway.test_traced_entities import OPEN
from tests.gateway.traced_site import WAIT_S, Site, observed
from tests.waits import wait_until

#: A plug of Home Assistant's: discovery message, availability topic, last will. SIGKILL brings the will.
PLUG = """
import json, sys, time
import paho.mqtt.client as mqtt
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "plug-1", protocol=mqtt.MQTTv311)
client.will_set("plug-1/lwt", "offline", retain=True)
client.connect("127.0.0.1", int(sys.argv[1]), keepalive=30)
client.loop_start()
config = {"unique_id": "plug-1", "name": "Plug", "state_topic": "plug-1/state", "availability_topic": "plug-1/lwt"}
client.publish("homeassistant/switch/plug-1/config", json.dumps(config), 1, True).wait_for_publish(10)
client.publish("plug-1/lwt", "online", 1, True).wait_for_publish(10)
time.sleep(120)
"""
#: A Sparkplug edge node with a device; on its standard input it is told to leave as the specification wants.
NODE = """
import sys
import paho.mqtt.client as mqtt
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "edge-1", protocol=mqtt.MQTTv311)
client.will_set("spBv1.0/plant/NDEATH/edge", b"\\x08\\x01", 1)
client.connect("127.0.0.1", int(sys.argv[1]), keepalive=30)
client.loop_start()
for topic in ("spBv1.0/plant/NBIRTH/edge", "spBv1.0/plant/DBIRTH/edge/pump"):
    client.publish(topic, b"\\x08\\x01", 0).wait_for_publish(10)
sys.stdin.read(1)
client.publish("spBv1.0/plant/NDEATH/edge", b"\\x08\\x01", 1).wait_for_publish(10)
client.disconnect()
client.loop_stop()
"""


class DeviceSite(Site):
    """A gateway that traces unchanged devices, as `site-devices`."""

    def running_devices(self, data: Path, **devices: Any) -> contextlib.AbstractContextManager[int]:
        chosen = {"owner": str(self.credentials("site")), "discoverers": ["desk"], **devices}
        traces = self.config()["traces"] | {"devices": chosen}
        return self.running(traces=traces, data=str(data))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> DeviceSite:
    return DeviceSite(tmp_path_factory.mktemp("site"))


@contextlib.contextmanager
def device(program: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen([sys.executable, "-c", program, str(port)], env=ENVIRONMENT, stdin=subprocess.PIPE)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


class Watching:
    """`veilmq traces watch --json` in a process of its own."""

    def __init__(self, site: Site, port: int, *entities: str) -> None:
        command = ["traces", "watch", *entities, "--credentials", str(site.credentials("desk"))]
        program = "from gateway.cli import main; main()"
        arguments = [sys.executable, "-c", program, *command, "--gateway", f"127.0.0.1:{port}", "--json"]
        self._process = subprocess.Popen(arguments, env=ENVIRONMENT, stdout=subprocess.PIPE)
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.came: dict[str, list[str]] = {entity: [] for entity in entities}
        self._passed: list[dict[str, Any]] = []

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))

    def wait(self, entity: str, kind: str) -> dict[str, Any]:
        """The fields of the next trace of this kind; traces of several entities come in any order."""
        for seen in self._passed:
            if (seen["entity"], seen["kind"]) == (entity, kind):
                self._passed.remove(seen)
                return dict(seen["fields"])
        until = time.monotonic() + 2 * WAIT_S
        while (left_s := until - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                seen = self._lines.get(timeout=left_s)
                self.came[seen["entity"]].append(seen["kind"])
                if (seen["entity"], seen["kind"]) == (entity, kind):
                    return dict(seen["fields"])
                self._passed.append(seen)
        raise AssertionError(f"no {kind} of {entity}; came: {self.came}")

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reading.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def test_unchanged_devices_are_watched_like_everybody_else(site: DeviceSite, tmp_path: Path) -> None:
    plug, node, pump, edge = "site:plug-1", "site:plant:edge", "site:plant:edge:pump", "site:edge-1"
    with (
        site.running_devices(tmp_path / "data", grace_s=1.0, dashboards=["homeassistant"]) as port,
        device(PLUG, port) as first,
        device(NODE, port) as second,
        Watching(site, port, plug, node, pump, edge) as watch,
    ):
        for entity in (plug, node, pump):
            assert watch.wait(entity, "READY")["state"] == "READY"
        watch.wait(edge, "JOIN")  # a client that says nothing is a device after two seconds
        first.kill()
        assert watch.wait(plug, "FAILED")["why"] == "plug-1/lwt says so"
        assert second.stdin is not None
        second.stdin.write(b"x")
        second.stdin.flush()
        assert watch.wait(node, "DISCONNECT")["clean"] is True
        watch.wait(pump, "DISCONNECT")
        watch.wait(edge, "DISCONNECT")
        assert "FAILED" not in watch.came[node] + watch.came[edge]
        with device(PLUG, port), device(NODE, port) as third:
            assert watch.wait(plug, "ALLS_WELL")["after"] == "failed"
            watch.wait(pump, "ALLS_WELL")
            third.kill()
            watch.wait(node, "FAILED")
            watch.wait(pump, "FAILED")
            assert _retained(port, f"homeassistant/binary_sensor/{entity_id(plug)}/state")["state"] == "online"
            state = _retained(port, f"homeassistant/binary_sensor/{entity_id(pump)}/state")
            assert (state["state"], state["health"]) == ("offline", "failed")


def _retained(port: int, topic: str) -> dict[str, Any]:
    """What a dashboard gets that subscribes now."""
    found: queue.Queue[bytes] = queue.Queue()
    client = mqtt.Client(CallbackAPIVersion.VERSION2, "dashboard")
    client.on_message = lambda client, userdata, message: found.put(message.payload)
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        client.subscribe(topic)
        return dict(json.loads(found.get(timeout=WAIT_S)))
    finally:
        client.disconnect()
        client.loop_stop()


def test_who_knows_veilmq_is_traced_once_and_topics_survive_a_restart(site: DeviceSite, tmp_path: Path) -> None:
    with (
        site.running_devices(tmp_path / "data") as port,
        Tracker(site.credentials("desk"), "127.0.0.1", port) as desk,
        TracedEntity(site.credentials("pump"), "127.0.0.1", port, wishes=OPEN),
        device(PLUG, port),
    ):
        desk.follow("site:plug-1")
        desk.follow("site:pump")
        desk.follow("pump")
        assert observed(desk, TraceKind.READY).entity == "site:plug-1"
        assert wait_until(lambda: site.counted.get("entities_registered", 0) > 0)
        seen = [desk.next(1.0) for _ in range(5)]
        assert "site:pump" not in {each.entity for each in seen if each is not None}
    made = site.counted["trace_topics"]
    with (
        site.running_devices(tmp_path / "data") as port,
        Tracker(site.credentials("desk"), "127.0.0.1", port) as desk,
        device(PLUG, port),
    ):
        desk.follow("site:plug-1")
        observed(desk, TraceKind.READY)
    assert site.counted["trace_topics"] == made, "the topic of before serves"


# ----------------------------------------------------------------------------------------- configuration


def _errors(site: DeviceSite, **traces: Any) -> list[str]:
    content = site.config(data=str(site.path / "data-check"))
    content["traces"] = content["traces"] | traces
    if traces.pop("no_data", False):
        del content["data"], content["traces"]["no_data"]
    return [finding.text for finding in check(parse(content), ()).findings if finding.level == "error"]


def test_check_looks_at_what_traces_names(site: DeviceSite) -> None:
    owner = {"owner": str(site.credentials("site")), "discoverers": ["desk"]}
    assert _errors(site, devices=owner) == []
    (missing,) = _errors(site, devices={"owner": str(site.path / "nobody")})
    assert missing.endswith("holds no entity; make one with `veilmq trust issue --role entity`")
    (nothing,) = _errors(site, devices=owner, no_data=True)
    assert nothing.startswith("traces.devices: needs `data`")
    (authority,) = _errors(site, authority=str(site.path / "none.pem"))
    assert "none.pem" in authority
    (node,) = _errors(site, nodes=[str(site.path / "card.json")])
    assert "card.json" in node
    other = Site(site.path / "elsewhere")
    (domain,) = _errors(site, devices={"owner": str(other.credentials("site"))})
    assert "another trust domain" in domain


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ({"heartbeats": [{"topic": "a/b"}]}, "heartbeats.0.topic: no level of 'a/b' is {device}"),
        ({"heartbeats": [{"topic": "{device}/#/x"}]}, "is no filter"),
        ({"heartbeats": [{"topic": "{device}/x", "every": 5}]}, "did you mean every_s?"),
        ({"heartbeats": [{"topic": "{device}/x", "every_s": 0}]}, "greater than 0"),
        ({"conventions": ["sparkplugb"]}, "conventions.0"),
        ({"discoverer": ["desk"]}, "did you mean discoverers?"),
    ],
)
def test_mistakes_are_told_in_one_line(devices: dict[str, Any], said: str) -> None:
    content = {"traces": {"authority": "ca.pem", "identity": "site", "devices": {"owner": "o", **devices}}}
    with pytest.raises(ConfigError) as error:
        parse(content)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_host_application_says_that_it_stops(tmp_path: Path) -> None:
    """A node that hears it knows that nobody listens."""

    async def scenario() -> None:
        site = Site(tmp_path)
        devices = {"owner": str(site.credentials("works")), "clients": [], "sparkplug_host": "gate"}
        config = {"traces": {**site.config()["traces"], "devices": devices}, "data": str(tmp_path / "data")}
        async with site.serving(**config) as broker:
            node = await Wire.connect(broker, "edge")
            assert await node.subscribe("spBv1.0/STATE/gate", 1) == 1
            birth = await node.expect(Publish)
        death = next(each for each in await node.closed() if isinstance(each, Publish))
        said = [json.loads(each.payload) for each in (birth, death)]
        assert [each["online"] for each in said] == [True, False]
        assert said[0]["timestamp"] <= said[1]["timestamp"]

    asyncio.run(scenario())


def test_what_is_retained_brings_a_bridges_devices_back_behind_a_restart(tmp_path: Path) -> None:
    """The bridge says no more than its own state when it returns, as Zigbee2MQTT does."""

    async def scenario() -> None:
        site = Site(tmp_path)
        devices = {"owner": str(site.credentials("works")), "clients": []}
        config = {"traces": {**site.config()["traces"], "devices": devices}, "data": str(tmp_path / "data")}
        document = b'{"uniq_id": "lamp", "avty": [{"t": "z/state"}, {"t": "z/lamp"}], "avty_mode": "all"}'
        said = [("homeassistant/light/lamp/config", document), ("z/lamp", b"online"), ("z/state", b"online")]
        for words in (said, said[-1:]):
            async with site.serving(**config) as broker:
                bridge = await Wire.connect(broker, "z2m")
                for topic, payload in words:
                    bridge.publish(topic, payload, 1, retain=True)
                await bridge.barrier()
                tracing = broker.exchange.tracing
                assert isinstance(tracing, Tracing)
                assert tracing._devices is not None
                lamp = tracing._devices._devices.device("lamp")
                assert lamp is not None
                assert lamp.told is DeviceHealth.ALIVE

    asyncio.run(scenario())
