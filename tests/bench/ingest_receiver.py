"""What one core receives for Spark, and what it would if it kept bytes that it does not look at.

Ours is `receiving`: pieces of three replicas through collector and spool, in process. The peer takes one copy of each
publication from a socket, QoS 1, cuts the stream into packets, writes their bodies in groups of as many rows, syncs and
then acknowledges: no signature, no merging, no columns. CPU time of the receiving process, so that the disk is free.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import Properties, Publish, Version
from spark_ingest.receiver.receiver import GROUP_ROWS
from tests.bench.load import READ_BYTES
from tests.spark_ingest.region import Wire

PACKET_IDS = 65_535


def packets_of(wires: Sequence[Wire]) -> list[bytes]:
    """As a replica sends them."""
    return [
        encode(
            Publish(wire.topic, wire.payload, 1, packet_id=number % PACKET_IDS + 1, properties=_user(wire)),
            Version.V5,
        )
        for number, wire in enumerate(wires)
    ]


def _user(wire: Wire) -> Properties:
    return Properties(user=wire.properties)


def undecoded(packets: Sequence[bytes], path: Path) -> float:
    """Publications a second of one core."""
    ours, theirs = socket.socketpair()
    sender = multiprocessing.get_context("fork").Process(target=_send, args=(theirs, packets))
    sender.start()
    theirs.close()
    began = time.process_time()
    kept = _receive(ours, len(packets), path)
    took_s = time.process_time() - began
    ours.close()
    sender.join()
    assert kept == len(packets)
    return kept / took_s


def _send(sock: socket.socket, packets: Sequence[bytes]) -> None:
    def acknowledged() -> None:
        left = 4 * len(packets)
        while left > 0 and (data := sock.recv(READ_BYTES)):
            left -= len(data)

    reader = threading.Thread(target=acknowledged)
    reader.start()
    sock.sendall(b"".join(packets))
    reader.join()


def _receive(sock: socket.socket, count: int, path: Path) -> int:
    """Bodies of so many PUBLISH packets, each group synced before it is acknowledged."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    held, group, acks, kept = b"", [], [], 0
    while kept + len(group) < count or group:
        while len(group) < GROUP_ROWS and kept + len(group) < count:
            data = held + sock.recv(READ_BYTES)
            at, end = 0, len(data)
            while at + 5 <= end:
                size, shift, body = 0, 0, at + 1
                while True:
                    byte = data[body]
                    body += 1
                    size |= (byte & 0x7F) << shift
                    shift += 7
                    if byte < 0x80:
                        break
                if body + size > end:
                    break
                packet = data[body : body + size]
                topic = packet[0] << 8 | packet[1]
                acks.append(b"\x40\x02" + packet[2 + topic : 4 + topic])
                group.append(size.to_bytes(4) + packet)
                at = body + size
            held = data[at:]
        os.write(file, b"".join(group))
        os.fdatasync(file)
        sock.sendall(b"".join(acks))
        kept += len(group)
        group, acks = [], []
    os.close(file)
    return kept
