"""`traces:` and `watched:`: what is taken, and each mistake with its words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.base.config_traces import (
    DeviceSettings,
    FleetSettings,
    HeartbeatSettings,
    ReportSettings,
    TraceSettings,
    WatchedSettings,
)

TRACES: dict[str, Any] = {"authority": "ca.pem", "identity": "me"}
WATCHED: dict[str, Any] = {"credentials": "me", "brokers": ["a:1"]}


def refused(model: Any, words: str, **fields: Any) -> None:
    with pytest.raises(ValidationError, match=words):
        model(**fields)


@pytest.mark.parametrize("topic", ["sensors/{device}/state", "{device}", "a/+/{device}/#"])
def test_heartbeats_name_a_device(topic: str) -> None:
    assert HeartbeatSettings(topic=topic, every_s=5).topic == topic


@pytest.mark.parametrize(("topic", "words"), [
    ("sensors/state", "no level of"), ("sensors/x{device}/state", "no level of"), ("$SYS/{device}", "no level of"),
    ("a/#/{device}", "is no filter"), ("a+/{device}", "is no filter"),
])  # fmt: skip
def test_a_heartbeat_that_names_none_is_refused(topic: str, words: str) -> None:
    refused(HeartbeatSettings, words, topic=topic)


@pytest.mark.parametrize("every_s", [0, -1, 7 * 86_400 + 1])
def test_heartbeats_come_once_a_week_at_least(every_s: float) -> None:
    refused(HeartbeatSettings, "every_s", topic="{device}", every_s=every_s)


@pytest.mark.parametrize("host", ["a/b", "a+", "#", "a\0"])
def test_a_host_id_is_one_level(host: str) -> None:
    refused(DeviceSettings, "one level", owner="me", sparkplug_host=host)
    assert DeviceSettings(owner="me", sparkplug_host="host").sparkplug_host == "host"


@pytest.mark.parametrize("model", [ReportSettings, FleetSettings])
@pytest.mark.parametrize(("prefix", "words"), [("$SYS", "plain topic"), ("/a", "plain topic"), ("a/#", "#")])
def test_a_prefix_is_a_plain_topic(model: Any, prefix: str, words: str) -> None:
    refused(model, words, prefix=prefix)
    assert model(prefix="entities/all").prefix == "entities/all"


def test_alerts_go_to_a_web_address() -> None:
    assert FleetSettings(prefix="f", webhook="https://desk/alerts").webhook
    for webhook in ("ftp://desk", "desk", "https://a b"):
        refused(FleetSettings, "webhook", prefix="f", webhook=webhook)


@pytest.mark.parametrize(("protected", "plain", "leaks"), [
    ([], ["other/#"], False), ([], ["entities/#"], True), (["entities/#"], ["#"], False),
    (["#"], ["entities/#"], True), (["entities/#"], ["entities/g1/#"], True),
    (["entities/+/+/trace"], ["entities/#"], False),
    (["entities/g1/#"], ["#"], True), (["entities/#"], [], False),
])  # fmt: skip
def test_reports_do_not_cross_the_overlay_in_clear(protected: list[str], plain: list[str], leaks: bool) -> None:
    report = ReportSettings(prefix="entities")
    if not leaks:
        report.check_sealed(protected, plain)
        return
    with pytest.raises(ValueError, match="replicas would read"):
        report.check_sealed(protected, plain)


def test_one_pace_is_enough() -> None:
    assert TraceSettings(**TRACES, preset="wan").detect_within_s == 10.0
    assert TraceSettings(**TRACES, detect_within_s=3).preset is None
    refused(TraceSettings, "keep one", **TRACES, preset="wan", detect_within_s=3)


def test_relative_paths_are_taken_from_the_directory() -> None:
    found = TraceSettings(**TRACES, nodes=["card.json", "/abs.json"], devices={"owner": "owner"}).anchored(
        Path("/etc/v")
    )
    assert (found.authority, found.identity) == (Path("/etc/v/ca.pem"), Path("/etc/v/me"))
    assert found.nodes == [Path("/etc/v/card.json"), Path("/abs.json")]
    assert found.devices is not None
    assert found.devices.owner == Path("/etc/v/owner")
    assert TraceSettings(**TRACES).anchored(Path("/etc")).devices is None
    others = {"brokers": ["b:1"], "password_file": "pw", "cafile": "/abs.pem"}
    asked = TraceSettings(**TRACES, other_witnesses=others).anchored(Path("/etc/v")).other_witnesses
    assert asked is not None
    assert (asked.password_file, asked.cafile) == (Path("/etc/v/pw"), Path("/abs.pem"))
    watched = WatchedSettings(**WATCHED, password_file="pw").anchored(Path("/etc/v"))
    assert (watched.credentials, watched.password_file, watched.cafile) == (Path("/etc/v/me"), Path("/etc/v/pw"), None)


@pytest.mark.parametrize(("brokers", "words"), [
    ([], "no useful majority"), (["a:1", "b:1"], "no useful majority"), (["a:1", "A:1", "b:1"], "named twice"),
])  # fmt: skip
def test_witnesses_have_a_majority_and_are_different(brokers: list[str], words: str) -> None:
    refused(WatchedSettings, words, credentials="me", brokers=brokers)
    assert len(WatchedSettings(credentials="me", brokers=["a:1", "b:1", "c:1"]).brokers) == 3
