"""Listener behind a proxy: each connection begins with a header naming the client.

Headers are accepted from configured addresses only; other connections are closed unread. TLS begins after the header,
so the header is read from the raw socket, and no byte after the header. Not here: parsing of headers
(`proxy_header`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from bridge.base import Belongings
from gateway.base.log_events import LogEvent
from gateway.listening.proxy_header import V2_BYTES_MAX, ProxyHeader, ProxyHeaderError, parse_proxy_header

log = logging.getLogger("veilmq.listening")

ACCEPTED_AT_ONCE = 256
"""Connections accepted in one turn of the event loop, before other work gets its turn."""
NO_FILES_S = 1.0
"""Pause in seconds after an accept for which the system had no file descriptor or memory."""
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Client = tuple[str, int]


class ProxiedServer:
    """A server reading the PROXY header of each connection, then hands the connection over.

    The owner uses it like an `asyncio.Server`. `protocol` makes the protocol for the client the header names (None:
    for the proxy itself). `context`: for TLS. `trusted`: proxies whose headers are accepted. `header_s`: seconds
    allowed for a header, and again for a TLS handshake. `waiting_max`: connections that may wait for a header; above
    the bound the proxy with most loses the connection that has waited longest.
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
        self._waiting: dict[asyncio.Task[None], str] = {}  # with the address of the proxy of each
        self._of_proxy: Belongings[str, asyncio.Task[None]] = Belongings()  # the oldest first

    async def start_serving(self) -> None:
        """Begins to accept connections."""
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def close(self) -> None:
        """Ends accepting and closes connections that still wait for a header; other connections stay."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
        for task in [*self._waiting]:
            task.cancel()

    async def wait_closed(self) -> None:
        """Returns when no connection waits for a header."""
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
        self._waiting[task] = host
        self._of_proxy.add(host, task)
        task.add_done_callback(self._done)
        if len(self._waiting) > self._waiting_max:
            oldest = self._of_proxy.oldest_of_most()
            self._forget_task(oldest)
            oldest.cancel()

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        host = self._waiting.pop(task, None)
        if host is not None:
            self._of_proxy.drop_thing(host, task)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._forget_task(task)
        if not task.cancelled():
            task.exception()

    async def _hand_over(self, sock: socket.socket, host: str) -> None:
        """Reads the header, then gives the socket to a protocol for the client; closes the socket on every error."""
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
        except BaseException:  # the other end closed, or the server stops
            sock.close()
            raise
        timeout = self._header_s if self._context is not None else None
        # The transport owns the socket from here on, also if the TLS handshake fails.
        await self._loop.connect_accepted_socket(
            lambda: self._protocol(header.client), sock, ssl=self._context, ssl_handshake_timeout=timeout
        )


async def read_header(sock: socket.socket) -> ProxyHeader:
    """Reads a header from a non-blocking socket, and leaves the bytes after the header in the socket.

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
        # Before the end of the header all bytes seen belong to the header.
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
