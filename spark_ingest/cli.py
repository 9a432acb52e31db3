"""`veilmq ingest`: receivers and ready-made jobs on the command line.

Each command reads arguments, calls the module that does the work and prints; whatever a user can get wrong ends as a
line, `veilmq: cause; cure`, and exit status 2. The command `veilmq` finds this group by its entry point, so that
`gateway` knows nothing of Spark. Heavy imports happen inside the commands.
"""

# ruff: noqa: PLC0415  see above

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ParamSpec

import typer

from spark_ingest.errors import BadOption, IngestError, file_fault

EXIT_BAD_INPUT = 2
EXIT_REFUSED = 1
"""Some of what was asked for could not be done."""

ingest_app = typer.Typer(
    help="Telemetry into Spark.", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False
)

P = ParamSpec("P")

# Options that several commands have.
Spool = Annotated[str | None, typer.Option(metavar="DIR", help="Where publications are kept, still sealed.")]
IdentityDir = Annotated[str | None, typer.Option(metavar="DIR", help="The job's identity.")]
OverlayFile = Annotated[str | None, typer.Option(metavar="FILE", help="The owner-signed overlay file.")]
Topics = Annotated[str | None, typer.Option(metavar="FILTERS", help="By commas (default: #).")]
ReceiverName = Annotated[str | None, typer.Option(metavar="NAME", help="Its part of the spool (default: main).")]
GrantsFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Scope keys for executors (default: IDENTITY/scope_keys.json).")
]
GrantsIdentity = Annotated[
    str | None, typer.Option(metavar="DIR", help="Identity to which the file of scope keys is sealed.")
]


def one_line(command: Callable[P, int | None]) -> Callable[P, int | None]:
    """Returns the command with a user's errors as a line on standard error, and exit status 2."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> int | None:
        try:
            return command(*args, **kwargs)
        except ModuleNotFoundError as error:
            message = f"{error}; pip install 'veilmq[spark]'"
        except IngestError as error:
            message = str(error)
        except OSError as error:
            message = file_fault(error)
        print(f"veilmq: {' '.join(message.split())}", file=sys.stderr)
        return EXIT_BAD_INPUT

    return run


@ingest_app.callback()
def _ingest() -> None: ...


def register(app: typer.Typer) -> None:
    """Adds the group `ingest` to the command `veilmq`."""
    app.add_typer(ingest_app, name="ingest")


@ingest_app.command("run")
@one_line
def run(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML with any of these options by name; the command line wins.")
    ] = None,
    spool: Spool = None,
    identity: IdentityDir = None,
    overlay: OverlayFile = None,
    hosted: Annotated[str | None, typer.Option(metavar="FILE", help="Logins at hosted brokers.")] = None,
    grants: GrantsFile = None,
    grants_identity: GrantsIdentity = None,
    topics: Topics = None,
    shard: Annotated[str | None, typer.Option(metavar="I/N", help="This receiver's part of what is published.")] = None,
    shard_before: Annotated[
        str | None, typer.Option(metavar="I/N@TIME", help="Its part of what was sealed before TIME, while N changes.")
    ] = None,
    availability: Annotated[
        str | None, typer.Option(metavar="FILTERS", help="Topics about who is alive, if they are wanted too.")
    ] = None,
    receiver: ReceiverName = None,
    cap_bytes: Annotated[str | None, typer.Option(metavar="N", help="Acknowledge up to (default: 8 GiB).")] = None,
    incomplete_s: Annotated[str | None, typer.Option(metavar="S", help="Wait for pieces (default: 10).")] = None,
    schemas: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="YAML with schemas by topic filter, kept in the spool for queries."),
    ] = None,
    pack: Annotated[
        bool, typer.Option("--pack", help="Pack finished segments, as veilmq ingest pack does; this opens them.")
    ] = False,
    metrics: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Prometheus endpoint.")] = None,
    workers: Annotated[int, typer.Option(metavar="N", help="Processes that receive under the one identity.")] = 1,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Log more: the same as --log-level debug.")] = False,
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
) -> int:
    """Receive without Spark: queries on any machine seeing the spool read it."""
    from spark_ingest.receiver.daemon import receiver_options, serve

    told = {
        "spool": spool, "identity": identity, "overlay": overlay, "hosted": hosted, "grants": grants, "topics": topics,
        "grants_identity": grants_identity, "shard": shard, "shard_before": shard_before,
        "availability": availability, "receiver": receiver, "cap_bytes": cap_bytes, "incomplete_s": incomplete_s,
        "schemas": schemas, "pack": "true" if pack else None,
    }  # fmt: skip
    return serve(receiver_options(config, told), metrics, workers, verbose, log_level)


@ingest_app.command("backfill")
@one_line
def backfill(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML as of veilmq ingest run; the command line wins.")
    ] = None,
    spool: Spool = None,
    identity: IdentityDir = None,
    overlay: OverlayFile = None,
    grants: GrantsFile = None,
    grants_identity: GrantsIdentity = None,
    topics: Topics = None,
    receiver: ReceiverName = None,
    since: Annotated[str, typer.Option(metavar="WHEN", help="A UTC time, or earliest: all there is.")] = "earliest",
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Log more.")] = False,
) -> int:
    """Read the histories of replicas into the spool, each publication once; beside a running receiver, or without one.
    Exit status 1: a scope was refused.
    """
    from spark_ingest.receiver.daemon import backfill as read_back
    from spark_ingest.receiver.daemon import receiver_options

    starts = "startingoffsets" if since == "earliest" else "startingtimestamp"
    told = {
        "spool": spool, "identity": identity, "overlay": overlay, "grants": grants, "topics": topics,
        "grants_identity": grants_identity, "receiver": receiver, starts: since,
    }  # fmt: skip
    return read_back(receiver_options(config, told), verbose)


@ingest_app.command("status")
@one_line
def status(
    spool: Annotated[Path, typer.Argument(metavar="SPOOL", help="Directory of the spool.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Show the content of a spool, its writers, and how far behind its readers are. Exit status 1: a receiver tells why
    it does not receive.
    """
    from spark_ingest.spool.status import status_of, told

    found = status_of(spool)
    print(found.to_json() if as_json else told(found))
    return 1 if any(part.trouble is not None for part in found.receivers) else 0


@ingest_app.command("jobs")
@one_line
def jobs(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Absent: list the jobs.")] = None,
    spool: Annotated[Path | None, typer.Option(metavar="DIR", help="What a receiver writes.")] = None,
    grants: Annotated[Path | None, typer.Option(metavar="FILE", help="The receiver's file of scope keys.")] = None,
    topics: Annotated[str, typer.Option(metavar="FILTERS", help="Telemetry: topic filters, by commas.")] = "#",
    window: Annotated[str, typer.Option(metavar="TIME", help="windows: how long each is.")] = "5 seconds",
    watermark: Annotated[str, typer.Option(metavar="TIME", help="windows: how late rows may come.")] = "10 seconds",
    field: Annotated[str, typer.Option(metavar="PATH", help="windows: the number in JSON payloads.")] = "value",
    late_after: Annotated[str, typer.Option(metavar="TIME", help="late: what is late.")] = "10 seconds",
    entity_level: Annotated[
        int, typer.Option(min=0, help="timeline: the level of telemetry topics that names it, from 0.")
    ] = 1,
    schemas: Annotated[
        Path | None, typer.Option(metavar="FILE", help="typed: schemas by topic filter (default: the receiver's).")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="NAME", help="typed: which of them (default: the only one).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines.")] = False,
    once: Annotated[bool, typer.Option(help="What the spool holds now, instead of a stream.")] = False,
) -> int:
    """List the ready-made jobs, or run one over a spool."""
    from spark_ingest.jobs.runs import RunSettings, listing, run_job

    if name is None:
        print("\n".join(listing()))
        return 0
    if spool is None or grants is None:
        raise BadOption("a job needs the spool and its keys; add --spool DIR --grants FILE")
    settings = RunSettings(window, watermark, field, late_after, entity_level, schemas or spool, schema)
    return run_job(name, spool, grants, topics, settings, as_json=as_json, once=once)


@ingest_app.command("sample")
@one_line
def sample(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A directory that is not there yet, or empty.")],
    rows: Annotated[int, typer.Option(metavar="N", help="Telemetry rows.")] = 1000,
    devices: Annotated[int, typer.Option(metavar="N", help="Devices that report.")] = 10,
    seed: Annotated[int, typer.Option(metavar="S", help="Equal seeds give equal samples.")] = 1,
) -> int:
    """Write a small sealed spool to try queries on, without any broker; print the five lines reading it."""
    from spark_ingest.sample.spool import write_sample

    made = write_sample(directory, rows, devices, seed)
    told = f"{made.telemetry} rows of telemetry, {made.availability} of availability, {made.quarantine} in quarantine"
    print(f"# {made.spool}: {told}\n{made.program}", end="")
    return 0


@ingest_app.command("consumers")
@one_line
def consumers(
    spool: Annotated[Path, typer.Argument(metavar="SPOOL", help="The directory that a receiver writes.")],
    forget: Annotated[str | None, typer.Option(metavar="NAME", help="Hold nothing for this query any more.")] = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
) -> int:
    """Show which queries read a spool and how far behind they are; forget a query that will not return."""
    from spark_ingest.errors import SpoolError
    from spark_ingest.spool import consumers as places
    from spark_ingest.spool.standing import print_standings, standings

    found = standings(spool)
    if forget is None:
        print_standings(found, as_json=json)
    elif places.forget(spool, forget):
        print(f"{forget} is forgotten, and what it alone had still to read is gone")
    else:
        known = ", ".join(each.name for each in found) or "nobody"
        raise SpoolError(f"{forget} reads nothing from {spool}; known: {known}")
    return 0


@ingest_app.command("pack")
@one_line
def pack(
    spool: Annotated[Path, typer.Argument(metavar="SPOOL", help="The directory that a receiver writes.")],
    grants: Annotated[Path, typer.Option(metavar="FILE", help="The file of scope keys that its receiver writes.")],
    grants_identity: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Identity to which the file of scope keys is sealed.")
    ] = None,
    receiver: Annotated[str | None, typer.Option(metavar="NAME", help="One part of the spool (default: all).")] = None,
    cap_bytes: Annotated[
        int | None, typer.Option(metavar="N", help="The receiver's cap: a quarter of it is left free.")
    ] = None,
) -> int:
    """Write what finished segments hold once more, sealed in large pieces that queries open much quicker."""
    from spark_ingest.packing import pack as packed

    refused = 0
    for each in packed(spool, grants, grants_identity, receiver, cap_bytes):
        print(each.told)
        refused += each.refused
    return EXIT_REFUSED if refused else 0


@ingest_app.command("serve")
@one_line
def serve(
    spool: Annotated[Path, typer.Argument(metavar="SPOOL", help="The directory that a receiver writes.")],
    grants: Annotated[
        list[Path], typer.Option(metavar="FILE", help="The sealed file of scope keys of a receiver; repeatable.")
    ],
    grants_identity: Annotated[Path, typer.Option(metavar="DIR", help="Identity to which it is sealed.")],
    bind: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where executors connect.")] = "127.0.0.1:9470",
) -> int:
    """Give sealed segments to executors that do not see the spool's directory (option extents of the source)."""
    from spark_ingest.extents.server import serve as served

    return served(spool, grants, grants_identity, bind)


@ingest_app.command("redrive")
@one_line
def redrive(
    spool: Annotated[Path, typer.Argument(metavar="SPOOL", help="The directory that a receiver writes.")],
    grants: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file of scope keys. Absent: only show what waits.")
    ] = None,
    grants_identity: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Identity to which the file of scope keys is sealed.")
    ] = None,
    consumer: Annotated[str | None, typer.Option(metavar="NAME", help="One query (default: all).")] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Wait no longer: forget what was passed over.")] = False,
) -> int:
    """Have queries read the rows again that they passed over for want of keys, once the keys are present."""
    from spark_ingest.redrive import redrive as redriven

    lines = list(redriven(spool, consumer, grants, grants_identity, drop=drop))
    print("\n".join(lines) or "no query waits for a key")
    return 0


@ingest_app.command("dashboard")
@one_line
def dashboard(
    spool: Annotated[Path, typer.Option(metavar="DIR", help="The directory that a receiver writes.")],
    grants: Annotated[Path, typer.Option(metavar="FILE", help="The file of scope keys that the receiver writes.")],
    metrics: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="Endpoint of a receiver, gateway or queries; repeatable.")
    ] = None,
    bind: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the page is.")] = "127.0.0.1:8090",
    cap_bytes: Annotated[int | None, typer.Option(metavar="N", help="The spool's cap, if no endpoint says it.")] = None,
) -> int:
    """Show throughput, delay, lag, availability and blame on a live page."""
    try:
        from spark_ingest.dashboard.page import serve
    except ModuleNotFoundError as error:
        raise IngestError(f"{error}; pip install 'veilmq[spark,dashboard]'") from None
    return serve(spool, grants, metrics or [], bind, cap_bytes)


if __name__ == "__main__":
    ingest_app()
