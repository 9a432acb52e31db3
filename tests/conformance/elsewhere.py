"""Server statements that no exchange with this server can show, and the tests that show them instead."""

from __future__ import annotations

from .rows import V5, V311

#: (protocol level, number) -> (file::test, why no row can show it)
ELSEWHERE: dict[tuple[int, str], tuple[str, str]] = {}
assert V5
assert V311
