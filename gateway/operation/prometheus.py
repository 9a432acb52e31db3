"""Prometheus endpoint: `veilmq_...` on a loopback listener, in base units (seconds, bytes, counts).

The library's WSGI application runs in its own thread, a single scrape at a time. Its figures are collected on the
event loop, so that no figure changes while it is read. Figures of the overlay come from
`gateway.base.figures.Figures`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.base import Figures, HistoryState, Limits, LinkState, ReaderState, StartError
from gateway.base.log_events import LogEvent
from gateway.operation.answers import BrokerHealth, HttpAnswers
from gateway.operation.registry import BROKER_FIGURES, FigureKind
from gateway.operation.snapshot import BrokerSnapshot
from gateway.operation.sys_topics import release

log = logging.getLogger("veilmq.metrics")

PREFIX = "veilmq_"
COLLECT_S = 5.0
"""Seconds after which a scrape fails that the event loop does not answer; Prometheus asks again."""
REQUEST_S = 5.0
"""Seconds for which a client that sends no request, or does not read the answer, can delay the next scrape."""
LOOK_S, STOP_S = 0.1, 0.5
"""Seconds between the thread's checks for its end, and seconds that the broker's end waits for the thread."""


def broker_metrics(snapshot: BrokerSnapshot, limits: Limits) -> Iterator[Metric]:
    """Yields the broker's own metrics."""
    build = GaugeMetricFamily(PREFIX + "build_info", "Always 1.", labels=["version"])
    build.add_metric([release()], 1)
    yield build
    for figure in BROKER_FIGURES:
        if figure.name:
            family = GaugeMetricFamily if figure.kind is FigureKind.GAUGE else CounterMetricFamily
            yield family(PREFIX + figure.name, figure.text, value=figure.value(snapshot))
    dropped = CounterMetricFamily(
        PREFIX + "publications_dropped", "Publications that a receiver did not get.", labels=["reason"]
    )
    for reason, count in snapshot.dropped.items():
        dropped.add_metric([reason], count)
    yield dropped
    yield from _limits(snapshot, limits)


def _limits(snapshot: BrokerSnapshot, limits: Limits) -> Iterator[Metric]:
    bounds = GaugeMetricFamily(PREFIX + "limit", "The bound as configured, in the unit of its name.", labels=["limit"])
    reached = CounterMetricFamily(PREFIX + "limit_reached", "How often the bound was reached.", labels=["limit"])
    for name, value in limits:
        bounds.add_metric([name], float(value))
        reached.add_metric([name], snapshot.reached[name])
    yield bounds
    yield reached


def overlay_metrics(figures: Figures, gauges: dict[str, int]) -> Iterator[Metric]:
    """Yields metrics of this party in the overlay: events, suspected members, named members."""
    events = CounterMetricFamily(PREFIX + "overlay_events", "Events by name.", labels=["event", "label"])
    for key, count in figures.counts.items():
        name, _, label = key.partition(".")
        events.add_metric([name, label], count)
    yield events
    suspected = CounterMetricFamily(PREFIX + "overlay_suspicions", "Suspicions of a member.", labels=["member"])
    for member, count in figures.suspected.items():
        suspected.add_metric([member], count)
    yield suspected
    named = GaugeMetricFamily(PREFIX + "overlay_named", "1 for a member that is named as a liar.", labels=["member"])
    for member in figures.named:
        named.add_metric([member], 1)
    yield named
    for name, value in gauges.items():
        yield GaugeMetricFamily(f"{PREFIX}overlay_{name}", _GAUGES.get(name, name), value=value)
    yield from history_metrics(figures.histories())
    yield from reader_metrics(figures.readers())
    yield from link_metrics(figures.links())


def history_metrics(histories: Sequence[HistoryState]) -> Iterator[Metric]:
    """Yields how far each history of a replica reaches."""
    first = GaugeMetricFamily(
        f"{PREFIX}history_first_time_seconds", "When the oldest publication kept was sealed.", labels=["scope"]
    )
    size = GaugeMetricFamily(f"{PREFIX}history_bytes", "Disk that the history of the scope takes.", labels=["scope"])
    for one in histories:
        size.add_metric([one.scope], one.bytes)
        if one.first_ms:
            first.add_metric([one.scope], one.first_ms / 1000)
    yield first
    yield size


def reader_metrics(readers: Sequence[ReaderState]) -> Iterator[Metric]:
    """Yields how readers stand with publications in scopes with receipts."""
    age = GaugeMetricFamily(
        f"{PREFIX}receipt_missing_seconds",
        "Age of the oldest publication of which this reader sent no receipt; 0 for none.",
        labels=["reader", "scope"],
    )
    for one in readers:
        age.add_metric([one.reader, one.scope], one.unreceived_s)
    yield age


def tracing_metrics(figures: Figures, gauges: dict[str, int | float]) -> Iterator[Metric]:
    """Yields metrics of tracing: events told and refused, and gauges.

    The gauge of our own health as a judge of entities is 0 (well) to 1 (hardly running).
    """
    events = CounterMetricFamily(PREFIX + "tracing_events", "Events of tracing by name.", labels=["event", "label"])
    for key, count in figures.counts.items():
        name, _, label = key.partition(".")
        events.add_metric([name, label], count)
    yield events
    for name, value in gauges.items():
        yield GaugeMetricFamily(f"{PREFIX}tracing_{name}", f"Tracing: {name} now.", value=value)


def link_metrics(links: Sequence[LinkState]) -> Iterator[Metric]:
    """Yields a single series per peer and direction: `out` is a link we dialled, `in` a link the peer dialled.

    Between replicas each link carries publications one way only; a gateway has a single link for both.
    """
    for name, text, value in _LINK_GAUGES:
        gauge = GaugeMetricFamily(f"{PREFIX}link_{name}", text, labels=["peer", "direction"])
        for link in links:
            measured = value(link)
            if measured is not None:
                gauge.add_metric([link.peer, "out" if link.dialled else "in"], measured)
        yield gauge
    for name, text, counted in _LINK_COUNTERS:
        counter = CounterMetricFamily(f"{PREFIX}link_{name}", text, labels=["peer", "direction"])
        for link in links:
            counter.add_metric([link.peer, "out" if link.dialled else "in"], counted(link))
        yield counter


_LINK_GAUGES: tuple[tuple[str, str, Callable[[LinkState], float | None]], ...] = (
    ("up", "1 while the connection stands.", lambda link: link.up),
    ("in_flight_messages", "Messages to the peer that it has not acknowledged.", lambda link: link.in_flight),
    ("waiting_messages", "Messages that wait for room in the peer's window.", lambda link: link.waiting),
    (
        "acknowledge_seconds",
        "From writing a message to its acknowledgement, when last measured.",
        lambda link: link.figures.acknowledge_s,
    ),
)
_LINK_COUNTERS: tuple[tuple[str, str, Callable[[LinkState], int]], ...] = (
    ("sent_messages", "Publications to the peer.", lambda link: link.figures.sent),
    ("sent_bytes", "Bytes written to the peer, before TLS.", lambda link: link.figures.sent_bytes),
    ("received_messages", "Publications of the peer.", lambda link: link.figures.received),
    ("received_bytes", "Bytes that the peer sent, after TLS.", lambda link: link.figures.received_bytes),
    ("reconnects", "Connections made after the first.", lambda link: link.reconnects),
)

_GAUGES = {
    "outbox_depth": "Publications in the outbox, on disk or in memory, that some replica of our region still lacks.",
    "outbox_bytes": "What they cost on disk; overlay.outbox_bytes bounds it.",
    "links_up": "Links to members that we dialled and that are up.",
    "links": "Members that we dial.",
    "acks_held": "Acknowledgements that wait for room in a next region.",
}


class _OnLoop(Collector):
    """A collector that collects on the event loop for the serving thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, collect: Callable[[], list[Metric]]) -> None:
        self._loop, self._collect = loop, collect

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        async def on_loop() -> list[Metric]:
            return self._collect()

        return asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result(COLLECT_S)


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_S

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: a scrape every few seconds is no news."""


class _Server(WSGIServer):
    def handle_error(self, request: object, client_address: object) -> None:
        LogEvent.SCRAPE_GIVEN_UP.say(log)

    def server_bind(self) -> None:
        # As the base class, but without looking up the name of the address, which may take a resolver's timeout.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class Endpoint:
    """A server of metrics from `start` to `stop`. `bind`: HOST:PORT, checked by the configuration."""

    def __init__(self, bind: str, collect: Callable[[], list[Metric]]) -> None:
        """Binds the port; `collect` is called on the event loop for every scrape.

        Raises StartError if the port is unavailable.
        """
        host, _, port = bind.rpartition(":")
        host = host.strip("[]")
        self._collect = collect
        kind = type("_Server6", (_Server,), {"address_family": socket.AF_INET6}) if ":" in host else _Server
        try:
            self._server = kind((host, int(port)), _Handler)
        except OSError as error:
            used = "the port is in use; stop what uses it or bind another"
            cause = used if error.errno == errno.EADDRINUSE else f"{error.strerror or error}; correct bind"
            raise StartError(f"metrics: cannot bind {bind}: {cause}") from None
        self._server.timeout = LOOK_S
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def start(
        self,
        health: BrokerHealth | None = None,
        summaries: Callable[[], list[str]] = list,
        day: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        registry = CollectorRegistry()
        loop = asyncio.get_running_loop()
        registry.register(_OnLoop(loop, self._collect))
        ProcessCollector(namespace=PREFIX.rstrip("_"), registry=registry)
        self._server.set_app(HttpAnswers(loop, make_wsgi_app(registry), health, summaries, day))
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)
        self._thread.start()
        LogEvent.METRICS_SERVED.say(log, self._server.server_name, self.port)

    async def stop(self) -> None:
        """Ends the thread, which closes the port.

        A running scrape gets STOP_S to finish; then the end of the process closes all.
        """
        if self._thread is None:
            self._server.server_close()
            return
        self._ending.set()
        await asyncio.to_thread(self._thread.join, STOP_S)

    def _serve(self) -> None:
        with self._server:
            while not self._ending.is_set():
                self._server.handle_request()
