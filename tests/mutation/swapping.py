"""A fault put into a module that is imported already: the bytecode of the functions that it changes.

So tests are collected once, and a process forked from there meets one fault. A fault of what runs at import (classes,
constants, defaults) cannot be put in so; `UnswappableError` says it.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from types import CodeType, FunctionType


class UnswappableError(Exception):
    """This fault shows only in a module that is imported anew."""


def swap(module: str, original: bytes, faulty: bytes) -> set[str]:
    """Puts the fault into all live functions of `module`; returns the qualified names of those that changed. Raises
    UnswappableError before anything is changed.
    """
    changed = changes(module, original, faulty)
    live: dict[CodeType, list[FunctionType]] = {old: [] for old, _ in changed}
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__module__ == module and one.__code__ in live:
            live[one.__code__].append(one)
    for old, new in changed:
        if not live[old] or len(old.co_freevars) != len(new.co_freevars):
            raise UnswappableError
    for old, new in changed:
        for function in live[old]:
            function.__code__ = new
    return {old.co_qualname for old, _ in changed}


def changes(module: str, original: bytes, faulty: bytes) -> list[tuple[CodeType, CodeType]]:
    """Returns the functions that a fault changes, before and after. Raises UnswappableError if only a new import shows
    the fault.
    """
    changed = list(_changed(*(compile(text, module, "exec", dont_inherit=True) for text in (original, faulty))))
    if {old.co_name for old, _ in changed} & _called_at_import(original):
        raise UnswappableError
    return changed


def is_swappable(module: str, original: bytes, faulty: bytes) -> bool:
    """Returns True if no new import is needed for a fault to show."""
    try:
        changes(module, original, faulty)
    except UnswappableError:
        return False
    return True


def _called_at_import(source: bytes) -> set[str]:
    """Names of functions that a module calls while it is imported: what they made is there already."""
    found, left = set(), list[ast.AST](ast.parse(source).body)
    while left:
        node = left.pop()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(node.func.id)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            left += ast.iter_child_nodes(node)
    return found


def _nested(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _alone(code: CodeType) -> CodeType:
    """Without the functions and classes in it, nor where in the text it stands."""
    consts = tuple(None if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_consts=consts, co_linetable=b"")


def _changed(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The outermost functions that differ. A module and a class body hold others; they have run already."""
    if _alone(old) != _alone(new) or len(_nested(old)) != len(_nested(new)):
        raise UnswappableError
    for before, after in zip(_nested(old), _nested(new), strict=True):
        if before == after:
            continue
        if before.co_flags & 0x02:  # CO_NEWLOCALS: a function, no class body
            yield before, after
        else:
            yield from _changed(before, after)
