"""The driver's side of object storage: a micro-batch's rows are there before its tasks start, and go after them.

A repeated task reads the same object; a micro-batch that is planned again, after a crash, puts the same objects
again. At its start a query removes what an earlier process left behind its position. The file of scope
keys goes with each micro-batch for which it has changed; a file that is not sealed to an identity is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from spark_ingest.errors import SpoolGap
from spark_ingest.extents.sealed_keys import sealed_keys
from spark_ingest.extents.storage import Storage, encode_stretch, keys_name, stretch_name
from spark_ingest.options import Options
from spark_ingest.spool import ByteRange, Position, open_segment


class PlacedExtents:
    """The placed objects of a driver's process and query."""

    def __init__(self, options: Options) -> None:
        """Opens the storage. Raises IngestError."""
        assert options.extents is not None
        self._storage = Storage(options.extents, options.consumer)
        self._files = (options.grants, *options.more_grants)
        self._keys: dict[Path, bytes] = {}
        self._placed: dict[str, Position] = {}
        self._known = False

    def place(self, extents: Iterable[ByteRange]) -> None:
        """Puts the ranges that tasks are going to read. Raises IngestError.

        A missing segment is left out: the task tells the consequence.
        """
        for path in self._files:
            content = sealed_keys(path)
            if self._keys.get(path) != content:
                self._storage.put_object(keys_name(path.name), [content])
                self._keys[path] = content
        for extent in extents:
            try:
                segment = open_segment(extent.path)
            except SpoolGap:
                continue
            name = stretch_name(extent)
            self._storage.put_object(name, encode_stretch(segment.buffer, segment.first, extent.start, extent.end))
            self._placed[name] = _end(name) or Position(0, 0)

    def remove_behind(self, behind: Mapping[str, Position]) -> None:
        """Removes objects ending at or before these places, by receiver: no task reads them again. Raises
        IngestError.
        """
        if not self._known:
            found = {name: _end(name) for name in self._storage.object_names()}
            self._placed |= {name: end for name, end in found.items() if end is not None}
            self._known = True
        for name, end in list(self._placed.items()):
            if end <= behind.get(name.split("/")[0], Position(0, 0)):
                self._storage.remove_object(name)
                del self._placed[name]


def _end(name: str) -> Position | None:
    """Returns the end of an object's stretch; None for another name."""
    try:
        _, number, stretch = name.split("/")
        return Position(int(number), int(stretch.split("-")[1]))
    except (ValueError, IndexError):
        return None
