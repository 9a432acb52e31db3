"""`veilmq users`: the users, groups and rules of `gateway.auth.dynamic`, in their file; a running broker follows."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.commands.printing import print_json, print_table
from gateway.commands.trust import OPTIONS

users_app = typer.Typer(help="Users, groups and rights that change while a broker runs.", **OPTIONS)
File = Annotated[Path, typer.Argument(metavar="FILE", help="As the plugin's `file` says, e.g. data/security.json.")]
Name = Annotated[str, typer.Argument(metavar="NAME")]
Rules = Annotated[list[str] | None, typer.Option("--rule", help="e.g. 'topic read plant/#'; may be repeated.")]


@users_app.command("add")
def add(
    file: File,
    name: Name,
    rule: Rules = None,
    group: Annotated[list[str] | None, typer.Option(help="May be repeated.")] = None,
    password: Annotated[str | None, typer.Option(help="Others on this host see it; asked for if not given.")] = None,
) -> None:
    """Make a user or change a password; set rules and groups if any are named."""
    import secrets

    from gateway.auth.password_hashes import make_hash
    from gateway.auth.security import SecurityError, User, changing
    from gateway.commands.passwords import asked

    given = password if password is not None else asked(name)
    if not given:
        raise SecurityError("an empty password lets everybody in; give one")
    hashed = make_hash(given.encode(), secrets.token_bytes)
    with changing(file) as security:
        known = security.users.get(name)
        security.users[name] = User(
            hash=hashed,
            acl=rule if rule is not None else known.acl if known else [],
            groups=group if group is not None else known.groups if known else [],
            enabled=True,
        )
    print(f"{name} is in {file}; a running broker knows it within a second")


@users_app.command("remove")
def remove(file: File, name: Name) -> None:
    """Remove a user; a running broker ends its connections, sessions, logins and tokens within a second."""
    from gateway.auth.security import SecurityError, changing

    with changing(file) as security:
        if security.users.pop(name, None) is None:
            raise SecurityError(f"{file}: no user {name}; nothing is changed")
    print(f"{name} is removed from {file}")


@users_app.command("group")
def group_(
    file: File, name: Name, rule: Rules = None, delete: Annotated[bool, typer.Option("-D", help="Remove it.")] = False
) -> None:
    """Make a group with these rules, or remove it; NAME `everybody`: rules for all users."""
    from gateway.auth.security import SecurityError, UserGroup, changing

    with changing(file) as security:
        if name == "everybody":
            security.everybody = UserGroup(acl=rule or [])
        elif delete:
            if security.groups.pop(name, None) is None:
                raise SecurityError(f"{file}: no group {name}; nothing is changed")
        else:
            security.groups[name] = UserGroup(acl=rule or [])
    print(f"{name} is {'removed from' if delete else 'in'} {file}")


@users_app.command("list")
def list_(file: File, as_json: Annotated[bool, typer.Option("--json", help="For a program to read.")] = False) -> None:
    """Show users, groups and rules; no hashes."""
    from gateway.auth.security import Security

    security = Security.load(file)
    shown = security.model_dump(exclude={"users": {"__all__": {"hash"}}})
    if as_json:
        print_json(shown)
        return
    sys.stdout.flush()
    rows = [
        [name, ", ".join(user.groups), "\n".join(user.acl), "" if user.enabled else "disabled"]
        for name, user in security.users.items()
    ]
    print_table("users", ["name", "groups", "rules", ""], rows)
    groups = [[name, "\n".join(group.acl)] for name, group in security.groups.items()]
    print_table("groups", ["name", "rules"], [*groups, ["everybody", "\n".join(security.everybody.acl)]])
