"""Mistakes of the first hours: each is one line on standard error with the cause, exit status 2, and no traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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
}


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: " ".join(words)[:40])
def test_a_mistake_on_the_command_line(
    veilmq: Any, plant: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"PLANT": plant.directory, "OWNER": plant.directory / "owner", "OVERLAY": plant.overlay}
    before = plant.overlay.read_bytes()
    status, _, error = veilmq(*(places.get(word, word) for word in arguments))
    assert status == 2, error
    assert error.startswith("veilmq: "), error
    assert error.count("\n") == 1, error
    assert COMMANDS[arguments] in error, error
    assert plant.overlay.read_bytes() == before, "nothing is changed"
