"""A process that serves is not held up by the garbage collector: what stays is left alone, the rest seldom seen."""

from __future__ import annotations

import subprocess
import sys

from gateway.base.garbage import THRESHOLDS

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
