"""Page of the states of things, from the tables that the code asks: what moves each where, as table and drawing."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from html import escape
from typing import Any

from bridge.base import Transitions
from bridge.document.succession import VIEW
from bridge.document.trees import TREE
from bridge.publisher.entry import ENTRY
from bridge.reader.interest import SUBSCRIPTION
from bridge.reader.streams import HELD
from bridge.replica.resplitting import DATA_KEY
from bridge.traces.pings import ENTITY

LIFECYCLES: tuple[Transitions[Any, Any], ...] = (ENTRY, DATA_KEY, HELD, VIEW, TREE, SUBSCRIPTION, ENTITY)

INTRODUCTION = """# States and transitions

Each table below stands in the code, which asks it for the next state. This page is made from it when the site is built.
[Lifecycles](../explanation/lifecycles.md) tells the same things as stories, from beginning to end.
"""
STEP, WIDTH, HEIGHT, RISE = 190, 120, 34, 34  # pixels: between states, of a state's box, and of an arc for each step


def lifecycles_page() -> str:
    """Returns Markdown."""
    return "\n".join([INTRODUCTION, *(part for each in LIFECYCLES for part in _section(each))])


def name(state: Enum) -> str:
    """Returns a state's name in words."""
    return state.name.lower().replace("_", " ")


def arcs(life: Transitions[Any, Any]) -> dict[tuple[int, int], list[str]]:
    """Returns the events that lead from one state to another, by the places of both; none that stays is drawn."""
    places, found = {state: at for at, state in enumerate(life.states)}, dict[tuple[int, int], list[str]]()
    for row in life.rows:
        for state in row.before:
            if state is not row.after:
                found.setdefault((places[state], places[row.after]), []).append(row.event.value)
    return found


def _section(life: Transitions[Any, Any]) -> Iterator[str]:
    yield f"## {life.thing}\n"
    yield "\n".join(_drawing(life)) + "\n"
    yield "| event | in state | next state | what happens |\n|---|---|---|---|"
    for row in life.rows:
        before = "any" if set(row.before) == set(life.states) else ", ".join(map(name, row.before))
        yield f"| {row.event.value} | {before} | {name(row.after)} | {row.effects} |"
    yield f"\nBegins: {', '.join(map(name, life.first))}. Ends: {life.ends}.\n"


def _drawing(life: Transitions[Any, Any]) -> Iterator[str]:
    """Yields a drawing in SVG: states from left to right, ways forwards above them, ways back below."""
    ways, count = arcs(life), len(life.states)
    high = max((end - start for start, end in ways if end > start), default=0) * RISE + 30
    low = max((start - end for start, end in ways if end < start), default=0) * RISE + 30
    size = f'viewBox="0 0 {STEP * count} {high + HEIGHT + low}" style="max-width: {STEP * count}px"'
    yield f'<svg {size} role="img" aria-label="{escape(life.thing)}" fill="none" stroke="currentColor" font-size="12">'
    yield '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    yield '<path d="M0,0 L8,4 L0,8" fill="none"/></marker></defs>'
    for at, state in enumerate(life.states):
        x = at * STEP + (STEP - WIDTH) // 2
        yield f'<rect x="{x}" y="{high}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        yield _label(at * STEP + STEP // 2, high + HEIGHT // 2 + 4, name(state))
    for (start, end), events in ways.items():
        forwards, rise = end > start, abs(end - start) * RISE
        y, top = (high, high - rise) if forwards else (high + HEIGHT, high + HEIGHT + rise)
        shift = 20 if forwards else -20
        begin, stop = start * STEP + STEP // 2 + shift, end * STEP + STEP // 2 - shift
        bend = top - rise // 3 if forwards else top + rise // 3
        yield f'<path d="M{begin},{y} C{begin},{bend} {stop},{bend} {stop},{y}" marker-end="url(#head)"/>'
        yield _label((begin + stop) // 2, top - 4 if forwards else top + 14, ", ".join(events))
    yield "</svg>"


def _label(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="middle" stroke="none" fill="currentColor">{escape(text)}</text>'
