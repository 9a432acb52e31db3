"""Three regions in a row, of which only the outer ones have clients: replicas measure, and the owner signs what spares.

Real processes, one replica a region. While messages flow the middle one leaves the way: nothing is lost, repeated or
out of order.
"""

from __future__ import annotations

import json
import time

import pytest

from bridge.measuring import proposal
from gateway.commands.status import asked as asked_status
from gateway.trust import load_overlay
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.steady_load import SteadyLoad
from tests.ports import free_ports
from tests.waits import wait_until

pytestmark = pytest.mark.timeout(300)
ROW = ("north", "middle", "south")
ONE_EACH = ("north1", "middle1", "south1")
ORGANISE = {"links": [["north", "south"]], "interval_s": 1, "dwell_s": 60}


@pytest.mark.slow
def test_the_way_over_a_region_that_wants_nothing_is_left_while_messages_flow(overlay: OverlayProcesses) -> None:
    overlay.make(dict.fromkeys(ROW, 1), [ROW[:2], ROW[1:]], {"site": "north", "control": "south"}, trusted=ROW)
    overlay.describe(lambda description: description.update(organise=ORGANISE))
    overlay.hand_out(*ONE_EACH, "site", "control")
    asked = f"127.0.0.1:{free_ports(1)[0]}"
    overlay.configure("north1", metrics={"bind": asked})
    overlay.start(*ONE_EACH, "site", "control")
    load = SteadyLoad(overlay, 100)
    load.start()
    assert load.goes_on(50)
    organise = ("overlay", "organise", "overlay.json", "--ask", asked, "--json")
    found: list[dict[str, object]] = []

    def proposed() -> bool:
        found.append(json.loads(overlay.veilmq(*organise)))
        return found[-1]["swap"] is not None

    assert wait_until(proposed, 40), found[-1]
    swap = found[-1]["swap"]
    assert isinstance(swap, dict)
    assert swap["add"] == "north - south"
    assert wait_until(lambda: asked_status(asked)["overlay"]["proposal"]["swap"]["add"] == "north - south", 10)
    assert swap["remove"] in ("north - middle", "middle - south")
    began = time.monotonic()
    signed: dict[str, object] = {}

    def is_signed() -> bool:
        signed.update(json.loads(overlay.veilmq(*organise, "--apply", "--owner", "owner")))
        return signed["version"] == 3

    assert wait_until(is_signed, 40), signed
    overlay.hand_out("middle1")
    assert wait_until(lambda: time.monotonic() - began > 4, 10), "the new tree is in force after 2 s"
    assert load.goes_on(100)
    load.end()
    print(f"{sum(load.sent)} messages; longest pause {load.pause_s(began, time.monotonic()):.2f} s; {signed['swap']}")
    assert (len(load.lost), load.repeated, load.in_order) == (0, 0, True)
    for name in ("site", "control"):
        figures = overlay.figures(name)
        assert figures
        assert not figures.get("named")
        assert not figures.get("suspected")
    assert "Traceback" not in "".join(overlay.log(name) for name in overlay.running)
    now = time.time()
    in_force = load_overlay(overlay.directory / "south1-overlay.json", int(now * 1000))
    assert in_force.trees.newest.path(1, 3) == (1, 3)
    resting = proposal(in_force, [], now)
    assert resting is not None
    assert resting.rests_until > now
