"""Replicas come and go under load, as real processes: nothing is lost, repeated or out of order (A13, A14).

The owner signs with its commands; of each version one member gets the file, the others hear of it from each other.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import pytest
import yaml

from bridge.document.overlay import Overlay, OverlayError
from gateway.base.config import load
from gateway.party import Party
from gateway.trust.overlay_file import load_overlay
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.steady_load import SteadyLoad
from tests.waits import wait_until

GRACE_S = 6
"""More than anything is under way on a busy machine: what is longer than that is lost with the view of its keys."""
REGIONS = ("north", "south")
SPARE = tuple(f"{region}{place}" for region in REGIONS for place in (4, 5))
GATEWAYS = ("site", "control")
pytestmark = pytest.mark.timeout(900)


def overlay_at(overlay: OverlayProcesses, name: str) -> Overlay:
    """As a member keeps it on disk."""
    return load_overlay(overlay.directory / f"{name}-overlay.json", int(time.time() * 1000))


@dataclass
class Changing:
    """Two regions of three at first, five at most. `pauses_s`: the longest silence around each change."""

    overlay: OverlayProcesses
    load: SteadyLoad
    members: dict[str, list[str]] = field(default_factory=dict)
    pauses_s: list[tuple[str, float]] = field(default_factory=list)

    @classmethod
    def begin(cls, overlay: OverlayProcesses, rate: int) -> Changing:
        overlay.make(dict.fromkeys(REGIONS, 3), [REGIONS], {"site": "north", "control": "south"})
        overlay.spare(*SPARE)
        for name in GATEWAYS:  # after a pause all comes at once: by default a client's queue holds 1,000
            path = overlay.directory / f"{name}.yaml"
            content = yaml.safe_load(path.read_text())
            path.write_text(
                yaml.safe_dump({**content, "limits": {"queue_messages": 100_000, "queue_bytes": 256 << 20}})
            )
        members = {region: [f"{region}{place}" for place in (1, 2, 3)] for region in REGIONS}
        overlay.start(*members["north"], *members["south"], *GATEWAYS)
        load = SteadyLoad(overlay, rate)
        load.start()
        return cls(overlay, load, members)

    def attach(self, region: str, name: str, start: bool = True) -> None:
        address = f"127.0.0.1:{self.overlay.ports[name]}"
        self.overlay.veilmq(
            "overlay", "attach", "overlay.json", "--owner", "owner", "--region", region,
            "--card", f"{name}/card.json", "--address", address, "--grace", str(GRACE_S),
        )  # fmt: skip
        self.members[region].append(name)
        self.overlay.hand_out(name)
        if start:
            self.overlay.start(name)
        self.overlay.hand_out(self.members[region][0])

    def detach(self, region: str, name: str, *options: str) -> None:
        self.members[region].remove(name)
        arguments = options or ("--grace", str(GRACE_S))
        self.overlay.veilmq("overlay", "detach", "overlay.json", "--owner", "owner", "--member", name, *arguments)
        self.overlay.hand_out(self.members[region][0])

    def in_force(self, region: str, at: tuple[str, ...] = GATEWAYS, seconds: float = 60.0) -> bool:
        """Whether the region's members are those of its view, at these members, and the view before is over."""

        def settled() -> bool:
            overlays = [overlay_at(self.overlay, name) for name in at]
            return all(
                list(overlay.views[number].members) == self.members[region] and len(overlay.open_views(number)) == 1
                for overlay in overlays
                for number in overlay.latest
                if overlay.latest[number].name == region
            )

        return wait_until(settled, seconds, every_s=0.25)  # to verify a file costs what many messages do

    def bring_back(self, member: str = "site") -> None:
        """A member's copy of the overlay, which says who endorsed it, to the owner."""
        copy = (self.overlay.directory / f"{member}-overlay.json").read_bytes()
        (self.overlay.directory / "overlay.json").write_bytes(copy)

    def change(self, dice: random.Random) -> None:
        """One replica more or less somewhere, all the way, and how long nothing came meanwhile."""
        region = dice.choice(REGIONS)
        free = [name for name in (*SPARE, *(f"{r}{p}" for r in REGIONS for p in (1, 2, 3)))
                if name.startswith(region) and name not in self.members[region]]  # fmt: skip
        joins = len(self.members[region]) < 5 and (len(self.members[region]) <= 3 or dice.random() < 0.5)
        name = dice.choice(free if joins else self.members[region])
        began = time.monotonic()
        if joins:
            self.attach(region, name)
        else:
            self.detach(region, name)
        assert self.in_force(region), self.story()
        self.pauses_s.append((f"{'+' if joins else '-'}{name}", self.load.pause_s(began, time.monotonic())))
        if not joins:
            assert wait_until(lambda: "detached: view" in self.overlay.log(name), 10), self.overlay.log(name)
            self.overlay.kill(name)
            (self.overlay.directory / f"{name}.log").unlink()
        self.bring_back()

    def story(self) -> str:
        views = [
            (name, view.number)
            for name in GATEWAYS
            for n in (1, 2)
            for view in overlay_at(self.overlay, name).open_views(n)
        ]
        return f"{self.members} {views} {self.pauses_s} " + "\n".join(
            self.overlay.log(name)[-700:] for name in self.overlay.running
        )

    def finish(self) -> None:
        """Nothing lost, repeated or out of order; nobody blamed."""
        self.load.end()
        print(f"{sum(self.load.sent)} messages; longest pause around each change, s:", *self.told())
        figures = {name: self.overlay.figures(name) for name in GATEWAYS}
        assert (self.load.lost, self.load.repeated) == ([], 0), figures
        assert self.load.in_order
        assert all(not found["named"] for found in figures.values()), figures
        assert "Traceback" not in "".join(self.overlay.log(name) for name in self.overlay.running)

    def told(self) -> list[str]:
        return [f"{name} {pause:.2f}" for name, pause in self.pauses_s]


@pytest.mark.parametrize(("changes", "rate"), [
    (2, 50),
    pytest.param(20, 500, marks=pytest.mark.slow),
])  # fmt: skip
def test_replicas_come_and_go_under_load(overlay: OverlayProcesses, changes: int, rate: int) -> None:
    changing = Changing.begin(overlay, rate)
    dice = random.Random(7)
    for _ in range(changes):
        changing.change(dice)
    changing.finish()


@pytest.mark.slow
def test_a_replica_is_killed_in_the_middle_of_an_attach(overlay: OverlayProcesses) -> None:
    """One of the three that may endorse: k = 2 others are enough, and f = 1 of the four may be away."""
    changing = Changing.begin(overlay, 100)
    changing.attach("north", "north4")
    overlay.kill("north2")
    assert changing.in_force("north"), changing.story()
    assert changing.load.goes_on()
    overlay.start("north2")
    assert changing.in_force("north", ("north2",)), changing.story()
    assert changing.load.goes_on()
    overlay.kill("north4")  # now the one that came back is needed: k = 3 of 4
    assert changing.load.goes_on()
    changing.finish()


@pytest.mark.slow
def test_members_that_were_down_during_two_changes_follow_when_they_are_back(overlay: OverlayProcesses) -> None:
    """The publishing gateway and a replica of the other region: both come back with the file of before."""
    changing = Changing.begin(overlay, 100)
    assert changing.load.goes_on()
    assert changing.load.pause()
    overlay.kill("north3")
    overlay.kill("site")
    changing.attach("south", "south4")
    assert changing.in_force("south", ("control", "south2"))
    changing.bring_back("control")
    changing.detach("south", "south1")
    assert changing.in_force("south", ("control", "south2"))
    overlay.start("north3", "site")
    changing.load.resume()
    assert changing.in_force("south", ("north3", "site")), changing.story()
    assert changing.load.goes_on()
    changing.finish()


@pytest.mark.slow
def test_a_replica_that_is_detached_at_once_carries_nothing_more_until_it_is_attached_again(
    overlay: OverlayProcesses,
) -> None:
    changing = Changing.begin(overlay, 100)
    changing.attach("north", "north4")
    assert changing.in_force("north")
    changing.bring_back()
    changing.detach("north", "north1", "--now")
    assert wait_until(lambda: "detached: view" in overlay.log("north1"), 30), changing.story()
    assert changing.in_force("north")
    assert not list((overlay.directory / "data-north1" / "seeds").glob("*.seed"))
    assert "north1" not in overlay.figures("site")["peers"]
    with pytest.raises(OverlayError, match="north1 is in no view"):  # as a restart would say
        Party(load(overlay.directory / "north1.yaml"))
    changing.bring_back()
    changing.attach("north", "north1", start=False)
    assert changing.in_force("north", (*GATEWAYS, "north1")), changing.story()
    assert wait_until(lambda: "north1" in overlay.figures("site")["peers"], 10, 0.5)
    assert changing.load.goes_on()
    changing.load.end()
    assert changing.load.repeated == 0
    assert changing.load.in_order  # but without grace, what was under way behind the region may be lost
