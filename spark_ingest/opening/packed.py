"""The runs of a pack: opened rows as columns, a single AES-GCM opening for thousands.

    run = AES-256-GCM(key of the pack, nonce = number of the run, content: an Arrow stream of one batch)

A row of a run is a single record from `decode`, with the columns of its spool row streaming show: the rows of a run
are handled as rows that were opened just now (`rows`). Topics, publishers, keys and wire topics are dictionaries.
Closed rows stand in the schema, with their reason; whole rows that only wait for a key keep a segment from being
packed (`packing`).

A reader that lacks a key of a segment, or finds its pack damaged, reads the segment. So do always the quarantine,
queries of some devices and queries passing over rows for want of a key: a pack lacks the columns that they need.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from keys.envelope import NONCE_BYTES
from spark_ingest.errors import SpoolDamaged, SpoolError
from spark_ingest.opening.contents import PROPERTIES, SEALED_TYPES, Contents
from spark_ingest.opening.decode import Opened
from spark_ingest.secrets import Grants, pack_key
from spark_ingest.spool import ANEW, ByteRange, PackFile, PackRun, open_segment, pack_of

_log = logging.getLogger(__name__)
_TIME = pa.timestamp("us", tz="UTC")
_TEXT, _ID = pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.binary(16))
OWN = pa.schema(
    [
        ("publisher", _ID),
        ("sequence", pa.int64()),
        ("received_at", _TIME),
        ("qos", pa.int32()),
        ("retain", pa.bool_()),
        ("key_id", _ID),
        ("wire_topic", _TEXT),
        ("offset", pa.int64()),
    ]
)
"""The columns of a spool row that streams show; `offset`: the end of its group."""
CONTENT = pa.schema(
    [
        ("topic", _TEXT),
        ("time_ms", pa.uint64()),
        ("payload", pa.binary()),
        ("properties", PROPERTIES),
        *SEALED_TYPES.items(),
    ]
)
"""The columns that were sealed."""
PACKED = pa.schema([*OWN, *CONTENT])
CLOSED = b"closed"
"""The entry in the metadata of the schema: [[offset, reason]...] as JSON."""


class PackedRows(NamedTuple):
    """The rows of a run. `group`: columns of OWN, and the place; `closed`: the reasons of closed rows, with their
    count.
    """

    group: Any
    opened: Opened
    closed: Counter[str]


def encode_run(batch: Any, closed: list[tuple[int, str]]) -> bytes:
    """Returns the content of a run. `batch`: of PACKED."""
    sink = pa.BufferOutputStream()
    schema = PACKED.with_metadata({CLOSED: json.dumps(closed)} if closed else None)
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(batch.replace_schema_metadata(schema.metadata))
    return bytes(sink.getvalue().to_pybytes())


def seal_run(key: AESGCM, number: int, content: bytes) -> bytes:
    """Returns the sealed run, as it stands in the pack."""
    return key.encrypt(number.to_bytes(NONCE_BYTES), content, None)


def packed_stretches(extent: ByteRange, grants: Grants) -> Iterator[PackedRows | ByteRange]:
    """Yields rows out of a segment's pack where possible, and ranges to read from the segment. Logs damage."""
    try:
        segment = open_segment(extent.path)
        pack = pack_of(segment)
        key = None if pack is None else pack_key(grants, pack)
    except SpoolError as error:
        if isinstance(error, SpoolDamaged):
            _log.warning("veilmq: %s", error)
        key = None  # what is wrong with the segment, whoever reads it tells
    if key is None or pack is None:
        yield extent
        return
    aead = AESGCM(key)
    at = extent.start
    for number, run in enumerate(pack.table.runs):
        if run.end <= at or run.begin >= extent.end:
            continue
        end = min(run.end, extent.end)
        try:
            rows = _opened(pack, aead, number, run, at, end)
        except SpoolDamaged as error:
            _log.warning("veilmq: %s", error)
            yield ByteRange(extent.path, at, end, extent.rows)
        else:
            yield rows
        at = end
    if at < extent.end:  # a pack that ends too soon
        yield ByteRange(extent.path, at, extent.end, extent.rows)


def _opened(pack: PackFile, key: AESGCM, number: int, run: PackRun, begin: int, end: int) -> PackedRows:
    """Returns the rows of a run whose groups end behind `begin` and not behind `end`. Raises SpoolDamaged."""
    try:
        content = key.decrypt(number.to_bytes(NONCE_BYTES), pack.sealed_run(run), None)
        with pa.ipc.open_stream(content) as stream:
            batch = stream.read_next_batch()
        if not batch.schema.equals(PACKED):
            raise ValueError("other columns")
    except (InvalidTag, pa.ArrowException, ValueError, StopIteration):
        raise SpoolDamaged(f"{pack.path} was altered in run {number}; {ANEW}") from None
    closed = json.loads((batch.schema.metadata or {}).get(CLOSED, b"[]"))
    reasons = Counter(str(reason) for offset, reason in closed if begin < offset <= end)
    if run.begin < begin or end < run.end:
        offsets = batch.column("offset").to_numpy()
        first, after = np.searchsorted(offsets, (begin, end), side="right").tolist()
        batch = batch.slice(first, after - first)
    return PackedRows(_placed(batch, pack.path), _as_opened(batch), reasons)


def _placed(batch: Any, path: Path) -> Any:
    """Returns the columns of spool rows, with their place."""
    count = batch.num_rows
    place = [pa.repeat(pa.scalar(path.parent.name), count), pa.repeat(pa.scalar(int(path.stem), pa.int64()), count)]
    columns = [batch.column(name) for name in OWN.names]
    return pa.RecordBatch.from_arrays([*columns, *place], [*OWN.names, "receiver", "segment"])


def _as_opened(batch: Any) -> Opened:
    sealed = {name: batch.column(name) for name in SEALED_TYPES}
    times = batch.column("time_ms").to_numpy()
    content = Contents(batch.column("topic"), times, batch.column("payload"), batch.column("properties"), sealed)
    numbers, qos = (batch.column(name).to_numpy() for name in ("sequence", "qos"))
    retain = batch.column("retain").to_numpy(zero_copy_only=False)
    return Opened(np.arange(batch.num_rows), content, [], numbers, qos, retain)
