"""`veilmq ingest pack`: repeats finished segments of a spool as runs, each opened with a single decryption.

Segments of slow fleets are many small batches or lone messages, and each of these costs a decryption, many of them a
key. This command opens each once, with the keys, and queries read the pack from then on (`spool.packs`). The command
may run beside receiver and queries, any number of times: segments with a pack are passed over. A pack stays as long as
its segment, whose bytes it about doubles. Not here: the content of a pack and the right to open it (`opening`,
`secrets.packbox`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from spark_ingest.errors import GrantsError, SpoolDamaged, SpoolError, SpoolGap
from spark_ingest.opening import Opener, PackMaker
from spark_ingest.spool import (
    SegmentFile,
    SegmentIndex,
    SpoolView,
    alone_packing,
    directory_bytes,
    erase_unfinished,
    nobody_trims,
    open_segment,
    pack_of,
    segment_numbers,
    segment_path,
    write_pack,
)

PACKED_PART = 0.75
"""Of a receiver's cap, segments and packs together: a spool at its cap lets its packs go, so what was packed then would
soon go again."""


class PackedSegment(NamedTuple):
    """The outcome for a segment. `refused`: the segment stays unpacked, for want of a key or because of damage."""

    told: str
    refused: bool = False


def pack(
    root: Path, grants: Path, identity: Path | None, only: str | None, cap_bytes: int | None = None
) -> Iterator[PackedSegment]:
    """Packs the finished segments of all receivers, or of the `only` one; yields an outcome for each segment without a
    pack.

    `cap_bytes`: the cap of a receiver; segments beyond `PACKED_PART` of the cap stay unpacked.

    Raises SpoolError, SpoolBusy, GrantsError.
    """
    if not root.is_dir():
        raise SpoolError(f"{root} is no spool: there is no such directory; name the one that a receiver writes")
    names = SpoolView(root).receivers()
    if only is not None and only not in names:
        raise SpoolError(f"no receiver {only} writes into {root}; known: {', '.join(names) or 'nobody'}")
    opener = Opener(grants, identity)
    maker = PackMaker(opener, os.urandom)
    most = float("inf") if cap_bytes is None else PACKED_PART * cap_bytes
    with alone_packing(root):
        for name in names if only is None else [only]:
            erase_unfinished(root / name)
            for number in segment_numbers(root / name):
                opener.refresh()  # the receiver may have learned a key meanwhile
                found = _packed(root, name, number, maker, most)
                if found is not None:
                    yield found


def _packed(root: Path, name: str, number: int, maker: PackMaker, most: float) -> PackedSegment | None:
    """`most`: bytes the receiver's part may have then."""
    directory = root / name
    try:
        index = SegmentIndex(directory, number)
        groups = index.groups()
        if index.times is None or not groups:  # still written, of an earlier version, or empty
            return None
        segment = open_segment(str(segment_path(directory, number)))
        if _has_pack(segment) or directory_bytes(directory) + segment.buffer.size > most:  # a pack is about as large
            return None
        table, slot, runs = maker.make(segment, groups[-1].end)
        written = write_pack(directory, number, table, slot, runs, alone=partial(nobody_trims, root))
    except SpoolGap:
        return None  # trimmed meanwhile
    except (GrantsError, SpoolDamaged) as error:
        return PackedSegment(f"{name} {number}: not packed: {error}", True)
    if not written:
        return None
    rows, size = sum(group.rows for group in groups), sum(map(len, runs))
    return PackedSegment(f"{name} {number}: packed, {rows:,} rows of the spool, {size:,} bytes")


def _has_pack(segment: SegmentFile) -> bool:
    try:
        found = pack_of(segment)
    except SpoolDamaged:
        return False  # it is made anew
    return found is not None and found.slot is not None
