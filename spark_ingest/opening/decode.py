"""The opener of an executor: takes rows of the spool, derives data keys, gives content in clear.

START HERE for the executors' side. A row costs a single AES-GCM opening; a key is opened once a process (`data_keys`),
and all other work is done for all rows of a batch at once, in columns, where possible (`unpacking`). A row that cannot
be opened is never dropped without a trace: it becomes a row of the quarantine stream with a reason, and the other
streams log the number of such rows.

The opener verifies no publisher signature: the receiver did before it wrote. It still notices every change of content,
header or topic, since all three are authenticated by the data key, and of the columns repeating the header, since they
are compared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.document import RecordRights, read_wire_topic
from bridge.wire import is_topic
from keys import frames
from keys.envelope import NO_KEY, NONCE_BYTES, DataKey
from keys.errors import KeysError
from keys.message import FLAGS_AT, KEY_ID_AT, PREFIX_BYTES, PUBLISHER_AT, QOS_FLAGS, RETAIN, SEQUENCE_AT
from keys.topictokens import matches, retained_id, tokenise_topic
from spark_ingest.errors import SpoolDamaged
from spark_ingest.opening.contents import Contents
from spark_ingest.opening.data_keys import GRANT, TOPICS_REMEMBERED, KeyUse, OpenedKeys
from spark_ingest.opening.unpacking import unpack
from spark_ingest.secrets import Grants, GrantsFile
from spark_ingest.spool import WAY_OUT, changed_row

NOT_OF_ITS_HEADER = "frame: the row is not that of its header"
"""A receiver writes no such row."""


@dataclass(slots=True)
class Opened:
    """The outcome of a record batch: row numbers (ascending) with their content, and row numbers with a reason.

    A row stands there once for each of its records; `numbers`, `qos` and `retain` are those of the records.
    """

    rows: Any
    content: Contents
    closed: list[tuple[int, str]]
    numbers: Any
    qos: Any
    retain: Any

    def drop_all_but(self, kept: Any) -> None:
        """Drops the content that is not `kept`."""
        if kept.all():
            return
        chosen = np.flatnonzero(kept)
        self.rows, self.content = self.rows[chosen], self.content.take_rows(chosen)
        self.numbers, self.qos, self.retain = self.numbers[chosen], self.qos[chosen], self.retain[chosen]


class Opener:
    """An opener of rows with the keys of a grants file. Keeps opened keys between batches."""

    def __init__(self, grants: Path, reader: Path | None = None, more: Sequence[Path] = ()) -> None:
        """Takes the arguments of `GrantsFile`."""
        self._file = GrantsFile(grants, reader, more)
        self._grants = Grants({})
        self._keys = OpenedKeys()
        self._names: dict[tuple[tuple[str, str], bytes], str | None] = {}

    @property
    def grants(self) -> Grants:
        """The content of the file at the last reading."""
        return self._grants

    def refresh(self, *, anew: bool = False) -> bool:
        """Reads the grants file again if it changed, or `anew` in any case; returns True if it read. Raises
        GrantsError.
        """
        self._grants, changed = self._file.load(anew=anew)
        if changed:
            self._keys.drop_keys()
            self._names.clear()
        return changed

    def open(self, batch: Any, wanted: Any = None) -> Opened:
        """Opens a batch of spool rows (whole groups), or the `wanted` ones of them. Raises nothing for bad rows."""
        rows = _Rows(batch)
        if wanted is not None:
            rows.drop_all_but(np.asarray(wanted, bool))
        if batch.column("reason").null_count < batch.num_rows or batch.column("sealed").null_count:
            told = rows.batch.column("reason")
            rows.close(lambda row: told[row].as_py() or "content: the spool holds none", _incomplete(rows.batch))
        prefixes = _prefixes(rows.batch)
        differ = ~_repeats(prefixes, rows.batch)
        if differ.any():
            rows.close(lambda _: NOT_OF_ITS_HEADER, differ)
            prefixes = prefixes[~differ]
        keys, codes = self._keys_of(rows.batch, material_of(batch))
        shut = np.array([isinstance(key, str) for key in keys], bool)
        closed = shut[codes]
        if closed.any():
            reasons = iter([keys[code] for code in codes[closed].tolist()])
            rows.close(lambda _: next(reasons), closed)
            prefixes, codes = prefixes[~closed], codes[~closed]
        opened = self._opened_contents(rows, prefixes, keys, codes)
        return self._unpacked(rows, opened)

    def _unpacked(self, rows: _Rows, opened: Sequence[bytes]) -> Opened:
        """Returns the records of opened rows, in order of rows."""
        batch, told = rows.batch, _Origins(rows.batch)
        retained = batch.column("retain").to_numpy(zero_copy_only=False)
        firsts = batch.column("sequence").to_numpy()
        arrived_ms = batch.column("received_at").cast(pa.int64()).to_numpy() / 1000
        records, closed = unpack(
            opened, firsts, told.codes, retained, arrived_ms, lambda origin, topic: self._named(told[origin], topic)
        )
        every = [*rows.closed, *((int(rows.numbers[number]), reason) for number, reason in sorted(closed.items()))]
        return Opened(rows.numbers[records.batches], records.content, every, *records[1:4])

    def _named(self, origin: tuple[str, str], topic: bytes) -> str | None:
        """Returns the name of a record's topic; None for an invalid topic, or one that its origin may not use."""
        pair = (origin, topic)
        if pair not in self._names:
            if len(self._names) >= TOPICS_REMEMBERED:
                self._names.clear()
            try:
                name = topic.decode()
                fits = is_topic(name) and self._may(RecordRights.from_text(origin[0]), origin[1], name)
                self._names[pair] = name if fits else None
            except (UnicodeDecodeError, KeysError):  # no name, or a row without rights that can be read
                self._names[pair] = None
        return self._names[pair]

    def _may(self, rights: RecordRights, wire_topic: str, topic: str) -> bool:
        """Returns True if a record may have a clear topic; a retained record only the topic behind its wire topic."""
        scope = self._grants.scopes.get(rights.scope)
        key = None if scope is None else scope.token_key
        if wire_topic and read_wire_topic(wire_topic).id != retained_id(key, topic):
            return False
        return rights.allow(topic if key is None else _hidden(topic, key))

    def _keys_of(
        self, batch: Any, materials: dict[bytes, tuple[bytes, bytes]]
    ) -> tuple[list[DataKey | str | None], Any]:
        """Returns the distinct keys of all rows, and for each row the number of its key.

        A key is a data key, the reason for which there is none, or None for rows that are not sealed.
        """
        ids = batch.column("key_id").dictionary_encode()
        codes = ids.indices.to_numpy()
        firsts = np.empty(len(ids.dictionary), np.int64)
        firsts[codes[::-1]] = np.arange(len(codes))[::-1]  # of values for one place, the last one stays
        taken = batch.select(KeyUse._fields).take(pa.array(firsts))
        uses = list(map(KeyUse._make, zip(*map(values_of, taken.columns), strict=True)))
        found = iter(self._keys.keys_for([use for use in uses if use.key_id != NO_KEY], materials, self._grants))
        return [None if use.key_id == NO_KEY else next(found) for use in uses], codes

    @staticmethod
    def _opened_contents(rows: _Rows, prefixes: Any, keys: list[Any], codes: Any) -> list[bytes]:
        """Returns the content of the rows that open, and closes the others."""
        sealed = rows.batch.column("sealed").to_numpy(zero_copy_only=False)
        used = np.empty(len(keys), object)
        used[:] = keys
        topics = rows.batch.column("wire_topic").dictionary_encode()
        framed = np.empty(len(topics.dictionary), object)
        framed[:] = [frames.text(topic) for topic in topics.dictionary.to_pylist()]
        where = topics.indices.to_numpy()
        plain = np.array([key is None for key in keys], bool)[codes]
        if plain.any():
            opened = sealed.copy()
            some = np.flatnonzero(~plain)
            opened[some] = _opened(used[codes[some]], prefixes[some], framed[where[some]], sealed[some])
            opened = opened.tolist()
        else:
            opened = _opened(used[codes], prefixes, framed[where], sealed)
        if None in opened:
            unopened = np.array([each is None for each in opened], bool)
            rows.close(lambda _: "content: it does not open under its key, header and topic", unopened)
            opened = [each for each in opened if each is not None]
        return list[bytes](opened)


class _Rows:
    """The rows of a batch that may still open, and the reasons of the closed ones."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch
        self.numbers = np.arange(batch.num_rows)
        self.closed: list[tuple[int, str]] = []

    def drop_all_but(self, kept: Any) -> None:
        """Drops the rows nobody asked for."""
        if not kept.all():
            chosen = np.flatnonzero(kept)
            self.batch, self.numbers = self.batch.take(pa.array(chosen)), self.numbers[chosen]

    def close(self, reason: Callable[[int], str], closed: Any) -> None:
        """Closes rows. `reason`: by place among the remaining rows, called in their order."""
        for place in np.flatnonzero(closed).tolist():
            self.closed.append((int(self.numbers[place]), reason(place)))
        self.drop_all_but(~closed)


class _Origins:
    """The origin of each row, by which its records are judged: rights, and the wire topic of a retained value.

    `codes`: numbers of origins.
    """

    def __init__(self, batch: Any) -> None:
        rights = batch.column("rights").fill_null("").dictionary_encode()
        topics = pc.if_else(batch.column("retain"), batch.column("wire_topic"), "").dictionary_encode()
        self._rights, self._topics = rights.dictionary.to_pylist(), topics.dictionary.to_pylist()
        count = max(1, len(self._topics))
        self.codes = rights.indices.to_numpy().astype(np.int64) * count + topics.indices.to_numpy()

    def __getitem__(self, code: int) -> tuple[str, str]:
        rights, topic = divmod(code, max(1, len(self._topics)))
        return self._rights[rights], self._topics[topic]


def check_written(batch: Any, opened: Opened) -> None:
    """Raises SpoolDamaged if a closed row differs from the receiver's row, its reason included.

    Rows with a fault of their publisher, and rows without their key, are not damaged.
    """
    told = batch.column("reason")
    closed = {
        row: reason for row, reason in opened.closed if told[row].as_py() is not None or not reason.startswith(GRANT)
    }
    if not closed:
        return
    altered = next((row for row, reason in closed.items() if reason == NOT_OF_ITS_HEADER), None)
    row = changed_row(batch) if altered is None else altered
    if row is not None:
        publisher, sequence = (batch.column(name)[row].as_py() for name in ("publisher", "sequence"))
        raise SpoolDamaged(f"publication {sequence} of {publisher.hex()} was changed on disk; {WAY_OUT}")


class TopicSet:
    """A set of topics: those that match one of some filters. Remembers verdicts."""

    def __init__(self, filters: Sequence[str]) -> None:
        self._filters = tuple(filters)
        self._known: dict[str, bool] = {}

    def __contains__(self, topic: str) -> bool:
        verdict = self._known.get(topic)
        if verdict is None:
            if len(self._known) >= TOPICS_REMEMBERED:
                self._known.clear()
            verdict = self._known[topic] = any(matches(each, topic) for each in self._filters)
        return verdict


def which(topics: Any, wanted: Callable[[str], bool]) -> Any:
    """Returns the wanted rows of a column of topics, dictionary-encoded or not, as numpy array: each topic is asked for
    once.
    """
    coded = topics.dictionary_encode()
    verdicts = np.fromiter(map(wanted, coded.dictionary.to_pylist()), bool)
    return verdicts[coded.indices.to_numpy()]


def _opened(keys: Any, prefixes: Any, topics: Any, sealed: Any) -> list[bytes | None]:
    """Returns `DataKey.open_each` of columns: keys, headers up to their digests, framed topics, sealed content."""
    nonces = np.zeros((len(prefixes), NONCE_BYTES), np.uint8)
    nonces[:, -8:] = prefixes[:, SEQUENCE_AT : SEQUENCE_AT + 8]
    heads = np.full((len(prefixes), 1 + PREFIX_BYTES), frames.PROTOCOL_VERSION, np.uint8)
    heads[:, 1:] = prefixes
    associated = map(add, _as_bytes(heads), topics.tolist())
    return DataKey.open_each(keys.tolist(), _as_bytes(nonces), sealed.tolist(), associated)


def _hidden(topic: str, key: bytes) -> str:
    """Returns the token form of a clear topic; empty for an invalid name."""
    try:
        return tokenise_topic(topic, key)
    except KeysError:
        return ""


def _as_bytes(matrix: Any) -> list[bytes]:
    """Returns the rows of a matrix of bytes."""
    return list(matrix.view(f"V{matrix.shape[1]}").ravel().tolist())


def _prefixes(batch: Any) -> Any:
    """Returns the signed headers up to their digests as a matrix of bytes; zeros for a shorter header."""
    headers = pc.binary_slice(batch.column("header"), 0, PREFIX_BYTES)
    if pc.any(pc.less(pc.binary_length(headers), PREFIX_BYTES)).as_py():
        headers = pa.array([each.ljust(PREFIX_BYTES, b"\0") for each in headers.to_pylist()], pa.binary())
    _, offsets, data = headers.buffers()
    first = np.frombuffer(offsets, np.int32)[headers.offset] if len(headers) else 0
    whole = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return whole[first : first + len(headers) * PREFIX_BYTES].reshape(-1, PREFIX_BYTES)


def _repeats(prefixes: Any, batch: Any) -> Any:
    """Returns the rows whose publisher, key, sequence, QoS and retain flag equal those of their header."""
    sequences = np.ascontiguousarray(prefixes[:, SEQUENCE_AT : SEQUENCE_AT + 8]).view(">u8").ravel()
    fits = sequences == batch.column("sequence").to_numpy().astype(np.uint64)
    for name, at in (("publisher", PUBLISHER_AT), ("key_id", KEY_ID_AT)):
        column = batch.column(name)
        size = column.type.byte_width
        told = np.frombuffer(column.buffers()[1], np.uint8)[column.offset * size : (column.offset + len(column)) * size]
        fits &= (prefixes[:, at : at + size] == told.reshape(-1, size)).all(axis=1)
    fits &= (prefixes[:, FLAGS_AT] & QOS_FLAGS) == batch.column("qos").to_numpy()
    return fits & ((prefixes[:, FLAGS_AT] & RETAIN != 0) == batch.column("retain").to_numpy(zero_copy_only=False))


def material_of(batch: Any) -> dict[bytes, tuple[bytes, bytes]]:
    """Returns key header and shares by key id, from the first row of each group using the key."""
    headers = batch.column("key_header")
    if headers.null_count == len(headers):
        return {}
    having = batch.select(["key_id", "key_header", "shares"]).filter(headers.is_valid())
    key_ids, headers, shares = map(values_of, having.columns)
    if having.column("shares").null_count:
        shares = [each or b"" for each in shares]
    return dict(zip(key_ids, zip(headers, shares, strict=True), strict=True))


def values_of(column: Any) -> list[Any]:
    """Returns a column as Python objects; for bytes and text faster than `to_pylist`."""
    return list(column.to_numpy(zero_copy_only=False).tolist())


def _incomplete(batch: Any) -> Any:
    """Returns the rows that never became whole."""
    return pc.or_(batch.column("reason").is_valid(), batch.column("sealed").is_null()).to_numpy(zero_copy_only=False)
