"""Parts running beside a broker by its configuration: health checks, bridges, events, console and API.

The parts are put together here, begin when the broker serves and end with it. Their work is in their rooms.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil

from bridge.topology import LinkNow, LinkWitness
from gateway.base import LinkState, PrivateFileError, Settings, StartError, read_private, write_private
from gateway.base.followed import FollowedMessages
from gateway.base.log_events import LogEvent
from gateway.bridged import make_bridges, say_left
from gateway.bridging import Bridge
from gateway.broker import EdgeBroker
from gateway.client import LocalEnd
from gateway.clients import INTERNAL, EntityConnected, EntityEvent, EntityGone
from gateway.day import DayKeeper
from gateway.following import FollowServer
from gateway.health import DEGRADED, LEVELS, Certificates, Finding, HealthWatch, View, look
from gateway.overlay import BrokerOverlay, GatewayOverlay, standing, summaries
from gateway.telling import Hooks

if TYPE_CHECKING:
    from gateway.base.config_console import Console
    from gateway.base.config_telemetry import TelemetrySettings
    from gateway.console.serving import ConsoleServer
    from gateway.console.shown import LogTail
    from gateway.telemetry.exporting import Exporting

log = logging.getLogger("veilmq.attached")

BROKER_NAME = "broker.name"
NO_TELEMETRY = "telemetry: opentelemetry is missing; pip install 'veilmq[otel]'"


class Attached:
    """All parts beside a single broker. Call `begin_parts` when the broker serves, `end_parts` before it ends."""

    def __init__(self, settings: Settings, links: BrokerOverlay | None) -> None:
        self._settings, self._links = settings, links
        self._bridges: list[Bridge] = []
        self._watch: HealthWatch | None = None
        self._server: ConsoleServer | None = None
        self._starting: asyncio.Task[None] | None = None
        self._hooks: Hooks | None = None
        self._follow: FollowServer | None = None
        self._day: DayKeeper | None = None
        self._exporting: Exporting | None = None
        self._log: LogTail | None = None

    def begin_parts(self, broker: EdgeBroker) -> None:
        """Begins all parts. Raises ConfigError, StartError."""
        settings = self._settings
        say_left(settings.bridges, broker)
        if settings.bridges or self._links is not None:
            self._bridges = make_bridges(settings.bridges, broker, self._links, self._broker_name(), settings.data)
            for each in self._bridges:
                each.start()
                broker.serve_after(each.wait_for_subscriptions())
        self._watch = HealthWatch(
            partial(_view, settings, self._links, broker, self._bridges, Certificates(), LinkWitness()), time.monotonic
        )
        broker.operation.health = self._watch
        if self._links is not None:
            broker.operation.summaries = partial(summaries, self._links)
        look = partial(_figures, broker, self._links, self._watch, psutil.Process())
        self._day = DayKeeper(settings.data, look, self._watch.alarms)
        self._day.start()
        broker.operation.day = self._day.shown_day
        self._watch.start()
        if settings.telemetry is not None:
            self._export(broker, settings.telemetry)
        if settings.events:
            self._begin_hooks(broker, self._watch)
        followed = FollowedMessages(
            self._broker_name(), lambda is_on: self._followed(broker, followed if is_on else None)
        )
        if settings.data is not None:
            self._follow = FollowServer(settings.data, followed)
            self._follow_starts = asyncio.get_running_loop().create_task(self._follow.start())
        if settings.console is not None:
            self._open_console(broker, settings.console, self._watch, followed)

    async def end_parts(self) -> None:
        """Ends all parts; messages handed to bridges are kept for the next start."""
        if self._follow is not None:
            await asyncio.wait([self._follow_starts])
            await self._follow.stop()
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._server is not None:
            await self._server.stop()
        if self._log is not None:
            logging.getLogger("veilmq").removeHandler(self._log)
        if self._watch is not None:
            self._watch.stop()
        if self._day is not None:
            await self._day.stop()
        if self._exporting is not None:
            await self._exporting.stop()
        for bridge in self._bridges:
            await bridge.stop()
        if self._hooks is not None:
            await self._hooks.stop()

    def _export(self, broker: EdgeBroker, settings: TelemetrySettings) -> None:
        """Begins to tell a collector of OpenTelemetry. Raises StartError if the libraries are missing."""
        try:
            from gateway.telemetry.exporting import Exporting  # noqa: PLC0415  few have it, and it needs OpenTelemetry
        except ImportError:
            raise StartError(NO_TELEMETRY) from None
        self._exporting = Exporting(settings, self._broker_name(), broker.operation.collect)
        if settings.spans:
            broker.exchange.spans = self._exporting.spans
            broker.host.watched("spans", settings.begin > 0)
            if isinstance(self._links, GatewayOverlay):
                self._links.spans = self._exporting.spans
        self._exporting.start()

    def _followed(self, broker: EdgeBroker, followed: FollowedMessages | None) -> None:
        """Lets publications say their steps to administrators that follow them; None: to nobody."""
        broker.exchange.follow_publications(followed)
        if self._links is not None:
            self._links.follow_messages(followed)

    def _begin_hooks(self, broker: EdgeBroker, watch: HealthWatch) -> None:
        """Begins to send events to the configured receivers. Raises StartError."""
        hooks = self._hooks = Hooks(self._settings.events, LocalEnd(f"{INTERNAL}events", broker), self._broker_name())

        def watched(event: EntityEvent) -> None:
            if isinstance(event, EntityConnected):
                hooks.tell_event("connected", event.owner, client=event.client_id, address=event.origin)
            elif isinstance(event, EntityGone):
                hooks.tell_event(
                    "disconnected", event.owner, client=event.client_id, clean=event.clean, reason=event.reason
                )

        def found(finding: Finding, begins: bool) -> None:
            key = finding.key.partition(":")[0]
            hooks.tell_event("finding", level=finding.level, about=key, text=finding.text, begins=begins)

        broker.exchange.watchers.append(watched)
        watch.on_change = found
        hooks.start()

    def _open_console(
        self, broker: EdgeBroker, settings: Console, watch: HealthWatch, followed: FollowedMessages
    ) -> None:
        """Begins to serve the console. Raises StartError if aiohttp is missing or the tokens cannot be read."""
        try:
            from gateway.console.assembly import make_server  # noqa: PLC0415  few have it, and it needs aiohttp
            from gateway.console.shown import LogTail  # noqa: PLC0415
        except ImportError:
            raise StartError("console: aiohttp is missing; pip install 'veilmq[console]'") from None
        self._log = LogTail()
        logging.getLogger("veilmq").addHandler(self._log)
        prefix = self._settings.availability.topic_prefix
        try:
            self._server = make_server(settings, self._settings.data, broker, watch.status, prefix, self._log, followed)
        except PrivateFileError as error:
            raise StartError(str(error)) from None
        self._starting = asyncio.get_running_loop().create_task(self._serve(self._server))

    @staticmethod
    async def _serve(server: ConsoleServer) -> None:
        """Starts the console's server; a failure is logged and does not stop the broker, which serves already."""
        try:
            await server.start()
        except StartError as error:
            LogEvent.CONSOLE_NOT_SERVED.say(log, error)

    def _broker_name(self) -> str:
        """Returns this broker's name for the marks of bridges: our name in the overlay, or a name drawn once."""
        if self._links is not None:
            return self._links.figures.name
        data = self._settings.data
        drawn = f"broker-{secrets.token_hex(4)}"
        if data is None:
            return drawn
        try:
            with contextlib.suppress(PrivateFileError):
                return read_private(data / BROKER_NAME).decode("ascii").strip()
            write_private(data / BROKER_NAME, drawn.encode() + b"\n", replace=True)
        except (PrivateFileError, UnicodeDecodeError) as error:
            raise StartError(f"{data / BROKER_NAME}: {error}; remove it") from None
        return drawn


def _view(
    settings: Settings,
    links: BrokerOverlay | None,
    broker: EdgeBroker,
    bridges: Sequence[Bridge],
    certificates: Certificates,
    witness: LinkWitness,
) -> View:
    now = time.time()
    overlay = None
    if links is not None and settings.overlay is not None:
        overlay = standing(links, now, settings.overlay.outbox_bytes)
    view = look(settings, certificates, broker.operation.observe(), overlay, now)
    details: dict[str, Any] = {}
    if links is not None:
        witness.note_links(_links_now(links.figures.links()), time.monotonic())
        details["seen"] = {peer: asdict(one) for peer, one in witness.seen().items()}
    if not bridges:
        return replace(view, details=details) if details else view
    stands = [bridge.standing() for bridge in bridges]
    more = []
    for one in stands:
        if not one.up:
            waiting = _waiting(broker, one.name)
            said = f"bridge {one.name}: {one.error or 'not connected yet'}; {waiting} messages wait for it here"
            more.append(Finding(DEGRADED, f"bridge:{one.name}", said))
    shown = {one.name: asdict(one) | {"waiting": _waiting(broker, one.name)} for one in stands}
    return replace(view, more=tuple(more), details={**details, "bridges": shown})


def _figures(
    broker: EdgeBroker, links: BrokerOverlay | None, watch: HealthWatch, process: psutil.Process
) -> dict[str, float]:
    """Returns the present figures of a row of the day (`gateway.day.minutes`)."""
    snapshot, report = broker.operation.observe(), watch.report()
    gauges = links.gauges() if links is not None else {}
    return {
        "received": snapshot.traffic.publish_received,
        "sent": snapshot.published,
        "dropped": sum(snapshot.dropped.values()),
        "received_bytes": snapshot.traffic.bytes_received,
        "sent_bytes": snapshot.traffic.bytes_sent,
        "clients": snapshot.clients_connected,
        "sessions": snapshot.sessions,
        "queued": snapshot.queued_messages,
        "retained": snapshot.retained_messages,
        "outbox": gauges.get("outbox_depth", 0),
        "links": gauges.get("links_up", 0),
        "level": LEVELS.index(report.level),
        "cpu_percent": process.cpu_percent(),
        "memory_mib": process.memory_info().rss / (1 << 20),
    }


def _links_now(states: Sequence[LinkState]) -> dict[str, LinkNow]:
    """Returns the traffic with each member, summed over our link to the member and the member's link to us."""
    found: dict[str, LinkNow] = {}
    for one in states:
        other, figures = found.get(one.peer, LinkNow(up=False)), one.figures
        found[one.peer] = LinkNow(
            one.up or other.up,
            figures.received + other.received,
            figures.sent + other.sent,
            figures.connections + other.made,
        )
    return found


def _waiting(broker: EdgeBroker, bridge: str) -> int:
    """Returns the number of messages our broker keeps for a bridge."""
    client = broker.lifecycle.clients.get(f"{INTERNAL}bridge/{bridge}")
    return len(client.session.waiting) if client is not None else 0
