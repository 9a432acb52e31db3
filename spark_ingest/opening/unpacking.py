"""The records of batches, once opened, as columns (the form: `keys.records`).

A batch is read column by column; what is wrong with one record closes that record alone. Not here: opening, rows that
hold one publication (`inners`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from bridge.wire import TIME_MS_MAX
from keys.errors import BadFrame, KeysError
from keys.records import HAS_EXTRAS, NO_EXTRAS, QOS, Records
from keys.topictokens import check_topic
from spark_ingest.opening.inners import PROPERTIES, Inners


def is_packed(content: bytes) -> bool:
    """Whether opened content is a batch's."""
    return content[:1] == b"\2"


class UnpackedRows:
    """Columns of records; `rows`: of the spool, in which each was."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.numbers: list[int] = []
        self.qos: list[int] = []
        self._topics: list[str] = []
        self._times: list[int] = []
        self._payloads: list[bytes] = []
        self._properties: list[tuple[tuple[str, str], ...]] = []

    def add(self, row: int, first: int, content: bytes, may: Callable[[str], bool]) -> str:
        """The records of one batch with number `first`, of topics that the publisher `may` publish on. Returns why some
        of them are left out, empty if none is."""
        try:
            records = Records.decode(content)
        except BadFrame as error:
            return f"frame: {error}"
        reason = ""
        names = [_name(topic, may) for topic in records.topics]
        payloads = records.payloads()
        for at, index in enumerate(records.indexes):
            name, extras = names[index], NO_EXTRAS
            try:
                if records.flags[at] & HAS_EXTRAS:
                    extras = records.extras(at)
            except KeysError as error:
                reason = f"frame: {error}"
                continue
            if name is None or records.times[at] > TIME_MS_MAX:
                reason = "content: a record on a topic that its publisher may not use in this scope, or of no time"
                continue
            self.rows.append(row)
            self.numbers.append(first + at if extras.number is None else extras.number)
            self.qos.append(records.flags[at] & QOS)
            self._topics.append(name)
            self._times.append(records.times[at])
            self._payloads.append(payloads[at])
            self._properties.append(extras.properties)
        return reason

    def content(self) -> Inners:
        """The columns that every stream has."""
        return Inners(
            pa.array(self._topics, pa.string()),
            np.array(self._times, np.uint64),
            pa.array(self._payloads, pa.binary()),
            pa.array([[{"name": n, "value": v} for n, v in pairs] for pairs in self._properties], PROPERTIES),
        )


def joined(one: Inners, other: Inners) -> Inners:
    """The rows of one, then those of the other."""
    return Inners(
        pa.concat_arrays([one.topic, other.topic]),
        np.concatenate((one.time_ms, other.time_ms)),
        pa.concat_arrays([one.payload, other.payload]),
        pa.concat_arrays([one.properties, other.properties]),
    )


def _name(topic: bytes, may: Callable[[str], bool]) -> str | None:
    try:
        name = topic.decode()
        check_topic(name)
    except (UnicodeDecodeError, KeysError):
        return None
    return name if may(name) else None
