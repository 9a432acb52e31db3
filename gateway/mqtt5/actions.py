"""Data that enters and leaves a session besides packets: limits, offers, figures, actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Auth, Publish, Subscribe, Subscription, Unsubscribe, Version, Will
from gateway.mqtt5.types import ReasonCode


def _untold(bound: str, client_id: str) -> None:
    """Does nothing: the default for a session whose owner does not count how often its bounds are reached."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of a session. The comment at each bound names the harm the bound prevents."""

    in_flight_messages: int = 1024  # a client that never acknowledges
    reserved_in_flight: int = 0  # part that only urgent messages may take (`ClientSession.publish`)
    queue_messages: int = 10_000  # an absent client, or one slower than its subscriptions
    queue_bytes: int = 16 * 1024 * 1024  # large messages for such a client; counts messages in flight too
    stretch_messages: int = 0  # added while the queue is stretched for messages that cannot be held back
    stretch_bytes: int = 0
    drops_newest: bool = False  # if full: drops the new message, not the oldest waiting one
    subscriptions: int = 10_000  # a client that fills the router
    subscription_bytes: int = 1024 * 1024  # a client that fills the router with few and long filters
    topic_aliases: int = 64  # aliases defined towards a client that allows thousands
    # Called each time when a bound is reached, with its name in `limits` of the configuration and the client id.
    reached: Callable[[str, str], None] = field(default=_untold, compare=False)


@dataclass(frozen=True, slots=True)
class ServerOffer:
    """Limits the server sets for a connection and states in CONNACK (MQTT 5.0 §3.2.2.3); 3.x clients are not told."""

    receive_maximum: int = 1024
    maximum_packet_size: int = 1024 * 1024
    topic_alias_maximum: int = 64
    maximum_qos: int = 2
    retain_available: bool = True
    session_expiry_max_s: int = 7 * 24 * 3600  # sessions of clients that never come back
    keep_alive_max_s: int = 0  # 0: as the client asks, even none


@dataclass(slots=True)
class SessionFigures:
    """Counters since the session began; the broker adds them up for its metrics."""

    delivered: int = 0
    delivered_bytes: int = 0  # payloads
    dropped_qos0: int = 0  # offline or slow receiver
    dropped_queue_full: int = 0
    dropped_expired: int = 0
    expired_waiting_bytes: int = 0  # held bytes of expired messages that had waited
    dropped_without_right: int = 0  # the right to receive them ended while they waited
    dropped_too_large: int = 0  # for the receiver's maximum packet size (MQTT-3.1.2-25)
    repeated: int = 0

    @property
    def dropped(self) -> int:
        """The number of publications the client did not get, for any reason."""
        kept_back = self.dropped_expired + self.dropped_too_large + self.dropped_without_right
        return self.dropped_qos0 + self.dropped_queue_full + kept_back


@dataclass(frozen=True, slots=True)
class KeptSession:
    """State of a server's session beside its flows and subscriptions, for the store of sessions. Times: UNIX epoch."""

    version: Version
    session_expiry_s: int
    will: Will | None
    will_at: float | None  # when the will is due; None while connected
    ends_at: float | None  # when the session expires; None while connected


@dataclass(frozen=True, slots=True)
class SessionSubscription:
    """Subscription of a session, with its identifier."""

    options: Subscription
    identifier: int = 0  # subscription identifier, 0 if none


@dataclass(frozen=True, slots=True)
class Granted:
    """Answer to a SUBSCRIBE: a code for each filter, filters for the router, and the filters whose retained messages go
    out.
    """

    codes: tuple[int, ...]
    subscriptions: tuple[SessionSubscription, ...]
    retained: tuple[SessionSubscription, ...]


@dataclass(frozen=True, slots=True)
class Close:
    """Order to write `farewell` (DISCONNECT of MQTT 5, or nothing), to close, and then to call `disconnected`."""

    reason: ReasonCode
    farewell: bytes = b""
    text: str = ""


@dataclass(frozen=True, slots=True)
class PublishWill:
    """Order to route this will as a publication of the client (Message.of_will)."""

    will: Will


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """End of a session that expired or was replaced: forget the session, its subscriptions and all that is stored of
    it.

    `unfinished`: messages another member of its shared groups may still get (§4.8.2): QoS 1 in flight, QoS 1 and 2
    that waited. QoS 2 in flight is excluded (MQTT-4.8.2-5).
    """

    unfinished: tuple[Message, ...] = ()


# bytes: write them. Publish: a message to authorise and route, then `acknowledge` (QoS 0 too: it is free).
# Subscribe: answer with `enter_granted`. Unsubscribe: answer with `remove_subscriptions`. Auth: re-authentication,
# answer with AUTH.
Action: TypeAlias = bytes | Publish | Subscribe | Unsubscribe | Auth | Close | PublishWill | SessionEnded
