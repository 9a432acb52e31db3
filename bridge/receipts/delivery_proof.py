"""A proof of delivery: the words of a publisher and of a reader on a single message, for anybody to check.

Source: docs/protocol-options.md §14.5. The publisher signs the hashes of the record and of the batch's header; the
reader signed the root of a receipt. Paths of hashes lead from the record to the root and show nothing of other
messages. A check needs no network and no secret, and trusts the owner's key in the file: the caller compares the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bridge.document import NotProvedError, SignedStatement, read_wire_topic
from bridge.receipts.hashes import (
    HASH_BYTES,
    SALT_BYTES,
    RecordFacts,
    batch_hash,
    path,
    root_along,
    salt_of,
    sha256,
)
from bridge.receipts.receipt import DOMAIN_RECEIPT, ReceiptBody
from bridge.receipts.sealed import SealedBatch
from keys.envelope import MessageHeader, verify_header
from keys.errors import BadContent, BadFrame, BadSignature, KeysError
from keys.frames import Reader, number, of_base64, sized, to_base64
from keys.identity import SIGNATURE_BYTES, Certificate, Identity, Role, verify

FORMAT = 1
DOMAIN_PUBLISHED = "veilmq/1 published"
READERS = frozenset({Role.GATEWAY, Role.INGEST})
_ROW = 1  # the version of rows


@dataclass(frozen=True, slots=True)
class ReceiptRow:
    """A receipt as the publisher keeps it: without its list, but with number and hash of each batch."""

    body: ReceiptBody
    signature: bytes
    batches: tuple[tuple[int, bytes], ...]

    def encode(self) -> bytes:
        head = number(_ROW, 1) + sized(self.body.encode()) + self.signature + number(len(self.batches), 2)
        return head + b"".join([number(each, 8) + hashed for each, hashed in self.batches])

    @classmethod
    def decode(cls, row: bytes) -> ReceiptRow:
        """Reads a row. Raises BadFrame."""
        frame = Reader(row)
        if frame.number(1) != _ROW:
            raise BadFrame("a receipt of another version")
        inner = Reader(frame.sized())
        body, signature = ReceiptBody.read(inner), frame.take_bytes(SIGNATURE_BYTES)
        inner.expect_end()
        batches = tuple((frame.number(8), frame.take_bytes(HASH_BYTES)) for _ in range(frame.number(2)))
        frame.expect_end()
        return cls(body, signature, batches)

    def place_of(self, batch: SealedBatch) -> int | None:
        """Returns the place of a batch in the list; None if it is not in it."""
        found = (batch.number, batch.hashed)
        return self.batches.index(found) if found in self.batches else None


@dataclass(frozen=True, slots=True)
class ProvenDelivery:
    """The outcome of a check. `publisher_key`, `reader_key`, `owner`: public keys, 32 bytes. Times in ms, each by the
    clock of its author. `says`: a line.
    """

    publisher: str
    publisher_key: bytes
    reader: str
    reader_key: bytes
    owner: bytes
    record: RecordFacts
    acknowledged_ms: int

    @property
    def says(self) -> str:
        record = self.record
        return (
            f"{self.publisher} published message {record.number} on {record.topic}, payload with SHA-256 "
            f"{record.payload_hash.hex()}, and {self.reader} signed that it has it"
        )


@dataclass(frozen=True, slots=True)
class DeliveryProof:
    """A proof. `publisher`, `header_certificate`, `reader`: certificates as the owner signed them, the second empty if
    it is the first. `at`, `way`: of the record in its batch of `of` records, and of the batch in the receipt.
    """

    owner: bytes
    publisher: bytes
    header_certificate: bytes
    header: SignedStatement
    record: RecordFacts
    salt: bytes
    record_at: int
    record_of: int
    record_way: tuple[bytes, ...]
    signature: bytes
    reader: bytes
    receipt: SignedStatement
    batch_at: int
    batch_way: tuple[bytes, ...]

    @classmethod
    def make(
        cls,
        identity: Identity,
        owner: bytes,
        certificates: tuple[Certificate, Certificate, Certificate],
        batch: SealedBatch,
        wanted: int,
        row: ReceiptRow,
    ) -> DeliveryProof:
        """Returns the proof that a reader had the record number `wanted` of a batch. `certificates`: of this publisher,
        of the key that signed the header, and of the reader. Raises BadContent if the receipt or the batch lacks it.
        """
        publisher, header_certificate, reader = certificates
        at = row.place_of(batch)
        place = next((i for i, record in enumerate(batch.records) if record.number == wanted), None)
        if at is None or place is None:
            raise BadContent(f"message {wanted} is not in this receipt")
        salts = [salt_of(batch.blinding, record.number) for record in batch.records]
        hashes = [record.hashed(salt) for record, salt in zip(batch.records, salts, strict=True)]
        return cls(
            owner,
            publisher.encode(),
            b"" if header_certificate == publisher else header_certificate.encode(),
            SignedStatement(batch.frame[:-SIGNATURE_BYTES], batch.frame[-SIGNATURE_BYTES:], batch.topic),
            batch.records[place],
            salts[place],
            place,
            len(hashes),
            path(hashes, place),
            identity.sign(DOMAIN_PUBLISHED, batch.frame_hash + hashes[place]),
            reader.encode(),
            SignedStatement(row.body.encode(), row.signature),
            at,
            path([hashed for _, hashed in row.batches], at),
        )

    def check_proof(self) -> ProvenDelivery:
        """Returns the delivery that is proved. Raises NotProvedError."""
        try:
            return self._checked()
        except KeysError as error:
            raise NotProvedError(f"it proves nothing: {error}; ask for the file again") from None

    def _checked(self) -> ProvenDelivery:
        publisher, reader = Certificate.decode(self.publisher), Certificate.decode(self.reader)
        signer = Certificate.decode(self.header_certificate) if self.header_certificate else publisher
        for certificate in (publisher, signer, reader):
            certificate.verify(self.owner, 0)
            if certificate.role not in READERS:
                raise BadSignature(f"{certificate.name} is a {certificate.role}, which neither publishes nor reads")
        if (signer.name, signer.role) != (publisher.name, publisher.role):
            raise BadSignature("another member signed the header of the batch")
        frame = self.header.body + self.header.signature
        verify_header(MessageHeader.decode(self.header.body), frame, self.header.topic, signer.public_key)
        hashed = self.record.hashed(self.salt)
        verify(publisher.public_key, DOMAIN_PUBLISHED, sha256(frame) + hashed, self.signature)
        said = Reader(self.receipt.body)
        body = ReceiptBody.read(said)
        said.expect_end()
        verify(reader.public_key, DOMAIN_RECEIPT, self.receipt.body, self.receipt.signature)
        if body.reader != reader.name or body.chain != (signer.party_id, read_wire_topic(self.header.topic).scope):
            raise BadContent("the receipt is of another reader, publisher or scope")
        records = root_along(hashed, self.record_at, self.record_of, self.record_way)
        found = root_along(batch_hash(sha256(frame), records), self.batch_at, body.count, self.batch_way)
        if found != body.root:
            raise BadContent("the receipt does not hold this message")
        return ProvenDelivery(
            publisher.name, publisher.public_key, reader.name, reader.public_key, self.owner, self.record, body.time_ms
        )

    # ---------------------------------------------------------------------------------------------- the file

    def to_document(self) -> dict[str, Any]:
        """Returns the content of the file, for JSON."""
        record = self.record
        document = {
            "veilmq_delivery": FORMAT,
            "owner": to_base64(self.owner),
            "publisher": to_base64(self.publisher),
            "header": self.header.to_document(),
            "record": {
                "number": record.number,
                "time_ms": record.time_ms,
                "topic": record.topic,
                "payload_sha256": to_base64(record.payload_hash),
                "salt": to_base64(self.salt),
                "at": self.record_at,
                "of": self.record_of,
                "path": [to_base64(each) for each in self.record_way],
            },
            "signature": to_base64(self.signature),
            "reader": to_base64(self.reader),
            "receipt": self.receipt.to_document()
            | {"at": self.batch_at, "path": [to_base64(each) for each in self.batch_way]},
        }
        if self.header_certificate:
            document["header_certificate"] = to_base64(self.header_certificate)
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> DeliveryProof:
        """Reads a file's content; checks nothing yet. Raises NotProvedError."""
        if document.get("veilmq_delivery") != FORMAT:
            raise NotProvedError("it is no proof of a format that is known here; upgrade, or ask for the right file")
        try:
            return cls._of(document)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise NotProvedError(f"it is damaged: {error!r}; ask for the file again") from None

    @classmethod
    def _of(cls, document: Mapping[str, Any]) -> DeliveryProof:
        _known(document, "veilmq_delivery", "header_certificate", *_FIELDS)
        record, receipt = document["record"], dict(document["receipt"])
        _known(record, *_RECORD)
        batch_at, batch_way = _whole(receipt.pop("at")), _way(receipt.pop("path"))
        if not isinstance(record["topic"], str):
            raise TypeError("topic")
        record["topic"].encode()  # JSON can spell what UTF-8 cannot
        facts = RecordFacts(
            _whole(record["number"]), _whole(record["time_ms"]), record["topic"], _exact(record["payload_sha256"])
        )
        return cls(
            of_base64(document["owner"]),
            of_base64(document["publisher"]),
            of_base64(document.get("header_certificate", "")),
            SignedStatement.from_document(document["header"]),
            facts,
            _exact(record["salt"], SALT_BYTES),
            _whole(record["at"]),
            _whole(record["of"]),
            _way(record["path"]),
            of_base64(document["signature"]),
            of_base64(document["reader"]),
            SignedStatement.from_document(receipt),
            batch_at,
            batch_way,
        )


_FIELDS = ("owner", "publisher", "header", "record", "signature", "reader", "receipt")
_RECORD = ("number", "time_ms", "topic", "payload_sha256", "salt", "at", "of", "path")
_WAY_MAX = 64  # a path of the largest list is far shorter


def _known(document: Mapping[str, Any], *names: str) -> None:
    if unknown := set(document) - set(names):
        raise ValueError(f"unknown field {min(unknown)!r}")


def _whole(value: object) -> int:
    """Returns a number that fits 8 bytes. Raises TypeError, ValueError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("a number")
    if not 0 <= value < 1 << 63:
        raise ValueError(f"number {value}")
    return value


def _exact(value: Any, size: int = HASH_BYTES) -> bytes:
    found = of_base64(value)
    if len(found) != size:
        raise ValueError(f"{len(found)} bytes where there are {size}")
    return found


def _way(value: Any) -> tuple[bytes, ...]:
    if not isinstance(value, list) or len(value) > _WAY_MAX:
        raise TypeError("path")
    return tuple(_exact(each) for each in value)
