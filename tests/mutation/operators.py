"""The small faults that a module can have: each is one change of its text that a test should notice.

`mutations(source)` gives them all, in the order of the text. What a fault looks like:

    a condition     is always true, always false; `not` is gone; `and` is `or`; one side of either is gone
    a comparison    takes in its bound or leaves it out; means the opposite
    arithmetic      + is -, & is |, << is >>, // is *
    a value         a number is one more, a truth value the other, text and bytes are others
    a statement     a call, a raise, an assignment to an attribute or an item does not happen; a loop goes on or ends
    a choice        min is max, any is all, sorted is not

Left alone: annotations, decorators, docstrings, texts of errors (`raise ...`), asserts, `strict=` of zip, signatures
that are not there yet, and numbers in CAPITALS at the top of a module: tests know such a bound by its name, so that
they cannot and need not notice another.
"""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
_CHOICES = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}


@dataclass(frozen=True, slots=True)
class Mutation:
    """`line` counts from 1; `old` is the stripped line as it is, `new` as it becomes. `text`: the whole module."""

    line: int
    old: str
    new: str
    text: bytes


def mutations(source: str) -> Iterator[Mutation]:
    """Every fault of a module, none twice."""
    return _Faults(source).mutations()


class _Faults(ast.NodeVisitor):
    """Collects (start, end, replacement) in bytes of the source."""

    def __init__(self, source: str) -> None:
        self._text = source.encode()
        self._starts = [0]
        for line in self._text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._tree = ast.parse(source)
        self._edits: set[tuple[int, int, str]] = set()

    def mutations(self) -> Iterator[Mutation]:
        self.visit(self._tree)
        for start, end, new in sorted(self._edits):
            text = self._text[:start] + new.encode() + self._text[end:]
            line = bisect_right(self._starts, start)
            yield Mutation(line, _line_at(self._text, start), _line_at(text, start), text)

    # -------------------------------------------------------------------------------------------- where

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _replace(self, node: ast.AST, new: str) -> None:
        self._edits.add((*self._span(node), new))

    def _between(self, left: ast.AST, right: ast.AST, old: str, *news: str) -> None:
        """Replace the operator between two operands; parentheses may stand there too."""
        start, end = self._span(left)[1], self._span(right)[0]
        at = self._text.index(old.encode(), start, end)
        self._edits.update((at, at + len(old), new) for new in news)

    # --------------------------------------------------------------------------------------- expressions

    def _condition(self, test: ast.expr) -> None:
        self._replace(test, "True")
        self._replace(test, "False")
        if isinstance(test, ast.Compare) and len(test.ops) == 1:  # the opposite is seen where either constant is
            self._compare(test, 1)
            self._visit_all([test.left, *test.comparators])
        else:
            self.visit(test)

    def _compare(self, node: ast.Compare, most: int = 2) -> None:
        left: ast.expr = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            old, news = _COMPARISONS[type(operator)]
            if most == 2 or len(news) == 2:
                self._between(left, right, old, *news[:most])
            left = right

    def visit_Compare(self, node: ast.Compare) -> None:
        self._compare(node)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self._visit_all([node.body, node.orelse])

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._condition(test)
        self.visit(node.iter)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word, other, nothing = ("and", "or", "True") if isinstance(node.op, ast.And) else ("or", "and", "False")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, word, other)
        for value in node.values:
            self._replace(value, nothing)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, end = self._span(node.operand)
            self._replace(node, self._text[start:end].decode())
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _ARITHMETIC:
            self._between(node.left, node.right, *_ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool():
                self._replace(node, str(not node.value))
            case int() | float():
                self._replace(node, repr(node.value + 1))
            case bytes():
                self._replace(node, repr(node.value + b"X"))
            case str():
                self._replace(node, repr(node.value + "X"))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass  # texts for people

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id == "field":
            self._visit_all([one.value for one in node.keywords if ast.unparse(one) != "default=b''"])
            return
        if isinstance(node.func, ast.Name) and node.func.id in _CHOICES and not node.keywords:
            self._replace(node.func, _CHOICES[node.func.id])
        self._visit_all([node.func, *node.args, *(one.value for one in node.keywords if one.arg != "strict")])

    # ---------------------------------------------------------------------------------------- statements

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _suite(self, body: Sequence[ast.stmt]) -> None:
        """Statements without the docstring and the texts behind fields."""
        self._visit_all([one for one in body if not _is_text(one)])

    def visit_Module(self, node: ast.Module) -> None:
        self._suite([one for one in node.body if not _is_bound(one)])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._suite([one for one in node.body if not _is_slots(one)])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_all([one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None])
        self._suite(node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_all([one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None])
        self._suite(node.body)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        self._condition(node.test)
        alone = not node.orelse and len(node.body) == 1 and isinstance(node.body[0], ast.Raise)
        self._suite([] if alone else node.body)  # a raise alone is gone where its condition is False
        self._suite(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self._replace(node.test, "False")
        self.visit(node.test)
        self._suite(node.body)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._replace(node, "pass")
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass")
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace(node, "pass")
        self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")

    def visit_Delete(self, node: ast.Delete) -> None:
        self._replace(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_Import(self, node: ast.Import) -> None:
        pass

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        pass


def _line_at(text: bytes, at: int) -> str:
    start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
    return text[start : end if end >= 0 else len(text)].decode().strip()


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _named(node: ast.stmt) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    if isinstance(target, ast.Tuple):
        target = target.elts[0]
    return target.id if isinstance(target, ast.Name) else ""


def _is_slots(node: ast.stmt) -> bool:
    return _named(node) == "__slots__"


def _is_bound(node: ast.stmt) -> bool:
    """A number in capitals, or the list of public names."""
    name = _named(node)
    if name == "__all__":
        return True
    value = getattr(node, "value", None)
    numbers = value is not None and not any(
        isinstance(one, ast.Constant) and isinstance(one.value, str | bytes | bool) for one in ast.walk(value)
    )
    return bool(name) and name.upper() == name and numbers and not isinstance(value, ast.Dict | ast.Set | ast.Call)
