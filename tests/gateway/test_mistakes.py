"""Mistakes of the first hours: each is one line on standard error with the cause, exit status 2, and no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from gateway.cli import app
from gateway.setup import Made

CONFIGURATIONS = {
    "nosuch: 1": "nosuch: unknown key",
    "listeners: {default: {bind: 'a:b:c:99999'}}": "port",
    "listeners: {default: {bnd: '127.0.0.1:1'}}": "did you mean bind?",
    "listeners: {default: {bind: '127.0.0.1:1883', certfile: a.pem}}": "certfile and keyfile go together",
    "listeners: {default: {bind: '127.0.0.1:1883', ssl: true}}": "ssl needs certfile and keyfile",
    "listeners: [": "not valid YAML",
    "- a list": "",
    "limits: {connections: many}": "limits.connections",
    "limits: {packet_bytes: -1}": "limits.packet_bytes",
    "bridges: {up: {addresses: [':0'], topics: [{filter: '#'}]}}": ":0 is not HOST:PORT",
    "bridges: {up: {addresses: ['a:1883'], topics: [{filter: 'a/#/b'}]}}": "'#'",
    "overlay: {overlay: o.json}": "overlay.identity: missing",
    "overlay: {identity: nowhere, overlay: o.json}": "nowhere",
    "plugins: {no.such.Plugin: {}}": "no.such",
    "console: {bind: nowhere}": "nowhere is not HOST:PORT",
    "metrics: {bind: '127.0.0.1:port'}": "metrics",
    "log_level: loud": "log_level",
}


@pytest.mark.parametrize("content", CONFIGURATIONS, ids=range(len(CONFIGURATIONS)))
def test_a_mistake_in_a_configuration(veilmq: Any, tmp_path: Path, content: str) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(content + "\n")
    status, _, error = veilmq("check", "-c", path)
    lines = [line for line in error.splitlines() if line.startswith("veilmq: ")]
    assert (status, bool(lines)) == (2, True), error
    assert "Traceback" not in error
    assert CONFIGURATIONS[content] in error, error


COMMANDS = {
    ("nosuch",): "no such command",
    ("check",): "missing option",
    ("check", "-c", "nowhere.yaml"): "nowhere.yaml",
    ("broker", "-c", "nowhere.yaml"): "nowhere.yaml",
    ("broker", "--bind", "127.0.0.1:99999"): "port",
    ("init", "PLANT"): "",
    ("init", "new", "--port", "70000"): "--port 70000: take 1 to",
    ("init", "new", "--replicas", "2"): "",
    ("init", "new", "--protect", "a/#/b"): "'#'",
    ("init", "new", "--address", "r1"): "NAME=HOST:PORT",
    ("up", "nowhere"): "nowhere",
    ("status",): "whose status?",
    ("status", "-c", "nowhere.yaml"): "nowhere.yaml",
    ("status", "--overlay", "nowhere.json"): "nowhere.json",
    ("trust", "issue", "nowhere", "--name", "a", "--role", "gateway", "--out", "a"): "nowhere",
    ("trust", "issue", "OWNER", "--name", "a", "--role", "king", "--out", "a"): "role king does not exist",
    ("trust", "issue", "OWNER", "--name", "a", "--role", "listener", "--out", "a"): "give --host",
    ("trust", "renew", "nowhere", "--domain", "OWNER"): "nowhere",
    ("trust", "grant", "OVERLAY", "--owner", "OWNER", "--member", "g1"): "which rights?",
    ("trust", "grant", "OVERLAY", "--owner", "OWNER", "--member", "g9", "--read", "plant/#"): "g9",
    ("trust", "grant", "OVERLAY", "--owner", "OWNER", "--member", "g1", "--read", "other/#"): "known are plant/#",
    ("trust", "revoke", "OVERLAY", "--owner", "OWNER", "--member", "g1", "--read", "x/#"): "no right to read x/#",
    ("overlay", "show", "nowhere.json"): "nowhere.json",
    ("overlay", "sign", "nowhere.yaml", "--owner", "OWNER", "--out", "o.json"): "nowhere.yaml",
    ("users", "remove", "nowhere.json", "ann"): "no user ann",
    ("users", "add", "s.json", "ann", "--password", "x", "--rule", "topic reedwrite #"): "did you mean readwrite",
    ("restore", "nowhere.tar.gz", "back"): "nowhere.tar.gz",
    ("import", "nowhere.conf", "--out", "ours"): "nowhere.conf",
    ("traces", "list", "--history", "nowhere.db"): "nowhere.db",
    ("traces", "watch", "x", "--credentials", "nowhere"): "nowhere",
    ("simulate", "nothing", "--figure", "1"): "",
    ("join", "new", "--role", "king"): "take replica, gateway or keyserver",
    ("join", "new", "--address", "nowhere"): "nowhere",
    ("overlay", "attach", "OVERLAY", "--owner", "OWNER", "--region", "nowhere", "--card", "c.json"): "c.json",
    ("overlay", "detach", "OVERLAY", "--owner", "OWNER", "--member", "r9"): "r9",
    ("overlay", "show", "PLANT"): "",
    ("overlay", "place", "nowhere.yaml"): "nowhere.yaml",
    ("overlay", "organise", "nowhere.json"): "whom to ask?",
    ("trust", "rotate", "nowhere", "--domain", "OWNER"): "nowhere",
    ("trust", "export", "nowhere", "--out", "a.pem"): "nowhere",
    ("backup", "nowhere", "b.tar.gz"): "nowhere",
    ("restore", "broken.tar.gz", "back"): "broken.tar.gz",
    ("users", "list", "broken.json"): "broken.json",
    ("users", "group", "s.json", "g", "--rule", "topic"): "",
    ("passwd", "-D", "nowhere", "ann"): "nowhere",
    ("pub", "a/#", "x"): "wildcard",
    ("pub", "a", "x", "--port", "1"): "127.0.0.1:1",
    ("pub", "a", "x", "--mqtt", "6"): "6",
    ("pub", "a", "x", "-P", "noequals"): "noequals",
    ("pub", "a", "--file", "nowhere"): "nowhere",
    ("sub", "a/#/b", "--port", "1"): "#",
    ("sub", "a", "--password-file", "nowhere"): "nowhere",
    ("sub", "a", "--cafile", "nowhere.pem"): "nowhere.pem",
    ("sub", "a", "--certfile", "c.pem"): "--certfile and --keyfile go together",
    ("bench", "a/+"): "wildcard",
    ("bench", "--to", "nowhere"): "is no HOST:PORT",
    ("pub", "a", "x", "--log-level", "loud"): "unknown; take debug, info, warning, error",
    ("broker", "--log-level", "loud"): "unknown; take debug, info, warning, error",
    ("up", "PLANT", "--log-level", "loud"): "unknown; take debug, info, warning, error",
    ("top", "-c", "nowhere.yaml"): "nowhere.yaml",
    ("log", "trace", "-c", "nowhere.yaml"): "which messages?",
    ("ingest", "run", "--config", "nowhere.yaml"): "nowhere.yaml",
    ("ingest", "run", "--spool", "s", "--log-level", "loud"): "",
    ("ingest", "status", "nowhere"): "nowhere",
    ("ingest", "consumers", "nowhere"): "nowhere",
    ("ingest", "redrive", "nowhere"): "nowhere",
    ("ingest", "pack", "nowhere", "--grants", "g.json"): "",
    ("ingest", "jobs", "late", "--spool", "nowhere", "--grants", "g.json"): "nowhere",
}


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(words)[:40])
def test_a_mistake_on_the_command_line(
    veilmq: Any, plant: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.tar.gz").write_bytes(b"no archive")
    (tmp_path / "broken.json").write_text("{")
    places = {"PLANT": plant.directory, "OWNER": plant.directory / "owner", "OVERLAY": plant.overlay_path}
    before = plant.overlay_path.read_bytes()
    status, _, error = veilmq(*(places.get(word, word) for word in arguments))
    assert status == 2, error
    assert error.startswith("veilmq: "), error
    assert error.count("\n") == 1, error
    assert COMMANDS[arguments] in error, error
    assert plant.overlay_path.read_bytes() == before, "nothing is changed"


def leaves() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields every command of the command line, with its words."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        if hasattr(command, "commands"):
            for name, each in command.commands.items():
                yield from below(each, (*words, name))
        else:
            yield words, command

    return below(typer.main.get_command(app), ())


LEAVES = dict(leaves())


def one_line(veilmq: Any, *arguments: str | Path) -> str:
    """The line of a command that is a mistake."""
    status, _, error = veilmq(*arguments)
    assert status == 2, (arguments, error)
    assert error.startswith("veilmq: "), (arguments, error)
    assert error.count("\n") == 1, (arguments, error)
    return str(error)


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_an_option_that_does_not_exist(veilmq: Any, words: tuple[str, ...]) -> None:
    assert "--nosuch" in one_line(veilmq, *words, "--nosuch")


def test_every_command_is_among_them() -> None:
    assert len(LEAVES) > 50
    assert ("broker",) in LEAVES
    assert ("ingest", "run") in LEAVES


def needed(command: Any) -> list[str]:
    """Words for what a command must have besides its configuration."""
    words: list[str] = []
    for each in command.params:
        if each.required and each.name != "config":
            value = "1" if each.name == "message" else "x"  # the number of a message
            words += [value] if each.param_type_name == "argument" else [each.opts[0], value]
    return words


WITH_CONFIG = [words for words, command in LEAVES.items() if any("-c" in each.opts for each in command.params)]
FILES = {
    "nothing": (None, ""), "a directory": (Path, ""), "bytes": (b"\xff\xfe\x00", "not UTF-8"),
    "a list": (b"- 1\n", "mapping"), "no YAML": (b"a: [", "not valid YAML"), "a word": (b"word", "mapping"),
    "an unknown key": (b"nosuch: 1\n", "unknown key"), "a repeated key": (b"data: a\ndata: b\n", "repeated"),
}  # fmt: skip
"""Files that are no configuration, and a part of the line."""


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("words", WITH_CONFIG, ids=" ".join)
def test_a_file_that_is_no_configuration(veilmq: Any, tmp_path: Path, words: tuple[str, ...], kind: str) -> None:
    content, said = FILES[kind]
    path = tmp_path / "b.yaml"
    if content is Path:
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    more = ["--topic", "a"] if words == ("log", "trace") else []
    line = one_line(veilmq, *words, *needed(LEAVES[words]), *more, "-c", path)
    assert str(path) in line
    assert said in line
