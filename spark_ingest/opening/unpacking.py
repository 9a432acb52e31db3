"""The records of opened batches as columns (the form: `keys.records`).

The contents of many batches lie in a single buffer. Every section of a content begins at a multiple of 8 bytes, so
numpy reads the columns of all of them in place, and Arrow gets topics and payloads by their offsets: no loop over
records runs. A content whose structure fails is read again by `Records.decode`, and the extras of a record by
`Extras.decode`, which tell the cause; a fault of a record closes that record alone. Not here: opening.

The extras of many records as columns (the form: `keys.records.Extras`): properties, sealed properties, numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.wire import NUL, has_expired, is_of_a_time, is_topic
from keys.errors import BadFrame, KeysError
from keys.message import PROPERTIES_LIMIT, SEALED
from keys.records import (
    DROPPED,
    EXPIRY,
    FILL_MAX,
    HAS_EXTRAS,
    HEAD_BYTES,
    NUMBER,
    NUMBER_MAX,
    PROPERTIES,
    QOS,
    RECORD_FLAGS,
    RECORDS_MAX,
    RETAIN,
    VERSION,
    Extras,
    Records,
)
from spark_ingest.opening.contents import Contents, Walk, pieces, property_lists, read_sealed


class ExtrasColumns(NamedTuple):
    """The extras of all records. `sealed`: by the names of `keys.message.SEALED`; `numbers`, `expiry_s`: int64, -1 for
    none.
    """

    sealed: Mapping[str, Any]
    properties: Any
    numbers: Any
    expiry_s: Any

    def unfit(self) -> Any:
        """Returns records with a text that would break a receiver's connection, or with an invalid response topic."""
        replies = self.sealed["response_topic"].dictionary_encode()
        wrong = np.array([not is_topic(name) for name in replies.dictionary.to_pylist()], bool)
        unfit = np.zeros(len(self.numbers), bool)
        if wrong.any():
            unfit |= wrong[replies.indices.fill_null(0).to_numpy()] & replies.is_valid().to_numpy(False)
        unfit |= _have_nul(self.sealed["content_type"])
        pairs = self.properties.flatten()
        if len(pairs):
            owners = np.repeat(np.arange(len(unfit)), np.diff(self.properties.offsets.to_numpy()))
            for texts in pairs.flatten():
                unfit[owners[_have_nul(texts)]] = True
        return unfit


def read_extras(
    data: bytes, begins: Any, ends: Any, chosen: Any, count: int
) -> tuple[ExtrasColumns, dict[int, KeysError]]:
    """Returns the extras of `count` records, and the errors of some. The `chosen` records have extras in `data`."""
    try:
        return _columns(data, begins, ends, chosen, count), {}
    except (BadFrame, pa.ArrowInvalid):
        pass
    bad: dict[int, KeysError] = {}
    for at, begin, end in zip(chosen.tolist(), begins.tolist(), ends.tolist(), strict=True):
        try:
            Extras.decode(data[begin:end])
        except KeysError as error:
            bad[at] = error
    good = ~np.isin(chosen, list(bad))
    return _columns(data, begins[good], ends[good], chosen[good], count), bad


def _have_nul(texts: Any) -> Any:
    return pc.match_substring(texts, NUL).fill_null(False).to_numpy(zero_copy_only=False)


def _columns(data: bytes, begins: Any, ends: Any, chosen: Any, count: int) -> ExtrasColumns:
    """Returns the extras as columns. Raises BadFrame, or ArrowInvalid for invalid UTF-8."""
    walk = Walk(data, begins, ends)
    flags = walk.number(1).astype(np.uint8)
    if np.any((flags == 0) | (flags & 128 != 0)):
        raise BadFrame("extras of unknown flags")
    expiry_s = np.full(count, -1, np.int64)
    expiring = walk.some(flags & EXPIRY)
    expiry_s[chosen[expiring.chosen]] = expiring.number(4).astype(np.int64)
    sealed = read_sealed(walk, [flags & each.flag for each in SEALED], chosen, count)
    numbers = np.full(count, -1, np.int64)
    numbered = walk.some(flags & NUMBER)
    found = numbered.number(8)
    if np.any(found > NUMBER_MAX):
        raise BadFrame("a number that no record has")
    numbers[chosen[numbered.chosen]] = found.astype(np.int64)
    having = walk.some(flags & PROPERTIES)
    lengths = np.zeros(len(begins), np.int64)
    lengths[having.chosen] = having.number(2)
    if np.any(lengths[having.chosen] < 1) or np.any(lengths > PROPERTIES_LIMIT):
        raise BadFrame("no user properties, or too many")
    properties = property_lists(walk, lengths, chosen, count)
    walk.finish()
    return ExtrasColumns(sealed, properties, numbers, expiry_s)


NOT_ITS_OWN = "content: a record on a topic that its publisher may not use in this scope, or of no time"
UNFIT = "content: a record with a text that no MQTT client may get"
EXPIRED = "content: a record came after its deadline"
TABLE_FACTOR = 8
"""Up to so many entries for a value, a table of counts is quicker than sorting."""
_KNOWN_FLAGS = np.isin(np.arange(256), np.frombuffer(RECORD_FLAGS, np.uint8))

Named = Callable[[int, bytes], str | None]


class RecordColumns(NamedTuple):
    """Columns of records, in order. `batches`: the number of each record's batch."""

    batches: Any
    numbers: Any
    qos: Any
    retain: Any
    content: Contents


def unpack(
    contents: Sequence[bytes], firsts: Any, origins: Any, retained: Any, arrived_ms: Any, named: Named
) -> tuple[RecordColumns, dict[int, str]]:
    """Returns the records of batches, and the reasons of omitted ones, by batch.

    `firsts`: the number of each batch's first record. `origins`: numbers, equal for batches whose publishers have
    equal rights. `retained`: batches that are a single retained record. `arrived_ms`: times of arrival. `named(origin,
    topic)`: the topic as text, None if the origin may not use it; asked once for each pair.
    """
    closed: dict[int, str] = {}
    kept = np.arange(len(contents))
    while (columns := _Columns([contents[number] for number in kept.tolist()])).bad.any():
        for number in kept[columns.bad].tolist():
            closed[number] = _why(contents[number])
        kept = kept[~columns.bad]
    topics, own_topic = columns.named_topics(origins[kept], named)
    batches = kept[columns.owner]
    counted = columns.flags & DROPPED != 0
    chosen = np.flatnonzero((columns.flags & HAS_EXTRAS != 0) & ~counted)
    extras, unreadable = read_extras(columns.data, *columns.extras_of(chosen), chosen, len(counted))
    own = np.where(extras.numbers < 0, firsts[batches] + columns.place, extras.numbers)
    alone = retained[batches]
    fits = ((columns.flags & RETAIN != 0) == alone) & (
        ~alone | (columns.counts[columns.owner] == 1) & (own == firsts[batches])
    )
    readable = np.ones(len(counted), bool)
    readable[list(unreadable)] = False
    good = ~counted & readable
    closed |= {int(batches[at]): f"frame: {error}" for at, error in unreadable.items()}
    expired = has_expired(columns.times, extras.expiry_s, arrived_ms[batches]) & (extras.expiry_s >= 0)
    in_its_place = own_topic & fits & is_of_a_time(columns.times)
    for holds, reason in ((in_its_place, NOT_ITS_OWN), (~extras.unfit(), UNFIT), (~expired, EXPIRED)):
        closed |= dict.fromkeys(batches[good & ~holds].tolist(), reason)
        good &= holds
    times = columns.times.astype(np.uint64)
    content = Contents(topics, times, columns.payloads(), extras.properties, extras.sealed)
    qos, retain = (columns.flags & QOS).astype(np.int32), columns.flags & RETAIN != 0
    if good.all():
        return RecordColumns(batches, own, qos, retain, content), closed
    some = np.flatnonzero(good)
    return RecordColumns(batches[some], own[some], qos[some], retain[some], content.take_rows(some)), closed


def _why(content: bytes) -> str:
    try:
        Records.decode(content)
    except BadFrame as error:
        return f"frame: {error}"
    raise AssertionError("columns refuse what records take")


class _Columns:
    """Columns of the records of many contents. `bad`: contents whose structure fails; no other field holds then.

    `owner`: each record's content, `place`: its place there. Names ending in `at` are places in `data`.
    """

    def __init__(self, contents: Sequence[bytes]) -> None:
        self._contents = contents
        self._sizes = np.fromiter(map(len, contents), np.int64, len(contents))
        self.bad = (self._sizes < HEAD_BYTES) | (self._sizes % 8 != 0)
        for look in (self._heads, self._columns, self._padding, self._names):
            if not self.bad.any():
                look()

    def _heads(self) -> None:
        self.data = b"".join(self._contents)
        self._bytes = np.frombuffer(self.data, np.uint8)
        self._shorts, self._longs = self._bytes.view("<u2"), self._bytes.view("<u4")
        self._at = np.cumsum(self._sizes) - self._sizes
        head, long = self._at // 2, self._at // 4
        self.counts, self._topics = (self._shorts[head + at].astype(np.int64) for at in (1, 2))
        self._extras_bytes, self._payloads_bytes = (self._longs[long + at].astype(np.int64) for at in (2, 3))
        counts, topics = self.counts, self._topics
        self.bad = (self._shorts[head] != VERSION) | (self._shorts[head + 3] != 0)
        self.bad |= (counts < 1) | (counts > RECORDS_MAX) | (topics < 1) | (topics > counts)
        widths = ((1, counts), (8, counts), (2, counts), (4, counts), (4, counts), (2, topics))
        begin, self._fixed, self._used = self._at + HEAD_BYTES, [], []
        for width, rows in widths:
            self._fixed.append(begin)
            self._used.append(begin + width * rows)
            begin = _padded(self._used[-1])
        self._topics_at = begin
        self.bad |= self._sizes < begin - self._at

    def _columns(self) -> None:
        flags, times, indexes, extras, payloads, names = self._fixed
        self.owner, self.place = _ragged(self.counts)
        self.flags = self._bytes[flags[self.owner] + self.place]
        self.times = self._bytes.view("<i8")[(times // 8)[self.owner] + self.place]
        self._indexes = self._shorts[(indexes // 2)[self.owner] + self.place].astype(np.int64)
        self._extras = self._longs[(extras // 4)[self.owner] + self.place].astype(np.int64)
        self._payloads = self._longs[(payloads // 4)[self.owner] + self.place].astype(np.int64)
        self._name_owner, place = _ragged(self._topics)
        self._name_lengths = self._shorts[(names // 2)[self._name_owner] + place].astype(np.int64)
        self._used.append(self._topics_at + _sums(self._name_lengths, self._topics))
        self._extras_at = _padded(self._used[-1])
        self._used.append(self._extras_at + self._extras_bytes)
        self._payloads_at = _padded(self._used[-1])
        self._used.append(self._payloads_at + self._payloads_bytes)
        self.bad = _sums(self._extras, self.counts) != self._extras_bytes
        self.bad |= _sums(self._payloads, self.counts) != self._payloads_bytes
        self._filled = self._at + self._sizes - _padded(self._used[-1])
        self.bad |= (self._filled < 0) | (self._filled >= FILL_MAX)
        odd = (self._indexes >= self._topics[self.owner]) | (self.times < 0) | ~_KNOWN_FLAGS[self.flags]
        odd |= (self.flags & HAS_EXTRAS != 0) != (self._extras > 0)
        self.bad[self.owner[odd]] = True

    def _padding(self) -> None:
        """Checks for zeros behind each section, up to the next multiple of 8."""
        words = self._bytes.view("<u8")
        if self._filled.any():
            owner, place = _ragged(self._filled // 8)
            self.bad[owner[words[(_padded(self._used[-1]) // 8)[owner] + place] != 0]] = True
        for end in self._used:
            left = end % 8
            rest = words[(end - left - 8 * (left == 0)) // 8] >> (left * 8).astype(np.uint64)
            self.bad |= (left != 0) & (rest != 0)

    def _names(self) -> None:
        ends = _ends(self._name_lengths, self._name_owner, self._topics, self._topics_at)
        coded = pieces(self.data, ends - self._name_lengths, ends).dictionary_encode()
        self._codes = coded.indices.to_numpy().astype(np.int64)
        self._distinct: list[bytes] = coded.dictionary.to_pylist()
        count = max(1, len(self._distinct))
        self.bad[_repeated(self._name_owner * count + self._codes, len(self.bad) * count) // count] = True

    def named_topics(self, origins: Any, named: Named) -> tuple[Any, Any]:
        """Returns topics of records as text, and the records that have a name."""
        count = max(1, len(self._distinct))
        pairs = pa.array(origins[self._name_owner] * count + self._codes).dictionary_encode()
        found = [named(pair // count, self._distinct[pair % count]) for pair in pairs.dictionary.to_pylist()]
        names = pa.array([name or "" for name in found], pa.string())
        at = pairs.indices.to_numpy()[(np.cumsum(self._topics) - self._topics)[self.owner] + self._indexes]
        return names.take(pa.array(at)), np.array([name is not None for name in found], bool)[at]

    def extras_of(self, chosen: Any) -> tuple[Any, Any]:
        """Returns begins and ends of the extras of some records."""
        ends = _ends(self._extras, self.owner, self.counts, self._extras_at)[chosen]
        return ends - self._extras[chosen], ends

    def payloads(self) -> Any:
        """Returns all payloads, as binary array."""
        begins = self._payloads_at
        joined = pieces(self.data, begins, begins + self._payloads_bytes)  # of each content, one behind the other
        offsets = np.zeros(len(self.owner) + 1, np.int32)
        np.cumsum(self._payloads, out=offsets[1:])
        return pa.BinaryArray.from_buffers(
            pa.binary(), len(self.owner), [None, pa.py_buffer(offsets), joined.buffers()[2]]
        )


def _padded(size: Any) -> Any:
    return -(-size // 8) * 8


def _ragged(counts: Any) -> tuple[Any, Any]:
    """Returns, for `counts[i]` rows each, every row's i and its place there."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]


def _repeated(values: Any, limit: int) -> Any:
    """Returns the values below `limit` occurring more than once."""
    if limit <= TABLE_FACTOR * len(values) + 4096:
        return np.flatnonzero(np.bincount(values, minlength=limit) > 1)
    values.sort()
    return values[1:][values[1:] == values[:-1]]


def _sums(values: Any, counts: Any) -> Any:
    """Returns the sums of `counts[i]` values each."""
    sums = np.concatenate(([0], np.cumsum(values)))
    ends = np.cumsum(counts)
    return sums[ends] - sums[ends - counts]


def _ends(lengths: Any, owner: Any, counts: Any, begins: Any) -> Any:
    """Returns the ends of consecutive stretches, of each owner from its begin on."""
    sums = np.concatenate(([0], np.cumsum(lengths)))
    return sums[1:] - sums[np.cumsum(counts) - counts][owner] + begins[owner]
