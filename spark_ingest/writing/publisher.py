"""Publishing through a gateway: at least once, bounded, until every row is acknowledged.

A `RowPublisher` is an ordinary MQTT 5 client knowing nothing of sealing: its gateway seals protected topics. Rows are
repeated in their order after a lost connection; the gateway's Receive Maximum and our own `in_flight` hold the source
of the rows back. Rows and their ids are made by `outgoing_rows`; Spark's side is `writer`.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice

from gateway.overlay import ClientError, MqttClient, MqttError, PrivateFileError, read_private
from spark_ingest.errors import PublishError
from spark_ingest.writing.outgoing_rows import OutgoingRows
from spark_ingest.writing.publish_options import PublishOptions

IN_FLIGHT_BYTES = 8 << 20
"""Unacknowledged bytes at a time, beside `in_flight`: below the capacity of the client's session."""
CHUNK_ROWS = 256
RETRY_FIRST_S, RETRY_MOST_S = 0.25, 5.0
LOOK_S = 0.2

_HOPELESS = {
    0x85: "the client identifier is not accepted",
    0x86: "wrong user name or password; correct username and password_file",
    0x87: "this user may not connect; ask the gateway's operator",
    0x8A: "this user is banned",
    0x8C: "the gateway wants another kind of authentication",
}
_DISTRUSTED = re.compile(r"shows a certificate .*?\((.*)\)")
"""The client's message about a certificate is for links of the overlay."""
_REFUSALS = {
    0x87: "not authorised; the gateway's user needs the right to publish there",
    0x90: "the gateway does not allow this topic name",
    0x95: "the packet is too large for the gateway; publish smaller payloads",
    0x97: "quota exceeded: the gateway's outbox is full, or a replica takes no packets so large; "
    "see the gateway's log, then start again",
    0x99: "the payload is not what its format says",
    0x9A: "the gateway keeps no retained messages; drop column retain",
    0x9B: "the gateway does not take this QoS; lower column qos",
}


class RowPublisher:
    """A connection and the rows under way on it. Use `publish_all`, once."""

    def __init__(self, options: PublishOptions, clock: Callable[[], float] = time.monotonic) -> None:
        """Takes options. Raises PublishError for a password or CA file that cannot be used."""
        self._options, self._clock = options, clock
        self._password = _password(options)
        self._ssl = _context(options)
        self._unsent: deque[OutgoingRows] = deque()
        self._under_way: dict[int, OutgoingRows] = {}
        self._held_bytes = 0
        self._numbers = count()
        self._moved = asyncio.Event()
        self._progress_at = clock()
        self._failure: PublishError | None = None
        self._client: MqttClient | None = None
        self.acknowledged = 0

    async def publish_all(self, rows: Iterable[OutgoingRows]) -> int:
        """Publishes every row; returns the number of acknowledged rows, which is all of them. Raises PublishError.

        `rows` is read in another thread, no faster than the gateway takes them.
        """
        source = iter(rows)
        self._client = await self._connect()
        self._client.on_up, self._client.on_down = self._pump, self._queue_again
        try:
            while chunk := await asyncio.to_thread(_chunk, source):
                for row in chunk:
                    await self._room_for(row)
                    self._unsent.append(row)
                    self._held_bytes += row.cost_bytes
                self._pump()
            await self._until(lambda: not self._unsent and not self._under_way)
        finally:
            await self._client.close()
        return self.acknowledged

    # -------------------------------------------------------------------------------------- connection

    async def _connect(self) -> MqttClient:
        """Connects for the first time, within `patience_s`. A gateway refusing is asked once."""
        give_up, pause_s = self._clock() + self._options.patience_s, RETRY_FIRST_S
        while True:
            client = MqttClient(
                self._options.host,
                self._options.port,
                ssl=self._ssl,
                username=self._options.username,
                password=self._password,
            )
            try:
                await client.connect()
            except ClientError as error:
                if error.code in _HOPELESS:
                    raise PublishError(f"{client.address}: {_HOPELESS[error.code]} (0x{error.code:02x})") from None
                if distrusted := _DISTRUSTED.search(str(error)):
                    raise PublishError(
                        f"{client.address} shows a certificate that does not hold ({distrusted[1]}); "
                        "correct host, or name its authority by option ca_file"
                    ) from None
                if self._clock() >= give_up:
                    raise PublishError(f"no gateway for {self._options.patience_s:g} s: {error}") from None
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_MOST_S)
            else:
                self._progress_at = self._clock()
                return client

    def _queue_again(self) -> None:
        """Queues all unacknowledged rows again, in their order, for the next connection."""
        self._unsent.extendleft(reversed(self._under_way.values()))
        self._under_way.clear()

    # ------------------------------------------------------------------------------------ publications

    def _pump(self) -> None:
        client = self._client
        while client is not None and client.connected and self._unsent and self._failure is None:
            row, number = self._unsent[0], next(self._numbers)
            try:
                taken = client.publish(
                    row.topic,
                    row.payload,
                    row.qos,
                    row.retain,
                    row.properties,
                    on_ack=lambda number=number: self._acked(number),  # type: ignore[misc]
                    on_refused=lambda code, row=row: self._take_refusal(row, code),  # type: ignore[misc]
                )
            except MqttError as error:
                self._fail_with(f"row {row.id}: no MQTT packet can carry it: {error}")
                return
            if not taken:
                return  # its queue is full: an acknowledgement makes room
            self._unsent.popleft()
            self._under_way[number] = row

    def _acked(self, number: int) -> None:
        row = self._under_way.pop(number, None)
        if row is not None:
            self._held_bytes -= row.cost_bytes
            self.acknowledged += 1
            self._progress_at = self._clock()
            self._moved.set()
        self._pump()

    def _take_refusal(self, row: OutgoingRows, code: int) -> None:
        why = _REFUSALS.get(code, "see the gateway's log")
        self._fail_with(f"row {row.id} on topic {row.topic[:200]!r} was refused with 0x{code:02x}: {why}")

    def _fail_with(self, text: str) -> None:
        self._failure = self._failure or PublishError(text)
        self._moved.set()

    # ------------------------------------------------------------------------------------------ waiting

    async def _room_for(self, row: OutgoingRows) -> None:
        if self._has_room(row):
            return
        self._pump()
        await self._until(lambda: self._has_room(row))

    def _has_room(self, row: OutgoingRows) -> bool:
        held = len(self._unsent) + len(self._under_way)
        return not held or (held < self._options.in_flight and self._held_bytes + row.cost_bytes <= IN_FLIGHT_BYTES)

    async def _until(self, what: Callable[[], bool]) -> None:
        """Waits for acknowledgements. Raises PublishError for a refusal, or if none comes for `patience_s`."""
        self._progress_at = max(self._progress_at, self._idle_since())
        while True:
            if self._failure is not None:
                raise self._failure
            if what():
                return
            if self._clock() - self._progress_at > self._options.patience_s:
                assert self._client is not None
                why = self._client.last_error or "it is connected, but acknowledges nothing"
                held = len(self._unsent) + len(self._under_way)
                raise PublishError(
                    f"{self._client.address} acknowledged nothing for {self._options.patience_s:g} s, "
                    f"{held} rows wait: {why}"
                )
            self._moved.clear()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._moved.wait()
            except TimeoutError:
                continue

    def _idle_since(self) -> float:
        """Returns the begin of the wait for the gateway: now, while no row is on its way."""
        return self._progress_at if self._under_way else self._clock()


def _chunk(source: Iterator[OutgoingRows]) -> list[OutgoingRows]:
    return list(islice(source, CHUNK_ROWS))


def _password(options: PublishOptions) -> bytes | None:
    if options.password_file is None:
        return None
    try:
        return read_private(options.password_file).rstrip(b"\r\n")
    except PrivateFileError as error:
        raise PublishError(f"password_file {error}") from None


def _context(options: PublishOptions) -> ssl.SSLContext | None:
    if not options.tls:
        return None
    try:
        return ssl.create_default_context(cafile=str(options.ca_file) if options.ca_file else None)
    except (OSError, ssl.SSLError) as error:
        raise PublishError(f"ca_file {options.ca_file}: {error}; name a PEM file of certificates") from None
