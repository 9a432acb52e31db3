"""Executor side: rows of the spool in, content in clear out. Derives data keys, opens and reads content.

START HERE for the executors' side. A row costs one AES-GCM opening; a key is opened once a process (`data_keys`), and
whatever else can be is done for all rows of a batch at once, in columns (`inners`). What cannot be opened is never
dropped without a trace: it becomes a row of the quarantine stream with a reason, and the other streams log how many
there were.

It verifies no publisher signature again: the receiver did before it wrote. It still notices every change of
content, header or topic, since all three are authenticated by the data key, and of the columns that repeat the
header, since they are compared with it.
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

from bridge.document import RecordRights
from bridge.wire import TIME_MS_MAX
from keys import frames
from keys.envelope import NO_KEY, NONCE_BYTES, DataKey, Inner
from keys.errors import KeysError
from keys.message import FLAGS_AT, KEY_ID_AT, PREFIX_BYTES, PUBLISHER_AT, QOS_FLAGS, RETAIN, SEQUENCE_AT
from keys.topictokens import check_topic, matches, tokenise_topic
from spark_ingest.opening.data_keys import TOPICS_REMEMBERED, KeyUse, OpenedKeys, reason_of
from spark_ingest.opening.inners import Inners, read_inners
from spark_ingest.opening.unpacking import is_packed, unpack
from spark_ingest.secrets import Grants, GrantsFile


@dataclass(slots=True)
class Opened:
    """What came of one record batch: row numbers (ascending) with their content, and row numbers with a reason.

    A row that holds a batch of publications stands there once for each; then `numbers`, `qos` and `retain` are theirs.
    """

    rows: Any
    content: Inners
    closed: list[tuple[int, str]]
    numbers: Any = None
    qos: Any = None
    retain: Any = None

    def keep(self, kept: Any) -> None:
        """Forget the content that is not `kept`."""
        if kept.all():
            return
        chosen = np.flatnonzero(kept)
        self.rows, self.content = self.rows[chosen], self.content.take(chosen)
        if self.numbers is not None:
            self.numbers, self.qos, self.retain = self.numbers[chosen], self.qos[chosen], self.retain[chosen]

    def own(self, name: str, taken: Any) -> Any:
        """Column `sequence`, `qos` or `retain` of all content; `taken`: the columns of its rows."""
        if self.numbers is None:
            return taken.column(name)
        return pa.array({"sequence": self.numbers, "qos": self.qos, "retain": self.retain}[name])

    @property
    def inners(self) -> list[Inner]:
        """The content as objects."""
        return self.content.rows()


class Opener:
    """Opens rows with the keys of one grants file. Keeps opened keys between batches."""

    def __init__(self, grants: Path, reader: Path | None = None, more: Sequence[Path] = ()) -> None:
        """The arguments are those of `GrantsFile`."""
        self._file = GrantsFile(grants, reader, more)
        self._grants = Grants({})
        self._keys = OpenedKeys()
        self._tokens: dict[tuple[str, str], bool] = {}
        self._names: dict[tuple[str, bytes], str | None] = {}

    @property
    def grants(self) -> Grants:
        """What the file says, as it was read last."""
        return self._grants

    @property
    def hides_topics(self) -> bool:
        """Whether wire topics may be tokens, so that only the sealed topic tells what a row is about."""
        return bool(self._grants.token_keys)

    def refresh(self, *, anew: bool = False) -> bool:
        """Read the grants file again if it changed, or `anew` in any case; whether it did. Raises GrantsError."""
        self._grants, changed = self._file.load(anew=anew)
        if changed:
            self._keys.clear()
            self._tokens.clear()
            self._names.clear()
        return changed

    def open(self, batch: Any, wanted: Any = None) -> Opened:
        """Open a batch of spool rows (whole groups), or of them the `wanted` ones. Raises nothing for bad rows."""
        rows = _Rows(batch)
        if wanted is not None:
            rows.keep(np.asarray(wanted, bool))
        if batch.column("reason").null_count < batch.num_rows or batch.column("sealed").null_count:
            told = rows.batch.column("reason")
            rows.close(lambda row: told[row].as_py() or "content: the spool holds none", _incomplete(rows.batch))
        prefixes = _prefixes(rows.batch)
        differ = ~_repeats(prefixes, rows.batch)
        if differ.any():
            rows.close(lambda _: "frame: the row is not that of its header", differ)
            prefixes = prefixes[~differ]
        keys, codes = self._keys_of(rows.batch, material_of(batch))
        shut = np.array([isinstance(key, str) for key in keys], bool)
        closed = shut[codes]
        if closed.any():
            reasons = iter([keys[code] for code in codes[closed].tolist()])
            rows.close(lambda _: next(reasons), closed)
            prefixes, codes = prefixes[~closed], codes[~closed]
        opened = self._opened(rows, prefixes, keys, codes)
        singles, batches = rows.split(np.array([is_packed(each) for each in opened], bool))
        content = self._contents(singles, [each for each in opened if not is_packed(each)])
        verdicts = self._verdicts(content, singles.batch.column("wire_topic"))
        if verdicts:
            reasons = iter(verdicts.values())
            bad = np.zeros(len(content.time_ms), bool)
            bad[list(verdicts)] = True
            singles.close(lambda _: next(reasons), bad)
            content = content.take(np.flatnonzero(~bad))
        if not batches.batch.num_rows:
            return Opened(singles.numbers, content, singles.closed)
        return self._merged(singles, content, batches, [each for each in opened if is_packed(each)])

    def _merged(self, singles: _Rows, content: Inners, batches: _Rows, opened: Sequence[bytes]) -> Opened:
        """Rows of one publication each, and the records of rows that hold batches, in order of rows."""
        rights = batches.batch.column("rights").fill_null("").dictionary_encode()
        told = rights.dictionary.to_pylist()
        records, closed = unpack(
            opened,
            batches.batch.column("sequence").to_numpy(),
            rights.indices.to_numpy().astype(np.int64),
            lambda origin, topic: self._named(told[origin], topic),
        )
        every = [*singles.closed, *batches.closed]
        every += [(int(batches.numbers[number]), reason) for number, reason in sorted(closed.items())]
        rows = np.concatenate((singles.numbers, batches.numbers[records.batches]))
        own = [singles.batch.column(name).to_numpy(zero_copy_only=False) for name in ("sequence", "qos", "retain")]
        columns = map(np.concatenate, zip(own, (records.numbers, records.qos, records.retain), strict=True))
        if not len(singles.numbers):
            return Opened(rows, records.content, every, *columns)
        order = np.argsort(rows, kind="stable")
        content = content.followed_by(records.content).take(order)
        return Opened(rows[order], content, every, *(column[order] for column in columns))

    def _named(self, rights: str, topic: bytes) -> str | None:
        """The name of a record's topic; None for what is none, or that its publisher may not use."""
        pair = (rights, topic)
        if pair not in self._names:
            if len(self._names) >= TOPICS_REMEMBERED:
                self._names.clear()
            try:
                name = topic.decode()
                check_topic(name)
                self._names[pair] = name if self._may(RecordRights.from_text(rights), name) else None
            except (UnicodeDecodeError, KeysError):  # no name, or a row without rights that can be read
                self._names[pair] = None
        return self._names[pair]

    def _may(self, rights: RecordRights, topic: str) -> bool:
        """Whether a record may have a clear topic."""
        scope = self._grants.scopes.get(rights.scope)
        key = None if scope is None else scope.token_key
        return rights.allow(topic if key is None else _hidden(topic, key))

    def _keys_of(
        self, batch: Any, materials: dict[bytes, tuple[bytes, bytes]]
    ) -> tuple[list[DataKey | str | None], Any]:
        """The keys of all rows, each once: a data key, why there is none, or None for rows that are not sealed. And
        for each row, which of them."""
        ids = batch.column("key_id").dictionary_encode()
        codes = ids.indices.to_numpy()
        firsts = np.empty(len(ids.dictionary), np.int64)
        firsts[codes[::-1]] = np.arange(len(codes))[::-1]  # of values for one place, the last one stays
        taken = batch.select(KeyUse._fields).take(pa.array(firsts))
        uses = list(map(KeyUse._make, zip(*map(values_of, taken.columns), strict=True)))
        found = iter(self._keys.get([use for use in uses if use.key_id != NO_KEY], materials, self._grants))
        return [None if use.key_id == NO_KEY else next(found) for use in uses], codes

    @staticmethod
    def _opened(rows: _Rows, prefixes: Any, keys: list[Any], codes: Any) -> list[bytes]:
        """The content of what opens; the other rows are closed."""
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

    @staticmethod
    def _contents(rows: _Rows, opened: Sequence[bytes]) -> Inners:
        """What is well-formed; the other rows are closed."""
        content, malformed = read_inners(opened)
        if malformed:
            closed = np.zeros(rows.batch.num_rows, bool)
            closed[list(malformed)] = True
            errors = iter(malformed.values())
            rows.close(lambda _: reason_of(next(errors)), closed)
        return content

    def _verdicts(self, content: Inners, wire_topics: Any) -> dict[int, str]:
        """Why content must stay closed, by its number: an odd time, or a topic that the publisher had no right to.

        It had the right to the wire topic, so the sealed topic must be the same one.
        """
        bad = {
            int(index): "content: a time beyond the year 9999"
            for index in np.flatnonzero(content.time_ms > TIME_MS_MAX)
        }
        differ = np.flatnonzero(pc.not_equal(content.topic, wire_topics).to_numpy(zero_copy_only=False))
        if len(differ):
            clear, wire = (each.take(pa.array(differ)).dictionary_encode() for each in (content.topic, wire_topics))
            count = len(wire.dictionary)
            coded = clear.indices.to_numpy().astype(np.int64) * count + wire.indices.to_numpy()
            pairs, places = np.unique(coded, return_inverse=True)
            same = [
                self._same(clear.dictionary[pair // count].as_py(), wire.dictionary[pair % count].as_py())
                for pair in pairs.tolist()
            ]
            for index in differ[~np.array(same)[places]].tolist():
                bad.setdefault(index, "content: sealed for another topic than the one on the wire")
        return dict(sorted(bad.items()))

    def _same(self, topic: str, wire_topic: str) -> bool:
        """Whether a wire topic is the token form of a clear one."""
        pair = (topic, wire_topic)
        if pair not in self._tokens:
            if len(self._tokens) >= TOPICS_REMEMBERED:
                self._tokens.clear()
            try:
                self._tokens[pair] = any(tokenise_topic(topic, key) == wire_topic for key in self._grants.token_keys)
            except KeysError:  # what was sealed is no name of a topic
                self._tokens[pair] = False
        return self._tokens[pair]


class _Rows:
    """The rows of a batch that may still open, and why the others do not."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch
        self.numbers = np.arange(batch.num_rows)
        self.closed: list[tuple[int, str]] = []

    def keep(self, kept: Any) -> None:
        """Forget the rows that nobody asked for."""
        if not kept.all():
            chosen = np.flatnonzero(kept)
            self.batch, self.numbers = self.batch.take(pa.array(chosen)), self.numbers[chosen]

    def split(self, apart: Any) -> tuple[_Rows, _Rows]:
        """These rows without some, and those; what is closed stays with the first."""
        if not apart.any():
            return self, _Rows(self.batch.slice(0, 0))
        other = _Rows(self.batch.filter(pa.array(apart)))
        other.numbers = self.numbers[apart]
        self.keep(~apart)
        return self, other

    def close(self, reason: Callable[[int], str], closed: Any) -> None:
        """`reason`: by place among the rows that were left, called in their order."""
        for place in np.flatnonzero(closed).tolist():
            self.closed.append((int(self.numbers[place]), reason(place)))
        self.keep(~closed)


class TopicSet:
    """Whether a topic matches one of some filters; remembers verdicts."""

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
    """Which of a column of topics, dictionary-encoded or not, are wanted, as numpy array: each is asked for once."""
    coded = topics.dictionary_encode()
    verdicts = np.fromiter(map(wanted, coded.dictionary.to_pylist()), bool)
    return verdicts[coded.indices.to_numpy()]


def _opened(keys: Any, prefixes: Any, topics: Any, sealed: Any) -> list[bytes | None]:
    """`DataKey.open_each` of columns: keys, headers up to their digests, framed topics, sealed content."""
    nonces = np.zeros((len(prefixes), NONCE_BYTES), np.uint8)
    nonces[:, -8:] = prefixes[:, SEQUENCE_AT : SEQUENCE_AT + 8]
    heads = np.full((len(prefixes), 1 + PREFIX_BYTES), frames.PROTOCOL_VERSION, np.uint8)
    heads[:, 1:] = prefixes
    associated = map(add, _as_bytes(heads), topics.tolist())
    return DataKey.open_each(keys.tolist(), _as_bytes(nonces), sealed.tolist(), associated)


def _hidden(topic: str, key: bytes) -> str:
    """The token form of a clear topic; of what is no name of a topic, nothing."""
    try:
        return tokenise_topic(topic, key)
    except KeysError:
        return ""


def _as_bytes(matrix: Any) -> list[bytes]:
    """The rows of a matrix of bytes."""
    return list(matrix.view(f"V{matrix.shape[1]}").ravel().tolist())


def _prefixes(batch: Any) -> Any:
    """The signed headers up to their digests, a matrix of bytes; of a shorter one zeros."""
    headers = pc.binary_slice(batch.column("header"), 0, PREFIX_BYTES)
    if pc.any(pc.less(pc.binary_length(headers), PREFIX_BYTES)).as_py():
        headers = pa.array([each.ljust(PREFIX_BYTES, b"\0") for each in headers.to_pylist()], pa.binary())
    _, offsets, data = headers.buffers()
    first = np.frombuffer(offsets, np.int32)[headers.offset] if len(headers) else 0
    whole = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return whole[first : first + len(headers) * PREFIX_BYTES].reshape(-1, PREFIX_BYTES)


def _repeats(prefixes: Any, batch: Any) -> Any:
    """Which rows have the publisher, key, sequence, QoS and retain flag that their header has."""
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
    """Key header and shares by key id: of each group, on the first row that uses each key."""
    headers = batch.column("key_header")
    if headers.null_count == len(headers):
        return {}
    having = batch.select(["key_id", "key_header", "shares"]).filter(headers.is_valid())
    key_ids, headers, shares = map(values_of, having.columns)
    if having.column("shares").null_count:
        shares = [each or b"" for each in shares]
    return dict(zip(key_ids, zip(headers, shares, strict=True), strict=True))


def values_of(column: Any) -> list[Any]:
    """Of a column, as Python objects; of bytes and text faster than `to_pylist`."""
    return list(column.to_numpy(zero_copy_only=False).tolist())


def _incomplete(batch: Any) -> Any:
    """Which rows never became whole."""
    return pc.or_(batch.column("reason").is_valid(), batch.column("sealed").is_null()).to_numpy(zero_copy_only=False)
