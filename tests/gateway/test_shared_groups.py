"""One shared group with members at several gateways: real processes, unchanged clients, each publication once."""

from __future__ import annotations

import threading
import time
from collections import Counter

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.gateway.overlay_processes import OverlayProcesses
from tests.support.processes import ending
from tests.waits import wait_until

pytestmark = pytest.mark.invariant(36)

REPLICAS = ("north1", "north2", "north3")


def begin(made: OverlayProcesses) -> None:
    """Devices at `field`, members of the group at `site` and `control`."""
    made.make({"north": 3}, [], {"field": "north", "site": "north", "control": "north"})
    made.start(*REPLICAS, "field", "site", "control")


overlay = ending(begin)


class Member:
    """A paho client in the group."""

    def __init__(
        self,
        overlay: OverlayProcesses,
        gateway: str,
        name: str,
        client: paho.Client | None = None,
        root: str = "plant",
    ) -> None:
        """`client`: another one than a new client with a clean session."""
        self._filter = f"$share/workers/{root}/jobs/#"
        self.payloads: list[bytes] = []
        self.client = client or overlay.client(gateway, name, paho.MQTTv5)
        self.client.on_message = lambda client, userdata, message: self.payloads.append(message.payload)
        if client is not None:
            client.loop_start()
        self.client.subscribe(self._filter, 1)

    def leave(self) -> None:
        """Unsubscribe, and stay to take what is under way."""
        self.client.unsubscribe(self._filter)


class Load:
    """QoS 1 at a steady rate from one device, in the background."""

    def __init__(self, overlay: OverlayProcesses, gateway: str, name: str, root: str = "plant") -> None:
        self.client = overlay.client(gateway, f"device-{name}")
        self.published: list[bytes] = []
        self._name, self._root = name, root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            payload = f"{self._name} {len(self.published)}".encode()
            self.client.publish(f"{self._root}/jobs/{len(self.published) % 7}", payload, qos=1).wait_for_publish(10)
            self.published.append(payload)

    def stop(self) -> list[bytes]:
        self._stop.set()
        self._thread.join()
        return self.published


def settle(overlay: OverlayProcesses, gateway: str, *members: Member, root: str = "plant") -> None:
    """Until all of these share what devices at the gateway publish, each publication once."""
    device = overlay.client(gateway, f"probe-{time.monotonic()}")

    def shared() -> bool:
        probes = [b"probe %d %d" % (time.monotonic_ns(), number) for number in range(40)]
        for probe in probes:
            device.publish(f"{root}/jobs/probe", probe, qos=1).wait_for_publish(10)
        got: list[list[bytes]] = []

        def arrived() -> bool:
            got[:] = [[p for p in member.payloads if p in probes] for member in members]
            return sum(map(len, got)) >= len(probes)

        return wait_until(arrived, 3.0) and all(got) and sum(map(len, got)) == len(probes)

    assert wait_until(shared, 40.0)
    device.disconnect()
    device.loop_stop()


def outcome(published: list[bytes], members: list[Member]) -> tuple[list[bytes], list[bytes]]:
    """What nobody got, and what somebody got again."""
    wait_until(lambda: set(published) <= {p for member in members for p in member.payloads}, 15.0)
    got = Counter(p for member in members for p in member.payloads)
    return [p for p in published if not got[p]], [p for p in published if got[p] > 1]


def test_a_group_over_two_gateways_gets_each_publication_once_and_each_gateway_a_part(overlay: OverlayProcesses):
    members = [Member(overlay, "site", "s1"), Member(overlay, "control", "c1"), Member(overlay, "control", "c2")]
    settle(overlay, "field", *members)
    device = overlay.client("field", "device", paho.MQTTv5)
    published = [b"work %d" % number for number in range(1000)]
    for number, payload in enumerate(published):
        device.publish(f"plant/jobs/{number % 7}", payload, qos=1)
    assert outcome(published, members) == ([], [])
    parts = [sum(p in set(published) for p in member.payloads) for member in members]
    assert 400 < parts[0] < 600, parts  # gateways share evenly, and each shares among its own
    assert 400 < parts[1] + parts[2] < 600, parts
    assert min(parts[1:]) > 150, parts


def test_what_a_members_own_gateway_takes_stays_there_and_the_others_leave_it(overlay: OverlayProcesses):
    members = [Member(overlay, "site", "s1"), Member(overlay, "control", "c1")]
    settle(overlay, "field", *members)
    loads = [Load(overlay, gateway, gateway) for gateway in ("site", "control")]
    assert wait_until(lambda: all(len(load.published) >= 200 for load in loads))
    published = [load.stop() for load in loads]
    assert outcome(published[0] + published[1], members) == ([], [])
    for member, own in zip(members, published, strict=True):
        assert set(own) <= set(member.payloads)


@pytest.mark.slow
def test_nothing_is_lost_while_gateways_leave_and_join_a_group(overlay: OverlayProcesses):
    site, control = Member(overlay, "site", "s1"), Member(overlay, "control", "c1")
    settle(overlay, "field", site, control)
    loads = [Load(overlay, gateway, gateway) for gateway in ("field", "site")]
    assert wait_until(lambda: all(len(load.published) >= 100 for load in loads))
    site.leave()
    time.sleep(1)  # the load goes on: nothing to wait for
    back = Member(overlay, "site", "s2")
    assert wait_until(lambda: any(p.startswith(b"field") for p in back.payloads))
    control.leave()
    time.sleep(1)
    published = [payload for load in loads for payload in load.stop()]
    missing, repeated = outcome(published, [site, control, back])
    print(f"{len(published)} published, {len(missing)} lost, {len(repeated)} twice")
    assert missing == []
    assert len(repeated) <= len(published) // 50


@pytest.mark.parametrize("root", [pytest.param("plant", marks=pytest.mark.slow), "open"])
def test_a_gateway_that_is_killed_gives_its_part_to_its_members_when_it_is_back(overlay: OverlayProcesses, root: str):
    """kill -9 in the middle, members with persistent sessions: what it was to serve waits at the replicas, and what the
    others served is not served again. `open/#` is not sealed: there is no wait for shares, and so for leases."""
    lasting = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="lasting", protocol=paho.MQTTv5)
    lasting.reconnect_delay_set(1, 1)
    stays = Properties(PacketTypes.CONNECT)
    stays.SessionExpiryInterval = 3600
    lasting.connect("127.0.0.1", overlay.ports["site"], clean_start=False, properties=stays)
    site = Member(overlay, "site", "lasting", lasting, root)
    control = Member(overlay, "control", "c1", root=root)
    settle(overlay, "field", site, control, root=root)
    load = Load(overlay, "field", "field", root)
    assert wait_until(lambda: len(load.published) >= 100)
    overlay.kill("site")
    assert wait_until(lambda: len(load.published) >= 250)
    overlay.start("site")
    assert wait_until(lambda: len(load.published) >= 350)
    published = load.stop()
    missing, repeated = outcome(published, [site, control])
    print(f"{len(published)} published, {len(missing)} lost, {len(repeated)} twice")
    assert missing == []
    assert len(repeated) <= len(published) // 20
    assert all(sum(p in set(published[100:250]) for p in member.payloads) > 45 for member in (site, control))
