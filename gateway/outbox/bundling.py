"""Bundles of publications of a commit: consecutive publications of a scope share a row, up to the size of a batch
(`bridge.contract.packed`).

A row stays a single batch for good: after a restart the same batch is sealed and sent. A retained publication has a
row of its own. The row remembers if its scope was plain then. Not here: the names of chains (`outgoing`), the disk
(`database`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bridge.contract import Numbered, packed
from gateway.outbox.database import StoredRow, encode_publication


def bundled(rows: Sequence[StoredRow]) -> list[StoredRow]:
    """Returns rows without a frame bundled, and all others unchanged, in order of the first number of each."""
    done: list[StoredRow] = []
    open_: dict[str, tuple[list[StoredRow], int, int]] = {}
    for row in rows:
        if row.frame:
            if row.chain.name in open_:  # keeps the order: earlier rows go first
                done.append(_together(open_.pop(row.chain.name)[0]))
            done.append(row)
            continue
        members, count, held = open_.get(row.chain.name, ([], 0, 0))
        full = count + row.publications > row.chain.records or held + row.size > row.chain.bytes
        if members and (full or members[0].chain.in_clear is not row.chain.in_clear):
            done.append(_together(members))
            members, count, held = [], 0, 0
        members.append(row)
        open_[row.chain.name] = members, count + row.publications, held + row.size
    done += [_together(members) for members, *_ in open_.values()]
    return sorted(done, key=lambda row: row.sequence)


def _together(members: Sequence[StoredRow]) -> StoredRow:
    first = members[0]
    records: list[Numbered] = []
    for row in members:
        records += map(Numbered, itertools.count(row.sequence), row.run or (row.publication,))
    batch = packed(first.chain.name, records, first.chain.in_clear)
    sequences, topics = tuple([row.sequence for row in members]), {each.publication.topic for each in records}
    frame = encode_publication(batch)
    return StoredRow(first.sequence, first.chain, batch.qos, frame, batch, sequences=sequences, topics=topics)
