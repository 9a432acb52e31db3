"""An executor's side: copies of a task's part of a spool and of the file of scope keys, kept while the task runs.

They come from `veilmq ingest serve`, or out of a storage where the driver has put them.

The rest of an executor works as on a shared directory: it gets ranges of local files. These hold only the requested
ranges, in their places, still sealed, in Spark's scratch directory of this executor; they go when the task
ends. The sealed file of scope keys is fetched again before each task, so that keys need no other way to executors.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from gateway.files import write_durably
from spark_ingest.errors import GrantsError, IngestError
from spark_ingest.extents.credentials import HOST, tls_of
from spark_ingest.extents.storage import Storage, decode_stretch, keys_name, stretch_name
from spark_ingest.extents.tickets import META_SIZE, KeysTicket, SegmentTicket
from spark_ingest.options import Options
from spark_ingest.secrets import GRANTS_BYTES_MAX, load_readers
from spark_ingest.spool import ByteRange

CALL_S = 300.0
"""Patience with one segment or file; Spark repeats a task that did not get it."""
FILE_BYTES_MAX = 1 << 40
"""No segment is as large: a greater size is not believed."""


class FetchedExtents:
    """The fetched copies of a worker process and set of options. `options`: adapted for reading the copies."""

    def __init__(self, options: Options) -> None:
        """Makes a scratch directory; connects at the first use. Raises OSError."""
        assert options.extents is not None
        assert options.grants_identity is not None
        self._address, self._identity = options.extents, options.grants_identity
        self._places, self._consumer = options.places, options.consumer
        self._directory = Path(tempfile.mkdtemp(prefix="veilmq-", dir=_scratch()))
        self._keys = [self._directory / path.name for path in (options.grants, *options.more_grants)]
        self.options = replace(options, grants=self._keys[0], more_grants=tuple(self._keys[1:]), extents=None)
        self._client: Any = None

    def renew_grants(self) -> None:
        """Fetches the files of scope keys. Raises IngestError."""
        for path in self._keys:
            content = bytearray()
            size = 0
            for size, at, data in self._keys_of(path.name):
                if at != len(content) or not at + len(data) <= size <= GRANTS_BYTES_MAX:
                    raise self._trouble("sent something else than was asked for")
                content += data
            if not content or len(content) != size:
                raise GrantsError(f"grants={path.name}: nothing of it came from {self._address}")
            if not path.exists() or path.read_bytes() != content:
                write_durably(path, bytes(content))

    @contextlib.contextmanager
    def held_copies(self, extents: Sequence[ByteRange]) -> Iterator[tuple[ByteRange, ...]]:
        """Yields these ranges as ranges of local files, which go at the end. Raises IngestError."""
        directory = Path(tempfile.mkdtemp(prefix="task-", dir=self._directory))
        try:
            yield tuple(self._fetched(extent, directory) for extent in extents)
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        """Closes the connection and removes all copies."""
        self._hang_up()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _fetched(self, extent: ByteRange, directory: Path) -> ByteRange:
        """Returns a range of a local copy. A missing segment leaves no file: its reader tells the consequence."""
        there = Path(extent.path)
        here = directory / there.parent.name / there.name
        here.parent.mkdir(exist_ok=True)
        for size, at, data in self._stretch(extent, there):
            if not 0 <= at <= at + len(data) <= size <= FILE_BYTES_MAX:
                raise self._trouble("sent something else than was asked for")
            with here.open("r+b" if here.exists() else "w+b") as file:
                file.truncate(size)  # of a segment that grows
                file.seek(at)
                file.write(data)
        return ByteRange(str(here), extent.start, extent.end, extent.rows)

    def _keys_of(self, name: str) -> Iterator[tuple[int, int, Any]]:
        if not self._places:
            yield from self._get(KeysTicket(name).encode())
        elif (content := self._stored().get_object(keys_name(name))) is not None:
            yield len(content), 0, content

    def _stretch(self, extent: ByteRange, there: Path) -> Iterator[tuple[int, int, Any]]:
        if not self._places:
            yield from self._get(SegmentTicket(there.parent.name, int(there.stem), extent.start, extent.end).encode())
        elif (content := self._stored().get_object(stretch_name(extent))) is not None:
            try:
                told = decode_stretch(content)
            except ValueError as error:
                raise self._trouble(f"{stretch_name(extent)}: {error}") from None
            yield told.size, 0, told.head
            yield told.size, told.start, told.data

    def _stored(self) -> Storage:
        if self._client is None:
            self._client = Storage(self._address, self._consumer)
        storage: Storage = self._client
        return storage

    def _get(self, ticket: bytes) -> Iterator[tuple[int, int, Any]]:
        """Yields the size of the file, and place and bytes of each chunk."""
        try:
            if self._client is None:
                pems = tls_of(load_readers(self._identity)[0])
                self._client = flight.FlightClient(
                    f"grpc+tls://{self._address}",
                    tls_root_certs=pems.authority,
                    cert_chain=pems.certificate,
                    private_key=pems.key,
                    override_hostname=HOST,
                )
            reader = self._client.do_get(flight.Ticket(ticket), flight.FlightCallOptions(timeout=CALL_S))
            size = int((reader.schema.metadata or {}).get(META_SIZE, b"0"))
            for chunk in reader:
                for at, data in zip(chunk.data.column("at"), chunk.data.column("data"), strict=True):
                    yield size, at.as_py(), memoryview(data.as_buffer())
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            self._hang_up()
            raise self._trouble(str(error).splitlines()[0][:300]) from None

    def _trouble(self, what: str) -> IngestError:
        if self._places:
            return IngestError(f"extents={self._address}: {what}; nobody but the driver of this query may write there")
        return IngestError(
            f"extents={self._address}: {what}; `veilmq ingest serve` must run there, with the identity that "
            "grants_identity names here"
        )

    def _hang_up(self) -> None:
        client, self._client = self._client, None
        if client is not None and not self._places:
            client.close()


def _scratch() -> str | None:
    """Returns the directory in which Spark keeps an executor's temporary files; None outside of Spark."""
    named = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return named if named and os.access(named, os.W_OK) else None
