"""The page of symptoms holds every warning and error of the registry once, and its commands exist."""

from __future__ import annotations

import importlib
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer

from gateway.base.log_events import LogEvent
from gateway.cli import app

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "generate"))
    return importlib.import_module("troubleshooting")


def test_every_warning_and_error_stands_under_one_symptom(page: Any) -> None:
    placed = Counter(event for symptom in page.SYMPTOMS for event in symptom.events)
    assert not {event.id for event, times in placed.items() if times > 1}
    loud = {event for event in LogEvent if event.level >= logging.WARNING}
    assert {event.id for event in loud - placed.keys()} == set(), "say in docs/generate/troubleshooting.py what to do"
    assert {event.id for event in placed.keys() - loud} == set(), "no trouble"


def test_the_commands_of_the_page_are_commands(page: Any) -> None:
    group = typer.main.get_command(app)
    for symptom in page.SYMPTOMS:
        words = symptom.command.split()
        assert words[0] == "veilmq"
        found: Any = group
        for word in words[1:]:
            if not hasattr(found, "commands"):
                break
            if word.startswith("-"):
                break
            assert word in found.commands, symptom.command
            found = found.commands[word]
        options = {name for each in found.params for name in each.opts} | {"--help"}
        for word in words[2:]:
            assert not word.startswith("-") or word in options, f"{symptom.command}: {word}"


def test_the_page_shows_cause_cure_and_command(page: Any) -> None:
    text = page.troubleshooting_page()
    for symptom in page.SYMPTOMS:
        assert f"## {symptom.title}\n\n{symptom.cure}\n\n    {symptom.command}\n" in text
    assert "| `link_up` |" not in text
    assert "%s" not in text
