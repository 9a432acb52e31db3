"""The maker of packs: opens a whole sealed segment into runs (`packed`).

A segment with a whole row that does not open for want of a key is not packed: such a row may open later. A packer
therefore has all keys of a segment, and a reader of the pack needs them too (`secrets.packbox`). Not here: which
segments, and when (`spark_ingest.packing`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from keys.envelope import NONCE_BYTES, KeyName
from keys.epochs import KEY_BYTES
from keys.errors import KeysError
from keys.keyopening import KeyOpener
from spark_ingest.errors import GrantsError
from spark_ingest.opening.batching import joined
from spark_ingest.opening.data_keys import GRANT
from spark_ingest.opening.decode import Opened, Opener, check_written, material_of, values_of
from spark_ingest.opening.packed import PACKED, encode_run, seal_run
from spark_ingest.secrets import local_tags, seal_pack_key, tag_of
from spark_ingest.spool import PackRun, PackTable, SegmentFile, sealed_end

RUN_BYTES = 2 << 20
"""Bytes of the segment in a run, which ends with the group that reaches them."""


class PackMaker:
    """A maker of packs with the keys of an opener. `random(n)`: n unpredictable bytes."""

    def __init__(self, opener: Opener, random: Callable[[int], bytes]) -> None:
        self._opener, self._random = opener, random
        self._outlines = KeyOpener()

    def make(self, segment: SegmentFile, end: int) -> tuple[PackTable, bytes, list[bytes]]:
        """Returns table, key slot and sealed runs for a sealed segment whose last group ends at byte `end`.

        Raises GrantsError for want of a key, SpoolDamaged also for a row that was changed on disk.
        """
        key = self._random(KEY_BYTES)
        aead = AESGCM(key)
        names, tags = set[KeyName](), set[bytes]()
        runs: list[PackRun] = []
        sealed: list[bytes] = []
        begin = at = 0
        for groups in _in_runs(segment.batches(0, end)):
            batch = joined([group for group, _ in groups])
            offsets = np.repeat([until for _, until in groups], [group.num_rows for group, _ in groups])
            self._note_keys(batch, names, tags)
            sealed.append(seal_run(aead, len(sealed), self._content(batch, offsets)))
            runs.append(PackRun(begin, groups[-1][1], at, len(sealed[-1])))
            begin, at = groups[-1][1], at + len(sealed[-1])
        grants = self._opener.grants
        local = sorted(tags) or local_tags(grants)
        told = tuple(tag.hex() for tag in local)
        keys = tuple((name.scope, name.epoch, name.bump) for name in sorted(names))
        table = PackTable(segment.name, segment.part, sealed_end(segment).hex(), keys, told, tuple(runs))
        nonce = self._random(NONCE_BYTES)
        return table, seal_pack_key(grants, sorted(names), local, key, table.encode(), nonce), sealed

    def _note_keys(self, batch: Any, names: set[KeyName], tags: set[bytes]) -> None:
        """Notes the keys of these rows; rows given up by the receiver stay in the quarantine."""
        used = set(values_of(batch.column("key_id").filter(batch.column("reason").is_null())))
        for key_id, (header, shares) in material_of(batch).items():
            if key_id not in used:
                continue
            with contextlib.suppress(KeysError):  # nobody opens it
                names.add(self._outlines.outline(header).name)
            if (tag := tag_of(shares)) is not None:
                tags.add(tag)

    def _content(self, batch: Any, offsets: Any) -> bytes:
        """Returns the content of a run. Raises GrantsError, SpoolDamaged."""
        opened = self._opener.open(batch)
        check_written(batch, opened)
        told = batch.column("reason")
        for row, reason in opened.closed:
            if reason.startswith(GRANT) and told[row].as_py() is None:
                lacking = reason.removeprefix(GRANT).strip()
                raise GrantsError(f"{lacking}, which rows of it need; name the file that its receiver writes")
        closed = [(int(offsets[row]), reason) for row, reason in sorted(opened.closed)]
        return encode_run(_columns(batch, offsets, opened), closed)


def _in_runs(groups: Iterable[tuple[Any, int]]) -> Iterator[list[tuple[Any, int]]]:
    """Yields runs of groups, each group with its end."""
    held: list[tuple[Any, int]] = []
    begin = 0
    for group, end in groups:
        held.append((group, end))
        if end - begin >= RUN_BYTES:
            yield held
            held, begin = [], end
    if held:
        yield held


def _columns(batch: Any, offsets: Any, opened: Opened) -> Any:
    """Returns a batch of PACKED."""
    content = opened.content
    rows = pa.array(opened.rows, pa.int64())
    own: dict[str, Any] = {name: batch.column(name) for name in ("publisher", "received_at", "key_id", "wire_topic")}
    own = {name: values.take(rows) for name, values in own.items()}
    own |= {"sequence": pa.array(opened.numbers), "qos": pa.array(opened.qos), "retain": pa.array(opened.retain)}
    own["offset"] = pa.array(offsets[opened.rows], pa.int64())
    own |= {"topic": content.topic, "time_ms": pa.array(content.time_ms, pa.uint64())}
    own |= {"payload": content.payload, "properties": content.properties, **content.sealed}
    columns = [
        own[each.name].dictionary_encode() if pa.types.is_dictionary(each.type) else own[each.name] for each in PACKED
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED)
