"""Marks of tests that end a wait of `gateway.broker.waits`, so that a row without one is found."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from gateway.broker.waits import Wait

Test = TypeVar("Test", bound=Callable[..., object])


def ends(*waits: Wait) -> Callable[[Test], Test]:
    """Marks a test in which a client's publication waits at each of these places, and gets on."""
    assert waits

    def unchanged(test: Test) -> Test:
        return test

    return unchanged


def ended_in(source: str) -> Iterator[str]:
    """Yields the names of the waits that tests of this source end."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "ends":
                    yield from (one.attr for one in mark.args if isinstance(one, ast.Attribute))


def ended() -> set[str]:
    """Returns the names of the waits that some test of the gateway ends."""
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    return {name for path in files for name in ended_in(path.read_text("utf-8"))}
