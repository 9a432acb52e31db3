"""The checks of a receipt at every honest member, before all else (docs/protocol-options.md §14.3).

A known receipt is dropped unverified. Each reader has an allowance of its own, and only receipts with the reader's
signature spend from the allowance. A refusal explained by another version of the overlay, or by another allowance,
makes no link suspected. Not here: the way of receipts (`relay`), their effect at the publisher (`acknowledged`).
"""

from __future__ import annotations

from bridge.contract import Allowance, FairTable
from bridge.document import Overlay, batch_topic
from bridge.receipts.hashes import sha256
from bridge.receipts.receipt import DOMAIN_RECEIPT, Receipt
from bridge.wire import AGE_S, AHEAD_S, Sealings, verify_author
from keys.envelope import header_of, verify_header
from keys.errors import BadFrame, KeysError, NotAuthorised, NotFresh, TooOften
from keys.identity import Certificate, Role

SEEN_MAX = 16_384
"""Receipts that are recognised when they come again; of the reader with most of them the oldest is forgotten."""
ALLOWED_BURST, ALLOWED_EVERY_S = 1_024, 1 / 128
"""Receipts of one reader at once, and seconds to the next: whoever floods spends the time of members for itself."""
READERS = frozenset({Role.GATEWAY, Role.INGEST})


class ReceiptChecks:
    """The receipts that a member has seen, and what each reader may still send."""

    def __init__(self, overlay: Overlay, sealings: Sealings) -> None:
        """Takes `sealings`: headers that passed, with which the latest header of each receipt is compared."""
        self._overlay, self._sealings = overlay, sealings
        self._seen: FairTable[bytes, bool] = FairTable(SEEN_MAX)
        self._allowances: dict[str, Allowance] = {}

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay."""
        self._overlay = overlay
        self._allowances = {name: left for name, left in self._allowances.items() if name in overlay.members}

    def has_seen(self, frame: bytes) -> bool:
        """Returns True if this very receipt was taken before."""
        return self._seen.get(sha256(frame)) is not None

    def take_receipt(self, frame: bytes, now: float) -> tuple[Receipt, Certificate]:
        """Returns a receipt that holds, with its publisher's certificate. Raises BadFrame, BadSignature, Expired,
        NotFresh, NotAuthorised, TooOften.
        """
        receipt = Receipt.decode(frame)
        body = receipt.body
        member = self._overlay.members.get(body.reader)
        publisher = self._overlay.by_party.get(body.publisher)
        scope = self._overlay.scope_numbered(body.scope)
        if member is None or publisher is None or publisher.role not in READERS or scope is None:
            raise _late(NotAuthorised("a receipt of, or for, an unknown member or scope"))
        if not -AHEAD_S <= now - body.time_ms / 1000 <= AGE_S:
            raise NotFresh(f"{body.reader} signed a receipt at a time that cannot be")
        signer = verify_author(member, DOMAIN_RECEIPT, body.encode(), receipt.signature, now)
        epoch = self._overlay.policy.calendar.epoch_at(now)
        try:
            if not scope.receipts or member.certificate.role not in READERS:
                raise NotAuthorised(f"a receipt in scope {body.scope}, which has none")
            if not self._overlay.may_read(body.reader, scope, epoch):
                raise NotAuthorised(f"{body.reader} may not read scope {body.scope}")
            allowance = self._allowances.setdefault(body.reader, Allowance(ALLOWED_BURST, ALLOWED_EVERY_S, now))
            if not allowance.spend_one(now):
                raise TooOften(f"{body.reader} signs more receipts than a reader needs")
        except KeysError as error:
            error.author = next(c.party_id for c in member.certificates if c.public_key == signer)
            raise _late(error) from None
        self._compare(receipt, publisher)
        self._seen.put(sha256(frame), body.reader.encode(), True)
        return receipt, publisher

    def _compare(self, receipt: Receipt, publisher: Certificate) -> None:
        """Notes the latest header of a receipt, so that two of one number are found. Raises BadFrame,
        BadSignature.
        """
        frame = receipt.body.latest
        if not frame:
            return
        header = header_of(frame)
        if header.publisher != publisher.party_id or header.sequence > receipt.batches[-1].number:
            raise BadFrame("the latest header of a receipt is of another publisher or number")
        topic = batch_topic(receipt.body.scope)
        if not self._sealings.has_header(header, frame, topic):
            verify_header(header, frame, topic, publisher.public_key)
            self._sealings.saw(header, frame, topic, publisher)


def _late(error: KeysError) -> KeysError:
    error.may_be_late = True
    return error
