"""An organiser that is not the owner, as real processes: it measures nothing, owns nothing, and swaps edges.

Six regions of three under load; links between them become slow by turns, and an end of the edge that goes is killed in
each step of a swap. Nothing is lost, repeated or out of order.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.commands.status import asked as asked_status
from gateway.trust import TrustDomain, load_overlay
from keys.identity import Role
from tests.forking import run
from tests.gateway.overlay_processes import ENVIRONMENT, MAIN, OverlayProcesses, run_veilmq
from tests.gateway.slow_links import SlowLinks
from tests.gateway.steady_load import SteadyLoad
from tests.ports import free_ports
from tests.waits import wait_until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.invariant(66)]
ROW = ("north", "middle", "south")
ONE_EACH = ("north1", "middle1", "south1")
SIX = ("north", "south", "east", "west", "hill", "dale")
GRACE_S = 4
SLOW_S = 0.25
STEPS_S = (-3.0, 0.0, 0.5, 1.2, 2.5, 4.0, 7.0)
"""When an end is killed, from when the swap was signed: before, offered, linking, settling, in force, grace, over."""


def add_boss(overlay: OverlayProcesses, region: str, organise: dict[str, object]) -> None:
    """A member of the organiser's own party, with no right to anything; and the owner's word that it organises."""
    domain = TrustDomain.create(overlay.directory / "domain-boss", "operator-boss", time.time())
    domain.issue("boss", Role.INGEST, ("127.0.0.1",), overlay.directory / "boss", time.time())

    def change(description: dict[str, Any]) -> None:
        description["organise"] = {**organise, "organiser": "boss", "grace_s": GRACE_S}
        description["members"].append({"card": "boss/card.json", "region": region})

    overlay.describe(change)
    overlay.hand_out("boss", *overlay.ports)


class Boss:
    """`veilmq overlay organise --as boss --apply --follow`, and what it printed."""

    def __init__(self, overlay: OverlayProcesses) -> None:
        self._out = overlay.directory / "boss.out"
        arguments = ("overlay", "organise", "boss-overlay.json", "--as", "boss", "--apply", "--follow", "--json")
        log = overlay.directory / "boss.log"
        self._out.write_bytes(b"")
        self.process = run(["-c", MAIN, *arguments], overlay.directory, ENVIRONMENT, self._out, log)

    def said(self, what: str) -> list[dict[str, Any]]:
        """Lines that have this."""
        decoder, text, found = json.JSONDecoder(), self._out.read_text(), []
        while text := text.strip():
            try:
                line, end = decoder.raw_decode(text)
            except ValueError:
                break
            found.append(line)
            text = text[end:]
        return [line for line in found if line.get(what)]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def replicas(*regions: str) -> list[str]:
    return [f"{region}{place}" for region in regions for place in (1, 2, 3)]


def after(since: float, seconds: float) -> bool:
    return wait_until(lambda: time.monotonic() - since >= seconds, seconds + 30)


def in_force(overlay: OverlayProcesses, name: str) -> set[frozenset[str]]:
    """Edges by names, as a member's file has them."""
    loaded = load_overlay(overlay.directory / f"{name}-overlay.json", int(time.time() * 1000))
    return {frozenset(loaded.latest[region].name for region in edge) for edge in loaded.trees.newest.edges}


def judge(overlay: OverlayProcesses, load: SteadyLoad, asked: Sequence[str]) -> None:
    load.end()
    figures = {name: overlay.figures(name) for name in asked}
    assert (len(load.lost), load.repeated, load.in_order) == (0, 0, True), (load.lost[:9], figures)
    assert all(figures.values())
    assert not any(found.get("named") or found.get("suspected") for found in figures.values()), figures
    assert "Traceback" not in "".join(overlay.log(name) for name in overlay.running)


@pytest.mark.slow
def test_the_organiser_swaps_an_edge_and_the_owner_takes_it_up(overlay: OverlayProcesses) -> None:
    overlay.make(dict.fromkeys(ROW, 1), [ROW[:2], ROW[1:]], {"site": "north", "control": "south"}, trusted=ROW)
    add_boss(overlay, "middle", {"links": [["north", "south"]], "interval_s": 1, "dwell_s": 60})
    asked = f"127.0.0.1:{free_ports(1)[0]}"
    overlay.configure("north1", metrics={"bind": asked})
    overlay.start(*ONE_EACH, "site", "control")
    load = SteadyLoad(overlay, 100)
    load.start()
    assert load.goes_on(50)
    organise = ("overlay", "organise", "boss-overlay.json", "--as", "boss")
    looked = run_veilmq(*organise, "--wait", "30", cwd=overlay.directory)
    assert (looked.returncode, looked.stderr) == (0, "")
    assert "join north - south, part " in looked.stdout
    began = time.monotonic()
    signed = run_veilmq(*organise, "--apply", cwd=overlay.directory)
    assert (signed.returncode, signed.stderr) == (0, "")
    assert signed.stdout.endswith("tree 1 is in force\n")
    took_s = time.monotonic() - began
    assert wait_until(lambda: frozenset(("north", "south")) in in_force(overlay, "control"), 10)
    shown = asked_status(asked)["overlay"]["swaps"]
    assert (shown["organiser"], shown["in_force"], shown["stopped"], shown["offered"]) == ("boss", 1, False, None)
    resting = run_veilmq(*organise, "--apply", "--wait", "3", cwd=overlay.directory)
    assert (resting.returncode, resting.stderr) == (0, "")
    assert resting.stdout.startswith("nothing to change: the tree was changed, "), "judged already or not"
    assert "and rests until" in resting.stdout
    assert load.goes_on(100)
    assert (overlay.directory / "boss" / "swaps").read_text() == "1\n"
    # The owner has a member's file, and its description still says what it said: the swap stays.
    shutil.copy(overlay.directory / "control-overlay.json", overlay.directory / "overlay.json")
    overlay.describe()
    owners = load_overlay(overlay.directory / "overlay.json", int(time.time() * 1000))
    assert (owners.swaps, owners.policy.tree.number) == ((), 1)
    overlay.hand_out("middle1")
    assert wait_until(lambda: _version(overlay, "control") == owners.policy.version, 30)
    assert frozenset(("north", "south")) in in_force(overlay, "control")
    assert load.goes_on(100)
    print(f"{sum(load.sent)} messages; in force after {took_s:.1f} s of `veilmq overlay organise --apply`")
    judge(overlay, load, ["site", "control"])


def _version(overlay: OverlayProcesses, name: str) -> int:
    return load_overlay(overlay.directory / f"{name}-overlay.json", int(time.time() * 1000)).policy.version


FIRST, LAST, DIRECT = (frozenset(edge) for edge in (("north", "south"), ("south", "dale"), ("north", "dale")))


def swapped(overlay: OverlayProcesses, boss: Boss, victim: str, at: float) -> None:
    """One swap, in which a replica is killed `at` seconds from when it was signed, before if that is negative."""
    signed, done = len(boss.said("swap")), len(boss.said("in_force"))
    if at >= 0:
        assert wait_until(lambda: len(boss.said("swap")) > signed, 120)
    assert after(time.monotonic(), abs(at))
    overlay.kill(victim)
    overlay.start(victim)
    if not wait_until(lambda: len(boss.said("in_force")) > done, 200):
        there = load_overlay(overlay.directory / "boss-overlay.json", int(time.time() * 1000))
        agreed = [(swap.number, swap.added, swap.removed, sorted(there.swap_endorsers(swap))) for swap in there.offered]
        pytest.fail(f"{victim} was killed; waiting are {agreed}")
    assert after(time.monotonic(), 2 + GRACE_S + 1)


def proxied(overlay: OverlayProcesses, slow: set[frozenset[str]]) -> SlowLinks:
    """In front of the replicas of two regions, which others dial there; pairs of regions in `slow` are that."""
    homes = {name: name[:-1] for name in replicas(*SIX)}

    def delay_s(source: str, target: str) -> float:
        return SLOW_S if frozenset((homes.get(source, ""), homes[target])) in slow else 0.0

    links = SlowLinks(overlay, delay_s)
    for name, front in zip(replicas("south", "dale"), free_ports(6), strict=True):
        links.targets[name] = front, overlay.ports[name]

    def behind(description: dict[str, Any]) -> None:
        for region in description["regions"]:
            for member in region["members"]:
                target = links.targets.get(member["card"].split("/")[0])
                member["address"] = f"127.0.0.1:{target[0]}" if target else member["address"]

    overlay.describe(behind)
    return links


@pytest.mark.slow
def test_ten_swaps_while_links_are_slow_and_an_end_of_the_removed_edge_is_killed(overlay: OverlayProcesses) -> None:
    gateways = {"site": "north", "mid": "south", "control": "dale"}
    edges = [("north", "south"), ("south", "dale"), ("north", "east"), ("north", "west"), ("north", "hill")]
    overlay.make(dict.fromkeys(SIX, 3), edges, gateways)
    slow: set[frozenset[str]] = set()
    links = proxied(overlay, slow)
    organise = {"links": [["north", "dale"]], "interval_s": 2, "dwell_s": 2, "min_gain": 20}
    add_boss(overlay, "east", organise)
    links.start()
    overlay.start(*replicas(*SIX), *gateways)
    load = SteadyLoad(overlay, 500)
    load.start()
    also = overlay.client("mid", "also")
    also.subscribe("plant/steady/#", 1)
    assert load.goes_on(1000)
    boss, rng, pauses_s = Boss(overlay), random.Random(19), []
    try:
        began = time.monotonic()
        for number in range(10):
            goes = DIRECT if number % 2 else (FIRST, LAST)[number % 4 // 2]
            victim, at = f"{rng.choice(sorted(goes))}{rng.choice('123')}", STEPS_S[number % len(STEPS_S)]
            slowed_at = time.monotonic()
            slow.clear()
            slow.add(goes)
            swapped(overlay, boss, victim, at)
            assert load.goes_on(500), f"after swap {number}, without {victim}"
            pauses_s.append(load.pause_s(slowed_at, time.monotonic()))
            assert goes not in in_force(overlay, "control"), (number, goes)
        took_s = time.monotonic() - began
        for found in boss.said("swap"):
            swap = found["swap"]
            costs = f"{swap['cost_before_us']} us before, {swap['cost_after_us']} after"
            print(f"join {swap['add']}, part {swap['remove']}: {costs}")
        print(f"{sum(load.sent)} messages in {took_s:.0f} s; longest pauses {sorted(pauses_s)[-3:]}")
        control = load_overlay(overlay.directory / "control-overlay.json", int(time.time() * 1000))
        assert len(control.swaps) == 10
        also.disconnect()
        also.loop_stop()
        judge(overlay, load, ["site", "control", "mid"])
    finally:
        boss.stop()
        links.stop()
