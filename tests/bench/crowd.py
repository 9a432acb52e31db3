"""Load of many connections: publishers with one message in flight each, paced messages with time stamps, idle clients.

One process, one epoll. Each function binds itself to `core`. Bulk transfer over few connections is `load.py`.
"""

from __future__ import annotations

import resource
import select
import socket
import struct
import time
from collections import deque

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Connect, Publish
from tests.bench.load import (
    PAYLOAD,
    READ_BYTES,
    SILENCE_S,
    TOPIC,
    V3,
    Acknowledger,
    open_client,
    pin,
    receive,
    subscribe,
)
from tests.bench.peers import Running

#: Files that the brokers and we need beside the idle connections.
SPARE_FILES = 200
#: CONNECTs sent before the first CONNACK is awaited: below the backlog of every broker's listener.
AT_ONCE = 50
#: Idle connections that are open before the first look at the memory: what is loaded once is not counted.
WARM_UP = 50
SETTLE_S = 0.5
#: Publishers that are answered before the subscriber is looked at again.
TURN_EVENTS = 32
#: Messages between publishers and subscriber: one more might be dropped by a broker that queues 1,000 for a subscriber.
UNDELIVERED = 1_000
#: The first messages of a paced run do not count.
WARM_UP_S = 0.3


def one_in_flight(port: int, seconds: float, publishers: int, core: int) -> float:
    """QoS 1 messages a second that one subscriber gets of `publishers`, each waiting for its PUBACK; a topic each."""
    pin(core)
    places = [f"{TOPIC[:6]}{place:04d}" for place in range(publishers)]
    assert all(len(topic) == len(TOPIC) for topic in places)
    sub = open_client(port, "sub")
    subscribe(sub, 1, "bench/+")
    packets = [encode(Publish(topic, PAYLOAD, 1, packet_id=1), V3) for topic in places]
    receiver = Acknowledger(sub, len(packets[0]))
    poll = select.epoll()
    poll.register(sub, select.EPOLLIN)
    senders: dict[int, tuple[socket.socket, bytes]] = {}
    for place, packet in enumerate(packets):
        sock = open_client(port, f"pub{place}")
        poll.register(sock, select.EPOLLIN)
        senders[sock.fileno()] = sock, packet
    ready = deque(senders.values())
    listening, sent = sub.fileno(), 0
    start = now = time.perf_counter()
    while now < start + seconds:
        while ready and sent - receiver.delivered < UNDELIVERED:
            sock, packet = ready.popleft()
            sock.send(packet)
            sent += 1
        events = poll.poll(SILENCE_S, TURN_EVENTS)
        if not events:
            raise TimeoutError("the broker is silent")
        for descriptor, _ in events:
            if descriptor == listening:
                receiver.read()
                continue
            sender = senders[descriptor]
            if len(sender[0].recv(4)) != 4:  # one PUBACK is all that can come, and loopback never splits 4 bytes
                raise ConnectionError("closed by the broker")
            ready.append(sender)
        now = time.perf_counter()
    return receiver.delivered / (now - start)


def p99_us(port: int, seconds: float, number: int, rate: int, is_shared: bool, core: int) -> float:
    """The 99th percentile of the time from send to receive, in microseconds; QoS 0, `rate` messages a second in all.

    `number` publishers take turns. `is_shared`: one topic, which all of `number` subscribers get; otherwise each
    publisher has a subscriber of its own. The loop spins, so that no timer of ours is in the figure.
    """
    pin(core)
    topics = [TOPIC if is_shared else f"{TOPIC[:8]}{place:02d}" for place in range(number)]
    subs = []
    for place, topic in enumerate(topics):
        subs.append(open_client(port, f"sub{place}"))
        subscribe(subs[-1], 0, topic)
    pubs = [(open_client(port, f"pub{place}"), encode(Publish(topic, b""), V3)) for place, topic in enumerate(topics)]
    body = struct.Struct(f"!d{len(PAYLOAD) - 8}x")
    heads = [bytes((0x30, len(head) - 2 + body.size)) + head[2:] for _, head in pubs]
    whole = struct.Struct(f"!{len(heads[0])}xd{len(PAYLOAD) - 8}x")
    poll = select.epoll()
    for sock in subs:
        poll.register(sock, select.EPOLLIN)
    by_descriptor = {sock.fileno(): sock for sock in subs}
    held = dict.fromkeys(by_descriptor, b"")
    taken: list[float] = []
    clock, pause = time.perf_counter, 1 / rate
    sent, due = 0, clock()
    counted_from, end = due + WARM_UP_S, due + WARM_UP_S + seconds
    expected = 0
    while (now := clock()) < end + SETTLE_S and (now < end or len(taken) < expected):
        while due <= now < end:
            turn = sent % number
            stamp = clock()
            pubs[turn][0].send(heads[turn] + body.pack(stamp))
            expected += (number if is_shared else 1) * (stamp >= counted_from)
            sent, due = sent + 1, due + pause
        for descriptor, _ in poll.poll(0):
            data = held[descriptor] + by_descriptor[descriptor].recv(READ_BYTES)
            now = clock()
            size = len(data) // whole.size * whole.size
            held[descriptor] = data[size:]
            taken += [now - stamp for (stamp,) in whole.iter_unpack(data[:size]) if stamp >= counted_from]
    if len(taken) < expected:
        raise TimeoutError(f"{expected - len(taken)} of {expected} messages did not come")
    return sorted(taken)[len(taken) * 99 // 100] * 1e6


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
    kept = _connect(broker.port, 0, WARM_UP)
    time.sleep(SETTLE_S)
    before = broker.resident_bytes()
    kept += _connect(broker.port, WARM_UP, number)
    time.sleep(SETTLE_S)
    after = broker.resident_bytes()
    for sock in kept:
        sock.close()
    return (after - before) / number


def _connect(port: int, first: int, number: int) -> deque[socket.socket]:
    kept: deque[socket.socket] = deque()
    for start in range(first, first + number, AT_ONCE):
        group = []
        for place in range(start, min(start + AT_ONCE, first + number)):
            sock = socket.create_connection(("127.0.0.1", port), SILENCE_S)
            sock.sendall(encode(Connect(f"idle{place}", V3), V3))
            group.append(sock)
        for sock in group:
            assert receive(sock, 4)[3] == 0, "refused"
        kept += group
    return kept
