"""The overlay of a gateway: its own topics, rights, and publications that wait for room.

Topics on which a gateway tells who is alive: no local client and no other member speaks there in its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.contract.machine import Deliver, DeliverShared, Publication
from bridge.contract.machine import Wire as OverlayWire
from bridge.document.policy import Scope
from bridge.node import GatewayNode
from bridge.traces.availability import EntityConnected
from bridge.traces.reporting import TraceReport
from gateway.base.figures import Figures
from gateway.mqtt5.packets import Disconnect, Properties, PubAck, PubComp, Publish, PubRec, PubRel, Version, Will
from gateway.mqtt5.types import ReasonCode
from gateway.overlay.dials import Dials
from gateway.overlay.entities import LocalEntities
from gateway.overlay.gateway_overlay import GatewayOverlay
from gateway.overlay.reader_rows import ReaderRows
from gateway.receipts import ReceiptKeeper
from keys.envelope import Mode
from tests.bridge.helpers import NOW, gateway, publish, subscriber
from tests.gateway.harness import Wire
from tests.gateway.traced_site import WAIT_S, Site
from tests.sim.world import make_world

SHOWN = [
    "homeassistant/binary_sensor/veilmq-works-pump-0badcafe/state",
    "homeassistant/binary_sensor/veilmq-works-pump-0badcafe/config",
    "homie/5/veilmq-works-pump-0badcafe/$state",
    "homie/5/veilmq-works-pump-0badcafe/$description",
]
FREE = ["homeassistant/binary_sensor/plug/state", "homie/5/thermostat/$state", "homeassistant/sensor/plug/config"]
AVAILABLE = "entities/gate/pump/availability"


def config(site: Site, path: Path, dashboards: list[str]) -> dict[str, Any]:
    devices = {"owner": str(site.credentials("works")), "clients": ["pump"], "dashboards": dashboards}
    return {"traces": {**site.config()["traces"], "devices": devices}, "data": str(path / "data")}


@pytest.mark.long
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_no_client_overwrites_or_clears_what_dashboards_are_shown(site: Site, tmp_path: Path, version: Version) -> None:
    async def scenario() -> None:
        async with site.serving(**config(site, tmp_path, ["homeassistant", "homie"])) as broker:
            pump = await Wire.connect(broker, "pump")
            reader = await Wire.connect(broker, "reader")
            assert await reader.subscribe("#", 1) == 1
            shown: dict[str, bytes] = {}
            async with asyncio.timeout(WAIT_S):
                while sum(map(bool, shown.values())) < 4:  # and alerts of nothing, which are empty
                    shown |= dict(await reader.published())
            forger = await Wire.connect(broker, "forger", version)
            for topic in (*shown, *SHOWN):
                for payload in (b"forged", b""):
                    forger.publish(topic, payload)
                    forger.publish(topic, payload, retain=True)
                    forger.publish(topic, payload, qos=1, retain=True)
                    ack = await forger.expect(PubAck)
                    assert version < Version.V5 or ack.code == ReasonCode.NOT_AUTHORIZED
                forger.publish(topic, b"forged", qos=2, retain=True)
                rec = await forger.expect(PubRec)
                if version < Version.V5:
                    forger.send(PubRel(rec.packet_id))
                    await forger.expect(PubComp)
                else:
                    assert rec.code == ReasonCode.NOT_AUTHORIZED
                dying = await Wire.connect(broker, "dying", version, will=Will(topic, b"forged", 1, True))
                dying.cut()
            aliasing = await Wire.connect(broker, "aliasing")
            aliasing.publish(SHOWN[0], b"forged", qos=1, retain=True, properties={"topic_alias": 3})
            aliasing.publish("", b"forged", qos=1, retain=True, properties={"topic_alias": 3})
            codes = [(await aliasing.expect(PubAck)).code for _ in range(2)]
            assert codes == [ReasonCode.NOT_AUTHORIZED] * 2
            assert await reader.published() == []
            for topic in FREE:
                forger.publish(topic, b"free", qos=1)
                await forger.expect(PubAck)
            assert [topic for topic, _ in await reader.published()] == FREE
            late = await Wire.connect(broker, "late")
            assert await late.subscribe("#", 1) == 1
            assert dict(await late.published()) == {topic: payload for topic, payload in shown.items() if payload}
            pump.send(Disconnect())

    asyncio.run(scenario())


def test_without_dashboards_these_are_topics_as_others(site: Site, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with site.serving(**config(site, tmp_path, ["homie"])) as broker:
            reader, client = await Wire.connect(broker, "reader"), await Wire.connect(broker, "client")
            assert await reader.subscribe("#", 1) == 1
            for topic in SHOWN:
                client.publish(topic, b"1", qos=1)
                await client.expect(PubAck)
            assert [topic for topic, _ in await reader.published()] == SHOWN[:2]

    asyncio.run(scenario())


class Broker:
    """What `BrokerOverlay` hands publications to."""

    def __init__(self) -> None:
        self.got: list[str] = []

    def deliver_local(self, publication: Publication, groups_lost: Any = ()) -> None:
        self.got.append(publication.topic)

    def deliver_run(self, publications: Sequence[Publication]) -> None:
        self.got += [each.topic for each in publications]

    def deliver_shared(self, name: Any, publication: Publication) -> None:
        self.got.append(publication.topic)


def gateway_overlay(
    node: Any, name: str, keeping: Any, entities: LocalEntities | None = None, **options: Any
) -> GatewayOverlay:
    """Returns the overlay of a gateway whose outbox and receipts are never touched."""
    store, unopened = cast(Any, SimpleNamespace()), ReceiptKeeper(Path("unopened"), bytes, lambda count: None)
    rows = ReaderRows(bytes(32), bytes(32), name)
    return GatewayOverlay(
        node, Figures(name, "gateway"), store, keeping, Dials(node), rows, unopened, entities, **options
    )


def unrelated() -> GatewayNode:
    """Returns a gateway whose only scope has nothing to do with the topics of a test."""
    return gateway(make_world({1: 3}, [], {"gate": 1}, [Scope("elsewhere/#")]), "gate")


def links_of(broker: Broker, node: Any) -> GatewayOverlay:
    keeping: Any = SimpleNamespace(live=None, overlay=SimpleNamespace(hosted={"web"}))
    links = gateway_overlay(node, "gate", keeping, LocalEntities("gate", "entities"), clock=lambda: NOW)
    links._broker = broker  # type: ignore[assignment]
    links._driver.schedule = lambda *what: None  # type: ignore[method-assign]
    return links


def test_what_other_members_say_in_our_name_is_dropped() -> None:
    """Its rights may reach further than they should; who is alive at its own gateway it may say."""
    broker = Broker()
    links = links_of(broker, unrelated())
    links.deliver_publications([Deliver("far", 1, Publication(AVAILABLE, b"{}", 1, True))])
    links.deliver_to_group(DeliverShared("g", "entities/#", Publication(AVAILABLE, b"{}", 1, True)))
    assert broker.got == []
    others = ["entities/far/pump/availability", "entities/gate/pump/state", "entities/gate/availability"]
    for topic in others:
        links.deliver_publications([Deliver("far", 1, Publication(topic, b"{}", 1, True))])
    assert broker.got == others
    assert links.figures.counts["own_topics_refused"] == 2


def test_a_broker_that_cannot_refuse_passes_nothing_on_in_our_name() -> None:
    """A stock amqtt broker tells us what it has already accepted; and our own word goes out."""
    broker = Broker()
    links = links_of(broker, unrelated())
    codes: list[int] = []
    for topic in (AVAILABLE, "entities/far/pump/availability"):
        assert links.publish("forger", Publication(topic, b"{}", 1, True), codes.append)
    assert codes == [ReasonCode.NOT_AUTHORIZED] * 2

    async def scenario() -> None:
        assert links._entities is not None
        links._entities.start(links._perform_availability, ())
        links.entity_event(EntityConnected("pump", 30))
        links._entities.stop()

    asyncio.run(scenario())
    assert broker.got == [AVAILABLE]


def test_reports_are_guarded_beside_availability(site: Site) -> None:
    """Both under one prefix; the gateway's own reports are said."""

    async def scenario() -> None:
        report = {"traces": {**site.config()["traces"], "report": {"prefix": "entities"}}}
        async with site.serving(**report) as broker:
            broker.exchange.own_topics.add_documents("entities", "gate", "availability")
            reader, forger = await Wire.connect(broker, "reader"), await Wire.connect(broker, "forger")
            assert await reader.subscribe("entities/#", 1) == 1
            for topic in (AVAILABLE, "entities/gate/pump/trace", "entities/far/pump/availability"):
                forger.publish(topic, b"forged", qos=1, retain=True)
                assert (await forger.expect(PubAck)).code == ReasonCode.NOT_AUTHORIZED
            broker.exchange.tracing._perform_effects([TraceReport("entities/gate/pump/trace", b"{}")])  # type: ignore[union-attr]
            assert await reader.published() == [("entities/gate/pump/trace", b"{}")]

    asyncio.run(scenario())


def test_a_bridge_takes_out_what_is_plain_or_ours_to_read_and_nothing_else() -> None:
    """The policy is the owner's, signed. What the gateway's own file protects stays, too, if no scope is signed."""
    scopes = [Scope("plant/#"), Scope("open/#", Mode.PLAIN)]
    rights = {"reads": (("#",), ("plant/#",)), "writes": (("#",), ("plant/line1/#",))}
    world = make_world({1: 3}, [], dict.fromkeys(rights, 1), scopes, rights=rights)
    for name, may in (("reads", True), ("writes", False)):
        node = gateway(world, name)
        keeping: Any = SimpleNamespace(live=None, overlay=world.overlay)
        links = gateway_overlay(node, name, keeping, protected=("ward/#",), clock=lambda: NOW)
        assert links.may_leave("plant/line1/temp") is may, name
        assert links.may_leave("open/door")
        assert links.may_leave("kitchen/lamp"), "of no scope, and not protected"
        assert not links.may_leave("ward/7"), "protected here, and nobody signed a scope for it"


def test_a_protected_topic_without_the_right_is_refused_also_once_the_right_has_ended() -> None:
    """It neither stays local, nor waits in the outbox, nor goes out in clear: the device hears 0x87."""
    world = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#")], rights={"site": (("plant/line1/#",), ())})
    node = gateway(world, "site")
    keeping: Any = SimpleNamespace(live=None, overlay=world.overlay)
    links = gateway_overlay(node, "site", keeping, clock=lambda: NOW)
    taken: list[str] = []
    links._outgoing.take_publication = lambda publication, done, client: taken.append(publication.topic)  # type: ignore[method-assign]

    def codes(topic: str) -> list[int]:
        told: list[int] = []
        assert links.publish("pump", Publication(topic, b"21", 1), told.append)
        return told

    assert codes("plant/line2/temp") == [ReasonCode.NOT_AUTHORIZED]
    assert (codes("plant/line1/temp"), taken) == ([], ["plant/line1/temp"])
    newer = world.revoked("site", -1)
    node.publisher.adopt_overlay(newer, world.secrets_under(newer), NOW)
    keeping.overlay = newer
    links.adopted(newer, removed=False)
    assert codes("plant/line1/temp") == [ReasonCode.NOT_AUTHORIZED], "what was allowed before is not remembered"
    assert taken == ["plant/line1/temp"]
    assert links.figures.counts["publish_refused"] == 2


class Disk(Broker):
    """A broker whose rows are on disk when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], None]] = []
        self.patient: list[bool] = []
        self.rows = 0

    def keep_rows(self, rows: Sequence[Any], is_patient: bool = False) -> None:
        self.rows += len(rows)

    def when_kept(self, done: Callable[[], None], is_patient: bool = False) -> None:
        self.waiting.append(done)
        self.patient.append(is_patient)

    def commit(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done()


class Replica:
    """A connection that we dialled: what we acknowledged on it."""

    manual_ack = True

    def __init__(self) -> None:
        self.acknowledged: list[Publish] = []

    def acknowledge(self, publish: Publish) -> None:
        self.acknowledged.append(publish)


def test_acknowledgements_wait_for_others_but_at_a_hosted_broker_whose_window_is_small() -> None:
    world = make_world({1: 3}, [], {"control": 1})
    disk, replica = Disk(), Replica()
    links = links_of(disk, subscriber(world, "control"))

    async def scenario() -> None:
        for peer in ("r1a", "web"):
            links.link_published(peer, Publish("t", b"", 1), replica)  # type: ignore[arg-type]

    asyncio.run(scenario())
    assert disk.patient == [True, False]


@pytest.mark.attack(93)
def test_what_found_no_room_gets_no_puback_before_there_is_some_and_it_is_on_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Number 2 is late, and four of those that follow it find room."""
    monkeypatch.setattr("bridge.reader.waiting.HELD_MAX", 4)
    world = make_world({1: 3}, [], {"site": 1, "control": 1})
    site, disk, replica = gateway(world, "site"), Disk(), Replica()
    links = links_of(disk, subscriber(world, "control"))
    sealed = {n: publish(site, "plant/t", b"%d" % n, sequence=n, previous=n - 1) for n in range(1, 10)}

    def bring(number: int, peer: str) -> Publish:
        wire: OverlayWire = sealed[number][peer]
        packet = Publish(wire.topic, wire.payload, 1, properties=Properties(user=wire.properties))
        links.link_published(peer, packet, replica)  # type: ignore[arg-type]
        return packet

    async def scenario() -> None:
        packets = {n: [bring(n, peer) for peer in ("r1a", "r1b", "r1c")] for n in (1, *range(3, 10))}
        disk.commit()
        assert replica.acknowledged == [packet for n in (1, 3, 4, 5, 6) for packet in packets[n]]
        assert disk.got == ["plant/t"]
        assert links.figures.counts["held_overflow"] == 3
        assert disk.patient == [True] * 3 + [False] * 12, "more came at once, and more may wait at the replicas"
        second = bring(2, "r1b")
        assert not any(disk.patient[15:]), "replicas wait for the room"
        assert len(replica.acknowledged) == 15, "delivered, and not on disk yet"
        assert disk.got == ["plant/t"] * 9
        disk.commit()
        assert {id(each) for each in replica.acknowledged[15:]} == {
            id(each) for each in [second, *packets[7], *packets[8], *packets[9]]
        }
        assert not len(links._withheld)

    asyncio.run(scenario())
