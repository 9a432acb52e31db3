"""An entity and a device beside one gateway, who tracks them beside another: traces cross an overlay that cannot read
them."""

from __future__ import annotations

import json
import time

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from bridge.traces.kinds import Interest, TraceKind, answers_to, trace_topic
from bridge.tracking.entity import Stage, Wishes
from gateway.tracing.client import TracedEntity, Tracker
from gateway.trust.credentials import Credentials
from gateway.trust.domains import Card, TrustDomain
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.traced_site import observed
from tests.support.files import edited
from tests.support.processes import ending
from tests.waits import wait_until

SCOPE = "$Constrained/Traces/#"
GATEWAYS = ("g1", "g2")


def begin(made: OverlayProcesses) -> None:
    made.make({"a": 3}, [], dict.fromkeys(GATEWAYS, "a"))
    made.describe(lambda content: content["scopes"].append({"filter": SCOPE}))
    for name, other in (GATEWAYS, GATEWAYS[::-1]):
        rights = ("--publish", SCOPE, "--read", SCOPE)
        made.veilmq("trust", "grant", "overlay.json", "--owner", "owner", "--member", name, *rights)
        with edited(made.directory / f"{name}.yaml") as content:
            content["overlay"]["protect"].append({"filter": SCOPE})
            content["traces"] = {"authority": "owner/ca.pem", "identity": name, "nodes": [f"{other}/card.json"]}
            if name == "g1":
                content["traces"]["devices"] = {"owner": "shop", "discoverers": ["desk"]}
    domain = TrustDomain.load(made.directory / "owner")
    cards = [Card.load(made.directory / name / "card.json") for name in GATEWAYS]
    for name in ("pump", "desk", "shop"):
        Credentials.issue(domain, name, cards, made.directory / name, time.time())
    made.hand_out(*made.ports)


overlay = ending(begin)


def test_an_entity_is_tracked_from_another_gateway(overlay: OverlayProcesses) -> None:
    overlay.start("a1", "a2", "a3", "g1")
    wishes = Wishes(("desk",), secured=True)
    first, second = (overlay.ports[name] for name in GATEWAYS)
    drill = mqtt.Client(CallbackAPIVersion.VERSION2, "drill")  # an unchanged device
    drill.connect("127.0.0.1", first)
    drill.loop_start()
    with TracedEntity(overlay.directory / "pump", "127.0.0.1", first, wishes=wishes) as pump:
        assert wait_until(lambda: pump.stage is Stage.TRACED)
        overlay.start("g2")  # what was advertised before it came is retained
        with Tracker(overlay.directory / "desk", "127.0.0.1", second) as desk:
            desk.follow("pump")
            observed(desk, TraceKind.ALLS_WELL, 60)
            pump.load({"cpu": 0.5})
            observed(desk, TraceKind.LOAD_INFORMATION, cpu=0.5)
            desk.follow("shop:drill")
            assert observed(desk, TraceKind.JOIN, 60).entity == "shop:drill"
            pump.stop()
            assert observed(desk, TraceKind.DISCONNECT).entity == "pump"
            drill.disconnect()
            drill.loop_stop()
            assert observed(desk, TraceKind.DISCONNECT).entity == "shop:drill"


@pytest.mark.parametrize(("prefix", "level"), [("plant/entities", "ok"), ("elsewhere", "warning")])
def test_check_says_whether_reports_leave(overlay: OverlayProcesses, prefix: str, level: str) -> None:
    with edited(overlay.directory / "g1.yaml") as content:
        content["traces"]["report"] = {"prefix": prefix}
    findings = json.loads(overlay.veilmq("check", "-c", "g1.yaml", "--json"))["findings"]
    assert [each["level"] for each in findings if each["text"].startswith(f"traces.report: {prefix}/g1/")] == [level]


def test_check_says_which_traces_leave(overlay: OverlayProcesses) -> None:
    topics = (trace_topic(bytes(16), Interest.LOAD), answers_to("pump"), "$SYS/x", "$Constrained/Alarms/x")
    report = json.loads(overlay.veilmq("check", "-c", "g1.yaml", *topics, "--json"))
    assert [fate["fate"] for fate in report["topics"]] == ["protected", "local only", "local only", "local only"]
