"""Which of many names goes: the oldest of the heaviest branch, whatever came and went before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.base import NameWeights

NAMES = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map("/".join)


@pytest.mark.attack(147)
@given(st.lists(st.tuples(NAMES, st.integers(0, 3)), max_size=40))
def test_the_heaviest_branch_is_followed_to_its_oldest_name(steps: list[tuple[str, int]]) -> None:
    weights, model = NameWeights(), dict[str, int]()
    for name, weight in steps:
        model.pop(name, None)
        if weight:
            weights.set_weight(name, weight)
            model[name] = weight
        else:
            weights.drop_name(name)
        assert len(weights) == len(model)
        if not model:
            continue
        assert weights.heaviest() in expected(model, "")


def expected(model: dict[str, int], prefix: str) -> list[str]:
    """Every name that may go: of each branch that is as heavy as any, the oldest name or what is below."""
    branches: dict[str, int] = {}
    for each, weight in model.items():
        if each.startswith(prefix):
            level, more, _ = each.removeprefix(prefix).partition("/")
            branches[level + more if more else ""] = branches.get(level + more if more else "", 0) + weight
    heaviest = [branch for branch, weight in branches.items() if weight == max(branches.values())]
    names = [each for each in model if each.rpartition("/")[0] + "/" == (prefix or "/")]
    return [found for one in heaviest for found in (expected(model, prefix + one) if one else names[:1])]


def test_a_prefix_that_floods_loses_its_own() -> None:
    weights = NameWeights()
    for name in ("plant/a/1", "plant/b", "plant/a"):
        weights.set_weight(name, 1)
    for number in range(1_000):
        weights.set_weight(f"plant/evil/{number}", 1)
        if number >= 10:
            assert weights.heaviest() == f"plant/evil/{number - 10}"
            weights.drop_name(weights.heaviest())
    assert len(weights) == 13
