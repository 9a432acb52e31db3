"""The Prometheus endpoint of `veilmq ingest run`: `veilmq_ingest_...` in base units, collected at each scrape.

    received_total{replica}, received_bytes_total{replica}, link_up{replica}      received pieces
    sealed_batches_total, written_bytes_total, groups_total, fsync_seconds (summary)        written to disk
    events_total{event,replica}                                                   duplicates, incomplete, refused, ...
    waiting_sealed_batches, receiving, subscribed, reads_back, spool_full, clock_off, spool_bytes, spool_cap_bytes
    consumer_behind_sealed_batches{consumer}, consumer_behind_bytes, consumer_behind_seconds            queries' lag

`events` are the collector's figures under their own names; `refused_*`, `suspected` and `named` carry the replica to
blame. No topic, publisher or key is a label. A thread serves a single scrape at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from spark_ingest.errors import BadOption, SpoolError
from spark_ingest.receiver.receiver import Receiver
from spark_ingest.receiver.workers import WorkingReceiver
from spark_ingest.spool import directory_bytes, standings

PREFIX = "veilmq_ingest_"


class ReceiverMetrics(Collector):
    """A Prometheus collector of a receiver and its spool."""

    def __init__(self, receiver: Receiver | WorkingReceiver, spool: Path, parts: Sequence[str], cap_bytes: int) -> None:
        """Takes the receiver and its spool. `parts`: the parts of the spool the receiver writes."""
        self._receiver, self._spool, self._parts, self._cap_bytes = receiver, spool, parts, cap_bytes

    def collect(self) -> Iterator[Metric]:
        receiver, told = self._receiver, self._receiver.progress
        pieces = _counter("received", "Pieces of publications that a replica sent.", "replica")
        size = _counter("received_bytes", "Bytes that a replica sent, before TLS.", "replica")
        up = GaugeMetricFamily(PREFIX + "link_up", "1 while the connection to the replica stands.", labels=["replica"])
        for link in told.links:
            pieces.add_metric([link.replica], link.pieces)
            size.add_metric([link.replica], link.bytes)
            up.add_metric([link.replica], link.up)
        yield from (pieces, size, up)
        yield CounterMetricFamily(
            PREFIX + "sealed_batches", "Sealed batches written and synced, quarantine included.", value=told.rows
        )
        yield CounterMetricFamily(PREFIX + "written_bytes", "Bytes of those on disk.", value=told.bytes)
        yield CounterMetricFamily(
            PREFIX + "groups", "Groups of sealed batches that shared an fsync.", value=told.groups
        )
        yield SummaryMetricFamily(
            PREFIX + "fsync_seconds", "Time in fsync of groups.", count_value=told.groups, sum_value=told.fsync_s
        )
        events = _counter("events", "What the collector counted.", "event", "replica")
        for (event, replica), count in dict(receiver.figures).items():
            events.add_metric([event, replica], count)
        yield events
        size_on_disk = sum(directory_bytes(self._spool / part) for part in self._parts)
        gauges = {
            "waiting_sealed_batches": (told.waiting, "Sealed batches that are to be written."),
            "receiving": (receiver.alive and receiver.trouble is None, "1 while nothing stops the receiver."),
            "subscribed": (told.accepted, "1 while enough replicas know all that we want."),
            "reads_back": (told.reads_back, "1 while histories of replicas are read into the spool."),
            "spool_full": (told.full, "1 while the spool is at its cap and nothing is acknowledged."),
            "clock_off": (told.clock_off, "1 while this machine's clock cannot be believed."),
            "spool_bytes": (size_on_disk, "Size of this receiver's part of the spool."),
            "spool_cap_bytes": (self._cap_bytes, "Size at which nothing is acknowledged any more."),
        }
        for name, (value, text) in gauges.items():
            yield GaugeMetricFamily(PREFIX + name, text, value=float(value))
        yield from self._lags()

    def _lags(self) -> Iterator[Metric]:
        """Yields the lag of each of the spool's consumers; nothing for one whose rows are partly gone."""
        try:
            found = standings(self._spool)
        except SpoolError:
            found = []  # trimmed while we looked; the next scrape tells
        lags = [(each.name, each.behind, each.behind_s or 0.0) for each in found if each.behind is not None]
        units = {
            "sealed_batches": "Sealed batches that a query has still to read.",
            "bytes": "Sealed bytes that a query has still to read.",
            "seconds": "How long ago the first row was received that a query has still to read; 0 if there is none.",
        }
        shown = {u: GaugeMetricFamily(f"{PREFIX}consumer_behind_{u}", units[u], labels=["consumer"]) for u in units}
        for name, behind, behind_s in lags:
            shown["sealed_batches"].add_metric([name], behind.sealed_batches)
            shown["bytes"].add_metric([name], behind.bytes)
            shown["seconds"].add_metric([name], behind_s)
        yield from shown.values()


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, text, labels=labels)


def serve_metrics(address: str, collector: Collector) -> Callable[[], None]:
    """Listens on HOST:PORT; returns the function ending it. Raises BadOption."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise BadOption(f"metrics={address!r} is no HOST:PORT; write 127.0.0.1:9464")
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        server, thread = start_http_server(int(port), host.removeprefix("[").removesuffix("]"), registry)
    except OSError as error:
        raise BadOption(f"metrics={address}: {error.strerror or error}; choose an address that is free") from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
