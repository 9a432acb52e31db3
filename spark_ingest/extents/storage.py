"""Object storage between a driver and executors sharing nothing else: its address and its objects.

    URL/CONSUMER/RECEIVER/00000007/START-END     a stretch of a segment, as `encode_stretch` has it
    URL/CONSUMER/keys/NAME                       the sealed file of scope keys of that name

Objects are written once and never grow, so a driver puts a micro-batch's rows there when it plans the batch
(`placing`),
and tasks get them (`fetching`). All of it is sealed, as on disk. pyarrow speaks S3, GCS, ABFS and HDFS; fsspec, if
installed, any other storage: `fsspec+PROTOCOL://...`. Keys of a bucket come from the library's usual places
(the environment, a role), never from an option. Not here: when objects are put and removed.
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
"""A task's stretch is far smaller; a larger object is not read into memory."""


class StretchTold(NamedTuple):
    """The content of an object. `size`: of the segment; `head`: the segment's first bytes; `data`: from `start` on."""

    size: int
    start: int
    head: memoryview
    data: memoryview


class Storage:
    """A consumer's place in a storage. Raises IngestError, a line, for every error of the storage."""

    def __init__(self, url: str, consumer: str) -> None:
        self._url = url
        try:
            self._files, root = _opened(url)
        except (pa.ArrowException, OSError, ImportError, ValueError) as error:
            raise self._trouble(error) from None
        self._root = PurePosixPath(root) / consumer

    def put_object(self, name: str, parts: list[Any]) -> None:
        """Puts an object, replacing one of that name; whole or not at all where the storage is an object store."""
        path = str(self._root / name)
        try:
            try:
                self._write_object(path, parts)
            except FileNotFoundError:  # no object store, and the directory is not there yet
                self._files.create_dir(str(PurePosixPath(path).parent), recursive=True)
                self._write_object(path, parts)
        except (pa.ArrowException, OSError) as error:
            raise self._trouble(error) from None

    def _write_object(self, path: str, parts: list[Any]) -> None:
        with self._files.open_output_stream(path) as out:
            for part in parts:
                out.write(part)

    def get_object(self, name: str) -> memoryview | None:
        """Returns the content of an object; None if there is none."""
        try:
            with self._files.open_input_file(str(self._root / name)) as source:
                if source.size() > OBJECT_BYTES_MAX:
                    raise OSError(f"{name} is too large")
                return memoryview(source.read_buffer(source.size()))
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError) as error:
            raise self._trouble(error) from None

    def remove_object(self, name: str) -> None:
        """Removes an object, if there is one."""
        try:
            self._files.delete_file(str(self._root / name))
        except FileNotFoundError:
            return
        except (pa.ArrowException, OSError) as error:
            raise self._trouble(error) from None

    def object_names(self) -> list[str]:
        """Returns all objects of this consumer."""
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
    """Returns a file system of pyarrow's, and the path within."""
    if not url.startswith(FSSPEC):
        files, root = fs.FileSystem.from_uri(url)
        return files, str(root)
    fsspec = import_module("fsspec")  # only who names it needs it
    files, root = fsspec.core.url_to_fs(url.removeprefix(FSSPEC))
    return fs.PyFileSystem(fs.FSSpecHandler(files)), str(root)


def stretch_name(extent: ByteRange) -> str:
    """Returns the name of the object with a task's stretch of a segment."""
    segment = PurePosixPath(extent.path)
    return f"{segment.parent.name}/{segment.stem}/{extent.start}-{extent.end}"


def keys_name(name: str) -> str:
    """Returns the name of the object with a file of scope keys."""
    return f"keys/{name}"


def encode_stretch(buffer: Any, first: int, start: int, end: int) -> list[Any]:
    """Returns the parts of an object, not copied: bytes `start` to `end` of a segment whose first group begins at
    `first`.
    """
    size = buffer.size
    start, end = max(start, first), min(end, size)
    head = _HEAD.pack(_MAGIC, size, start) + first.to_bytes(8)
    return [head, buffer.slice(0, first), buffer.slice(start, max(0, end - start))]


def decode_stretch(content: memoryview) -> StretchTold:
    """Reads an object, which comes from the network. Raises ValueError for other bytes."""
    at = _HEAD.size + 8
    if len(content) < at:
        raise ValueError("cut short")
    magic, size, start = _HEAD.unpack_from(content)
    first = int.from_bytes(content[_HEAD.size : at])
    data = content[at + first :]
    if magic != _MAGIC or first > len(content) - at or not first <= start or start + len(data) > size:
        raise ValueError("no stretch of a segment")
    return StretchTold(size, start, content[at : at + first], data)
