"""Kill -9 of driver, JVM, receiver and replicas, one by one and two at once, under load: every row is there once.

What is killed, and when, follows from a seed. A replica that was killed is back, and the receiver has met it again,
before another one is: a region of three bears one fault. What ends is started again, as a supervisor would; nothing
else is done about it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import paho.mqtt.client as paho
import psutil
import pytest

from tests.gateway.overlay_processes import ENVIRONMENT, OverlayProcesses
from tests.support.processes import ending
from tests.waits import wait_until

REPLICAS = ("north1", "north2", "north3")
RATE = 200
CRASHES = 20
PARTS = 5
"""The course is run in so many pieces, each with an overlay of its own: a piece takes a few minutes."""
RECOVERED_S = 300.0
"""What is waited for, at most: Spark alone takes 80 s to start again where two busy cores have half their speed."""
PROBE = -1
VICTIMS = ("driver", "jvm", "receiver", *REPLICAS)
SOURCE_RUNNER = "python_streaming_source_runner"
"""The process of Spark's driver side in which a query's reader lives, and with it our receiver."""


@dataclass
class Ingest:
    """The application, and a receiver beside it unless the application receives itself."""

    overlay: OverlayProcesses
    work: Path
    daemon: bool
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)

    def command(self, part: str) -> list[str]:
        spool, grants = self.work / "spool", self.work / "scope_keys.json"
        home = self.overlay.directory
        receives = {"identity": home / "job", "overlay": home / "job-overlay.json", "topics": "plant/line/#"}
        if part == "receiver":
            options = [word for name, value in receives.items() for word in (f"--{name}", str(value))]
            code = "from gateway.cli import main; main()"
            where = ["--spool", str(spool), "--grants", str(grants)]
            return [sys.executable, "-c", code, "ingest", "run", *where, *options]
        told = {"spool": spool, "grants": grants, "topics": "plant/line/#", **({} if self.daemon else receives)}
        pairs = [f"{name}={value}" for name, value in told.items()]
        return [sys.executable, "-m", "tests.spark_ingest.crash_driver", str(self.work), *pairs]

    @property
    def parts(self) -> tuple[str, ...]:
        return ("driver", "receiver") if self.daemon else ("driver",)

    def supervise(self) -> None:
        """Start what does not run."""
        for part in self.parts:
            process = self.running.get(part)
            if process is None or process.poll() is not None:
                with (self.work / f"{part}.log").open("ab") as log:
                    self.running[part] = subprocess.Popen(
                        self.command(part), cwd=self.work, env=ENVIRONMENT, stdout=log, stderr=log
                    )
                self.starts[part] += 1

    def kill(self, victim: str) -> None:
        """kill -9, of what is there."""
        if victim in REPLICAS:
            self.overlay.kill(victim)
        elif victim == "driver" or (victim == "receiver" and self.daemon):
            self.running[victim].kill()
        else:
            name = "java" if victim == "jvm" else SOURCE_RUNNER
            for process in self._below("driver", name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)

    def _below(self, part: str, name: str) -> list[psutil.Process]:
        """Processes that a part started, by a word of their command line."""
        found = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.running[part].pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    line = child.cmdline()
                    if any(name in word for word in (line[:1] if name == "java" else line)):
                        found.append(child)
        return found

    def rows(self) -> Counter[int]:
        """What the sink holds: how often each id is there."""
        path = self.work / "sink.sqlite3"
        if not path.exists():
            return Counter()
        with closing(sqlite3.connect(path, timeout=30)) as database:
            try:
                found = database.execute("SELECT id, count(*) FROM publications GROUP BY id")
                return Counter({int(number): count for number, count in found})
            except sqlite3.OperationalError:
                return Counter()  # just made

    def has(self, count: int) -> bool:
        self.supervise()
        return len(self.rows() - Counter({PROBE: 1 << 30})) >= count

    def linked(self) -> bool:
        """Whether the receiver has a connection to every replica."""
        self.supervise()
        ports = set()
        with contextlib.suppress(psutil.Error):
            top = psutil.Process(self.running["receiver" if self.daemon else "driver"].pid)
            for process in (top, *top.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    found = process.net_connections("tcp")
                    ports |= {each.raddr.port for each in found if each.status == psutil.CONN_ESTABLISHED}
        return ports >= {self.overlay.ports[name] for name in REPLICAS}

    def stop(self) -> None:
        for process in self.running.values():
            below = []
            with contextlib.suppress(psutil.Error):
                below = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            for child in below:
                with contextlib.suppress(psutil.Error):
                    child.kill()


class Device:
    """Publishes `RATE` messages a second, numbered in their JSON, at QoS 1."""

    def __init__(self, overlay: OverlayProcesses) -> None:
        self.sent = 0
        self._ended = threading.Event()
        self._client = overlay.client("site", "device", paho.MQTTv5)
        self._thread = threading.Thread(target=self._publish)

    def probe(self) -> None:
        """Only a session that is there keeps what comes while its receiver is away."""
        self._client.publish("plant/line/0", json.dumps({"id": PROBE}), 1)

    def start(self) -> None:
        self._thread.start()

    def _publish(self) -> None:
        for number in itertools.count():
            self._client.publish(f"plant/line/{number % 3}", json.dumps({"id": number}), 1)
            self.sent = number + 1
            if self._ended.wait(1 / RATE):
                return

    def end(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def begin(made: OverlayProcesses) -> None:
    made.make({"north": 3}, [], {"site": "north", "job": "north"})
    made.start(*REPLICAS, "site")


overlay = ending(begin)


def course_of(part: int, seed: int) -> list[str]:
    """Who falls in one piece of twenty crashes: each kind of victim at least three times in all, the rest drawn."""
    rng = random.Random(seed)
    course = [*VICTIMS * 3, *rng.choices(VICTIMS, k=CRASHES - 3 * len(VICTIMS))]
    rng.shuffle(course)
    return course[part - 1 :: PARTS]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(1, PARTS + 1))
@pytest.mark.parametrize(("daemon", "seed"), [(False, 1), (True, 2)], ids=["driver", "daemon"])
def test_twenty_crashes_lose_and_repeat_nothing(
    overlay: OverlayProcesses, tmp_path: Path, daemon: bool, seed: int, part: int
) -> None:
    """Daemon: the receiver is a process of its own, else the driver receives. A fourth of the victims falls together
    with a replica."""
    work = tmp_path / "work"
    work.mkdir(mode=0o700)
    ingest, rng = Ingest(overlay, work, daemon), random.Random(f"{seed} {part}")
    device = Device(overlay)
    course = course_of(part, seed)
    killed: list[str] = []
    try:
        ingest.supervise()
        assert wait_until(lambda: device.probe() or PROBE in ingest.rows(), RECOVERED_S, 0.5), ingest.rows()
        device.start()
        for victim in course:
            time.sleep(rng.uniform(0, 2))  # anywhere in a micro-batch
            together = [victim]
            if victim not in REPLICAS and rng.random() < 0.25:
                together.append(rng.choice(REPLICAS))
            for each in together:
                ingest.kill(each)
                killed.append(each)
            away = [each for each in together if each in REPLICAS]
            time.sleep(rng.uniform(0, 1))
            overlay.start(*away)
            # A replica whose queue is gone, and that the receiver has not met again, is still one that is away.
            assert wait_until(ingest.linked, RECOVERED_S, 0.5), killed[-3:]
            sent = device.sent
            caught_up = wait_until(lambda sent=sent: ingest.has(sent), RECOVERED_S, 0.5)
            assert caught_up, (killed[-3:], sent, len(ingest.rows()))
        device.end()
        wait_until(lambda: ingest.has(device.sent), RECOVERED_S, 0.5)
    finally:
        device.end()
        ingest.stop()
        device.close()
    rows = ingest.rows()
    del rows[PROBE]
    told = f"{device.sent} published, {sum(rows.values())} rows, {len(killed)} killed: {dict(Counter(killed))}"
    print(f"{told}, starts {dict(ingest.starts)}")
    assert len(killed) >= len(course)
    assert rows.keys() == set(range(device.sent)), "every publication is a row, and nothing else is"
    assert max(rows.values()) == 1, "no row is there twice"
