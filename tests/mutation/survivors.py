"""Faults that no test can notice, and why: {(module, line as it is, line as it becomes): why}."""

from __future__ import annotations

EXPLAINED: dict[tuple[str, str, str], str] = {}
