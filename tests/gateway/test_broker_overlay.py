"""What the overlay sees of local clients, what local clients see of the overlay, and who is let in as a member."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from bridge.contract.machine import Publication
from gateway.base.config import StartError, parse
from gateway.broker.edge_broker import EdgeBroker
from gateway.clients import EntityConnected, EntityGone, EntitySeen, LocalGroup
from gateway.mqtt5.packets import (
    Disconnect,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt5.types import ReasonCode
from tests.gateway.certificates import Authority
from tests.gateway.harness import LOOPBACK, Wire, serving
from tests.waits import until


class FakeOverlay:
    """Takes topics below `far/`, keeps every `done` until the test calls it, knows members by common name. Refuses what
    is below `denied/` at once, as where the owner's policy gives no right to a protected topic."""

    def __init__(self) -> None:
        self.published: list[tuple[str, Publication]] = []
        self.runs: list[list[bytes]] | None = None  # None: publications come one by one
        self.done: list[Callable[[int], None]] = []
        self.filters: list[str] = []
        self.peers: list[str] = []
        self.heard: list[tuple[str, Publish]] = []
        self.entities: list[Any] = []
        self.groups: list[str] = []
        self.refusal = int(ReasonCode.NOT_AUTHORIZED)

    def publish_run(self, client_id: str, run: Sequence[Publication], done: Callable[[int], None]) -> int:
        taken = list(takewhile(lambda publication: publication.topic.startswith("far/"), run))
        if self.runs is None:
            return 0
        if taken:
            self.runs.append([publication.payload for publication in taken])
            self.done.append(done)
        return len(taken)

    def publish(self, client_id: str, publication: Publication, done: Callable[[int], None]) -> bool:
        self.published.append((client_id, publication))
        if publication.topic.startswith("denied/"):
            done(self.refusal)
            return True
        if publication.topic.startswith("far/"):
            self.done.append(done)
            return True
        return False

    def filter_subscribed(self, topic_filter: str, wanted: object = None) -> None:
        self.filters.append(f"+{topic_filter}")

    def filter_unsubscribed(self, topic_filter: str) -> None:
        self.filters.append(f"-{topic_filter}")

    def group_joined(self, group: LocalGroup) -> None:
        self.groups.append(f"+{group.name}:{group.filter} after {self.filters[-1]}")

    def group_left(self, group: str, topic_filter: str) -> None:
        self.groups.append(f"-{group}:{topic_filter} after {self.filters[-1]}")

    def recognise(self, certificate_der: bytes, client_id: str) -> str | None:
        subject = x509.load_der_x509_certificate(certificate_der).subject
        name = str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        return name if name.startswith("replica") else None

    def peer_connected(self, peer: str, session: Any) -> None:
        self.peers.append(f"+{peer}")

    def peer_disconnected(self, peer: str) -> None:
        self.peers.append(f"-{peer}")

    def peer_published(self, peer: str, publish: Publish) -> None:
        self.heard.append((peer, publish))

    def entity_event(self, event: Any) -> None:
        self.entities.append(event)


def test_a_publication_is_acknowledged_when_the_overlay_has_it_and_in_order() -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        async with serving(overlay=overlay) as broker:
            wire, sub = await Wire.connect(broker, "dev"), await Wire.connect(broker, "sub")
            await sub.subscribe("#")
            one = wire.publish("far/1", b"1", 1, properties={"user": (("a", "1"), ("vmq-x", "forged"))})
            two = wire.publish("far/2", b"2", 2, retain=True)
            three = wire.publish("near/3", b"3", 1)
            assert await wire.barrier() == []
            # Local delivery does not wait, and carries nothing of the overlay's own.
            got = await sub.expect(Publish)
            assert (got.topic, got.properties.user) == ("far/1", (("a", "1"),))
            assert [topic for topic, _ in await sub.published()] == ["far/2", "near/3"]
            client_id, publication = overlay.published[0]
            assert (client_id, publication.topic, publication.payload) == ("dev", "far/1", b"1")
            assert publication.properties == (("a", "1"),)
            assert (overlay.published[1][1].qos, overlay.published[1][1].retain) == (2, True)
            overlay.done[1](0)
            assert await wire.barrier() == []
            overlay.done[0](0)
            answers = await wire.barrier()
            assert answers == [PubAck(one), PubRec(two), PubAck(three)]
            wire.send(PubRel(two))
            await wire.expect(PubComp)

    asyncio.run(check())


def test_plain_publications_of_one_read_go_together_and_are_acknowledged_in_their_places() -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        overlay.runs = []
        async with serving(overlay=overlay) as broker:
            wire, sub = await Wire.connect(broker, "dev"), await Wire.connect(broker, "sub")
            await sub.subscribe("far/here")
            ids = [wire.publish("far/1", b"%d" % n, 1) for n in range(4)]
            ids += [wire.publish("far/here", b"4", 1), wire.publish("far/1", b"5", 1), wire.publish("near", b"6", 1)]
            assert await wire.barrier() == []
            assert overlay.runs == [[b"0", b"1", b"2", b"3"], [b"5"]], "what local clients get goes alone"
            assert [publication.payload for _, publication in overlay.published] == [b"4", b"6"]
            assert await sub.published() == [("far/here", b"4")]
            run, alone, after = overlay.done
            after(0)
            alone(0)
            assert await wire.barrier() == []
            run(0)
            assert await wire.barrier() == [PubAck(each) for each in ids]

    asyncio.run(check())


def test_each_publication_of_a_run_that_the_disk_refuses_is_refused() -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        overlay.runs = []
        async with serving(overlay=overlay) as broker:
            new, old = await Wire.connect(broker, "new"), await Wire.connect(broker, "old", Version.V311)
            ids = [new.publish("far/1", b"x", 1) for _ in range(3)]
            assert await new.barrier() == []
            overlay.done[0](ReasonCode.QUOTA_EXCEEDED)
            assert await new.barrier() == [PubAck(each, ReasonCode.QUOTA_EXCEEDED) for each in ids]
            for _ in range(3):
                old.publish("far/1", b"x", 1)
            assert await old.barrier() == []
            overlay.done[1](ReasonCode.QUOTA_EXCEEDED)
            assert await old.closed() == [], "it has no words for that, keeps all three, and repeats them"

    asyncio.run(check())


def test_a_refusal_reaches_the_client_in_the_words_of_its_version() -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        async with serving(overlay=overlay) as broker:
            new = await Wire.connect(broker, "new")
            new.publish("far/1", qos=1)
            await until(lambda: overlay.done)
            overlay.done[0](ReasonCode.QUOTA_EXCEEDED)
            assert (await new.expect(PubAck)).code == ReasonCode.QUOTA_EXCEEDED
            old = await Wire.connect(broker, "old", Version.V311)
            old.publish("far/1", qos=1)
            await until(lambda: len(overlay.done) == 2)
            overlay.done[1](ReasonCode.QUOTA_EXCEEDED)
            assert await old.closed() == []

    asyncio.run(check())


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize(("refusal", "code"), [(0x87, 0x87), (0x95, 0x97), (0x90, 0x90), (0x83, 0x83)])
def test_what_the_overlay_refuses_for_good_is_for_nobody_here_either_and_holds_up_nothing(
    version: Version, qos: int, refusal: int, code: int
) -> None:
    """Neither delivered nor retained; MQTT 5 clients read why, older ones are acknowledged and go on: they would bring
    the message again after each connect, and nothing behind it."""

    async def check() -> None:
        overlay = FakeOverlay()
        overlay.refusal = refusal
        async with serving(overlay=overlay) as broker:
            sub, group = await Wire.connect(broker, "sub"), await Wire.connect(broker, "group")
            await sub.subscribe("#", 2)
            await group.subscribe("$share/g/#", 2)
            device = await Wire.connect(broker, "device", version)
            device.publish("near/1", b"before", min(qos, 1))
            if qos:
                await device.expect(PubAck)
            for retain in (False, True):
                device.publish("denied/1", b"secret", qos, retain=retain)
                if qos:
                    answer = await device.expect(PubAck if qos == 1 else PubRec)
                    assert answer.code == (code if version == Version.V5 else 0)
            device.publish("near/2", b"after", 1)
            await device.expect(PubAck)
            for receiver in (sub, group):
                assert [topic for topic, _ in await receiver.published()] == ["near/1", "near/2"]
            late = await Wire.connect(broker, "late")
            await late.subscribe("denied/#", 1)
            assert await late.published() == []

    asyncio.run(check())


def test_a_will_that_the_overlay_refuses_is_for_nobody_here_either() -> None:
    async def check() -> None:
        async with serving(overlay=FakeOverlay()) as broker:
            sub = await Wire.connect(broker, "sub")
            await sub.subscribe("#", 1)
            for topic in ("denied/will", "near/will"):
                (await Wire.connect(broker, f"dying {topic}", will=Will(topic, b"gone", 1, True))).cut()
            assert (await sub.expect(Publish)).topic == "near/will"
            assert await sub.published() == []
            late = await Wire.connect(broker, "late")
            await late.subscribe("denied/#", 1)
            assert await late.published() == []

    asyncio.run(check())


def test_qos_2_that_was_decided_while_the_client_was_away_is_not_published_twice() -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        async with serving(overlay=overlay) as broker:
            keep = {"session_expiry_s": 100}
            wire = await Wire.connect(broker, "dev", properties=keep)
            wire.publish("far/1", b"1", 2, packet_id=7)
            await until(lambda: overlay.done)
            wire.cut()
            await until(lambda: not dict(broker.clients())["dev"])
            wire = await Wire.connect(broker, "dev", clean_start=False, properties=keep)
            wire.publish("far/1", b"1", 2, packet_id=7, dup=True)
            assert await wire.barrier() == []
            overlay.done[0](0)
            assert (await wire.expect(PubRec)).packet_id == 7
            wire.send(PubRel(7))
            await wire.expect(PubComp)
            assert len(overlay.published) == 1

    asyncio.run(check())


def test_an_old_client_that_is_owed_too_much_is_not_read_and_not_timed_out() -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        async with serving({"limits": {"receive_maximum": 3}}, overlay=overlay) as broker:
            wire = await Wire.connect(broker, "dev", Version.V311, keep_alive_s=1)
            for _ in range(3):
                wire.publish("far/x", qos=1)
            await until(lambda: len(overlay.done) == 3)
            wire.publish("far/x", qos=1)
            await asyncio.sleep(0.02)
            assert len(overlay.done) == 3
            broker.do_due_work(broker.now() + 10)
            assert dict(broker.clients()) == {"dev": True}
            overlay.done[0](0)
            await until(lambda: len(overlay.done) == 4)
            broker.do_due_work(broker.now() + 10)
            for done in overlay.done[1:]:
                done(0)
            assert len([await wire.expect(PubAck) for _ in range(4)]) == 4

    asyncio.run(check())


def test_a_newer_client_that_ignores_receive_maximum_is_disconnected() -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        async with serving({"limits": {"receive_maximum": 3}}, overlay=overlay) as broker:
            wire = await Wire.connect(broker, "dev")
            assert wire.connack is not None
            assert wire.connack.properties.receive_maximum == 3
            for _ in range(4):
                wire.publish("far/x", qos=1)
            (bye,) = await wire.closed()
            assert isinstance(bye, Disconnect)
            assert bye.code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED

    asyncio.run(check())


def test_wills_and_qos_0_go_to_the_overlay_too() -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        async with serving(overlay=overlay) as broker:
            will = Will("far/will", b"gone", 1, properties=Properties(user=(("vmq", "forged"),)))
            wire = await Wire.connect(broker, "dev", will=will)
            wire.publish("far/0", b"0")
            await wire.barrier()
            wire.cut()
            await until(lambda: len(overlay.published) == 2)
            assert [(p.topic, p.qos, p.properties) for _, p in overlay.published] == [
                ("far/0", 0, ()),
                ("far/will", 1, ()),
            ]
            assert [client for client, _ in overlay.published] == ["dev", "dev"]

    asyncio.run(check())


def test_first_and_last_subscription_of_a_filter_are_reported() -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        async with serving(overlay=overlay) as broker:
            a, b = await Wire.connect(broker, "a"), await Wire.connect(broker, "b")
            await a.subscribe("t/#", 1)
            await a.subscribe("t/#", 2)
            await b.subscribe("$share/g/t/#")
            assert overlay.filters == ["+t/#"]
            assert broker.local.local_filters() == ["t/#"]
            a.cut()
            await until(lambda: "a" not in dict(broker.clients()))
            assert overlay.filters == ["+t/#"]
            b.send(Disconnect())
            await b.closed()
            assert overlay.filters == ["+t/#", "-t/#"]

    asyncio.run(check())


@pytest.mark.parametrize("kept", [True, False])
def test_a_broker_that_stops_withdraws_nothing_that_persistent_sessions_want(kept: bool, tmp_path: Path) -> None:
    """Else members forget what is published until it is back. What only clean sessions wanted is withdrawn."""

    async def check() -> None:
        overlay = FakeOverlay()
        config = {"data": str(tmp_path / "data"), "limits": {"session_expiry_s": 3600}}
        async with serving(config, overlay=overlay) as broker:
            away = await Wire.connect(broker, "away", properties={"session_expiry_s": 3600})
            await away.subscribe("t/1", 1)
            await away.subscribe("$share/g/t/2", 1)
            away.cut()
            await until(lambda: not dict(broker.clients())["away"])
            here = await Wire.connect(broker, "here", properties={"session_expiry_s": 3600 if kept else 0})
            await here.subscribe("t/3", 2)
            await here.subscribe("$share/h/t/4", 2)
        gone = [] if kept else ["-t/3", "-t/4"]
        assert overlay.filters == ["+t/1", "+t/2", "+t/3", "+t/4", *gone]
        assert [told for told in overlay.groups if told.startswith("-")] == ([] if kept else ["-h:t/4 after -t/3"])
        overlay = FakeOverlay()
        async with serving(config, overlay=overlay) as broker:
            assert set(broker.local.local_filters()) == {"t/1", "t/2"} | ({"t/3", "t/4"} if kept else set())

    asyncio.run(check())


def test_a_suback_waits_until_members_know_of_the_subscription() -> None:
    """From then on nothing is missed; what local clients publish comes before."""

    class Slow(FakeOverlay):
        waiting: dict[str, Callable[[], None]] = {}  # noqa: RUF012

        def when_accepted(self, topic_filters: list[str], done: Callable[[], None]) -> bool:
            self.waiting |= dict.fromkeys(topic_filters, done)
            return topic_filters[0].startswith("far/")

    async def check() -> None:
        overlay = Slow()
        async with serving(overlay=overlay) as broker:
            wire = await Wire.connect(broker, "reader")
            assert await wire.subscribe("near/#", 1) == 1
            asking = asyncio.create_task(wire.subscribe("$share/g/far/#", 1))
            await until(lambda: "far/#" in overlay.waiting)
            broker.local.deliver_local(Publication("far/1", b"early", 1))
            await asyncio.sleep(0.02)
            assert not asking.done()
            overlay.waiting["far/#"]()
            assert await asking == 1
            gone = await Wire.connect(broker, "gone")
            gone.send(Subscribe(1, (Subscription("far/x", 1),)))
            await until(lambda: "far/x" in overlay.waiting)
            gone.cut()
            overlay.waiting["far/x"]()
            await until(lambda: "gone" not in dict(broker.clients()))
            assert [payload for _, payload in await wire.published()] == [b"early"]

    asyncio.run(check())


def test_what_was_retained_while_a_suback_waited_came_live_and_comes_no_second_time() -> None:
    """What was retained before comes once, too, after the SUBACK; asked for again, all of it is retained."""

    class Slow(FakeOverlay):
        done: Callable[[], None] | None = None

        def when_accepted(self, topic_filters: list[str], done: Callable[[], None]) -> bool:
            self.done = done
            return True

    async def check() -> None:
        overlay = Slow()
        async with serving(overlay=overlay) as broker:
            for topic in ("far/1", "far/2"):
                broker.local.deliver_local(Publication(topic, b"before", 1, retain=True))
            wire = await Wire.connect(broker, "reader")
            for number in (b"now", b"later"):
                overlay.done = None
                asking = asyncio.create_task(wire.subscribe("far/#", 1))
                await until(lambda: overlay.done is not None)
                broker.local.deliver_local(Publication("far/2", number, 1, retain=True))
                assert overlay.done is not None
                overlay.done()
                await asking
                got = [(p.topic, p.payload, p.retain) for p in await wire.barrier() if isinstance(p, Publish)]
                assert sorted(got) == [("far/1", b"before", True), ("far/2", number, False)]

    asyncio.run(check())


def test_groups_are_reported_from_their_first_member_to_their_last() -> None:
    """After the filter is, and before it is gone; the same name with another filter is another group."""

    async def check() -> None:
        overlay = FakeOverlay()
        async with serving(overlay=overlay) as broker:
            a, b = await Wire.connect(broker, "a"), await Wire.connect(broker, "b")
            await a.subscribe("$share/g/t/#")
            await a.subscribe("$share/g/u")
            assert overlay.groups == ["+g:t/# after +t/#", "+g:u after +u"]
            await b.subscribe("$share/g/t/#")
            both = LocalGroup("g", "t/#", True, "here"), LocalGroup("g", "u", True, "here")
            assert set(broker.local.local_groups()) == set(both)
            a.send(Unsubscribe(9, ("$share/g/t/#",)))
            await a.expect(UnsubAck)
            assert not any(told.startswith("-") for told in overlay.groups), "b is a member still"
            b.send(Disconnect())
            await b.closed()
            assert overlay.groups[-1] == "-g:t/# after +u"
            assert overlay.filters[-1] == "-t/#"
            assert broker.local.local_groups() == [LocalGroup("g", "u", True, "here")]

    asyncio.run(check())


def test_what_another_gateway_serves_a_group_with_goes_to_ordinary_subscribers_only() -> None:
    """And what is the group's alone goes to nobody else: not again to subscribers, nor to the retained store."""

    async def check() -> None:
        async with serving(overlay=FakeOverlay()) as broker:
            names = ("plain", "one", "two", "other")
            plain, one, two, other = [await Wire.connect(broker, name) for name in names]
            await plain.subscribe("far/#", 1)
            await other.subscribe("$share/other/far/#", 1)
            for member in (one, two):
                await member.subscribe("$share/g/far/#", 1)
            broker.local.deliver_local(Publication("far/1", b"theirs", 1), {("g", "far/#")})
            broker.local.deliver_local(Publication("far/1", b"ours", 1), {("g", "far/1"), ("h", "far/#")})
            taken = Publication("far/1", b"taken over", 1, True, properties=(("vmq", "hidden"),))
            broker.local.deliver_shared(("g", "far/#"), taken)
            broker.local.deliver_shared(("gone", "far/#"), taken)
            await until(broker._broadcast_queue.empty)
            assert [p for _, p in await plain.published()] == [b"theirs", b"ours"]
            assert [p for _, p in await other.published()] == [b"theirs", b"ours"]
            members = await one.published() + await two.published()
            assert sorted(p for _, p in members) == [b"ours", b"taken over"]
            late = await Wire.connect(broker, "late")
            await late.subscribe("far/#")
            assert await late.published() == []

    asyncio.run(check())


def test_deliver_local_reaches_local_clients_and_the_retained_store_and_never_goes_back() -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        async with serving(overlay=overlay) as broker:
            sub = await Wire.connect(broker, "sub")
            await sub.subscribe("far/#", 1)
            broker.local.deliver_local(
                Publication(
                    *("far/1", b"opened", 2, True),
                    content_type="t",
                    properties=(("vmq", "hidden"), ("k", "v")),
                    expiry_s=50,
                )
            )
            got = await sub.expect(Publish)
            assert (got.payload, got.qos, got.retain) == (b"opened", 1, False)
            assert (got.properties.user, got.properties.content_type) == ((("k", "v"),), "t")
            assert got.properties.message_expiry_s == 50
            late = await Wire.connect(broker, "late")
            await late.subscribe("far/1")
            assert await late.published() == [("far/1", b"opened")]
            assert overlay.published == []

    asyncio.run(check())


def test_entities_are_reported_for_heartbeats() -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        async with serving(overlay=overlay) as broker:
            polite = await Wire.connect(broker, "polite", keep_alive_s=7)
            for _ in range(3):
                await polite.barrier()
            polite.send(Disconnect())
            await polite.closed()
            (await Wire.connect(broker, "broken")).cut()
            await until(lambda: len(overlay.entities) == 5)
        connected, seen, gone = overlay.entities[:3]
        assert isinstance(connected, EntityConnected)
        assert (connected.client_id, connected.keep_alive_s) == ("polite", 7)
        assert isinstance(seen, EntitySeen)
        assert isinstance(gone, EntityGone)
        assert gone.clean
        last = overlay.entities[4]
        assert isinstance(last, EntityGone)
        assert (last.client_id, last.clean) == ("broken", False)

    asyncio.run(check())


# ------------------------------------------------------------------------------------------------ members


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def with_members(authority: Authority, overlay: FakeOverlay, **limits: int) -> AbstractAsyncContextManager[EdgeBroker]:
    certfile, keyfile = authority.issue("server")
    members = {
        "bind": "127.0.0.1:0",
        "ssl": True,
        "overlay": True,
        "certfile": str(certfile),
        "keyfile": str(keyfile),
        "cafile": str(authority.cafile),
    }
    listeners = {"default": {"bind": "127.0.0.1:0", "overlay": False, "ssl": False}, "members": members}
    return serving({"listeners": listeners, "limits": limits}, overlay=overlay)


def test_a_member_is_known_by_its_certificate_and_its_traffic_stays_apart(authority: Authority) -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        async with with_members(authority, overlay) as broker:
            local = await Wire.connect(broker, "replica1")
            await local.subscribe("#")
            context = authority.client("replica1")
            peer = await Wire.connect(broker, "replica1", listener="members", context=context)
            assert peer.connack is not None
            assert peer.connack.code == 0
            assert overlay.peers == ["+replica1"]
            # The local client of the same client id is untouched, and neither hears the other.
            peer.publish("far/1", b"sealed", 1, properties={"user": (("vmq", "header"),)})
            await peer.expect(PubAck)
            ((name, publish),) = overlay.heard
            assert (name, publish.payload, publish.properties.user) == (
                "replica1",
                b"sealed",
                (("vmq", "header"),),
            )
            assert await peer.subscribe("#", 1) == 1
            local.publish("near", b"clear")
            assert await local.published() == [("near", b"clear")]
            assert await peer.barrier() == []
            assert overlay.filters == ["+#"]
            peer.cut()
            await until(lambda: overlay.peers == ["+replica1", "-replica1"])
            assert list(broker.clients()) == [("replica1", True)]

    asyncio.run(check())


def test_send_to_peer_is_acknowledged_bounded_and_outlives_a_connection(authority: Authority) -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        async with with_members(authority, overlay, member_queue_messages=2, member_in_flight=2) as broker:
            acks: list[int] = []
            context = authority.client("replica1")

            async def connect() -> Wire:
                return await Wire.connect(
                    broker,
                    "p",
                    listener="members",
                    context=context,
                    clean_start=False,
                    properties={"session_expiry_s": 100, "maximum_packet_size": 100},
                )

            def send(payload: bytes = b"x") -> bool:
                return broker.local.send_to_peer("replica1", "w", payload, (("vmq", "h"),), acks.append)

            assert not send()
            peer = await connect()
            assert not send(b"x" * 200)
            assert [send() for _ in range(5)] == [True] * 4 + [False]
            got = [await peer.expect(Publish) for _ in range(2)]
            assert {g.properties.user for g in got} == {(("vmq", "h"),)}
            assert {g.qos for g in got} == {1}
            peer.send(PubAck(got[0].packet_id), PubAck(got[1].packet_id, ReasonCode.QUOTA_EXCEEDED))
            assert len([await peer.expect(Publish) for _ in range(2)]) == 2
            assert acks == [0, ReasonCode.QUOTA_EXCEEDED]
            peer.cut()
            member = broker.lifecycle.peers["replica1"]
            await until(lambda: member.connection is None)
            # While it is away its session queues, as far as its bounds go.
            assert [send(b"away") for _ in range(3)] == [True, True, False]
            peer = await connect()
            again = [await peer.expect(Publish) for _ in range(2)]
            assert {g.dup for g in again} == {True}
            peer.send(*[PubAck(g.packet_id) for g in again])
            assert [(await peer.expect(Publish)).payload for _ in range(2)] == [b"away", b"away"]
            assert len(acks) == 4
            assert overlay.peers == ["+replica1", "+replica1"]
            peer.cut()
            await until(lambda: member.connection is None)
            broker.do_due_work(broker.now() + 101)
            assert overlay.peers[-1] == "-replica1"
            assert not send()

    asyncio.run(check())


def test_a_stranger_is_refused_with_one_line(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        overlay = FakeOverlay()
        async with with_members(authority, overlay) as broker:
            with caplog.at_level(logging.INFO, "veilmq"):
                stranger = await Wire.connect(broker, "x", listener="members", context=authority.client("stranger"))
                assert stranger.connack is not None
                assert stranger.connack.code == ReasonCode.NOT_AUTHORIZED
                assert await stranger.closed() == []
                old = await Wire.connect(
                    broker,
                    "replica1",
                    Version.V311,
                    listener="members",
                    context=authority.client("replica1"),
                )
                assert old.connack is not None
                assert old.connack.code == 1
                assert await old.closed() == []
            lines = [record.getMessage() for record in caplog.records]
            assert len(lines) == 2
            assert "the certificate of 'x' is none of the overlay's" in lines[0]
            assert "a hop below MQTT 5 strips user properties" in lines[1]
            assert overlay.peers == []

    asyncio.run(check())


def test_without_a_certificate_nobody_reaches_an_overlay_listener(authority: Authority) -> None:
    async def check() -> None:
        async with with_members(authority, FakeOverlay()) as broker:
            with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
                await Wire.connect(broker, "replica1", listener="members", context=authority.client())
            assert list(broker.clients()) == []

    asyncio.run(check())


def test_an_overlay_listener_without_overlay_or_tls_does_not_start(authority: Authority) -> None:
    certfile, keyfile = authority.issue("server")
    tls = {"ssl": True, "certfile": str(certfile), "keyfile": str(keyfile), "cafile": str(authority.cafile)}
    identity = {"identity": "x", "overlay": "y"}

    async def check() -> None:
        listeners = {"default": {**LOOPBACK["default"], **tls, "overlay": True}}
        with pytest.raises(StartError, match="no overlay is configured"):
            await EdgeBroker(parse({"listeners": listeners})).start()
        listeners = {"default": {**LOOPBACK["default"], "overlay": True}}
        settings = parse({"listeners": listeners, "overlay": identity})
        with pytest.raises(StartError, match="mutual TLS only"):
            await EdgeBroker(settings, overlay=FakeOverlay()).start()

    asyncio.run(check())


class Unreadable(FakeOverlay):
    """Nothing can reach subscriptions below `shut/`, which the test may open."""

    shut = True

    def may_subscribe(self, topic_filter: str) -> bool:
        return not (self.shut and topic_filter.startswith("shut/"))


def test_a_subscription_that_nothing_can_reach_is_refused_and_the_others_are_granted() -> None:
    async def check() -> None:
        async with serving(overlay=Unreadable()) as broker:
            client = await Wire.connect(broker, "c")
            codes = [await client.subscribe(each, 1) for each in ("shut/a", "open/a", "$share/g/shut/a")]
            assert codes == [ReasonCode.NOT_AUTHORIZED, 1, ReasonCode.NOT_AUTHORIZED]

    asyncio.run(check())


def test_subscriptions_that_may_be_read_no_longer_end_with_their_connection() -> None:
    async def check() -> None:
        overlay = Unreadable()
        overlay.shut = False
        async with serving(overlay=overlay) as broker:
            lasting = {"session_expiry_s": 60}
            reader = await Wire.connect(broker, "reader", clean_start=False, properties=lasting)
            other = await Wire.connect(broker, "other")
            for each in ("shut/a", "open/a"):
                await reader.subscribe(each)
            await other.subscribe("open/a")
            overlay.shut = True
            broker.local.end_unreadable(overlay.may_subscribe)
            farewell = (await reader.closed())[-1]
            assert isinstance(farewell, Disconnect)
            assert farewell.code == ReasonCode.NOT_AUTHORIZED
            assert "-shut/a" in overlay.filters
            again = await Wire.connect(broker, "reader", clean_start=False, properties=lasting)
            assert again.connack is not None
            assert again.connack.session_present, "its other subscriptions live on"
            other.publish("shut/a", b"1")
            other.publish("open/a", b"2")
            assert await other.published() == [("open/a", b"2")], "nobody else is disconnected"
            assert await again.published() == [("open/a", b"2")]

    asyncio.run(check())
