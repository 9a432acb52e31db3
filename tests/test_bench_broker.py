"""The bench of the broker beside others: which programs it takes, and the table that it makes of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Publish
from tests.bench import load, peers, quick
from tests.bench.broker_table import table
from tests.bench.peers import AMQTT, MOSQUITTO, OURS, PACKAGED, versions


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that says that it is Mosquitto 9.8.7."""
    made = tmp_path / "mosquitto"
    made.write_text("#!/bin/sh\necho 'mosquitto version 9.8.7'\necho\nexit 3\n")
    made.chmod(0o755)
    return made


@pytest.fixture(autouse=True)
def fresh() -> None:
    versions.cache_clear()


def test_the_variable_names_mosquitto_and_the_installed_one_stands_beside_it(
    monkeypatch: pytest.MonkeyPatch, program: Path, tmp_path: Path
) -> None:
    installed = tmp_path / "bin" / "mosquitto"
    installed.parent.mkdir()
    installed.write_text("#!/bin/sh\necho 'mosquitto version 1.2.3'\n")
    installed.chmod(0o755)
    monkeypatch.setenv("PATH", str(installed.parent))
    monkeypatch.setenv("MOSQUITTO", str(program))
    found = versions()
    assert (found[MOSQUITTO], found[PACKAGED]) == ("9.8.7", "1.2.3")
    assert {OURS, AMQTT} <= found.keys()


def test_without_the_variable_the_installed_one_is_the_only_one(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    monkeypatch.delenv("MOSQUITTO", raising=False)
    monkeypatch.setenv("PATH", str(program.parent))
    found = versions()
    assert found[MOSQUITTO] == "9.8.7"
    assert PACKAGED not in found


def test_a_variable_that_names_no_program_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MOSQUITTO", "/nowhere/mosquitto")
    with pytest.raises(SystemExit) as ended:
        peers.mosquitto()
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == ["bench: /nowhere/mosquitto is no program; correct MOSQUITTO"]


def test_a_run_becomes_a_table_that_names_versions_and_load() -> None:
    row = {"bench": "broker", "name": "a", "work": "QoS 1", "ours": 26000.4, "peer": 66000.0, "ratio": 0.394}
    row |= {"unit": "msg/s", "goal": ">= 1 x", "is_met": False, "cpu_us": 16.04, "peer_cpu_us": 7.91}
    lines = [
        {"bench": "broker", "found": {"veilmq": "1", "mosquitto": "2.1.2"}, "day": "2026-01-02", "load_before": 0.1},
        {**row, "peer_name": "mosquitto", "peer_version": "2.1.2"},
        {**row, "peer_name": "amqtt", "peer_version": "0.12.1", "goal": "", "is_met": None, "cpu_us": 0.0},
        {"bench": "broker", "load_after": 1.2},
    ]
    found = table(lines).splitlines()
    assert found[0] == "2026-01-02, beside mosquitto 2.1.2; load of the machine 0.1 before, 1.2 after."
    assert found[4] == "| QoS 1 | 26,000 msg/s | mosquitto 2.1.2: 66,000 | 0.39 | ≥ 1, missed | 16.0, 7.9 |"
    assert found[5] == "|  | 26,000 msg/s | amqtt 0.12.1: 66,000 | 0.39 |  |  |"
    assert len(table(lines, is_short=True).splitlines()) == 5


@pytest.mark.parametrize("given", [None, "", "/nowhere"])
def test_the_quick_bench_without_another_version_ends_with_one_line(
    given: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        quick.base_directory(given)
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "git worktree add" in said[0]


def test_a_row_of_the_quick_bench_imports_from_the_version_that_it_measures(tmp_path: Path) -> None:
    for name in ("keys", "other"):
        (tmp_path / name / "keys").mkdir(parents=True)
        (tmp_path / name / "keys" / "__init__.py").write_text(f"FIGURE = {len(name)}.5\n")
    row = quick.Row("figure", code="import keys; print(keys.FIGURE)")
    assert quick.measured(row, tmp_path / "keys") == 4.5
    assert quick.measured(row, tmp_path / "other") == 5.5


def test_there_are_eleven_rows() -> None:
    assert len(quick.ROWS) == 11


@pytest.mark.parametrize("name", peers.DESIGNS)
def test_a_design_of_sockets_acknowledges_and_passes_on(name: str) -> None:
    with peers.start(name, peers.cores()[0], is_durable=False) as broker:
        reader, writer = load.open_client(broker.port, "reader"), load.open_client(broker.port, "writer")
        load.subscribe(reader, qos=1)
        sent = [encode(Publish(load.TOPIC, load.PAYLOAD, 1, packet_id=number), load.V3) for number in (1, 2)]
        writer.sendall(b"".join(sent))
        assert load.receive(writer, 8) == b"\x40\2\0\1\x40\2\0\2"
        assert load.receive(reader, 2 * len(sent[0])) == b"".join(sent)
        reader.close()
        writer.close()


def test_a_base_is_run_with_its_own_entry_points(tmp_path: Path) -> None:
    (tmp_path / "tests" / "bench").mkdir(parents=True)
    (tmp_path / "tests" / "bench" / "peers.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "veilmq"\nversion = "0.0.1"\n[project.entry-points."veilmq.commands"]\nold = "was:app"\n'
    )
    base = quick.base_directory(str(tmp_path))
    code = "from importlib.metadata import entry_points; print(len(entry_points(group='veilmq.commands', name='old')))"
    assert quick.printed(code, base) == 1
    code = "from importlib.metadata import entry_points; print(len(entry_points(group='veilmq.commands')))"
    assert quick.printed(code, base) == 1
