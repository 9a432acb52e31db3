"""Every page of the manual is run as written (`tests/pages.py`), or stands in a list that only shrinks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.pages import ROOT, Step, pages, running, steps_of
from tests.pages_known import ELSEWHERE, NOT_YET, RECIPES, Recipe

NOT_YET_MAX = 0
"""So many pages are not run; a page that is run from now on takes one off."""
NEEDS_NETWORK = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="networks of their own need root and iproute2"
)


def test_every_page_is_run_or_stands_in_the_list() -> None:
    known = [*RECIPES, *ELSEWHERE, *NOT_YET]
    assert sorted(known) == sorted(pages())
    assert len(NOT_YET) <= NOT_YET_MAX
    assert all((ROOT / test).is_file() for test in ELSEWHERE.values())
    for name, recipe in RECIPES.items():
        text = pages()[name].read_text("utf-8")
        named = [*recipe.goes_on, *recipe.stops, *recipe.refused, *recipe.ends, *recipe.waits, *recipe.left]
        commands = [step.text for step in steps_of(text, recipe)]
        gone = [each for each in named if not any(command.startswith(each) for command in commands)]
        assert not gone, f"{name} has no such command any more"
        assert not [each for each in recipe.swap if each not in text], f"{name} has no such words any more"


def test_what_is_taken_from_a_page() -> None:
    page = (
        "Say\n\n    veilmq one  # why\n    what it prints\n\n```yaml\na: 1\n```\n\n"
        "```sh\nveilmq two \\\n  --more\n# no\n```\n\n"
        "1. In a list\n\n        veilmq three\n\n```yaml\nb: 2\n```\n\n```yaml\nc: 3\n```\n"
    )
    assert list(steps_of(page, Recipe(files={"yaml": ["a.yaml", "", "a.yaml+"]}))) == [
        Step("veilmq one"), Step("a: 1\n", "a.yaml"), Step("veilmq two --more"), Step("veilmq three"),
        Step("c: 3\n", "a.yaml+"),
    ]  # fmt: skip


@NEEDS_NETWORK
@pytest.mark.slow
def test_a_command_that_fails_and_one_that_should_are_told_apart(tmp_path: Path) -> None:
    recipe = Recipe(refused={"veilmq check": "No such file"})
    with running(tmp_path, recipe) as run:
        assert len(run.run("    veilmq check -c none.yaml\n")) == 1
        with pytest.raises(AssertionError, match="veilmq overlay show none"):
            run.run("    veilmq overlay show none.json\n")
        with pytest.raises(AssertionError, match="ends with 0"):
            run.run("    veilmq check --help\n")


@NEEDS_NETWORK
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", RECIPES)
def test_the_page_as_written(tmp_path: Path, name: str) -> None:
    with running(tmp_path, RECIPES[name]) as run:
        done = run.run(pages()[name].read_text("utf-8"))
    assert done
    for command, seconds in done:
        print(f"{seconds:6.1f} s  {command}")
