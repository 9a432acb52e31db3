"""The tables of rules by which others say that a device is there, and how a gateway answers each row.

A table is a file below `tests/vectors/devices/`: one JSON object a line. The first one says the source. `row` says the
rule. `differs` says why a
gateway answers otherwise, on purpose; a row without it holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bridge.devices.dashboards import Show
from bridge.devices.life_evidence import DeviceHealth
from bridge.devices.rules import DeviceRules
from bridge.devices.speaking import Device
from bridge.traces.kinds import TraceKind
from spark_ingest.payloads.sparkplug import SparkplugPayload
from tests.bridge.devices.test_device_tracing import tracer_of
from tests.bridge.devicesite import NOW, Site

DATA = Path(__file__).parents[2] / "vectors" / "devices"
SETTLED_S = 2.5  # between two steps: a device that says `offline` may leave within two seconds
THERE = (DeviceHealth.ALIVE, DeviceHealth.SUSPECTED)
CONFIG = "homeassistant/sensor/x/config"


def source_of(table: str) -> str:
    """Returns where the rules of a table come from, with versions."""
    return str(_lines_of(table)[0]["source"])


def rows_of(table: str) -> list[dict[str, Any]]:
    """Returns the rows of a table, in order."""
    return _lines_of(table)[1:]


def _lines_of(table: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{table}.jsonl").read_text("utf-8").splitlines()]


def home_assistant_steps(row: dict[str, Any]) -> Iterator[tuple[str, str | float, bool | None]]:
    """Gives each step of a row: a topic with its payload, or `wait` with seconds; and whether the device is available
    behind it. None: that is not looked at."""
    topic, device = row.get("topic", CONFIG), row.get("device", "dev")
    base = {"unique_id": "x", "device": {"identifiers": [device]}, "state_topic": "s"}
    document = (
        row["document"] if "components" in row["document"] or "cmps" in row["document"] else base | row["document"]
    )
    if not row.get("late"):
        yield topic, json.dumps(document), None
    for where, what, available in row["steps"]:
        if where == "wait":
            yield where, float(what), available
        elif where == "document" and what is None:
            yield topic, json.dumps(document), available
        elif isinstance(what, dict):
            is_whole = where != "document" or "components" in what
            yield (topic if where == "document" else where), json.dumps(what if is_whole else base | what), available
        else:
            yield (topic if where == "document" else where), what, available


def home_assistant(row: dict[str, Any]) -> list[str]:
    """Returns the steps behind which a gateway answers otherwise than the table."""
    site = Site(DeviceRules(clients=()))
    site.connect("bridge")
    wrong = []
    for place, (where, what, available) in enumerate(home_assistant_steps(row)):
        if isinstance(what, float):
            site.run(what)
        else:
            payload = what.encode("utf-8", "surrogateescape")
            site.retained[where] = payload
            site.publish("bridge", where, payload)
            site.run(SETTLED_S)
        device = site.devices.device(row.get("device", "dev"))
        is_there = device is not None and device.told in THERE
        if available is not None and is_there is not available:
            wrong.append(f"step {place}: {where} {what!r}: {'there' if is_there else 'not there'}")
    return wrong


# -------------------------------------------------------------------------------------------------------- Homie 5

_ENDED = {DeviceHealth.FAILED: "lost", DeviceHealth.GONE: "disconnected"}
_LIVING = {
    TraceKind.READY: "ready", TraceKind.INITIALIZING: "init", TraceKind.SHUTDOWN: "sleeping",
    TraceKind.RECOVERING: "alert",
}  # fmt: skip


def _homie_state(device: Device | None) -> str | None:
    if device is None or device.told is None:
        return None
    return _ENDED.get(device.told) or (None if device.state is None else _LIVING[device.state])


def homie(row: dict[str, Any]) -> list[str]:
    """Returns the devices of a row whose state is another one for a gateway, in any domain."""
    wrong = []
    for domain, prefix in (("homie", ""), ("home-a", "home-a:")):
        site = Site(DeviceRules(clients=()))
        site.connect("bridge")
        for topic, payload in row["steps"]:
            site.publish("bridge", f"{domain}/5/{topic}", payload.encode())
            site.run(SETTLED_S)
        for name, state in row["states"].items():
            told = _homie_state(site.devices.device(prefix + name))
            if told != state:
                wrong.append(f"{prefix}{name}: {told}")
    return wrong


# ------------------------------------------------------------------------------------------------------ Sparkplug B

_SPARKPLUG = {
    DeviceHealth.ALIVE: "online", DeviceHealth.SUSPECTED: "stale", DeviceHealth.FAILED: "offline",
    DeviceHealth.GONE: "offline",
}  # fmt: skip


def sparkplug(row: dict[str, Any]) -> list[str]:
    """Returns the expectations of a row that a gateway, as the host application `gate`, does not meet."""
    expect, site = row["expect"], Site(DeviceRules(clients=(), sparkplug_host="gate"))
    if "state" in expect:
        return _host_says(row)
    site.connect("edge")
    for verb, *rest in row["steps"]:
        if verb == "wait":
            site.run(rest[0])
            continue
        device, numbers = rest
        topic = f"spBv1.0/plant/{'NDEATH' if verb == 'WILL' else verb}/edge" + (f"/{device}" if device else "")
        site.publish("edge", topic, _payload(numbers), will=verb == "WILL")
    wrong = []
    if "states" in expect:
        site.run(SETTLED_S)
    for name, state in expect.get("states", {}).items():
        known = site.devices.device(":".join(("plant", "edge", name)) if name else "plant:edge")
        told = None if known is None or known.told is None else _SPARKPLUG[known.told]
        if told != state:
            wrong.append(f"{name or 'the node'}: {told}")
    if len(site.commands) != expect.get("commands", len(site.commands)):
        wrong.append(f"{len(site.commands)} requests")
    if "shown" in expect and sorted(site.shown) != sorted(expect["shown"]):
        wrong.append(f"kept: {sorted(site.shown)}")
    return wrong + _other_than(expect.get("command", {}), site.commands)


def _payload(numbers: dict[str, Any]) -> bytes:
    written = SparkplugPayload(timestamp=1_700_000_000_000)
    if "seq" in numbers:
        written.seq = numbers["seq"]
    if "bdSeq" in numbers:
        written.metrics.add(name="bdSeq", long_value=numbers["bdSeq"])
    for alias in numbers.get("names", ()):
        written.metrics.add(name=f"m{alias}", alias=alias, double_value=1.0)
    if "alias" in numbers:
        written.metrics.add(alias=numbers["alias"], double_value=1.0)
    return bytes(written.SerializeToString())


def _other_than(expected: dict[str, Any], commands: list[tuple[str, bytes]]) -> list[str]:
    """Returns the fields of the first request that are others; its effect says QoS 0, not retained."""
    if not expected:
        return []
    topic, payload = commands[0]
    read = SparkplugPayload.FromString(payload)
    (metric,) = read.metrics
    found = {
        "topic": topic, "name": metric.name, "value": metric.boolean_value, "timestamp": read.timestamp > 0,
        "seq": read.seq if read.HasField("seq") else None,
    }  # fmt: skip
    return [f"{name}: {found[name]}" for name, value in expected.items() if found[name] != value]


def _host_says(row: dict[str, Any]) -> list[str]:
    """Returns the fields of the last STATE that are others; `Show` is QoS 1 and retained."""
    host = tracer_of(DeviceRules(sparkplug_host="gate"))
    shown = [host.restore(NOW)[0], *(host.ending(NOW) if ["stop"] in row["steps"] else ())]
    assert isinstance(shown[-1], Show)
    said = json.loads(shown[-1].payload)
    found = {"topic": shown[-1].topic, "online": said["online"], "qos": 1, "retain": True}
    wrong = [f"{name}: {found[name]}" for name, value in row["expect"]["state"].items() if found[name] != value]
    return wrong if said["timestamp"] == int(NOW * 1000) else [*wrong, "timestamp"]


TABLES = {"home_assistant": home_assistant, "homie": homie, "sparkplug": sparkplug}
