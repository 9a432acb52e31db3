"""A listener behind a proxy: each connection begins with a header that says for which client it is.

Headers are taken from named addresses only; connections from elsewhere are closed unread. TLS begins behind the header,
so it is read from the socket itself, and not one byte more. Not here: the header's bytes (`proxy_header`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from gateway.base.log_events import LogEvent
from gateway.listening.proxy_header import V2_BYTES_MAX, ProxyHeader, ProxyHeaderError, parse_proxy_header

log = logging.getLogger("veilmq.listening")

ACCEPTED_AT_ONCE = 256
"""Connections taken up in one turn of the event loop, before others have theirs."""
NO_FILES_S = 1.0
"""Pause after an accept for which the system had no file or memory."""
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Client = tuple[str, int]


class ProxiedServer:
    """A server that reads the PROXY header of each connection, then hands it over; as `asyncio.Server` to its owner.

    `protocol` makes one of the client that the header names, None: of the proxy itself. `context`: of TLS. `trusted`:
    whose headers are taken. `header_s`: seconds that a header may take, and a TLS handshake after it. `waiting_max`:
    connections whose header is awaited; above it the one that has waited longest is cut off.
    """

    def __init__(
        self,
        name: str,
        sock: socket.socket,
        protocol: Callable[[Client | None], asyncio.Protocol],
        context: ssl.SSLContext | None,
        trusted: Sequence[IPv4Network | IPv6Network],
        header_s: float,
        waiting_max: int,
    ) -> None:
        self.sockets = (sock,)
        self._name, self._sock, self._protocol, self._context = name, sock, protocol, context
        self._trusted, self._header_s, self._waiting_max = trusted, header_s, waiting_max
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Task[None], None] = {}

    async def start_serving(self) -> None:
        """Begins to accept connections."""
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        """Ends accepting; connections whose header is awaited are closed, others stay."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
        for task in [*self._waiting]:
            task.cancel()

    async def wait_closed(self) -> None:
        """Returns when no header is awaited any more."""
        await asyncio.gather(*self._waiting, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._loop.remove_reader(self._sock.fileno())
                self._loop.call_later(NO_FILES_S, self._again)
                return
            self._take_connection(sock, address[0])

    def _again(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def _take_connection(self, sock: socket.socket, host: str) -> None:
        address = ip_address(host.partition("%")[0])
        if not any(address in network for network in self._trusted):
            LogEvent.PROXY_REFUSED.say(log, self._name, host, "is not named in `proxy`")
            sock.close()
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._hand_over(sock, host), name=f"header at {self._name}")
        self._waiting[task] = None
        task.add_done_callback(self._done)
        if len(self._waiting) > self._waiting_max:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._waiting.pop(task, None)
        if not task.cancelled():
            task.exception()

    async def _hand_over(self, sock: socket.socket, host: str) -> None:
        """Reads the header, then gives the socket to a protocol of the client. The socket is never left open alone."""
        try:
            header = await asyncio.wait_for(read_header(sock), self._header_s)
        except ProxyHeaderError as error:
            LogEvent.PROXY_REFUSED.say(log, self._name, host, str(error))
            sock.close()
            return
        except TimeoutError:
            LogEvent.PROXY_REFUSED.say(log, self._name, host, f"sent no whole header within {self._header_s:g} s")
            sock.close()
            return
        except BaseException:  # the other end closed, or we stop
            sock.close()
            raise
        timeout = self._header_s if self._context is not None else None
        # The transport owns the socket from here on, also if the TLS handshake fails.
        await self._loop.connect_accepted_socket(
            lambda: self._protocol(header.client), sock, ssl=self._context, ssl_handshake_timeout=timeout
        )


async def read_header(sock: socket.socket) -> ProxyHeader:
    """Reads a header from a socket that does not block, and leaves what comes behind it there.

    Raises ProxyHeaderError; ConnectionError when the other end closes or resets the connection.
    """
    data = b""
    while True:
        await _readable(sock)
        try:
            seen = sock.recv(V2_BYTES_MAX, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            continue
        if not seen:
            raise ConnectionResetError("closed before its header")
        header = parse_proxy_header(data + seen)
        # Without a whole header all that was seen is of it.
        taken = sock.recv(len(seen) if header is None else header.length - len(data))
        if header is not None:
            return header
        data += taken


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def is_readable() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(sock.fileno(), is_readable)
    try:
        await ready
    finally:
        loop.remove_reader(sock.fileno())
