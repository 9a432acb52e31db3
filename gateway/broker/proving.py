"""Proof of a client's identity, where plugins or the client itself have to be asked.

Not here: clients that need no question, and the admission following (`lifecycle`). Source: MQTT 5.0 §3.1.4, §4.12.
"""

from __future__ import annotations

from gateway.auth import EnhancedAuth
from gateway.mqtt5.packets import NO_PROPERTIES, Connect, Properties
from gateway.mqtt5.types import MqttError, ReasonCode
from gateway.plugins import EdgeSession, PluginHost
from gateway.sockets.connection import MqttConnection
from gateway.sockets.door import Failures


class Proving:
    """Logins of a broker taking time."""

    def __init__(self, host: PluginHost, enhanced_auth: EnhancedAuth, failures: Failures) -> None:
        self._host, self._enhanced_auth, self._failures = host, enhanced_auth, failures

    async def proven(self, connection: MqttConnection, connect: Connect, view: EdgeSession) -> Properties:
        """Returns the properties of CONNACK. Raises MqttError for a refusal, ConnectionError if the client leaves."""
        async with self._failures.judging(view.remote_address) as is_judged:
            if not is_judged:
                raise too_many_failures()
            if connection.closed:
                raise ConnectionAbortedError("the client left before it was its turn")
            with self._host.users_changed_meanwhile() as changed:
                proof = await self._prove_name(connection, connect, view)
        if view.username in changed:
            raise MqttError("the user was changed meanwhile", ReasonCode.SERVER_BUSY)
        return proof

    async def _prove_name(self, connection: MqttConnection, connect: Connect, view: EdgeSession) -> Properties:
        if connect.properties.authentication_method is not None:
            return await self._enhanced_auth.connect(connection, connect, view)
        if not await self._host.authenticate(view):
            raise no_login(connect)
        return NO_PROPERTIES


def no_login(connect: Connect) -> MqttError:
    """Returns the refusal of an unknown client."""
    code = ReasonCode.BAD_USER_NAME_OR_PASSWORD if connect.username else ReasonCode.NOT_AUTHORIZED
    return MqttError("not authorised", code)


def too_many_failures() -> MqttError:
    """Returns the refusal of a client whose address failed too often."""
    return MqttError("too many failed logins from this address", ReasonCode.QUOTA_EXCEEDED)
