"""`veilmq import`: what Mosquitto's users bring along, as a folder that `veilmq broker` runs."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gateway.importing import Translated


def register(app: typer.Typer) -> None:
    """Add the command to `veilmq`."""
    app.command("import")(import_)


def import_(
    conf: Annotated[Path, typer.Argument(metavar="mosquitto.conf")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="New folder.")] = Path("veilmq"),
    db: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="mosquitto.db, if not where the configuration says; stop Mosquitto first."),
    ] = None,
) -> None:
    """Make a configuration of ours from Mosquitto's, with its logins, rights, bridges, retained messages and sessions.

    Says of every line that it does not carry over why.
    """
    from gateway.base import parse, private_directory
    from gateway.importing import ConfError, load_db, read_conf, translate

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfError(f"{out}: holds something already; name a new folder with -o")
    made = translate(read_conf(conf))
    settings = parse(made.settings, source=f"what is made of {conf}")  # before anything is written
    contents = _read(made, conf)
    private_directory(out)
    _write(made, contents, out, conf)
    for note in made.notes:
        print(note)
    source = db or made.database
    if source is None or (db is None and not source.exists()):
        if source is not None:
            print(f"{source} is not there: no retained messages and sessions are imported")
    else:
        loaded = load_db(source, out / "data", time.time(), settings.session_expiry_s)
        for note in loaded.notes:
            print(f"{source}: {note}")
        print(
            f"{source}: {loaded.retained} retained messages, {loaded.sessions} sessions with "
            f"{loaded.subscriptions} subscriptions and {loaded.queued} queued messages"
        )
    print(f"then: veilmq check -c {out / 'broker.yaml'}; veilmq broker -c {out / 'broker.yaml'}")


def _read(made: Translated, conf: Path) -> dict[str, bytes]:
    """The files that go along, by their names in the new folder. Raises ConfError before anything is written."""
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
