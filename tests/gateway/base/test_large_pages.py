"""What a process has loaded moves to large pages, and nothing else does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.base.large_pages import LARGE_BYTES, filled, use_large_pages

MIB = 1 << 20


def part(start: int, end: int, rights: str, used_bytes: int, name: str = "") -> str:
    sizes = f"Size: {end - start >> 10} kB\nRss: {used_bytes >> 10} kB\n"
    return f"{start:x}-{end:x} {rights} 00000000 00:00 0 {name}\n{sizes}"


@pytest.mark.parametrize(
    ("maps", "found"),
    [
        (part(3 * MIB, 9 * MIB, "rw-p", 3 * MIB, "[heap]"), [(4 * MIB, 8 * MIB)]),
        (part(3 * MIB, 9 * MIB, "rw-p", 6 * MIB), [(4 * MIB, 8 * MIB)]),
        (part(4 * MIB, 12 * MIB, "rw-p", MIB), []),  # a stack of a thread
        (part(3 * MIB, 5 * MIB, "rw-p", 2 * MIB), []),  # no whole page
        (part(4 * MIB, 8 * MIB, "r-xp", 4 * MIB), []),
        (part(4 * MIB, 8 * MIB, "rw-p", 4 * MIB, "/usr/lib/libc.so.6"), []),
        (part(4 * MIB, 8 * MIB, "r-xp", 4 * MIB) + part(8 * MIB, 12 * MIB, "rw-p", 4 * MIB), [(8 * MIB, 12 * MIB)]),
    ],
)
def test_whole_pages_of_a_heap_in_use_are_found(maps: str, found: list[tuple[int, int]]) -> None:
    assert list(filled(maps)) == found


HEAP = """
from pathlib import Path
from gateway.base.large_pages import use_large_pages
heap = [bytes(200) for _ in range(100_000)]
def large():
    return sum(int(line.split()[1]) for line in Path("/proc/self/smaps").read_text().splitlines() if "AnonHuge" in line)
before = large()
use_large_pages()
print(large() - before, all(each == bytes(200) for each in heap))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="large pages of Linux")
def test_a_heap_moves_and_keeps_its_content() -> None:
    said = subprocess.run([sys.executable, "-c", HEAP], capture_output=True, text=True, check=True).stdout.split()
    assert said[1] == "True"
    release = tuple(int(number) for number in Path("/proc/sys/kernel/osrelease").read_text().split(".")[:2])
    switch = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if release >= (6, 1) and switch.exists() and "[never]" not in switch.read_text():
        assert int(said[0]) << 10 >= LARGE_BYTES


def test_a_system_without_such_pages_is_left_alone(tmp_path: Path) -> None:
    use_large_pages(tmp_path / "none")
