"""The frame of `make peers`: peers, the questions that each kind is asked, and the table of their answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Answers = Mapping[str, str]
_LONGEST = 120
"""Characters of one answer in the table."""


@dataclass(frozen=True)
class Kind:
    """A kind of peers. `questions`: by column, what is asked; `ask` answers all of them for one peer, by name."""

    title: str
    intent: str
    questions: Mapping[str, str]
    peers: Sequence[str]
    ask: Callable[[str], Answers]
    version: Callable[[str], str]
    absent: Callable[[str], str]


@dataclass
class Table:
    """Answers of one kind: a row a peer."""

    kind: Kind
    rows: dict[str, list[str]] = field(default_factory=dict)

    def lines(self) -> list[str]:
        columns = ["peer", *self.kind.questions]
        head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        asked = [f"* **{name}**: {what}" for name, what in self.kind.questions.items()]
        rows = [f"| {' | '.join([peer, *cells])} |" for peer, cells in self.rows.items()]
        return [f"## {self.kind.title}", "", self.kind.intent, "", *asked, "", *head, *rows, ""]


def answered(kind: Kind, say: Callable[[str], object] = print) -> Table:
    """Asks each peer of a kind. A peer that cannot be had, or that breaks off, has a row that says so."""
    table = Table(kind)
    for peer in kind.peers:
        began = time.monotonic()
        if why := kind.absent(peer):
            row = [f"not here: {_cell(why)}", *[""] * (len(kind.questions) - 1)]
        else:
            try:
                answers = kind.ask(peer)
            except Exception as error:  # noqa: BLE001 - whatever a peer does, the others are asked
                answers = {next(iter(kind.questions)): f"broke off: {type(error).__name__}: {error}"}
            row = [_cell(answers.get(name, "")) for name in kind.questions]
        table.rows[f"{peer} {kind.version(peer)}".strip()] = row
        say(f"{peer}: {' | '.join(row)} ({time.monotonic() - began:.0f} s)")
    return table


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:_LONGEST]


def rows_of(page: str) -> dict[tuple[str, str], list[str]]:
    """Returns the rows of a page's tables, by heading and peer."""
    found: dict[tuple[str, str], list[str]] = {}
    heading = ""
    for line in page.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| ") and not line.startswith("| peer |"):
            peer, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            found[heading, peer.strip()] = cells
    return found


def differences(before: str, after: str) -> list[str]:
    """Returns what changed between two pages, a line a row."""
    old, new = rows_of(before), rows_of(after)
    lines = [f"gone: {peer} ({heading})" for heading, peer in old if (heading, peer) not in new]
    for (heading, peer), cells in new.items():
        if (heading, peer) not in old:
            lines.append(f"new: {peer} ({heading}): {' | '.join(cells)}")
        elif old[heading, peer] != cells:
            lines.append(f"changed: {peer} ({heading}): {' | '.join(old[heading, peer])} -> {' | '.join(cells)}")
    return lines


def page(tables: Iterable[Table], day: str) -> str:
    """Returns the page of all tables."""
    head = [
        "# Software of others, tried",
        "",
        f"`make peers` printed this page on {day}, on Debian 12. Each peer runs as it comes,",
        "with a configuration that lets everybody in. An answer is what was seen, not what a manual says.",
        "",
    ]
    return "\n".join([*head, *(line for table in tables for line in table.lines())]).rstrip() + "\n"
