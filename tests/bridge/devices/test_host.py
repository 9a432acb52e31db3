"""A gateway as a Sparkplug host application: statements of the specification, each by what nodes and trackers see.

The names are those of the conformance kit of Sparkplug 3.0.0. A gateway does nothing that this table lacks: it sends no
data commands.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.base import Wall
from bridge.devices import host as host_module
from bridge.devices.conventions import SPARKPLUG, ConventionWord, Said
from bridge.devices.dashboards import Show
from bridge.devices.host import Host
from bridge.devices.rules import DeviceRules
from bridge.devices.sparkplug import BORN_AGAIN_S, REBIRTH_EVERY_S, REORDER_S, Session
from bridge.traces.kinds import TraceKind
from spark_ingest.payloads.sparkplug import SparkplugPayload
from tests.bridge.devices.test_sparkplug import payload
from tests.bridge.devicesite import Site

FAILED, WELL, SUSPECTED = TraceKind.FAILED, TraceKind.ALLS_WELL, TraceKind.FAILURE_SUSPICION
NODE, DEVICE = "plant:edge", "plant:edge:a"


def born(host: str = "gate", bd_seq: int = 7) -> Site:
    site = Site(DeviceRules(clients=(), sparkplug_host=host))
    site.connect("edge")
    say(site, "NBIRTH", payload(0, bd_seq))
    say(site, "DBIRTH", payload(1), "/a")
    site.run(5)
    return site


def say(site: Site, verb: str, data: bytes, device: str = "", will: bool = False) -> None:
    site.publish("edge", f"spBv1.0/plant/{verb}/edge{device}", data, will=will)


def old_death_is_ignored() -> None:
    site = born(bd_seq=8)
    say(site, "NDEATH", payload(bd_seq=7))
    for number in range(8):
        say(site, "NDATA", payload(2 + number))
    assert FAILED not in site.kinds(NODE)
    assert TraceKind.DISCONNECT not in site.kinds(NODE)
    assert site.counted["devices_deaths_of_before"] == 1
    assert site.commands == []


def node_dies() -> None:
    site = born()
    say(site, "NDEATH", payload(bd_seq=7), will=True)
    site.lose("edge")
    assert site.kinds(NODE)[-1] is FAILED
    assert site.kinds(DEVICE)[-1] is FAILED


def device_death_is_the_devices() -> None:
    site = born()
    say(site, "DDEATH", payload(2), "/a")
    assert (site.kinds(DEVICE)[-1], FAILED in site.kinds(NODE)) == (FAILED, False)


def gap_asks_for_rebirth() -> None:
    site = born()
    say(site, "NDATA", payload(2))
    assert site.commands == []
    say(site, "NDATA", payload(4))
    site.run(REORDER_S - 0.1)
    assert site.commands == []
    site.run(0.1)
    ((topic, _),) = site.commands
    assert topic == "spBv1.0/plant/NCMD/edge"
    say(site, "NDATA", payload(9))
    site.run(REORDER_S)
    assert len(site.commands) == 1, "not for each"
    site.run(REBIRTH_EVERY_S)
    say(site, "NDATA", payload(99))
    site.run(REORDER_S)
    assert len(site.commands) == 2


def what_comes_late_asks_for_nothing() -> None:
    site = born()
    for number in (3, 2, 5):
        say(site, "NDATA", payload(number))
    site.run(REORDER_S / 2)
    say(site, "NDATA", payload(4))
    say(site, "NDATA", payload(7))
    site.run(REORDER_S - 0.1)
    say(site, "NDATA", payload(6))
    site.run(60)
    assert site.commands == []


def a_device_with_a_connection_of_its_own_is_counted() -> None:
    """Of mqtt-spb-wrapper: one `seq` of a program whose node and devices connect each."""
    site = born()
    site.connect("its-device")
    for number in range(2, 600):
        client, level = ("edge", "") if number % 3 else ("its-device", "/b")
        verb = "DATA" if number > 4 else "BIRTH"
        site.publish(client, f"spBv1.0/plant/{'D' if level else 'N'}{verb}/edge{level}", payload(number % 256))
    site.run(60)
    assert site.commands == []
    assert site.counted["devices_refused"] == 199
    say(site, "NDATA", payload(99))
    site.run(REORDER_S)
    assert len(site.commands) == 1, "a gap stays one"


def a_device_is_stale_until_it_is_born_again() -> None:
    site = born()
    say(site, "DBIRTH", payload(2), "/b")
    say(site, "NBIRTH", payload(0, 7))
    say(site, "DBIRTH", payload(1), "/b")
    site.run(BORN_AGAIN_S - 0.1)
    assert site.kinds(DEVICE) == [TraceKind.JOIN, TraceKind.READY]
    site.run(0.1)
    assert site.kinds(DEVICE) == [TraceKind.JOIN, TraceKind.READY, SUSPECTED]
    assert site.last(DEVICE).fields["why"] == "not born again with its node"
    assert site.kinds("plant:edge:b") == site.kinds(NODE) == [TraceKind.JOIN, TraceKind.READY]
    say(site, "NBIRTH", payload(0, 7))
    site.run(BORN_AGAIN_S)
    assert site.kinds(DEVICE)[-1] is SUSPECTED, "no birth of its node makes it well"
    say(site, "DBIRTH", payload(2), "/a")
    assert site.kinds(DEVICE)[-1] is WELL


def data_of_a_device_that_was_not_born_again_asks_for_rebirth() -> None:
    site = born()
    say(site, "NBIRTH", payload(0, 7))
    say(site, "DDATA", payload(1), "/a")
    assert len(site.commands) == 1
    site.run(600)
    assert site.kinds(DEVICE)[-1] is SUSPECTED, "whatever it says"


def a_node_beyond_the_bound_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "GAPS_MAX", 1)
    monkeypatch.setattr(host_module, "OVERDUE_AT_ONCE", 1)
    site = born()
    for node in ("x", "y"):
        site.publish("edge", f"spBv1.0/plant/NBIRTH/{node}", payload(0, 1))
        site.publish("edge", f"spBv1.0/plant/NDATA/{node}", payload(2))
    assert [topic for topic, _ in site.commands] == ["spBv1.0/plant/NCMD/y"]
    site.run(REORDER_S)
    assert [topic for topic, _ in site.commands] == ["spBv1.0/plant/NCMD/y", "spBv1.0/plant/NCMD/x"]
    assert site.devices.next_deadline is None or site.devices.next_deadline > site.now


def data_before_birth_asks_for_rebirth() -> None:
    site = Site(DeviceRules(clients=(), sparkplug_host="gate"))
    site.connect("edge")
    say(site, "DDATA", payload(5), "/a")
    ((topic, _),) = site.commands
    assert topic == "spBv1.0/plant/NCMD/edge"
    assert site.devices.device(NODE) is None, "it is no device by that"


def data_after_death_asks_and_birth_brings_it_back() -> None:
    site = born()
    say(site, "NDEATH", payload(bd_seq=7))
    site.run(2)
    say(site, "NDATA", payload(2))
    assert len(site.commands) == 1
    say(site, "NBIRTH", payload(0, 8))
    site.run(2)
    assert site.kinds(NODE)[-1] is WELL


def who_only_listens_asks_for_nothing() -> None:
    site = born(host="")
    say(site, "NDATA", payload(99))
    assert (site.commands, site.shown) == ([], {})


def unknown_alias_asks_for_rebirth() -> None:
    site = born()
    data = SparkplugPayload(seq=2)
    data.metrics.add(alias=77, double_value=1.0)
    say(site, "DDATA", data.SerializeToString(), "/a")
    ((topic, _),) = site.commands
    assert topic == "spBv1.0/plant/NCMD/edge"


def aliases_of_births_ask_for_nothing() -> None:
    site = Site(DeviceRules(clients=(), sparkplug_host="gate"))
    site.connect("edge")
    say(site, "NBIRTH", payload(0, 7, others=2))
    say(site, "DBIRTH", payload(1, others=5), "/a")
    for seq, alias, verb, device in ((2, 1, "NDATA", ""), (3, 4, "DDATA", "/a")):
        data = SparkplugPayload(seq=seq)
        data.metrics.add(alias=alias, double_value=1.0)
        say(site, verb, data.SerializeToString(), device)
    assert site.commands == []


def births_are_kept() -> None:
    site = born()
    kept = site.shown
    assert kept["$sparkplug/certificates/spBv1.0/plant/NBIRTH/edge"] == payload(0, 7)
    assert kept["$sparkplug/certificates/spBv1.0/plant/DBIRTH/edge/a"] == payload(1)
    assert len(kept) == 2


def a_stranger_ends_and_keeps_nothing() -> None:
    site = born()
    site.connect("spy", origin="10.6.6.6")
    for verb in ("NDEATH", "NBIRTH", "NDATA"):
        site.publish("spy", f"spBv1.0/plant/{verb}/edge", payload(0, 7))
    assert FAILED not in site.kinds(NODE)
    assert site.counted["devices_refused"] == 3
    assert site.shown["$sparkplug/certificates/spBv1.0/plant/NBIRTH/edge"] == payload(0, 7)
    site.publish("spy", "spBv1.0/plant/DDATA/edge/a", payload(250))
    say(site, "NDATA", payload(2))
    site.run(60)
    assert site.commands == [], "nor does it make a gap"


STATEMENTS: dict[str, Callable[[], None]] = {
    "operational-behavior-edge-node-termination-host-action-ndeath-node-offline": node_dies,
    "operational-behavior-edge-node-termination-host-action-ndeath-devices-offline": node_dies,
    "operational-behavior-edge-node-termination-host-offline: bdSeq of another session": old_death_is_ignored,
    "operational-behavior-device-ddeath: host marks the device": device_death_is_the_devices,
    "operational-behavior-host-reordering-rebirth": gap_asks_for_rebirth,
    "operational-behavior-host-reordering-start, -success": what_comes_late_asks_for_nothing,
    "topics-nbirth: devices stay stale until they are born again": a_device_is_stale_until_it_is_born_again,
    "topics-nbirth: data of a stale device": data_of_a_device_that_was_not_born_again_asks_for_rebirth,
    "payloads-sequence-num-incrementing: two connections": a_device_with_a_connection_of_its_own_is_counted,
    "payloads-nbirth-rebirth-req: data without a birth": data_before_birth_asks_for_rebirth,
    "payloads-nbirth-rebirth-req: data after a death": data_after_death_asks_and_birth_brings_it_back,
    "payloads-alias-data-cmd-requirement: an alias that no birth explained": unknown_alias_asks_for_rebirth,
    "payloads-alias-birth-requirement, payloads-name-birth-data-requirement": aliases_of_births_ask_for_nothing,
    "a host is one by its name only": who_only_listens_asks_for_nothing,
    "conformance-mqtt-aware-store, -nbirth-mqtt-topic, -nbirth-mqtt-retain, -dbirth-...": births_are_kept,
    "nobody speaks for another connection's node": a_stranger_ends_and_keeps_nothing,
}  # fmt: skip


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements(statement: str) -> None:
    STATEMENTS[statement]()


def test_a_node_beyond_the_bound_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    a_node_beyond_the_bound_is_asked_at_once(monkeypatch)


def test_only_births_that_are_words_of_sparkplugs_are_kept() -> None:
    host = Host("gate", Wall())
    birth = ConventionWord(SPARKPLUG, "plant/edge", Said.READY, SPARKPLUG)
    assert host.certified(birth, "spBv1.0/plant/NBIRTH/edge", b"x") == [
        Show("$sparkplug/certificates/spBv1.0/plant/NBIRTH/edge", b"x")
    ]
    assert host.certified(ConventionWord("homie", "x", Said.READY, "homie"), "homie/x/$state", b"ready") == []
    assert host.take_word(birth, Session(), True, 0.0) == (True, [])
