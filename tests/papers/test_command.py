"""`veilmq simulate` as a user types it: found by its entry point, figures by number, mistakes in one line."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from gateway.cli import app
from papers.command import register
from papers.simulating.simulate import SimulateError


def test_the_command_is_found_by_its_entry_point() -> None:
    shown = CliRunner().invoke(app, ["simulate", "--help"])
    assert shown.exit_code == 0
    assert "Reproduce a figure of a source paper" in shown.stdout


def test_a_figure_is_printed_for_a_program() -> None:
    own = typer.Typer()
    register(own)
    shown = CliRunner().invoke(own, ["secret-forwarding", "--figure", "7", "--json"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout)["number"] == "7"


@pytest.mark.parametrize(
    ("told", "said"),
    [(["all"], "say where with --html DIR"), (["eventguard"], "say which figure with --figure N")],
)
def test_what_is_missing_is_said_with_the_cure(told: list[str], said: str) -> None:
    own = typer.Typer()
    register(own)
    shown = CliRunner().invoke(own, told)
    assert isinstance(shown.exception, SimulateError)
    assert said in str(shown.exception)
