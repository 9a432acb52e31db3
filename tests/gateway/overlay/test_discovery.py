"""Advertising and finding on the loopback interface, with what a hostile neighbour can send."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.document.overlay import Overlay
from gateway.base.config import StartError
from gateway.overlay.discovery import FOUND_MAX, SERVICE, FoundMember, Neighbourhood, known, label_of, read
from keys.identity import Role
from tests.sim.world import make_world

LOOPBACK = ["127.0.0.1"]
WORLD = make_world({1: 3}, [], {"site": 1})
OVERLAY: Overlay = WORLD.overlay


def me(name: str = "r1a", **changed: Any) -> FoundMember:
    values = {
        "overlay": OVERLAY.policy.overlay, "name": name, "role": Role.REPLICA,
        "party": OVERLAY.certificate("r1a").party_id.hex(), "hosts": ("127.0.0.1",), "port": 8881,
    } | changed  # fmt: skip
    return FoundMember(**values)


@pytest.mark.long
def test_what_is_advertised_is_found_and_known():
    async def run() -> FoundMember:
        heard: asyncio.Queue[FoundMember] = asyncio.Queue()
        async with Neighbourhood(LOOPBACK) as one, Neighbourhood(LOOPBACK) as other:
            other.find(heard.put_nowait)
            await one.advertise(me())
            async with asyncio.timeout(10):
                while (found := await heard.get()) != me():
                    pass  # of a test in another process: loopback is everybody's
            return found

    found = asyncio.run(run())
    assert found.addresses == ("127.0.0.1:8881",)
    assert known(found, OVERLAY)


@pytest.mark.long
def test_a_second_one_of_the_same_name_is_told_so():
    async def run() -> None:
        async with Neighbourhood(LOOPBACK) as one, Neighbourhood(LOOPBACK) as other:
            await one.advertise(me())
            with pytest.raises(StartError, match="stop the other one"):
                await other.advertise(me(port=9999))

    asyncio.run(run())


@pytest.mark.parametrize(
    "changed",
    [
        {"party": "00" * 16},
        {"party": OVERLAY.certificate("r1b").party_id.hex()},
        {"overlay": "another"},
        {"role": Role.GATEWAY},
        {"name": "stranger"},
    ],
)
def test_an_advertisement_that_the_owner_did_not_sign_for_is_not_known(changed: dict[str, Any]):
    assert not known(me(**changed), OVERLAY)


def service(properties: dict[bytes, bytes | None], hosts: tuple[str, ...] = ("127.0.0.1",), port: int = 1) -> Any:
    return SimpleNamespace(properties=properties, parsed_addresses=lambda: list(hosts), port=port)


GOOD: dict[bytes, bytes | None] = {
    b"v": b"1", b"overlay": b"test", b"name": b"r1a", b"role": b"replica", b"party": b"ab" * 16
}  # fmt: skip


def test_ipv6_addresses_are_written_with_brackets():
    found = read(service(GOOD, ("::1",), 8883))
    assert found is not None
    assert found.addresses == ("[::1]:8883",)


@pytest.mark.parametrize(
    "wrong",
    [
        {b"v": b"2"}, {b"v": None}, {b"name": b"a\nb"}, {b"name": b"\xff"}, {b"name": b""}, {b"role": b"king"},
        {b"party": b"xyz"}, {b"party": b"AB" * 16}, {b"overlay": b"x" * 65},
    ],
)  # fmt: skip
def test_malformed_advertisements_are_passed_over(wrong: dict[bytes, bytes | None]):
    assert read(service(GOOD)) is not None
    assert read(service(GOOD | wrong)) is None


@pytest.mark.parametrize("missing", sorted(GOOD))
def test_an_advertisement_needs_every_field(missing: bytes):
    assert read(service({key: value for key, value in GOOD.items() if key != missing})) is None


def test_without_an_address_or_port_there_is_nothing_to_find():
    assert read(service(GOOD, ())) is None
    assert read(service(GOOD, port=0)) is None


def test_an_interface_that_is_not_there_is_one_line():
    async def run() -> None:
        async with Neighbourhood(["203.0.113.77"]):
            pass

    with pytest.raises(StartError, match=r"discovery: .*name other interfaces"):
        asyncio.run(run())


@pytest.mark.long
@pytest.mark.parametrize(("others", "heard"), [(FOUND_MAX, 0), (FOUND_MAX - 1, 1)])
def test_a_neighbour_that_makes_up_names_fills_nothing(others: int, heard: int):
    async def run() -> list[FoundMember]:
        here = Neighbourhood(LOOPBACK)
        here._found = {f"{n}": me(f"n{n}") for n in range(others)}
        found: list[FoundMember] = []
        async with here, Neighbourhood(LOOPBACK) as other:
            await other.advertise(me("one-more"))
            assert here._zeroconf is not None
            await here._resolve(here._zeroconf.zeroconf, f"{label_of(me('one-more'))}.{SERVICE}", found.append)
        return found

    assert len(asyncio.run(run())) == heard


@pytest.mark.parametrize("name", ["r1a", "pump.7", "a.b.c-d_e", "n" * 64, ".".join("n" * 32)])
def test_a_name_is_one_label_that_browsers_show(name: str) -> None:
    """RFC 6763 §4.1.1. avahi-browse 0.8 shows no instance of two labels, bonjour-service 1.3 the first of them."""
    label = label_of(me(name))
    assert "." not in label
    assert len(label.encode()) <= 63


def test_names_that_differ_by_their_dots_stay_apart() -> None:
    other = "f" * 32
    assert label_of(me("a.b")) != label_of(me("a-b", party=other))


@pytest.mark.long
def test_the_record_names_one_instance_below_the_service() -> None:
    async def run() -> list[str]:
        told: list[str] = []
        async with Neighbourhood(LOOPBACK) as here, Neighbourhood(LOOPBACK) as other:
            heard = asyncio.Event()
            other.find(lambda found: (told.append(found.name), heard.set()))
            await here.advertise(me("pump.7"))
            async with asyncio.timeout(20):
                await heard.wait()
            assert here._told is not None
            told.append(here._told.name.removesuffix(f".{SERVICE}"))
        return told

    name, instance = asyncio.run(run())
    assert name == "pump.7", "the text record has the true name"
    assert "." not in instance
