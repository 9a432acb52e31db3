"""`veilmq traces` and `veilmq trust issue --role entity`, as an operator meets them."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from bridge.traces.kinds import EVERYTHING, Interest, TraceKind
from bridge.tracking.entity import Stage, Wishes
from bridge.tracking.tracker import Observed
from gateway.commands import trace_board
from gateway.tracing.client import TracedEntity
from gateway.tracing.store import TraceStore
from gateway.trust.credentials import Credentials
from gateway.trust.errors import TrustError
from tests.gateway.traced_site import Site
from tests.waits import wait_until

START_MS = 1_800_000_000_000


def seen(entity: str, kind: TraceKind, second: int, **fields: Any) -> Observed:
    return Observed(entity, kind, START_MS + second * 1000, second + 1, fields)


STORY = (
    seen("pump", TraceKind.JOIN, 0),
    seen("pump", TraceKind.READY, 1, state="READY"),
    seen("pump", TraceKind.ALLS_WELL, 2, latency_ms=3),
    seen("fan", TraceKind.JOIN, 2),
    seen("pump", TraceKind.LOAD_INFORMATION, 3, cpu=0.5),
    seen("pump", TraceKind.NETWORK_METRICS, 4, loss_rate=0.25, latency_ms=4, jitter_ms=None),
    seen("fan", TraceKind.FAILURE_SUSPICION, 5),
    seen("fan", TraceKind.FAILED, 6),
)


# -------------------------------------------------------------------------------------- list and history


def test_list_and_history_of_a_file(tmp_path: Path, veilmq: Any) -> None:
    path = tmp_path / "seen.sqlite3"
    store = TraceStore(path)
    for each in STORY:
        store.observe(each)
    store.close()
    status, out, err = veilmq("traces", "list", "--history", path, "--json")
    assert (status, err) == (0, "")
    assert [(row["entity"], row["health"], row["state"]) for row in json.loads(out)] == [
        ("fan", "failed", ""), ("pump", "alive", "READY"),
    ]  # fmt: skip
    status, out, err = veilmq("traces", "history", "fan", "--history", path, "--limit", "2", "--json")
    assert (status, err) == (0, "")
    assert [row["kind"] for row in json.loads(out)] == ["FAILURE_SUSPICION", "FAILED"]
    status, out, err = veilmq("traces", "list", "--history", path)
    assert (status, err) == (0, "")
    assert "pump" in out
    assert "25%" in out
    status, out, err = veilmq("traces", "history", "pump", "--history", path)
    assert (status, err) == (0, "")
    assert "2027-01-15 08:00:03" in out


def test_who_is_away_who_flaps_and_how_groups_stand(tmp_path: Path, veilmq: Any) -> None:
    path = tmp_path / "seen.sqlite3"
    store = TraceStore(path)
    for place in range(3):
        store.observe(seen("shop:a", TraceKind.JOIN, 10 * place))
        store.observe(seen("shop:a", TraceKind.FAILED, 10 * place + 5))
    store.observe(seen("shop:b", TraceKind.DISCONNECT, 2, since_ms=START_MS))
    store.observe(seen("pump", TraceKind.ALLS_WELL, 3))
    store.close()
    _, out, _ = veilmq("traces", "list", "shop:*", "--offline", "--history", path, "--json")
    assert [(row["entity"], row["flaps"]) for row in json.loads(out)] == [("shop:b", 0), ("shop:a", 3)]
    _, out, _ = veilmq("traces", "list", "--groups", "--history", path, "--json")
    assert json.loads(out) == {"all": {"alive": 1}, "shop": {"disconnected": 1, "failed": 1}}
    _, out, _ = veilmq("traces", "list", "pump", "--history", path)
    assert "shop" not in out
    _, out, _ = veilmq("traces", "history", "shop:a", "--history", path)
    assert "5 s" in out, "how long it was so"


@pytest.mark.parametrize("command", [("list",), ("history", "pump"), ("watch", "pump", "--credentials", "none")])
def test_what_is_missing_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, veilmq: Any, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = veilmq("traces", *command)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "traces.sqlite3").exists()


# ------------------------------------------------------------------------------------------------- watch


@pytest.mark.long
def test_watch_prints_and_writes_down_what_comes(site: Site, tmp_path: Path, veilmq: Any) -> None:
    path = tmp_path / "seen.sqlite3"
    wishes = Wishes(("desk",))
    with (
        site.running() as port,
        TracedEntity(site.credentials("pump"), "127.0.0.1", port, wishes=wishes) as pump,
    ):
        pump.state("READY")
        assert wait_until(lambda: pump.stage is Stage.TRACED)
        arguments = ("--credentials", site.credentials("desk"), "--gateway", f"127.0.0.1:{port}", "--seconds", "4")
        status, out, err = veilmq("traces", "watch", "pump", *arguments, "--history", path, "--json")
        assert (status, err) == (0, "")
        lines = [json.loads(line) for line in out.splitlines()]
        assert {line["entity"] for line in lines} == {"pump"}
        assert "ALLS_WELL" in {line["kind"] for line in lines}
        status, out, err = veilmq("traces", "watch", "pump", *arguments[:-1], "1")
        assert (status, err) == (0, "")
        assert [line.split()[:2] for line in out.splitlines() if "pump" in line] == [["pump", "alive"]]
        assert "READY" in next(line for line in out.splitlines() if "pump" in line), "a row in a pipe is one line"
    _, out, _ = veilmq("traces", "history", "pump", "--history", path, "--json")
    assert [row["kind"] for row in json.loads(out)] == [line["kind"] for line in lines]


@pytest.mark.long
def test_watch_follows_whoever_is_called_so(site: Site, veilmq: Any) -> None:
    with (
        site.running() as port,
        TracedEntity(site.credentials("pump-a"), "127.0.0.1", port, wishes=Wishes(("desk",))) as first,
        TracedEntity(site.credentials("pump-b"), "127.0.0.1", port, wishes=Wishes(("somebody",))) as second,
    ):
        for each in (first, second):
            assert wait_until(lambda each=each: each.stage is Stage.TRACED)  # type: ignore[misc]
        arguments = ("--credentials", site.credentials("desk"), "--gateway", f"127.0.0.1:{port}", "--seconds", "3")
        status, out, err = veilmq("traces", "watch", "pump-*", *arguments, "--json")
    assert (status, err) == (0, "")
    assert {json.loads(line)["entity"] for line in out.splitlines()} == {"pump-a"}


def watched(veilmq: Any, site: Site, port: int, *entities: str, more: tuple[str, ...] = ()) -> tuple[int, str, float]:
    """Exit status, what was said of errors, seconds."""
    began = time.monotonic()
    arguments = ("--credentials", site.credentials("desk"), "--gateway", f"127.0.0.1:{port}", "--seconds", "20")
    status, _, err = veilmq("traces", "watch", *entities, *arguments, "--json", *more)
    return status, err, time.monotonic() - began


@pytest.mark.long
def test_watch_says_that_nobody_answers(site: Site, veilmq: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_board, "PATIENCE_S", 1.5)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        status, err, took_s = watched(veilmq, site, taken.getsockname()[1], "pump")
    assert (status, took_s < 9) == (2, True)
    assert "cannot be reached" in err


@pytest.mark.long
def test_watch_says_that_nobody_of_that_name_is_there(site: Site, veilmq: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.tracking.tracker.FOUND_S", 0.5)
    monkeypatch.setattr(trace_board, "PATIENCE_S", 0.5)
    monkeypatch.setattr(trace_board, "GIVE_UP_S", 0.5)
    with site.running() as port:
        status, err, took_s = watched(veilmq, site, port, "nobody")
    assert (status, took_s < 9) == (2, True)
    assert err.count("\n") == 1
    assert "nobody: no entity of that name" in err


@pytest.mark.long
def test_watch_says_that_its_password_is_refused(site: Site, veilmq: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_board, "PATIENCE_S", 1.5)
    with site.running(allow_anonymous=False, plugins={}) as port:
        status, err, took_s = watched(veilmq, site, port, "pump", more=("--username", "desk"))
    assert (status, took_s < 9) == (2, True)
    assert "refuses us" in err


def test_watch_refuses_an_address_that_is_none(site: Site, veilmq: Any) -> None:
    status, out, err = veilmq("traces", "watch", "pump", "--credentials", site.credentials("desk"), "--gateway", "x")
    assert (status, out) == (2, "")
    assert "HOST:PORT" in err


# ------------------------------------------------------------------------------------------- credentials


def test_an_entity_is_issued_and_loads(site: Site, tmp_path: Path, veilmq: Any) -> None:
    card, out = site.gateway.directory / "card.json", tmp_path / "pump-7"
    issue = ("trust", "issue", site.domain.directory, "--name", "pump-7", "--role", "entity", "--out", out)
    status, said, err = veilmq(*issue, "--node", card)
    assert (status, err) == (0, "")
    assert "pump-7" in said
    made = Credentials.load(out, time.time())
    assert (made.name, made.nodes) == ("pump-7", {"gate": site.gateway.card.public_key})
    assert (out / "key.pem").stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in repr(made)
    status, _, err = veilmq(*issue, "--node", card)
    assert (status, err.count("\n")) == (2, 1)
    assert "holds an identity already" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--name", "a", "--role", "entity"), "--node"),
        (("--name", "a", "--role", "entity", "--host", "b", "--node", "CARD"), "leave --host out"),
        (("--name", "a", "--role", "gateway", "--node", "CARD"), "leave --node out"),
        (("--name", "Broker", "--role", "entity", "--node", "CARD"), "Broker"),
        (("--name", "Publish-Only", "--role", "entity", "--node", "CARD"), "Publish-Only"),
        (("--name", "a/b", "--role", "entity", "--node", "CARD"), "a/b"),
        (("--name", "a", "--role", "entity", "--node", "nothing.json"), "nothing.json"),
        (("--name", "a", "--role", "plumber"), "entity"),
    ],
)
def test_what_cannot_be_issued_is_refused(
    site: Site, tmp_path: Path, veilmq: Any, options: tuple[str, ...], said: str
) -> None:
    card = str(site.gateway.directory / "card.json")
    given = [card if option == "CARD" else option for option in options]
    status, out, err = veilmq("trust", "issue", site.domain.directory, "--out", tmp_path / "new", *given)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert not (tmp_path / "new").exists()


def test_credentials_that_do_not_hold_are_refused(site: Site) -> None:
    directory = site.credentials("damaged")
    with pytest.raises(TrustError, match="issue the entity anew"):
        Credentials.load(directory, time.time() + 826 * 86_400)
    path = directory / "entity.json"
    content = json.loads(path.read_text())
    other = json.loads((site.credentials("other") / "entity.json").read_text())
    path.write_text(json.dumps({**content, "certificate": other["certificate"]}))
    with pytest.raises(TrustError, match="different keys"):
        Credentials.load(directory, time.time())
    path.write_text(json.dumps({**content, "nodes": {}}))
    with pytest.raises(TrustError, match="--node"):
        Credentials.load(directory, time.time())
    path.write_text("[]")
    with pytest.raises(TrustError, match="damaged"):
        Credentials.load(directory, time.time())
    (directory / "key.pem").chmod(0o644)
    with pytest.raises(TrustError):
        Credentials.load(directory, time.time())


def test_a_damaged_advertisement_is_as_none(site: Site) -> None:
    credentials = Credentials.load(site.credentials("fresh"), time.time())
    assert credentials.advertisement() is None
    (credentials.directory / "topic.bin").write_bytes(b"damaged")
    assert credentials.advertisement() is None


@pytest.mark.long
def test_watch_follows_only_what_is_wanted(tmp_path: Path, veilmq: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[tuple[str, Interest]] = []
    monkeypatch.setattr(
        "gateway.tracing.client.Tracker.follow", lambda self, entity, interest: followed.append((entity, interest))
    )
    credentials = Site(tmp_path).credentials("desk")
    watch = ("traces", "watch", "pump-7", "--credentials", credentials, "--gateway", "127.0.0.1:1", "--seconds", "0")
    veilmq(*watch, "--interest", "changes", "--interest", "load")
    veilmq(*watch)
    assert followed == [("pump-7", Interest.CHANGES | Interest.LOAD), ("pump-7", EVERYTHING)]
    status, _, err = veilmq(*watch, "--interest", "loud")
    assert status == 2
    assert err == "veilmq: --interest loud: there are all_updates, changes, load, network, states\n"
