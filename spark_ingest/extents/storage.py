"""Object storage between a driver and executors that share nothing else: where it is, and what lies there.

    URL/CONSUMER/RECEIVER/00000007/START-END     a stretch of a segment, as `encode_stretch` has it
    URL/CONSUMER/keys/NAME                       the sealed file of scope keys of that name

Objects are written once and never grow, so a driver puts there what a micro-batch reads when it plans it (`placing`),
and tasks get it (`fetching`). All of it is sealed, as it is on disk. S3, GCS, ABFS and HDFS are spoken by pyarrow; any
other storage by fsspec, if that is installed: `fsspec+PROTOCOL://...`. Keys of a bucket come from where that library
looks for them (the environment, a role), never from an option. Not here: when what is put and taken away.
"""

from __future__ import annotations

import struct
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from spark_ingest.errors import IngestError
from spark_ingest.options import FSSPEC
from spark_ingest.spool import ByteRange

_HEAD = struct.Struct(">8sQQ")
_MAGIC = b"veilext1"
OBJECT_BYTES_MAX = 1 << 34
"""A task's stretch is far smaller; what is larger is not read into memory."""


class StretchTold(NamedTuple):
    """What an object holds. `size`: of the segment; `head`: what the segment begins with; `data`: from `start` on."""

    size: int
    start: int
    head: memoryview
    data: memoryview


class Storage:
    """One consumer's place in a storage. Raises IngestError, one line, for whatever the storage says."""

    def __init__(self, url: str, consumer: str) -> None:
        self._url = url
        try:
            self._files, root = _opened(url)
        except (pa.ArrowException, OSError, ImportError, ValueError) as error:
            raise self._trouble(error) from None
        self._root = PurePosixPath(root) / consumer

    def put(self, name: str, parts: list[Any]) -> None:
        """An object, whole or not at all where the storage is an object store; in place of one of that name."""
        path = str(self._root / name)
        try:
            try:
                self._write(path, parts)
            except FileNotFoundError:  # no object store, and the directory is not there yet
                self._files.create_dir(str(PurePosixPath(path).parent), recursive=True)
                self._write(path, parts)
        except (pa.ArrowException, OSError) as error:
            raise self._trouble(error) from None

    def _write(self, path: str, parts: list[Any]) -> None:
        with self._files.open_output_stream(path) as out:
            for part in parts:
                out.write(part)

    def get(self, name: str) -> memoryview | None:
        """The content of an object; None if there is none."""
        try:
            with self._files.open_input_file(str(self._root / name)) as source:
                if source.size() > OBJECT_BYTES_MAX:
                    raise OSError(f"{name} is too large")
                return memoryview(source.read_buffer(source.size()))
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError) as error:
            raise self._trouble(error) from None

    def remove(self, name: str) -> None:
        """An object; nothing, if there is none."""
        try:
            self._files.delete_file(str(self._root / name))
        except FileNotFoundError:
            return
        except (pa.ArrowException, OSError) as error:
            raise self._trouble(error) from None

    def names(self) -> list[str]:
        """All objects of this consumer."""
        try:
            found = self._files.get_file_info(fs.FileSelector(str(self._root), allow_not_found=True, recursive=True))
        except (pa.ArrowException, OSError) as error:
            raise self._trouble(error) from None
        files = (PurePosixPath(each.path) for each in found if each.type is fs.FileType.File)
        return sorted(str(path)[len(str(self._root)) + 1 :] for path in files)

    def _trouble(self, error: Exception) -> IngestError:
        told = (str(error) or type(error).__name__).splitlines()[0][:300]
        return IngestError(
            f"extents={self._url}: {told}; driver and executors need this storage, and the right to it from their "
            "environment or role"
        )


def _opened(url: str) -> tuple[Any, str]:
    """A file system of pyarrow's, and the path within."""
    if not url.startswith(FSSPEC):
        files, root = fs.FileSystem.from_uri(url)
        return files, str(root)
    fsspec = import_module("fsspec")  # only who names it needs it
    files, root = fsspec.core.url_to_fs(url.removeprefix(FSSPEC))
    return fs.PyFileSystem(fs.FSSpecHandler(files)), str(root)


def stretch_name(extent: ByteRange) -> str:
    """Of the object with what a task reads of a segment."""
    segment = PurePosixPath(extent.path)
    return f"{segment.parent.name}/{segment.stem}/{extent.start}-{extent.end}"


def keys_name(name: str) -> str:
    """Of the object with a file of scope keys."""
    return f"keys/{name}"


def encode_stretch(buffer: Any, first: int, start: int, end: int) -> list[Any]:
    """The parts of an object, not copied: of a segment (its bytes) whose first group begins at `first`, bytes `start`
    to `end`."""
    size = buffer.size
    start, end = max(start, first), min(end, size)
    head = _HEAD.pack(_MAGIC, size, start) + first.to_bytes(8)
    return [head, buffer.slice(0, first), buffer.slice(start, max(0, end - start))]


def decode_stretch(content: memoryview) -> StretchTold:
    """The inverse. Raises ValueError for what is none: it comes from the network."""
    at = _HEAD.size + 8
    if len(content) < at:
        raise ValueError("cut short")
    magic, size, start = _HEAD.unpack_from(content)
    first = int.from_bytes(content[_HEAD.size : at])
    data = content[at + first :]
    if magic != _MAGIC or first > len(content) - at or not first <= start or start + len(data) > size:
        raise ValueError("no stretch of a segment")
    return StretchTold(size, start, content[at : at + first], data)
