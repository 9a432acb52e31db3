"""Many connections that say nothing, and how many files a process may open for them."""

from __future__ import annotations

import resource
import socket
import time
from collections import deque

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Connect
from tests.bench.load import (
    SILENCE_S,
    V3,
    pin,
    receive,
)
from tests.bench.peers import Running

#: Files that the brokers and we need beside the idle connections.
SPARE_FILES = 200
#: CONNECTs sent before the first CONNACK is awaited: below the backlog of every broker's listener.
AT_ONCE = 50
#: Idle connections that are open before the first look at the memory: what is loaded once is not counted.
WARM_UP = 50
SETTLE_S = 0.5


def allowed_files() -> int:
    """Open files that this process and its children may have: the soft limit is raised to the hard one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = 1 << 16
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return hard


def idle_bytes(broker: Running, number: int, core: int) -> float:
    """Resident bytes of the broker for each of `number` connections that say nothing after CONNECT."""
    pin(core)
    allowed_files()
    kept = connected(broker.port, 0, WARM_UP)
    time.sleep(SETTLE_S)
    before = broker.resident_bytes()
    kept += connected(broker.port, WARM_UP, number)
    time.sleep(SETTLE_S)
    after = broker.resident_bytes()
    for sock in kept:
        sock.close()
    return (after - before) / number


def connected(port: int, first: int, number: int, keep_alive_s: int = 3_600) -> deque[socket.socket]:
    """So many clients, numbered from `first`, that said CONNECT and nothing else."""
    kept: deque[socket.socket] = deque()
    for start in range(first, first + number, AT_ONCE):
        group = []
        for place in range(start, min(start + AT_ONCE, first + number)):
            sock = socket.create_connection(("127.0.0.1", port), SILENCE_S)
            sock.sendall(encode(Connect(f"idle{place}", V3, keep_alive_s=keep_alive_s), V3))
            group.append(sock)
        for sock in group:
            assert receive(sock, 4)[3] == 0, "refused"
        kept += group
    return kept
