"""`veilmq traces`: a live table of entities, the latest trace of each, and the history of one."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.commands.printing import Json, as_text, print_json, print_table, utc_text
from gateway.commands.trust import OPTIONS

if TYPE_CHECKING:
    from rich.table import Table

    from bridge.traces import Interest
    from bridge.tracking import Observed
    from gateway.commands.trace_board import TraceBoard

traces_app = typer.Typer(help="Which entities are alive.", **OPTIONS)

History = Annotated[Path, typer.Option("--history", metavar="FILE", help="What was observed (SQLite).")]
DEFAULT_HISTORY = Path("traces.sqlite3")
REFRESH_S = 0.5


@traces_app.command("watch")
def watch(
    entities: Annotated[
        list[str], typer.Argument(metavar="ENTITY...", help="Whom to follow; `shop:*` is whoever is called so.")
    ],
    credentials: Annotated[Path, typer.Option(metavar="DIR", help="Ours, made by `trust issue --role entity`.")],
    gateway: Annotated[
        list[str], typer.Option(metavar="HOST:PORT", help="Where to connect; several, for several witnesses.")
    ] = ["127.0.0.1:1883"],  # noqa: B006  typer copies it
    username: Annotated[str | None, typer.Option(help="For the gateway.")] = None,
    password_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Holds the password.")] = None,
    cafile: Annotated[Path | None, typer.Option(metavar="FILE", help="Connect by TLS, trusting it.")] = None,
    interest: Annotated[
        list[str] | None,
        typer.Option(help="Only changes, states, load, network or all_updates; several by several options."),
    ] = None,
    history: Annotated[Path | None, typer.Option("--history", metavar="FILE", help="Also write it down here.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="Stop after so long.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each trace.")] = False,
) -> None:
    """Follow entities: a live table, or JSON lines; Ctrl-C ends it. Faults are shown in 5 s; status 2: found nobody."""
    from bridge.tracking import is_pattern
    from gateway.commands.trace_board import TraceBoard, Troubles
    from gateway.tracing.addresses import addresses
    from gateway.tracing.client import Tracker, connection
    from gateway.tracing.store import TraceStore

    wanted = _interest(interest or [])
    store = TraceStore(history) if history is not None else None
    brokers = [process for each in gateway for process in addresses(each)]
    until = None if seconds is None else time.monotonic() + seconds
    board = TraceBoard(tuple(each for each in entities if not is_pattern(each)))
    try:
        with Tracker(credentials, brokers, configure=connection(username, password_file, cafile)) as tracker:
            for entity in entities:
                tracker.follow(entity, wanted)
            screen = _lines if as_json else _Screen(board) if sys.stdout.isatty() else _AtTheEnd(board)
            with _running(screen) as show:
                troubles = Troubles(tracker, entities, time.monotonic())
                while until is None or time.monotonic() < until:
                    seen = tracker.next(REFRESH_S)
                    if seen is not None:
                        board.show_trace(seen)
                        if store is not None:
                            store.observe(seen)
                    show(seen)
                    for line in troubles.news(time.monotonic()):
                        print(f"veilmq: {line}", file=sys.stderr)
                    if troubles.are_all:
                        break
        if troubles.are_any:
            raise typer.Exit(2)
    finally:
        if store is not None:
            store.close()


def _interest(names: list[str]) -> Interest:
    """Returns the union of the named interests; all interests without a name. Raises TrustError."""
    from bridge.traces import EVERYTHING, Interest
    from gateway.trust import TrustError

    known = {each.name.lower(): each for each in Interest if each.name}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise TrustError(f"--interest {unknown[0]}: there are {', '.join(sorted(known))}")
    wanted = Interest(0)
    for name in names:
        wanted |= known[name]
    return wanted or EVERYTHING


@traces_app.command("list")
def list_entities(
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Only those: `shop:*`, or one name.")] = "*",
    history: History = DEFAULT_HISTORY,
    offline: Annotated[bool, typer.Option("--offline", help="Only who is away, the longest first.")] = False,
    groups: Annotated[bool, typer.Option("--groups", help="How many of each group stand how.")] = False,
    as_json: Json = False,
) -> None:
    """Show the latest trace of each entity, and the number of its departures."""
    from bridge.tracking import Observed, matches
    from gateway.commands.trace_board import AWAY, TraceBoard

    board = TraceBoard()
    with _opened(history) as store:
        changes = [seen for seen in store.newest_changes() if matches(pattern, seen.entity)]
        latest = [seen for seen in store.latest() if matches(pattern, seen.entity)]
        for seen in sorted([*changes, *latest], key=lambda each: each.time_ms):
            board.show_trace(Observed(seen.entity, seen.kind, seen.time_ms, 0, seen.fields))
    if groups:
        _print_groups(board.groups(), as_json)
        return
    rows = board.sorted()
    if offline:
        rows = sorted((row for row in rows if row.health in AWAY), key=lambda row: row.since_ms)
    if as_json:
        print_json([row.to_json() for row in rows])
        return
    print_table("", list(_COLUMNS), [_cells(row.to_json(), time.time()) for row in rows])


@traces_app.command("history")
def show_history(
    entity: Annotated[str, typer.Argument(metavar="ENTITY")],
    history: History = DEFAULT_HISTORY,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many of the newest.")] = 100,
    as_json: Json = False,
) -> None:
    """Show the traces of an entity, oldest first."""
    with _opened(history) as store:
        found = store.history(entity, limit)
    later = [*(seen.time_ms for seen in found[1:]), int(time.time() * 1000)]
    rows = [{"time_ms": s.time_ms, "kind": s.kind.name, "fields": s.fields} for s in found]
    if as_json:
        print_json(rows)
        return
    print_table(
        entity,
        ["time", "for", "trace", ""],
        [
            [_date(r["time_ms"]), _lasted(end_ms - r["time_ms"]), str(r["kind"]), as_text(_pairs(r["fields"]))]
            for r, end_ms in zip(rows, later, strict=True)
        ],
    )


# --------------------------------------------------------------------------------------------------- details


def _print_groups(groups: dict[str, dict[str, int]], as_json: bool) -> None:
    if as_json:
        print_json(groups)
        return
    healths = sorted({health for counts in groups.values() for health in counts})
    rows = [[name, *(str(counts.get(health, 0)) for health in healths)] for name, counts in groups.items()]
    print_table("", ["group", *healths], rows)


def _opened(path: Path) -> Any:
    from contextlib import closing

    from gateway.tracing.store import TraceStore, TraceStoreError

    if not path.exists():
        raise TraceStoreError(f"{path}: no such file; `veilmq traces watch --history {path}` writes it")
    return closing(TraceStore(path))


def _lines(seen: Observed | None) -> None:
    if seen is not None:
        fields = {"entity": seen.entity, "kind": seen.kind.name, "time_ms": seen.time_ms, "fields": dict(seen.fields)}
        print(json.dumps(fields, ensure_ascii=False), flush=True)


class _Screen:
    """A live table on a terminal."""

    def __init__(self, board: TraceBoard) -> None:
        self._board = board

    def __enter__(self) -> _Screen:
        from rich.live import Live

        self._live = Live(_table(self._board), refresh_per_second=1 / REFRESH_S)
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.update(_table(self._board))
        self._live.stop()

    def __call__(self, seen: Observed | None) -> None:
        self._live.update(_table(self._board))


class _AtTheEnd:
    """A table in a file or pipe, where nothing can be drawn anew: printed once, a line for each entity."""

    def __init__(self, board: TraceBoard) -> None:
        self._board = board

    def __enter__(self) -> _AtTheEnd:
        return self

    def __exit__(self, *error: object) -> None:
        rows = [_cells(row.to_json(), time.time()) for row in self._board.sorted()]
        print_table(_summary(self._board), list(_COLUMNS), rows)

    def __call__(self, seen: Observed | None) -> None: ...


def _running(screen: Any) -> Any:
    from contextlib import nullcontext

    return nullcontext(screen) if screen is _lines else screen


def _summary(board: TraceBoard) -> str:
    return ", ".join(f"{count} {health}" for health, count in sorted(board.summary().items()))


_COLUMNS = ("entity", "health", "state", "since", "went", "seen", "latency", "loss", "load")
_STYLES = {"alive": "green", "suspected": "yellow", "failed": "red", "disconnected": "red"}


def _table(board: TraceBoard) -> Table:
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(title=_summary(board), title_justify="left", box=SIMPLE)
    for column in _COLUMNS:
        table.add_column(column, overflow="fold")
    for row in board.sorted():
        cells = _cells(row.to_json(), time.time())
        table.add_row(*(Text(cell) for cell in cells), style=_STYLES.get(row.health, ""))
    return table


def _cells(row: dict[str, Any], now: float) -> list[str]:
    seen_s = f"{max(0.0, now - row['seen_ms'] / 1000):.1f} s ago" if row["seen_ms"] else ""
    latency = "" if row["latency_ms"] is None else f"{row['latency_ms']} ms"
    loss = "" if row["loss_rate"] is None else f"{row['loss_rate']:.0%}"
    since = _date(row["since_ms"]) if row["since_ms"] else ""
    went = f"{row['flaps']} times" if row["flaps"] else ""
    load = as_text(_pairs(row["load"]))
    return [row["entity"], row["health"], row["state"], since, went, seen_s, latency, loss, load]


def _pairs(fields: dict[str, Any]) -> list[str]:
    return [f"{name}: {value}" for name, value in fields.items()]


def _lasted(milliseconds: int) -> str:
    """Returns a duration in milliseconds as text in its largest unit, for a line of a timeline."""
    seconds = max(0, milliseconds) // 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds} s"


def _date(time_ms: int) -> str:
    try:
        return utc_text(time_ms)
    except (OverflowError, ValueError, OSError):
        return "never"
