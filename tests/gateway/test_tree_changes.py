"""The owner joins regions otherwise under load, as real processes: nothing is lost, repeated or out of order.

Six regions change their tree twenty times, and in each step of such a change an end of the removed edge is killed. A
region comes to lie between two others. When a change is through, all of a region that lay between is killed: the new
way does not need it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Sequence

import pytest

from bridge.document import TREE_SETTLE_S
from bridge.document.trees import Edge, Tree
from gateway.owner.signing import sign_overlay
from gateway.trust.overlay_file import load_overlay
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.steady_load import SteadyLoad
from tests.support.files import edited
from tests.waits import wait_until

pytestmark = [pytest.mark.timeout(900), pytest.mark.invariant(51)]
ROW = ("north", "middle", "south")
SIX = ("north", "south", "east", "west", "hill", "dale")
REGIONS_ON_A_WAY = 4  # more would be too many shares of one key
STEPS_S = (-0.5, 0.0, 1.0, 2.1, 3.5, 6.0, 6.5)
"""When an end is killed: before the version is handed out, at once, settling, in force, in the grace, closing, over."""
GRACE_S = 4


def replicas(*regions: str) -> list[str]:
    return [f"{region}{place}" for region in regions for place in (1, 2, 3)]


def after(since: float, seconds: float) -> bool:
    """So long after a moment (`time.monotonic`)."""
    return wait_until(lambda: time.monotonic() - since >= seconds, seconds + 30)


def judge(overlay: OverlayProcesses, load: SteadyLoad, asked: Sequence[str]) -> None:
    load.end()
    figures = {name: overlay.figures(name) for name in asked}
    assert (len(load.lost), load.repeated, load.in_order) == (0, 0, True), (load.lost[:9], figures)
    assert all(figures[name] for name in ("site", "control")), "each says of itself that nobody is suspected"
    assert not any(found.get("named") or found.get("suspected") for found in figures.values()), figures
    logs = "".join(overlay.log(name) for name in overlay.running)
    assert "Traceback" not in logs
    assert "restart to adopt it" not in logs


def test_a_region_is_added_while_messages_flow(overlay: OverlayProcesses) -> None:
    """The smallest there is: one replica each, which the owner trusts."""
    overlay.make({"north": 1}, [], {"site": "north", "control": "north"}, trusted=["north"])
    overlay.start("north1", "site", "control")
    load = SteadyLoad(overlay, 100)
    load.start()
    overlay.spare("south1")
    overlay.spare_gateway("far", "owner")
    member = {"card": "south1/card.json", "address": f"127.0.0.1:{overlay.ports['south1']}"}

    def with_south(description: dict[str, list[object]]) -> None:
        description["regions"].append({"name": "south", "trusted": True, "members": [member]})
        description["edges"] = [["north", "south"]]
        description["members"].append({"card": "far/card.json", "region": "south", "publish": ["#"], "read": ["#"]})

    overlay.describe(with_south)
    overlay.hand_out("south1", "far", "north1")
    overlay.start("south1", "far")
    there = overlay.client("far", "there")
    got: list[int] = []
    there.on_message = lambda client, userdata, message: got.append(int(message.payload))
    there.subscribe("plant/steady/0", 1)
    assert wait_until(lambda: len(got) > 10, 30)
    judge(overlay, load, ["site", "control"])
    there.loop_stop()
    assert got == list(range(got[0], got[0] + len(got))), "from the first one on all of it, in order"


@pytest.mark.slow
def test_the_owner_joins_regions_otherwise_and_an_end_of_the_removed_edge_is_killed(overlay: OverlayProcesses) -> None:
    overlay.make(dict.fromkeys(ROW, 3), [ROW[:2], ROW[1:]], {"site": "north", "control": "south"})
    overlay.start(*replicas(*ROW), "site", "control")
    load = SteadyLoad(overlay, 100)
    load.start()
    assert load.goes_on(100)
    overlay.describe(lambda description: description.update(edges=[["north", "middle"], ["north", "south"]]))
    began = time.monotonic()
    overlay.hand_out("north1")
    overlay.kill("middle2")
    assert load.goes_on(100)
    overlay.start("middle2")
    assert after(began, TREE_SETTLE_S + 8)
    assert load.goes_on(100)
    for name in replicas("middle"):
        overlay.kill(name)
    assert load.goes_on(200)
    print(f"{sum(load.sent)} messages; longest pause {load.pause_s(began, time.monotonic()):.2f} s")
    judge(overlay, load, ["site", "control", "north1", "south1"])


@pytest.mark.slow
def test_a_region_comes_to_lie_between_two_others(overlay: OverlayProcesses) -> None:
    overlay.make({"north": 3, "south": 3}, [("north", "south")], {"site": "north", "control": "south"})
    overlay.start(*replicas("north", "south"), "site", "control")
    overlay.spare(*replicas("middle"))
    load = SteadyLoad(overlay, 100)
    load.start()
    assert load.goes_on(100)
    members = [
        {"card": f"{name}/card.json", "address": f"127.0.0.1:{overlay.ports[name]}"} for name in replicas("middle")
    ]

    def with_middle(description: dict[str, list[object]]) -> None:
        description["regions"].append({"name": "middle", "members": members})
        description["edges"] = [["north", "middle"], ["middle", "south"]]

    overlay.describe(with_middle)
    overlay.hand_out(*replicas("middle"))
    overlay.start(*replicas("middle"))
    began = time.monotonic()
    overlay.hand_out("north1")
    assert load.goes_on(500)
    print(f"{sum(load.sent)} messages; longest pause {load.pause_s(began, time.monotonic()):.2f} s")
    judge(overlay, load, ["site", "control", "north1", "middle1"])


def joined(edges: Collection[Edge]) -> Tree:
    return Tree(0, edges, range(len(SIX)))


def swapped(edges: Sequence[Edge], rng: random.Random) -> tuple[list[Edge], Edge]:
    """Another tree by one edge, on which no way is too long for what is sealed; and the edge that goes."""
    while True:
        gone = rng.choice(edges)
        kept = [edge for edge in edges if edge != gone]
        a, b = sorted(rng.sample(range(len(SIX)), 2))
        tree = joined([*kept, (a, b)])
        short = all(len(tree.path(x, y)) <= REGIONS_ON_A_WAY for x in tree.regions for y in tree.regions)
        if (a, b) != gone and tree.joined and short:
            return [*kept, (a, b)], gone


@pytest.mark.slow
def test_six_regions_change_their_tree_twenty_times(overlay: OverlayProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.owner.trees.TREE_GRACE_S", GRACE_S)
    rng = random.Random(19)
    edges: list[Edge] = [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5)]
    names = [(SIX[a], SIX[b]) for a, b in edges]
    overlay.make(dict.fromkeys(SIX, 3), names, {"site": "east", "control": "dale"})
    overlay.start(*replicas(*SIX), "site", "control")
    description = overlay.directory / "overlay.yaml"
    load = SteadyLoad(overlay, 500)
    load.start()
    assert load.goes_on(1000)
    began, pauses_s = time.monotonic(), []
    for number in range(20):
        edges, gone = swapped(edges, rng)
        with edited(description) as content:
            content["edges"] = [[SIX[a], SIX[b]] for a, b in edges]
        victim, at = f"{SIX[rng.choice(gone)]}{rng.choice('123')}", STEPS_S[number % len(STEPS_S)]
        if at < 0:
            overlay.kill(victim)
            assert after(time.monotonic(), -at)
        sign_overlay(description, overlay.directory / "owner", overlay.directory / "overlay.json", time.time())
        told = time.monotonic()
        overlay.hand_out(rng.choice([name for name in replicas(*SIX) if name != victim]))
        if at >= 0:
            assert after(told, at)
            overlay.kill(victim)
        overlay.start(victim)
        assert after(told, TREE_SETTLE_S + GRACE_S + 2)
        assert load.goes_on(200), f"after change {number}, without {victim}"
        pauses_s.append(load.pause_s(told, time.monotonic()))
    took_s = time.monotonic() - began
    print(f"{sum(load.sent)} messages in {took_s:.0f} s; longest pauses {sorted(pauses_s)[-3:]}")
    newest = load_overlay(overlay.directory / "control-overlay.json", int(time.time() * 1000)).trees.newest
    assert newest.number == 20, "all heard of all of it"
    judge(overlay, load, ["site", "control"])
