"""The manual's own examples: commands that it names exist, files that it shows are understood, its tutorial runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
import yaml
from pydantic import BaseModel

from bridge.document import History
from gateway import cli
from gateway.base.config import Settings
from gateway.trust import load_overlay

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("*/README.md")])
CODE = re.compile(r"^(?:    |\t|\$ )*(veilmq .*)$|`(veilmq [^`]+)`", re.MULTILINE)
TUTORIAL = ROOT / "docs" / "tutorial.md"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def commands_in(text: str) -> Iterator[list[str]]:
    """Words of every command line of ours; those that stand for several are left out."""
    for found in CODE.finditer(text.replace("\\\n", " ")):
        line = (found[1] or found[2]).split("  #")[0]
        if not re.search(r"[|…]|\.\.\.", line):
            yield [word for word in shlex.split(line.replace("'", '"'))[1:] if word != "&"]


def unknown(words: list[str]) -> str:
    """What of a command line does not exist; empty if all does."""
    command: Any = typer.main.get_command(cli.app)
    options = {option for each in command.params for option in each.opts} | {"--help", "-h"}
    for word in words:
        if hasattr(command, "commands"):
            if word not in command.commands and (left_out := getattr(command, "left_out", None)):
                command = command.commands[left_out]
                options = {option for each in command.params for option in each.opts} | {"--help"}
                continue
            if word.startswith("-"):
                return "" if word in options else word
            if word not in command.commands:
                return "" if word.isupper() else word
            command = command.commands[word]
            options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)} | {"--help"}
        elif word.startswith("-") and word.split("=")[0] not in options:
            return word
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_that_a_page_names_exist(page: Path) -> None:
    wrong = [" ".join(words) for words in commands_in(page.read_text("utf-8")) if unknown(words)]
    assert not wrong


@pytest.mark.parametrize("line", ["nothing", "check --colour", "overlay sing x", "trust grant --member a --write b"])
def test_the_test_of_commands_sees_what_it_is_for(line: str) -> None:
    assert unknown(line.split())


def models_of(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_of(part)


def unknown_keys(value: Any, models: list[type[BaseModel]], named: bool = False) -> Iterator[str]:
    """Keys of a mapping that no model has. `named`: its keys are names, below which the models stand."""
    if isinstance(value, list):
        for each in value:
            yield from unknown_keys(each, models)
    elif isinstance(value, dict) and models:
        for key, below in value.items():
            if named:
                yield from unknown_keys(below, models)
                continue
            fields = [model.model_fields[key] for model in models if key in model.model_fields]
            if not fields:
                yield key
            for field in fields:
                is_named = str(field.annotation).startswith(("dict", "typing.Dict"))
                yield from unknown_keys(below, list(models_of(field.annotation)), is_named)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_configurations_that_a_page_shows_have_known_keys(page: Path) -> None:
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        shown = yaml.safe_load(block)
        if isinstance(shown, dict) and set(shown) & set(Settings.model_fields):
            assert not list(unknown_keys(shown, [Settings]))


def test_the_tutorial_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it that does not start a process: those are tested as processes elsewhere."""
    monkeypatch.chdir(tmp_path)
    text = TUTORIAL.read_text("utf-8")
    member = re.search(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert member
    ran = []
    for command, line in re.findall(r"^    (veilmq|sed) (.*)$", text, re.MULTILINE):
        words = shlex.split(line)
        if command == "sed":
            subprocess.run(["sed", *words], check=True)
            continue
        if words[0] in ("broker", "up", "ingest", "pub", "sub"):
            continue
        if words[:2] == ["overlay", "sign"] and "trust" in ran:
            with Path("plant/overlay.yaml").open("a") as description:
                description.write(member[1])
        assert cli.run(words) == 0, (line, capsys.readouterr().err)
        ran.append(words[0])
    assert ran == ["init", "check", "overlay", "trust", "overlay", "trust"]
    assert load_overlay(Path("plant/overlay.json"), 0).policy.scopes[0].history == History(7, 1000)
    assert "protected" in capsys.readouterr().out
