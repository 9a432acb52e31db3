"""Key servers as real processes: epochs pass under load while servers are killed, lie or are all away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import paho.mqtt.client as paho
import pytest

from gateway.overlay.region_client import Arrival, RegionClient
from gateway.trust.overlay_file import load_overlay
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, KeyHeader, from_property, open_key
from keys.epochs import Calendar, ScopeKeys
from keys.errors import KeysError
from keys.sharetree import Share, decode_shares
from tests.gateway.overlay_processes import KeyService, OverlayProcesses
from tests.keys.helpers import secret_behind
from tests.waits import until, wait_until

GATEWAYS = ("site", "control")
REPLICAS = ("north1", "north2", "north3")
THRESHOLD = 2  # of three replicas
TOPIC = "plant/a"


@dataclass
class Load:
    """One device that publishes numbers at a steady pace, and one reader at the other gateway.

    What was published while the reader's subscription spread does not count: it may be missing, or come after what
    was published later by way of replicas that knew of the subscription sooner.
    """

    overlay: OverlayProcesses
    sent: int = 0
    first: int = 0  # that counts
    got: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._device = self.overlay.client("site", "device", paho.MQTTv5)
        self._reader = self.overlay.client("control", "reader", paho.MQTTv5)
        self._reader.on_message = self._arrived
        self._reader.subscribe(TOPIC, 1)

    def _arrived(self, client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        if int(message.payload) >= self.first:
            self.got.append(bytes(message.payload))

    def begin(self) -> None:
        """The subscription has spread."""
        self.first = self.sent
        self.got.clear()

    def one(self) -> None:
        """Only while connected: what paho is given before the CONNACK, it sends before what it has to repeat."""
        if self._device.is_connected():
            self._device.publish(TOPIC, b"%d" % self.sent, qos=1)
            self.sent += 1

    def until(self, done: Callable[[], bool], seconds: float, pace_s: float = 0.05) -> bool:
        """Publish until `done`, or for so long."""
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            self.one()
            time.sleep(pace_s)
        return done()

    def story(self) -> str:
        """What to look at when something is missing."""
        got = [int(number) for number in self.got]
        missing = sorted(set(range(self.first, self.sent)) - set(got))
        twice = sorted({number for number in got if got.count(number) > 1})
        early = [number for number, before in zip(got[1:], got, strict=False) if number < before]
        figures = [self.overlay.figures(name) for name in GATEWAYS]
        return f"sent {self.first}-{self.sent}, missing {missing}, twice {twice}, overtaken {early}, {figures}"

    @property
    def complete(self) -> bool:
        """Everything that counts has arrived, in order and once."""
        return self.got == [b"%d" % number for number in range(self.first, self.sent)]


def calendar_of(overlay: OverlayProcesses) -> Calendar:
    return load_overlay(overlay.directory / "overlay.json", int(time.time() * 1000)).policy.calendar


def flowing(load: Load) -> bool:
    """Until a publication has gone the whole way, and one more that counts."""
    if not load.until(lambda: bool(load.got), 20, 0.2):
        return False
    load.begin()
    return load.until(lambda: bool(load.got), 20, 0.2)


@pytest.mark.slow
def test_epochs_pass_while_one_server_lies_and_then_is_killed(overlay: OverlayProcesses) -> None:
    """n = 4 bears one fault of any kind. The liar answers from a subkey that nobody else has, and signs that."""
    epochs = {"length_s": 3, "ahead_s": 1, "grace_s": 1, "skew_s": 0, "history_epochs": 0}
    service = KeyService(epochs=epochs)
    overlay.make({"north": 3}, [], {"site": "north", "control": "north"}, service=service)
    calendar = calendar_of(overlay)
    material = overlay.directory / "keyserver" / "keys2.material"
    dealt = material.read_bytes()
    material.write_bytes(dealt[:-1] + bytes([dealt[-1] ^ 1]))  # in the last subkey
    overlay.start(*service.names, *REPLICAS, "site", "control")
    load = Load(overlay)
    assert flowing(load)
    first = calendar.epoch_at(time.time())
    assert load.until(lambda: calendar.epoch_at(time.time()) >= first + 2, 10)
    figures = overlay.figures("control")
    overlay.kill("keys2")
    assert load.until(lambda: calendar.epoch_at(time.time()) >= first + 4, 10)
    assert wait_until(lambda: load.complete, 20), load.story()
    assert figures["counts"].get("key_server_lies.keys2", 0) > 0, figures
    assert set(figures["named"]) <= {"keys2"}
    assert not material.exists()
    assert "Traceback" not in "".join(overlay.log(name) for name in overlay.running)


@pytest.mark.slow
def test_an_outage_of_every_key_server_delays_and_loses_nothing(overlay: OverlayProcesses) -> None:
    epochs = {"length_s": 7, "ahead_s": 1, "grace_s": 5, "skew_s": 0, "history_epochs": 0}
    service = KeyService(epochs=epochs)
    overlay.make({"north": 3}, [], {"site": "north", "control": "north"}, service=service)
    calendar = calendar_of(overlay)
    overlay.start(*service.names, *REPLICAS, "site", "control")
    load = Load(overlay)
    assert flowing(load)
    epoch = calendar.epoch_at(time.time()) + 1  # it begins with keys, its successor without
    assert load.until(lambda: calendar.epoch_at(time.time()) == epoch, 10)
    for name in service.names:
        overlay.kill(name)
    overlay.kill("site")  # and it comes back while nobody gives it keys
    overlay.start("site")
    over_s = calendar.end_s(epoch) + calendar.grace_s
    assert load.until(lambda: time.time() > calendar.end_s(epoch) + 0.5, 15)
    left_s = over_s - 0.5 - time.time()
    assert wait_until(lambda: load.complete, left_s), f"within the grace everything flows: {load.story()}"
    assert load.until(lambda: time.time() > over_s + 0.5, 8)
    held_back = load.sent
    load.until(lambda: False, 1.0)
    assert len(load.got) <= held_back, "nothing is sealed under keys that are over"
    overlay.start(*service.names)
    assert wait_until(lambda: load.complete, 20), load.story()


@dataclass
class Tap:
    """What one more authorised reader's links carry: all that the revoked one could see of the wire."""

    overlay: OverlayProcesses
    arrivals: list[Arrival] = field(default_factory=list)

    def client(self, name: str, on_arrival: Callable[[Arrival], object]) -> RegionClient:
        directory = self.overlay.directory
        return RegionClient(directory / name, directory / f"{name}-overlay.json", ["plant/#"], on_arrival)

    async def keys_of(self, name: str) -> ScopeKeys:
        """All that the member can fetch now."""
        client = self.client(name, Arrival.acknowledge)
        client.start()
        await until(lambda: len(client.scope_keys), 10)
        await client.close()
        return client.scope_keys

    async def listen(self, name: str, meanwhile: Callable[[], object], publish: Callable[[], object]) -> ScopeKeys:
        """Let something happen, then listen until there is a message under a key that was not there before."""
        client = self.client(name, self.arrivals.append)
        client.start()
        async with asyncio.timeout(30):
            await until(lambda: client.is_accepted and len(client.scope_keys), 30)
            await asyncio.to_thread(meanwhile)
            while not (len(client.scope_keys) > 1 and self.headers()):
                await asyncio.to_thread(publish)
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)  # shares of all replicas, and time for what must not come to the revoked one
        await client.close()
        return client.scope_keys

    def headers(self) -> dict[bytes, tuple[KeyHeader, list[Share]]]:
        """Key headers of later bumps than the first by key id, with all their shares, where these are enough: of what
        is sealed anew when the bump comes a part may be there before we look."""
        found: dict[bytes, tuple[KeyHeader, list[Share]]] = {}
        for arrival in self.arrivals:
            properties = dict(arrival.wire.properties)
            if PROPERTY_KEY not in properties:
                continue
            header = KeyHeader.decode(from_property(properties[PROPERTY_KEY]))
            if header.epoch_key.bump:
                shares = decode_shares(from_property(properties[PROPERTY_SHARES]))
                found.setdefault(header.key_id, (header, []))[1].extend(shares)
        return {name: each for name, each in found.items() if len({share.label for share in each[1]}) >= THRESHOLD}


def test_a_reader_that_is_revoked_now_gets_nothing_more_and_opens_nothing(overlay: OverlayProcesses) -> None:
    epochs = {"length_s": 600, "ahead_s": 60, "grace_s": 60, "skew_s": 1, "history_epochs": 0}
    service = KeyService(servers=1, issuer="chain", epochs=epochs)
    members = {"site": "north", "control": "north", "audit": "north", "thief": "north"}
    overlay.make({"north": 3}, [], members, service=service)
    overlay.start(*service.names, *REPLICAS, "site", "control")
    load, received, tap = Load(overlay), list[int](), Tap(overlay)
    assert flowing(load)
    assert wait_until(lambda: load.complete, 20), load.story()

    def version(name: str) -> int:
        return load_overlay(overlay.directory / name, int(time.time() * 1000)).policy.version

    def revoke() -> None:
        for member in ("control", "thief"):
            overlay.veilmq("trust", "revoke", "overlay.json", "--owner", "owner", "--member", member, "--now")
        overlay.hand_out("north1")
        for member in ("site", "control", "north3", "keys1", "audit"):
            spread = wait_until(lambda name=member: version(f"{name}-overlay.json") == version("overlay.json"), 15)
            assert spread, member
        received.append(len(load.got))
        tap.arrivals.clear()

    stolen = asyncio.run(tap.keys_of("thief"))
    keys = asyncio.run(tap.listen("audit", revoke, load.one))
    assert received == [len(load.got)]
    hop = load_overlay(overlay.directory / "overlay.json", int(time.time() * 1000)).views[1].hop
    whole = tap.headers()
    assert whole
    for header, shares in whole.values():
        secret = secret_behind(shares, [hop])
        open_key(header, secret, keys.get(header.epoch_key))
        assert stolen.get(header.epoch_key) is None
        for _, key in stolen:
            with pytest.raises(KeysError):
                open_key(header, secret, key)
