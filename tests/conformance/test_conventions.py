"""Every statement of the table of conventions names a test that exists."""

from __future__ import annotations

import ast

import pytest

from tests.conformance.conventions import CONVENTIONS, Statement
from tests.conformance.test_table import ROOT

NAMED = [each for _, statements in CONVENTIONS.values() for each in statements if each.test]


@pytest.mark.parametrize("statement", NAMED, ids=lambda each: each.test.rpartition("::")[2])
def test_the_test_that_a_statement_names_exists(statement: Statement) -> None:
    path, _, name = statement.test.partition("::")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_a_statement_stands_once() -> None:
    texts = [each.text for _, statements in CONVENTIONS.values() for each in statements]
    assert len(set(texts)) == len(texts)
