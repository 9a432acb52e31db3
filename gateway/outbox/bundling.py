"""Which publications of one commit share a row: those that go into one batch (`bridge.contract.packed`).

One row is one batch for good: after a restart it is sealed and sent as the same one. Not here: who decides where a
publication's batches go (`outgoing`), the disk (`database`).
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.contract import BATCH_BYTES, RECORDS_MAX, Numbered, packed, size_of
from gateway.outbox.database import StoredRow, encode_publication


def bundled(rows: Sequence[StoredRow]) -> list[StoredRow]:
    """Rows that name a batch topic, put together; the others as they are. In order of the first number of each."""
    done: list[StoredRow] = []
    open_: dict[str, tuple[list[StoredRow], int]] = {}
    for row in rows:
        if row.batch is None:
            done.append(row)
            continue
        members, held = open_.get(row.batch, ([], 0))
        size = size_of(row.publication)
        if members and (len(members) >= RECORDS_MAX or held + size > BATCH_BYTES):
            done.append(_together(members))
            members, held = [], 0
        members.append(row)
        open_[row.batch] = members, held + size
    done += [_together(members) for members, _ in open_.values()]
    return sorted(done, key=lambda row: row.sequence)


def _together(members: Sequence[StoredRow]) -> StoredRow:
    first = members[0]
    assert first.batch is not None
    batch = packed(first.batch, [Numbered(row.sequence, row.publication) for row in members])
    sequences = tuple([row.sequence for row in members])
    return StoredRow(first.sequence, first.batch, batch.qos, encode_publication(batch), batch, sequences=sequences)
