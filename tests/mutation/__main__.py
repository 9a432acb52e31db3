"""Do the tests notice faults? Every module given is changed in every small way (`operators`), one at a time.

    python -m tests.mutation [--own] [--part 2/5] keys keys/frames.py bridge/devices ...     modules and folders
    python -m tests.mutation --list keys/frames.py                                   which faults there are

A fault meets its own tests first: those of the module's room (`tests/<package>/<room>`), or `test_<module>.py` if the
module stands in no room. All other tests of the package follow that import the module or its room; `--own` leaves them
out. `survivors` explains those that no test can notice. Prints each survivor with its line, and a score per module; the
exit status is 1 if one survived that nobody explained.

The packages are copied to temporary directories and changed there; every fault gets a process of its own (`running`).
`--part 2/5` takes every fifth fault of all modules together, from the second on. `--quick` leaves out tests that take
longer than a second, and faults of declarations, each of which costs a run of all tests.
"""

from __future__ import annotations

import argparse
import ast
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from math import inf
from multiprocessing import get_context
from pathlib import Path

from tests.mutation.operators import Mutation, mutations
from tests.mutation.running import ROOT, Called, Collected, called_by, copy_to, end_with, passes
from tests.mutation.survivors import EXPLAINED
from tests.mutation.swapping import is_swappable

WORKERS = min(2, os.cpu_count() or 1)
QUICK_S = 1.0
HANGS_S = 60.0
"""Tests that take longer than this, and three times as long as without a fault, count as hanging."""


@dataclass(frozen=True, slots=True)
class Task:
    """One fault of `module`, a path from the root, and the tests that should notice it: its own, others."""

    module: str
    mutation: Mutation
    own: tuple[str, ...]
    others: tuple[str, ...]
    limits_s: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`killer`: "own", "others", or "" for a fault that survived."""

    task: Task
    killer: str


# ------------------------------------------------------------------------------------------- what to run


def modules_of(names: Sequence[str]) -> list[str]:
    found = []
    for name in names:
        path = ROOT / name
        if not path.exists():
            raise SystemExit(f"mutation: there is no {name}; name modules or folders from the root of the repository")
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [one.relative_to(ROOT).as_posix() for one in found if one.name != "__init__.py"]


def which_tests(module: str, own_only: bool = False) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns its own tests and, unless `own_only`, others of its package that import the module or its room."""
    path = Path(module)
    room = ROOT / "tests" / path.parent
    own, others = [], []
    dotted = path.with_suffix("").as_posix().replace("/", ".")
    for file in sorted((ROOT / "tests" / path.parts[0]).rglob("test_*.py")):
        name = file.relative_to(ROOT).as_posix()
        if file.is_relative_to(room) if len(path.parts) > 2 else file.stem == f"test_{path.stem}":
            own.append(name)
        elif own_only:
            continue
        elif dotted in imports(file) or (len(path.parts) > 2 and dotted.rpartition(".")[0] in imports(file)):
            others.append(name)
    return tuple(own), tuple(others)


@cache
def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


# ------------------------------------------------------------------------------------------------ running

_place: Path
_called: dict[tuple[str, ...], Called] = {}  # by tests; workers have it from the process that forks them
_collected: dict[tuple[str, ...], Collected] = {}  # by tests, at most two: own and others


def _begin(home: str, parent: int) -> None:
    """A worker's own copy. What is compiled there is never that of a fault: see `_anew`."""
    global _place  # noqa: PLW0603 - a worker process has one place
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(parent)
    _place = Path(tempfile.mkdtemp(dir=home))
    copy_to(_place)


def judge(task: Task) -> Verdict:
    for killer, files, limit_s in zip(("own", "others"), (task.own, task.others), task.limits_s, strict=True):
        if files and not notices_nothing(task, files, limit_s):
            return Verdict(task, killer)
    return Verdict(task, "")


def notices_nothing(task: Task, files: tuple[str, ...], limit_s: float) -> bool:
    """Whether these tests are green with the fault: those collected before if they can tell, else collected anew."""
    if files not in _collected:
        for kind in [one for one in _collected if one not in (task.own, task.others)]:
            _collected.pop(kind).close()
        _collected[files] = Collected(_place, files, _called[files], limit_s)
    green = _collected[files].passes(task.module, task.mutation.text)
    return green if green is not None else _anew(task, files, limit_s)


def _anew(task: Task, files: tuple[str, ...], limit_s: float) -> bool:
    path = _place / task.module
    source = path.read_bytes()
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()  # one of the same second and size would hide the fault
    try:
        path.write_bytes(task.mutation.text)
        return passes(_place, files, limit_s)
    finally:
        path.write_bytes(source)


def limit_of(place: Path, files: tuple[str, ...], quick: bool) -> float:
    """Seconds that these tests may take. Raises SystemExit if they are red without any fault."""
    if files and files not in _called:
        _called[files] = called_by(place, files, QUICK_S if quick else inf, WORKERS)
        if not _called[files]:
            raise SystemExit(f"mutation: red without any fault: {' '.join(files)}; repair that first")
    return max(HANGS_S, 3 * sum(seconds for seconds, _ in _called.get(files, {}).values()))


def faults_of(modules: Sequence[str], part: tuple[int, int], quick: bool) -> list[tuple[str, Mutation]]:
    found = [(module, one) for module in modules for one in mutations((ROOT / module).read_text("utf-8"))]
    return [
        (module, one)
        for module, one in found[part[0] - 1 :: part[1]]
        if not quick or is_swappable(module, (ROOT / module).read_bytes(), one.text)
    ]


def tasks_of(modules: Sequence[str], place: Path, part: tuple[int, int], own_only: bool, quick: bool) -> list[Task]:
    tests = {module: which_tests(module, own_only) for module in modules}
    tasks = []
    for module, one in faults_of(modules, part, quick):
        own, others = tests[module]
        limits_s = limit_of(place, own, quick), limit_of(place, others, quick)
        tasks.append(Task(module, one, own, others, limits_s))
    return tasks


# ------------------------------------------------------------------------------------------------- report


def explained(task: Task) -> str:
    """Why no test can notice this fault; "" if nobody said."""
    return EXPLAINED.get((task.module, task.mutation.old, task.mutation.new), "")


def report(verdicts: Iterator[Verdict]) -> int:
    """Ended from outside it still says what it found until then."""
    counts: dict[str, Counter[str]] = {}
    try:
        for verdict in verdicts:
            task = verdict.task
            kind = verdict.killer or ("explained" if explained(task) else "survived")
            counts.setdefault(task.module, Counter())[kind] += 1
            if kind == "survived":
                print(
                    f"{task.module}:{task.mutation.line}\n    {task.mutation.old}\n    {task.mutation.new}", flush=True
                )
    finally:
        total = _table(counts)
    return 1 if total["survived"] or not total else 0


def _table(counts: dict[str, Counter[str]]) -> Counter[str]:
    """Print a score per module; returns the sums."""
    print(f"\n{'module':40} faults    own others explained survived  score")
    total: Counter[str] = sum(counts.values(), Counter())
    for module, found in [*sorted(counts.items()), ("all", total)]:
        tried = found.total() - found["explained"]
        score = f"{100 * (found['own'] + found['others']) / tried:5.1f} %" if tried else "-"
        print(
            f"{module:40} {found.total():6} {found['own']:6} {found['others']:6} {found['explained']:9}"
            f" {found['survived']:8} {score:>6}",
            flush=True,
        )
    return total


def part_of(text: str) -> tuple[int, int]:
    number, _, of = text.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError("a part is NUMBER/OF, as 2/5")
    return int(number), int(of)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.mutation", description="do the tests notice faults?")
    parser.add_argument("modules", nargs="+", help="modules and folders, from the root of the repository")
    parser.add_argument("--part", type=part_of, default=(1, 1), metavar="2/5", help="of every 5 faults the second")
    parser.add_argument("--own", action="store_true", help="ask a room's own tests only, which is fast")
    parser.add_argument("--quick", action="store_true", help="short tests, faults inside functions")
    parser.add_argument("--list", action="store_true", help="only say which faults there are")
    parser.add_argument("--workers", type=int, default=WORKERS)
    asked = parser.parse_args(words)
    modules = modules_of(asked.modules)
    if asked.list:
        for module, one in faults_of(modules, asked.part, asked.quick):
            print(f"{module}:{one.line}\n    {one.old}\n    {one.new}")
        return 0
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("mutation: ended from outside"))
    with tempfile.TemporaryDirectory(prefix="veilmq-mutation-") as home:
        first = Path(home) / "first"
        first.mkdir()
        copy_to(first)
        tasks = tasks_of(modules, first, asked.part, asked.own, asked.quick)
        context = get_context("fork")
        with ProcessPoolExecutor(asked.workers, context, initializer=_begin, initargs=(home, os.getpid())) as pool:
            status = report(pool.map(judge, tasks))
    print(f"{len(tasks)} faults in {time.monotonic() - begun:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
