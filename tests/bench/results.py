"""Result files of benches, and the tables of `docs/measured.md` made from them.

    python -m tests.bench.results keep NAME -- make bench-broker BENCH_ARGS="--json --goals"
    python -m tests.bench.results page

`keep` runs a bench and writes `results/NAME.jsonl`: first the command, day, load and speed of the machine, then the
bench's own JSON lines. `page` writes the tables anew between the marks of the page, one table for each file. A row is
shown if it has a goal, or if its file has none at all. A dash stands for the words that a row has in common with the
row above. The line above a table says that the machine was busy when the bench began, or that no load was noted.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "measured.md"
MARK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
TITLES = ("work", "ours", "beside", "ratio", "goal")
SPEED_S = 1.0
FEW = 100.0
BUSY_LOAD = 3.0  # one more than the cores of the machine that the page speaks of: other work kept both
Line = dict[str, Any]


def speed() -> int:
    """Returns Ed25519 verifications of this machine a second, on one core: a measure of its speed at this moment."""
    private = Ed25519PrivateKey.generate()
    public, signature = private.public_key(), private.sign(b"speed")
    count, ends = 0, time.process_time() + SPEED_S
    while time.process_time() < ends:
        public.verify(signature, b"speed")
        count += 1
    return round(count / SPEED_S)


def keep(name: str, command: Sequence[str]) -> Path:
    """Runs a bench and writes its result file; returns the path. Raises CalledProcessError when the bench fails."""
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    head: Line = {"command": shlex.join(command), "day": day, "load_before": _load(), "speed": speed()}
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    head["load_after"] = _load()
    for row in rows:
        head.update({key: value for key, value in row.items() if "work" not in row and key in ("found", "versions")})
    path = RESULTS / f"{name}.jsonl"
    lines = [head, *(row for row in rows if "work" in row)]
    path.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))
    return path


def table(path: Path) -> str:
    """Returns the table of a result file in Markdown, below a line that says how it was measured."""
    head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
    has_goals = any(row.get("goal") for row in rows)
    shown = [row for row in rows if row.get("goal") or not has_goals]
    cells = [_cells(row, above, head) for above, row in itertools.pairwise([{}, *shown])]
    used = [column for column in range(len(TITLES)) if any(row[column] for row in cells)]
    lines = [_said(head), "", _line([TITLES[column] for column in used]), f"|{'---|' * len(used)}"]
    lines += [_line([row[column] for column in used]) for row in cells]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Returns the page with each of its tables made anew. Between marks whose bench nobody kept yet the text stays."""

    def anew(found: re.Match[str]) -> str:
        path = RESULTS / f"{found[2]}.jsonl"
        return f"{found[1]}{table(path)}{found[3]}" if path.exists() else found[0]

    return MARK.sub(anew, text)


def _said(head: Line) -> str:
    load = " to ".join(f"{head[key]:.1f}" for key in ("load_before", "load_after") if head.get(key) is not None)
    busy = ", a busy machine" if (head.get("load_before") or 0.0) > BUSY_LOAD else ""
    said = [f"`{head['command']}`", head["day"], f"load {load}{busy}" if load else "load not noted"]
    said += [f"{head['speed']:,} Ed25519 verifications a second"] if head.get("speed") else []
    said += [", ".join(f"{name} {version}" for name, version in head.get("found", {}).items())]
    return "; ".join(each for each in said if each) + "."


def _cells(row: Line, above: Line, head: Line) -> list[str]:
    """Returns the cells of a row, without the words that the row above has, too."""
    unit = row.get("unit", "").replace("us", "µs")
    version = row.get("peer_version", "")
    peer = f"{row['peer_name']} {'' if head.get('found', {}).get(row['peer_name']) == version else version}".strip()
    work, begins = row["work"], row["work"].rpartition(": ")[0]
    if begins and begins == above.get("work", "").rpartition(": ")[0]:
        work = f"– {work.rpartition(': ')[2]}"
        peer = "" if row["peer_name"] == above["peer_name"] and row.get("peer") is not None else peer
    elif work == above.get("work"):
        work = "–"
    beside = f"{_figure(row['peer'])}{_spread(row, 'peer_interval')}" if row.get("peer") is not None else ""
    beside = ": ".join(each for each in (peer, beside) if each)
    ratio = f"{row['ratio']:.2f}" if row.get("ratio") is not None else ""
    judged = {True: ", met", False: ", **missed**"}.get(row.get("met", row.get("is_met")), "")
    goal = f"{row['goal']}{judged}".replace(">=", "≥").replace("<=", "≤").replace(" x", "") if row.get("goal") else ""
    return [work, f"{_figure(row['ours'])}{_spread(row, 'interval')} {unit}".strip(), beside, ratio, goal]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("  ", " ")


def _spread(row: Line, name: str) -> str:
    """Returns half of the 95 % confidence interval of a figure, if its bench gives one."""
    return f" ± {_figure(row[name])}" if row.get(name) is not None else ""


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= FEW else f"{value:.3g}"


def _load() -> float:
    return round(os.getloadavg()[0], 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=["keep", "page"])
    parser.add_argument("name", nargs="?")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.action == "keep":
        if not arguments.name or not arguments.command:
            parser.error("keep NAME -- COMMAND")
        print(keep(arguments.name, arguments.command[arguments.command[0] == "--" :]))
        if arguments.name not in {found[2] for found in MARK.finditer(PAGE.read_text())}:
            mark = f"<!-- results: {arguments.name} --> and <!-- end -->"
            print(f"{PAGE} has no table of it: put {mark} on lines of their own, and say `page`", file=sys.stderr)
    PAGE.write_text(page(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
