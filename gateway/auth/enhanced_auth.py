"""Enhanced authentication: CONNECT with a method, an exchange of AUTH, again at any time while connected.

A method is a plugin of the configuration that derives from `EnhancedAuthPlugin` and names its method;
`scram_plugin.ScramPlugin` comes with the broker. A client giving a method is authenticated by that plugin alone:
amqtt's authentication plugins are not asked, and topic plugins see the proven user name. The bytes of a method and
sessions are opaque here. Source: MQTT 5.0 §3.15, §4.12.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from amqtt.broker import BrokerContext
from amqtt.plugins.base import BasePlugin
from amqtt.session import Session

from gateway.base import StartError
from gateway.base.log_events import LogEvent
from gateway.mqtt5.encoding import encode
from gateway.mqtt5.packets import Auth, Connect, Disconnect, Properties, Version
from gateway.mqtt5.session import Close
from gateway.mqtt5.types import MAXIMUM_REMAINING_LENGTH, MqttError, PacketTooLarge, ProtocolViolation, ReasonCode
from gateway.plugins import BusyError

if TYPE_CHECKING:
    from gateway.clients import Client, ClientConnection
    from gateway.plugins import EdgeSession

log = logging.getLogger("veilmq.broker")

STEPS_MAX = 16
"""Stops an endless exchange."""


class AuthRefused(Exception):  # noqa: N818 - an outcome, raised by plugins
    """A refusal, raised by `AuthExchange.step`: the client is not admitted.

    The text goes into our log, not to the client.
    """


@dataclass(frozen=True, slots=True)
class Proven:
    """The success of an exchange: the client is `username`; `data` goes with the CONNACK or the last AUTH.

    `groups`: those that a provider says; None: those that are configured. `lasts_s`: seconds until the proof ends;
    None: it does not.
    """

    username: str
    data: bytes = field(default=b"", repr=False)
    groups: tuple[str, ...] | None = None
    lasts_s: float | None = None


class AuthExchange(Protocol):
    """An exchange with a client."""

    async def step(self, data: bytes) -> bytes | Proven:
        """Answers the client's bytes: returns the bytes of the next AUTH, or Proven. Raises AuthRefused, BusyError."""


class EnhancedAuthPlugin(BasePlugin[BrokerContext]):  # type: ignore[misc]
    """An authentication method. Derive a class, name it under `plugins`, set `method`."""

    method: ClassVar[str]
    """The name of the method in CONNECT, for example "SCRAM-SHA-256"."""

    @abstractmethod
    def begin(self, session: Session) -> AuthExchange:
        """Begins an exchange for a CONNECT with this method, or a re-authentication; no name is proven yet."""


class EnhancedAuth:
    """The runner of all clients' exchanges. `timeout_s`: seconds from a CONNECT to the end of its exchange."""

    def __init__(self, plugins: Iterable[object], timeout_s: float) -> None:
        self.methods: dict[str, EnhancedAuthPlugin] = {}
        self._timeout_s = timeout_s
        for plugin in plugins:
            if isinstance(plugin, EnhancedAuthPlugin):
                other = self.methods.setdefault(plugin.method, plugin)
                if other is not plugin:
                    raise StartError(f"plugins: two plugins for authentication method {plugin.method}; remove one")

    async def connect(self, connection: ClientConnection, connect: Connect, view: EdgeSession) -> Properties:
        """Authenticates a CONNECT with a method of ours; returns its CONNACK's properties and names `view`'s user.

        Raises MqttError with the code of the refusal, ConnectionError if the client leaves before the end.
        """
        method = connect.properties.authentication_method
        assert method is not None
        most = connect.properties.maximum_packet_size or MAXIMUM_REMAINING_LENGTH + 5
        exchange = self.methods[method].begin(view)
        data = connect.properties.authentication_data or b""
        try:
            async with asyncio.timeout(self._timeout_s):
                for _ in range(STEPS_MAX):
                    outcome = await _step(exchange, data)
                    if isinstance(outcome, Proven):
                        return _proven(method, outcome, view)
                    challenge = _auth(ReasonCode.CONTINUE_AUTHENTICATION, method, outcome)
                    if len(challenge) > most:
                        raise PacketTooLarge("AUTH exceeds the client's maximum packet size")
                    data = _answer(await connection.challenge(challenge), method)
        except TimeoutError:
            raise MqttError(f"no end of {method} within {self._timeout_s:g} s", ReasonCode.NOT_AUTHORIZED) from None
        raise MqttError(f"no end of {method} after {STEPS_MAX} steps", ReasonCode.NOT_AUTHORIZED)

    async def authenticate_again(
        self,
        client: Client,
        packet: Auth,
        close: Callable[[Client, Close], None],
        proven: Callable[[Client, Proven], None],
    ) -> None:
        """Handles an AUTH of a connected client (§4.12.1); disconnects a client failing to prove its name again.

        `proven` is called with a new proof.
        """
        connection = client.connection
        if connection is None:
            return
        method = client.session.asked.authentication_method
        try:
            if method is None:
                raise ProtocolViolation("AUTH without a method in CONNECT")
            exchange = connection.reauthentication
            if (packet.code == ReasonCode.RE_AUTHENTICATE) is (exchange is not None):
                raise ProtocolViolation("AUTH in the midst of an exchange, or without one")
            if exchange is None:
                exchange = connection.reauthentication = self.methods[method].begin(client.view)
            outcome = await _step(exchange, packet.properties.authentication_data or b"")
            code, data = ReasonCode.CONTINUE_AUTHENTICATION, outcome
            if isinstance(outcome, Proven):
                connection.reauthentication = None
                if outcome.username != client.view.username:
                    raise MqttError("re-authenticated as another user", ReasonCode.NOT_AUTHORIZED)
                if client.connection is connection:  # it may have been taken over meanwhile
                    proven(client, outcome)
                code, data = ReasonCode.SUCCESS, outcome.data
            assert isinstance(data, bytes)
            answer = _auth(code, method, data)
            if len(answer) > (client.session.asked.maximum_packet_size or MAXIMUM_REMAINING_LENGTH + 5):
                raise PacketTooLarge("AUTH exceeds the client's maximum packet size")
            connection.write(answer)
        except MqttError as error:
            if client.connection is connection:  # it may have been taken over meanwhile
                close(client, client.session.close(error.reason, str(error)))


async def _step(exchange: AuthExchange, data: bytes) -> bytes | Proven:
    """Runs a single step of a plugin; a plugin failing refuses."""
    try:
        return await exchange.step(data)
    except AuthRefused as error:
        raise MqttError(f"authentication refused: {error}", ReasonCode.NOT_AUTHORIZED) from None
    except BusyError as error:
        raise MqttError(str(error), ReasonCode.SERVER_BUSY) from None
    except Exception:  # noqa: BLE001  the log has its traceback
        LogEvent.AUTH_METHOD_FAILED.say(log, exc_info=True)
        raise MqttError("an authentication method failed", ReasonCode.NOT_AUTHORIZED) from None


def _auth(code: ReasonCode, method: str, data: bytes) -> bytes:
    properties = Properties(authentication_method=method, authentication_data=data or None)
    return encode(Auth(code, properties), Version.V5)


def _answer(packet: object, method: str) -> bytes:
    """Returns the data of an AUTH before CONNACK (MQTT-3.1.2-30 allows only AUTH and DISCONNECT there)."""
    if isinstance(packet, Disconnect):
        raise ConnectionAbortedError("the client gave up")
    if not isinstance(packet, Auth) or packet.code != ReasonCode.CONTINUE_AUTHENTICATION:
        raise ProtocolViolation(f"{type(packet).__name__} while authentication is under way")
    if packet.properties.authentication_method != method:
        raise ProtocolViolation("AUTH with another authentication method than CONNECT")
    return packet.properties.authentication_data or b""


def _proven(method: str, outcome: Proven, view: EdgeSession) -> Properties:
    if view.username and view.username != outcome.username:
        raise MqttError("proves another user name than CONNECT gives", ReasonCode.BAD_USER_NAME_OR_PASSWORD)
    view.username, view.is_anonymous = outcome.username, False
    view.groups, view.lasts_s = outcome.groups, outcome.lasts_s
    return Properties(authentication_method=method, authentication_data=outcome.data or None)
