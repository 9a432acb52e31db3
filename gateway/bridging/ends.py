"""The two clients of a bridge: one at our broker, within this process, and one at the other broker.

Ours connects over a pair of sockets and is known to the broker as a part of it, so that no login and no listener is
needed. The other speaks MQTT 5 or 3.1.1; on 3.1.1 it sets the private bit of Mosquitto's bridges, on which that broker
sends a bridge nothing of its own and keeps RETAIN as published. Not here: what crosses (`crossing`).
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import replace

from gateway.base import BridgeSettings, BridgeTls, ConfigError, PrivateFileError, Stamps, StartError, read_private
from gateway.base.log_events import LogEvent
from gateway.bridging.crossing import Bridge, Way
from gateway.bridging.exact import ExactWay
from gateway.bridging.mapping import Marks, Topics
from gateway.bridging.relaying import RelayClient, RelaySession
from gateway.client import Here, LocalEnd
from gateway.client.redial import split_host_port
from gateway.mqtt5.actions import SessionLimits
from gateway.mqtt5.client_session import ClientSession
from gateway.mqtt5.packets import NO_PROPERTIES, Version

log = logging.getLogger("veilmq.bridge")

WINDOW = 256
"""Messages of QoS 1 and 2 that one side has not acknowledged while the other is asked to take them."""
WINDOW_3 = 20
"""The same towards a broker of 3.1.1, which cannot say what it takes: Mosquitto drops QoS 2 beyond 20 unsaid."""
NEVER = 0xFFFF_FFFF
PRIVATE_BIT = 0x80
LEVEL_311 = b"\x00\x04MQTT\x04"


NO_LIMIT = 268_435_460


class _PrivateSession(RelaySession):
    def open(self, now: float) -> bytes:
        data = super().open(now)
        at = data.find(LEVEL_311) + len(LEVEL_311) - 1
        return data[:at] + bytes([data[at] | PRIVATE_BIT]) + data[at + 1 :]


class NearEnd(RelayClient, LocalEnd):
    """A client of our own broker."""


class RemoteEnd(RelayClient):
    """A client of the other broker, at whichever of its addresses answers."""

    def __init__(self, settings: BridgeSettings, client_id: str, password: bytes | None, limits: SessionLimits) -> None:
        addresses = [split_host_port(address) for address in settings.addresses]
        tls = self._tls = settings.tls
        files = () if tls is None else (tls.cafile, tls.certfile, tls.keyfile)
        self._stamps = Stamps(file for file in files if file is not None)
        context = None if tls is None else tls_context(tls)
        super().__init__(
            *addresses[0], client_id=client_id, clean_start=False, ssl=context, username=settings.username,
            password=password, keep_alive_s=settings.keep_alive_s, session_expiry_s=settings.session_expiry_s,
            receive_maximum=WINDOW, packet_bytes=NO_LIMIT, manual_ack=True, limits=limits,
            elsewhere=lambda: addresses[1:],
        )  # fmt: skip
        self._private = settings.version != "5"
        if self._private:
            self._limits = replace(limits, in_flight_messages=WINDOW_3)
            self._connect = replace(self._connect, version=Version.V311, properties=NO_PROPERTIES)
            self._session = self._new_session()
            self._decoder = self._new_decoder()

    async def _open(self, host: str, port: int) -> None:
        """Certificates that were replaced count from the next connection on; those of before go on if they cannot."""
        if self._tls is not None and self._stamps.changed():
            try:
                self._ssl = tls_context(self._tls)
            except StartError as error:
                LogEvent.CERTIFICATE_NOT_RENEWED.say(log, self._where, error)
            else:
                LogEvent.CERTIFICATE_RENEWED.say(log, self._where, self._tls.certfile or self._tls.cafile)
        await super()._open(host, port)

    def _new_session(self) -> ClientSession:
        kind = _PrivateSession if getattr(self, "_private", False) else RelaySession
        return kind(self._connect, self._limits, adopt=not self._connect.clean_start)


def tls_context(tls: BridgeTls) -> ssl.SSLContext:
    """Raises StartError for a file that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=str(tls.cafile) if tls.cafile else None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = tls.check_hostname
        if tls.certfile is not None and tls.keyfile is not None:
            context.load_cert_chain(tls.certfile, tls.keyfile)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(path) for path in (tls.cafile, tls.certfile, tls.keyfile) if path)
        raise StartError(f"bridge: {files}: {getattr(error, 'strerror', None) or error}; correct the files") from None
    return context


def make_bridge(
    name: str, settings: BridgeSettings, here: Here, broker_name: str, prefix: str, may_leave: Callable[[str], bool]
) -> Bridge:
    """Put a bridge together. `broker_name`: our own in marks; `prefix`: of the session's name here.

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
    client_id = settings.client_id or f"{broker_name}-{name}"
    local = NearEnd(
        f"{prefix}bridge/{name}",
        here,
        clean_start=False,
        session_expiry_s=NEVER,
        receive_maximum=WINDOW,
        packet_bytes=NO_LIMIT,
        manual_ack=True,
        limits=limits,
    )
    remote = RemoteEnd(settings, client_id, password, limits)
    topics = Topics(settings.topics)
    outwards = ExactWay if 2 in topics.wanted_here().values() else Way
    inwards = ExactWay if 2 in topics.wanted_there().values() else Way
    ways = outwards(local, remote, name), inwards(remote, local, name)
    return Bridge(name, settings, local, remote, ways, topics, Marks(broker_name), may_leave)
