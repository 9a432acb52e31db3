"""Parser of Mosquitto's persistence file `mosquitto.db`, versions 5 and 6 (Mosquitto 1.6, 2.0 and 2.1). No I/O.

The file has a header of 23 bytes and then chunks. A chunk has its kind and length in network order, a fixed C
structure with its padding, then names, payload and properties. Message ids and times are in the byte order of the
machine that wrote the file, all other numbers in network order. Every length is checked: a truncated or altered file
raises `DbError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bridge.base import OperatorError
from gateway.mqtt5.packets import NO_PROPERTIES, Properties
from gateway.mqtt5.properties import Carrier, decode_properties
from gateway.mqtt5.types import MqttError

MAGIC = b"\x00\xb5\x00mosquitto db"
VERSIONS = (5, 6)
CONFIGURATION, MESSAGE, QUEUED, RETAINED, SUBSCRIPTION, CLIENT = 1, 2, 3, 4, 5, 6
_RECEIVED_STATES = frozenset({6, 7, 9})
"""States of a queued message whose receiver has the content: only the end of the QoS 2 handshake is left."""
_INCOMING = 0


def is_owed(state: int) -> bool:
    """Returns True if the content of a queued message in this state has yet to be sent."""
    return state not in _RECEIVED_STATES


class DbError(OperatorError):
    """An error of a persistence file, in a line: the fault and the cure."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A publication in a queue or a retained message. `expires_at`: UNIX time in seconds, or None for never."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    publisher: str
    expires_at: float | None
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    """A subscription. `options`: MQTT 5's options in the bits of SUBSCRIBE (MQTT 5.0 §3.8.3.1), without the QoS."""

    filter: str
    qos: int
    options: int
    identifier: int


@dataclass(frozen=True, slots=True)
class StoredDelivery:
    """A queued message: its publication's id in `message`, and the QoS, RETAIN and identifiers of its delivery."""

    message: int
    qos: int
    retain: bool
    identifiers: tuple[int, ...]


@dataclass(slots=True)
class StoredClient:
    """A persistent session. `queued` is in the order of delivery."""

    client_id: str
    username: str | None
    expiry_s: int
    ends_at: float | None
    queued: list[StoredDelivery] = field(default_factory=list)
    subscriptions: list[StoredSubscription] = field(default_factory=list)


@dataclass(slots=True)
class Database:
    """The content of a persistence file.

    `half_received`: publications of QoS 2 that their publisher has yet to release. `notes`: a line for each fact that
    the file cannot hold.
    """

    version: int
    messages: dict[int, StoredMessage] = field(default_factory=dict)
    clients: dict[str, StoredClient] = field(default_factory=dict)
    retained: list[int] = field(default_factory=list)
    half_received: list[tuple[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def parse_db(data: bytes) -> Database:
    """Returns the content of a whole file. Raises DbError."""
    if not data.startswith(MAGIC) or len(data) < 23:
        raise DbError("is not a mosquitto.db; name the file that persistence_location and persistence_file give")
    version = int(struct.unpack_from(">I", data, 19)[0])
    if version not in VERSIONS:
        raise DbError(
            f"is of format {version}, known are 5 and 6; let a newer Mosquitto load and save it (mosquitto 1.6 or 2)"
        )
    found = Database(version)
    try:
        for kind, content in _chunks(data):
            reader = _READERS.get(kind)
            if reader is not None:
                reader(found, content)
    except (struct.error, IndexError):
        raise DbError("is cut short; copy it again while Mosquitto is stopped") from None
    except UnicodeDecodeError:
        raise DbError("is damaged: a name is not UTF-8; copy it again while Mosquitto is stopped") from None
    except MqttError as error:
        raise DbError(f"is damaged: {error}; copy it again while Mosquitto is stopped") from None
    return found


def _chunks(data: bytes) -> Iterator[tuple[int, _Content]]:
    offset = 23
    while offset < len(data):
        kind, length = struct.unpack_from(">II", data, offset)
        offset += 8
        if length > len(data) - offset:
            raise struct.error
        yield kind, _Content(data[offset : offset + length])
        offset += length


class _Content:
    """A reader of a chunk, from the chunk's beginning."""

    def __init__(self, data: bytes) -> None:
        self._data, self._offset = data, 0

    def take_bytes(self, count: int) -> bytes:
        if count > len(self._data) - self._offset:
            raise struct.error
        self._offset += count
        return self._data[self._offset - count : self._offset]

    def text(self, count: int) -> str:
        return self.take_bytes(count).decode("utf-8")

    def native(self, form: str) -> int:
        """Returns a number in the byte order of the machine that wrote the file, assumed to be little endian."""
        return int(struct.unpack("<" + form, self.take_bytes(struct.calcsize("<" + form)))[0])

    def numbers(self, form: str) -> tuple[int, ...]:
        return tuple(struct.unpack(">" + form, self.take_bytes(struct.calcsize(">" + form))))

    def properties(self) -> Properties:
        """Decodes the rest of the chunk as MQTT 5 properties; messages of older clients have none."""
        if self._offset >= len(self._data):
            return NO_PROPERTIES
        return decode_properties(self._data, self._offset, len(self._data), Carrier.PUBLISH)[0]


def _message(found: Database, chunk: _Content) -> None:
    id_, expires = chunk.native("Q"), chunk.native("q")
    payload_bytes, _, id_bytes, user_bytes, topic_bytes, _, qos, retain = chunk.numbers("IHHHHHBB")
    publisher = chunk.text(id_bytes)
    chunk.take_bytes(user_bytes)
    topic, payload = chunk.text(topic_bytes), chunk.take_bytes(payload_bytes)
    found.messages[id_] = StoredMessage(
        topic, payload, min(qos, 2), bool(retain), publisher, expires or None, chunk.properties()
    )


def _client(found: Database, chunk: _Content) -> None:
    ends_at = chunk.native("q")
    expiry_s, _, id_bytes = chunk.numbers("IHH")
    user_bytes = 0
    if found.version >= 6:
        _, user_bytes = chunk.numbers("HH")
        chunk.take_bytes(4)  # padding of the structure
    client_id = chunk.text(id_bytes)
    username = chunk.text(user_bytes) if user_bytes else None
    found.clients[client_id] = StoredClient(client_id, username, expiry_s, ends_at or None)


def _queued(found: Database, chunk: _Content) -> None:
    id_ = chunk.native("Q")
    _, id_bytes, qos, state, flags, direction = chunk.numbers("HHBBBB")
    client_id = chunk.text(id_bytes)
    if direction == _INCOMING:
        found.half_received.append((client_id, id_))
    elif is_owed(state) and client_id in found.clients:
        identifiers = tuple(chunk.properties().subscription_ids)
        found.clients[client_id].queued.append(StoredDelivery(id_, min(qos, 2), bool(flags >> 4), identifiers))


def _retained(found: Database, chunk: _Content) -> None:
    found.retained.append(chunk.native("Q"))


def _subscription(found: Database, chunk: _Content) -> None:
    identifier, id_bytes, topic_bytes, qos, options = chunk.numbers("IHHBB")
    chunk.take_bytes(2)  # padding of the structure
    client_id, topic_filter = chunk.text(id_bytes), chunk.text(topic_bytes)
    if client_id in found.clients:
        found.clients[client_id].subscriptions.append(
            StoredSubscription(topic_filter, min(qos, 2), options, identifier)
        )


_READERS: dict[int, Callable[[Database, _Content], None]] = {
    MESSAGE: _message, QUEUED: _queued, RETAINED: _retained, SUBSCRIPTION: _subscription, CLIENT: _client,
}  # fmt: skip
