"""Packs on disk: a sealed segment once more, in runs of groups that are opened with a decryption each.

    SPOOL/RECEIVER/00000001.pack     beside 00000001.arrow

    magic (8) · bytes of the table (4) · CRC-32 of the table (4) · key slot (60) · table (JSON) · runs

A pack repeats its segment and replaces nothing: a reader that cannot use the pack reads the segment, at equal
positions.
The table names the segment and repeats its seal, so that a pack of another segment or spool is not taken for this
one's.
The table also lists the runs, and the keys under which the key of the pack is sealed. The sealed key stands in the
slot; an erased slot holds zeros.

A pack appears whole or not at all, and only while its segment exists. Not here: keys (`secrets.packbox`), the content
of a run (`opening.packed`).
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from gateway.files import written_durably
from spark_ingest.errors import SpoolDamaged, SpoolError
from spark_ingest.spool.index import SEAL_BYTES, STREAM_END
from spark_ingest.spool.segments import SegmentFile, segment_path

PACK_FORMAT = 1
SLOT_BYTES = 60
"""Nonce, key of 32 bytes, tag."""
TABLE_BYTES_MAX = 16 << 20
"""Stops a damaged length from being read without end."""
_MAGIC = b"veilpack"
_HEAD = struct.Struct(">8sII")
_SLOT_AT = _HEAD.size
_TABLE_AT = _SLOT_AT + SLOT_BYTES
_ERASED = bytes(SLOT_BYTES)
_UNFINISHED = ".{}.*.new"  # `gateway.files.written_durably` calls them so
ANEW = "it is not used, its segment is; remove it, and veilmq ingest pack makes it anew"


class PackRun(NamedTuple):
    """Groups of the segment between its bytes `begin` and `end`; `size` sealed bytes, `at` bytes behind the table."""

    begin: int
    end: int
    at: int
    size: int


@dataclass(frozen=True, slots=True)
class PackTable:
    """The table of a pack. `name`, `part`: of its segment; `seal`: the segment's seal, in hex.

    `keys`: scope, epoch and bump of each key opening a row of the segment; `tags`: of the local keys, in hex.
    """

    name: str
    part: str
    seal: str
    keys: tuple[tuple[str, int, int], ...]
    tags: tuple[str, ...]
    runs: tuple[PackRun, ...]
    format: int = PACK_FORMAT

    def encode(self) -> bytes:
        """Returns the table as JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> PackTable:
        """Reads a table. Raises ValueError, KeyError, TypeError for other bytes."""
        told = json.loads(data)
        keys = tuple((str(scope), int(epoch), int(bump)) for scope, epoch, bump in told["keys"])
        runs = tuple(PackRun(*map(int, run)) for run in told["runs"])
        name, part, seal = (str(told[each]) for each in ("name", "part", "seal"))
        tags = tuple(bytes.fromhex(tag).hex() for tag in told["tags"])
        return cls(name, part, seal, keys, tags, runs, int(told["format"]))


@dataclass(frozen=True, slots=True)
class PackFile:
    """A pack, mapped. `head`: the encoded table; `slot`: the pack's sealed key, None once it was erased."""

    path: Path
    table: PackTable
    head: bytes
    slot: bytes | None
    content: memoryview

    def sealed_run(self, run: PackRun) -> memoryview:
        """Returns the bytes of a run, not copied. Raises SpoolDamaged."""
        begin = _TABLE_AT + len(self.head) + run.at
        if run.at < 0 or run.size < 0 or begin + run.size > len(self.content):
            raise SpoolDamaged(f"{self.path} is cut short; {ANEW}")
        return self.content[begin : begin + run.size]


def pack_path(directory: Path, number: int) -> Path:
    """Returns the path of a segment's pack."""
    return segment_path(directory, number, "pack")


def sealed_end(segment: SegmentFile) -> bytes:
    """Returns the seal at the end of a segment. Raises SpoolError if it is not sealed, or of an earlier version."""
    size = segment.buffer.size
    tail: bytes = segment.buffer.slice(max(0, size - len(STREAM_END) - SEAL_BYTES)).to_pybytes()
    if segment.format < 2 or not tail.startswith(STREAM_END):
        raise SpoolError(f"{segment.path} has no seal: it is being written, or an earlier version wrote it")
    return tail[len(STREAM_END) :]


def pack_of(segment: SegmentFile) -> PackFile | None:
    """Returns the pack beside a segment, None if there is none or its key was erased.

    Raises SpoolDamaged for a pack that cannot be used.
    """
    where = Path(segment.path)
    path = where.with_suffix(".pack")
    try:
        with pa.memory_map(str(path)) as source:
            content = memoryview(source.read_buffer(source.size())).cast("B")
    except FileNotFoundError:
        return None
    except (pa.ArrowException, OSError) as error:  # an empty file cannot be mapped
        raise SpoolDamaged(f"{path} cannot be read: {error}; {ANEW}") from None
    try:
        magic, size, check = _HEAD.unpack_from(content)
        table = bytes(content[_TABLE_AT : _TABLE_AT + min(size, TABLE_BYTES_MAX)])
        if magic != _MAGIC or len(table) != size or zlib.crc32(table) != check:
            raise ValueError("another checksum")
        found = PackTable.decode(table)
    except (struct.error, ValueError, KeyError, TypeError):
        raise SpoolDamaged(f"{path} does not begin like a pack; {ANEW}") from None
    if found.format > PACK_FORMAT:
        raise SpoolDamaged(f"{path} was written by a newer version (format {found.format}); its segment is read")
    told = (segment.name, segment.part, sealed_end(segment).hex())
    if (found.name, found.part, found.seal) != told:
        raise SpoolDamaged(f"{path} is the pack of another segment ({found.name}); {ANEW}")
    slot = bytes(content[_SLOT_AT:_TABLE_AT])
    return PackFile(path, found, table, None if slot == _ERASED else slot, content)


def write_pack(
    directory: Path, number: int, table: PackTable, slot: bytes, runs: Sequence[bytes], *, alone: Callable[[], Any]
) -> bool:
    """Writes a pack beside its segment, durable on return; returns False if the segment was trimmed meanwhile.

    `slot`: the key, sealed for `table.encode()`. `alone`: a context in which nobody trims. Raises OSError.
    """
    if len(slot) != SLOT_BYTES or slot == _ERASED:
        raise SpoolError("the key slot of a pack has another size")
    head = table.encode()
    parts = [_HEAD.pack(_MAGIC, len(head), zlib.crc32(head)), slot, head, *runs]
    with written_durably(pack_path(directory, number), b"".join(parts)) as temporary, alone():
        if not segment_path(directory, number).exists():
            return False
        temporary.replace(pack_path(directory, number))
    return True


def erase_pack(directory: Path, number: int) -> bool:
    """Erases the key of a pack, then removes the pack and unfinished files of it; returns True if there was one.

    A file system may keep copies elsewhere.
    """
    path = pack_path(directory, number)
    found = _erase(path)
    for left in directory.glob(_UNFINISHED.format(path.name)):
        _erase(left)
    return found


def erase_unfinished(directory: Path) -> None:
    """Erases unfinished packs of dead processes. To be called only by the one process making packs."""
    for left in directory.glob(_UNFINISHED.format("*.pack")):
        _erase(left)


def _erase(path: Path) -> bool:
    try:
        with path.open("r+b") as file:
            file.seek(_SLOT_AT)
            file.write(_ERASED)
            file.flush()
            os.fsync(file.fileno())
    except FileNotFoundError:
        return False
    except PermissionError:
        pass  # another user's, who packed: no reason for a query to fail
    path.unlink(missing_ok=True)
    return True
