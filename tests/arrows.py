"""The arrows between rooms as an allow-list: a contract type of import-linter (`pyproject.toml`, `make check`).

A room is a sub-package of one of our packages; a module beside the rooms is a room of its own; `keys` and the
sub-packages named in `whole` are one room each. Every import from room to room, those for type checking included, has
to stand in `allowed`; an arrow that nothing uses has to go. Neither rooms nor modules may form a circle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


def room_of(module: str, whole: Iterable[str] = ()) -> str:
    """The room that a module stands in: `gateway.broker.wills` is in `gateway.broker`."""
    for room in whole:
        if module == room or module.startswith(room + "."):
            return room
    return ".".join(module.split(".")[:2])


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Sets of names that reach each other (Tarjan's strongly connected components of more than one name)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in arrows.get(name, ()):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            circle = stack[stack.index(name) :]
            del stack[-len(circle) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for name in list(arrows):
        if name not in index:
            visit(name)
    return found


def parse(allowed: Iterable[str]) -> dict[str, set[str]]:
    """Lines such as `gateway.auth -> gateway.base gateway.clients`. Raises ValueError for any other."""
    arrows: dict[str, set[str]] = {}
    for line in allowed:
        source, arrow, targets = line.partition("->")
        if not arrow or source.strip() in arrows:
            raise ValueError(f"not an arrow, or its room stands twice: {line}")
        arrows[source.strip()] = set(targets.split())
    return arrows


def between_rooms(graph: ImportGraph, whole: Iterable[str]) -> dict[str, dict[str, set[str]]]:
    """room -> other room -> the imports that make the arrow, as `module -> module`."""
    whole = tuple(whole)
    held: dict[str, dict[str, set[str]]] = {}
    for module in graph.modules:
        if graph.is_module_squashed(module):
            continue  # a library
        source = room_of(module, whole)
        for other in graph.find_modules_directly_imported_by(module):
            target = room_of(other, whole)
            if target != source and not graph.is_module_squashed(other):
                held.setdefault(source, {}).setdefault(target, set()).add(f"{module} -> {other}")
    return held


class RoomsContract(Contract):  # type: ignore[misc]
    """See above. Prints how many arrows are held and how many circles there are."""

    allowed = fields.ListField(subfield=fields.StringField())
    whole = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        allowed = parse(self.allowed)
        held = between_rooms(graph, self.whole)
        modules = {
            module: {o for o in graph.find_modules_directly_imported_by(module) if not graph.is_module_squashed(o)}
            for module in sorted(graph.modules)
            if not graph.is_module_squashed(module)
        }
        faults = [
            f"{room} -> {other} is not allowed: {', '.join(sorted(why))}"
            for room, others in sorted(held.items())
            for other, why in sorted(others.items())
            if other not in allowed.get(room, ())
        ]
        faults += [
            f"{room} -> {other} is allowed, and nothing uses it"
            for room, others in sorted(allowed.items())
            for other in sorted(others - set(held.get(room, ())))
        ]
        found = circles({room: set(others) for room, others in held.items()}) + circles(modules)
        faults += [f"a circle: {', '.join(circle)}" for circle in found]
        count = sum(len(others) for others in held.values())
        output.print(f"arrows between rooms held: {count}; circles: {len(found)}")
        return ContractCheck(kept=not faults, metadata={"faults": faults})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for fault in check.metadata["faults"]:
            output.print_error(fault)
