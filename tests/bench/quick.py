"""Eleven rows of this version beside another one, in two minutes: `BASE=DIRECTORY python -m tests.bench.quick`.

DIRECTORY holds the other version, for instance the previous commit: `git worktree add /tmp/base HEAD~1`. Each row runs
in processes of their own, first of the one version and then of the other, in turns. A process of a version imports all
code from that version's directory, benches included, with the same Python.

A figure of the broker, ingest and availability is processor time, in microseconds, or memory: other work on the machine
changes both less than a rate. A figure of keys and sealing is the median of many calls by the clock, which needs a
quiet machine. The ratio is this version / the other one; above 1 is dearer. Ratios of short rows swing by a tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench import crowd, load, native
from tests.bench.peers import Running, cores, wait_for
from tests.ports import free_ports

HERE = Path(__file__).parents[2]
BASE = "BASE"
ROUNDS = 2
MICROSECONDS, BYTES = "us", "bytes"
FLOW_MS, WARM_MS = 1_200, 400
LIMIT_S = 120.0

_SERVE = "import sys; from tests.bench.peers import _serve_ours as s; s(int(sys.argv[1]), int(sys.argv[2]), None, None)"
_KEYS = "from tests.bench import keys as k; print(*[row.ours for row in {rows}])"
_BOX = """
from papers.simulating.simulate import median_us
from keys.sealedbox import seal_box
from tests.keys.helpers import PUBLISHER
receiver = PUBLISHER.hybrid_bytes
print(median_us(lambda: seal_box(receiver, bytes(32), b"bench", bytes(32))))
"""
_RECEIVED = """
import tempfile, time
from pathlib import Path
from tests.bench import receiving as r
overlay = r.Steady()
wires = r.premade({publications}, overlay, {records})
with tempfile.TemporaryDirectory() as directory:
    figures = r.measure(overlay, wires, Path(directory, "spool"))
print(1e6 / figures.rate)
"""
_TOLD = """
import time
from functools import partial
from tests.bench import detection as d
from tests.bench.recorded import recordings
began = time.process_time()
for link in recordings()[:2]:
    d.measure(partial(d.pinged, d.LAN), link, 1, 8, 1)
print(1e6 * (time.process_time() - began))
"""


@dataclass(frozen=True)
class Row:
    """One line. `flow`: settings of the load generator against a broker; `code`: prints the figure, the last word."""

    work: str
    unit: str = MICROSECONDS
    flow: tuple[tuple[str, int], ...] = ()
    code: str = ""


ROWS = (
    Row("broker: QoS 1, 500 -> 1, 10 in flight", flow=(("qos", 1), ("publishers", 500), ("window", 10))),
    Row("broker: QoS 1, 100 -> 1, one in flight", flow=(("qos", 1), ("publishers", 100))),
    Row("broker: QoS 0, 1 -> 50, a delivery", flow=(("window", 800), ("subscribers", 50), ("batch", 1))),
    Row("broker: memory of an idle connection", unit=BYTES),
    Row("sealed: seal 256 B", code=_KEYS.format(rows="k.sealing()[:1]")),
    Row("sealed: verify a header", code=_KEYS.format(rows="k.headers()[:1]")),
    Row("keys: seal a hybrid box", code=_BOX),
    Row("keys: combine 32 B (6,10)", code=_KEYS.format(rows="list(k.sharing())[-1:]")),
    Row("ingest: receive a publication alone", code=_RECEIVED.format(publications=1_500, records=1)),
    Row("ingest: receive a batch of 64", code=_RECEIVED.format(publications=12_800, records=64)),
    Row("availability: judge two simulated hours and sixteen deaths", code=_TOLD),
)


def printed(code: str, tree: Path, limit_s: float = LIMIT_S) -> float:
    """The figure that a program of one version prints last. Raises CalledProcessError, TimeoutExpired."""
    environment, command = {**os.environ, "PYTHONPATH": str(tree)}, [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, check=True, timeout=limit_s)
    return float(done.stdout.split()[-1])


def measured(row: Row, tree: Path) -> float:
    """The figure of one version. Raises NativeError, CalledProcessError."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    core, clients = cores()
    if row.code:
        return printed(row.code, tree)
    port = free_ports(1)[0]
    command = [sys.executable, "-c", _SERVE, str(port), str(core)]
    with subprocess.Popen(command, cwd=tree, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for(port)
            if row.unit == BYTES:
                number = min(2_000, crowd.allowed_files() - crowd.SPARE_FILES)
                return float(load.in_process(crowd.idle_bytes, Running(port, process.pid), number, clients[0]))
            flow = {"port": port, "pid": process.pid, "ms": FLOW_MS, "warm_ms": WARM_MS, **dict(row.flow)}
            return native.call("flow", "delivered_s", clients[0], **flow).cpu_us
        finally:
            process.kill()


def compared(base: Path, rounds: int) -> Iterator[tuple[Row, float, float]]:
    """(row, this version's figure, the other's): medians of runs in turns."""
    for row in ROWS:
        found: dict[Path, list[float]] = {HERE: [], base: []}
        for number in range(rounds):
            for tree in (HERE, base) if number % 2 == 0 else (base, HERE):
                found[tree].append(measured(row, tree))
        yield row, statistics.median(found[HERE]), statistics.median(found[base])


def base_directory(given: str | None) -> Path:
    """The other version. Ends the bench with one line and status 2 where the variable names none."""
    base = Path(given).resolve() if given else None
    if base is None or not (base / "tests" / "bench" / "peers.py").exists():
        cure = "make one with `git worktree add /tmp/base HEAD~1` and say BASE=/tmp/base"
        print(f"bench: {BASE}={given or ''} is no directory of another version; {cure}", file=sys.stderr)
        raise SystemExit(2)
    _declare(base)
    return base


def _declare(base: Path) -> None:
    """Writes the entry points of the other version beside its code. Else its command would load those of this one."""
    project = tomllib.loads((base / "pyproject.toml").read_text())["project"]
    declared = base / f"{project['name']}-{project['version']}.dist-info"
    declared.mkdir(exist_ok=True)
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (declared / "METADATA").write_text(head)
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    lines = (line for group, entries in groups.items() for line in (f"[{group}]", *_pairs(entries)))
    (declared / "entry_points.txt").write_text("\n".join(lines) + "\n")


def _pairs(entries: dict[str, str]) -> list[str]:
    return [f"{name} = {place}" for name, place in entries.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each version, of which the median counts")
    arguments = parser.parse_args()
    base, began = base_directory(os.environ.get(BASE)), time.monotonic()
    if not arguments.json:
        print(f"load of the machine before we begin: {os.getloadavg()[0]:.1f}")
        print(f"{'work':<60}{'this':>12}{'base':>12} {'unit':<6}{'ratio':>7}")
    for row, ours, other in compared(base, arguments.rounds):
        ratio = ours / other if other else float("inf")
        if arguments.json:
            print(json.dumps({"bench": "quick", "work": row.work, "this": ours, "base": other, "ratio": ratio}))
        else:
            print(f"{row.work:<60}{ours:>12,.2f}{other:>12,.2f} {row.unit:<6}{ratio:>7.2f}", flush=True)
    if not arguments.json:
        print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}, after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
