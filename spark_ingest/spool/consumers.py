"""Named consumers of a spool: the progress of each streaming query, and trimming behind the slowest.

A consumer is a streaming query; its name is an option. Only segments wholly
behind *every* registered consumer are removed: a query that is switched off for a week still finds its rows. A query
that never comes back must be forgotten (`forget`), or the spool fills to its cap and receivers stop acknowledging.
Two live queries cannot share a name.

    SPOOL/consumers/NAME.json    {"position": offset, "retain_s": seconds, "owner": token, "ledger": rows passed over
                                 (`ledger`), if any}; its time of change: the last commit

A query without a name has a place for each of its checkpoints (`place_of`), so that it runs again and again under new
ones, as any query of Spark does. Such a place protects its segments while the query runs and for `UNNAMED_KEPT_S`
after its last commit; then it goes by itself. Such a query removes no segments: they go behind named consumers, or
when
the spool is at its cap (`make_room`).

A named consumer is a checkpoint: the checkpoint's token stands in each of its offsets, and in the file from the first
batch on. A query with another checkpoint is refused under this name (`needs`): rows the first query has read may be
gone.

A consumer may ask to keep segments for a while after all have read them (`retain_s`), for queries starting later and
for batch reads. The longest wish counts; a spool at its cap heeds none (`make_room`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.files import write_durably
from spark_ingest.errors import BadOption, SpoolBusy, SpoolDamaged, SpoolError
from spark_ingest.spool.ledger import NOTHING_HELD, HeldLedger, HeldStretch
from spark_ingest.spool.packs import erase_pack
from spark_ingest.spool.segments import (
    CONSUMERS,
    RECEIVER_NAME,
    Offset,
    Position,
    as_offset,
    positions_of,
    segment_path,
)
from spark_ingest.spool.view import SpoolView

UNNAMED_KEPT_S = 7 * 86_400.0
"""Time for which the place of a query without a name stays after its last commit: nobody would forget it by hand."""
UNNAMED_CHARS = 12
TAKE_OVER_S = 15.0
"""Patience of a restarted query with the worker of its predecessor, which Spark kills."""


def lock_file(path: Path, patience_s: float) -> int | None:
    """Takes an exclusive lock that dies with this process; returns its descriptor, None if another process keeps the
    lock.
    """
    for directory in (path.parent.parent, path.parent):  # parents that mkdir makes by itself are open to all
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
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


class Consumer:
    """A query's place in the spool. `attach` comes first; the lock lives as long as the process.

    Raises BadOption for a name that cannot be a file's name.
    """

    def __init__(
        self, root: Path, name: str, view: SpoolView, retain_s: float = 0.0, keep_s: float | None = None
    ) -> None:
        """Takes the spool and the consumer's name. `keep_s`: time the place stays unused; None: for ever."""
        if not RECEIVER_NAME.fullmatch(name):
            raise BadOption(f"consumer={name!r} is not a name; use letters, digits, '.', '-' and '_'")
        self._root = root
        self._name = name
        self._view = view
        self._retain_s, self._keep_s = retain_s, keep_s
        self._lock: int | None = None
        self._owner = ""
        self._checked: tuple[str, bool] | None = None  # for whom `needs` has done its work, and whether it claimed
        self._at: Mapping[str, Position] | None = None

    @property
    def _path(self) -> Path:
        return self._root / CONSUMERS / f"{self._name}.json"

    def attach(self, patience_s: float = TAKE_OVER_S) -> None:
        """Takes the name for this process. Raises SpoolBusy if another live query has it."""
        if self._lock is None:
            self._lock = lock_file(self._root / CONSUMERS / f"{self._name}.lock", patience_s)
        if self._lock is None:
            raise SpoolBusy(
                f"another running query reads {self._root} as consumer {self._name!r}; "
                "stop it, or give this one its own option consumer=NAME"
            )

    def detach(self) -> None:
        """Releases the name; the position stays and keeps protecting its segments."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def register(self, from_latest: bool = False, asked: Offset | None = None) -> Offset:
        """Returns the oldest readable position, the newest, or the one `asked` for, and protects it from trimming.

        A query that died in its first batch gets its former position again.
        """
        with nobody_trims(self._root):
            place = read_place(self._path)
            if place is not None and place.owner:
                return as_offset(place.positions)
            begin = asked or first_offset(self._view, from_latest)
            if place is None:
                self._write_place(positions_of(begin))
            return begin

    def protected_position(self) -> Offset | None:
        """Returns the position that is protected now, None without one."""
        place = read_place(self._path)
        return None if place is None else as_offset(place.positions)

    def needs(self, start: Offset, owner: str = "", *, claim: bool = False) -> None:
        """Protects `start`, from which the query is about to read, even if the file names another position.

        `owner`: the token of its checkpoint; `claim`: the checkpoint has a batch, so that the name belongs to it from
        now on.
        Raises BadOption if the name belongs to another checkpoint.
        """
        wanted = positions_of(start)
        if self._checked == (owner, True) or (not claim and self._checked == (owner, False)):
            return
        with nobody_trims(self._root):
            place = read_place(self._path)
            if place is not None and place.owner and place.owner != owner:
                raise BadOption(
                    f"consumer {self._name!r} of {self._root} is a query with another checkpoint, and what that one "
                    "has read is not kept for this one: give this query its own option consumer=NAME; if the other "
                    f"checkpoint is gone for good: veilmq ingest consumers {self._root} --forget {self._name}"
                )
            known = None if place is None else place.positions
            moved = known is None or any(wanted.get(name, Position(0, 0)) < at for name, at in known.items())
            self._owner = owner if claim else place.owner if place is not None else ""
            if moved or (place is not None and place.owner != self._owner):
                self._write_place(
                    wanted if moved or known is None else known, NOTHING_HELD if place is None else place.ledger
                )
            self._checked = (owner, claim)

    def commit(self, end: Offset, redriven: int = 0) -> int:
        """Records that rows up to `end` and redrives up to number `redriven` were processed, and trims.

        Returns the number of removed segments. A query without a name removes none, so that it can run again.
        """
        with nobody_trims(self._root):
            self._at = positions_of(end)
            self._write_place(self._at, self.ledger.without_redrives(redriven))
            return trim(self._root, self._view) if self._keep_s is None else 0

    @property
    def ledger(self) -> HeldLedger:
        """The rows the query has passed over."""
        place = read_place(self._path)
        return NOTHING_HELD if place is None else place.ledger

    def hold_batch(self, begin: Offset, end: Offset, keys: Sequence[str], redriven: int) -> None:
        """Records that the micro-batch (begin, end] passes over rows needing `keys`; on disk before the batch is read.

        `redriven`: the number of the last redrive the query has read.
        """
        with nobody_trims(self._root):
            place = read_place(self._path)
            if place is not None and (ledger := place.ledger.note_held(begin, end, keys, redriven)) != place.ledger:
                write_place(self._path, replace(place, ledger=ledger))

    def has_committed(self, end: Offset, redriven: int) -> bool:
        """Returns True if this was the last commit of this process."""
        return self._at == positions_of(end) and not self.ledger.between(0, redriven)

    def _write_place(self, positions: Mapping[str, Position], ledger: HeldLedger = NOTHING_HELD) -> None:
        write_place(self._path, ConsumerPlace(positions, self._retain_s, self._owner, ledger, self._keep_s))


def place_of(stream: str, owner: str) -> str:
    """Returns the name of the place of a query without a name. `owner`: the token of its checkpoint."""
    return f"{stream}.{owner[:UNNAMED_CHARS]}" if owner else stream


def first_offset(view: SpoolView, from_latest: bool) -> Offset:
    """Returns the newest or the oldest position that can be read now."""
    return view.latest() if from_latest else view.earliest()


@dataclass(frozen=True, slots=True)
class ConsumerPlace:
    """The content of a consumer's file."""

    positions: Mapping[str, Position]
    retain_s: float
    owner: str = ""
    ledger: HeldLedger = NOTHING_HELD
    keep_s: float | None = None
    """Time for which the place stays after its last commit; None: until it is forgotten by hand."""

    def oldest(self, name: str) -> Position:
        """Returns the place of the first row of a receiver the consumer still wants."""
        at = self.positions.get(name, Position(0, 0))
        return min(at, self.ledger.oldest(name) or at)


def write_place(path: Path, place: ConsumerPlace) -> None:
    """Writes a consumer's file; durable on return."""
    told = {"position": as_offset(place.positions), "retain_s": place.retain_s, "owner": place.owner}
    told |= {} if place.keep_s is None else {"keep_s": place.keep_s}
    ledger = {} if place.ledger == NOTHING_HELD else {"ledger": place.ledger.to_json()}
    write_durably(path, json.dumps(told | ledger).encode())


def read_place(path: Path) -> ConsumerPlace | None:
    """Returns the content of a consumer's file, None without a file. Raises SpoolDamaged."""
    try:
        told = json.loads(path.read_bytes())
        if isinstance(told, dict) and told and "retain_s" not in told:
            told = {"position": told, "retain_s": 0}  # all that an earlier version wrote
        ledger = HeldLedger.from_json(told["ledger"]) if "ledger" in told else NOTHING_HELD
        positions = positions_of(told["position"])
        keep_s = float(told["keep_s"]) if "keep_s" in told else None
        return ConsumerPlace(positions, float(told["retain_s"]), str(told.get("owner", "")), ledger, keep_s)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, SpoolError):
        raise SpoolDamaged(f"{path} is not a consumer's position; remove it to forget that consumer") from None


def trim(root: Path, view: SpoolView, *, heed_wishes: bool = True) -> int:
    """Removes segments behind every consumer, never the present segment of a consumer. Returns their number.

    `heed_wishes`: keep segments written within the longest `retain_s`.
    """
    places = list(_live_places(root))
    retain_s = max((place.retain_s for place in places), default=0.0) if heed_wishes else 0.0
    removed = 0
    for name in view.receivers():
        oldest = min((place.oldest(name) for place in places), default=Position(0, 0))
        directory = root / name
        for number in view.segments(name):
            if number >= oldest.segment or _age_s(segment_path(directory, number)) < retain_s:
                break
            erase_pack(directory, number)
            # The segment goes first: without it, index and state are not looked at.
            for suffix in ("arrow", "index", "state"):
                segment_path(directory, number, suffix).unlink(missing_ok=True)
            removed += 1
    return removed


def _live_places(root: Path) -> Iterator[ConsumerPlace]:
    """Yields the places of all consumers, and removes those nobody has used for their `keep_s`."""
    for path in sorted((root / CONSUMERS).glob("*.json")):
        place = read_place(path)
        if place is None:
            continue
        lock = path.with_suffix(".lock")
        if place.keep_s is not None and _age_s(path) > place.keep_s and not is_held(lock):
            path.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)
            continue
        yield place


def make_room(root: Path) -> int:
    """Makes room in a spool at its cap; returns the number of removed segments or packs.

    Segments go that every consumer has read, and are kept only for future queries; if there are none, packs go, since
    they only repeat segments.
    """
    with nobody_trims(root):
        view = SpoolView(root)
        if removed := trim(root, view, heed_wishes=False):
            return removed
        segments = [(root / name, number) for name in view.receivers() for number in view.segments(name)]
        return sum(erase_pack(directory, number) for directory, number in segments)


def forget(root: Path, name: str) -> bool:
    """Removes a consumer that will not come back, and the segments kept for it alone. Returns False if there was none.

    Raises SpoolBusy for a running consumer, BadOption for an invalid name.
    """
    if not RECEIVER_NAME.fullmatch(name):
        raise BadOption(f"consumer {name!r} is not a name; see `veilmq ingest consumers {root}` for those that are")
    with nobody_trims(root):
        path = root / CONSUMERS / f"{name}.json"
        if is_held(path.with_suffix(".lock")):
            raise SpoolBusy(f"consumer {name!r} of {root} is running; stop its query first")
        known = path.exists()
        path.unlink(missing_ok=True)
        trim(root, SpoolView(root))
        return known


def release(root: Path, name: str, stretches: Sequence[HeldStretch], keys: Collection[str]) -> int:
    """Lets a consumer's query read the parts of held stretches needing these keys, with its next micro-batch.

    Returns the number of stretches. Raises SpoolDamaged, SpoolBusy.
    """
    path = root / CONSUMERS / f"{name}.json"
    with nobody_trims(root):
        place = read_place(path)
        if place is None:
            return 0
        ledger = place.ledger.release_held(stretches, keys)
        write_place(path, replace(place, ledger=ledger))
        return ledger.count - place.ledger.count


def give_up(root: Path, name: str) -> int:
    """Forgets the rows a consumer's query has passed over; returns the number of stretches.

    Raises SpoolDamaged, SpoolBusy.
    """
    path = root / CONSUMERS / f"{name}.json"
    with nobody_trims(root):
        place = read_place(path)
        if place is None or not place.ledger.held:
            return 0
        write_place(path, replace(place, ledger=replace(place.ledger, held=())))
        trim(root, SpoolView(root))
        return len(place.ledger.held)


def is_held(lock: Path) -> bool:
    """Returns True if a live process has this lock. The look shares the lock for a moment, for which a taker has to
    wait.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def alone_packing(root: Path) -> Iterator[None]:
    """Keeps every other process from making packs in this spool meanwhile. Raises SpoolBusy."""
    with _locked(root / CONSUMERS / ".pack", 0.0, f"{root}: another process is packing it; let that one finish"):
        yield


def _age_s(path: Path) -> float:
    """Returns the seconds since the last write to a file; infinity for a missing one."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


@contextlib.contextmanager
def nobody_trims(root: Path) -> Iterator[None]:
    """Keeps every other process of the spool from registering, committing or trimming meanwhile. Raises SpoolBusy."""
    told = f"{root}: another process has been trimming for {TAKE_OVER_S:.0f} s; see what holds it up"
    with _locked(root / CONSUMERS / ".trim", TAKE_OVER_S, told):
        yield


@contextlib.contextmanager
def _locked(path: Path, patience_s: float, told: str) -> Iterator[None]:
    descriptor = lock_file(path, patience_s)
    if descriptor is None:
        raise SpoolBusy(told)
    try:
        yield
    finally:
        os.close(descriptor)
