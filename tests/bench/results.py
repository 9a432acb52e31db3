"""Result files of benches, and the tables of `docs/measured.md` made from them.

    python -m tests.bench.results keep NAME -- make bench-broker BENCH_ARGS="--json --goals"
    python -m tests.bench.results page
    python -m tests.bench.results show NAME

`keep` runs a bench and writes `results/NAME.jsonl`: first the command, day, load and speed of the machine, then the
bench's own JSON lines. `page` writes the tables anew between the marks of the page, one table for each file, with the
rows that `SHOWN` names, those with a goal first. Of a file without an entry each row is shown that has a goal, or each
if none has one. `show` prints all rows of a file, or of all files. A dash stands for the words that a row has in common
with the row above. The line above a table says how many goals of the file are met, that the machine was busy when the
bench began, or that no load was noted.
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
from fnmatch import fnmatchcase
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

SHOWN = {
    "demo": ("sealed, *", "published, *"),
    "demo_slow": ("sealed, *",),
    "broker": ("QoS 1 to a persistent session, *", "connections over TLS, *", "p99 latency *"),
    "brokers": (
        "QoS 0, 1 -> 1, * | mosquitto",
        "QoS 0, 1 -> 50 | mosquitto",
        "QoS 1, 100 -> 1, 1 in flight * | mosquitto",
        "QoS 1, 1 -> 1, 100 in flight * | mosquitto",
        "memory, each of 5,000 idle | mosquitto*",
        "processor time a minute, * | mosquitto",
        "start with * sessions | mosquitto",
    ),
    "fairness": tuple(f"{kind}: PUBLISH to PUBACK, p99" for kind in ("publish", "connect", "retained", "discovery")),
    "keys": ("open a key as *", "open a key of *"),
    "region": (
        "throughput | mosquitto x 3",
        "cpu a message | mosquitto x 3",
        "p50, 300 msg/s | its goal",
        "throughput, 1000 in flight | mosquitto x 3",
    ),
    "forwarding": ("processor time: a second region",),
    "base": ("cpu of a lone message, 10 *", "throughput, *"),
    "history": (
        "history: cpu a message",
        "replay of * | live, 1000 in flight",
        "p99, *, its own gateway reads",
        "start, *",
    ),
    "papers": (
        "A: four regions *, sealed: p50 *",
        "B: a trace, authorised and sealed, 3 hops: *",
        "C: a throttled link, dynamic: p99 | static",
        "D: after the swap: p50",
        "E: with guards: * beside forgeries",
    ),
    "availability": ("a death told, LAN, *", "tuned, *", "recorded *"),
    "fleet": ("*: share of the core, *", "memory of an entity *"),
    "ingest": (
        "publications that come alone, *",
        "in batches of 64, *",
        "rows to Spark, one task, as received",
        "two tasks, *",
        "a key a message, *",
    ),
    "delay": ("device to row, p??, *, quick progress, lingering | goal",),
}
"""By result file the rows by which a user or an operator decides: patterns of their work, or `work | peer`."""


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


def table(path: Path, has_all: bool = False) -> str:
    """Returns the table of a result file in Markdown, below a line that says how it was measured. `has_all`: with the
    rows that the page leaves out."""
    head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
    goals = [_is_met(row) for row in rows if row.get("goal") and _is_met(row) is not None]
    shown = rows if has_all else sorted(_shown(path.stem, rows), key=lambda row: not row.get("goal"))
    cells = [_cells(row, above, head) for above, row in itertools.pairwise([{}, *shown])]
    used = [column for column in range(len(TITLES)) if any(row[column] for row in cells)]
    lines = [_said(head, goals), "", _line([TITLES[column] for column in used]), f"|{'---|' * len(used)}"]
    lines += [_line([row[column] for column in used]) for row in cells]
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """Returns the page with each of its tables made anew. Between marks whose bench nobody kept yet the text stays."""

    def anew(found: re.Match[str]) -> str:
        path = RESULTS / f"{found[2]}.jsonl"
        return f"{found[1]}{table(path)}{found[3]}" if path.exists() else found[0]

    return MARK.sub(anew, text)


def _shown(name: str, rows: Sequence[Line]) -> list[Line]:
    """Returns the rows for the page."""
    if name in SHOWN:
        return [row for row in rows if any(is_named(row, pattern) for pattern in SHOWN[name])]
    has_goals = any(row.get("goal") for row in rows)
    return [row for row in rows if row.get("goal") or not has_goals]


def is_named(row: Line, pattern: str) -> bool:
    """Returns whether a pattern of `SHOWN` names the row."""
    work, _, peer = pattern.partition(" | ")
    return fnmatchcase(row["work"], work) and fnmatchcase(row["peer_name"], peer or "*")


def _is_met(row: Line) -> bool | None:
    found: bool | None = row.get("met", row.get("is_met"))
    return found


def _said(head: Line, goals: Sequence[bool | None]) -> str:
    load = " to ".join(f"{head[key]:.1f}" for key in ("load_before", "load_after") if head.get(key) is not None)
    busy = ", a busy machine" if (head.get("load_before") or 0.0) > BUSY_LOAD else ""
    said = [f"`{head['command']}`", head["day"], f"load {load}{busy}" if load else "load not noted"]
    said += [f"{head['speed']:,} Ed25519 verifications a second"] if head.get("speed") else []
    said += [", ".join(f"{name} {version}" for name, version in head.get("found", {}).items())]
    said += [f"{goals.count(True)} of {len(goals)} goals met"] if goals else []
    return "; ".join(each for each in said if each) + "."


def _cells(row: Line, above: Line, head: Line) -> list[str]:
    """Returns the cells of a row, without the words that the row above has, too."""
    unit = row.get("unit", "").replace("us", "µs")
    version = row.get("peer_version", "")
    peer = f"{row['peer_name']} {'' if head.get('found', {}).get(row['peer_name']) == version else version}".strip()
    work, begins = row["work"].replace("->", "→"), row["work"].rpartition(": ")[0]
    if begins and begins == above.get("work", "").rpartition(": ")[0]:
        work = f"– {work.rpartition(': ')[2]}"
        peer = "" if row["peer_name"] == above["peer_name"] and row.get("peer") is not None else peer
    elif row["work"] == above.get("work"):
        work = "–"
    beside = f"{_figure(row['peer'])}{_spread(row, 'peer_interval')}" if row.get("peer") is not None else ""
    beside = ": ".join(each for each in (peer, beside) if each)
    ratio = f"{row['ratio']:.2f}" if row.get("ratio") is not None else ""
    judged = {True: ", met", False: ", **missed**"}.get(_is_met(row), "")
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
    parser.add_argument("action", choices=["keep", "page", "show"])
    parser.add_argument("name", nargs="?")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.action == "show":
        for path in sorted(RESULTS.glob(f"{arguments.name or '*'}.jsonl")):
            print(f"{path.stem}: {table(path, has_all=True)}")
        return 0
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
