"""`veilmq demo`: the whole system on loopback, every role in its own process, with telemetry of this machine.

Reading order: `setup` (files of all roles), `play` (the course), `telemetry` and `witness` (unchanged paho clients at
both ends), `liar` (the replica that can lie), `timeline` (faults), `report` (figures and verdict). The Spark process
is `spark_ingest.demo`. No role but the liar knows that it is part of a demonstration.
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
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from rich.console import Console

from bridge.document import OverlayError
from gateway.demo.operators import Operators
from gateway.demo.play import Play, print_json
from gateway.demo.processes import ENDING_SIGNALS, DemoProcesses, undisturbed
from gateway.demo.report import DemoReport, render
from gateway.demo.setup import KEY_SERVERS, REGIONS, DemoError, build
from gateway.demo.timeline import Timeline
from gateway.trust import TrustError

INTERRUPTED = 130
SPARK_NEEDS = ("pyspark", "pyarrow")
"""Packages of the extra `spark` without which the Spark process of the demo cannot start."""


def run(seconds: float, json_output: bool, keep: bool, seed: int | None = None) -> int:
    """Runs the demonstration; returns its exit status.

    `seconds`: publishing time. `json_output`: an object on standard output, progress on standard error. `keep`: leave
    everything running until Ctrl-C, and the files afterwards. `seed`: chooses the liar and the victims. Status 0:
    everything arrived, no innocent member was named; 1: otherwise; 2: it could not run here, a line gives the reason.
    """
    if missing := [name for name in SPARK_NEEDS if find_spec(name) is None]:
        print(
            f"veilmq: the demo needs Spark, and {missing[0]} is missing; pip install 'veilmq[spark]'", file=sys.stderr
        )
        return 2
    progress = Console(stderr=json_output)
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    directory = Path(tempfile.mkdtemp(prefix="veilmq-demo-"))
    timeline = Timeline.draw(seed, seconds, list(REGIONS.values()), KEY_SERVERS)
    progress.print(f"seed {seed}, files in {directory}", highlight=False)
    try:
        with _ended_once():
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


def _run(directory: Path, timeline: Timeline, progress: Console, json_output: bool, keep: bool) -> int:
    try:
        layout = build(directory, time.time())
        with closing(Operators(layout.client_ports)) as operators, DemoProcesses(directory) as fleet:
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
        if not keep:
            with undisturbed():
                shutil.rmtree(directory, ignore_errors=True)
    return 1 if report.failures() else 0


def _show(report: DemoReport, json_output: bool) -> None:
    if json_output:
        print_json(report)
    else:
        Console().print(render(report))


@contextmanager
def _ended_once() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP end the demonstration as Ctrl-C does; a second signal does not disturb the clean-up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in ENDING_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
