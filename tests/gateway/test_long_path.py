"""A sealed scope over five regions, as real processes: keys of such ways are wrapped (docs/protocol.md §3.5)."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from gateway.trust.overlay_file import load_overlay, worst_search
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.steady_load import SteadyLoad

pytestmark = pytest.mark.timeout(600)
ROW = ("north", "hill", "middle", "dale", "south")
EDGES = [(ROW[at], ROW[at + 1]) for at in range(4)]
GATEWAYS = {"site": "north", "control": "south"}


def replicas(sizes: Mapping[str, int]) -> list[str]:
    return [f"{region}{place}" for region, size in sizes.items() for place in range(1, size + 1)]


def judge(overlay: OverlayProcesses, load: SteadyLoad) -> None:
    load.end()
    figures = {name: overlay.figures(name) for name in GATEWAYS}
    assert (len(load.lost), load.repeated, load.in_order) == (0, 0, True), (load.lost[:9], figures)
    assert not any(found.get("named") or found.get("suspected") for found in figures.values()), figures
    assert figures["control"]["counts"].get("wraps_received"), "what came under wrapped keys"
    assert "Traceback" not in "".join(overlay.log(name) for name in overlay.running)


@pytest.mark.slow
def test_one_trusted_replica_a_region(overlay: OverlayProcesses) -> None:
    """The smallest there is, with real links and files."""
    sizes = dict.fromkeys(ROW, 1)
    overlay.make(sizes, EDGES, GATEWAYS, trusted=ROW)
    signed = load_overlay(overlay.directory / "overlay.json", int(time.time() * 1000))
    assert worst_search(signed, signed.policy.scopes[0]) == 4, "a step for each region behind the first"
    overlay.start(*replicas(sizes), *GATEWAYS)
    load = SteadyLoad(overlay, 50)
    load.start()
    assert load.goes_on(200)
    judge(overlay, load)
