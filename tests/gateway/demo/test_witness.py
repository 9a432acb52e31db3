"""The subscriber of the demonstration writes down what came, judges nothing, and takes no probe for a message."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.demo import witness
from gateway.demo.logs import LineLog, read_lines
from gateway.demo.witness import Watcher, _state


class FakeClient:
    """paho's client, as far as a watcher uses it: nothing is connected."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.options, self.done = options, list[Any]()

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.done.append((name, *arguments))


@pytest.fixture
def watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    monkeypatch.setattr(witness, "Client", FakeClient)
    with LineLog(tmp_path / "log") as log:
        made = Watcher("sealed", 1883, ("machine/#", "entities/#"), log)
        yield made  # type: ignore[misc]


def message(topic: str, payload: bytes, **properties: Any) -> Any:
    return SimpleNamespace(topic=topic, payload=payload, properties=SimpleNamespace(**properties))


def came(watcher: Watcher, tmp_path: Path, *messages: Any) -> list[dict[str, Any]]:
    for each in messages:
        watcher._on_message(None, None, each)  # type: ignore[arg-type]
    watcher._log.flush()
    return list(read_lines(tmp_path / "log"))


def test_each_way_is_a_client_of_its_own_that_subscribes_at_every_connection(watcher: Watcher) -> None:
    client: Any = watcher.client
    assert client.options["client_id"] == "control-room-sealed"
    watcher._on_connect(client)
    assert client.done[-1] == ("subscribe", [("machine/#", 1), ("entities/#", 1)])
    assert not watcher.is_subscribed
    client.on_subscribe(client, None, 1, [], None)
    assert watcher.is_subscribed


def test_what_came_is_written_down_as_it_came(watcher: Watcher, tmp_path: Path) -> None:
    properties = [("sensor", "cpu")]
    first, second = came(
        watcher, tmp_path, message("machine/m/cpu/0", b'{"id": "m1"}', UserProperty=properties),
        message("machine/m/cpu/0", b"forged"),
    )  # fmt: skip
    assert (first["path"], first["id"], first["topic"]) == ("sealed", "m1", "machine/m/cpu/0")
    assert first["properties"] == [["sensor", "cpu"]]
    assert (second["id"], second["properties"]) == ("", [])
    assert second["at_ns"] >= first["at_ns"]
    assert watcher.ids == {"m1", ""}


def test_probes_are_no_messages_and_states_no_telemetry(watcher: Watcher, tmp_path: Path) -> None:
    lines = came(
        watcher, tmp_path, message("machine/m/probe/v3", b'{"id": "probe-v3-0"}'),
        message("entities/site/pump/availability", b'{"state": "online"}'),
        message("entities/site/pump/availability", b'{"state": "offline"}'),
    )  # fmt: skip
    assert len(lines) == 1
    assert (watcher.ids, watcher.probes) == (set(), {"machine/m/probe/v3"})
    assert watcher.entities == {"entities/site/pump/availability": "offline"}


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b"{}", b"3"])
def test_a_state_that_cannot_be_read_is_unknown(payload: bytes) -> None:
    assert _state(payload) == "unknown"
