"""`veilmq bridges`: sessions and messages of bridges at our broker."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.trust import OPTIONS

if TYPE_CHECKING:
    from gateway.base import Settings

bridges_app = typer.Typer(help="Bridges to ordinary brokers.", **OPTIONS)
Config = Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help="Configuration of the broker (YAML).")]


@bridges_app.command("list")
def listed(config: Config) -> None:
    """Print the number of messages waiting for each bridge, and bridges that are no longer configured."""
    from gateway.commands.printing import print_table
    from gateway.sessions import waiting_for_bridges

    settings, data = _with_data(config)
    rows = [
        [name, str(count), "" if name in settings.bridges else "not configured"]
        for name, count in sorted(waiting_for_bridges(data).items())
    ]
    print_table("", ["bridge", "waiting", ""], rows)


@bridges_app.command("forget")
def forget(config: Config, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Remove the session of a bridge that is no longer configured, and its messages. The broker must be stopped."""
    from gateway.base import ConfigError
    from gateway.sessions import forget_bridge

    settings, data = _with_data(config)
    if name in settings.bridges:
        raise ConfigError(f"{config}: bridge {name} is configured; take it out first")
    print(f"bridge {name} is forgotten, with {forget_bridge(data, name)} messages that waited for it")


def _with_data(config: Path) -> tuple[Settings, Path]:
    from gateway.base import ConfigError, load

    settings = load(config)
    if settings.data is None:
        raise ConfigError(f"{config}: without `data` nothing is left behind")
    return settings, settings.data
