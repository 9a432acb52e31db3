"""Routing while a link is throttled, live: along planes dynamically, statically, and to every replica (paper C).

Two regions of three in network namespaces; `tc` throttles the link that the reader's plane has between them. Messages
are small, 200 a second. Static routing is the dynamic one of processes that hear of no loads. Copies to every replica
are a plain scope without planes, where each replica gives a copy to each of the next region. Needs root and iproute2.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bridge.topology import Planes
from gateway.trust import load_overlay
from tests.bench.peers import Running
from tests.conftest import tool
from tests.gateway.namespaces import DividedProcesses
from tests.gateway.steady_load import SteadyLoad
from tests.gateway.test_planes import GATEWAYS, REPLICA
from tests.support.files import edited
from tests.waits import wait_until

REGIONS = {"north": 3, "south": 3}
RATE, THROTTLED_S, KBIT = 200, 6.0, 100
SETTLE_S = 2.0
PLANES, WIDE = "open", "wide"
FIGURES = {"p50": "s", "p99": "s", "longest": "s", "read a message, link free": "bytes"}


def rows(runs: int) -> Iterator[tuple[str, str, list[float], str, list[float]]]:
    """Yields samples of dynamic routing beside either baseline."""
    if tool("tc") is None or os.geteuid() != 0:
        raise RuntimeError("needs root and iproute2; run `make tools` as root")
    found: dict[str, list[tuple[float, ...]]] = {"dynamic": [], "static": [], "every replica": []}
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        overlay = DividedProcesses(Path(directory))
        try:
            before, after = _start(overlay)
            for _ in range(runs):
                for how, figures in found.items():
                    figures.append(_measured(overlay, how, before, after))
        finally:
            overlay.stop()
    for peer in ("static", "every replica"):
        for place, (what, unit) in enumerate(FIGURES.items()):
            columns = [[run[place] for run in found[how]] for how in ("dynamic", peer)]
            yield f"C: a throttled link, dynamic: {what}", unit, columns[0], peer, columns[1]


def _start(overlay: DividedProcesses) -> tuple[str, str]:
    """Starts all members; returns the ends of the link of the reader's plane."""
    overlay.divide(REGIONS, [("north", "south")], GATEWAYS)
    planes = {"filter": f"{PLANES}/#", "mode": "plain", "route": "planes"}
    scopes = [{"filter": "plant/#", "tokens": True}, planes, {"filter": f"{WIDE}/#", "mode": "plain"}]
    overlay.describe(lambda description: description.update(scopes=scopes))
    overlay.hand_out(*overlay.ports)
    for gateway in GATEWAYS:
        with edited(overlay.directory / f"{gateway}.yaml") as content:
            content["overlay"]["share_plain"] = [f"{PLANES}/#", f"{WIDE}/#"]
    overlay.start(*(name for name in overlay.ports if name not in GATEWAYS), command=("-c", REPLICA, "broker"))
    overlay.start(*GATEWAYS)
    signed = load_overlay(overlay.directory / "overlay.json", int(time.time() * 1000))
    scope = next(scope for scope in signed.policy.scopes if scope.planes)
    place = 1 + Planes(signed).host(scope, "control")
    return f"north{place}", f"south{place}"


def _measured(overlay: DividedProcesses, how: str, before: str, after: str) -> tuple[float, ...]:
    """The figures of one run, in the order of `FIGURES`."""
    static = overlay.directory / "static"
    static.touch() if how == "static" else static.unlink(missing_ok=True)
    load = SteadyLoad(overlay, rate=RATE, scope=WIDE if how == "every replica" else PLANES)
    load.start()
    assert load.goes_on(RATE), "nothing comes"
    came, read = len(load.arrived), _read_bytes(overlay)
    time.sleep(SETTLE_S)
    bytes_each = (_read_bytes(overlay) - read) / (len(load.arrived) - came)
    began = time.monotonic()
    overlay.network.throttle(before, after, KBIT)
    time.sleep(THROTTLED_S)
    overlay.network.throttle(before, after, 0)
    ended = time.monotonic()
    assert wait_until(lambda: len(load.arrived) >= sum(load.sent) - RATE, 60), "messages stay away"
    load.end()
    assert not load.lost, f"{len(load.lost)} messages lost"
    delays = load.delays_s(began, ended)
    return delays[len(delays) // 2], delays[int(len(delays) * 0.99)], delays[-1], bytes_each


def _read_bytes(overlay: DividedProcesses) -> int:
    return sum(Running(0, process.pid).read_bytes() for process in overlay.running.values())
