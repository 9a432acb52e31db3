"""Values of the constants that `reference/bounds.md` names, filled into its empty cells at every build."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping

ROW = re.compile(r"^\| (?P<names>`[a-z_]+\.[^|]+) \|  \| (?P<text>.*) \|$", re.MULTILINE)


def filled(markdown: str) -> str:
    """The page with values. Raises LookupError for a constant that the code does not have."""
    return ROW.sub(lambda row: f"| {row['names']} | {_values(row['names'])} | {row['text']} |", markdown)


def _values(cell: str) -> str:
    module, values = "", []
    for name in re.findall(r"`([\w.]+)`", cell):
        before, _, constant = name.rpartition(".")
        module = before or module  # a name without a module is of the one before it
        try:
            values.append(_written(constant, getattr(importlib.import_module(module), constant)))
        except (ImportError, AttributeError):
            raise LookupError(f"reference/bounds.md names {module}.{constant}, which does not exist") from None
    return "; ".join(values)


def _written(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_written(name, each)}" for key, each in value.items())
    if isinstance(value, tuple):
        return " / ".join(_written(name, each) for each in value)
    if not isinstance(value, int | float):
        return str(value)
    if "BYTES" in name and "PER_S" not in name and isinstance(value, int):
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value >= size and value % size == 0:
                return f"{value // size:,} {unit}"
    number = f"{value:,.10g}" if isinstance(value, float) else f"{value:,}"
    return f"{number} s" if name.endswith("_S") and not name.endswith("PER_S") else number
