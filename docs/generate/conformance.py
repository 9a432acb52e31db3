"""The table of MQTT conformance, from `tests/conformance`: each normative statement and what proves it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.conformance.elsewhere import ELSEWHERE
from tests.conformance.exchanges import ROWS
from tests.conformance.rows import V5, V311
from tests.conformance.statements import statements

HEADINGS = {V5: "MQTT 5.0", V311: "MQTT 3.1.1"}
INTRODUCTION = """# MQTT conformance

Every normative statement of MQTT 3.1.1 and MQTT 5.0 that binds a server, in our own words, and the exchanges with a
running broker that prove it. The tables are made from `tests/conformance` when this site is built.

    python -m tests.conformance                 # the same in a terminal
    python -m tests.conformance 5 3.8.4-2       # the exchanges of one statement, in bytes
    python -m tests.conformance run             # all exchanges, until the first that fails
    make mutate-broker                          # faults in codec and sessions that the table must notice
"""


def conformance_page() -> str:
    """Markdown."""
    return "\n".join([INTRODUCTION, *_summary(), *(line for version in HEADINGS for line in _table(version))])


def _proofs(version: int, number: str) -> list[str]:
    found = [_cell(row.name) for row in ROWS if number in row.proves.get(version, ())]
    if (version, number) in ELSEWHERE:
        test, why = ELSEWHERE[version, number]
        found.append(f"`{test}` ({why})")
    return found


def _summary() -> Iterator[str]:
    yield "| | statements that bind a server | proved by an exchange | proved by a test elsewhere |"
    yield "|---|---|---|---|"
    for version, heading in HEADINGS.items():
        bound = [number for (of, number), each in statements().items() if of == version and each.is_servers]
        shown = sum(any(number in row.proves.get(version, ()) for row in ROWS) for number in bound)
        elsewhere = sum((version, number) in ELSEWHERE for number in bound)
        yield f"| {heading} | {len(bound)} | {shown} | {elsewhere} |"
    yield ""
    yield f"{len(ROWS)} exchanges in all. Statements that bind clients only are left out."
    yield ""


def _table(version: int) -> Iterator[str]:
    yield f"## {HEADINGS[version]}\n"
    yield "| statement | what it asks | proved by |"
    yield "|---|---|---|"
    for (of, number), statement in statements().items():
        if of == version and statement.is_servers:
            proofs = "<br>".join(_proofs(version, number)) or "**nothing**"
            yield f"| MQTT-{number} | {_cell(statement.text)} | {proofs} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("$", "&#36;")
