"""A broker's tracing as the configuration has it: its pace, its rules, and what it says through the broker."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.devices import HOME_ASSISTANT, SPARKPLUG, Heartbeat
from bridge.traces import PRESETS, RememberedEntity, within
from gateway.base import DeviceSettings, TraceSettings
from gateway.clients import Router
from gateway.mqtt5.packets import Publish, Subscription
from gateway.mqtt5.types import ReasonCode
from gateway.tracing.assembly import Spoken, authority_of, owner_of, pace_of, rules_of, secret_of
from gateway.tracing.store import TraceStore
from gateway.trust import TrustDomain, TrustError
from keys.identity import Role
from tests.bridge.traces.test_tracer import advertised
from tests.gateway.harness import Wire
from tests.gateway.traced_site import Site
from tests.keys.test_delegation import HOLDER, TOKEN

TRACES: dict[str, Any] = {"authority": "ca.pem", "identity": "me"}


def test_the_pace_is_a_preset_or_what_a_death_may_take() -> None:
    wan = pace_of(TraceSettings(**TRACES, preset="wan", caution=2.0))
    assert (wan.caution, wan.floor_s) == (2.0, PRESETS["wan"].floor_s)
    assert pace_of(TraceSettings(**TRACES, detect_within_s=3)) == within(3)
    assert pace_of(TraceSettings(**TRACES, floor_s=0.25)).floor_s == 0.25


def test_rules_of_devices_are_those_of_the_file() -> None:
    given = DeviceSettings(
        owner=Path("o"), clients=["plc*"], grace_s=3.0, sparkplug_host="host",
        heartbeats=[{"topic": "s/{device}", "every_s": 5}], conventions=["sparkplug", "homeassistant"],
    )  # fmt: skip
    rules = rules_of(given)
    assert rules.clients == ("plc*",)
    assert rules.heartbeats == (Heartbeat("s/{device}", 5),)
    assert rules.conventions == (SPARKPLUG, HOME_ASSISTANT)
    assert (rules.grace_s, rules.sparkplug_host) == (3.0, "host")


def test_without_a_data_directory_devices_would_be_lost() -> None:
    with pytest.raises(TrustError, match="needs `data`"):
        owner_of(DeviceSettings(owner=Path("o")), bytes(32), None)


def test_what_is_no_authority_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")
    with pytest.raises(TrustError, match="is no authority"):
        authority_of(path)


class Exchange:
    def __init__(self, absent: bool = True, overlay: Any = None) -> None:
        self.host, self.overlay = SimpleNamespace(is_absent=absent), overlay
        self.delivery = SimpleNamespace(router=Router(), flood=self.flood)
        self.flooded: list[Publish] = []
        self.local: list[Any] = []

    def flood(self, sender: object, publish: Publish) -> None:
        assert sender is None
        self.flooded.append(publish)

    def deliver_local(self, publication: Any) -> None:
        self.local.append(publication)


class Overlay:
    def __init__(self) -> None:
        self.given: list[Any] = []

    def publish_run(self, client_id: str, run: object, done: object) -> int:
        return 0

    def publish(self, client_id: str, publication: Any, done: Any) -> bool:
        assert client_id == ""
        self.given.append(publication)
        return True


def spoken(exchange: Exchange, **clients: Any) -> tuple[Spoken, list[Any]]:
    gone: list[Any] = []
    lifecycle = SimpleNamespace(clients=clients, dismiss=lambda client, why: gone.append((client, why)))
    return Spoken(SimpleNamespace(exchange=exchange, lifecycle=lifecycle)), gone  # type: ignore[arg-type]


def test_pings_take_the_short_way_unless_a_plugin_wants_to_see_them() -> None:
    short, long = Exchange(), Exchange(absent=False)
    for exchange in (short, long):
        spoken(exchange)[0].ping("t", b"x")
    assert (short.flooded, short.local) == ([Publish("t", b"x")], [])
    assert (long.flooded, [p.topic for p in long.local]) == ([], ["t"])


@pytest.mark.parametrize(("stays_here", "across"), [(True, 0), (False, 1)])
def test_what_is_said_goes_across_unless_it_stays_here(stays_here: bool, across: int) -> None:
    exchange = Exchange(overlay=Overlay())
    spoken(exchange)[0].publish_statement("t", b"x", 1, stays_here=stays_here)
    assert [(p.topic, p.payload, p.qos, p.retain) for p in exchange.local] == [("t", b"x", 1, False)]
    assert len(exchange.overlay.given) == across
    spoken(Exchange())[0].publish_statement("t", b"x", 1, stays_here=False)


def test_what_is_shown_is_for_local_clients_and_advertisements_for_other_brokers() -> None:
    exchange = Exchange(overlay=Overlay())
    made, _ = spoken(exchange)
    made.show("shown", b"x")
    made.advertise("known", b"y", 60)
    ((shown,), (known,)) = exchange.local, exchange.overlay.given
    assert (shown.topic, shown.qos, shown.retain) == ("shown", 1, True)
    assert (known.topic, known.retain, known.expiry_s) == ("known", True, 60)
    spoken(Exchange())[0].advertise("known", b"y", 60)


def test_somebody_listens_who_subscribed_here_or_may_anywhere_in_an_overlay() -> None:
    exchange = Exchange()
    exchange.delivery.router.subscribe("desk", Subscription("a/+", 0))
    made, _ = spoken(exchange)
    assert [made.listens(topic) for topic in ("a/b", "a", "b")] == [True, False, False]
    assert spoken(Exchange(overlay=Overlay()))[0].listens("b")


def test_entities_are_sealed_for_those_who_verified_them(tmp_path: Path) -> None:
    """Under another authority, or beside other nodes, what was verified before is not believed."""
    made, other = (TrustDomain.create(tmp_path / name, name, time.time()) for name in ("works", "other"))
    gate = made.issue("gate", Role.GATEWAY, ("127.0.0.1",), tmp_path / "gate", time.time())
    nodes = {"gate": gate.card.public_key}
    secrets = [
        secret_of(gate, made.ca.public_bytes, nodes),
        secret_of(gate, other.ca.public_bytes, nodes),
        secret_of(gate, made.ca.public_bytes, {**nodes, "more": other.ca.public_bytes}),
    ]
    assert len(set(secrets)) == 3
    record = RememberedEntity(advertised(), TOKEN, HOLDER.private_bytes(), b"s" * 16, b"k" * 32, b"", {})
    for secret, found in zip(secrets, ([record], [], []), strict=True):
        store = TraceStore(tmp_path / "traces.sqlite3", secrets[0])
        store.write({}, {record.advertisement.topic: record})
        store.close()
        store = TraceStore(tmp_path / "traces.sqlite3", secret)
        assert list(store.remembered()) == found
        store.close()


def test_a_client_that_is_there_is_probed_or_sent_away() -> None:
    probed: list[float] = []
    here = SimpleNamespace(connection=SimpleNamespace(probe_host=probed.append))
    made, gone = spoken(Exchange(), here=here, away=SimpleNamespace(connection=None))
    for name in ("here", "away", "unknown"):
        made.probe_host(name, 5.0)
        made.send_away(name, "why")
    assert probed == [5.0]
    assert [(client is here, why) for client, why in gone] == [
        (True, ReasonCode.ADMINISTRATIVE_ACTION), (False, ReasonCode.ADMINISTRATIVE_ACTION),
    ]  # fmt: skip


def test_a_broker_that_traces_shows_what_it_counts(tmp_path: Path) -> None:
    """Also one that is in no overlay."""

    async def scenario() -> None:
        async with Site(tmp_path).serving() as broker:
            spy, pump = await Wire.connect(broker, "spy"), await Wire.connect(broker, "pump")
            assert await pump.subscribe("$Constrained/Traces/pump/SubscribeOnly/Suppress/x") == 0
            assert await spy.subscribe("$Constrained/Traces/pump/SubscribeOnly/Suppress/x") == ReasonCode.NOT_AUTHORIZED
            (events,) = (each for each in broker.operation.collect() if each.name == "veilmq_tracing_events")
            counted = {tuple(each.labels.values()): each.value for each in events.samples}
            assert counted["constrained_refused", "subscribe"] == 1

    asyncio.run(scenario())
