"""`limits` and `metrics` of the configuration: every bound of the broker with its default, and Prometheus' address.

The table of docs/reference/bounds.md has the effect of each bound; `bounds.py` counts how often each is reached.
Nothing is enforced here.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from bridge.base import MAX_LEVELS


class Model(BaseModel):
    """Section of the configuration: unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(Model):
    """Bounds. Each names what it stops; the table in docs/reference/bounds.md says what happens when one is reached."""

    connections: int = Field(default=10_000, ge=1, description="open connections over all listeners")
    connections_per_address: int = Field(
        default=1_000, ge=1, description="of one IPv4 address or IPv6 /64; loopback and Unix sockets are not counted"
    )
    half_open: int = Field(default=4_096, ge=1, description="connections without an accepted CONNECT")
    connect_timeout_s: float = Field(default=10.0, gt=0, le=300, description="from TCP connection to CONNECT")
    login_failures: int = Field(
        default=30, ge=1, description="failed logins a minute of one IPv4 address or IPv6 /64 (0x97 above)"
    )
    connect_bytes: int = Field(default=65_536, ge=256, le=268_435_460, description="largest CONNECT; closed above")
    packet_bytes: int = Field(
        default=1 << 20,
        ge=256,
        le=268_435_460,
        description="largest packet accepted (0x95 above); at most 268435455 is announced",
    )
    sessions: int = Field(default=100_000, ge=1, description="sessions, connected or kept, over all clients")
    session_expiry_s: int = Field(
        default=7 * 86_400, ge=0, le=0xFFFF_FFFF, description="longest life of an unused session"
    )
    subscriptions: int = Field(default=10_000, ge=1, description="filters a client may hold (0x97 above)")
    subscription_bytes: int = Field(default=1 << 20, ge=256, description="their text, in bytes (0x97 above)")
    topic_bytes: int = Field(default=65_535, ge=1, le=65_535, description="a topic name or filter (0x90, 0x8F above)")
    topic_levels: int = Field(default=MAX_LEVELS, ge=1, le=MAX_LEVELS, description="levels of a topic name or filter")
    topic_control_characters: bool = Field(
        default=True, description="control characters in topic names and filters; false: refused (0x90, 0x8F)"
    )
    user_properties: int = Field(default=256, ge=0, description="of one publication or CONNECT (0x97 above)")
    topic_aliases: int = Field(default=64, ge=0, le=65_535, description="names that a client may abbreviate")
    receive_maximum: int = Field(
        default=1_024,
        ge=1,
        le=65_535,
        description="unacknowledged QoS 1 and 2 messages from a client (0x93 above)",
    )
    publish_rate: float = Field(default=0, ge=0, description="messages a second read from a client; 0: as they come")
    publish_burst: int = Field(default=1_000, ge=1, description="messages that a client may send at once beyond it")
    in_flight: int = Field(default=128, ge=1, le=65_535, description="unacknowledged QoS 1 and 2 messages to a client")
    queue_messages: int = Field(default=1_000, ge=1, description="messages kept for a client that is away or slow")
    queue_bytes: int = Field(default=8 << 20, ge=1024, description="their bytes")
    hold_s: float = Field(
        default=10,
        gt=0,
        le=3_600,
        description="longest that publications wait for a receiver that does not acknowledge a window meanwhile",
    )
    member_in_flight: int = Field(
        default=4_096,
        ge=1,
        le=65_535,
        description="unacknowledged publications to a member of the overlay, which may wait for shares behind them",
    )
    member_queue_messages: int = Field(
        default=100_000, ge=1, description="publications kept for a member of the overlay that is away or slow"
    )
    member_queue_bytes: int = Field(default=64 << 20, ge=1024, description="their bytes")
    write_bytes: int = Field(default=4 << 20, ge=65_536, description="unsent bytes above which QoS 0 is dropped")
    stalled_s: float = Field(default=60, gt=0, description="a client that takes nothing of what is sent for so long")
    keep_alive_max_s: int = Field(
        default=0, ge=0, le=65_535, description="longest keep-alive of MQTT 5 clients; 0: whatever they ask, also none"
    )
    retained_messages: int = Field(default=100_000, ge=0, description="retained messages over all topics")
    retained_bytes: int = Field(default=256 << 20, ge=0, description="their bytes")
    shutdown_s: float = Field(default=10.0, gt=0, le=600, description="from SIGTERM to the end")


def is_loopback(bind: str) -> bool:
    """Returns True if only this machine reaches HOST:PORT."""
    host = bind.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _loopback(bind: str) -> str:
    port = bind.rpartition(":")[2]
    if not is_loopback(bind) or not port.isdigit() or int(port) > 65_535:
        raise ValueError("is not PORT on a loopback address; write e.g. 127.0.0.1:9464, and a proxy for others")
    return bind


class Metrics(Model):
    """Address for Prometheus. Loopback only: it has neither names nor passwords."""

    bind: Annotated[str, AfterValidator(_loopback)] = Field(
        default="127.0.0.1:9464", description="HOST:PORT on loopback"
    )
