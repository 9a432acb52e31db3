"""Times for kinds of networks, and from a goal."""

from __future__ import annotations

import pytest

from bridge.traces.presets import PRESETS, Preset, within


def test_nothing_is_told_within_no_time() -> None:
    with pytest.raises(ValueError, match="less than a second"):
        within(0.5)
    assert within(1.0).goal_s == 1.0


@pytest.mark.parametrize("goal_s", [1.0, 10.0, 300.0])
def test_a_goal_leaves_time_to_ask_twice_and_to_wait(goal_s: float) -> None:
    preset = within(goal_s)
    assert preset.interval_s + 2 * preset.patience_s + preset.timeout_initial_s <= goal_s
    assert preset.floor_s <= 2
    assert preset.interval_min_s < preset.timeout_initial_s


@pytest.mark.parametrize(
    ("goal_s", "interval_min_s", "floor_s"),
    [(1.0, 0.05, 1 / 3), (4.5, 0.05, 1.5), (10.0, 0.1, 2.0), (300.0, 0.5, 2.0)],
)
def test_times_grow_with_a_goal_and_those_with_bounds_up_to_these(
    goal_s: float, interval_min_s: float, floor_s: float
) -> None:
    assert within(goal_s) == Preset(
        f"within {goal_s:g} s",
        interval_s=goal_s / 2,
        interval_min_s=pytest.approx(interval_min_s),
        timeout_initial_s=pytest.approx(goal_s / 10),
        timeout_max_s=goal_s / 2,
        patience_s=pytest.approx(goal_s / 5),
        floor_s=pytest.approx(floor_s),
        goal_s=goal_s,
    )


@pytest.mark.parametrize(
    "preset",
    [
        Preset("lan", 1.0, 0.1, 1.0, 0.04, 5.0, 2.4, 1.0, 2.0, 0.0),
        Preset("wan", 1.0, 0.1, 2.0, 0.1, 5.0, 3.2, 1.0, 3.0, 0.0),
        Preset("cellular", 5.0, 0.5, 5.0, 0.4, 15.0, 8.0, 1.0, 6.0, 0.0),
    ],
    ids=lambda preset: preset.name,
)
def test_presets_are_as_the_page_tells_them(preset: Preset) -> None:
    """docs/explanation/availability.md has the table."""
    assert PRESETS[preset.name] == preset
    assert list(PRESETS) == ["lan", "wan", "cellular"]
