"""Registry of the broker's figures: the name for Prometheus, the topic on `$SYS`, the meaning and the source of each.

A new figure is a row here; endpoint, topics and documentation show it. Figures of the overlay are named in
`bridge.contract.figures`. Nothing is counted here: connections and the exchange count (`traffic`), and sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from gateway.operation.snapshot import BrokerSnapshot

Number = int | float


class FigureKind(Enum):
    """The kind of a figure: a gauge goes up and down, a counter only up since the start.

    A figure without a name is for `$SYS`.
    """

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class BrokerFigure:
    """A row of the registry.

    `name`: after `veilmq_`, in base units; "": not for Prometheus. `topics`: below `$SYS/broker/`, with Mosquitto's
    names. `load`: the name of its average below `$SYS/broker/load/`.
    """

    name: str
    kind: FigureKind
    text: str
    value: Callable[[BrokerSnapshot], Number]
    topics: tuple[str, ...] = ()
    load: str = ""


def _gauge(name: str, text: str, value: Callable[[BrokerSnapshot], Number], *topics: str) -> BrokerFigure:
    return BrokerFigure(name, FigureKind.GAUGE, text, value, topics)


def _counter(
    name: str, text: str, value: Callable[[BrokerSnapshot], Number], *topics: str, load: str = ""
) -> BrokerFigure:
    return BrokerFigure(name, FigureKind.COUNTER, text, value, topics, load)


def _away(now: BrokerSnapshot) -> int:
    return now.sessions - now.clients_connected


def _stored(now: BrokerSnapshot) -> int:
    return now.retained_messages + now.queued_messages


BROKER_FIGURES = (
    _gauge("start_time_seconds", "When the broker started, since the UNIX epoch.", lambda s: s.traffic.started_at),
    _gauge("connections", "Open network connections.", lambda s: s.connections),
    _gauge("connections_half_open", "Those whose CONNECT has not been accepted.", lambda s: s.half_open),
    _gauge(
        "clients_connected", "Clients that are connected.", lambda s: s.clients_connected,
        "clients/connected", "clients/active",
    ),
    _gauge(
        "clients_connected_maximum", "Most clients that were connected at once.", lambda s: s.traffic.clients_maximum,
        "clients/maximum",
    ),
    _gauge("", "Sessions whose client is away.", _away, "clients/disconnected", "clients/inactive"),
    _gauge("members_connected", "Members of the overlay that are connected to us.", lambda s: s.members),
    _gauge("sessions", "Sessions of clients, connected or kept.", lambda s: s.sessions, "clients/total"),
    _gauge("subscriptions", "Subscriptions of all clients.", lambda s: s.subscriptions, "subscriptions/count"),
    _gauge(
        "shared_subscriptions", "Those that are shared.", lambda s: s.shared_subscriptions,
        "shared_subscriptions/count",
    ),
    _gauge(
        "predicate_subscriptions", "Those with a predicate.", lambda s: s.predicates, "subscriptions/predicates/count"
    ),
    _gauge(
        "retained_messages", "Retained messages, with those below $SYS.", lambda s: s.retained_messages,
        "retained messages/count",
    ),
    _gauge("retained_bytes", "What retained messages cost.", lambda s: s.retained_bytes),
    _gauge("queued_messages", "QoS 1 and 2 messages that wait for a receiver.", lambda s: s.queued_messages),
    _gauge("queued_bytes", "What they and those in flight cost.", lambda s: s.queued_bytes),
    _gauge("", "Messages kept: retained and waiting.", _stored, "messages/stored", "store/messages/count"),
    _gauge("", "What they cost.", lambda s: s.retained_bytes + s.queued_bytes, "store/messages/bytes"),
    _gauge(
        "clients_behind", "Receivers that publishers wait for, since their queue is long.", lambda s: s.behind,
        "clients/behind",
    ),
    _gauge(
        "publications_waiting", "Publications that wait for them.", lambda s: s.held_now, "publish/messages/waiting"
    ),
    _gauge("in_flight_messages", "QoS 1 and 2 messages sent and not acknowledged.", lambda s: s.in_flight),
    _counter(
        "connections_opened", "Network connections that were opened.", lambda s: s.traffic.sockets, load="sockets"
    ),
    _counter("clients_accepted", "CONNECTs that were accepted.", lambda s: s.traffic.connects, load="connections"),
    _counter(
        "internal_errors", "Exceptions of ours: one connection or publication was refused for each.",
        lambda s: s.traffic.defects.count,
    ),
    _counter(
        "sessions_expired", "Sessions that ended because nobody came back.", lambda s: s.traffic.expired,
        "clients/expired",
    ),
    _counter(
        "received_bytes", "Bytes that clients sent.", lambda s: s.traffic.bytes_received,
        "bytes/received", load="bytes/received",
    ),
    _counter(
        "sent_bytes", "Bytes written for clients.", lambda s: s.traffic.bytes_sent, "bytes/sent", load="bytes/sent"
    ),
    _counter(
        "packets_received", "MQTT packets of any type that clients sent.", lambda s: s.traffic.packets_received,
        "messages/received", load="messages/received",
    ),
    _counter(
        "packets_sent", "MQTT packets of any type written for clients.", lambda s: s.traffic.packets_sent,
        "messages/sent", load="messages/sent",
    ),
    _counter(
        "publications_received", "PUBLISH packets that clients sent.", lambda s: s.traffic.publish_received,
        "publish/messages/received", load="publish/received",
    ),
    _counter(
        "publications_received_bytes", "Their payloads.", lambda s: s.traffic.publish_bytes_received,
        "publish/bytes/received",
    ),
    _counter(
        "publications_held", "Those that have waited for a receiver before they were acknowledged.",
        lambda s: s.traffic.held, "publish/messages/held",
    ),
    _counter(
        "publications_evaluated", "Publications of topics to which somebody subscribed with a predicate.",
        lambda s: s.traffic.evaluated, "publish/messages/evaluated",
    ),
    _counter(
        "predicates_unfulfilled", "Subscriptions that did not get one of them, since their predicate does not hold.",
        lambda s: s.traffic.withheld, "publish/messages/withheld",
    ),
    _counter(
        "history_lost", "Publications missing in the broker's own history, since the disk refused them.",
        lambda s: s.history_lost,
    ),
    _counter(
        "publications_sent", "PUBLISH packets written for clients.", lambda s: s.published,
        "publish/messages/sent", load="publish/sent",
    ),
    _counter("publications_sent_bytes", "Their payloads.", lambda s: s.published_bytes, "publish/bytes/sent"),
    _counter(
        "publications_repeated", "PUBLISH packets written again after a reconnect.", lambda s: s.figures.repeated
    ),
    BrokerFigure(
        "", FigureKind.COUNTER, "Publications that a receiver did not get; by reason for Prometheus.",
        lambda s: sum(s.dropped.values()), ("publish/messages/dropped",), "publish/dropped",
    ),
)  # fmt: skip
"""The broker's own figures, in the order in which they are shown."""
