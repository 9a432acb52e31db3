"""A table in Markdown of what `tests.bench.broker --json` printed: `python -m tests.bench.broker_table FILE`.

With `--short` only the rows beside Mosquitto, as the README has them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def table(lines: list[Line], is_short: bool = False) -> str:
    """The lines of a run as text: when and beside what, then a table."""
    found = {name: value for line in lines for name, value in line.items() if "name" not in line}
    rows = [line for line in lines if "name" in line and not (is_short and line["peer_name"] != "mosquitto")]
    beside = ", ".join(f"{name} {version}" for name, version in found.get("found", {}).items() if name != "veilmq")
    said = f"{found.get('day', '?')}, beside {beside}; load of the machine {found.get('load_before', '?')} before, "
    text = [f"{said}{found.get('load_after', '?')} after."]
    text += ["", "| work | ours | peer | ratio | goal | µs of processor time a message |", "|---|---|---|---|---|---|"]
    before = ""
    for row in rows:
        work = "" if row["work"] == before else row["work"]
        before = row["work"]
        text.append(f"| {work} | {'| '.join(_cells(row))}|")
    return "\n".join(text)


def _cells(row: Line) -> list[str]:
    goal = row["goal"].replace(">=", "≥").replace("<=", "≤").removesuffix(" x")
    judged = {True: "met", False: "missed", None: ""}[row["is_met"]]
    cpu = f"{row['cpu_us']:.1f}, {row['peer_cpu_us']:.1f}" if row["cpu_us"] else ""
    peer = f"{row['peer_name']} {row['peer_version']}".strip()
    ours = f"{_figure(row['ours'])} {row['unit']}".replace(" us", " µs")
    return [
        f"{cell} "
        for cell in (ours, f"{peer}: {_figure(row['peer'])}", f"{row['ratio']:.2f}", _joined(goal, judged), cpu)
    ]


def _joined(goal: str, judged: str) -> str:
    return f"{goal}, {judged}" if goal and judged else goal


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--short", action="store_true", help="only rows beside Mosquitto")
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in arguments.file.read_text().splitlines() if line.startswith("{")]
    print(table(lines, arguments.short))
    return 0


if __name__ == "__main__":
    sys.exit(main())
