"""`veilmq passwd`: users of a password file, as `mosquitto_passwd` handles them."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the command to `veilmq`."""
    app.command()(passwd)


def passwd(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Password file; it is made if it is not there.")],
    user: Annotated[str, typer.Argument(metavar="USER")],
    password: Annotated[str | None, typer.Argument(metavar="[PASSWORD]", help="With -b only.")] = None,
    batch: Annotated[bool, typer.Option("-b", help="The password is an argument: others on this host see it.")] = False,
    delete: Annotated[bool, typer.Option("-D", help="Remove the user.")] = False,
    iterations: Annotated[int | None, typer.Option("-I", help="Of PBKDF2; more cost guessers and logins more.")] = None,
) -> None:
    """Add a user to a password file, change the password, or remove the user. Asks, or reads standard input."""
    import secrets

    from gateway.auth.password_file import PasswordFile, PasswordFileError, changing
    from gateway.auth.password_hashes import ITERATIONS, HashError, make_hash

    if batch != (password is not None):
        raise PasswordFileError("-b and a password as argument go together; leave both out to be asked")
    if delete:
        with changing(file, must_exist=True) as users:
            users.remove_user(user)
        print(f"{user} is removed from {file}")
        return
    PasswordFile(file)  # before anybody types for a wrong path
    given = password if password is not None else asked(user)
    if not given:
        raise PasswordFileError("an empty password lets everybody in; give one")
    try:
        hashed = make_hash(given.encode(), secrets.token_bytes, ITERATIONS if iterations is None else iterations)
    except HashError as error:
        raise PasswordFileError(f"-I: {error}") from None
    with changing(file) as users:
        is_new = users.put_hash(user, hashed)
    print(f"{user} {'is added to' if is_new else 'has a new password in'} {file}")


def asked(user: str) -> str:
    """Returns a password: typed twice at a terminal without echo, else a line of standard input."""
    import getpass

    from gateway.auth.password_file import PasswordFileError

    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass.getpass(f"password of {user}: ")
    if getpass.getpass("again: ") != first:
        raise PasswordFileError("the two passwords differ; nothing is changed")
    return first
