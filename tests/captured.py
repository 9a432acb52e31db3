"""Sessions of real software, captured on the wire: what each connection sent, when, and how it ended.

A file below `tests/vectors/captured/` is one session. Its first line says which software ran (`source`), how
(`made_by`), and how its devices stand at the end (`devices`). Each further line is what a connection sent (`bytes`,
base64) or its end (`end`), `t_ms` after the first one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "vectors" / "captured"
NAMES = sorted(path.stem for path in DATA.glob("*.jsonl"))
CONNECT, PUBLISH, DISCONNECT = 1, 3, 14


@dataclass(frozen=True)
class Sent:
    """One publication, as its client sent it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


@dataclass
class Connection:
    """One client: `client` is its id, `will` what it left, `is_clean` whether it said goodbye."""

    client: str = ""
    version: int = 4
    will: Sent | None = None
    is_clean: bool = False
    left: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Session:
    """A captured session. `lines`: time in seconds, connection, bytes; no bytes: its end."""

    source: str
    devices: dict[str, str]
    lines: tuple[tuple[float, int, bytes], ...]

    @classmethod
    def load(cls, name: str) -> Session:
        head, *lines = map(json.loads, (DATA / f"{name}.jsonl").read_text("utf-8").splitlines())
        return cls(head["source"], head["devices"], tuple(map(_line, lines)))

    def events(self) -> Iterator[tuple[float, int, Connection, Sent | None]]:
        """Gives what happened: time, connection, and a publication; None: the connection began, or ended."""
        connections: dict[int, Connection] = {}
        for at, number, data in self.lines:
            known = number in connections
            connection = connections.setdefault(number, Connection())
            if not data:
                yield at, number, connection, None
                continue
            connection.left += data
            for kind, flags, body in packets(connection.left):
                if kind == CONNECT:
                    _connect(connection, body)
                elif kind == PUBLISH:
                    yield at, number, connection, _publication(connection, flags, body)
                elif kind == DISCONNECT:
                    connection.is_clean, connection.will = True, None
                if not known:
                    known = True
                    yield at, number, connection, None

    def published(self) -> list[Sent]:
        """Returns all publications, wills included, as a broker passes them on; topics of the broker are left out."""
        ended: dict[int, int] = {}
        found = []
        for _, number, connection, sent in self.events():
            if sent is not None:
                found.append(sent)
                continue
            ended[number] = ended.get(number, 0) + 1
            if ended[number] == 2 and connection.will is not None:
                found.append(connection.will)
        return [each for each in found if not each.topic.startswith("$")]


def _line(line: dict[str, Any]) -> tuple[float, int, bytes]:
    return line["t_ms"] / 1000, line["connection"], base64.b64decode(line.get("bytes", ""))


def packets(data: bytearray) -> Iterator[tuple[int, int, bytes]]:
    """Takes whole packets from the front: kind, flags, body (MQTT 3.1.1 section 2)."""
    while len(data) >= 2:
        length, at = _length(data, 1)
        if len(data) < at + length:
            return
        first, body = data[0], bytes(data[at : at + length])
        del data[: at + length]
        yield first >> 4, first & 15, body


def _length(data: bytes | bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def _string(body: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    return body[at + 2 : end], end


def _after_properties(connection: Connection, body: bytes, at: int) -> int:
    if connection.version != 5:
        return at
    length, at = _length(body, at)
    return at + length


def _connect(connection: Connection, body: bytes) -> None:
    _, at = _string(body, 0)
    connection.version, flags = body[at] & 127, body[at + 1]  # a bridge of Mosquitto's sets the highest bit
    client, at = _string(body, _after_properties(connection, body, at + 4))
    connection.client = client.decode()
    if flags & 4:
        topic, at = _string(body, _after_properties(connection, body, at))
        payload, _ = _string(body, at)
        connection.will = Sent(topic.decode(), payload, flags >> 3 & 3, bool(flags & 32))


def _publication(connection: Connection, flags: int, body: bytes) -> Sent:
    topic, at = _string(body, 0)
    qos = flags >> 1 & 3
    at = _after_properties(connection, body, at + (2 if qos else 0))
    return Sent(topic.decode(), body[at:], qos, bool(flags & 1))
