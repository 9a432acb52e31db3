"""Sockets and TLS contexts of the broker's listeners, and streams that external servers hand over.

An error here is the operator's: `StartError`, a line. `StreamTransport` lets external listeners of amqtt drive the
`asyncio.Protocol` that also serves TCP. No MQTT is spoken here, and no WebSocket (`websocket.py`).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import fields
from pathlib import Path
from typing import Any

from amqtt.adapters import ReaderAdapter, WriterAdapter
from amqtt.contexts import BrokerConfig, ListenerConfig, ListenerType

from gateway.base import Settings, StartError

BACKLOG = 65_535
"""Connections that the kernel queues while we are busy, as far as `net.core.somaxconn` allows. A client that finds the
queue full retries after 1, 3, 7, 15 and 31 seconds, even if we are idle by then.
"""
ACCEPTED_A_TURN = 16
"""Connections that a listener accepts in a turn of an event loop that accepts one for each server."""
UNIX_MODE = 0o660
"""Mode of a Unix socket: its owner and group may connect; the directory's rights may restrict access further."""
STREAM_BUFFER_BYTES = 8 << 20
"""Stops an external peer that does not read from filling memory; the peer is then cut off."""


OURS = {
    "amqtt.plugins.topic_checking.TopicAccessControlListPlugin": "gateway.auth.acl_file.AclPlugin",
    "amqtt.plugins.authentication.FileAuthPlugin": "gateway.auth.passwords.PasswordPlugin",
}
"""Plugins of amqtt that ours replace, with the same options: amqtt's access rules allow more than they state, and its
password check blocks the event loop.
"""


def amqtt_listener(listener: Any) -> ListenerConfig:
    """Converts a listener of our configuration to amqtt's. Raises StartError."""
    values = listener.model_dump(include={field.name for field in fields(ListenerConfig)})
    try:
        return ListenerConfig(**{**values, "type": ListenerType(values["type"])})
    except FileNotFoundError as error:
        raise StartError(f"{error}; correct the path") from None


def amqtt_config(settings: Settings) -> BrokerConfig:
    """Returns the rest of our configuration, without listeners, as amqtt's broker needs it."""
    return BrokerConfig(
        timeout_disconnect_delay=settings.timeout_disconnect_delay,
        session_expiry_interval=settings.session_expiry_interval,
        plugins={OURS.get(name, name): options for name, options in settings.plugins.items()},
    )


def open_sockets(name: str, host: str | None, port: int) -> list[socket.socket]:
    """Returns bound sockets, not yet listening, for every address of `host` (None: all addresses).

    Raises StartError if the name does not resolve, or an address is not of this machine, in use or forbidden.
    """
    host = host.strip("[]") if host else None
    where = f"{host or '*'}:{port}"
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                sock = socket.socket(family, kind, protocol)
            except OSError:
                continue  # a machine without IPv6
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if port == 0 and len(sockets) > 1:  # the same free port for IPv4 and IPv6
                address = (address[0], sockets[0].getsockname()[1], *address[2:])  # noqa: PLW2901
            sock.bind(address)
            sock.listen(BACKLOG)
            sock.setblocking(False)
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise StartError(f"listener {name}: cannot bind {where}: {_bind_cause(error)}") from None
    except UnicodeError:
        raise StartError(f"listener {name}: {host!r} is not a host name; correct bind") from None
    return sockets


def accepting(sock: socket.socket, loop: asyncio.AbstractEventLoop) -> list[socket.socket]:
    """Returns the socket as many times as the loop shall serve the socket.

    libuv, below uvloop, accepts a single connection per server and turn: a few hundred a second, where thousands may
    arrive at once and each turn has other work. asyncio accepts all of them in one turn.
    """
    times = 1 if isinstance(loop, asyncio.BaseEventLoop) else ACCEPTED_A_TURN
    return [sock, *(sock.dup() for _ in range(times - 1))]


def open_unix_socket(name: str, path: Path) -> socket.socket:
    """Returns a bound and listening Unix socket with mode UNIX_MODE; replaces a socket a dead broker left.

    Raises StartError if a process listens on the path, another kind of file is there, or the socket cannot be made.
    """
    if not remove_stale_socket(path):
        raise StartError(f"listener {name}: cannot bind unix:{path}: it is in use; stop what uses it or bind another")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        path.chmod(UNIX_MODE)  # nobody can connect before `listen`
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        cause = {
            errno.EADDRINUSE: "a file that is no socket is in the way; bind another path",
            errno.ENOENT: "no such directory; make it or bind another path",
        }.get(error.errno or 0, f"{error.strerror or error}; bind another path")
        raise StartError(f"listener {name}: cannot bind unix:{path}: {cause}") from None
    return sock


def remove_stale_socket(path: Path) -> bool:
    """Removes a Unix socket without a listener; returns False if a process listens on the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            if path.is_socket():  # Linux refuses a connection to a regular file too
                path.unlink(missing_ok=True)
            return True
        except BlockingIOError:  # the backlog is full, so a process listens
            return False
        except OSError:  # no file, or no access: `bind` gives the reason
            return True
    return False


def _bind_cause(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"{error.strerror}; correct bind"
    cures = {
        errno.EADDRINUSE: "the port is in use; stop what uses it or bind another",
        errno.EACCES: "not permitted; bind a port above 1023",
        errno.EADDRNOTAVAIL: "not an address of this machine; correct bind",
    }
    return cures.get(error.errno or 0, error.strerror or str(error))


def server_context(name: str, listener: ListenerConfig, require_client_certificate: bool) -> ssl.SSLContext:
    """Returns a TLS context (1.2 or later) for a configured listener. Raises StartError for an unfit file.

    With `require_client_certificate` the handshake fails without a certificate of the listener's CA; amqtt would ask
    for a certificate and go on without. Otherwise a CA means: ask, and verify a given certificate (for amqtt's
    plugins).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate, key = listener.certfile, listener.keyfile
    if certificate is None or key is None:
        raise StartError(f"listener {name}: ssl needs certfile and keyfile; give both")
    try:
        for path in (certificate, key):
            with Path(path).open("rb"):
                pass
        # The callback keeps OpenSSL from asking for a passphrase on the terminal.
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except _EncryptedKeyError:
        raise StartError(f"listener {name}: {key}: is encrypted; store it without passphrase") from None
    except ssl.SSLError as error:
        raise StartError(f"listener {name}: {certificate}, {key}: {_reason(error)}; give a matching pair") from None
    except OSError as error:
        raise StartError(f"listener {name}: {error.filename}: {error.strerror}; correct the path") from None
    authority = listener.cafile or listener.capath or listener.cadata
    if authority:
        try:
            context.load_verify_locations(listener.cafile, listener.capath, listener.cadata)
        except (ssl.SSLError, OSError) as error:
            raise StartError(f"listener {name}: {authority}: no CA certificates: {_reason(error)}") from None
        context.verify_mode = ssl.CERT_OPTIONAL
    if require_client_certificate:
        if not authority:
            raise StartError(f"listener {name}: requires client certificates but has no CA; give cafile")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _EncryptedKeyError(Exception):
    pass


def _no_passphrase() -> str:
    raise _EncryptedKeyError


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return str(reason).replace("_", " ").lower()


class StreamTransport(asyncio.Transport):
    """A transport over an awaitable `send`, to which our protocol writes on an external listener.

    `run` reads: it feeds the protocol until the stream ends, and waits while reading is paused.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol,
        send: Callable[[bytes], Coroutine[Any, Any, None]],
        close: Callable[[], Coroutine[Any, Any, None]],
        extra: dict[str, Any],
    ) -> None:
        super().__init__(extra)
        self._protocol = protocol
        self._send, self._close_stream = send, close
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._wake = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()
        self._closing = False
        self._reader: asyncio.Task[None] | None = None

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: Any) -> None:
        if self._closing:
            return
        self._outgoing.append(bytes(data))
        self._outgoing_bytes += len(data)
        if self._outgoing_bytes > STREAM_BUFFER_BYTES:
            self.abort()
        self._wake.set()

    def get_write_buffer_size(self) -> int:
        return self._outgoing_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing: STREAM_BUFFER_BYTES is the only bound."""

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    def is_reading(self) -> bool:
        return self._reading.is_set()

    def close(self) -> None:
        """Sends the buffered bytes, then ends the stream."""
        self._closing = True
        self._wake.set()

    def abort(self) -> None:
        self._closing = True
        self._outgoing.clear()
        self._wake.set()
        if self._reader is not None:
            self._reader.cancel()

    async def run(self, receive: Callable[[], Coroutine[Any, Any, bytes]]) -> None:
        """Drives the protocol until either side ends. `receive` returns b"" at the end of the stream."""
        self._protocol.connection_made(self)
        self._reader = asyncio.ensure_future(self._read_stream(receive))
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                data, self._outgoing = b"".join(self._outgoing), []
                if data:
                    await self._send(data)
                    self._outgoing_bytes -= len(data)
                # One wake-up may mean a last write and the end after it.
                if self._closing and not self._outgoing:
                    break
        except (OSError, EOFError, ConnectionError) as error:
            self._closing = True
            self._protocol.connection_lost(error)
        else:
            self._protocol.connection_lost(None)
        finally:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            await self._close_stream()

    async def _read_stream(self, receive: Callable[[], Coroutine[Any, Any, bytes]]) -> None:
        try:
            while not self._closing:
                await self._reading.wait()
                data = await receive()
                if not data:
                    break
                self._protocol.data_received(data)
        except (OSError, EOFError):
            pass
        finally:
            self.close()


async def serve_adapter(
    reader: ReaderAdapter, writer: WriterAdapter, protocol: asyncio.Protocol, packet_bytes: int
) -> None:
    """Runs the protocol over amqtt's adapters (listener type `external`).

    Adapters read exactly n bytes, so each packet is read by the length in its first bytes: slower than TCP, and used
    for external listeners only.
    """

    async def receive() -> bytes:
        try:
            head = bytearray(await reader.read(2))
            while head and head[-1] & 0x80 and len(head) < 5:
                head += await reader.read(1)
        except EOFError:
            return b""
        length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(head[1:]))
        if not length or length > packet_bytes:  # the decoder refuses a packet that is too long from its head
            return bytes(head)
        return bytes(head) + bytes(await reader.read(length))

    async def send(data: bytes) -> None:
        writer.write(data)
        await writer.drain()

    extra = {"peername": writer.get_peer_info(), "ssl_object": writer.get_ssl_info()}
    await StreamTransport(protocol, send, writer.close, extra).run(receive)
