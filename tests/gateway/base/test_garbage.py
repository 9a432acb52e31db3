"""A process that serves is not held up by the garbage collector: what stays is left alone, the rest seldom seen."""

from __future__ import annotations

import gc
import subprocess
import sys

from gateway.base.garbage import LOOK_S, PAUSE_MAX_S, PAUSE_MIN_S, THRESHOLDS, pause_after, uncollected

PROGRAM = """
import gc
from gateway.base import collect_seldom
before = len(gc.get_objects())
collect_seldom()
print(gc.get_threshold(), gc.get_freeze_count() > before // 2, len(gc.get_objects()) < before // 10)
"""


def test_what_stays_is_not_looked_at_again() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert said.strip() == f"{THRESHOLDS} True True"


STAYING = """
import gc
from gateway.base import uncollected
with uncollected():
    stays = [[number] for number in range(50_000)]
print(gc.is_tracked(stays[0]), gc.get_freeze_count() > 50_000, len(gc.get_objects()) < 5_000)
"""


def test_what_was_made_uncollected_is_not_looked_at_afterwards_either() -> None:
    said = subprocess.run([sys.executable, "-c", STAYING], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "True True True"


def test_nothing_is_collected_while_much_is_made_that_stays() -> None:
    seen: list[str] = []

    def noted(phase: str, info: dict[str, int]) -> None:
        seen.append(phase)

    gc.callbacks.append(noted)
    try:
        gc.collect(0)
        with uncollected():
            stays = [[number] for number in range(2 * gc.get_threshold()[0])]
            assert seen == ["start", "stop"]
        stays += [[number] for number in range(2 * gc.get_threshold()[0])]
    finally:
        gc.callbacks.remove(noted)
    assert len(seen) > 2, "collection goes on afterwards"


FULL_TABLE = """
import asyncio, gc, sys
from collections import deque
from gateway.base import collect_by_clock, collect_seldom

async def main():
    table = deque(([number] for number in range(20_000)), maxlen=20_000)
    if sys.argv[1] == "clock":
        collect_by_clock(asyncio.get_running_loop())
    else:
        collect_seldom()
    most = 0
    for number in range(40):
        for _ in range(500):
            table.append([number])
        await asyncio.sleep(0.02)
        most = max(most, len(gc.get_objects(0)) + len(gc.get_objects(1)))
    print(most)

asyncio.run(main())
"""


def test_new_entries_of_a_full_table_are_looked_at_before_they_are_many() -> None:
    """Each replaces an old one, so that the collector counts nothing and one look would see all of them."""
    most = {
        pace: int(
            subprocess.run([sys.executable, "-c", FULL_TABLE, pace], capture_output=True, text=True, check=True).stdout
        )
        for pace in ("count", "clock")
    }
    assert most["count"] > 15_000, "the fault itself"
    assert most["clock"] < 13_000, "500 in 20 ms, a look in 320 ms at least"


def test_a_long_look_is_followed_sooner_and_a_short_one_later_within_bounds() -> None:
    pause_s = PAUSE_MAX_S
    for _ in range(10):
        pause_s = pause_after(2 * LOOK_S, pause_s)
    assert pause_s == PAUSE_MIN_S
    assert pause_after(LOOK_S / 2, pause_s) == pause_s
    for _ in range(10):
        pause_s = pause_after(0.0, pause_s)
    assert pause_s == PAUSE_MAX_S
