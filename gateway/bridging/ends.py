"""Clients of a bridge: one at the local broker, within this process, and one at the other broker.

The local client connects over a pair of sockets and is known to the broker as a part of it, so that no login and no
listener is needed. The other speaks MQTT 5 or 3.1.1. A client that is to speak 3.1.1 first asks by a level of our own
whether the other broker is a VeilMQ, and then speaks MQTT 5 with it, so that marks cross. Any other broker refuses the
level. The client connects again at once with the private bit of Mosquitto's bridges, on which a broker sends a bridge
none of its own messages and keeps RETAIN as published. A broker that refuses the bit, too, is asked without it. Not
here: the messages crossing (`crossing`).
"""

from __future__ import annotations

import logging
import ssl
from dataclasses import replace
from enum import Enum

from gateway.base import BridgeSettings, BridgeTls, ConfigError, PrivateFileError, Stamps, StartError, read_private
from gateway.base.log_events import LogEvent
from gateway.bridging.circles import Circles
from gateway.bridging.crossing import Bridge, Home, Remote, Way
from gateway.bridging.exact import ExactWay
from gateway.bridging.mapping import Topics
from gateway.bridging.relaying import RelayClient, RelaySession
from gateway.client import LocalEnd
from gateway.client.redial import split_host_port
from gateway.mqtt5.actions import SessionLimits
from gateway.mqtt5.bridge_clients import KIN, MARK
from gateway.mqtt5.client_session import ClientSession
from gateway.mqtt5.packets import NO_PROPERTIES, ConnAck, Version
from gateway.mqtt5.types import ReasonCode

log = logging.getLogger("veilmq.bridge")

WINDOW = 256
"""Messages of QoS 1 and 2 that one side has not acknowledged while the other is asked to take them."""
NEVER = 0xFFFF_FFFF
NO_LIMIT = 268_435_460  # bytes of a packet: more than MQTT can carry
USE_3 = 'does not speak MQTT 5; write version: "3.1.1" for this bridge'


class Greeting(Enum):
    """Protocol level with which a bridge greets the other broker."""

    FIVE = "MQTT 5"
    KIN = "MQTT 5 by the level of our own"
    PRIVATE = "MQTT 3.1.1 with the private bit"
    PLAIN = "MQTT 3.1.1"


_MAY_BE_THE_LEVEL = (
    None, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR,
    ReasonCode.UNSPECIFIED_ERROR, ReasonCode.KEEP_ALIVE_TIMEOUT,
)  # fmt: skip
"""Reasons with which a broker that does not know a level ends a connection; None: without CONNACK; KEEP_ALIVE_TIMEOUT:
it says nothing at all.
"""


class NearEnd(RelayClient, LocalEnd):
    """Client of the local broker."""


class RemoteEnd(Remote):
    """Client of the other broker, at the first of its addresses that answers. `greeting`: of the present connection."""

    cure_without_v5 = USE_3

    def __init__(
        self, settings: BridgeSettings, client_id: str, password: bytes | None, limits: SessionLimits, ours: str = ""
    ) -> None:
        """`ours`: the name of the local broker in marks, which MQTT 5 tells the other one."""
        addresses = [split_host_port(address) for address in settings.addresses]
        tls = self._tls = settings.tls
        self._packet_bytes_there = settings.packet_bytes
        files = () if tls is None else (tls.cafile, tls.certfile, tls.keyfile)
        self._stamps = Stamps(file for file in files if file is not None)
        context = None if tls is None else tls_context(tls)
        super().__init__(
            *addresses[0], client_id=client_id, clean_start=False, ssl=context, username=settings.username,
            password=password, keep_alive_s=settings.keep_alive_s, session_expiry_s=settings.session_expiry_s,
            receive_maximum=WINDOW, packet_bytes=NO_LIMIT, manual_ack=True, limits=limits,
            elsewhere=lambda: addresses[1:], properties=((MARK, ours),) if ours else (), unusable=self._no_kin,
        )  # fmt: skip
        self._offer = self._connect.properties
        self._greetings = [Greeting.FIVE] if settings.version == "5" else [Greeting.PLAIN]
        self.greeting = self._greetings[0]
        if settings.version != "5" and settings.try_private:
            self._greetings = [Greeting.KIN, Greeting.PRIVATE, Greeting.PLAIN]

    def _new_session(self) -> ClientSession:
        session = super()._new_session()
        assert isinstance(session, RelaySession)
        session.packet_bytes = self._packet_bytes_there
        return session

    @property
    def has_marks(self) -> bool:
        return self.greeting in (Greeting.FIVE, Greeting.KIN)

    @property
    def is_private(self) -> bool:
        return self.greeting is Greeting.PRIVATE

    async def _connection(self) -> float | None:
        """Connects with one greeting after the other, until the broker takes one or refuses for another reason.

        Greetings that the broker refused in so many words are left out from then on. One that it met by closing the
        connection is not: a network may have done so.
        """
        refused: list[Greeting] = []
        up_s: float | None = None
        for greeting in tuple(self._greetings):
            self.greeting = greeting
            up_s = await super()._connection()
            if up_s is not None or not self._is_reached or self.refusal not in _MAY_BE_THE_LEVEL:
                break
            if self.refusal is not None:
                refused.append(greeting)
        if up_s is not None:
            self._greetings = [one for one in self._greetings if one not in refused]
        return up_s

    def _no_kin(self, connack: ConnAck) -> str:
        """Returns why a broker that took our own level is no VeilMQ, or ""."""
        return "" if self.greeting is not Greeting.KIN or KIN in connack.properties.user else "is no VeilMQ"

    def _useless(self, why: str, code: int = ReasonCode.SERVER_UNAVAILABLE) -> None:
        """Ends a connection to a broker that cannot be used, unless it was asked whether it is a VeilMQ: not to be one
        is no complaint.
        """
        if self.greeting is Greeting.KIN:
            self.refusal = ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
            self._end_connection()
        else:
            super()._useless(why, code)

    def _cure(self, reason: ReasonCode | None) -> str:
        """Returns the cure of a refusal. Stock amqtt waits for the rest of a CONNECT of MQTT 5 and answers nothing."""
        if reason is ReasonCode.KEEP_ALIVE_TIMEOUT and not self._up and self.greeting is Greeting.FIVE:
            return f"if that broker {USE_3}"
        return super()._cure(reason)

    async def _open_connection(self, host: str, port: int) -> None:
        """Opens a connection with the present certificates; keeps the former ones if replaced files cannot be used."""
        if self._tls is not None and self._stamps.have_changed():
            try:
                self._ssl = tls_context(self._tls)
            except StartError as error:
                LogEvent.CERTIFICATE_NOT_RENEWED.say(log, self._where, error)
            else:
                LogEvent.CERTIFICATE_RENEWED.say(
                    log, self._where, self._tls.certfile or self._tls.cafile or self._tls.capath
                )
        self._greet()
        self._is_reached = False
        await super()._open_connection(host, port)
        self._is_reached = True

    def _greet(self) -> None:
        """Sets CONNECT to the present greeting."""
        greeting, session = self.greeting, self._session
        session.version = Version.V5 if self.has_marks else Version.V311
        self._connect = session.connect = replace(
            self._connect, version=session.version, properties=self._offer if self.has_marks else NO_PROPERTIES,
            is_bridge=greeting is Greeting.PRIVATE, is_kin=greeting is Greeting.KIN,
        )  # fmt: skip


def tls_context(tls: BridgeTls) -> ssl.SSLContext:
    """Makes a TLS context. Raises StartError for a file that cannot be used."""
    try:
        context = ssl.create_default_context(
            cafile=str(tls.cafile) if tls.cafile else None, capath=str(tls.capath) if tls.capath else None
        )
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = tls.check_hostname
        if tls.certfile is not None and tls.keyfile is not None:
            context.load_cert_chain(tls.certfile, tls.keyfile)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(path) for path in (tls.cafile, tls.capath, tls.certfile, tls.keyfile) if path)
        raise StartError(f"bridge: {files}: {getattr(error, 'strerror', None) or error}; correct the files") from None
    return context


def make_bridge(name: str, settings: BridgeSettings, home: Home, circles: Circles, remote: str) -> Bridge:
    """Assembles a bridge. `remote`: the name of the other broker in marks, unless it states its own.

    Raises ConfigError, StartError.
    """
    password = None
    if settings.password_file is not None:
        try:
            password = read_private(settings.password_file).rstrip(b"\r\n")
        except PrivateFileError as error:
            raise ConfigError(f"bridges.{name}: {error}") from None
    limits = SessionLimits(
        in_flight_messages=WINDOW, queue_messages=settings.queue_messages, queue_bytes=settings.queue_bytes
    )
    client_id = settings.client_id or f"{circles.name}-{name}"
    near = NearEnd(
        f"{home.prefix}bridge/{name}",
        home,
        clean_start=False,
        session_expiry_s=NEVER,
        receive_maximum=WINDOW,
        packet_bytes=NO_LIMIT,
        manual_ack=True,
        limits=limits,
    )
    far = RemoteEnd(settings, client_id, password, limits, circles.name)
    topics = Topics(settings.topics)
    outwards = ExactWay if 2 in topics.wanted_here().values() else Way
    inwards = ExactWay if 2 in topics.wanted_there().values() else Way
    ways = outwards(near, far, name), inwards(far, near, name)
    return Bridge(name, settings, near, far, ways, topics, home, circles, remote)
