"""What runs beside a broker: begun as configured, named once, and taken away in order."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.topology import LinkWitness
from gateway import attached as module
from gateway.attached import BROKER_NAME, Attached, _view, _waiting
from gateway.base import LinkFigures, LinkState, Settings, StartError, parse
from gateway.bridging import BridgeStanding
from gateway.clients import INTERNAL, EntityConnected, EntityGone
from gateway.health import DEGRADED, Certificates, Finding, View
from tests.gateway.harness import on_loop

VIEW = View(now=0.0)


def settings(**content: Any) -> Settings:
    return parse({"listeners": {"default": {"bind": "127.0.0.1:0"}}, **content})


def test_a_broker_has_one_name_in_the_marks_of_bridges(tmp_path: Path) -> None:
    kept = settings(data=str(tmp_path))
    name = Attached(kept, None)._broker_name()
    assert name.startswith("broker-")
    assert Attached(kept, None)._broker_name() == name, "drawn once"
    assert (tmp_path / BROKER_NAME).read_text() == f"{name}\n"
    links: Any = SimpleNamespace(figures=SimpleNamespace(name="g1"))
    assert Attached(kept, links)._broker_name() == "g1", "in an overlay that is our name"
    assert Attached(settings(), None)._broker_name() != Attached(settings(), None)._broker_name(), "nothing is kept"


def test_a_name_that_is_none_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / BROKER_NAME
    path.touch(0o600)
    path.write_bytes(b"\xff")
    with pytest.raises(StartError, match=r"broker\.name: .*; remove it"):
        Attached(settings(data=str(tmp_path)), None)._broker_name()


class FakeHooks:
    """Events as they were told."""

    made: FakeHooks

    def __init__(self, given: object, publisher: object, name: str) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.done: list[str] = []
        FakeHooks.made = self

    def tell_event(self, event: str, user: str = "", **fields: Any) -> None:
        self.told.append((event, fields))

    def start(self) -> None:
        self.done.append("start")

    async def stop(self) -> None:
        self.done.append("stop")


def test_events_are_of_clients_and_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Hooks", FakeHooks)
    monkeypatch.setattr(module, "LocalEnd", lambda name, broker: None)
    watchers: list[Any] = []
    broker: Any = SimpleNamespace(exchange=SimpleNamespace(watchers=watchers))
    watch: Any = SimpleNamespace(on_change=None)
    Attached(settings(), None)._begin_hooks(broker, watch)
    (watched,) = watchers
    came = {
        "client_id": "pump",
        "owner": "operator",
        "origin": "192.0.2.7:4711",
        "clean": False,
        "reason": "keep-alive",
    }
    for kind in (EntityConnected, EntityGone):
        event = object.__new__(kind)
        for name, value in came.items():
            if name in kind.__dataclass_fields__:
                object.__setattr__(event, name, value)
        watched(event)
    watch.on_change(Finding(DEGRADED, "disk:/data", "the disk is nearly full; free"), True)
    assert FakeHooks.made.told == [
        ("connected", {"client": "pump", "address": "192.0.2.7:4711"}),
        ("disconnected", {"client": "pump", "clean": False, "reason": "keep-alive"}),
        (
            "finding",
            {"level": DEGRADED, "about": "disk", "text": "the disk is nearly full; free", "begins": True},
        ),
    ]
    assert FakeHooks.made.done == ["start"]


def broker_with(**waiting: int) -> Any:
    clients = {
        f"{INTERNAL}bridge/{name}": SimpleNamespace(session=SimpleNamespace(waiting=range(count)))
        for name, count in waiting.items()
    }
    return SimpleNamespace(lifecycle=SimpleNamespace(clients=clients), operation=SimpleNamespace(observe=lambda: None))


def bridge(name: str, up: bool, error: str = "") -> Any:
    stands = BridgeStanding(name, up, 1.0, error, 0, 0, 0, 0)
    return SimpleNamespace(standing=lambda: stands)


def test_a_bridge_that_is_down_is_a_finding_with_what_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = broker_with(cloud=12, spare=0)
    monkeypatch.setattr(module, "look", lambda *told: VIEW)
    view = _view(
        settings(), None, broker,
        [bridge("cloud", False, "refuses us; correct the password"), bridge("spare", False), bridge("ok", True)],
        Certificates(), LinkWitness(),
    )  # fmt: skip
    assert [(finding.key, finding.level) for finding in view.more] == [
        ("bridge:cloud", DEGRADED), ("bridge:spare", DEGRADED),
    ]  # fmt: skip
    assert view.more[0].text == "bridge cloud: refuses us; correct the password; 12 messages wait for it here"
    assert view.more[1].text == "bridge spare: not connected yet; 0 messages wait for it here"
    assert {name: one["waiting"] for name, one in view.details["bridges"].items()} == {"cloud": 12, "spare": 0, "ok": 0}
    assert _waiting(broker, "nobody") == 0


def test_without_bridges_the_view_is_what_was_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "look", lambda *told: VIEW)
    assert _view(settings(), None, broker_with(), [], Certificates(), LinkWitness()) is VIEW


def test_a_member_says_what_it_saw_of_others_both_links_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "look", lambda *told: VIEW)
    monkeypatch.setattr(module, "standing", lambda *told: None)
    up = [LinkState("r2", True, True, 0, 0, LinkFigures(sent=3)), LinkState("r3", True, True, 0, 0, LinkFigures())]
    down = [LinkState("r2", True, False, 0, 0, LinkFigures(sent=3)), LinkState("r3", True, False, 0, 0, LinkFigures())]
    down.append(LinkState("r3", False, True, 0, 0, LinkFigures(received=7)))
    witness, broker = LinkWitness(), broker_with()
    seen: dict[str, Any] = {}
    for links in (up, down):
        party: Any = SimpleNamespace(figures=SimpleNamespace(links=lambda links=links: links))
        seen = _view(settings(), party, broker, [], Certificates(), witness).details["seen"]
    assert (seen["r2"]["failures"], seen["r3"]["failures"]) == (1, 0)
    assert seen["r3"]["from_per_s"] > 0


class Part:
    """Something that was begun; notes in which order it ends."""

    def __init__(self, name: str, done: list[str]) -> None:
        self._name, self._done = name, done

    async def stop(self) -> None:
        self._done.append(self._name)


@on_loop
async def test_all_ends_hooks_last_so_that_they_hear_of_the_rest() -> None:
    done: list[str] = []
    beside = Attached(settings(), None)
    parts: Any = beside
    parts._server, parts._hooks = Part("server", done), Part("hooks", done)
    parts._bridges = [Part("one", done), Part("two", done)]
    parts._watch = SimpleNamespace(stop=lambda: done.append("watch"))
    parts._log = logging.NullHandler()
    logging.getLogger("veilmq").addHandler(parts._log)
    parts._starting = asyncio.get_running_loop().create_task(asyncio.sleep(0))
    await beside.end_parts()
    assert parts._starting.done(), "never stopped while it starts"
    assert done == ["server", "watch", "one", "two", "hooks"]
    assert parts._log not in logging.getLogger("veilmq").handlers


@on_loop
async def test_a_page_that_cannot_be_served_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def start() -> None:
        raise StartError("console: cannot serve at 127.0.0.1:1: in use; correct bind or files")

    server: Any = SimpleNamespace(start=start)
    await Attached._serve(server)
    assert "console: cannot serve at 127.0.0.1:1" in caplog.text


def test_telemetry_without_its_libraries_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gateway.telemetry.exporting", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    attached = Attached(settings(telemetry={"otlp": "http://127.0.0.1:4318"}), None)
    assert attached._settings.telemetry is not None
    with pytest.raises(StartError, match=r"telemetry: opentelemetry is missing; pip install 'veilmq\[otel\]'"):
        attached._export(Any, attached._settings.telemetry)  # type: ignore[arg-type]


def test_nobody_loads_opentelemetry_without_asking_for_it() -> None:
    modules = "gateway.cli, gateway.party, gateway.checking.check"
    code = f"import sys, {modules}; print([m for m in sys.modules if m.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
