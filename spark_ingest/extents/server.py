"""The server of segments: gives ranges of a spool and sealed files of scope keys to executors: `veilmq ingest serve`.

It runs where the spool is, beside the receiver, reads and changes nothing. A peer shows the identity to which
the file of scope keys is sealed (`credentials`): everything sent is sealed to that identity, or under keys in that
file. A file that is not sealed is not served. Peers name segments by name and number, never by path.
"""

from __future__ import annotations

import signal
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from spark_ingest.errors import BadOption, GrantsError, SpoolError, SpoolGap
from spark_ingest.extents.credentials import tls_of
from spark_ingest.extents.sealed_keys import sealed_keys
from spark_ingest.extents.tickets import CHUNKS, META_SIZE, KeysTicket, SegmentTicket, decode_ticket
from spark_ingest.secrets import load_readers
from spark_ingest.spool import open_segment, segment_path

CHUNK_BYTES = 1 << 20


class ExtentServer:
    """A server that listens from its construction until `stop`. `grants`: the sealed files, told apart by their names.

    `identity`: directory of the identity to which they are sealed. Raises BadOption, GrantsError.
    """

    def __init__(self, spool: Path, grants: Sequence[Path], identity: Path, bind: str) -> None:
        if not spool.is_dir():
            raise BadOption(f"spool={spool} is no directory; name the one that the receiver writes")
        self._spool = spool
        self._grants = {path.name: path for path in grants}
        if len(self._grants) != len(grants):
            raise BadOption("files of scope keys that are served need different names")
        for path in grants:
            sealed_keys(path)
        pems = tls_of(load_readers(identity)[0])
        try:
            self._flight: Any = _flight_server(self._answer_ticket)(
                f"grpc+tls://{bind}",
                tls_certificates=[(pems.certificate, pems.key)],
                verify_client=True,
                root_certificates=pems.authority,
            )
        except (pa.ArrowException, OSError) as error:
            raise BadOption(f"bind={bind}: {str(error).splitlines()[0]}; choose a HOST:PORT that is free") from None

    @property
    def port(self) -> int:
        """The port on which it listens."""
        port: int = self._flight.port
        return port

    def stop(self) -> None:
        """Stops after the present answers."""
        self._flight.shutdown()

    def _answer_ticket(self, ticket: bytes) -> tuple[int | None, Iterable[Any]]:
        """Returns the size of the file, None without one, and record batches of CHUNKS. Raises SpoolError,
        GrantsError.
        """
        asked = decode_ticket(ticket)
        if isinstance(asked, KeysTicket):
            if asked.name not in self._grants:
                raise SpoolError(f"{asked.name} is no file of scope keys that is served here; start serve with it")
            content = sealed_keys(self._grants[asked.name])
            return len(content), _chunks(pa.py_buffer(content), [(0, len(content))])
        return self._segment(asked)

    def _segment(self, asked: SegmentTicket) -> tuple[int | None, Iterable[Any]]:
        try:
            segment = open_segment(str(segment_path(self._spool / asked.receiver, asked.number)))
        except SpoolGap:
            return None, ()
        size: int = segment.buffer.size
        stretch = (max(asked.start, segment.first), min(asked.end, size))
        return size, _chunks(segment.buffer, [(0, segment.first), stretch])


def _chunks(buffer: Any, stretches: Sequence[tuple[int, int]]) -> Iterator[Any]:
    """Yields bytes of a file, not copied."""
    for start, end in stretches:
        for at in range(start, end, CHUNK_BYTES):
            data = buffer.slice(at, min(CHUNK_BYTES, end - at))
            bounds = pa.py_buffer(struct.pack("=ii", 0, data.size))
            told = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, data])
            yield pa.RecordBatch.from_arrays([pa.array([at], pa.int64()), told], schema=CHUNKS)


def _flight_server(answer: Any) -> Any:
    """Returns Flight's server with our answers; its other methods refuse."""

    class _Server(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, context: Any, ticket: Any) -> Any:
            try:
                size, batches = answer(ticket.ticket)
            except (SpoolError, GrantsError, OSError) as error:
                raise flight.FlightServerError(str(error)) from None
            schema = CHUNKS if size is None else CHUNKS.with_metadata({META_SIZE: str(size)})
            return flight.GeneratorStream(schema, (batch.replace_schema_metadata(schema.metadata) for batch in batches))

    return _Server


def serve(spool: Path, grants: Sequence[Path], identity: Path, bind: str) -> int:
    """Serves until SIGTERM or SIGINT; returns exit status 0. Raises IngestError."""
    stopped = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopped.set())
    server = ExtentServer(spool, grants, identity, bind)
    print(f"{spool} is served at port {server.port} to who has the identity {identity}", flush=True)
    stopped.wait()
    server.stop()
    return 0
