"""`veilmq backup`, `veilmq restore`, `veilmq man`: maintenance of an installation."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def register(app: typer.Typer) -> None:
    """Adds the commands to `veilmq`."""
    app.command()(backup)
    app.command()(restore)

    @app.command(hidden=True)
    def man() -> None:
        """Print the manual page, for `man -l` or a package."""
        print(manual(typer.main.get_command(app)))


def backup(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a member, or the owner's.")],
    out: Annotated[Path, typer.Argument(metavar="ARCHIVE", help="New file, e.g. r1.tar.gz. It holds private keys.")],
) -> None:
    """Pack the irreplaceable files of a member: configuration, keys, overlay, users. Never its other data."""
    from gateway.setup.backing_up import back_up

    names = back_up(folder, out)
    print("\n".join(names))
    print(f"{len(names)} files in {out}; it holds private keys: keep it as you keep those")


def restore(
    archive: Annotated[Path, typer.Argument(metavar="ARCHIVE")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder.")],
) -> None:
    """Unpack a backup and check that configuration, identity and overlay fit each other."""
    from gateway.base import load
    from gateway.setup import CONFIG
    from gateway.setup.backing_up import restore as unpack

    count = unpack(archive, folder)
    config = folder / CONFIG
    if config.exists():
        settings = load(config)
        if settings.overlay is not None:
            from gateway.party import Party

            Party(settings)
    print(f"{count} files in {folder}" + (f"; then: veilmq check -c {config}" if config.exists() else ""))


def manual(command: Any) -> str:
    """Returns all commands as a manual page in roff."""
    lines = [
        '.TH VEILMQ 1 "" "VeilMQ" "User Commands"', ".SH NAME", "veilmq \\- MQTT gateway and edge broker whose brokers "
        "cannot read what they carry", ".SH SYNOPSIS", ".B veilmq", "COMMAND [ARGUMENTS]", ".SH COMMANDS",
    ]  # fmt: skip
    lines += _entries(command, "veilmq")
    lines += [
        ".SH EXIT STATUS",
        "0: done. 1: degraded (status), or failed. 2: a mistake, named in one line with its cure.",
    ]
    return "\n".join(lines)


def _entries(command: Any, name: str) -> list[str]:
    lines: list[str] = []
    for word, sub in sorted(command.commands.items()):
        if sub.hidden:
            continue
        if hasattr(sub, "commands"):
            lines += _entries(sub, f"{name} {word}")
            continue
        arguments = [str(p.metavar or p.name).upper() for p in sub.params if p.param_type_name == "argument"]
        lines += [".TP", f".B {_roff(name)} {_roff(word)} {_roff(' '.join(arguments))}", _roff(sub.help or "")]
        for option in sub.params:
            if option.param_type_name == "option" and option.name != "help":
                text = f"{', '.join(option.opts)}: {getattr(option, 'help', None) or ''}"
                lines += [".RS", ".IP \\(bu 2", _roff(text), ".RE"]
    return lines


def _roff(text: str) -> str:
    escaped = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
