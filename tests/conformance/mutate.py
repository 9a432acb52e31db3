"""Does the conformance table notice faults? Each mutant must turn a row red.

    python -m tests.conformance.mutate [word ...]      only mutants whose file or text contains a word

The packages are copied to a temporary directory, one line is changed there, and all rows run in a process of
their own; the tree is not touched. Prints a table; exit status 1 if a mutant survives or none was tried.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from tests.conformance.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("keys", "bridge", "gateway", "tests/conformance")
#: A mutant on which the broker hangs is found by its rows' time-outs long before.
RUN_S = 120.0
WORKERS = min(2, os.cpu_count() or 1)


def copy_to(place: Path) -> None:
    """The packages without compiled files: a stale one would hide a change made within the same second."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests" / "__init__.py", place / "tests")


def run(place: Path) -> tuple[bool, str]:
    """(did a row turn red, its name), for the packages in `place`."""
    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tests.conformance", "run"]
    try:
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False
        )
    except subprocess.TimeoutExpired:
        return True, "no end"
    if done.returncode == 0:
        return False, ""
    lines = (done.stdout or done.stderr).strip().splitlines()
    return True, (lines[0] if done.stdout else lines[-1]) if lines else f"exit status {done.returncode}"


def try_mutant(mutant: Mutant, places: Queue[Path]) -> tuple[Mutant, bool, str]:
    place = places.get()
    path = place / mutant.file
    source = path.read_text("utf-8")
    try:
        if source.count(mutant.old) != 1:
            return mutant, False, f"{mutant.old!r} occurs {source.count(mutant.old)} times: correct mutants.py"
        path.write_text(source.replace(mutant.old, mutant.new), "utf-8")
        return mutant, *run(place)
    finally:
        path.write_text(source, "utf-8")
        places.put(place)


def results(mutants: list[Mutant], home: Path) -> Iterator[tuple[Mutant, bool, str]]:
    places: Queue[Path] = Queue()
    for worker in range(WORKERS):
        copy_to(home / str(worker))
        places.put(home / str(worker))
    with ThreadPoolExecutor(WORKERS) as pool:
        yield from pool.map(lambda mutant: try_mutant(mutant, places), mutants)


def main(words: list[str]) -> int:
    mutants = [one for one in MUTANTS if not words or any(word in f"{one.file} {one.what}" for word in words)]
    begun = time.monotonic()
    survived = 0
    with tempfile.TemporaryDirectory(prefix="veilmq-mutate-") as directory:
        home = Path(directory)
        copy_to(home / "as it is")
        red, row = run(home / "as it is")
        if red:
            print(f"mutate: a row is red without any mutant: {row}; repair that first", file=sys.stderr)
            return 1
        for mutant, killed, said in results(mutants, home):
            survived += not killed
            verdict = f"killed by  {said}" if killed else f"SURVIVED   {said}"
            print(f"{mutant.file:28} {mutant.what:48} {verdict[:100]}", flush=True)
    killed_count = len(mutants) - survived
    print(f"{killed_count} of {len(mutants)} mutants killed in {time.monotonic() - begun:.0f} s")
    return 0 if mutants and not survived else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
