"""`veilmq simulate`: runs a single figure of an experiment, or all, prints tables and notes, and writes pictures.

The experiments are pure (in `bridge`); their inputs come from here: the time that real operations take on this
machine (`measure`, or as given), a clock, and processes for cells. Not here: drawing (`pictures`), the page of all
figures (`report`), the meaning of figures (their notes).
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import re
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from bridge.base import OperatorError
from bridge.contract import Numbered, Publication, packed
from bridge.wire import DOMAIN, Statement
from gateway.mqtt5.codec import Decoder
from gateway.mqtt5.encoding import encode_publish
from gateway.mqtt5.packets import Version
from keys.envelope import (
    MessageHeader,
    Mode,
    content_digest,
    from_property,
    header_of,
    make_key,
    open_key,
    sign_header,
    to_property,
    verify_header,
)
from keys.epochs import KeyName, scope_key
from keys.identity import Identity, verify
from keys.records import Records
from keys.sharetree import Hop
from papers.experiments.experiments import Figure
from papers.experiments.loads import Costs
from papers.overlays import octopis_cells, self_organisation
from papers.simulating import real_data, report
from papers.simulating.pictures import SUFFIXES, NoMatplotlib, draw
from papers.simulating.sweeping import Elsewhere, Sweeper, on_spark

REAL = "real"
EXPERIMENTS: Mapping[str, str] = {
    "availability": "papers.experiments.claims",
    "eventguard": "papers.attacks.eventguard",
    "octopis": "papers.overlays.octopis",
    "placement": "papers.overlays.placed",
    REAL: "papers.real.real",
    "secret-forwarding": "papers.experiments.secret_forwarding",
    "self-organisation": "papers.overlays.self_organisation",
}
"""Modules with `FIGURES`: figure number -> function `(seed, progress)`, imported on demand."""
ROUNDS = 11
ROUND_S = 0.01
PAYLOAD_BYTES = 256
BATCH_RECORDS = 16
"""Records of a batch in figures that compare batches with publications of one record: one signature serves so many."""
TOPIC = "plant/line/speed"
TEXT_CHARS = 8  # narrowest column of text
_NUMBER = re.compile(r"[-+.,e\d]+")


class SimulateError(OperatorError):
    """An error of a request that does not exist or cannot be written: a line, cause and cure."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run.

    `told`: parameters of some figures only (`runs`, `share`, `rounds`). `kept`: folder of kept cells.
    """

    jobs: int = 1
    spark: bool = False
    kept: Path | None = None
    costs: Mapping[str, float] = dataclasses.field(default_factory=dict)
    told: Mapping[str, float] = dataclasses.field(default_factory=dict)


QUICK: Mapping[str, float] = {"runs": 1, "share": 0.005, "rounds": 200, "ticks": 3_000}


def costs_of(assignments: Sequence[str]) -> dict[str, float]:
    """Parses `NAME=MICROSECONDS` assignments. Raises SimulateError."""
    names, found = [one.name for one in fields(Costs)], dict[str, float]()
    for assignment in assignments:
        name, _, text = assignment.partition("=")
        if name not in names:
            raise SimulateError(f"no cost {name}; take one of {', '.join(names)}")
        try:
            found[name] = float(text)
        except ValueError:
            raise SimulateError(f"{assignment} is no time; write {name}=MICROSECONDS") from None
    return found


def simulate_all(
    seed: int, directory: Path, as_json: bool, options: RunOptions, quick: bool, only: str | None = None
) -> int:
    """Runs every figure of every experiment, or of one, and writes a page in `directory`; returns the exit status.

    Recorded data are left out where their packages are missing, unless they are asked for.
    """
    experiments = _experiments(only)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SimulateError(f"cannot make {directory}: {error.strerror}; choose another --html") from error
    if quick:
        options = replace(options, told={**QUICK, **options.told})
    costs = _costs(options)
    options = replace(options, costs=asdict(costs), kept=options.kept or directory / "cells")
    size = ", ".join(f"{name} {value:g}" for name, value in options.told.items()) or "full size"
    key = f"Seed {seed}, {size}"
    figures = report.gather(experiments, lambda function, name: _run(function, seed, name, options), directory, key)
    rows = report.write(figures, directory, costs, key)
    if as_json:
        told = [{"what": f"{row.claim.experiment} {row.claim.figure}: {row.claim.what}", "paper": row.claim.paper,
                 "ours": row.ours, "hit": row.is_hit} for row in rows]  # fmt: skip
        print(json.dumps(told, indent=2, ensure_ascii=False))
        return 0
    for row in rows:
        mark, one = "hit " if row.is_hit else "MISS", row.claim
        print(f"{mark}  {one.experiment} {one.figure}: {one.what}: paper {one.paper:g}, ours {_rounded(row.ours)}")
    hits = f"{sum(row.is_hit for row in rows)} of {len(rows)} numbers hit" if rows else f"{len(figures)} figures"
    print(f"{hits}; page in {directory / 'index.html'}")
    return 0


def _experiments(only: str | None) -> Mapping[str, str]:
    """Returns the experiments of a page. Raises SimulateError for one that does not exist."""
    if only is not None:
        if only not in EXPERIMENTS:
            raise SimulateError(f"no experiment {only}; take one of {', '.join(EXPERIMENTS)}")
        if only == REAL and (lacking := real_data.lacking()):
            raise SimulateError(lacking)
        return {only: EXPERIMENTS[only]}
    if REAL in EXPERIMENTS and (lacking := real_data.lacking()):
        print(f"veilmq: no figures on recorded data: {lacking}", file=sys.stderr)
        return {name: module for name, module in EXPERIMENTS.items() if name != REAL}
    return EXPERIMENTS


def simulate(
    experiment: str, number: str, seed: int, out: Path | None, as_json: bool, options: RunOptions | None = None
) -> int:
    """Runs, prints and draws a figure; returns the exit status.

    With JSON, a picture is written only if `out` is given.
    """
    options = options or RunOptions()
    function = _find(experiment, number)
    if experiment == REAL and (lacking := real_data.lacking()):
        raise SimulateError(lacking)
    if unknown := options.told.keys() - inspect.signature(function).parameters.keys():
        raise SimulateError(f"{experiment} {number} has no --{min(unknown)}; leave it out")
    path = out or (None if as_json else Path(f"{experiment}-{number}.svg"))
    if path is not None:
        _check_path(path)
    figure = _run(function, seed, f"{experiment} {number}", options)
    if as_json:
        print(json.dumps(asdict(figure), indent=2, ensure_ascii=False))
    else:
        print_figure(figure, Console())
    if path is not None:
        _draw(figure, path, quiet=as_json)
    return 0


def _find(experiment: str, number: str) -> Callable[..., Figure]:
    module = EXPERIMENTS.get(experiment)
    if module is None:
        raise SimulateError(f"no experiment {experiment}; take one of {', '.join(EXPERIMENTS)}")
    figures: Mapping[str, Callable[..., Figure]] = importlib.import_module(module).FIGURES
    if number not in figures:
        raise SimulateError(f"{experiment} has no figure {number}; take one of {', '.join(figures)}")
    return figures[number]


def _check_path(path: Path) -> None:
    """Raises SimulateError for an unusable path before the run, which takes a while."""
    if path.suffix not in SUFFIXES:
        raise SimulateError(f"cannot tell the format of {path}; end it in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise SimulateError(f"there is no directory {path.parent}; make it or choose another --out")


def _costs(options: RunOptions) -> Costs:
    """Returns the given costs, and measures missing ones."""
    if options.costs.keys() >= {one.name for one in fields(Costs)}:
        return Costs(**options.costs)
    return replace(measure(), **options.costs)


def _elsewhere(options: RunOptions) -> Elsewhere | None:
    if not options.spark:
        return None
    try:
        return on_spark()
    except (LookupError, ImportError):
        raise SimulateError("Spark is not installed; pip install 'veilmq[spark]', or leave out --spark") from None


def _run(function: Callable[..., Figure], seed: int, name: str, options: RunOptions) -> Figure:
    """Runs a figure's function with the keyword arguments that it asks for and a pure module cannot have."""
    offered: dict[str, Callable[[], object]] = {
        "costs": lambda: _costs(options),
        "clock": lambda: time.perf_counter,
        "recorded": real_data.recorded,
        "sweep": lambda: Sweeper(octopis_cells.measure, options.jobs, options.kept, _elsewhere(options)),
        "tree_sweep": lambda: Sweeper(self_organisation.measure, options.jobs, options.kept, _elsewhere(options)),
    }
    offered |= {told: lambda value=value: value for told, value in options.told.items()}  # type: ignore[misc]
    wanted = inspect.signature(function).parameters
    given = {keyword: make() for keyword, make in offered.items() if keyword in wanted}
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=1.0)
        return function(seed, lambda done: bar.update(task, completed=done), **given)


def _draw(figure: Figure, path: Path, quiet: bool) -> None:
    try:
        draw(figure, path)
    except NoMatplotlib as error:
        print(f"veilmq: no picture in {path}: {error}", file=sys.stderr)
    except OSError as error:
        raise SimulateError(f"cannot write {path}: {error.strerror}; choose another --out") from error
    else:
        if not quiet:
            print(f"picture in {path}")


def print_figure(figure: Figure, console: Console) -> None:
    """Prints title, table and notes."""
    # `Text`, because brackets of a title are not markup
    title = Text(f"{figure.experiment}, figure {figure.number}: {figure.title}")
    table = Table(title=title, title_justify="left", box=SIMPLE)
    columns, rows = _with_spread(figure)
    cells_of = [[row[place] for row in rows] for place in range(len(columns))]
    # A number broken over two lines reads as two numbers: columns of text give room first.
    widths = [max(map(len, cells)) if all(map(_NUMBER.fullmatch, cells)) else None for cells in cells_of]
    is_wide = sum(width or TEXT_CHARS for width in widths) + 3 * len(columns) <= console.width
    for column, width in zip(columns, widths, strict=True):
        table.add_column(Text(column), justify="right", overflow="fold", min_width=width if is_wide else None)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
    for note in figure.notes:
        console.print(Text(f"* {note}"))


def _with_spread(figure: Figure) -> tuple[list[str], list[list[str]]]:
    """Returns columns and cells as text; a column `sd` (standard deviation) joins the previous column."""
    spreads = {place for place, column in enumerate(figure.columns) if column == "sd" and place}
    columns = [
        f"{column} ± sd" if place + 1 in spreads else column
        for place, column in enumerate(figure.columns)
        if place not in spreads
    ]
    rows = []
    for row in figure.rows:
        cells = [cell if isinstance(cell, str) else _rounded(cell) for cell in row]
        for place in spreads:
            cells[place - 1] += f" ±{float(row[place]):.1g}"
        rows.append([cell for place, cell in enumerate(cells) if place not in spreads])
    return columns, rows


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < report.LONGEST else f"{value:.3g}"


# ------------------------------------------------------------------------------------------------ measuring


def measure() -> Costs:
    """Measures costs of operations on a publication of 256 bytes on this machine: medians, in about a second."""
    return Costs(**{name: median_us(work) / share for name, work, share in _operations()})


def median_us(work: Callable[[], object]) -> float:
    """Returns the median over `ROUNDS` rounds of the time of one call, in microseconds."""
    calls, spent_s = 1, 0.0
    while spent_s < ROUND_S:
        calls *= 2
        spent_s = _round_s(work, calls)
    return statistics.median(_round_s(work, calls) for _ in range(ROUNDS)) / calls * 1e6


def _round_s(work: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return time.perf_counter() - start


def _operations() -> Iterator[tuple[str, Callable[[], Any], int]]:
    """Yields (field of `Costs`, a call, number of operations in the call)."""
    identity, payload = Identity.generate(os.urandom(32)), os.urandom(PAYLOAD_BYTES)
    packet = encode_publish(TOPIC, payload, qos=1, packet_id=1)
    decoder = Decoder(Version.V5)
    yield "parse_us", lambda: decoder.feed(packet), 1
    yield "write_us", lambda: encode_publish(TOPIC, payload, qos=1, packet_id=1), 1
    yield from _sealing(identity, payload)
    header = _header(identity, os.urandom(16), 1, (content_digest(payload),))
    told = to_property(sign_header(identity, header, TOPIC).encode())

    def verify_one() -> None:
        signed = from_property(told)
        verify_header(header_of(signed), signed, TOPIC, identity.public_bytes)

    for field, records in (("", 1), ("batched_", BATCH_RECORDS)):
        yield f"{field}sign_us", lambda: sign_header(identity, header, TOPIC), records
        yield f"{field}verify_us", verify_one, records
    root = os.urandom(32)
    yield "derive_us", lambda: scope_key(root, "plant/#", 1), 1
    statement = Statement("gateway", "plant/#", 1, True, 1)
    frame = statement.signed(identity).encode()
    yield "statement_us", lambda: statement.signed(identity).encode(), 1

    def check_statement() -> None:
        stated = Statement.decode(frame)
        verify(identity.public_bytes, DOMAIN, stated.signed_bytes(), stated.signature)

    yield "check_statement_us", check_statement, 1
    yield from _carrying(packet)


def _carrying(packet: bytes) -> Iterator[tuple[str, Callable[[], Any], int]]:
    """Yields operations sending a single packet over loopback from a thread: the system calls of both sides."""
    for field, kind in (("tcp_us", socket.SOCK_STREAM), ("udp_us", socket.SOCK_DGRAM)):
        with socket.socket(socket.AF_INET, kind) as taker, socket.socket(socket.AF_INET, kind) as sender:
            taker.bind(("127.0.0.1", 0))
            if kind == socket.SOCK_STREAM:
                taker.listen(1)
            sender.settimeout(1.0)
            sender.connect(taker.getsockname())
            receiver = taker.accept()[0] if kind == socket.SOCK_STREAM else taker.dup()
            with receiver:
                receiver.settimeout(1.0)

                def carry(sender: socket.socket = sender, receiver: socket.socket = receiver) -> None:
                    sender.sendall(packet)
                    got = 0
                    while got < len(packet):
                        got += len(receiver.recv(1 << 16))

                yield field, carry, 1


def _sealing(identity: Identity, payload: bytes) -> Iterator[tuple[str, Callable[[], Any], int]]:
    """Yields operations of sealing by a publisher, with header and digest, and of opening by a subscriber."""
    key = os.urandom(32)
    name, hop = KeyName("plant/#", 1, 0), Hop(1, 1, 1, 1)
    key_header, data_key, shares = make_key(identity, name, (hop,), 1, 1 << 31, key, os.urandom)
    sequences = iter(range(1, 1 << 31))

    def seal() -> tuple[MessageHeader, bytes]:
        sequence = next(sequences)
        header = _header(identity, key_header.key_id, sequence, ())
        sealed = data_key.seal(header.prefix(), sequence, TOPIC, _record(sequence, payload))
        return _header(identity, key_header.key_id, sequence, (content_digest(sealed),)), sealed

    yield "seal_us", seal, 1
    header, sealed = seal()
    reader = open_key(key_header, shares[0].value, key)
    prefix = header.prefix()
    yield "open_us", lambda: Records.decode(reader.open(prefix, header.sequence, TOPIC, sealed)), 1


def _record(sequence: int, payload: bytes) -> bytes:
    return packed(TOPIC, [Numbered(sequence, Publication(TOPIC, payload, 1, time_ms=1))]).payload


def _header(identity: Identity, key_id: bytes, sequence: int, digests: tuple[bytes, ...]) -> MessageHeader:
    return MessageHeader(
        publisher=identity.party_id,
        key_id=key_id,
        sequence=sequence,
        previous=0,
        time_ms=1,
        deadline_ms=0,
        qos=1,
        retain=False,
        tombstone=False,
        mode=Mode.COPIES,
        digests=digests,
    )
