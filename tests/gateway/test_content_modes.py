"""Long payloads through two regions of real processes, in each content mode, past replicas that lie or are gone."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

from papers.sim.adversary import Behaviour
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.test_region import Subscriber, accepted
from tests.waits import wait_until

pytestmark = pytest.mark.invariant(15)

REPLICAS = tuple(f"{region}{place}" for region in ("north", "south") for place in (1, 2, 3))
PAYLOAD_BYTES = 100 << 10
LIAR = """
import random, sys
from pathlib import Path
from papers.sim.adversary import Adversary, Behaviour
from gateway.base.config import load
from gateway.party import serve
serve(load(Path(sys.argv[2])), lambda machine: Adversary(machine, {{Behaviour.{}}}, random.Random(1)))
"""


def start(overlay: OverlayProcesses, mode: str, liars: dict[str, Behaviour]) -> Subscriber:
    overlay.make({"north": 3, "south": 3}, [("north", "south")], {"site": "north", "control": "south"})
    scopes = [{"filter": "plant/#", "tokens": True, "mode": mode}, {"filter": "open/#", "mode": "plain"}]
    overlay.describe(lambda description: description.update(scopes=scopes))
    overlay.hand_out(*overlay.ports)
    for name, way in liars.items():
        overlay.start(name, command=("-c", LIAR.format(way.name)))
    overlay.start(*(name for name in REPLICAS if name not in liars), "site", "control")
    reader = Subscriber(overlay, "control", ["plant/#"])
    assert accepted(overlay, "control")
    device = overlay.client("site", "probe")
    deadline = time.monotonic() + 20  # the statement crosses to the other region; nothing here shows when
    while not reader.payloads("plant/probe") and time.monotonic() < deadline:
        device.publish("plant/probe", b"there?", qos=1)
        wait_until(lambda: bool(reader.payloads("plant/probe")), 0.2)
    return reader


def publish(overlay: OverlayProcesses, count: int, seed: int) -> list[bytes]:
    device = overlay.client("site", f"device-{seed}")
    payloads = [random.Random(f"{seed} {number}").randbytes(PAYLOAD_BYTES) for number in range(count)]
    for number, payload in enumerate(payloads):
        device.publish(f"plant/{number % 2}", payload, qos=1 + number % 2).wait_for_publish(20)
    return payloads


def assert_delivered(reader: Subscriber, payloads: Sequence[bytes]) -> None:
    wait_until(lambda: sum(len(reader.payloads(f"plant/{lane}")) for lane in (0, 1)) >= len(payloads))
    for lane in (0, 1):
        assert [p[:8] for p in reader.payloads(f"plant/{lane}")] == [p[:8] for p in payloads[lane::2]]
        assert reader.payloads(f"plant/{lane}") == payloads[lane::2]


SLOW = pytest.mark.slow


@pytest.mark.parametrize("mode", ["one", *(pytest.param(mode, marks=SLOW) for mode in ("auto", "copies", "blocks"))])
def test_liars_in_different_planes_stop_nothing(overlay: OverlayProcesses, mode: str) -> None:
    """One announces what it never gives, one alters all content."""
    reader = start(overlay, mode, {"north1": Behaviour.WITHHOLD, "south2": Behaviour.CONTENT})
    assert_delivered(reader, publish(overlay, 20, 1))
    counts = overlay.figures("control")["counts"]
    assert counts["delivered"] >= 20
    assert "held_overflow" not in counts


@pytest.mark.parametrize("mode", ["blocks", pytest.param("copies", marks=SLOW), pytest.param("one", marks=SLOW)])
def test_replicas_of_different_planes_that_are_killed_stop_nothing(overlay: OverlayProcesses, mode: str) -> None:
    reader = start(overlay, mode, {})
    before = publish(overlay, 10, 1)
    overlay.kill("north2")
    overlay.kill("south1")
    assert_delivered(reader, before + publish(overlay, 10, 2))
