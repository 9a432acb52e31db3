"""A replica that is killed again and again, as real processes: what the others saw proposes a spare, the owner's key
attaches it and detaches the one that fails, and messages flow on."""

from __future__ import annotations

import re
import time

import pytest
import yaml

from gateway.commands.status import asked
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.test_attach_detach import GRACE_S, REGIONS, Changing
from tests.ports import free_ports
from tests.support.processes import ending
from tests.waits import wait_until

REPLICAS = [f"{region}{place}" for region in REGIONS for place in (1, 2, 3)]
KILLS = 3
pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]


class Watched(OverlayProcesses):
    """Replicas that can be asked how they stand."""

    def make(self, *arguments: object, **options: object) -> OverlayProcesses:
        self.metrics: dict[str, str] = {}
        return super().make(*arguments, **options)  # type: ignore[arg-type]

    def _write_replica(self, name: str) -> None:
        super()._write_replica(name)
        self.metrics[name] = f"127.0.0.1:{free_ports(1)[0]}"
        self.configure(name, metrics={"bind": self.metrics[name]})


overlay = ending(kind=Watched)


def place(overlay: Watched, *more: str) -> str:
    asks = [word for name in REPLICAS for word in ("--ask", f"{name}={overlay.metrics[name]}")]
    return overlay.veilmq("overlay", "place", "overlay.json", "--live", *asks, "--spares", "spares", *more)


def seen(overlay: Watched, failing: str) -> list[float]:
    """How often each replica of the other region saw it fail."""
    answers = [asked(overlay.metrics[name], 5.0) for name in ("north1", "north2", "north3")]
    return [one.get("seen", {}).get(failing, {}).get("failures", 0) for one in answers]


def test_a_replica_that_is_killed_again_and_again_gives_way_to_a_spare(overlay: Watched) -> None:
    changing = Changing.begin(overlay, 100)
    spares = overlay.directory / "spares"
    spares.mkdir()
    line = {"card": "../south4/card.json", "address": f"127.0.0.1:{overlay.ports['south4']}"}
    (spares / "south4.yaml").write_text(yaml.safe_dump(line))
    assert changing.load.goes_on()
    assert "nothing to attach or detach" in place(overlay)
    for time_killed in range(1, KILLS + 1):
        overlay.kill("south2")
        assert wait_until(lambda: min(seen(overlay, "south2")) >= time_killed, 30), seen(overlay, "south2")  # noqa: B023
        if time_killed < KILLS:
            overlay.start("south2")
            assert changing.load.goes_on()
    began = time.monotonic()
    said = place(overlay, "--apply", "--owner", "owner", "--grace", str(GRACE_S))
    print(said)
    assert "attach south4 to region south: a quorum is up" in said
    failures = re.search(r"failures there: south2 (\d+)$", said, re.MULTILINE)
    assert failures is not None, said
    assert int(failures[1]) >= KILLS, "a link that breaks once more as it comes up is a failure, too"
    changing.members["south"].append("south4")
    overlay.hand_out("south4")
    overlay.start("south4")
    overlay.hand_out("south1")
    assert changing.in_force("south"), changing.story()
    changing.pauses_s.append(("+south4", changing.load.pause_s(began, time.monotonic())))
    changing.bring_back()
    began = time.monotonic()
    said = place(overlay, "--apply", "--owner", "owner", "--grace", str(GRACE_S))
    print(said)
    assert "detach south2 from region south" in said
    changing.members["south"].remove("south2")
    overlay.hand_out("south1")
    assert changing.in_force("south"), changing.story()
    changing.pauses_s.append(("-south2", changing.load.pause_s(began, time.monotonic())))
    assert changing.load.goes_on()
    changing.finish()
    changing.bring_back()
    assert "nothing to attach or detach" in place(overlay)
