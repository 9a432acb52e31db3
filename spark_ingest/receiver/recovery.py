"""What a receiver remembers over a restart: which publications are in the spool, and the keys in use.

`state_of` is written at every roll; `recovered` puts it together with the rows that came after it. It must be
complete before the first acknowledgement: a crash between fsync and PUBACK makes every replica send again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

from spark_ingest.errors import SpoolDamaged
from spark_ingest.receiving import Keyring, Seen, materials_from_json, materials_to_json
from spark_ingest.secrets import ShareBox, ShareOpener
from spark_ingest.spool import KeyMaterial

STATE_VERSION = 2


def state_of(seen: Seen, keyring: Keyring, box: ShareBox | None = None) -> bytes:
    """For `SpoolWriter.roll`: key headers and shares as the segments hold them, sealed; no scope key, no payload."""
    materials = keyring.recent()
    keys = materials_to_json(materials if box is None else map(box.seal, materials))
    document = {"version": STATE_VERSION, "seen": seen.to_json(), "keys": keys}
    return zlib.compress(json.dumps(document).encode(), 1)


def recovered(state: bytes, batches: Iterable[Any], spool_key: bytes | None = None) -> tuple[Seen, Keyring]:
    """From the writer's `state` and `history()`. `spool_key`: of sealed shares; data keys that it does not open are not
    known any more, until their publishers tell them again. Raises SpoolDamaged for a state that is none of ours."""
    seen, keyring = Seen(), Keyring()
    opener = ShareOpener(() if spool_key is None else (spool_key,))
    if state:
        try:
            document = json.loads(zlib.decompress(state))
            if document["version"] != STATE_VERSION:
                raise ValueError("another version")
            seen = Seen.from_json(document["seen"])
            keyring.restore(opener.open_all(materials_from_json(document["keys"])))
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error):
            raise SpoolDamaged(
                "the newest .state file of the spool is unreadable; take away the spool directory and start anew"
            ) from None
    for batch in batches:
        _mark(seen, batch)
        columns = (batch.column(name).to_pylist() for name in ("key_header", "shares"))
        told = (
            KeyMaterial(header, shares or b"") for header, shares in zip(*columns, strict=True) if header is not None
        )
        keyring.restore(opener.open_all(told))
    return seen, keyring


def _mark(seen: Seen, batch: Any) -> None:
    names = ("publisher", "sequence", "wire_topic", "retain", "reason")
    for publisher, sequence, topic, retain, reason in zip(
        *(batch.column(name).to_pylist() for name in names), strict=True
    ):
        if reason is None:
            seen.mark(publisher, sequence, topic, retain)
