"""Links between members: peers that fall silent, peers with IPv6 addresses, and what is counted of each link."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.base.figures import LINKS_SHOWN_MAX, Figures, HistoryState, LinkFigures, LinkState
from gateway.client.mqtt_client import MqttClient
from gateway.mqtt5.packets import PubAck, Publish
from gateway.operation.prometheus import overlay_metrics
from gateway.overlay.dials import Dials
from gateway.party import accepted_links
from gateway.sockets.connection import CLOSE_GRACE_S
from tests.gateway.certificates import Authority
from tests.gateway.harness import Leap, serving
from tests.gateway.overlay.test_region_client import Server, connected, scenario
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.test_broker_overlay import FakeOverlay
from tests.support.files import edited
from tests.support.processes import ending
from tests.waits import until, wait_until

KEEP_ALIVE_S = 10


# ------------------------------------------------------------------------------------- half-open connections


class Proxy:
    """Passes bytes on until `swallow`; from then on nobody hears anything of the other side, nor that it ended."""

    def __init__(self) -> None:
        self.port = self.swallowed = 0
        self._swallows = self._reads = False
        self._transports: list[asyncio.Transport] = []

    @contextlib.asynccontextmanager
    async def between(self, port: int) -> AsyncIterator[Proxy]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            self._transports += [writer.transport, far_writer.transport]
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

        listener = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listener.close()
            for transport in self._transports:
                transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if not self._swallows:
                    writer.write(data)
                    continue
                self.swallowed += len(data)
                if not self._reads:
                    await asyncio.Event().wait()
            if not self._swallows:
                writer.close()

    def swallow(self, reads: bool = True) -> None:
        """`reads` False: it does not even take the bytes, as behind a cable that was pulled."""
        self._swallows, self._reads = True, reads


@contextlib.asynccontextmanager
async def a_link(directory: Path) -> AsyncIterator[tuple[MqttClient, Proxy, Any, FakeOverlay]]:
    """A member's client, a proxy, and the broker of another member, over TLS."""
    authority = Authority(directory)
    cert, key = authority.issue("broker")
    listener = {
        "bind": "127.0.0.1:0", "overlay": True, "ssl": True, "require_client_certificate": True,
        "certfile": str(cert), "keyfile": str(key), "cafile": str(authority.cafile),
    }  # fmt: skip
    overlay = FakeOverlay()
    async with (
        serving({"listeners": {"default": listener}}, overlay=overlay) as broker,
        Proxy().between(broker.port()) as proxy,
    ):
        client = MqttClient(
            "127.0.0.1", proxy.port, client_id="replica1", ssl=authority.client("replica1"), clean_start=False,
            session_expiry_s=3600, keep_alive_s=KEEP_ALIVE_S,
        )  # fmt: skip
        await client.connect()
        await until(lambda: overlay.peers == ["+replica1"])
        yield client, proxy, broker, overlay
        await client.close()


def test_a_peer_that_falls_silent_is_noticed_by_whoever_dialled_within_one_and_a_half_keep_alives(
    tmp_path: Path,
) -> None:
    async def check() -> None:
        async with a_link(tmp_path) as (client, proxy, _, _):
            downs: list[bool] = []
            client.on_down = lambda: downs.append(True)
            leap = Leap()
            proxy.swallow()
            await leap.by(KEEP_ALIVE_S)
            await until(lambda: proxy.swallowed)  # the PINGREQ
            await leap.by(KEEP_ALIVE_S / 2 - 1)
            assert not downs
            await leap.by(1)
            await until(lambda: downs)
            assert "does not answer" in client._why or "does not answer" in client.last_error

    asyncio.run(check())


def test_a_pulled_cable_is_noticed_although_much_is_still_to_be_written(tmp_path: Path) -> None:
    """Closing politely would wait for the peer to take it all: the link would hang until TCP gives up."""

    async def check() -> None:
        async with a_link(tmp_path) as (client, proxy, _, _):
            downs: list[bool] = []
            client.on_down = lambda: downs.append(True)
            leap = Leap()
            proxy.swallow(reads=False)
            while not client._session.paused:
                assert client.publish("t", bytes(900_000), 1)
                await leap.by(0)
            await leap.by(KEEP_ALIVE_S)
            await leap.by(KEEP_ALIVE_S / 2)
            await until(lambda: downs)

    asyncio.run(check())


def test_a_peer_that_falls_silent_is_noticed_by_whoever_was_dialled(tmp_path: Path) -> None:
    async def check() -> None:
        async with a_link(tmp_path) as (_, proxy, broker, _):

            def is_up() -> bool:
                return accepted_links(broker.lifecycle, Figures("r", "replica"))[0].up

            proxy.swallow()
            now = broker.now()
            broker.do_due_work(now + 1.5 * KEEP_ALIVE_S - 1)
            assert is_up()
            leap = Leap()
            broker.do_due_work(now + 1.5 * KEEP_ALIVE_S + 0.1)
            await leap.by(CLOSE_GRACE_S)  # it gives the peer so long to take its DISCONNECT
            await until(lambda: not is_up())

    asyncio.run(check())


# ------------------------------------------------------------------------------------------- other addresses


@scenario
async def test_a_peer_that_is_elsewhere_is_reached_there(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client = MqttClient("127.0.0.1", port, elsewhere=lambda: [("127.0.0.1", server.port)])
    client.start()
    await (await server.next()).accept()
    await until(lambda: client.connected)
    assert client.address == f"127.0.0.1:{port}"  # what the overlay says stays its name
    await client.close()


class OverIPv6(OverlayProcesses):
    """Replicas listen on ::1 only."""

    def _wait_for(self, name: str) -> None:
        host = "::1" if name.startswith("north") else "127.0.0.1"

        def listens() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((host, self.ports[name]), 1):
                return True
            return False

        assert wait_until(listens), self.log(name)


def need_ipv6(_: OverIPv6) -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")


overlay = ending(need_ipv6, OverIPv6)


def test_ipv6_from_the_configuration_through_the_overlay_file_to_the_link(overlay: OverIPv6) -> None:
    overlay.make({"north": 3}, [], {"site": "north"})
    names = ("north1", "north2", "north3")

    def on_ipv6(description: dict[str, Any]) -> None:
        for entry, name in zip(description["regions"][0]["members"], names, strict=True):
            entry["address"] = f"[::1]:{overlay.ports[name]}"

    overlay.describe(on_ipv6)
    overlay.hand_out(*names, "site")
    for name in names:
        with edited(overlay.directory / f"{name}.yaml") as content:
            content["listeners"]["default"]["bind"] = f"[::1]:{overlay.ports[name]}"
    overlay.start(*names, "site")
    assert wait_until(lambda: overlay.figures("site").get("links_up") == 3, 10), overlay.log("site")
    device = overlay.client("site", "device")
    for number in range(20):  # one after another: what one commit brings is one batch, which is sent once
        device.publish("plant/a", b"%d" % number, qos=1).wait_for_publish(10)

    def all_is_sent() -> bool:
        figures = overlay.figures("site")
        peer = figures["peers"]["north1"]["dialled"]
        return figures["outbox_depth"] == 0 and peer["up"] and peer["sent"] >= 20

    assert wait_until(all_is_sent), overlay.figures("site")
    overlay.kill("north1")
    assert wait_until(lambda: f"[::1]:{overlay.ports['north1']}" in overlay.log("site"))  # as one writes it


# ------------------------------------------------------------------------------------------- what is counted


@scenario
async def test_a_client_counts_what_crosses_its_link(server: Server) -> None:
    client, peer = await connected(server, clean_start=False, session_expiry_s=60)
    acked: list[bool] = []
    for _ in range(3):
        assert client.publish("t", b"12345", 1, on_ack=lambda: acked.append(True))
    first = await peer.expect(Publish)
    assert client.load[:2] == (3, 0)
    figures = client.figures
    assert figures.acknowledge_s is None
    peer.send(PubAck(first.packet_id), Publish("back", b"123"))
    await until(lambda: acked and figures.received)
    assert client.load[:2] == (2, 0)
    assert figures.acknowledge_s is not None
    assert 0 < figures.acknowledge_s < 5
    assert (figures.sent, figures.received, figures.connections) == (3, 1, 1)
    assert figures.sent_bytes > 3 * 5
    assert figures.received_bytes > 3
    peer.cut()
    await (await server.next()).accept(session_present=True)
    await until(lambda: client.connected)
    assert (figures.connections, figures.sent) == (2, 3)  # a repetition is not another message
    await client.close()


@scenario
async def test_a_refused_message_does_not_stop_the_measuring(server: Server) -> None:
    client, peer = await connected(server)
    assert client.publish("t", b"", 1)
    peer.send(PubAck((await peer.expect(Publish)).packet_id, 0x97))
    await until(lambda: client.acks.refused)
    assert client.publish("t", b"", 1)
    peer.send(PubAck((await peer.expect(Publish)).packet_id))
    await until(lambda: client.figures.acknowledge_s is not None)
    await client.close()


def state(peer: str = "r1", dialled: bool = True, up: bool = True, **counted: Any) -> LinkState:
    return LinkState(peer, dialled, up, 4, 5, LinkFigures(**counted))


def test_the_figures_of_links_reach_prometheus_with_peer_and_direction() -> None:
    links = [state(sent=6, sent_bytes=7, connections=3, acknowledge_s=0.5), state(dialled=False, up=False, received=8)]
    shown = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in overlay_metrics(Figures("g", "gateway", links=lambda: links), {})
        for sample in metric.samples
    }
    assert shown["veilmq_link_up", "r1", "out"] == 1
    assert shown["veilmq_link_up", "r1", "in"] == 0
    assert shown["veilmq_link_sent_messages_total", "r1", "out"] == 6
    assert shown["veilmq_link_sent_bytes_total", "r1", "out"] == 7
    assert shown["veilmq_link_received_messages_total", "r1", "in"] == 8
    assert shown["veilmq_link_reconnects_total", "r1", "out"] == 2
    assert shown["veilmq_link_in_flight_messages", "r1", "out"] == 4
    assert shown["veilmq_link_waiting_messages", "r1", "out"] == 5
    assert shown["veilmq_link_acknowledge_seconds", "r1", "out"] == 0.5
    assert ("veilmq_link_acknowledge_seconds", "r1", "in") not in shown


def test_how_far_histories_reach_is_shown_by_scope() -> None:
    kept = [HistoryState("plant/#", 1_800_000_000_000, 1_800_000_001_000, 77), HistoryState("yard/#")]
    shown = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in overlay_metrics(Figures("r", "replica", histories=lambda: kept), {})
        for sample in metric.samples
    }
    assert shown["veilmq_history_first_time_seconds", "plant/#"] == 1_800_000_000
    assert shown["veilmq_history_bytes", "plant/#"] == 77
    assert shown["veilmq_history_bytes", "yard/#"] == 0
    assert ("veilmq_history_first_time_seconds", "yard/#") not in shown


def test_the_figures_of_links_are_in_the_json_object_in_bounded_number() -> None:
    figures = Figures("g", "gateway", links=lambda: [state(), state(dialled=False)])
    told = json.loads(figures.to_json())["peers"]["r1"]
    assert (told["dialled"]["in_flight"], told["accepted"]["up"]) == (4, True)
    crowd = Figures("r", "replica", links=lambda: [state(f"g{n}") for n in range(2 * LINKS_SHOWN_MAX)])
    assert len(crowd.to_dict()["peers"]) == LINKS_SHOWN_MAX


def test_members_that_dialled_us_are_shown_too(tmp_path: Path) -> None:
    async def check() -> None:
        async with a_link(tmp_path) as (client, _, broker, _):
            figures = Figures("r", "replica")
            figures.count_received("replica1", 10)
            assert broker.local.send_to_peer("replica1", "t", b"12345", (), lambda code: None)
            await until(lambda: client.figures.received)
            (shown,) = accepted_links(broker.lifecycle, figures)
            assert (shown.peer, shown.dialled, shown.up, shown.waiting) == ("replica1", False, True, 0)
            assert (shown.figures.sent, shown.figures.sent_bytes) == (1, 5)
            assert (shown.figures.received, shown.figures.received_bytes) == (1, 10)

    asyncio.run(check())


def test_the_links_that_we_dial_are_shown_while_they_are_down() -> None:
    async def check() -> None:
        dials = Dials(lambda peer: MqttClient("127.0.0.1", 9, client_id=peer))

        class Nobody:
            def __getattr__(self, name: str) -> Any:
                return lambda *_: None

        dials.start(["r1", "r2"], Nobody())
        assert [(link.peer, link.dialled, link.up) for link in dials.link_states()] == [
            ("r1", True, False),
            ("r2", True, False),
        ]
        await dials.close()

    asyncio.run(check())
