"""A demonstration from start to table: starts the roles, injects the faults, waits until all is drained, counts.

    build the files -> start every role -> wait until the way is open from end to end -> publish, with faults
    -> drain -> read the logs of both ends and Spark's sink -> Report

Progress goes to the console that is passed in. Definitions of the figures are in `report.py`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from bridge.wire import PROPERTY_PART
from gateway.demo.logs import PROBE, Sent, read_lines, seen_messages, sent_messages
from gateway.demo.operators import Ledger
from gateway.demo.processes import DemoProcesses
from gateway.demo.report import DemoReport, KeyServiceTally, ReportRow, ReportSample, tally, tally_spark
from gateway.demo.setup import (
    AVAILABILITY,
    GATEWAYS,
    HOST,
    INGEST,
    KEY_SERVERS,
    REPLICAS,
    TELEMETRY,
    DemoError,
    DemoLayout,
)
from gateway.demo.timeline import Action, Step, Timeline
from keys.envelope import PROPERTY_HEADER, PROPERTY_SHARES, SignedHeader, from_property
from keys.errors import KeysError

READY_S = 180.0
"""Seconds to wait for all roles; a slow machine starts Spark in less."""
DRAIN_S = 60.0
LATE_S = 2.0
"""Seconds to wait after the last arrival for a duplicate that would follow."""
POLL_S = 0.1
PLAIN = "plain"
VEILMQ = ("-c", "from gateway.cli import main; main()")
"""The command `veilmq`, also from an uninstalled source tree."""
SHOW_EVERY_S = 1.0
DISK_LOW_BYTES = 16 << 20
"""Free bytes below which our databases will soon fail, each with its own error: one line reports this before."""


class Play:
    """The state of a run. `directory` holds the files of `setup.build`; processes belong to `fleet`."""

    def __init__(
        self, layout: DemoLayout, timeline: Timeline, fleet: DemoProcesses, ledger: Ledger, console: Console
    ) -> None:
        self._layout = layout
        self._timeline = timeline
        self._fleet = fleet
        self._ledger = ledger
        self._console = console
        self._facts: dict[str, dict[str, Any]] = {"telemetry": {}, "witness": {}, INGEST: {}}
        self._log = layout.directory / "logs"
        self._shown = 0.0
        self._unlinked: tuple[str, ...] = ()
        self._before = (0, 0)  # epoch and waits at the start of publishing

    # ------------------------------------------------------------------------------------------- starting

    def start(self) -> None:
        """Starts all processes; the future liar gets an ordinary replica's configuration."""
        self._log.mkdir(exist_ok=True)
        for name in (*KEY_SERVERS, *REPLICAS):
            self._start_member(name)
        for name in GATEWAYS:
            self._fleet.start(name, *VEILMQ, "broker", "-c", f"{name}.yaml")
        bind = f"{HOST}:{self._layout.plain_port}"
        self._fleet.start(PLAIN, *VEILMQ, "broker", "--bind", bind, "--allow-anonymous")
        self._fleet.start(INGEST, "-m", "spark_ingest.demo", *self._spark_arguments(), talks=True)
        ports = self._layout.client_ports
        self._fleet.start(
            "witness", "-m", "gateway.demo.witness", "--control", str(ports["control"]),
            "--plain", str(self._layout.plain_port), "--log", str(self._log / "received.jsonl"), talks=True,
        )  # fmt: skip
        self._start_telemetry(self._timeline.seconds, self._log / "sent.jsonl")

    def _start_member(self, name: str) -> None:
        if name == self._timeline.liar:
            seed, saw = str(self._timeline.seed), str(self._log / "replica-saw.jsonl")
            self._fleet.start(name, "-m", "papers.liar", "-c", f"{name}.yaml", "--seed", seed, "--saw", saw)
        else:
            self._fleet.start(name, *VEILMQ, "broker", "-c", f"{name}.yaml")

    def _start_telemetry(self, seconds: float, log: Path | None) -> None:
        arguments = ["--site", str(self._layout.client_ports["site"]), "--plain", str(self._layout.plain_port)]
        arguments += ["--seconds", str(seconds), *(("--log", str(log)) if log else ())]
        self._fleet.start("telemetry", "-m", "gateway.demo.telemetry", *arguments, talks=True)

    def _spark_arguments(self) -> list[str]:
        layout = self._layout
        return [
            "--identity", str(layout.identity(INGEST)), "--overlay", str(layout.overlay_path),
            "--grants", str(layout.grants), "--work", str(layout.directory / "spark"),
            "--telemetry", TELEMETRY, "--availability", AVAILABILITY, "--sink", str(self._sink),
        ]  # fmt: skip

    @property
    def _sink(self) -> Path:
        return self._layout.directory / "spark" / "sink.sqlite"

    # ------------------------------------------------------------------------------------------- watching

    def _turn(self, until_s: float = POLL_S) -> None:
        """Checks the processes, takes their events, shows some of Spark's rows. Raises DemoError."""
        time.sleep(until_s)
        self._fleet.check_running()
        if shutil.disk_usage(self._layout.directory).free < DISK_LOW_BYTES:
            raise DemoError(f"{self._layout.directory}: the disk is full; make room or set TMPDIR")
        for name, facts in self._facts.items():
            process = self._fleet[name]
            for event in process.events():
                if event.get("event") == "trouble":
                    raise DemoError(f"{name}: {event.get('text')}", 1, process.tail())
                self._take_event(facts, event)

    def _take_event(self, facts: dict[str, Any], event: dict[str, Any]) -> None:
        kind = event.pop("event", "")
        facts[kind] = event
        if kind == "window" and time.monotonic() - self._shown > SHOW_EVERY_S:
            self._shown = time.monotonic()
            for line in event.get("rows", ()):
                self._say_line(f"[dim]spark[/]  {escape(str(line))}")

    def _say_line(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)

    def _fact(self, process: str, event: str, field: str) -> int:
        return int(self._facts[process].get(event, {}).get(field, 0))

    def _wait_until(self, what: str, missing: Callable[[], list[str]], timeout_s: float) -> None:
        """Waits until `missing` returns nothing. Raises DemoError naming the missing items after `timeout_s`."""
        until = time.monotonic() + timeout_s
        with self._console.status(what) as status:
            while waiting := missing():
                status.update(f"{what}: waiting for {', '.join(waiting)}")
                if time.monotonic() > until:
                    raise DemoError(f"{what}: after {timeout_s:.0f} s still waiting for {', '.join(waiting)}", 1)
                self._turn()

    def wait_ready(self) -> None:
        """Waits until every link is up and a probe has reached the subscriber and Spark."""
        begun = time.monotonic()
        self._say_line(
            f"starting {len(REPLICAS)} replicas, {len(KEY_SERVERS)} key servers, {len(GATEWAYS)} gateways, "
            "an ordinary broker, clients and Spark"
        )
        self._wait_until("starting", self._not_ready, READY_S)
        self._say_line(f"every link is up and Spark has its first row, after {time.monotonic() - begun:.0f} s")

    def _not_ready(self) -> list[str]:
        waiting = [f"the links of {name}" for name in self._ledger.not_ready()]
        told = [("telemetry", "its brokers"), ("witness", "its subscriptions"), (INGEST, "a first row")]
        waiting += [f"{name} ({what})" for name, what in told if "ready" not in self._facts[name]]
        if self._fact("witness", "count", "probes") < 2:
            waiting.append("a probe in the control room")
        return waiting

    # ------------------------------------------------------------------------------------------- the course

    def publish(self) -> None:
        """Publishes with the injected faults, then waits for the last confirmation."""
        telemetry, seconds = self._fleet["telemetry"], self._timeline.seconds
        self._before = (self._ledger.epoch(), self._ledger.counted("key_waits"))
        telemetry.send_word("go")
        self._wait_until("starting", lambda: [] if "started" in self._facts["telemetry"] else ["telemetry"], 30.0)
        self._say_line(f"publishing for {seconds:.0f} s")
        start = time.monotonic()
        done_s = 0.0
        with self._console.status("publishing") as status:
            while "done" not in self._facts["telemetry"]:
                at_s = time.monotonic() - start
                for step in self._timeline.due_steps(done_s, at_s):
                    self._inject(step)
                done_s = at_s
                status.update(self._progress(at_s, seconds))
                if at_s > seconds + READY_S:
                    raise DemoError("telemetry: does not end", 1, telemetry.tail())
                self._turn()
        for step in self._timeline.due_steps(done_s, seconds):
            self._inject(step)

    def _progress(self, at_s: float, seconds: float) -> str:
        sent = self._fact("telemetry", "progress", "sent")
        delivered = self._fact("witness", "count", "sealed")
        rows = self._fact(INGEST, "rows", "count")
        return f"{min(at_s, seconds):5.1f} of {seconds:.0f} s: published {sent}, delivered {delivered}, in Spark {rows}"

    def _inject(self, step: Step) -> None:
        replica = self._fleet[step.replica]
        self._say_line(f"[bold yellow]{step.at_s:5.1f} s  {step.replica} {step.action.value}[/]")
        match step.action:
            case Action.LIE:
                replica.signal(signal.SIGUSR1)
            case Action.RECOVER:
                replica.signal(signal.SIGUSR2)
            case Action.KILL:
                replica.kill()
                self._ledger.restarted(step.replica)
            case Action.RESTART:
                self._start_member(step.replica)

    def drain(self) -> None:
        """Waits until subscriber and Spark have all messages, at most DRAIN_S; messages missing then are lost."""
        confirmed = self._fact("telemetry", "done", "sent") - self._fact("telemetry", "done", "unconfirmed")
        until = time.monotonic() + DRAIN_S
        self._say_line(f"{confirmed} messages published; waiting until all have arrived")
        with self._console.status("draining") as status:
            while time.monotonic() < until:
                counts = (
                    self._fact("witness", "count", "sealed"),
                    self._fact("witness", "count", "plain"),
                    self._fact(INGEST, "rows", "count"),
                )
                status.update(f"draining: delivered {counts[0]} of {confirmed}, in Spark {counts[2]}")
                self._unlinked = tuple(self._ledger.not_ready())
                if min(counts) >= confirmed and not self._unlinked:
                    break
                self._turn()
        for _ in range(round(LATE_S / POLL_S)):
            self._turn()
        for process in (self._fleet["telemetry"], self._fleet["witness"]):
            process.may_end = True
            process.send_word("stop")
            if not process.wait_for_end(10.0):
                raise DemoError(f"{process.name}: does not end", 1, process.tail())

    # ------------------------------------------------------------------------------------------- counting

    def report(self) -> DemoReport:
        """Returns the figures from the logs of both ends and from Spark's sink."""
        sent = sent_messages(read_lines(self._log / "sent.jsonl"))
        received = list(read_lines(self._log / "received.jsonl"))
        rows = list(read_sink(self._sink))
        return DemoReport(
            sealed=tally(sent, seen_messages(received, "sealed")),
            plain=tally(sent, seen_messages(received, "plain"), plain=True),
            unconfirmed=sum(not message.confirmed for message in sent.values()),
            spark=tally_spark(sent, rows),
            entities=(self._fact(INGEST, "entities", "known"), self._fact(INGEST, "entities", "online")),
            unlinked=self._unlinked,
            blamed=self._ledger.blamed().without(self._timeline.liar),
            timeline=self._timeline,
            key_service=self._key_service(),
            sample=find_sample(self._timeline.liar, self._log / "replica-saw.jsonl", rows, sent),
        )

    def _key_service(self) -> KeyServiceTally:
        epoch, waits = self._before
        epochs = self._ledger.epoch() - epoch + 1
        return KeyServiceTally(len(KEY_SERVERS), 1, epochs, max(0, self._ledger.counted("key_waits") - waits))

    def keep_running(self) -> None:
        """Continues to publish, uncounted, until the user interrupts."""
        self._facts["telemetry"] = {}
        self._start_telemetry(0.0, None)
        self._fleet["telemetry"].send_word("go")
        ports = self._layout.client_ports
        self._say_line(f"running on; files in {self._layout.directory}")
        self._say_line(
            f"devices publish at port {ports['site']}, applications subscribe at {ports['control']}, as with"
        )
        self._say_line(f"mosquitto_sub -p {ports['control']} -t 'machine/#' -v")
        self._say_line("Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                self._turn(0.5)


def read_sink(path: Path) -> Iterator[ReportRow]:
    """Yields the rows that Spark wrote. Raises DemoError if there is no sink."""
    if not path.exists():
        raise DemoError(f"{path}: Spark wrote no sink", 1)
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        for row in database.execute("SELECT publisher, sequence, id, topic, digest FROM publications"):
            yield ReportRow(str(row[0]), int(row[1]), str(row[2] or ""), str(row[3]), str(row[4]))


def find_sample(replica: str, path: Path, rows: list[ReportRow], sent: dict[str, Sent]) -> ReportSample | None:
    """Returns the first written-down message that brought the replica a share and whose clear form is known, or None.

    Publisher and sequence, which every replica can read, lead to the row in Spark and so to the sent message.
    """
    first = None
    known = {(row.publisher, row.sequence): row.id for row in rows if not row.id.startswith(PROBE)}
    for line in read_lines(path):
        properties = [(str(name), str(value)) for name, value in line["properties"]]
        try:
            told = next(value for name, value in properties if name == PROPERTY_HEADER)
            header = SignedHeader.decode(from_property(told)).header
        except (KeysError, StopIteration):
            continue
        message = sent.get(known.get((header.publisher.hex(), header.sequence), ""))
        if message is not None:
            sample = ReportSample(
                replica=replica,
                wire_topic=str(line["topic"]),
                content=bytes.fromhex(line["content"]),
                properties=tuple((name, from_property(value)) for name, value in properties if name != PROPERTY_PART),
                clear_topic=message.topic,
                clear_payload=message.payload,
            )
            if PROPERTY_SHARES in dict(properties):
                return sample
            first = first or sample
    return first


def print_json(report: DemoReport) -> None:
    """Prints exactly one object on standard output."""
    print(json.dumps(report.to_json(), ensure_ascii=False), flush=True)
