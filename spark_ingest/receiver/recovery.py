"""The memory of a receiver over a restart: the publications in the spool, and the keys in use.

`state_of` is written at every roll; `recovered` joins it with the rows written afterwards. The memory must be
complete before the first acknowledgement: a crash between fsync and PUBACK makes every replica send again.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from keys.identity import Identity
from spark_ingest.errors import SpoolDamaged
from spark_ingest.receiving import Lineages, Seen, materials_from_json, materials_to_json
from spark_ingest.secrets import ShareBox, ShareOpener, read_grants
from spark_ingest.spool import RememberedPart, SpooledKey

STATE_VERSION = 2
KEYS_KEPT = 4_096
"""Data keys that are known again after a restart, as many as a receiver holds."""


def state_of(seen: Seen, materials: Iterable[SpooledKey], box: ShareBox | None = None) -> bytes:
    """Returns the state for `SpoolWriter.roll`: key headers and sealed shares as in the segments; no scope key, no
    payload.
    """
    keys = materials_to_json(materials if box is None else map(box.seal, materials))
    document = {"version": STATE_VERSION, "seen": seen.to_json(), "keys": keys}
    return zlib.compress(json.dumps(document).encode(), 1)


def recovered(
    state: bytes,
    batches: Iterable[Any],
    spool_key: bytes | None = None,
    beside: Sequence[tuple[Seen, list[SpooledKey]]] = (),
    lineages: Lineages | None = None,
    now_ms: int | None = None,
) -> tuple[Seen, list[SpooledKey]]:
    """From the writer's `state` and `history()`. `spool_key`: of sealed shares; data keys that it does not open are not
    known any more, until their publishers tell them again. `beside`: what other parts say (`recovered_beside`).
    `lineages`: of publishers in the overlay that is in force. `now_ms`: a receiver begins with it now. Raises
    SpoolDamaged for a state that is none of ours."""
    seen = Seen([each for each, _ in beside])
    keys: OrderedDict[bytes, SpooledKey] = OrderedDict()  # by header, those that were told last at the end
    for _, known in beside:
        _add(keys, known)
    opener = ShareOpener(() if spool_key is None else (spool_key,))
    if state:
        try:
            document = json.loads(zlib.decompress(state))
            if document["version"] != STATE_VERSION:
                raise ValueError("another version")
            seen = Seen.from_json(document["seen"], [each for each, _ in beside])
            _add(keys, opener.open_all(materials_from_json(document["keys"])))
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error):
            raise SpoolDamaged(
                "the newest .state file of the spool is unreadable; take away the spool directory and start anew"
            ) from None
    if lineages is not None:
        seen.goes_by(lineages)
    if now_ms is not None:
        seen.begins(now_ms)
    for batch in batches:
        _mark(seen, batch)
        columns = (batch.column(name).to_pylist() for name in ("key_header", "shares"))
        told = (
            SpooledKey(header, shares or b"") for header, shares in zip(*columns, strict=True) if header is not None
        )
        _add(keys, opener.open_all(told))
    return seen, list(keys.values())


def recovered_beside(
    spool: Path,
    parts: Iterable[tuple[str, Path]],
    readers: Sequence[Identity] = (),
    lineages: Lineages | None = None,
) -> list[tuple[Seen, list[SpooledKey]]]:
    """Returns the memory of other parts of a receiver, each as (name, file of scope keys), whichever process writes
    them.

    Raises SpoolDamaged, GrantsError.
    """
    found = []
    for name, grants in parts:
        told = RememberedPart(spool / name)
        spool_keys = read_grants(grants, readers).spool_keys if grants.exists() else ()
        found.append(recovered(told.state, told.history(), next(iter(spool_keys), None), lineages=lineages))
    return found


def _add(keys: OrderedDict[bytes, SpooledKey], materials: Iterable[SpooledKey]) -> None:
    for each in materials:
        keys[each.header] = each
        keys.move_to_end(each.header)
        if len(keys) > KEYS_KEPT:
            keys.popitem(last=False)


def _mark(seen: Seen, batch: Any) -> None:
    names = ("publisher", "sequence", "wire_topic", "retain", "reason")
    for publisher, sequence, topic, retain, reason in zip(
        *(batch.column(name).to_pylist() for name in names), strict=True
    ):
        if reason is None:
            author = publisher if seen.lineages is None else seen.lineages.author(publisher, sequence)
            seen.mark_written(author, sequence, topic, retain)
