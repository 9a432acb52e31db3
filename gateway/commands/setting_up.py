"""`veilmq init`, `veilmq up`, `veilmq join`: a new overlay, its processes, and a member joining one.

Readiness of all members for `veilmq up`: asks each at its metrics port until it reports to be well.
"""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands.printing import Json, print_json, print_table
from gateway.commands.trust import LogLevel, Verbose

if TYPE_CHECKING:
    from gateway.setup import Made, Supervisor
from collections.abc import Mapping

from gateway.commands.status import asked

ASK_S = 1.0
LATE_S = 30.0
"""Seconds after which the members that are not well yet are named."""


class Readiness:
    """The wait for all members. `configs`: configuration files by member. `begun`: seconds of the clock of
    `ask_next_member`.
    """

    def __init__(self, configs: Mapping[str, Path], begun: float) -> None:
        self._begun, self._count, self._late = begun, 0, False
        self._binds: dict[str, str] = {}
        self._wrong: dict[str, str] = {}
        for name, config in configs.items():
            bind = _metrics(config)
            if bind is not None:
                self._binds[name] = bind
        self._count = len(self._binds)

    def ask_next_member(self, now: float) -> str | None:
        """Asks the next member; returns a line for the operator, or None."""
        if not self._binds:
            return None
        name, bind = next(iter(self._binds.items()))
        del self._binds[name]
        answer = asked(bind, ASK_S)
        if answer.get("level") != "well":
            self._binds[name] = bind
            self._wrong[name] = next((str(one["text"]) for one in answer.get("findings", ())), "is not well")
        if not self._binds:
            return f"well: all {self._count} members, after {now - self._begun:.1f} s"
        if now - self._begun < LATE_S or self._late:
            return None
        self._late = True
        return "not well yet: " + "; ".join(f"{name}: {self._wrong.get(name, 'not asked yet')}" for name in self._binds)


def _metrics(config: Path) -> str | None:
    """Returns a member's metrics address, or None if it is not configured.

    A member reports errors of its configuration itself: they give None, too.
    """
    from gateway.base import ConfigError, load

    try:
        settings = load(config)
    except ConfigError:
        return None
    return settings.metrics.bind if settings.metrics is not None else None


LOOK_S = 0.25


def register(app: typer.Typer) -> None:
    """Adds the commands to `veilmq`."""
    app.command()(init)
    app.command()(up)
    app.command()(join)


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New directory.")],
    replicas: Annotated[int, typer.Option(help="In each region.")] = 3,
    gateways: Annotated[int, typer.Option(help="Over all regions.")] = 2,
    regions: Annotated[int, typer.Option(help="Joined in a row.")] = 1,
    key_servers: Annotated[int, typer.Option(help="None: the owner issues keys. Of 4, one may lie.")] = 0,
    protect: Annotated[
        list[str] | None,
        typer.Option(metavar="FILTER", help="Topics that are sealed, may be repeated (default: plant/#)"),
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=HOST:PORT", help="Where a member will be, if not here; may be repeated."),
    ] = None,
    port: Annotated[int, typer.Option(help="Of the first gateway; the next free ones follow.")] = 1883,
    as_json: Json = False,
) -> None:
    """Make a whole overlay: trust domains, identities, the signed overlay, and a folder for each member."""
    from gateway.setup import Plan, make_overlay

    plan = Plan(replicas, gateways, regions, key_servers, tuple(protect or ("plant/#",)), _addresses(address or []))
    made = make_overlay(directory, plan, port, time.time())
    if as_json:
        print_json(
            {
                "directory": str(directory),
                "overlay": str(made.overlay_path),
                "members": [
                    {"name": m.name, "role": m.role.value, "region": m.region, "bind": m.bind, "metrics": m.metrics}
                    for m in made.members
                ],
            }
        )
        return
    _print_made(made, plan.protect)
    first = made.first_gateway
    if first.is_here and first.bind != f"{first.host}:{port}":
        print(f"port {port} is in use, so {first.name} listens on {first.bind}: tell clients that port")


def _addresses(given: list[str]) -> dict[str, str]:
    from gateway.setup import SetupError

    found: dict[str, str] = {}
    for text in given:
        name, equals, address = text.partition("=")
        if not equals or not name or name in found:
            raise SetupError(f"--address {text}: write NAME=HOST:PORT, each name once")
        found[name] = address
    return found


def _print_made(made: Made, protect: tuple[str, ...]) -> None:
    rows = [[m.name, m.role.value, m.region, m.address, str(made.folder(m).config)] for m in made.members]
    print_table("", ["name", "role", "region", "listens on", "configuration"], rows)
    print(f"sealed: {' '.join(protect)}; what is signed: {made.overlay_path}; who signs: {made.directory / 'owner'}")
    print(f"all on this machine:  veilmq up {made.directory}")
    print("each on its own host: copy its folder there, then `veilmq broker -c broker.yaml` in it;")
    print(f"{made.directory / 'owner'} stays where no member runs, with a backup")


def up(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="As `veilmq init` made it.")],
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Some members only.")] = None,
    verbose: Verbose = False,
    log_level: LogLevel = None,
) -> None:
    """Run the members of a directory on this machine until Ctrl-C; restart crashed members."""
    from gateway.base.logs import configure, level_of
    from gateway.setup import Supervisor

    level = level_of(verbose, log_level, "")
    configure("text", level or "info")
    supervisor = Supervisor(directory, lambda line: print(line, flush=True), frozenset(names or ()), level)
    supervisor.open()
    ended: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: ended.append(number))
    try:
        supervisor.check_members(time.monotonic())
        _print_running(supervisor)
        configs = {name: child.folder.config for name, child in supervisor.children.items()}
        readiness = Readiness(configs, time.monotonic())
        while not ended:
            time.sleep(LOOK_S)
            supervisor.check_members(time.monotonic())
            if (line := readiness.ask_next_member(time.monotonic())) is not None:
                print(line, flush=True)
    finally:
        print("stopping", flush=True)
        supervisor.stop()


def _print_running(supervisor: Supervisor) -> None:
    rows = [[name, str(child.pid), str(child.log)] for name, child in supervisor.children.items()]
    print_table("", ["name", "process", "log"], rows)
    print("running; Ctrl-C stops all of them", flush=True)


def join(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New folder of the member.")],
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where others reach it; a gateway's clients: 127.0.0.1:1883.")
    ] = "",
    role: Annotated[str, typer.Option(help="replica, gateway or keyserver.")] = "replica",
    name: Annotated[str, typer.Option(help="Unique in the overlay; that of the folder, if not given.")] = "",
    domain: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Trust domain of yours; else one is made in the folder.")
    ] = None,
    protect: Annotated[
        list[str] | None, typer.Option(metavar="FILTER", help="The owner's scopes that a gateway seals; repeatable.")
    ] = None,
    key: Annotated[str, typer.Option(metavar="URI", help="pkcs11:... of the member's key, if it is in a token.")] = "",
) -> None:
    """Make identity, card and configuration of a member where it will run; only the card goes to the owner."""
    from gateway.setup import SetupError
    from gateway.setup import join as make
    from keys.identity import Role

    try:
        kind = Role(role)
    except ValueError:
        raise SetupError(f"--role {role}: take replica, gateway or keyserver") from None
    joined = make(directory, kind, address, time.time(), name, domain, protect or (), key)
    card, folder = joined.card, joined.folder
    print(f"{joined.member.name}, a {kind.value}, in {directory}; its keys stay there")
    print(f"send {card} to the owner of the overlay, who runs")
    attach = "  veilmq overlay attach overlay.json --owner OWNER --region REGION --card CARD"
    if kind is Role.REPLICA:
        print(f"{attach} --address {joined.member.address}")
    elif kind is Role.GATEWAY:
        rights = [f"--publish '{each}' --read '{each}'" for each in protect or ("FILTER",)]
        print(f"{attach} {' '.join(rights)}")
    else:
        print("  veilmq trust rekey overlay.yaml --owner OWNER --out overlay.json    # with the card in key_service")
    print(f"put the overlay.json that comes back into {folder.overlay_path}, then: veilmq broker -c {folder.config}")
    if folder.passwords.exists():
        print(f"clients log in; make each a login by: veilmq passwd {folder.passwords} USER")
