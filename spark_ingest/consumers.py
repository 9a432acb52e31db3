"""Named consumers of a spool: how far each streaming query has come, and trimming behind the slowest.

A consumer is one streaming query; its name is an option (default: the name of its stream). Only segments that
lie wholly behind *every* registered consumer are removed, so a query that is switched off for a week still
finds its rows, and a query that will never come back must be forgotten (`forget`), or the spool fills to its
cap and receivers stop acknowledging. Two live queries cannot share a name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from .errors import BadOption, SpoolBusy, SpoolDamaged
from .spool import (
    CONSUMERS,
    RECEIVER_NAME,
    Offset,
    Position,
    SpoolView,
    as_offset,
    positions_of,
    segment_numbers,
    segment_path,
)

TAKE_OVER_S = 15.0
"""How long a restarted query waits until the worker of its predecessor, which Spark kills, has let go."""


def lock_file(path: Path, patience_s: float) -> int | None:
    """Take an exclusive lock that dies with this process; its descriptor, or None when others keep it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_up = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up:
                os.close(descriptor)
                return None
            time.sleep(0.05)
        else:
            return descriptor


def write_durably(path: Path, content: bytes) -> None:
    """Replace `path` (mode 0600) so that after a crash it holds the old or the new content, whole."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Consumer:
    """One query's place in the spool. `attach` before anything else; the lock lives as long as the process.

    Raises BadOption for a name that cannot be a file's name.
    """

    def __init__(self, root: Path, name: str, view: SpoolView) -> None:
        if not RECEIVER_NAME.fullmatch(name):
            raise BadOption(f"consumer={name!r} is not a name; use letters, digits, '.', '-' and '_'")
        self._root = root
        self._name = name
        self._view = view
        self._lock: int | None = None
        self._at: dict[str, Position] | None = None

    @property
    def _path(self) -> Path:
        return self._root / CONSUMERS / f"{self._name}.json"

    def attach(self, patience_s: float = TAKE_OVER_S) -> None:
        """Take the name for this process. Raises SpoolBusy when another live query has it."""
        if self._lock is None:
            self._lock = lock_file(self._root / CONSUMERS / f"{self._name}.lock", patience_s)
        if self._lock is None:
            raise SpoolBusy(
                f"another running query reads {self._root} as consumer {self._name!r}; "
                "stop it, or give this one its own option consumer=NAME"
            )

    def detach(self) -> None:
        """Let go of the name; the position stays and keeps protecting its segments."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def register(self) -> Offset:
        """Oldest position that can be read now, protected from trimming from here on."""
        with _trim_lock(self._root):
            earliest = self._view.earliest()
            if not self._path.exists():
                self._write(positions_of(earliest))
            return earliest

    def needs(self, start: Offset) -> None:
        """The query is about to read from `start`: protect it, also when the file said otherwise."""
        wanted = positions_of(start)
        if self._at is None:
            with _trim_lock(self._root):
                known = read_position(self._path)
                if known is None or any(wanted.get(name, Position(0, 0)) < at for name, at in known.items()):
                    self._write(wanted)
                self._at = wanted

    def commit(self, end: Offset) -> int:
        """Everything up to `end` was processed: write it down, trim; the number of segments removed."""
        with _trim_lock(self._root):
            self._at = positions_of(end)
            self._write(self._at)
            return trim(self._root, self._view)

    def _write(self, positions: Mapping[str, Position]) -> None:
        write_durably(self._path, json.dumps(as_offset(positions)).encode())


def read_position(path: Path) -> dict[str, Position] | None:
    """A consumer's position, None if it has none. Raises SpoolDamaged."""
    try:
        return positions_of(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except ValueError:
        raise SpoolDamaged(f"{path} is not a consumer's position; remove it to forget that consumer") from None


def trim(root: Path, view: SpoolView) -> int:
    """Remove segments behind every consumer; never the segment a consumer stands in. Number removed."""
    positions = [read_position(path) for path in sorted((root / CONSUMERS).glob("*.json"))]
    removed = 0
    for name in view.receivers():
        oldest = min((at.get(name, Position(0, 0)) for at in positions if at is not None), default=Position(0, 0))
        directory = root / name
        for number in segment_numbers(directory):
            if number >= oldest.segment:
                break
            # The segment goes first: without it, index and state are not looked at.
            for suffix in ("arrow", "index", "state"):
                segment_path(directory, number, suffix).unlink(missing_ok=True)
            removed += 1
    return removed


def forget(root: Path, name: str) -> bool:
    """Remove a consumer that will not come back, so that it holds no segments. False if there was none."""
    with _trim_lock(root):
        path = root / CONSUMERS / f"{name}.json"
        known = path.exists()
        path.unlink(missing_ok=True)
        return known


@contextlib.contextmanager
def _trim_lock(root: Path) -> Iterator[None]:
    """Registration, commits and trimming one after another, over all processes of the spool."""
    descriptor = lock_file(root / CONSUMERS / ".trim", TAKE_OVER_S)
    if descriptor is None:
        raise SpoolBusy(f"{root}: another process has been trimming for {TAKE_OVER_S:.0f} s; see what holds it up")
    try:
        yield
    finally:
        os.close(descriptor)
