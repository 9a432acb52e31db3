"""Rows of a DataFrame as publications: their columns, and the id telling a repeat from a new row.

Columns: topic, payload (binary or string), and optionally qos, retain, properties (a map, or the source's array of
(name, value)), id. Other columns are refused, so that no column is left out silently.

Every publication carries a user property `veilmq-id`: the row's `id`, or else WRITE/BATCH/PARTITION/ROW: the
query's id in its checkpoint, the number of the micro-batch, the task and the row in it. A repeated task
or batch has its former ids as long as its partitions hold equal rows in equal order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from spark_ingest.errors import BadOption, PublishError

ID_PROPERTY = "veilmq-id"
COLUMNS = ("topic", "payload", "qos", "retain", "properties", "id")
TOPIC_BYTES_MAX = 65_535
"""MQTT 5.0 §1.5.4."""


class OutgoingRows(NamedTuple):
    """A publication. `qos`: 1 or 2. `properties` holds the id."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: tuple[tuple[str, str], ...]

    @property
    def id(self) -> str:
        return self.properties[-1][1]

    @property
    def cost_bytes(self) -> int:
        """The approximate size in memory and on the wire."""
        return 100 + len(self.topic) + len(self.payload) + sum(len(n) + len(v) for n, v in self.properties)


_TYPES = {
    "topic": ("string",),
    "payload": ("binary", "string"),
    "qos": ("tinyint", "smallint", "int", "bigint"),
    "retain": ("boolean",),
    "properties": ("map<string,string>", "array<struct<name:string,value:string>>"),
    "id": ("string",),
}


def check_schema(schema: Any) -> None:
    """Raises BadOption, a line, unless a Spark StructType can be published."""
    given = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name in ("topic", "payload"):
        if name not in given:
            raise BadOption(f"column {name} is missing; veilmq publishes rows with {', '.join(COLUMNS)}")
    for name, kind in given.items():
        if name not in _TYPES:
            raise BadOption(f"column {name!r} has no meaning in MQTT; select only {', '.join(COLUMNS)}")
        if kind not in _TYPES[name]:
            raise BadOption(f"column {name} is {kind}; it has to be {' or '.join(_TYPES[name])}")


def publications(batch: Any, prefix: str, first_row: int) -> Iterator[OutgoingRows]:
    """Yields the rows of an Arrow record batch; `first_row` rows of the task came before. Raises PublishError."""
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    size = batch.num_rows
    nothing: Sequence[Any] = [None] * size
    rows = zip(*(columns.get(name, nothing) for name in COLUMNS), strict=True)
    for number, (topic, payload, qos, retain, properties, told) in enumerate(rows, first_row):
        where = f"row {prefix}/{number}"
        _check_topic(topic, where)
        if payload is None:
            raise PublishError(f"{where}: payload is null; filter it out, or publish an empty one on purpose")
        if qos not in (None, 0, 1, 2):
            raise PublishError(f"{where}: qos={qos} is none of 1 and 2")
        own = [pair for pair in _pairs(properties, where) if pair[0] != ID_PROPERTY]
        own.append((ID_PROPERTY, told or f"{prefix}/{number}"))
        data = payload.encode() if isinstance(payload, str) else payload
        yield OutgoingRows(topic, data, max(1, qos or 1), bool(retain), tuple(own))


def _check_topic(topic: str | None, where: str) -> None:
    if not topic or "\0" in topic or "#" in topic or "+" in topic or len(topic.encode()) > TOPIC_BYTES_MAX:
        raise PublishError(f"{where}: {str(topic)[:80]!r} is not a topic to publish to; it may hold no wildcard")


def _pairs(properties: Any, where: str) -> Iterator[tuple[str, str]]:
    for pair in properties or ():
        name, value = (pair["name"], pair["value"]) if isinstance(pair, dict) else pair
        if name is None or value is None:
            raise PublishError(f"{where}: a user property is null; MQTT has none, leave it out")
        yield name, value
