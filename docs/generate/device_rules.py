"""The tables of rules by which others say that a device is there, and which of them a gateway follows."""

from __future__ import annotations

import json
from typing import Any

from tests.bridge.devices.tables import rows_of, source_of

INTRODUCTION = """# Rules of devices, row by row

What Home Assistant, Homie 5 and Sparkplug B make of a document, a state or a message, in our own words, and whether a
gateway says the same. `tests/bridge/devices/test_tables.py` runs every row; the files are in `tests/vectors/devices/`.
A row that holds must hold, and a row that differs must differ.
"""
TITLES = {"home_assistant": "Home Assistant", "homie": "Homie 5", "sparkplug": "Sparkplug B, as a host application"}


def device_rules_page() -> str:
    """Returns Markdown."""
    lines = [INTRODUCTION]
    for table, title in TITLES.items():
        rows = rows_of(table)
        differing = sum("differs" in row for row in rows)
        lines += [
            f"## {title}\n",
            f"Source: {source_of(table)}.\n",
            f"{len(rows)} rows, of which {len(rows) - differing} hold.\n",
            "| rule | steps | a gateway |",
            "|---|---|---|",
        ]
        lines += [f"| {_rule(row)} | {_steps(row)} | {row.get('differs', 'the same')} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _rule(row: dict[str, Any]) -> str:
    where = row.get("id") or row.get("where")
    said = row["row"] + (f" (since {row['since']})" if "since" in row else "")
    return _cell(f"{said} ({where})" if where else said)


def _steps(row: dict[str, Any]) -> str:
    """Returns the steps in short: the document, each topic with its payload, and behind an arrow what is so then."""
    told = {True: " → there", False: " → not there", None: ""}
    short = [json.dumps(row["document"])] if "document" in row else []
    for step in row.get("steps", ()):
        is_judged = isinstance(step[-1], bool) or (len(step) == 3 and step[-1] is None)
        words = step[:-1] if is_judged else step
        short.append(
            " ".join(str(word) for word in words if word not in ("", None)) + (told[step[-1]] if is_judged else "")
        )
    states = row.get("states") or row.get("expect", {}).get("states", {})
    ends = [f"{name or 'node'}: {state or 'none'}" for name, state in states.items()]
    return _cell("; ".join([*short, *ends]))


def _cell(text: str) -> str:
    """Returns text for a cell of a table; a byte that is no UTF-8 stands as its escape."""
    plain = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return plain.replace("|", "\\|").replace("<", "&lt;")
