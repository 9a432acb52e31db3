"""An overlay that organises itself, live, beside the tree that stays (paper D).

Three regions of one trusted replica in a row; only the outer two have clients, and a proxy delays what one replica
sends to another. The organiser, a process of its own without the owner's key, swaps a link of the row for the direct
one while messages flow. The baseline is the row itself, measured in the same run before the organiser is started.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.peers import Running
from tests.bench.taken_ports import retried
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.slow_links import SlowLinks
from tests.gateway.steady_load import SteadyLoad
from tests.gateway.test_organiser_live import ONE_EACH, ROW, Boss, add_boss
from tests.ports import free_ports
from tests.waits import wait_until

GATEWAYS = {"site": "north", "control": "south"}
LINK_S = 0.04
RATE, MEASURED_S = 100, 4.0
ORGANISE = {"links": [["north", "south"]], "interval_s": 1, "dwell_s": 60}
SWAPPED_S = 90.0
FIGURES = {"p50": "ms", "p99": "ms", "read a message": "bytes", "processor time a message": "us"}


class BothWays(SlowLinks):
    """Links that take their time in both directions."""

    def back_s(self, source: str, name: str) -> float:
        return self.delay_s(name, source)


def rows(runs: int) -> Iterator[tuple[str, str, list[float], str, list[float]]]:
    """Yields samples of the organised tree beside the static one."""
    found = [retried(_measured) for _ in range(runs)]
    for place, (what, unit) in enumerate(FIGURES.items()):
        static, organised = ([run[at][place] for run in found] for at in (0, 1))
        yield f"D: after the swap: {what}", unit, organised, "the static tree", static
    swapped = [run[1][-1] for run in found]
    pauses = [run[1][-2] for run in found]
    yield "D: from the organiser's start to the new tree", "s", swapped, "longest pause meanwhile", pauses


def _measured() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The figures of a run before and after the swap; after it also the longest pause and the time until then."""
    with tempfile.TemporaryDirectory(prefix="veilmq-bench-") as directory:
        overlay = OverlayProcesses(Path(directory))
        overlay.make(dict.fromkeys(ROW, 1), [ROW[:2], ROW[1:]], GATEWAYS, trusted=ROW)
        links = _delayed(overlay)
        add_boss(overlay, "middle", ORGANISE)
        try:
            links.start()
            overlay.start(*ONE_EACH, *GATEWAYS)
            load = SteadyLoad(overlay, RATE)
            load.start()
            assert load.goes_on(2 * RATE), "nothing comes"
            static = _window(overlay, load)
            began, boss = time.monotonic(), Boss(overlay)
            try:
                assert wait_until(lambda: bool(boss.said("in_force")), SWAPPED_S), "no swap was made"
                swapped = time.monotonic() - began
                assert load.goes_on(6 * RATE), "nothing comes after the swap"
                pause_s = load.pause_s(began, time.monotonic())
                organised = _window(overlay, load)
            finally:
                boss.stop()
            load.end()
            assert not load.lost, f"{len(load.lost)} messages lost"
            assert load.in_order, "out of order"
        finally:
            overlay.stop()
            links.stop()
    return static, (*organised, pause_s, swapped)


def _window(overlay: OverlayProcesses, load: SteadyLoad) -> tuple[float, ...]:
    """The figures of some seconds, in the order of `FIGURES`."""
    members = [Running(0, process.pid) for process in overlay.running.values()]
    came, read, cpu_s = len(load.arrived), sum(m.read_bytes() for m in members), sum(m.cpu_s() for m in members)
    began = time.monotonic()
    time.sleep(MEASURED_S)
    ended = time.monotonic()
    count = len(load.arrived) - came
    read, cpu_s = sum(m.read_bytes() for m in members) - read, sum(m.cpu_s() for m in members) - cpu_s
    assert load.goes_on(RATE), "nothing comes"
    delays = load.delays_s(began, ended)
    p50, p99 = (1000 * delays[int(len(delays) * part)] for part in (0.5, 0.99))
    return p50, p99, read / count, cpu_s / count * 1e6


def _delayed(overlay: OverlayProcesses) -> BothWays:
    """Puts a proxy in front of each replica, which delays what comes from another replica."""
    links = BothWays(overlay, lambda source, target: LINK_S if {source, target} <= set(ONE_EACH) else 0.0)
    for name, front in zip(ONE_EACH, free_ports(len(ONE_EACH)), strict=True):
        links.targets[name] = front, overlay.ports[name]

    def behind(description: dict[str, Any]) -> None:
        for region in description["regions"]:
            for member in region["members"]:
                member["address"] = f"127.0.0.1:{links.targets[member['card'].split('/')[0]][0]}"

    overlay.describe(behind)
    overlay.hand_out(*overlay.ports)
    return links
