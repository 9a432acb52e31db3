"""A process that serves is not held up by the garbage collector: what stays is left alone, the rest seldom seen."""

from __future__ import annotations

import gc
import subprocess
import sys

from gateway.base.garbage import THRESHOLDS, uncollected

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
