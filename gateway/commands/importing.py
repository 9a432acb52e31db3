"""`veilmq import`: files of a Mosquitto installation become a folder that `veilmq broker` runs."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gateway.importing import Translated


def register(app: typer.Typer) -> None:
    """Adds the command to `veilmq`."""
    app.command("import")(import_)


def import_(
    conf: Annotated[Path, typer.Argument(metavar="mosquitto.conf")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="New folder.")] = Path("veilmq"),
    db: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="mosquitto.db or mosquitto.sqlite3, if not where the configuration says; stop Mosquitto first.",
        ),
    ] = None,
) -> None:
    """Make a configuration of ours from Mosquitto's, with its logins, rights, bridges, retained messages and sessions.

    Print for every line: taken, not needed, changed or refused, and the cure. A setting that protects and has no
    counterpart is refused: then nothing is written.
    """
    from gateway.base import parse, private_directory
    from gateway.importing import ConfError, load_db, read_conf, translate

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfError(f"{out}: holds something already; name a new folder with -o")
    made = translate(read_conf(conf))
    if made.refusals:
        _report(made)
        raise ConfError(
            f"{conf}: {len(made.refusals)} lines are refused, and nothing is written; do in a copy of the file as they "
            "say, then import that"
        )
    settings = parse(made.settings, source=f"what is made of {conf}")  # before anything is written
    contents = _read(made, conf)
    source = db or _database(made)
    private_directory(out)
    _write(made, contents, out, conf)
    if source is not None:
        loaded = load_db(source, out / "data", time.time(), settings.session_expiry_s, made.local_sessions)
        for note in loaded.notes:
            print(f"{source}: {note}")
        print(
            f"{source}: {loaded.retained} retained messages, {loaded.sessions} sessions with "
            f"{loaded.subscriptions} subscriptions and {loaded.queued} queued messages"
        )
    _report(made)
    print(f"then: veilmq check -c {out / 'broker.yaml'}; veilmq broker -c {out / 'broker.yaml'}")


def _report(made: Translated) -> None:
    """Prints an answer for every line, the worst last."""
    for one in made.report:
        print(one)


def _database(made: Translated) -> Path | None:
    """Returns the path of Mosquitto's database, or None without one.

    Raises ConfError if two files could be the database.
    """
    from gateway.importing import ConfError

    there = [path for path in made.database if path.exists()]
    names = " or ".join(str(path.absolute()) for path in made.database)
    if len(there) > 1:
        raise ConfError(f"the configuration does not say where the database is: {names}; name it with --db")
    if made.database and not there:
        print(f"{names} is not there: no retained messages and sessions are imported; name the file with --db")
    elif len(made.database) > 1:
        print(f"{there[0].absolute()} is taken, as the configuration does not say where the database is")
    return there[0] if there else None


def _read(made: Translated, conf: Path) -> dict[str, bytes]:
    """Returns the files to copy, by their names in the new folder. Raises ConfError before anything is written."""
    from gateway.importing import ConfError

    contents = {}
    for name, source in made.files.items():
        try:
            contents[name] = source.read_bytes()
        except OSError as error:
            raise ConfError(f"{source}: {error.strerror or error}; correct {conf} or the file's rights") from None
    return contents


def _write(made: Translated, contents: dict[str, bytes], out: Path, conf: Path) -> None:
    import yaml

    from gateway.base import write_private, write_public

    secrets = {name: content.encode() for name, content in made.secrets.items()}
    for name, content in (contents | secrets).items():
        write_private(out / name, content)
    text = yaml.safe_dump(made.settings, sort_keys=False)
    write_public(out / "broker.yaml", f"# Made of {conf.name} by `veilmq import`.\n{text}".encode())
