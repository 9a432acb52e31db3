"""The sources of the dashboard's figures: a spool, read as a consumer without a name, and Prometheus endpoints.

Reading registers nothing and trims nothing. All new rows are counted, by the index; only the newest are opened, so
that a look costs a constant time however much arrives. Endpoints are asked in threads, with bounds on time and size.
"""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from spark_ingest.dashboard.board import BoardReader, BoardSample, HeardEntity, Look, Scrape
from spark_ingest.errors import BadOption, IngestError, SpoolGap
from spark_ingest.opening import RowReader
from spark_ingest.options import IngestStream, MissingKey, parse_options
from spark_ingest.spool import ByteRange, Offset, SpoolView, directory_bytes, standings

READ_ROWS = 4000
"""Rows that a look opens for telemetry and quarantine."""
READ_AVAILABILITY_ROWS = 40_000
"""The same for availability: where topics are not hidden, only its rows are opened."""
PART_BYTES = 64 * 1024
SCRAPE_S = 2.0
SCRAPE_BYTES = 4 << 20
SCRAPE_SAMPLES = 20_000
ENDPOINTS_MAX = 32


class SpoolFeed:
    """Looks at one spool, each from where the last one ended. Raises BadOption for options that cannot be used."""

    def __init__(self, spool: Path, grants: Path) -> None:
        told = {"spool": str(spool), "grants": str(grants), "onMissingKey": MissingKey.QUARANTINE.value}
        self._readers = {each: RowReader(parse_options(told | {"stream": each.value})) for each in IngestStream}
        self._root, self._view = spool, SpoolView(spool)
        self._at: Offset | None = None

    def next_look(self) -> Look:
        """Returns the news of the spool. Never raises for a fault that may pass: the look's `trouble` names it."""
        try:
            return self._look_at_spool()
        except SpoolGap:
            self._at = None  # the next look begins with what is there
            return Look(trouble="what was to be read was trimmed, or the spool replaced; looking anew")
        except (IngestError, OSError) as error:
            return Look(trouble=" ".join(str(error).split())[:300])

    def _look_at_spool(self) -> Look:
        latest = self._view.latest()
        start = self._view.earliest() if self._at is None else self._at
        extents = list(_newest(self._view, start, latest, READ_AVAILABILITY_ROWS))
        read = list(_within(extents, READ_ROWS))
        telemetry = list(self._batches(IngestStream.TELEMETRY, read))
        quarantine = list(self._batches(IngestStream.QUARANTINE, read))
        newest_heard = [
            [each for batch in self._batches(IngestStream.AVAILABILITY, [extent]) for each in _heard(batch)]
            for extent in extents
        ]
        self._at = latest
        reasons = Counter(
            reason.partition(":")[0].split(",")[0] for b in quarantine for reason in b.column("reason").to_pylist()
        )
        taken = sum(each.rows for each in read)
        return Look(
            sealed_batches=self._view.rows_between(start, latest),
            read=taken,
            streams={
                "telemetry": sum(batch.num_rows for batch in telemetry),
                "availability": sum(map(len, newest_heard[len(extents) - len(read) :])),
                "quarantine": sum(batch.num_rows for batch in quarantine),
            },
            delays=[each for batch in telemetry for each in _delays(batch)],
            heard=[each for found in newest_heard for each in found],
            reasons=reasons,
            readers=[
                BoardReader(
                    each.name,
                    each.running,
                    each.behind.sealed_batches if each.behind else None,
                    each.behind.bytes if each.behind else None,
                    each.behind_s,
                    each.committed,
                )
                for each in standings(self._root)
            ],
            spool_bytes=sum(directory_bytes(self._root / name) for name in self._view.receivers()),
        )

    def _batches(self, stream: IngestStream, extents: Sequence[ByteRange]) -> Iterator[Any]:
        for extent in extents:
            yield from self._readers[stream].read(extent)


def _newest(view: SpoolView, start: Offset, end: Offset, rows: int) -> Iterator[ByteRange]:
    """The newest parts of (start, end] with about `rows` rows, oldest first."""
    size = sum(each.bytes for each in view.sizes_between(start, end).values())
    parts = view.ranges(start, end, max(1, size // PART_BYTES))
    taken = list(_within(parts, rows))
    yield from taken


def _within(extents: Sequence[ByteRange], rows: int) -> Iterator[ByteRange]:
    """The last of some extents, oldest first, up to about `rows` rows; one at least."""
    taken: list[ByteRange] = []
    left = rows
    for extent in reversed(extents):
        if taken and extent.rows > left:
            break
        taken.append(extent)
        left -= extent.rows
    return reversed(taken)


_HEARD = ("gateway", "entity", "state", "sequence", "since", "received_at")


def _heard(batch: Any) -> Iterator[HeardEntity]:
    columns = (batch.column(name).to_pylist() for name in _HEARD)
    for gateway, entity, state, sequence, since, received in zip(*columns, strict=True):
        if entity and state:
            said_at = since.timestamp() if since else None
            yield HeardEntity(gateway or "", entity, state, sequence, said_at, received.timestamp())


def _delays(batch: Any) -> Iterator[tuple[float, float]]:
    published, received = (batch.column(name).to_pylist() for name in ("published_at", "received_at"))
    for out, back in zip(published, received, strict=True):
        yield _seconds(back), max(0.0, (back - out).total_seconds())


def _seconds(at: datetime) -> float:
    return at.timestamp()


class Scraper:
    """Asks some Prometheus endpoints at once. Raises BadOption for what is no URL of one."""

    def __init__(self, urls: Sequence[str]) -> None:
        if len(urls) > ENDPOINTS_MAX:
            raise BadOption(f"{len(urls)} endpoints are more than the {ENDPOINTS_MAX} that a dashboard asks")
        self._urls = [checked_url(url) for url in urls]
        self._pool = ThreadPoolExecutor(max_workers=max(1, min(8, len(urls))), thread_name_prefix="scrape")

    def scrape(self) -> list[Scrape]:
        return list(self._pool.map(scrape, self._urls))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def checked_url(url: str) -> str:
    """http or https, a host, no user and password (they would be shown). `/metrics` is added where no path is.

    Raises BadOption.
    """
    try:
        parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise BadOption(f"metrics={url!r} is no endpoint; write http://HOST:PORT/metrics")
    if parts.username or parts.password:
        raise BadOption("metrics: a URL with user and password would show them on the page; leave them out")
    return urllib.parse.urlunsplit(parts._replace(path=parts.path if parts.path.strip("/") else "/metrics"))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """An endpoint of ours has no reason to send us elsewhere."""


_open = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({})).open


def scrape(url: str) -> Scrape:
    """An answer, or why there is none."""
    try:
        give_up = time.monotonic() + 2 * SCRAPE_S
        body = b""
        with _open(url, timeout=SCRAPE_S) as answer:
            while len(body) <= SCRAPE_BYTES and (part := answer.read1(SCRAPE_BYTES)):
                body += part
                if time.monotonic() > give_up:  # the socket's patience begins anew with each byte
                    return Scrape(url, error="answers too slowly")
        if len(body) > SCRAPE_BYTES:
            return Scrape(url, error=f"answers more than {SCRAPE_BYTES >> 20} MiB")
        families = text_string_to_metric_families(body.decode())
        samples = (each for family in families for each in family.samples if each.name.startswith("veilmq_"))
        return Scrape(url, [BoardSample(e.name, e.labels, e.value) for e in islice(samples, SCRAPE_SAMPLES)])
    except urllib.error.HTTPError as error:
        return Scrape(url, error=f"answers {error.code}")
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        return Scrape(url, error=str(getattr(reason, "strerror", None) or reason)[:120])
    except (ValueError, KeyError, IndexError):
        return Scrape(url, error="does not answer as a Prometheus endpoint")
