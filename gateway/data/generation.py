"""Generation of a member: the number of this life of its data directory, on disk before it is used.

Rises with every opening, also after a directory was lost or restored from a copy, since it is at least the time. A
wrong clock may have made it too great for replicas, and is passed over then (docs/protocol.md §2.11).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from gateway.data.database import LAYOUT, read_fact

FAR_AHEAD_MS = 300_000
"""A stored generation further ahead of the clock than this shows that its clock or the present one was wrong; replicas
take none further ahead.
"""
PASSED_OVER = 8
"""Generations remembered, the greatest, of those that a start did not follow."""


def begin_generation(db: sqlite3.Connection, now_ms: int) -> tuple[int, dict[int, int]]:
    """Writes the generation of a start at `now_ms` to the facts of a database. Returns it, and those passed over, as
    `following` does. Raises sqlite3.Error; then nothing was changed.
    """
    with db:
        db.execute("BEGIN IMMEDIATE")
        stored = read_fact(db, "generation", 0)
        over = [n for (n,) in db.execute("SELECT name FROM facts WHERE name LIKE 'over %'") if n[5:].isdigit()]
        generation, passed_over = following(stored, {int(n[5:]): read_fact(db, n, 0) for n in over}, now_ms)
        facts = [("layout", LAYOUT), ("generation", generation)]
        facts += [(f"over {first}", end) for first, end in passed_over.items()]
        db.execute("DELETE FROM facts WHERE name LIKE 'over %'")
        db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts)
    return generation, passed_over


def following(stored: int, passed_over: Mapping[int, int], now_ms: int) -> tuple[int, dict[int, int]]:
    """Returns the generation after `stored` at a start at `now_ms`, and the generations passed over. Each generation
    too far ahead maps to the generation with which this start goes on once the clock has reached it (docs/protocol.md
    §2.11).
    """
    over = {first: end + 1 for first, end in passed_over.items()}
    if stored >= now_ms + FAR_AHEAD_MS:
        over.setdefault(stored, stored + 1)
    possible = [number for number in (stored + 1, *over.values()) if number <= now_ms + FAR_AHEAD_MS]
    return max([now_ms, *possible]), dict(sorted(over.items())[-PASSED_OVER:])
