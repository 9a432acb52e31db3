"""The command `veilmq`. Reads arguments, calls the module that does the work, prints; nothing else.

Whatever an operator can get wrong ends as one line on standard error, `veilmq: cause; cure`, and exit status 2.
Heavy imports happen inside the commands, so that `--help` and completion answer at once.
"""

# ruff: noqa: PLC0415  imports inside functions are the point of this module

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gateway.check import Report
    from gateway.config import Settings

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

# Typer brings its own copy of click in some versions and imports click in others; both name this class so.
_USAGE_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

_OPTIONS: dict[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
app = typer.Typer(help="MQTT gateway and edge broker whose brokers cannot read what they carry.", **_OPTIONS)
trust_app = typer.Typer(help="Trust domains and identities.", **_OPTIONS)
overlay_app = typer.Typer(help="Who is in, and how it is joined.", **_OPTIONS)
app.add_typer(trust_app, name="trust")
app.add_typer(overlay_app, name="overlay")

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Config = Annotated[Path | None, typer.Option("-c", "--config", metavar="FILE", help="Configuration (YAML).")]


def main() -> None:
    """Entry point: run the command line and exit with its status."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line; the exit status. Prints expected errors in one line, lets defects show."""
    try:
        status = app(arguments, standalone_mode=False, prog_name="veilmq")
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away; what is still buffered may not raise at exit again.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if isinstance(error, _USAGE_ERROR):
            if type(error).__name__ == "NoArgsIsHelpError":  # its text is the help
                return EXIT_BAD_INPUT
            text = getattr(error, "format_message", error.__str__)().rstrip(".")
            return _fail(f"{text[:1].lower()}{text[1:]}; veilmq --help shows the commands")
        if not isinstance(error, _expected_errors()):
            raise
        return _fail(str(error))
    return status if isinstance(status, int) else 0


def _fail(message: str) -> int:
    line = " ".join(message.split())
    print(f"veilmq: {line}", file=sys.stderr)
    return EXIT_BAD_INPUT


def _expected_errors() -> tuple[type[Exception], ...]:
    """What an operator can cause. Imported only once something has failed."""
    from bridge.views import OverlayError
    from gateway.config import ConfigError, StartError
    from gateway.outbox import StoreError
    from gateway.private import PrivateFileError
    from gateway.tls import TlsError
    from gateway.trust import TrustError

    return (ConfigError, StartError, StoreError, PrivateFileError, TlsError, TrustError, OverlayError)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"veilmq {version('veilmq')}")
        except PackageNotFoundError:
            print("veilmq, not installed: run from its source")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


# ---------------------------------------------------------------------------------------------- broker


@app.command()
def broker(
    config: Config = None,
    bind: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Address of the default listener.")] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Directory for what must survive a restart.")] = None,
    allow_anonymous: Annotated[bool, typer.Option("--allow-anonymous", help="Let clients in without a name.")] = False,
) -> None:
    """Run a broker in the role that its configuration says: edge broker, gateway or replica."""
    settings = _settings(config, bind, data, allow_anonymous)
    from gateway.logs import configure
    from gateway.party import serve

    configure(settings.log)
    serve(settings)


def _settings(config: Path | None, bind: str | None, data: Path | None, allow_anonymous: bool) -> Settings:
    """The file's settings, or the defaults, with what the command line says on top."""
    from gateway.config import Listener, Settings, load

    settings = load(config) if config else Settings()
    if bind is not None:
        default = settings.listeners.get("default", Listener()).model_copy(update={"bind": bind})
        settings = settings.model_copy(update={"listeners": {**settings.listeners, "default": default}})
    if data is not None:
        settings = settings.model_copy(update={"data": data})
    if allow_anonymous:
        settings = settings.model_copy(update={"allow_anonymous": True})
    return settings


@app.command()
def check(
    config: Annotated[Path, typer.Option("-c", "--config", metavar="FILE", help="Configuration (YAML).")],
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Topics to explain.")] = None,
    as_json: Json = False,
) -> int:
    """Say what is wrong with a configuration, and what would happen to publications on some topics."""
    from gateway.check import check as look
    from gateway.config import load

    report = look(load(config), topics or [])
    if as_json:
        _print_json(report.to_json())
    else:
        _print_report(report)
    return EXIT_BAD_INPUT if report.failed else 0


def _print_report(report: Report) -> None:
    for finding in report.findings:
        if finding.level == "error":
            print(f"veilmq: {finding.text}", file=sys.stderr)
        else:
            print(f"{finding.level}: {finding.text}")
    rows = [
        [f.topic, f.fate, f.scope, f.mode, " ".join(f.regions), "tokens" if f.tokens else "", f.why]
        for f in report.fates
    ]
    if rows:
        _print_table("", ["topic", "what happens", "scope", "mode", "regions", "names", "why"], rows)


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(min=5, help="How long clients publish, once Spark is ready.")] = 45.0,
    as_json: Json = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running until Ctrl-C, and keep the files.")] = False,
    seed: Annotated[int | None, typer.Option(help="Which replicas lie and die; drawn if not given.")] = None,
) -> int:
    """The whole system on loopback, with telemetry of this machine; prints what happens."""
    from gateway.demo import run as run_demo

    return run_demo(seconds, as_json, keep, seed)


# ----------------------------------------------------------------------------------------------- trust


@trust_app.command("init")
def trust_init(
    directory: Annotated[Path, typer.Argument(metavar="DIR")],
    domain: Annotated[str, typer.Option(help="Name of the trust domain, e.g. of your organisation.")],
) -> None:
    """Make a trust domain: its certificate authority and, should it own an overlay, owner and root keys."""
    import time

    from gateway.trust import TrustDomain

    TrustDomain.create(directory, domain, time.time())
    print(f"trust domain {domain} in {directory}; back it up, and show ca.key, owner.key and root.key to nobody")


@trust_app.command("issue")
def trust_issue(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Trust domain that issues.")],
    name: Annotated[str, typer.Option(help="Name in the overlay, unique there.")],
    role: Annotated[str, typer.Option(help="replica, gateway or ingest.")],
    out: Annotated[Path, typer.Option(help="Identity directory to make.")],
    host: Annotated[list[str] | None, typer.Option(help="Host name or IP address; may be repeated.")] = None,
) -> None:
    """Make an identity: key, TLS certificate, and the card that the overlay's owner needs."""
    import time

    from gateway.trust import ISSUABLE, TrustDomain, TrustError
    from keys.identity import Role

    if role not in set(ISSUABLE):
        raise TrustError(f"role {role} does not exist; take one of {', '.join(ISSUABLE)}")
    TrustDomain.load(directory).issue(name, Role(role), tuple(host or ("127.0.0.1",)), out, time.time())
    print(f"identity {name} in {out}; give {out / 'card.json'} to the owner of the overlay")


@trust_app.command("show")
def trust_show(directory: Annotated[Path, typer.Argument(metavar="DIR")], as_json: Json = False) -> None:
    """Describe a trust domain or an identity; prints no secret."""
    from gateway.trust import describe

    content = describe(directory)
    if as_json:
        _print_json(content)
    else:
        _print_table("", ["", ""], [[key, _text(value)] for key, value in content.items()])


# --------------------------------------------------------------------------------------------- overlay


@overlay_app.command("sign")
def overlay_sign(
    description: Annotated[Path, typer.Argument(metavar="OVERLAY.yaml")],
    owner: Annotated[Path, typer.Option(metavar="DIR", help="Trust domain that owns the overlay.")],
    out: Annotated[Path, typer.Option(help="Signed file to write; grants/ is made beside it.")],
) -> None:
    """Sign the overlay, and write the scope keys of each gateway and ingest job to grants/NAME.json."""
    import time

    from gateway.overlay_file import sign_overlay

    overlay, grants = sign_overlay(description, owner, out, time.time())
    print(f"overlay {overlay.policy.overlay} version {overlay.policy.version} in {out}; give it to every member")
    for path in grants:
        print(f"secret {path}: hand it to {path.stem} alone, as grant.json in its identity directory")


@overlay_app.command("show")
def overlay_show(path: Annotated[Path, typer.Argument(metavar="FILE")], as_json: Json = False) -> None:
    """Verify a signed overlay and describe it."""
    import time

    from gateway.overlay_file import describe_overlay, load_overlay

    content = describe_overlay(load_overlay(path, int(time.time() * 1000)))
    if as_json:
        _print_json(content)
        return
    print(f"overlay {content['overlay']} version {content['version']}, owner {content['owner']}")
    for title in ("regions", "scopes", "members"):
        rows = [[_text(value) for value in entry.values()] for entry in content[title]]
        if rows:
            _print_table(title, list(content[title][0]), rows)
    print(f"edges: {', '.join(f'{a}-{b}' for a, b in content['edges']) or 'none'}")


# -------------------------------------------------------------------------------------------- printing


def _text(value: object) -> str:
    if isinstance(value, list):
        return "\n".join(_text(item) for item in value)
    if isinstance(value, dict):
        return " ".join(_text(item) for item in value.values())
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _print_json(content: object) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


def _print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=SIMPLE, show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text: brackets of a name are not markup
    Console().print(table)


if __name__ == "__main__":
    main()
