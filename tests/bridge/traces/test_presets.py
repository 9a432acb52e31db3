"""Times for kinds of networks, and from a goal."""

from __future__ import annotations

import pytest

from bridge.traces.presets import PRESETS, within


def test_nothing_is_told_within_no_time() -> None:
    with pytest.raises(ValueError, match="less than a second"):
        within(0.5)


@pytest.mark.parametrize("goal_s", [1.0, 10.0, 300.0])
def test_a_goal_leaves_time_to_ask_twice_and_to_wait(goal_s: float) -> None:
    preset = within(goal_s)
    assert preset.interval_s + 2 * preset.patience_s + preset.timeout_initial_s <= goal_s
    assert preset.floor_s <= 2
    assert preset.interval_min_s < preset.timeout_initial_s


def test_presets_are_found_by_their_names() -> None:
    assert all(preset.name == name for name, preset in PRESETS.items())
