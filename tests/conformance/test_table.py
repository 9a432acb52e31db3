"""The conformance table: every row against a real broker over a real socket, and no server statement without one."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.mqtt5.session import ServerSession
from tests.conformance.elsewhere import ELSEWHERE
from tests.conformance.exchanges import ROWS
from tests.conformance.harness import Exchange, Loop, run_row, serving
from tests.conformance.hearing import connack
from tests.conformance.mutants import MUTANTS
from tests.conformance.packets import subscribe
from tests.conformance.rows import V5, V311, Peer, Row, row
from tests.conformance.statements import statements

ROOT = Path(__file__).resolve().parents[2]
RUNS = [(one, version) for one in ROWS for version in one.proves]


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.stop()


@pytest.mark.parametrize(("one", "version"), RUNS, ids=[f"{one.name} ({version})" for one, version in RUNS])
def test_row(loop: Loop, one: Row, version: int) -> None:
    run_row(loop, one, version)


def test_every_server_statement_has_an_exchange_or_a_test() -> None:
    proved = {(version, number) for one in ROWS for version, numbers in one.proves.items() for number in numbers}
    assert proved <= set(statements()), "rows name statements that do not exist"
    assert set(ELSEWHERE) <= set(statements()) - proved, "what a row shows needs no other test"
    missing = [key for key, one in statements().items() if one.is_servers and key not in proved | set(ELSEWHERE)]
    assert missing == []


def test_the_statements_are_complete() -> None:
    """Numbers per chapter as in the appendices; a gap in a numbering would be a line that was lost."""
    chapters = Counter((version, number.split(".")[0]) for version, number in statements())
    assert dict(chapters) == {
        **{(V5, chapter): count for chapter, count in {"1": 5, "2": 7, "3": 175, "4": 60, "6": 4}.items()},
        **{(V311, chapter): count for chapter, count in {"1": 3, "2": 9, "3": 95, "4": 26, "6": 4, "7": 4}.items()},
    }
    sections: dict[tuple[int, str], list[int]] = {}
    for version, number in statements():
        section, _, last = number.rpartition("-")
        sections.setdefault((version, section), []).append(int(last))
    gaps = {key for key, found in sections.items() if sorted(found) != list(range(1, len(found) + 1))}
    assert gaps == {(V5, "2.2.1")}, "the specification itself begins there with 2.2.1-2"


def test_tests_named_elsewhere_exist() -> None:
    for place, _ in ELSEWHERE.values():
        path, _, name = place.partition("::")
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in functions or (not name and any(each.startswith("test_") for each in functions)), place


def test_names_of_rows_are_unique() -> None:
    assert [name for name, count in Counter(one.name for one in ROWS).items() if count > 1] == []


def test_a_fault_of_ours_while_a_packet_is_processed_closes_its_connection(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("disk on fire")

    a, b = Peer("a"), Peer("b")
    with serving(loop, {}) as broker:
        loop.loop.set_exception_handler(lambda *_: None)
        exchange = Exchange(loop, broker, V311)
        exchange.run(row("before", "3.1.1: 4.8.0-2", b.connects(), a.connects()))
        monkeypatch.setattr(ServerSession, "enter_granted", fails)
        exchange = Exchange(loop, broker, V311)
        exchange.run(
            row("fault", "3.1.1: 4.8.0-2", b.connects(), a.connects(), a.says(subscribe(1, ("t", 0))), a.is_closed())
        )
        exchange.run(row("after", "3.1.1: 4.8.0-2", b.connects(answer=connack()), b.hears_nothing()))
        loop.loop.set_exception_handler(None)


def test_the_table_can_be_printed() -> None:
    command = [sys.executable, "-m", "tests.conformance", "5", "3.8.4-2"]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "a sends" in text
    assert "82 0b" not in text.splitlines()[0]
    assert "MQTT-3.8.4-2" in text


def test_there_are_at_least_forty_mutants_and_each_applies_once() -> None:
    assert len(MUTANTS) >= 40
    for mutant in MUTANTS:
        source = (ROOT / mutant.file).read_text("utf-8")
        assert source.count(mutant.old) == 1, f"follow the change of {mutant.file} in mutants.py: {mutant.old!r}"
        assert mutant.old != mutant.new
        assert "\n" not in mutant.old
