"""`veilmq ingest redrive`: rows that queries passed over for want of a key, read again once the key is there.

A query with `onMissingKey=quarantine` notes which rows it passes over (`spool.ledger`). This looks which of their keys
are in the file of scope keys now, and the query reads those rows with its next micro-batch, into its own sink and under
its own checkpoint: so each of them comes once. Not here: reading them (`source`, `opening`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from spark_ingest.errors import SpoolError
from spark_ingest.opening import KeyNames
from spark_ingest.secrets import GrantsFile
from spark_ingest.spool import CONSUMERS, HeldStretch, SpoolView, as_offset, give_up, groups_of, read_place, release


def redrive(root: Path, only: str | None, grants: Path | None, identity: Path | None, *, drop: bool) -> Iterator[str]:
    """A line for each consumer of a spool that waits for keys, or the `only` one: what for, and what is released.

    `grants`: the file of scope keys; None: nothing is released. `drop`: what waits is forgotten instead. Raises
    SpoolError, GrantsError.
    """
    if not root.is_dir():
        raise SpoolError(f"{root} is no spool: there is no such directory; name the one that a receiver writes")
    names = sorted(path.stem for path in (root / CONSUMERS).glob("*.json"))
    if only is not None and only not in names:
        raise SpoolError(f"{only} reads nothing from {root}; known: {', '.join(names) or 'nobody'}")
    for name in names if only is None else [only]:
        place = read_place(root / CONSUMERS / f"{name}.json")
        if place is None or not place.ledger.held:
            continue
        keys = sorted({key for each in place.ledger.held for key in each.keys})
        if drop:
            yield f"{name}: forgot {give_up(root, name)} micro-batches that waited for {'; '.join(keys)}"
            continue
        ready = [] if grants is None else _released(root, name, place.ledger.held, GrantsFile(grants, identity))
        waits = [key for key in keys if key not in ready]
        if ready:
            yield f"{name}: reads again, with its next micro-batch, what needs {'; '.join(ready)}"
        if waits:
            yield f"{name}: still waits for {'; '.join(waits)}"


def _released(root: Path, name: str, held: Sequence[HeldStretch], file: GrantsFile) -> list[str]:
    """Names of keys that are there now."""
    grants, _ = file.load(anew=True)
    view, found = SpoolView(root), set[str]()
    for each in held:
        extents = view.ranges(as_offset(each.begin), as_offset(each.end), 1)
        ready = set(each.keys) - set(KeyNames().missing(groups_of(extents, True), grants))
        if ready:
            release(root, name, [each], ready)
            found |= ready
    return sorted(found)
