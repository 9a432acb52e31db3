"""One broker in several processes: every client finds the same one for an entity, and few move when one is added."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from pathlib import Path

import pytest

from bridge.traces import TraceKind
from bridge.tracking import Wishes
from gateway.tracing.addresses import PROCESSES_MAX, Address, addresses, home_of, processes_of
from gateway.tracing.client import TracedEntity, Tracker
from gateway.trust import TrustError
from tests.gateway.traced_site import Site, observed
from tests.waits import wait_until

NAMES = [f"pump-{place}" for place in range(3_000)]


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        ("gate", [[("gate", 1883)]]),
        ("::1", [[("::1", 1883)]]),
        (["gate:99"], [[("gate", 99)]]),
        (["[::1]:8883", "gate:65535"], [[("::1", 8883)], [("gate", 65535)]]),
        ("gate:1885-1887", [[("gate", 1885), ("gate", 1886), ("gate", 1887)]]),
        (["a", "b:1884", ("c", 5), "[::1]:7", "[::1]"],
         [[("a", 1883)], [("b", 1884)], [("c", 5)], [("::1", 7)], [("::1", 1883)]]),
        (["a:1-2", "b:3-4"], [[("a", 1), ("a", 2)], [("b", 3), ("b", 4)]]),
    ],
)  # fmt: skip
def test_what_names_a_broker_names_its_processes(hosts: str, found: list[list[Address]]) -> None:
    assert processes_of(hosts, 1883) == found


@pytest.mark.parametrize(
    "text", ["", "gate", "gate:", ":1883", "gate:0", "gate:65536", "gate:2-1", "gate:1-", "gate:-1", "gate:1-2-3",
             "gate:x", "gate:0-3", f"gate:1-{PROCESSES_MAX + 1}", "gate:999999999999"],
)  # fmt: skip
def test_what_is_no_address_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(TrustError, match="write"):
        addresses(text)


def test_entities_are_spread_and_everybody_agrees_whatever_the_host_is_called() -> None:
    four = addresses("gate:1883-1886")
    at = Counter(home_of(name, four) for name in NAMES)
    assert set(at) == set(four)
    assert max(at.values()) < 1.2 * len(NAMES) / 4
    elsewhere = addresses("10.0.0.1:1883-1886")
    assert all(home_of(name, four)[1] == home_of(name, elsewhere[::-1])[1] for name in NAMES)


def test_a_process_more_moves_only_those_whom_it_takes() -> None:
    four, five = addresses("gate:1883-1886"), addresses("gate:1883-1887")
    moved = [name for name in NAMES if home_of(name, four) != home_of(name, five)]
    assert all(home_of(name, five) == ("gate", 1887) for name in moved)
    assert len(moved) < 1.2 * len(NAMES) / 5


@pytest.mark.long
def test_entities_of_one_broker_in_two_processes_are_tracked_at_all_of_them(tmp_path: Path) -> None:
    site, first = Site(tmp_path), two_free_ports()
    both = f"127.0.0.1:{first}-{first + 1}"
    homes = {name: home_of(name, addresses(both))[1] for name in (f"pump-{place}" for place in range(20))}
    names = [next(name for name, home in homes.items() if home == first + place) for place in range(2)]
    listeners = [{"listeners": {"default": {"bind": f"127.0.0.1:{first + place}"}}} for place in range(2)]
    with site.running(**listeners[0]), site.running(**listeners[1]), Tracker(site.credentials("desk"), both) as desk:
        pumps = [TracedEntity(site.credentials(name), both, wishes=Wishes(("desk",))).start() for name in names]
        for name in names:
            desk.follow(name)
        assert {observed(desk, TraceKind.ALLS_WELL).entity, observed(desk, TraceKind.ALLS_WELL).entity} <= set(names)
        assert wait_until(lambda: {observed(desk, TraceKind.ALLS_WELL).entity for _ in range(4)} == set(names))
        for pump in pumps:
            pump.stop()


def two_free_ports() -> int:
    """The first of two neighbours that nobody listens on."""
    for _ in range(100):
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                other.bind(("127.0.0.1", port + 1))
                return port
    raise AssertionError("no two free ports")
