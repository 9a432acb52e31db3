"""Named consumers of a spool: how far each streaming query has come, and trimming behind the slowest.

A consumer is one streaming query; its name is an option (default: the name of its stream). Only segments that
lie wholly behind *every* registered consumer are removed, so a query that is switched off for a week still
finds its rows, and a query that will never come back must be forgotten (`forget`), or the spool fills to its
cap and receivers stop acknowledging. Two live queries cannot share a name.

    SPOOL/consumers/NAME.json    {"position": offset, "retain_s": seconds, "owner": token, "ledger": what it passed
                                 over (`ledger`), if anything}; its time of change: the last commit

A consumer is a checkpoint: its token stands in every offset of it, and in the file from the first batch on. A query
with another checkpoint is refused under this name (`needs`), for what the first has read would be gone for it.

A consumer may ask that segments stay for a while after all have read them (`retain_s`), for queries that start later
and for batch reads. The longest wish counts; a spool at its cap heeds none (`make_room`).
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

TAKE_OVER_S = 15.0
"""How long a restarted query waits until the worker of its predecessor, which Spark kills, has let go."""


def lock_file(path: Path, patience_s: float) -> int | None:
    """Take an exclusive lock that dies with this process; its descriptor, or None when others keep it."""
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
    """One query's place in the spool. `attach` before anything else; the lock lives as long as the process.

    Raises BadOption for a name that cannot be a file's name.
    """

    def __init__(self, root: Path, name: str, view: SpoolView, retain_s: float = 0.0) -> None:
        if not RECEIVER_NAME.fullmatch(name):
            raise BadOption(f"consumer={name!r} is not a name; use letters, digits, '.', '-' and '_'")
        self._root = root
        self._name = name
        self._view = view
        self._retain_s = retain_s
        self._lock: int | None = None
        self._owner = ""
        self._checked: tuple[str, bool] | None = None  # for whom `needs` has done its work, and whether it claimed
        self._at: Mapping[str, Position] | None = None

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

    def register(self, from_latest: bool = False, asked: Offset | None = None) -> Offset:
        """Oldest position that can be read now, or the newest, or the one that is `asked` for, protected from trimming
        from here on. Again the same for a query that died in its first batch."""
        with nobody_trims(self._root):
            place = read_place(self._path)
            if place is not None and place.owner:
                return as_offset(place.positions)
            begin = asked or (self._view.latest() if from_latest else self._view.earliest())
            if place is None:
                self._write(positions_of(begin))
            return begin

    def needs(self, start: Offset, owner: str = "", *, claim: bool = False) -> None:
        """The query is about to read from `start`: protect it, also when the file said otherwise.

        `owner`: the token of its checkpoint; `claim`: the checkpoint has a batch, so the name is its own from now on.
        Raises BadOption when the name is another checkpoint's.
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
                self._write(
                    wanted if moved or known is None else known, NOTHING_HELD if place is None else place.ledger
                )
            self._checked = (owner, claim)

    def commit(self, end: Offset, redriven: int = 0) -> int:
        """Everything up to `end` was processed, and redrives up to that number: write it down, trim; the number of
        segments removed."""
        with nobody_trims(self._root):
            self._at = positions_of(end)
            self._write(self._at, self.ledger.done(redriven))
            return trim(self._root, self._view)

    @property
    def ledger(self) -> HeldLedger:
        """What the query has passed over."""
        place = read_place(self._path)
        return NOTHING_HELD if place is None else place.ledger

    def hold(self, begin: Offset, end: Offset, keys: Sequence[str], redriven: int) -> None:
        """The micro-batch (begin, end] passes over what needs `keys`; on disk before it is read. `redriven`: the number
        of the last redrive that the query has read."""
        with nobody_trims(self._root):
            place = read_place(self._path)
            if place is not None and (ledger := place.ledger.note(begin, end, keys, redriven)) != place.ledger:
                write_place(self._path, replace(place, ledger=ledger))

    def has_committed(self, end: Offset, redriven: int) -> bool:
        """Whether this process wrote that down last."""
        return self._at == positions_of(end) and not self.ledger.between(0, redriven)

    def _write(self, positions: Mapping[str, Position], ledger: HeldLedger = NOTHING_HELD) -> None:
        write_place(self._path, ConsumerPlace(positions, self._retain_s, self._owner, ledger))


@dataclass(frozen=True, slots=True)
class ConsumerPlace:
    """What a consumer's file says."""

    positions: Mapping[str, Position]
    retain_s: float
    owner: str = ""
    ledger: HeldLedger = NOTHING_HELD

    def oldest(self, name: str) -> Position:
        """Where the first row of a receiver lies that the consumer still wants."""
        at = self.positions.get(name, Position(0, 0))
        return min(at, self.ledger.oldest(name) or at)


def write_place(path: Path, place: ConsumerPlace) -> None:
    """Durable when it returns."""
    told = {"position": as_offset(place.positions), "retain_s": place.retain_s, "owner": place.owner}
    ledger = {} if place.ledger == NOTHING_HELD else {"ledger": place.ledger.to_json()}
    write_durably(path, json.dumps(told | ledger).encode())


def read_place(path: Path) -> ConsumerPlace | None:
    """What a consumer's file says, None if there is none. Raises SpoolDamaged."""
    try:
        told = json.loads(path.read_bytes())
        if isinstance(told, dict) and told and "retain_s" not in told:
            told = {"position": told, "retain_s": 0}  # all that an earlier version wrote
        ledger = HeldLedger.from_json(told["ledger"]) if "ledger" in told else NOTHING_HELD
        return ConsumerPlace(
            positions_of(told["position"]), float(told["retain_s"]), str(told.get("owner", "")), ledger
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, SpoolError):
        raise SpoolDamaged(f"{path} is not a consumer's position; remove it to forget that consumer") from None


def trim(root: Path, view: SpoolView, *, heed_wishes: bool = True) -> int:
    """Remove segments behind every consumer; never the segment a consumer stands in. Number removed.

    `heed_wishes`: keep what was written within the longest `retain_s`.
    """
    found = [read_place(path) for path in sorted((root / CONSUMERS).glob("*.json"))]
    places = [place for place in found if place is not None]
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


def make_room(root: Path) -> int:
    """The spool is at its cap: remove what is kept for nobody but queries to come, and packs if that is nothing, since
    they only repeat segments. How many segments or packs."""
    with nobody_trims(root):
        view = SpoolView(root)
        if removed := trim(root, view, heed_wishes=False):
            return removed
        segments = [(root / name, number) for name in view.receivers() for number in view.segments(name)]
        return sum(erase_pack(directory, number) for directory, number in segments)


def forget(root: Path, name: str) -> bool:
    """Remove a consumer that will not come back, and what only it held. False if there was none.

    Raises SpoolBusy for one that is running, BadOption for what is no name.
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
    """What of some held stretches of a consumer needs these keys: its query reads it with its next micro-batch. How
    many stretches. Raises SpoolDamaged, SpoolBusy."""
    path = root / CONSUMERS / f"{name}.json"
    with nobody_trims(root):
        place = read_place(path)
        if place is None:
            return 0
        ledger = place.ledger.release(stretches, keys)
        write_place(path, replace(place, ledger=ledger))
        return ledger.count - place.ledger.count


def give_up(root: Path, name: str) -> int:
    """Forget what a consumer's query has passed over; how many stretches. Raises SpoolDamaged, SpoolBusy."""
    path = root / CONSUMERS / f"{name}.json"
    with nobody_trims(root):
        place = read_place(path)
        if place is None or not place.ledger.held:
            return 0
        write_place(path, replace(place, ledger=replace(place.ledger, held=())))
        trim(root, SpoolView(root))
        return len(place.ledger.held)


def is_held(lock: Path) -> bool:
    """Whether a live process has this lock. A look shares it for a moment, which whoever wants it has to wait for."""
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
    """Nobody else makes packs in this spool meanwhile. Raises SpoolBusy."""
    with _locked(root / CONSUMERS / ".pack", 0.0, f"{root}: another process is packing it; let that one finish"):
        yield


def _age_s(path: Path) -> float:
    """Seconds since a segment was last written to; endless for one that is gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")


@contextlib.contextmanager
def nobody_trims(root: Path) -> Iterator[None]:
    """Nobody else registers, commits or trims meanwhile, in any process of the spool. Raises SpoolBusy."""
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
