"""`veilmq log trace`: follows messages through running members, live, at the sockets in their data directories."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.commands.trust import OPTIONS

log_app = typer.Typer(help="What happens to messages.", **OPTIONS)


@log_app.callback()
def _log() -> None:
    """Makes `trace` a command of a group, also while it is the only one."""


@log_app.command()
def trace(
    config: Annotated[
        list[Path] | None, typer.Option("-c", "--config", metavar="FILE", help="Of a running member; repeatable.")
    ] = None,
    overlay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="overlay.json: all members whose folders lie beside it.")
    ] = None,
    client: Annotated[str, typer.Option(metavar="ID", help="Published by this client, or for it.")] = "",
    topic: Annotated[str, typer.Option(metavar="FILTER", help="On these topics, such as plant/#.")] = "",
    address: Annotated[str, typer.Option(metavar="NET", help="Of clients at an address or in a network.")] = "",
    seconds: Annotated[float | None, typer.Option(min=0.1, help="End after so long.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many steps.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each step.")] = False,
) -> int:
    """Follow messages from now on: came, sealed, sent, opened, delivered or refused, and why. Never payloads."""
    import asyncio
    import json

    from gateway.base.followed import FollowError, Wish
    from gateway.base.logs import line_of
    from gateway.following import Question, follow

    if not (client or topic or address):
        raise FollowError("which messages? give --client ID, --topic FILTER or --address NET")
    Wish.read(client, topic, address)
    places = _places(config or [], overlay)

    def show(step: dict[str, Any]) -> None:
        print(json.dumps(step) if as_json else line_of(step), flush=True)

    def begun(names: list[str]) -> None:
        end = "" if seconds or count else "; Ctrl-C ends it"
        print(f"veilmq: following at {', '.join(names)}{end}", file=sys.stderr, flush=True)

    wish = {"client": client, "topic": topic, "address": address}
    shown = asyncio.run(follow(places, Question(wish, seconds, count), show, begun))
    if not shown:
        print("veilmq: nothing passed that fits", file=sys.stderr)
    return 0 if shown else 1


def _places(configs: list[Path], overlay: Path | None) -> list[Path]:
    """Returns the data directories of the members that are asked. Raises ConfigError."""
    from gateway.base import ConfigError, load
    from gateway.commands.overlay_status import settings_beside
    from gateway.following import SOCKET

    if bool(configs) == (overlay is not None):
        raise ConfigError("at which member? -c FILE for one or several, --overlay FILE for all of an overlay")
    if overlay is None:
        places = []
        for config in configs:
            data = load(config).data
            if data is None:
                raise ConfigError(f"{config}: has no data directory, where a running member is asked; add data")
            places.append(data)
        return places
    if not overlay.is_file():
        raise ConfigError(f"{overlay}: no such file; give the signed overlay.json")
    beside = [one.data for one in settings_beside(overlay).values() if one.data is not None]
    running = [data for data in beside if (data / SOCKET).is_socket()]
    if not running:
        raise ConfigError(f"{overlay}: no member runs whose folder lies beside it; start one, or give -c FILE")
    return running
