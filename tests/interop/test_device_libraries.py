"""Libraries of device makers, as published, against a gateway that traces devices: Homie 5 and Sparkplug B.

Each library runs in an environment of its own below `.tools/python/`, which `make tools` fills.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.traces.kinds import TraceKind
from gateway.tracing.client import Tracker
from tests.conftest import library
from tests.gateway.test_traced_devices import DeviceSite, Watching
from tests.gateway.traced_site import WAIT_S, observed

#: A tree of ebus-sdk under `ebus/5`: a panel and two circuits; killed, its will is `lost`.
EBUS = """
import logging, sys
import ebus_sdk
logging.disable(logging.CRITICAL)
def fill(device, watts):
    with device.state_transition():
        meter = device.new_node("meter")
        meter.add_property(ebus_sdk.Property(id="power", datatype=ebus_sdk.PropertyDatatype.FLOAT, value=watts))
        device.add_node(meter)
panel = ebus_sdk.Device(id="panel-1", mqtt_cfg={"host": "127.0.0.1", "port": int(sys.argv[1])})
panel.start_mqtt_client()
fill(panel, 5.0)
for circuit in ("circuit-1", "circuit-2"):
    fill(ebus_sdk.Device(id=circuit, parent=panel), 2.5)
sys.stdin.readline()
panel.stop()
"""
#: A node and a device of mqtt-spb-wrapper: a connection for each, one count of `seq` for both.
WRAPPER = """
import logging, sys, time
from mqtt_spb_wrapper import MqttSpbEntityDevice, MqttSpbEntityEdgeNode
logging.disable(logging.CRITICAL)
node, pump = MqttSpbEntityEdgeNode("plant", "edge"), MqttSpbEntityDevice("plant", "edge", "pump")
for entity in (node, pump):
    entity.data.set_value("level", 0.0)
    entity.connect("127.0.0.1", int(sys.argv[1]))
    entity.publish_birth()
for level in range(100):
    for entity in (pump, pump, node):
        entity.data.set_value("level", level + 1.0)
        entity.publish_data()
time.sleep(3)
print(node._mqtt._thread.is_alive(), flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def running(package: str, program: str, port: int) -> Iterator[subprocess.Popen[str]]:
    interpreter = library(package)
    if interpreter is None:
        pytest.skip(f"needs {package}; run `make tools`")
    arguments = [str(interpreter), "-c", program, str(port)]
    started = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.fixture
def site(tmp_path: Path) -> DeviceSite:
    return DeviceSite(tmp_path)


def test_a_tree_of_ebus_sdk_is_lost_and_back_with_its_root(site: DeviceSite, tmp_path: Path) -> None:
    """ebus-sdk says nothing of its circuits when it is killed; it stands below `ebus/5` and need not say `init`."""
    root, child = "site:ebus:panel-1", "site:ebus:circuit-1"
    with (
        site.running_devices(tmp_path / "data", clients=[]) as port,
        Watching(site, port, root, child) as watch,
    ):
        with running("ebus-sdk", EBUS, port) as panel:
            watch.wait(root, "READY")
            watch.wait(child, "READY")
            panel.kill()
            watch.wait(root, "FAILED")
            watch.wait(child, "FAILED")
        with running("ebus-sdk", EBUS, port) as panel:
            assert watch.wait(root, "ALLS_WELL")["after"] == "failed"
            assert watch.wait(child, "ALLS_WELL")["after"] == "failed"
            panel.communicate("\n", timeout=WAIT_S)
            watch.wait(child, "DISCONNECT")


def test_a_node_of_mqtt_spb_wrapper_whose_device_has_a_connection_of_its_own_is_asked_for_no_rebirth(
    site: DeviceSite, tmp_path: Path
) -> None:
    """A request ends the library's network thread; the numbers that it leaves out are on the other connection."""
    with (
        site.running_devices(tmp_path / "data", clients=[], sparkplug_host="gate") as port,
        Tracker(site.credentials("desk"), "127.0.0.1", port) as desk,
        running("mqtt-spb-wrapper", WRAPPER, port) as program,
    ):
        desk.follow("site:plant:edge")
        observed(desk, TraceKind.READY)
        assert program.stdout is not None
        assert program.stdout.readline() == "True\n"
        assert site.counted.get("devices_refused", 0) > 100
        assert "sparkplug_rebirths" not in site.counted
