"""Presets of the time an entity may be silent, for a kind of network or for a goal of detection.

Not here: the times for an entity and its link (`pings`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """Times for one kind of network, in seconds. `timeout_initial_s` counts until the first answer. `caution`: less of
    it tells deaths sooner, and calls living entities dead more often; it scales every patience. `floor_s`: no shorter
    wait is a failure, whatever the link and `caution` say; a suspicion may come earlier.
    """

    name: str
    interval_s: float = 1.0
    interval_min_s: float = 0.1
    timeout_initial_s: float = 1.0
    margin_s: float = 0.04
    timeout_max_s: float = 5.0
    patience_s: float = 2.4
    caution: float = 1.0
    floor_s: float = 2.0
    goal_s: float = 0.0
    """The time within which deaths are told: an entity with a shorter patience is asked less often. 0: the interval is
    fixed.
    """


LAN = Preset("lan")
WAN = Preset("wan", timeout_initial_s=2.0, margin_s=0.1, patience_s=3.2, floor_s=3.0)
CELLULAR = Preset("cellular", interval_s=5.0, interval_min_s=0.5, timeout_initial_s=5.0, margin_s=0.4,
                  timeout_max_s=15.0, patience_s=8.0, floor_s=6.0)  # fmt: skip
PRESETS = {preset.name: preset for preset in (LAN, WAN, CELLULAR)}


def within(detect_s: float) -> Preset:
    """Returns the times with which a death is told after at most `detect_s`, on a link whose longest wait stays well
    below. The longest time to tell a death is interval and patience. The patience is the link's; so the interval is
    the longest the goal leaves beside the patience, and the better a link is known to be, the fewer pings it needs (W.
    Chen, S. Toueg, M. K. Aguilera, On the quality of service of failure detectors (2002), section 5). The interval is
    at least a quarter of the goal: more pings might hold answers back. Raises ValueError below 1 s.
    """
    if detect_s < 1:
        raise ValueError("a death cannot be told within less than a second")
    return Preset(
        f"within {detect_s:g} s",
        interval_s=detect_s / 2,
        interval_min_s=min(max(detect_s / 100, 0.05), 0.5),
        timeout_initial_s=detect_s / 10,
        timeout_max_s=detect_s / 2,
        patience_s=detect_s / 5,
        floor_s=min(2.0, detect_s / 3),
        goal_s=detect_s,
    )
