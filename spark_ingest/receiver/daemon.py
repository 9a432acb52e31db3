"""The receiver as a process of its own: `veilmq ingest run`. Runs until SIGTERM or SIGINT; no Spark, no Java.

The options of the data source concerning a receiver come from the command line or a YAML file; the command line wins.
A fault that waiting does not cure (a wrong identity or overlay, a receiver another process runs, an address that is
taken) ends the process with a line; other faults are waited out. A signal ends it after the group that is being
written: publications that are not synced are not acknowledged and come again.

Not here: receiving itself (`receiver`), the meaning of options (`options`).
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from gateway.base import collect_seldom
from gateway.base.log_events import LogEvent
from gateway.base.logs import configure, level_of
from gateway.overlay import ConfigError, OverlayError, TlsError, TrustError
from spark_ingest.errors import BadOption, IngestError, SpoolBusy
from spark_ingest.options import Options, parse_options
from spark_ingest.receiver.reaching_back import read_back
from spark_ingest.receiver.receiver import Receiver, ReceiverSettings
from spark_ingest.receiver.replicas import RegionReplicas
from spark_ingest.receiver.worker import STOP_S
from spark_ingest.receiver.workers import WORKERS_MAX, WorkingReceiver
from spark_ingest.schema_config import KeptSchemas
from spark_ingest.spool.backfilled import ask, is_asked

LOOK_S = 0.5
TAKEN_S = 10.0
"""So soon a running receiver takes what it was asked for."""
CONFIG_BYTES_MAX = 1 << 20
_log = logging.getLogger(__name__)


class ReceiverFailed(IngestError):  # noqa: N818
    """A fault that ended a receiver and that waiting does not cure."""


def receiver_options(config: Path | None, told: Mapping[str, str | None]) -> Options:
    """Returns options from a file, overridden by those that were `told` (None: not told). Raises BadOption."""
    named = {} if config is None else _file(config)
    named |= {name: value for name, value in told.items() if value is not None}
    options = parse_options(named)
    if not options.receives:
        raise BadOption("a receiver needs identity and overlay: --identity DIR --overlay FILE")
    return options


def _file(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            text = file.read(CONFIG_BYTES_MAX + 1)  # a device has no size, and no end
        if len(text) > CONFIG_BYTES_MAX:
            raise BadOption(f"{path} is too large for a file of options")
        document = yaml.safe_load(text.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"{path}: {error}; name a YAML file with options") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that no calendar has, [[[[...
        raise BadOption(f"{path} is no YAML: {error}") from None
    if not isinstance(document, dict):
        raise BadOption(f"{path}: write options as `spool: DIRECTORY`, one a line")
    named = {}
    for name, value in document.items():
        items = value if isinstance(value, list) else [value]
        if isinstance(value, bool):
            items = [str(value).lower()]
        if not all(isinstance(item, str | int | float) and not isinstance(item, bool) for item in items):
            raise BadOption(f"{path}: {name} is neither text nor a number, nor a list of texts")
        named[str(name)] = ",".join(map(str, items))
    return named


def backfill(options: Options, verbose: bool = False) -> int:
    """Reads histories into the spool, itself or by the receiver that runs; returns exit status 0.

    Prints the progress. Raises IngestError if nothing can be read.
    """
    configure("text", level_of(verbose, None if verbose else "warning"))
    directory = options.spool / options.receiver
    ask(directory, options.reaches_back_ms or 0)
    receiver = Receiver(ReceiverSettings.from_options(options, waits=False), lambda: RegionReplicas(options))
    receiver.start()
    stopped = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopped.set())
    try:
        return _watched(receiver, options, directory, stopped)
    finally:
        receiver.stop(STOP_S)


def _watched(receiver: Receiver, options: Options, directory: Path, stopped: threading.Event) -> int:
    """Prints the progress of a backfill until its end."""
    shown, taken_until = "", time.monotonic() + TAKEN_S
    while not stopped.wait(LOOK_S):
        if not receiver.alive and not isinstance(receiver.failure, SpoolBusy):
            _raise(receiver)
        if is_asked(directory):
            if not receiver.alive and time.monotonic() > taken_until:
                raise ReceiverFailed(
                    f"the process that writes as receiver {options.receiver} takes no backfill: it writes nothing; "
                    "stop it, run this command, start it again"
                )
            continue
        record = read_back(options.spool, options.receiver)
        if record is None:
            continue
        if record.told != shown:
            shown = record.told
            print(shown, flush=True)
        if record.is_over and not record.scopes:
            raise ReceiverFailed(
                "no scope that this job reads has a history; the owner gives it one in overlay.yaml: history: "
                "{days: 7, gigabytes: 20}"
            )
        if record.is_over:
            return 1 if any(scope.is_refused for scope in record.scopes.values()) else 0
    return 1


def _raise(receiver: Receiver | WorkingReceiver) -> None:
    """Raises the fault that ended a receiver, if there is one."""
    failure = receiver.failure
    if isinstance(failure, TrustError | OverlayError | TlsError | ConfigError):
        raise ReceiverFailed(str(failure))
    if failure is not None:
        raise failure


def _receiver(options: Options, workers: int) -> Receiver | WorkingReceiver:
    settings = ReceiverSettings.from_options(options, waits=False)
    if workers == 1:
        return Receiver(settings, lambda: RegionReplicas(options))
    if not 1 <= workers <= WORKERS_MAX:
        raise BadOption(f"workers={workers} is out of range; from 1 to {WORKERS_MAX}, no more than there are cores")
    if settings.part is not None:
        raise BadOption("workers divide all that comes among themselves; give --workers or --shard, not both")
    return WorkingReceiver(settings, workers, lambda: RegionReplicas(options))


def serve(
    options: Options,
    metrics: str | None = None,
    workers: int = 1,
    verbose: bool = False,
    log_level: str | None = None,
) -> int:
    """Runs a receiver until a signal; returns exit status 0.

    `workers`: processes receiving under the one identity. Raises IngestError for a fault that ended the receiver
    before.
    """
    configure("text", level_of(verbose, log_level))
    stopped = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopped.set())
    schemas = None if options.schemas is None else KeptSchemas(options.schemas, options.spool)
    if schemas is not None:
        schemas.keep_schemas()
    receiver = _receiver(options, workers)
    end_metrics: Callable[[], None] | None = None
    if metrics is not None:
        from spark_ingest.receiver.metrics import ReceiverMetrics, serve_metrics  # noqa: PLC0415  only who asks needs it

        parts = receiver.parts if isinstance(receiver, WorkingReceiver) else [options.receiver]
        end_metrics = serve_metrics(metrics, ReceiverMetrics(receiver, options.spool, parts, options.cap_bytes))
    receiver.start()
    collect_seldom()
    LogEvent.RECEIVER_STARTED.say(_log, options.receiver, options.spool)
    try:
        while receiver.alive and not stopped.wait(LOOK_S):
            if schemas is not None:
                schemas.renew_schemas()
    finally:
        receiver.stop(STOP_S)
        if end_metrics is not None:
            end_metrics()
    _raise(receiver)
    LogEvent.RECEIVER_ENDED.say(_log, options.receiver, receiver.progress.rows)
    return 0
