"""A plain scope by planes through real processes: one link is slow or its replica stopped, and loads are heard or not.

Readers behind it wait for it where routing is static, and no longer than `BOUND_S` where it is dynamic. Whatever the
replicas do, nothing is lost, repeated or out of order.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.topology import Planes
from gateway.trust import load_overlay
from tests.conftest import tool
from tests.gateway.namespaces import DividedProcesses
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.steady_load import SteadyLoad
from tests.waits import wait_until

pytestmark = pytest.mark.invariant(17)

GATEWAYS = {"site": "north", "control": "south"}
BOUND_S = 3.0
"""What a message may take with one replica stopped. Its link is seen still after a quarter of a second; the rest is
room for a machine that is busy."""
SLOW_KBIT = 100
REPLICA = """
from pathlib import Path
from bridge.contract import Loads
from gateway.cli import main
from gateway.overlay.loading import Loading
measured = Loading.loads
Loading.loads = lambda self: Loads(()) if Path("static").exists() else measured(self)
main()
"""
"""A replica that hears of no loads while there is a file `static`: it routes statically."""
Disturbance = Callable[[bool], None]


@pytest.fixture
def divided(tmp_path: Path) -> Iterator[DividedProcesses]:
    if tool("tc") is None or os.geteuid() != 0:
        pytest.skip("needs root and iproute2; run `make tools` as root")
    made = DividedProcesses(tmp_path)
    yield made
    made.stop()


def start(overlay: OverlayProcesses) -> tuple[SteadyLoad, str, str]:
    """500 messages a second from one region to the other; the ends of the link that their reader's plane has."""
    make = overlay.divide if isinstance(overlay, DividedProcesses) else overlay.make
    make({"north": 3, "south": 3}, [("north", "south")], GATEWAYS)
    scopes = [{"filter": "plant/#", "tokens": True}, {"filter": "open/#", "mode": "plain", "route": "planes"}]
    overlay.describe(lambda description: description.update(scopes=scopes))
    overlay.hand_out(*overlay.ports)
    overlay.start(*(name for name in overlay.ports if name not in GATEWAYS), command=("-c", REPLICA, "broker"))
    overlay.start(*GATEWAYS)
    signed = load_overlay(overlay.directory / "overlay.json", int(time.time() * 1000))
    scope = next(scope for scope in signed.policy.scopes if scope.planes)
    load = SteadyLoad(overlay, scope="open")
    load.start()
    place = 1 + Planes(signed).host(scope, "control")
    return load, f"north{place}", f"south{place}"


def delays_s(load: SteadyLoad, is_static: bool, disturb: Disturbance, seconds: float) -> list[float]:
    """Of what is published while something is in the way, and shortly after; sorted."""
    (load.overlay.directory / "static").touch() if is_static else (load.overlay.directory / "static").unlink()
    assert load.goes_on(250)
    began = time.monotonic()
    disturb(True)
    time.sleep(seconds)
    disturb(False)
    ended = time.monotonic()
    assert wait_until(lambda: len(load.arrived) >= sum(load.sent) - load.rate, 60)
    found = load.delays_s(began, ended)
    p50, p99 = (found[int(len(found) * part)] for part in (0.5, 0.99))
    how = "static" if is_static else "dynamic"
    print(f"{how}: {len(found)} messages, p50 {p50:.3f} s, p99 {p99:.3f} s, longest {found[-1]:.3f} s")
    return found


def check_both_ways(load: SteadyLoad, disturb: Disturbance, seconds: float, static_s: float) -> None:
    """`static_s`: what the last one waits for at least where nobody goes another way."""
    static = delays_s(load, True, disturb, seconds)
    dynamic = delays_s(load, False, disturb, seconds)
    load.end()
    assert not load.lost
    assert load.repeated == 0
    assert load.in_order
    assert static[-1] > static_s
    assert dynamic[-1] < BOUND_S < static_s


def stopping(overlay: OverlayProcesses, name: str) -> Disturbance:
    return lambda on: overlay.running[name].send_signal(signal.SIGSTOP if on else signal.SIGCONT)


@pytest.mark.slow
def test_a_stopped_replica_delays_who_is_behind_it_only_where_routing_is_static(overlay: OverlayProcesses) -> None:
    load, _, stopped = start(overlay)
    check_both_ways(load, stopping(overlay, stopped), 4.0, 3.5)


@pytest.mark.slow
def test_stopped_for_longer(overlay: OverlayProcesses) -> None:
    load, _, stopped = start(overlay)
    check_both_ways(load, stopping(overlay, stopped), 15.0, 12.0)


@pytest.mark.slow
def test_a_link_that_is_slow(divided: DividedProcesses) -> None:
    """`tc` lets through a part of what is sent from one replica to the next of its plane."""
    load, before, after = start(divided)
    check_both_ways(load, lambda on: divided.network.throttle(before, after, SLOW_KBIT if on else 0), 10.0, 4.0)
