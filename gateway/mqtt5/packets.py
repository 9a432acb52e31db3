"""Plain data of the fifteen MQTT control packets, in a single form for 3.1.1 and 5.

Fields that only MQTT 5 has (properties, reason codes) keep their defaults on a 3.1.1 connection. No code here knows
bytes: `codec` turns packets into bytes and back, `session` gives them their effects. Source: MQTT 5.0 and 3.1.1,
chapter 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeAlias


class Version(IntEnum):
    """Protocol level of the CONNECT packet (MQTT 5.0 §3.1.2.2)."""

    V31 = 3
    V311 = 4
    V5 = 5


UserProperties: TypeAlias = tuple[tuple[str, str], ...]


LASTING = ("payload_format", "content_type", "response_topic", "correlation_data", "user")
"""Properties of a PUBLISH that a server forwards unaltered (MQTT 5.0 §3.3.2.3)."""


@dataclass(frozen=True)
class Properties:
    """Every property of MQTT 5.0 §2.2.2.2 by name; None or empty means absent.

    `user` keeps order and repeats. The codec checks the properties each packet may carry. Frozen, so that all packets
    without properties share `NO_PROPERTIES` (a broker makes a packet per message); change one with
    `dataclasses.replace`. Not slotted on purpose: absent properties are found on the class, so that an object costs
    only its present properties (see `properties.py`).
    """

    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()
    session_expiry_s: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_s: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user: UserProperties = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_ids_available: int | None = None
    shared_subscription_available: int | None = None

    if not TYPE_CHECKING:  # the dataclass's __init__ stores all 27 fields, which costs as much as encoding a PUBLISH

        def __init__(self, **present: Any) -> None:
            if not present.keys() <= self.__dataclass_fields__.keys():
                raise TypeError(f"no such properties: {sorted(present)}")
            self.__dict__.update(present)


NO_PROPERTIES = Properties()


@dataclass(slots=True)
class Will:
    """Will in a CONNECT (MQTT 5.0 §3.1.2.5)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


PRIVATE_BIT = 0x80
"""Bit of the protocol level with which a client of MQTT 3.x marks itself as a broker's bridge. Not part of MQTT;
Mosquitto and others give such a client No Local and Retain As Published, which 3.x cannot ask for in any other way.
"""


KIN_LEVEL = 0x56
"""Protocol level of MQTT 5 between two VeilMQ brokers, asked by a bridge that is to speak 3.1.1 with all others. No
version of MQTT has it, with or without the private bit, so that another broker refuses it. The properties of such a
CONNECT stand behind its payload: brokers of 3.1.1 that parse a CONNECT before they look at its level, as amqtt does,
would else take them for a client id of many bytes and wait for the rest.
"""


@dataclass(slots=True)
class Connect:
    """CONNECT (MQTT 5.0 §3.1). `is_bridge`: with the private bit of bridges, MQTT 3.x only. `is_kin`: by KIN_LEVEL,
    MQTT 5 only.
    """

    client_id: str
    version: Version = Version.V5
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    will: Will | None = None
    properties: Properties = NO_PROPERTIES
    is_bridge: bool = False
    is_kin: bool = False


@dataclass(slots=True)
class ConnAck:
    """CONNACK (MQTT 5.0 §3.2)."""

    session_present: bool
    code: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Publish:
    """PUBLISH (MQTT 5.0 §3.3)."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class PubAck:
    """PUBACK (MQTT 5.0 §3.4)."""

    packet_id: int
    code: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class PubRec:
    """PUBREC (MQTT 5.0 §3.5)."""

    packet_id: int
    code: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class PubRel:
    """PUBREL (MQTT 5.0 §3.6)."""

    packet_id: int
    code: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class PubComp:
    """PUBCOMP (MQTT 5.0 §3.7)."""

    packet_id: int
    code: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True, frozen=True)
class Subscription:
    """Filter of a SUBSCRIBE with its options (MQTT 5.0 §3.8.3.1).

    `predicate`: a broker's condition on content beside the filter: the expression with its `?` if it is the end of
    `filter`, else the text of a user property. `since`: a broker's beginning in the past, in the same way behind
    `$since/`. The codec neither fills nor sends these two.
    """

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    predicate: str = ""
    since: str = ""

    @property
    def base(self) -> str:
        """The filter of topics, with its share prefix and without the expression and the beginning."""
        plain = self.filter.removesuffix(self.predicate) if self.predicate[:1] == "?" else self.filter
        return plain.removeprefix(f"$since/{self.since}/") if self.since else plain


@dataclass(slots=True)
class Subscribe:
    """SUBSCRIBE (MQTT 5.0 §3.8)."""

    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class SubAck:
    """SUBACK (MQTT 5.0 §3.9)."""

    packet_id: int
    codes: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Unsubscribe:
    """UNSUBSCRIBE (MQTT 5.0 §3.10)."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class UnsubAck:
    """UNSUBACK (MQTT 5.0 §3.11)."""

    packet_id: int
    codes: tuple[int, ...] = ()
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class PingReq:
    """PINGREQ (MQTT 5.0 §3.12)."""


@dataclass(slots=True)
class PingResp:
    """PINGRESP (MQTT 5.0 §3.13)."""


@dataclass(slots=True)
class Disconnect:
    """DISCONNECT (MQTT 5.0 §3.14)."""

    code: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)
class Auth:
    """AUTH (MQTT 5.0 §3.15)."""

    code: int = 0
    properties: Properties = NO_PROPERTIES


Packet: TypeAlias = (
    Connect
    | ConnAck
    | Publish
    | PubAck
    | PubRec
    | PubRel
    | PubComp
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)
