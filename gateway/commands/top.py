"""`veilmq top`: a running member in a terminal, with what is wrong, what was, and charts of the last hours.

Asks the metrics port, as `veilmq status` does: what is wrong every two seconds, the day's rows every ten.
"""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.commands.printing import print_json
from gateway.commands.status import ASK_S, EXIT, asked, fetched

if TYPE_CHECKING:
    from rich.console import RenderableType

LOOK_EVERY_S, DAY_EVERY_S = 2.0, 10.0
WIDTH = 60
"""Columns of a chart; each stands for a part of the time that is shown."""
ALARMS_SHOWN_MAX = 12  # newest alarms
BLOCKS = " ▁▂▃▄▅▆▇█"
ROWS = (
    ("received", "received a second"), ("sent", "sent a second"), ("dropped", "dropped a second"),
    ("clients", "clients connected"), ("queued", "waiting for clients"), ("outbox", "in the outbox"),
    ("links", "links up"), ("cpu_percent", "processor, percent"), ("memory_mib", "memory, MiB"),
)  # fmt: skip


def register(app: typer.Typer) -> None:
    """Adds the command to `veilmq`."""
    app.command()(top)


def top(
    config: Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help="Of the running member.")],
    hours: Annotated[float, typer.Option(min=0.1, max=24, help="How much of the day the charts show.")] = 3.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print status, rows and alarms once, as JSON.")] = False,
) -> int:
    """Watch a running member: findings, alarms since when and until when, charts. Ends with Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from gateway.base import ConfigError, load

    settings = load(config)
    if settings.metrics is None:
        raise ConfigError(f"{config}: has no metrics section, where a running member is asked; add metrics: {{}}")
    bind = settings.metrics.bind
    status, day = asked(bind), day_of(bind)
    if as_json:
        print_json({"status": status, **day})
    elif once or not Console().is_terminal:
        Console(width=None if Console().is_terminal else 120).print(drawn(bind, status, day, hours, time.time()))
    else:
        with Live(drawn(bind, status, day, hours, time.time()), screen=True, auto_refresh=False) as live:
            _watch(live, bind, hours)
    return EXIT[status["level"]]


def _watch(live: Any, bind: str, hours: float) -> None:
    day, day_at = day_of(bind), time.monotonic()
    while True:
        time.sleep(LOOK_EVERY_S)
        if time.monotonic() - day_at >= DAY_EVERY_S:
            day, day_at = day_of(bind), time.monotonic()
        live.update(drawn(bind, asked(bind), day, hours, time.time()), refresh=True)


def day_of(bind: str) -> dict[str, Any]:
    """Returns the answer to `/day`; without one, an empty day."""
    empty: dict[str, Any] = {"fields": [], "rows": [], "alarms": []}
    try:
        answer = fetched(bind, "day", ASK_S)
    except (OSError, ValueError):
        return empty  # the status says what is wrong
    return {**empty, **answer} if isinstance(answer, dict) else empty


def drawn(bind: str, status: Mapping[str, Any], day: Mapping[str, Any], hours: float, now: float) -> RenderableType:
    """Returns the whole picture. `now`: UNIX seconds."""
    from rich.box import SIMPLE
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    overlay = status.get("overlay") or {}
    name = f"{overlay['name']}, {overlay['role']}" if overlay else bind
    parts: list[RenderableType] = [Text(f"{name}: {status['level']}, {status.get('clients', 0)} clients", "bold")]
    parts += [Text(f"{one['level']}: {one['text']}") for one in status["findings"]]
    charts = Table(title=f"The last {hours:g} hours", title_justify="left", box=SIMPLE)
    for column in ("figure", "now", "most", f"{hours:g} h ago … now"):
        charts.add_column(column, justify="right" if column in ("now", "most") else "left", no_wrap=True)
    for field, said in ROWS:
        values = series(day, field, now - hours * 3600)
        if values:
            most = max(value for _, value in values)
            charts.add_row(said, _number(values[-1][1]), _number(most), chart(values, now - hours * 3600, now))
    parts.append(charts if charts.row_count else Text("No minute has passed since the first start."))
    if alarms := day["alarms"][:ALARMS_SHOWN_MAX]:
        table = Table(title="Alarms", title_justify="left", box=SIMPLE)
        for column in ("since", "until", "level", "finding"):
            table.add_column(column, overflow="fold")
        for one in alarms:
            table.add_row(_when(one["since"]), _when(one["over"]), str(one["level"]), Text(str(one["text"])))
        parts.append(table)
    return Group(*parts)


def series(day: Mapping[str, Any], field: str, since: float) -> list[tuple[float, float]]:
    """Returns (UNIX time, value) of a figure's rows since then."""
    if field not in day["fields"]:
        return []
    at = day["fields"].index(field)
    return [(row[0], row[at]) for row in day["rows"] if row[0] >= since]


def chart(values: Sequence[tuple[float, float]], begin: float, end: float) -> str:
    """Returns the greatest value of each part of the time as a column of its height; a blank where nothing was kept."""
    most: list[float | None] = [None] * WIDTH
    for at, value in values:
        place = min(WIDTH - 1, max(0, int((at - begin) / (end - begin) * WIDTH)))
        most[place] = max(value, most[place] or 0.0)
    top_value = max((value for value in most if value is not None), default=0.0) or 1.0
    marks = len(BLOCKS) - 2
    return "".join(" " if value is None else BLOCKS[1 + round(value / top_value * marks)] for value in most)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _when(at: float | None) -> str:
    return "lasts" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
