"""The command `veilmq simulate`: reads arguments and calls the module that reproduces figures.

The command `veilmq` finds `register` by its entry point, so that `gateway` knows nothing of experiments.
"""

# ruff: noqa: PLC0415  heavy imports happen inside the command, so that `--help` answers at once

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.commands.printing import Json


def register(app: typer.Typer) -> None:
    """Adds `simulate` to the command `veilmq`."""
    app.command()(simulate)


def simulate(
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="EXPERIMENT",
            help="availability, eventguard, octopis, placement, real, secret-forwarding, self-organisation; or all.",
        ),
    ],
    figure: Annotated[str | None, typer.Option(metavar="N", help="Figure or table of the source paper.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the same numbers again.")] = 1,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Picture to write, .svg or .png.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the page of all figures of this goes.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="With --html: fewer runs, smaller samples.")] = False,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Processes for figures that consist of cells.")] = 1,
    spark: Annotated[bool, typer.Option("--spark", help="Run cells as tasks of a Spark job.")] = False,
    cells: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep results of cells there, so that a run can go on.")
    ] = None,
    runs: Annotated[int | None, typer.Option(min=1, help="Seeds, for figures that take the mean of several.")] = None,
    share: Annotated[
        float | None, typer.Option(min=0.0001, max=1.0, help="Part of the paper's notifications that is played.")
    ] = None,
    cost: Annotated[
        list[str] | None, typer.Option(metavar="NAME=US", help="A time instead of measuring it, in microseconds.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Reproduce a figure of a source paper: table and picture. Or all of them, on a page beside the papers'
    numbers.
    """
    from papers.simulating import simulate as command

    told: dict[str, float] = {name: value for name, value in (("runs", runs), ("share", share)) if value is not None}
    options = command.RunOptions(jobs, spark, cells, command.costs_of(cost or ()), told)
    if experiment == "all":
        if html is None:
            raise command.SimulateError("all figures make a page; say where with --html DIR")
        return command.simulate_all(seed, html, as_json, options, quick)
    if figure is None and html is not None:
        return command.simulate_all(seed, html, as_json, options, quick, experiment)
    if figure is None:
        raise command.SimulateError("say which figure with --figure N, or give --html DIR for all of them")
    return command.simulate(experiment, figure, seed, out, as_json, options)
