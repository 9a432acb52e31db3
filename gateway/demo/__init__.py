"""`veilmq demo`: the whole system on loopback, every role a process of its own, with telemetry of this machine.

Reading order: `setup` (files of all roles), `play` (the course), `telemetry` and `witness` (unchanged paho clients
at both ends), `liar` (the replica that can lie), `timeline` (faults), `report` (what counts). The Spark process is
`spark_ingest.demo`. No role knows that it is part of a demonstration but the liar.
"""

from __future__ import annotations

import errno
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from bridge.views import OverlayError
from gateway.trust import TrustError

from .operators import Operators
from .play import Play, print_json
from .processes import Fleet
from .report import Report, render
from .setup import REPLICAS, DemoError, build
from .timeline import Timeline

INTERRUPTED = 130


def run(seconds: float, json_output: bool, keep: bool, seed: int | None = None) -> int:
    """Run the demonstration; its exit status.

    `seconds`: publishing time. `json_output`: one object on standard output, progress on standard error. `keep`:
    leave everything running until Ctrl-C, and the files afterwards. `seed`: who lies and who is killed.
    0: everything arrived, nobody innocent was named; 1: not so; 2: it could not run here, one line says why.
    """
    progress = Console(stderr=json_output)
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    directory = Path(tempfile.mkdtemp(prefix="veilmq-demo-"))
    timeline = Timeline.draw(seed, seconds, REPLICAS)
    progress.print(f"seed {seed}, files in {directory}", highlight=False)
    try:
        with _terminated():
            return _run(directory, timeline, progress, json_output, keep)
    except KeyboardInterrupt:
        progress.print("interrupted")
        return INTERRUPTED
    except DemoError as error:
        for line in error.tail:
            print(f"  {line}", file=sys.stderr)
        print(f"veilmq: {error}", file=sys.stderr)
        return error.status
    except (TrustError, OverlayError) as error:
        print(f"veilmq: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        print(f"veilmq: {error.filename or directory}: {error.strerror}; make room or set TMPDIR", file=sys.stderr)
        return 2
    finally:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)


def _run(directory: Path, timeline: Timeline, progress: Console, json_output: bool, keep: bool) -> int:
    layout = build(directory, time.time())
    with Fleet(directory) as fleet:
        operators = Operators(layout.client_ports)
        try:
            play = Play(layout, timeline, fleet, operators.ledger, progress)
            play.start()
            play.wait_ready()
            play.publish()
            play.drain()
            report = play.report()
            _show(report, json_output)
            if keep:
                play.keep_running()
        finally:
            operators.close()
    return 1 if report.failures() else 0


def _show(report: Report, json_output: bool) -> None:
    if json_output:
        print_json(report)
    else:
        Console().print(render(report))


@contextmanager
def _terminated() -> Iterator[None]:
    """SIGTERM and SIGHUP end the demonstration like Ctrl-C, so that processes and files go."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
