"""Benches run seldom, so a name that goes is missed late: what they name of a module is looked up here."""

from __future__ import annotations

import ast
import importlib
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from tests.bench import bridged, lone, taken_ports

BENCHES = sorted((Path(__file__).parent / "bench").glob("*.py"))


def modules_in(tree: ast.AST) -> dict[str, ModuleType]:
    """The modules that are imported, by the names that they have there. Raises ImportError for what is in none."""
    found: dict[str, ModuleType] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name] = importlib.import_module(each.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            home = importlib.import_module(node.module)
            for each in node.names:
                if not hasattr(home, each.name):
                    importlib.import_module(f"{node.module}.{each.name}")
                value = getattr(home, each.name)
                if isinstance(value, ModuleType):
                    found[each.asname or each.name] = value
    return found


def missing(source: str) -> list[str]:
    """What is asked of an imported module, or patched in it, and is not there."""
    tree = ast.parse(source)
    modules, asked = modules_in(tree), set[tuple[str, str]]()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name(module), attribute):
                asked.add((module, attribute))
            case ast.Call(ast.Attribute(_, "object" | "setattr"), [ast.Name(module), ast.Constant(str(attribute)), *_]):
                asked.add((module, attribute))
    return sorted(f"{m}.{a}" for m, a in asked if m in modules and not hasattr(modules[m], a))


@pytest.mark.parametrize("path", BENCHES, ids=lambda path: path.stem)
def test_a_bench_names_nothing_that_is_gone(path: Path) -> None:
    assert missing(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from bridge.document import tree_checks as t\nt.DEPTH_MAX", []),
        ("from bridge.document import overlay as views\nmax(1, views.DEPTH_MAX)", ["views.DEPTH_MAX"]),
        ("from bridge.document import overlay\nmock.patch.object(overlay, 'DEPTH_MAX', 5)", ["overlay.DEPTH_MAX"]),
        ("import keys.shamir as s\ns.split, s.gone", ["s.gone"]),
    ],
)
def test_the_test_sees_what_it_is_for(source: str, found: list[str]) -> None:
    assert missing(source) == found


def test_where_mosquitto_is_missing_a_bench_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(SystemExit) as ended, bridged.chain(3, "a", 1):
        pass
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == ["bench: mosquitto is not installed; run `make tools` as root"]


def test_a_run_begins_anew_only_where_a_port_is_taken() -> None:
    said = ["r1 ended: the port is in use; stop what uses it", ""]

    def run() -> int:
        assert not (why := said.pop(0)), why
        return 7

    assert taken_ports.retried(run) == 7
    said += ["r1 does not listen"]
    with pytest.raises(AssertionError, match="does not listen"):
        taken_ports.retried(run)
    said += [taken_ports.SAID] * taken_ports.TRIES
    with pytest.raises(AssertionError, match=taken_ports.SAID):
        taken_ports.retried(run)
    assert not said


def test_a_lone_publication_stays_within_its_budget_of_calls() -> None:
    """The budget follows the figure: what became cheaper must not become dear again unnoticed."""
    typical = lone.typical(lone.measured())
    assert lone.CALLS_MAX * 0.95 < typical.calls <= lone.CALLS_MAX, typical.functions.most_common(20)
