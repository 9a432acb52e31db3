"""Supervisor of `veilmq up`: a process a folder, each with its own log, restarted after a crash, stopped at the end.

Restarts follow systemd's `Restart=on-failure`: a process that SIGTERM ended with status 0 stays stopped. A process
with status 2, whose last line names a fault for the operator, restarts once its folder changes. New folders are
started, the signed overlay is exchanged between copies, and certificates are renewed.

Exchange of the signed overlay between the owner's copy and the copies in members' folders on a machine.

Renewal by `veilmq up` of certificates before they expire, so that a directory can run for years.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bridge.document import Overlay, OverlayError
from gateway.base import FileStamp, PrivateFileError, stamp, write_public
from gateway.base.log_events import LogEvent
from gateway.owner.renewing import consented, renew
from gateway.setup.folders import DOMAIN, IDENTITY, RoleFolder, role_folders
from gateway.setup.initialising import OWNER, SIGNED
from gateway.setup.plan import SetupError
from gateway.trust import Card, TrustDomain, TrustError, date_of, load_overlay
from gateway.trust.leaves import renew_leaf

LOOK_EVERY_S = 3_600.0


class Renewals:
    """The renewals of a directory. `say` prints a line for the operator."""

    def __init__(self, owner: Path, signed: Path, say: Callable[[str], None]) -> None:
        self._owner, self._signed, self._say = owner, signed, say
        self._next_s = 0.0
        self._said: set[str] = set()

    def renew_due(self, folders: list[RoleFolder], now: float) -> None:
        """Renews due certificates, at most once an hour, and reports each failure once.

        `now`: UNIX time in seconds.
        """
        if now < self._next_s:
            return
        self._next_s = now + LOOK_EVERY_S
        for line in self._renewed(folders, now):
            if line not in self._said:
                self._said.add(line)
                self._say(line)

    def _renewed(self, folders: list[RoleFolder], now: float) -> Iterator[str]:
        if (self._owner / "ca.key").exists() and self._signed.exists():
            try:
                done = consented(self._signed, self._owner) and renew(self._signed, self._owner, now)
                if done and done.overlay is not None:
                    yield f"certificates in {self._signed} renewed until {date_of(done.first_end_s)}"
            except (TrustError, OverlayError) as error:
                yield f"certificates in {self._signed} are not renewed: {error}"
        for folder in folders:
            domain = folder.path / DOMAIN
            if not (domain / "ca.key").exists() or not (folder.path / IDENTITY).is_dir():
                continue
            try:
                leaf = renew_leaf(folder.path / IDENTITY, TrustDomain.load(domain), now)
                if leaf.is_new:
                    yield f"the TLS certificate of {leaf.name} renewed until {date_of(leaf.ends_s)}"
            except TrustError as error:
                yield f"the TLS certificate of {folder.name} is not renewed: {error}"


def newest(copies: Sequence[Path], now_ms: int) -> tuple[Path, Overlay] | None:
    """Returns the verified copy with the highest version and then the most endorsements, or None.

    The owner of the first verified copy counts; copies by other owners are ignored.
    """
    best: tuple[Path, Overlay] | None = None
    owner: bytes | None = None
    for path in copies:
        with contextlib.suppress(TrustError, OverlayError):
            overlay = load_overlay(path, now_ms)
            owner = owner or overlay.owner
            if overlay.owner == owner and (best is None or _rank(overlay) > _rank(best[1])):
                best = path, overlay
    return best


def _rank(overlay: Overlay) -> tuple[int, int]:
    return overlay.policy.version, len(list(overlay.endorsements))


class CopiedFiles:
    """The copies of the overlay, compared only after a copy changed."""

    def __init__(self) -> None:
        self._seen: dict[Path, FileStamp | None] = {}

    def exchange(self, signed: Path, folders: Sequence[Path], now_ms: int) -> None:
        """Writes the newest copy over older and missing ones.

        `signed`: the owner's copy; `folders`: the members' copies.
        """
        copies = [signed, *folders]
        stamps = {path: stamp(path) for path in copies}
        if not signed.exists() or stamps == self._seen:
            return
        found = newest(copies, now_ms)
        if found is None:
            return
        source, overlay = found
        content = source.read_bytes()
        for path in copies:
            if path == source or not _is_for(path, overlay):
                continue
            try:
                # Checked again just before the write: the owner may have signed the next version there meanwhile.
                if write_public(path, content, still=partial(_lacks, path, overlay, now_ms)):
                    LogEvent.OVERLAY_PASSED_ON.say(log, overlay.policy.version, source, path)
            except PrivateFileError as error:
                LogEvent.OVERLAY_NOT_PASSED_ON.say(log, error)
        self._seen = stamps  # stamps from before: a change meanwhile is found the next time


def _is_for(path: Path, overlay: Overlay) -> bool:
    """Returns True if the overlay has the folder's member, which could not start with the overlay otherwise."""
    card = path.parent / IDENTITY / "card.json"
    if not card.exists():
        return True
    try:
        return Card.load(card).name in overlay.members
    except TrustError:
        return False


def _lacks(path: Path, overlay: Overlay, now_ms: int) -> bool:
    """Returns True if the copy is older than `overlay`, missing or invalid, and not by another owner."""
    try:
        theirs = load_overlay(path, now_ms)
    except (TrustError, OverlayError):
        return True
    return theirs.owner == overlay.owner and _rank(theirs) < _rank(overlay)


log = logging.getLogger("veilmq.up")

LOGS, PID = "logs", "pid"
LOG_BYTES_MAX = 16 << 20
"""Size in bytes above which a log becomes NAME.log.1 at the start of its process; the next one replaces NAME.log.1."""
PAUSE_FIRST_S, PAUSE_MOST_S = 1.0, 30.0
STABLE_S = 60.0
"""Seconds after which a crash counts as the first again: the next pause is PAUSE_FIRST_S."""
END_S = 15.0
BAD_INPUT = 2
PACKAGE_ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "gateway.cli", "broker", "-c")


@dataclass(slots=True)
class Child:
    """A member's process and the result of its last run."""

    folder: RoleFolder
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    again_at: float | None = 0.0
    """Time of the next start; None: not before its folder changes, or never."""
    pause_s: float = PAUSE_FIRST_S
    began_with: tuple[int, ...] = ()
    """State of the files at the start of the process, which may have missed a change during its start."""
    waits_for: tuple[int, ...] = ()
    """State of the files of an ended process that is restarted only after one of them changes."""

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    def last_line(self) -> str:
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""


@dataclass(slots=True)
class Supervisor:
    """The supervisor of a directory's processes: call `check_members` often and `stop` at the end.

    `say` prints a line for the operator. `only`: names of folders; empty: all folders. `log_level`: of all members;
    empty: as their files say.
    """

    directory: Path
    say: Callable[[str], None]
    only: frozenset[str] = frozenset()
    log_level: str = ""
    children: dict[str, Child] = field(default_factory=dict)
    _copies: CopiedFiles = field(default_factory=CopiedFiles)
    _waiting: set[str] = field(default_factory=set)
    _renewals: Renewals = field(init=False)

    def __post_init__(self) -> None:
        self._renewals = Renewals(self.directory / OWNER, self.directory / SIGNED, self.say)

    def open(self) -> None:
        """Makes the folder of logs.

        Raises SetupError for a directory without members or without a member named in `only`.
        """
        if not self.directory.is_dir():
            raise SetupError(f"{self.directory}: no such directory; make it with `veilmq init {self.directory}`")
        names = {folder.name for folder in role_folders(self.directory)}
        if not names:
            raise SetupError(f"{self.directory}: holds no member; make some with `veilmq init` or `veilmq join`")
        if missing := self.only - names:
            raise SetupError(f"{', '.join(sorted(missing))}: no such member here; there are {', '.join(sorted(names))}")
        (self.directory / LOGS).mkdir(exist_ok=True)

    def check_members(self, now: float) -> None:
        """Checks all folders and processes once. `now`: seconds of a monotonic clock."""
        folders = [f for f in role_folders(self.directory) if not self.only or f.name in self.only]
        self._renewals.renew_due(folders, time.time())
        self._copies.exchange(self.directory / SIGNED, [f.overlay_path for f in folders], int(time.time() * 1000))
        for folder in folders:
            if folder.name not in self.children and self._may_begin(folder):
                self.children[folder.name] = Child(folder, self.directory / LOGS / f"{folder.name}.log")
        for child in self.children.values():
            self._look_at_child(child, now)

    def _may_begin(self, folder: RoleFolder) -> bool:
        if folder.is_ready:
            return True
        if folder.name not in self._waiting:
            self._waiting.add(folder.name)
            self.say(f"{folder.name} waits for {folder.overlay_path}: its owner attaches it")
        return False

    def _look_at_child(self, child: Child, now: float) -> None:
        if child.process is not None and (status := child.process.poll()) is not None:
            child.process = None
            (child.folder.path / PID).unlink(missing_ok=True)
            self._ended(child, status, now)
        if child.process is not None:
            return
        if child.waits_for and _state(child.folder)[: len(child.waits_for)] != child.waits_for:
            child.waits_for, child.again_at = (), now
        if child.again_at is not None and now >= child.again_at:
            self._start_child(child, now)

    def _start_child(self, child: Child, now: float) -> None:
        rotate(child.log)
        child.began_with = _state(child.folder)
        paths = [str(PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
        level = ("--log-level", self.log_level) if self.log_level else ()
        with child.log.open("ab") as output:
            child.process = subprocess.Popen(
                [*COMMAND, str(child.folder.config.resolve()), *level],
                cwd=child.folder.path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches only the supervisor, which stops its processes
            )
        (child.folder.path / PID).write_text(f"{child.process.pid}\n")
        child.started_at, child.again_at = now, None

    def _ended(self, child: Child, status: int, now: float) -> None:
        name = child.folder.name
        if status == 0:
            self.say(f"{name} was stopped; touch {child.folder.config} to start it again")
            child.waits_for = _state(child.folder)[:1]  # without the overlay, which changes automatically
            return
        if status == BAD_INPUT:
            self.say(f"{name}: {child.last_line().removeprefix('veilmq: ')}")
            child.waits_for = child.began_with
            return
        child.pause_s = PAUSE_FIRST_S if now - child.started_at >= STABLE_S else child.pause_s
        child.again_at = now + child.pause_s
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        self.say(f"{name} ended {how}, is started again in {child.pause_s:.0f} s; see {child.log}")
        child.pause_s = min(2 * child.pause_s, PAUSE_MOST_S)

    def stop(self) -> None:
        """Terminates all processes, then kills processes remaining after END_S."""
        running = [child for child in self.children.values() if child.process is not None]
        for child in running:
            _signal(child, signal.SIGTERM)
        until = time.monotonic() + END_S
        for child in running:
            assert child.process is not None
            try:
                child.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(child, signal.SIGKILL)
                child.process.wait()
            (child.folder.path / PID).unlink(missing_ok=True)


def _signal(child: Child, number: int) -> None:
    if child.process is not None and child.process.poll() is None:
        child.process.send_signal(number)


def _state(folder: RoleFolder) -> tuple[int, ...]:
    """Returns the change times of the files an operator edits for a cure: configuration and overlay."""
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in (folder.config, folder.overlay_path))


def rotate(path: Path) -> None:
    """Begins a new log if the old one is large."""
    try:
        if path.stat().st_size > LOG_BYTES_MAX:
            path.replace(path.with_suffix(".log.1"))
    except FileNotFoundError:
        return
