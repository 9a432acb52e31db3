"""`veilmq tokens`: tokens of the HTTP API, in the broker's file; a running broker follows at the next request."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.printing import Json, print_json, print_table
from gateway.commands.trust import OPTIONS

if TYPE_CHECKING:
    from gateway.auth.api_tokens import ApiTokens
    from gateway.base import Settings
    from gateway.base.config_console import Console

tokens_app = typer.Typer(help="Tokens by which programs speak to the HTTP API of a broker.", **OPTIONS)
Config = Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help="Configuration of the broker (YAML).")]


def _opened(config: Path) -> tuple[Settings, Console, ApiTokens]:
    """Opens the tokens of a configuration.

    Raises ConfigError if tokens would have no effect, PrivateFileError if the broker could not read the file.
    """
    import os

    from gateway.auth.api_tokens import FILE, ApiTokens
    from gateway.base import ConfigError, PrivateFileError, load

    settings = load(config)
    if settings.console is None:
        raise ConfigError(f"{config}: has no console section, and so no API; add console: {{}}")
    if settings.data is None:
        raise ConfigError(f"{config}: has no data directory, so that tokens end with the broker; add data")
    try:
        owner = settings.data.stat().st_uid
    except OSError as error:
        raise PrivateFileError(f"{settings.data}: {error.strerror}; start the broker once, which makes it") from None
    if owner != os.geteuid():
        raise PrivateFileError(f"{settings.data}: belongs to user {_name(owner)}; run this as that user (sudo -u)")
    return settings, settings.console, ApiTokens(settings.data / FILE, os.urandom, _standing(settings))


def _standing(settings: Settings) -> Callable[[str], str | None]:
    """Returns a function giving a user's standing, as the broker's plugins will give it. Raises StartError."""
    import asyncio

    from gateway.broker import make_broker

    async def made() -> Callable[[str], str | None]:
        broker = make_broker(settings)
        await broker.plugins_manager.close()
        return broker.host.standing

    return asyncio.run(made())


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


@tokens_app.command("list")
def list_(config: Config, as_json: Json = False) -> None:
    """Show the valid tokens: user, expiry, note. The secrets are not stored."""
    import time

    now = time.time()
    tokens = _opened(config)[2].tokens_of(None, now)
    if as_json:
        print_json([{"id": t.id, "user": t.user, "ends": t.ends, "note": t.note} for t in tokens])
        return
    print_table("", ["id", "user", "ends", "note"], [[t.id, t.user, _day(t.ends), t.note] for t in tokens])


@tokens_app.command("add")
def add(
    config: Config,
    user: Annotated[str, typer.Argument(metavar="USER", help="The MQTT user whose rights it has.")],
    days: Annotated[
        int | None, typer.Option(help="How long it counts; at most, and if not given, console.token_days.")
    ] = None,
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    as_json: Json = False,
) -> None:
    """Make a token and print it, once."""
    import time

    _, console, tokens = _opened(config)
    secret, token = tokens.issue(
        user, console.token_days if days is None else days, console.token_days, note, time.time()
    )
    if as_json:
        print_json({"token": secret, "id": token.id, "user": user, "ends": token.ends})
        return
    typer.echo(f"token {token.id} of {user}, until {_day(token.ends)}; it is not shown again:", err=True)
    print(secret)


@tokens_app.command("revoke")
def revoke(
    config: Config, ids: Annotated[list[str], typer.Argument(metavar="ID...", help="As `veilmq tokens list` shows.")]
) -> None:
    """End tokens; the next request with one is refused."""
    from gateway.auth.api_tokens import ApiTokenError

    tokens = _opened(config)[2]
    missing = [each for each in ids if not tokens.revoke(each, None)]
    if ended := [each for each in ids if each not in missing]:
        print(f"{', '.join(ended)}: no longer counts" if len(ended) == 1 else f"{', '.join(ended)}: no longer count")
    if missing:
        raise ApiTokenError(f"no token {', '.join(missing)}; veilmq tokens list shows those that count")


def _day(ends: float) -> str:
    import time

    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ends))
