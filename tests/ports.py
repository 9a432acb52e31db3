"""TCP ports on loopback for the servers of tests.

The ports lie below the range from which Linux takes the ports of outgoing connections. A port of that range may belong
to a client of another test at the moment at which a server starts, or starts again.
"""

from __future__ import annotations

import contextlib
import os
import socket
from itertools import count, islice

PORTS = range(23_000, 32_000)
SPREAD = 2_654_435_761
"""Factor that puts processes with neighbouring numbers far apart, so that they seldom look at one port at once."""

_steps = count(os.getpid() * SPREAD >> 8)


def free_ports(wanted: int) -> list[int]:
    """Returns so many ports that nothing listens on; a port comes again only after all others. Raises OSError."""
    looked_at = (PORTS[step % len(PORTS)] for step in islice(_steps, len(PORTS)))
    found = list(islice((port for port in looked_at if is_free(port)), wanted))
    if len(found) < wanted:
        raise OSError(f"no {wanted} ports of {PORTS[0]} to {PORTS[-1]} are free")
    return found


def is_free(port: int) -> bool:
    """Returns True if a server could listen on this port now."""
    with socket.socket() as sock, contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        return True
    return False
