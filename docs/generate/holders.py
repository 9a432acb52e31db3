"""The tables, queues, allowances and registries that a gateway or replica keeps in attributes, with the owner of each:
by whom it is fair, and why it is bounded. Found in the code; `OWNERS` says the owner of every one.

A table is an attribute that an object makes for itself when it is made, and that can grow: a dict, list, set, deque or
one of the project's fair tables.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bounds import ROOT, UNBOUNDED
from table_owners import OWNERS

ROOMS = UNBOUNDED | {"commands", "terminal", "checking", "importing", "setup", "owner", "testing.py"}
"""Rooms that run outside members, or before they start."""
PLACE = "<!-- all tables -->"
"""Line of the page in whose place the table of `rows` comes."""
FAIR = {"FairTable", "FairBytes", "FairBudget", "Belongings", "Turns"}
"""Tables of which whoever has most loses its own, or goes by turns."""
GROWING = FAIR | {
    *("dict", "list", "set", "deque", "OrderedDict", "defaultdict", "Counter", "Queue", "WeakSet"),
    *("WeakValueDictionary", "Budget", "Allowance", "Deferrals", "LinkGuard"),
}
WHY = {
    "fair": "fair table",
    "each": "one object for each",
    "once": "one object for a look or a message, then gone",
    "document": "as many as the overlay's document, the configuration or the code names",
    "beside": "an index of a table that is bounded",
    "turn": "empty at the end of a turn of the event loop",
    "tool": "of the object that uses it",
    "memory": "remembered answers; bounded, then made again",
}
"""Reasons that are no constant and no limit."""


@cache
def tables() -> dict[str, str]:
    """Returns the kind of every table, by module, class and attribute."""
    found: dict[str, str] = {}
    for path in sorted(path for top in ("keys", "bridge", "gateway") for path in (ROOT / top).rglob("*.py")):
        if not ROOMS & set(path.parts):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found |= {f"{module}.{name}": kind for name, kind in tables_of(path)}
    return found


def tables_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yields class and attribute of each table of a module, and its kind."""
    source = path.read_text("utf-8")
    for made in ast.walk(ast.parse(source)) if "class " in source else ():
        for step in made.body if isinstance(made, ast.ClassDef) else ():
            if isinstance(step, ast.FunctionDef) and step.name in ("__init__", "__post_init__"):
                for one in ast.walk(step):
                    targets = one.targets if isinstance(one, ast.Assign) else ()
                    targets = [one.target] if isinstance(one, ast.AnnAssign) else targets
                    names = [target.attr for target in targets if isinstance(target, ast.Attribute)]
                    if names and (kind := _kind(one.value) or _kind_of_shared(one)):
                        yield from ((f"{made.name}.{name}", kind) for name in names)
            elif isinstance(step, ast.AnnAssign) and isinstance(step.value, ast.Call):
                given = [each.value for each in step.value.keywords if each.arg == "default_factory"]
                kind = _name(given[0]) or _kind(getattr(given[0], "body", None)) if given else ""
                if kind in GROWING:
                    yield f"{made.name}.{ast.unparse(step.target)}", kind


def _kind(value: ast.expr | None) -> str:
    if isinstance(value, ast.Dict) and not value.keys:
        return "dict"
    if isinstance(value, ast.List) and not value.elts:
        return "list"
    name = _name(value.func) if isinstance(value, ast.Call) else ""
    return name if name in GROWING else ""


def _kind_of_shared(made: ast.stmt) -> str:
    """Returns the kind of a table that begins as an empty one which objects share, and is annotated with its kind."""
    is_shared = isinstance(made, ast.AnnAssign) and isinstance(made.value, ast.Name) and made.value.id.isupper()
    kind = _name(made.annotation) if is_shared else ""
    return kind if kind in GROWING else ""


def _name(value: ast.expr) -> str:
    value = value.value if isinstance(value, ast.Subscript) else value
    return value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""


def owners() -> dict[str, tuple[str, str]]:
    """Returns owner and reason of every table that `OWNERS` names."""
    return {
        f"{holder}.{attribute}": (owner, why)
        for owner, reasons in OWNERS.items()
        for why, lines in reasons.items()
        for holder, *attributes in (line.split() for line in lines.strip().splitlines())
        for attribute in attributes
    }


def rows() -> str:
    """Returns the table of the page: a row for each class and owner."""
    kinds, grouped = tables(), dict[tuple[str, str, str], list[str]]()
    for name, (owner, why) in sorted(owners().items()):
        holder, _, attribute = name.rpartition(".")
        grouped.setdefault((holder, owner, why), []).append(f"`{attribute}` ({kinds[name]})")
    lines = [
        f"| `{holder}` | {', '.join(names)} | {WHY.get(why, f'`{why}`')} | {owner} |"
        for (holder, owner, why), names in grouped.items()
    ]
    return "\n".join(["| class | tables | bound | fair by |", "|---|---|---|---|", *lines])
