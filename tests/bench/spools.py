"""Spools, and the same rows in the forms of peers, made with the real envelope and no network.

`fill` writes what a receiver would: some publishers in turn, readings of about 65 bytes on 64
topics, one data key for each `messages_a_key` publications of a publisher, shares sealed at rest. `plain_parquet` are
the rows in clear, and `sealed_parquet` what somebody would build without us: topic, nonce and AES-GCM ciphertext a row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bridge.document import RecordRights, batch_topic
from keys.envelope import (
    DataKey,
    KeyHeader,
    KeyName,
    MessageHeader,
    Mode,
    content_digest,
    make_key,
    sign_header,
)
from keys.identity import Identity
from keys.records import encode
from keys.sharetree import encode_shares
from spark_ingest.opening.rows import SCHEMAS
from spark_ingest.options import IngestStream
from spark_ingest.secrets.sharebox import ShareBox
from spark_ingest.spool.writer import SpooledKey, SpoolRecord, SpoolWriter
from tests.spark_ingest.region import NOW, Overlay, epoch_key, write_grants

SCOPE = KeyName("plant/#", 0, 0)
RIGHTS = RecordRights(SCOPE.scope, (), (SCOPE.scope,)).to_text()
SPOOL_KEY = bytes(range(32))
BOX = ShareBox(SPOOL_KEY, os.urandom)
TURN = 16
"""Publications of one publisher before the next one's."""
PUBLISHERS = 4
TOPICS = 64
GROUP_ROWS = 500
KEY_BYTES = 32
NONCE_BYTES = 12
KEYS_KEPT = 8_192


def reading(number: int) -> tuple[str, bytes]:
    """Topic and payload of publication `number`."""
    body = {"sensor": f"s{number % TOPICS}", "value": number % 1000 / 7, "t": 1_800_000_000 + number / 100}
    return f"plant/line{number % 8}/s{number % TOPICS}", json.dumps(body).encode()


@dataclass
class _Publisher:
    identity: Identity
    sequence: int = 0
    left: int = 0
    header: KeyHeader | None = None
    key: DataKey | None = None
    material: SpooledKey | None = None

    def renew(self, messages: int) -> None:
        hops = Overlay().hops
        self.header, self.key, shares = make_key(
            self.identity, SCOPE, hops, self.sequence + 1, messages, epoch_key(SCOPE), os.urandom
        )
        self.material = BOX.seal(SpooledKey(self.header.encode(), encode_shares(shares[:2])))
        self.left = messages

    def seal(self, number: int, messages_a_key: int, batch: int = 1) -> tuple[MessageHeader, str, bytes, SpooledKey]:
        """The next publication, or with `batch` the next so many as one."""
        if self.left < batch:
            self.renew(messages_a_key)
        assert self.header is not None
        assert self.key is not None
        assert self.material is not None
        self.left -= batch
        self.sequence += 1
        time_ms = int(NOW * 1000) + number
        topics, payloads = zip(*map(reading, range(number, number + batch)), strict=True)
        times = range(time_ms, time_ms + batch)
        inner = encode(bytes([1]) * batch, times, [t.encode() for t in topics], [b""] * batch, payloads)
        topic = batch_topic(1)
        header = MessageHeader(
            self.identity.party_id, self.header.key_id, self.sequence, 0, time_ms, 0, 1, False, False, Mode.COPIES,
            (bytes(32),),
        )  # fmt: skip
        content = self.key.seal(header.prefix(), self.sequence, topic, inner)
        self.sequence += batch - 1
        return replace(header, digests=(content_digest(content),)), topic, content, self.material


def records(messages_a_key: int, batch: int = 1) -> Iterator[tuple[SpoolRecord, SpooledKey]]:
    """Without end. With `batch`, each holds so many publications."""
    publishers = [_Publisher(Identity.generate(bytes([index + 1]) * 32)) for index in range(PUBLISHERS)]
    number = 0
    while True:
        for publisher in publishers:
            for _ in range(TURN):
                header, topic, content, material = publisher.seal(number, messages_a_key, batch)
                signed = sign_header(publisher.identity, header, topic).encode()
                record = SpoolRecord(
                    header.publisher, header.sequence, header.key_id, topic, signed,
                    content, 1, False, header.time_ms * 1000, header.time_ms * 1000,
                    rights=RIGHTS,
                )  # fmt: skip
                yield record, material
                number += batch


def fill(root: Path, rows: int, messages_a_key: int, batch: int = 1, segment_bytes: int = 64 << 20) -> None:
    """A receiver's part of a spool, in batches of `batch` publications."""
    writer = SpoolWriter(root, "main", cap_bytes=1 << 40, segment_bytes=segment_bytes)
    writer.roll(b"")
    source = records(messages_a_key, batch)
    rows //= batch
    for start in range(0, rows, GROUP_ROWS):
        if writer.segment_full:
            writer.roll(b"")
        group = list(islice(source, min(GROUP_ROWS, rows - start)))
        writer.append([record for record, _ in group], {record.key_id: material for record, material in group})
    writer.close()


def grants(path: Path) -> Path:
    """The file of scope keys for all of these spools."""
    return write_grants(path, Overlay().held({SCOPE}), SPOOL_KEY)


def plain_parquet(directory: Path, rows: list[Any], files: int) -> None:
    """Rows of stream telemetry as an application would have stored them in clear."""
    _write(directory, pa.Table.from_batches(rows, SCHEMAS[IngestStream.TELEMETRY]), files)


def sealed_parquet(directory: Path, rows: int, wrapping_key: bytes, messages_a_key: int, files: int) -> None:
    """Topic, wrapped data key (AES-GCM under `wrapping_key`), nonce and ciphertext of each row."""
    wrapping = AESGCM(wrapping_key)
    columns: dict[str, list[Any]] = {name: [] for name in ("topic", "wrapped", "nonce", "sealed")}
    for number in range(rows):
        if number % messages_a_key == 0:
            key = os.urandom(KEY_BYTES)
            aead = AESGCM(key)
            nonce = os.urandom(NONCE_BYTES)
            wrapped = nonce + wrapping.encrypt(nonce, key, None)
        topic, payload = reading(number)
        nonce = number.to_bytes(NONCE_BYTES)
        columns["topic"].append(topic)
        columns["wrapped"].append(wrapped)
        columns["nonce"].append(nonce)
        columns["sealed"].append(aead.encrypt(nonce, payload, topic.encode()))
    _write(directory, pa.table(columns), files)


@dataclass
class Unwrapping:
    """What a user writes for `sealed_parquet`. A class by name, since Spark cannot pickle AESGCM in a closure."""

    wrapping_key: bytes

    def open(self, batches: Iterator[Any]) -> Iterator[Any]:
        """For mapInArrow: (topic, wrapped, nonce, sealed) in, (topic, payload) out."""
        wrapping = AESGCM(self.wrapping_key)
        keys: dict[bytes, AESGCM] = {}
        for batch in batches:
            payloads = []
            names = ("topic", "wrapped", "nonce", "sealed")
            columns = [batch.column(name).to_numpy(zero_copy_only=False).tolist() for name in names]
            for topic, wrapped, nonce, sealed in zip(*columns, strict=True):
                key = keys.get(wrapped)
                if key is None:
                    if len(keys) >= KEYS_KEPT:
                        keys.clear()
                    key = keys[wrapped] = AESGCM(wrapping.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], None))
                payloads.append(key.decrypt(nonce, sealed, topic.encode()))
            opened = [batch.column("topic"), pa.array(payloads, pa.binary())]
            yield pa.RecordBatch.from_arrays(opened, names=["topic", "payload"])


def _write(directory: Path, table: Any, files: int) -> None:
    """In as many files as there are to be tasks."""
    directory.mkdir(parents=True)
    size = -(-table.num_rows // files)
    for index in range(files):
        pq.write_table(table.slice(index * size, size), directory / f"{index}.parquet")
