"""Members that are not where the overlay file says, found by multicast DNS on loopback: hints, confirmed by TLS."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.base.config import ConfigError, parse
from gateway.base.config_discovery import Discovery
from gateway.overlay.discovery import FoundMember, Neighbourhood
from gateway.overlay.neighbours import Neighbours, addresses_of, advertised_listener
from gateway.trust.overlay_file import load_overlay
from keys.identity import Role
from tests.gateway.overlay_processes import OverlayProcesses
from tests.ports import free_ports
from tests.sim.world import make_world
from tests.support.files import edited
from tests.waits import wait_until

LOOPBACK = ["127.0.0.1"]
WORLD = make_world({1: 3}, [], {"site": 1})
R1A = FoundMember(
    "test", "r1a", Role.REPLICA, WORLD.overlay.certificate("r1a").party_id.hex(), ("127.0.0.1", "::1"), 8881
)


def neighbours(**settings: Any) -> Neighbours:
    local = SimpleNamespace(name="r1a", role=Role.REPLICA, identity=WORLD.identities["r1a"])
    live: Any = SimpleNamespace(overlay=WORLD.overlay, local=local)
    return Neighbours(Discovery(**settings), live)


def test_only_what_names_a_listed_key_is_an_address_to_try() -> None:
    made = neighbours(find=True)
    liar = replace(R1A, party="00" * 16, port=666)
    other: Any = SimpleNamespace(found=(liar, R1A, replace(R1A, name="r1b", port=667)))
    made._here = other
    assert made.addresses("r1a") == [("127.0.0.1", 8881), ("::1", 8881)]
    assert made.addresses("r1b") == []  # the key of another
    assert made.addresses("nobody") == []


def test_what_is_not_asked_for_is_not_done() -> None:
    async def check() -> None:
        async with neighbours() as made:
            made.advertise(parse({}), lambda name: 1883)
            assert made.addresses("r1a") == []
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(check())


def test_we_are_advertised_where_our_listener_is_and_under_a_new_key_after_a_rotation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.overlay.neighbours.LOOK_AGAIN_S", 0.02)
    settings = parse({"listeners": {"default": {"bind": "127.0.0.1:1883"}}})

    async def check() -> list[FoundMember]:
        heard: asyncio.Queue[FoundMember] = asyncio.Queue()
        async with neighbours(advertise=True, interfaces=LOOPBACK) as made, Neighbourhood(LOOPBACK) as listener:
            listener.find(heard.put_nowait)
            made.advertise(settings, {"default": 8881}.__getitem__)
            first = await asyncio.wait_for(heard.get(), 10)
            made._live.local = SimpleNamespace(  # type: ignore[assignment]
                name="r1a", role=Role.REPLICA, identity=WORLD.identities["r1b"]
            )
            while (second := await asyncio.wait_for(heard.get(), 10)) == first:
                pass
            return [first, second]

    first, second = asyncio.run(check())
    assert first == replace(R1A, hosts=("127.0.0.1",))
    assert second == replace(first, party=WORLD.overlay.certificate("r1b").party_id.hex())


def test_a_name_that_somebody_took_is_said_once_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Attack: whoever advertises our name first must not keep us from running."""
    monkeypatch.setattr("gateway.overlay.neighbours.LOOK_AGAIN_S", 0.0)
    tries: list[FoundMember] = []

    async def refused(self: object, me: FoundMember) -> None:
        tries.append(me)
        raise OSError("somebody on this network is r1a.test already")

    monkeypatch.setattr(Neighbourhood, "advertise", refused)

    async def check() -> None:
        async with neighbours(advertise=True, interfaces=LOOPBACK) as made:
            made.advertise(parse({"listeners": {"default": {"bind": "127.0.0.1:1883"}}}), lambda name: 1883)
            async with asyncio.timeout(5):
                while len(tries) < 3:
                    await asyncio.sleep(0)

    asyncio.run(check())
    assert len([record for record in caplog.records if "r1a.test already" in record.message]) == 1


@pytest.mark.parametrize(
    ("bind", "interfaces", "addresses"),
    [
        ("127.0.0.1:1", [], ["127.0.0.1"]),
        ("[::1]:1", ["192.0.2.1"], ["::1"]),
        ("0.0.0.0:1", ["192.0.2.1"], ["192.0.2.1"]),
        ("1883", ["192.0.2.1"], ["192.0.2.1"]),
        ("no such host.invalid:1", [], []),
    ],
)
def test_the_address_that_is_advertised(bind: str, interfaces: list[str], addresses: list[str]) -> None:
    assert addresses_of(bind, interfaces) == addresses


def test_a_wildcard_never_stands_for_loopback() -> None:
    assert not {"127.0.0.1", "::1"} & {*addresses_of("[::]:1", []), *addresses_of("0.0.0.0:1", [])}
    assert not [address for address in addresses_of("0.0.0.0:1", []) if ":" in address]


def test_the_listener_that_is_advertised() -> None:
    overlay = {"bind": "127.0.0.1:2", "overlay": True, "certfile": "c", "keyfile": "k"}
    local = {"bind": "127.0.0.1:1"}
    assert advertised_listener(parse({"listeners": {"a": local, "b": overlay}}))[0] == "b"
    assert advertised_listener(parse({"listeners": {"a": local}}))[0] == "a"
    assert advertised_listener(parse({"listeners": {"a": {"bind": "unix:x"}}})) == ("", None)


@pytest.mark.parametrize(
    ("discovery", "says"),
    [
        ({"find": "perhaps"}, "overlay.discovery.find"),
        ({"interfaces": ["eth0"]}, "is not an IP address; write e.g. 192.0.2.7 (not 'eth0')"),
        ({"advertize": True}, "did you mean advertise?"),
    ],
)
def test_mistakes_in_the_configuration_are_one_line(discovery: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"overlay": {"identity": "i", "overlay": "o", "discovery": discovery}})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# --------------------------------------------------------------------------------------- real processes


def edit(overlay: OverlayProcesses, name: str, **discovery: Any) -> None:
    with edited(overlay.directory / f"{name}.yaml") as content:
        content["listeners"]["default"]["bind"] = f"127.0.0.1:{overlay.ports[name]}"
        content["overlay"]["discovery"] = {"interfaces": LOOPBACK, **discovery}


class Impostor:
    """Advertises another member's name and key with a port of its own, from a thread."""

    def __init__(self, me: FoundMember) -> None:
        self._me, self._loop, self._over = me, asyncio.new_event_loop(), asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))

    async def _run(self) -> None:
        async with Neighbourhood(LOOPBACK) as here:
            await here.advertise(self._me)
            self._ready.set()
            await self._over.wait()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)
        self._loop.close()


def test_a_replica_on_another_port_is_found_and_one_that_poses_as_it_is_not_believed(overlay: OverlayProcesses) -> None:
    overlay.make({"north": 3}, [], {"site": "north"})
    signed = load_overlay(overlay.directory / "overlay.json", int(time.time() * 1000))
    (overlay.ports["north1"],) = free_ports(1)  # the overlay file says another
    edit(overlay, "north1", advertise=True)
    edit(overlay, "site", find=True)
    party = signed.certificate("north1").party_id.hex()
    port = overlay.ports["north2"]  # a member, but not the one that it is said to be
    overlay.start("north2", "north3", "site")
    assert wait_until(lambda: overlay.figures("site").get("links_up") == 2, 10)
    with Impostor(FoundMember("test", "north1", Role.REPLICA, party, ("127.0.0.1",), port)):
        assert wait_until(lambda: "shows the certificate of somebody else" in overlay.log("site"), 10)
        assert overlay.figures("site")["links_up"] == 2
    overlay.start("north1")
    assert wait_until(lambda: overlay.figures("site").get("links_up") == 3, 20), overlay.log("site")
    peer = overlay.figures("site")["peers"]["north1"]["dialled"]
    assert peer["up"]
    assert "Traceback" not in overlay.log("site") + overlay.log("north1")
