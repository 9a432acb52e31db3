"""Entities and trackers over paho, at a broker that traces: what a tracker hears, and what nobody else does."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
import yaml
from paho.mqtt.enums import CallbackAPIVersion

from bridge.traces.kinds import TraceKind
from bridge.tracking.entity import Stage, Wishes
from gateway.tracing.client import TracedEntity, Tracker
from tests.forking import Process, run
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ
from tests.gateway.traced_site import Site, observed
from tests.ports import free_ports
from tests.waits import wait_until

OPEN = Wishes(("desk",))
ENTITY = """
import sys, time
from bridge.tracking.entity import Wishes
from gateway.tracing.client import TracedEntity
with TracedEntity(sys.argv[1], "127.0.0.1", int(sys.argv[2]), wishes=Wishes(("desk", "fleet/#"))) as entity:
    entity.state("READY")
    time.sleep(120)
"""


@contextlib.contextmanager
def process(site: Site, name: str, port: int) -> Iterator[Process]:
    """An entity in a process of its own."""
    log = site.path / f"{name}.log"
    started = run(["-c", ENTITY, str(site.credentials(name)), str(port)], None, ENVIRONMENT, log, log)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


@contextlib.contextmanager
def stopped_press(site: Site, **config: Any) -> Iterator[tuple[Tracker, Process]]:
    """A tracker of the entity `press`, which was well and has just gone silent on an open connection."""
    with (
        site.running(**config) as port,
        Tracker(site.credentials("desk"), "127.0.0.1", port) as desk,
        process(site, "press", port) as press,
    ):
        assert wait_until((site.path / "press" / "topic.bin").exists)
        desk.follow("press")
        observed(desk, TraceKind.ALLS_WELL)
        press.send_signal(signal.SIGSTOP)
        yield desk, press


def test_states_load_and_heartbeats_reach_a_tracker(site: Site) -> None:
    with (
        site.running() as port,
        Tracker(site.credentials("desk"), "127.0.0.1", port) as desk,
        TracedEntity(site.credentials("pump"), "127.0.0.1", port, wishes=OPEN) as pump,
    ):
        pump.state("READY")
        assert wait_until(lambda: pump.stage is Stage.TRACED)
        desk.follow("pump")
        observed(desk, TraceKind.ALLS_WELL)
        pump.load({"cpu": 0.25})
        assert dict(observed(desk, TraceKind.LOAD_INFORMATION).fields) == {"cpu": 0.25}
        pump.state("SHUTDOWN")
        assert observed(desk, TraceKind.SHUTDOWN).entity == "pump"
        assert observed(desk, TraceKind.ALLS_WELL).fields["latency_ms"] < 5_000
        pump.silent()
        observed(desk, TraceKind.REVERTING_TO_SILENT_MODE)


def test_a_lost_connection_is_told_at_once_and_recovery_too(site: Site) -> None:
    with site.running() as port, Tracker(site.credentials("desk"), "127.0.0.1", port) as desk:
        with process(site, "drill", port) as drill:
            assert wait_until((site.path / "drill" / "topic.bin").exists)
            desk.follow("drill")
            observed(desk, TraceKind.ALLS_WELL)
            drill.kill()
            assert observed(desk, TraceKind.DISCONNECT, 5).fields["clean"] is False
        with process(site, "drill", port):
            observed(desk, TraceKind.JOIN)
            observed(desk, TraceKind.ALLS_WELL)


def test_silence_on_an_open_connection_is_suspected_then_a_failure(site: Site) -> None:
    with stopped_press(site) as (desk, press):
        observed(desk, TraceKind.FAILURE_SUSPICION)
        observed(desk, TraceKind.FAILED)
        press.send_signal(signal.SIGCONT)
        observed(desk, TraceKind.ALLS_WELL, after="failed")


@pytest.mark.slow
def test_less_caution_tells_a_death_sooner(site: Site) -> None:
    """From suspicion to failure it is half of the patience: 1.2 s for an entity that is not known for long."""
    with stopped_press(site, traces={**site.config()["traces"], "caution": 0.2, "floor_s": 0.0}) as (desk, press):
        suspected = observed(desk, TraceKind.FAILURE_SUSPICION)
        failed = observed(desk, TraceKind.FAILED)
        press.send_signal(signal.SIGCONT)
        assert 0 < failed.time_ms - suspected.time_ms < 1_000


def test_sealed_traces_open_for_who_may_discover_and_others_hear_nothing(site: Site) -> None:
    wishes = Wishes(("desk*",), secured=True)
    with (
        site.running() as port,
        Tracker(site.credentials("desk"), "127.0.0.1", port) as desk,
        Tracker(site.credentials("stranger"), "127.0.0.1", port) as stranger,
        TracedEntity(site.credentials("safe"), "127.0.0.1", port, wishes=wishes) as safe,
    ):
        assert wait_until(lambda: safe.stage is Stage.TRACED)
        safe.state("READY")
        desk.follow("safe")
        stranger.follow("safe")
        observed(desk, TraceKind.ALLS_WELL)
        safe.load({"secret": 1})
        observed(desk, TraceKind.LOAD_INFORMATION, secret=1)
        with Tracker(site.credentials("desk2"), "127.0.0.1", port) as late:
            late.follow("safe")
            observed(late, TraceKind.READY)
        with Tracker(site.credentials("desk2"), "127.0.0.1", port) as again:  # it was given the key, and forgot it
            again.follow("safe")
            observed(again, TraceKind.READY)
            observed(again, TraceKind.ALLS_WELL)
        assert site.counted["trace_keys_given"] >= 3
        assert site.counted["discoveries_refused"] >= 1
        assert stranger.next(0.5) is None


def test_a_broker_that_restarts_keeps_trace_topics(site: Site, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with (
        site.running(data=data) as port,
        TracedEntity(site.credentials("vane"), "127.0.0.1", port, wishes=OPEN) as vane,
    ):
        assert wait_until(lambda: vane.stage is Stage.TRACED)
    made = site.counted["trace_topics"]
    with (
        site.running(data=data) as port,
        Tracker(site.credentials("desk"), "127.0.0.1", port) as desk,
        TracedEntity(site.credentials("vane"), "127.0.0.1", port, wishes=OPEN) as vane,
    ):
        desk.follow("vane")
        observed(desk, TraceKind.ALLS_WELL)
    assert site.counted["trace_topics"] == made, "the topic of before serves"


def test_a_topic_that_an_entity_was_told_of_outlives_a_kill_of_the_broker(site: Site, tmp_path: Path) -> None:
    """`kill -9` in the moment in which the entity has its topic; the file `topic.bin` is written then."""
    (port,) = free_ports(1)
    file = tmp_path / "broker.yaml"
    config = site.config(data=str(tmp_path / "data"), listeners={"default": {"bind": f"127.0.0.1:{port}"}})
    file.write_text(yaml.safe_dump(config), "utf-8")

    topic = site.credentials("mast").joinpath("topic.bin")
    log = tmp_path / "log"
    broker = run([*VEILMQ, "-c", str(file)], None, ENVIRONMENT, log, log)
    try:
        with TracedEntity(site.credentials("mast"), "127.0.0.1", port, wishes=OPEN):
            assert wait_until(topic.exists)
            broker.kill()
            broker.wait()
    finally:
        broker.kill()
    with sqlite3.connect(tmp_path / "data" / "traces.sqlite3") as database:
        ((kept,),) = database.execute("SELECT topic FROM advertisements").fetchall()
    assert kept in topic.read_bytes()


def test_a_new_topic_is_found_again_after_the_old_one_leaked(site: Site) -> None:
    with (
        site.running() as port,
        TracedEntity(site.credentials("leak"), "127.0.0.1", port, wishes=OPEN) as leak,
    ):
        assert wait_until(lambda: leak.stage is Stage.TRACED)
        before = (site.path / "leak" / "topic.bin").read_bytes()
        leak.renounce()
        assert wait_until(lambda: leak.stage is Stage.TRACED)
        assert (site.path / "leak" / "topic.bin").read_bytes() != before
        with Tracker(site.credentials("desk"), "127.0.0.1", port) as desk:
            desk.follow("leak")
            observed(desk, TraceKind.ALLS_WELL)


def test_local_dashboards_see_groups_and_alerts(site: Site) -> None:
    fleet = {"prefix": "fleet", "alert_after_s": 1}
    with (
        site.running(traces={**site.config()["traces"], "fleet": fleet}) as port,
        process(site, "drill", port) as drill,
    ):
        heard: list[tuple[str, dict[str, Any]]] = []
        client = mqtt.Client(CallbackAPIVersion.VERSION2)
        client.on_message = lambda c, data, message: heard.append((message.topic, json.loads(message.payload)))
        client.on_connect = lambda c, *_: c.subscribe("fleet/#", 1)
        client.connect("127.0.0.1", port)
        client.loop_start()
        assert wait_until(lambda: any(topic == "fleet/all/fleet" and body["alive"] for topic, body in heard))
        drill.kill()
        assert wait_until(lambda: any(topic == "fleet/all/alerts" and not body["back"] for topic, body in heard))
        client.disconnect()
        client.loop_stop()
    assert {body["entity"] for topic, body in heard if topic.endswith("alerts")} == {"drill"}
