"""START HERE: a publisher's data key, and a single import for all that a sealed publication needs (docs/protocol.md
§2.4).

    enc, commitment, kcv: what an epoch key makes of a secret, see `derivation`
    share commitment i = SHA-256("veilmq/1 share" ‖ H ‖ i(1) ‖ value)[:16]

H is the hash of the key header up to its commitments. AES-GCM commits to no key, so that one ciphertext can
be made to open under two: `open_key` therefore checks the commitment before anything is opened.

The nonce is 4 zero bytes ‖ sequence. Associated data is version(1) ‖ message header up to its digests ‖ wire
topic behind its length(2). The digests cannot be in it, since they are hashes of the sealed content; they are
signed instead (`signedheader`).

Not here: where keys, shares and content travel (`bridge`), durable sequences (`gateway.outbox.store`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from keys import frames
from keys.derivation import Derivation
from keys.epochs import KeyName
from keys.errors import BadContent, OurFault, WrongEpochKey
from keys.frames import (
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    PROPERTY_WRAPS,
    PROTOCOL_VERSION,
    from_property,
    to_property,
)
from keys.identity import Identity
from keys.keyheader import KEY_DOMAIN, SHARE_COMMITMENT_BYTES, KeyHeader, Order
from keys.message import NO_KEY, PREFIX_BYTES, SEQUENCE_AT, MessageHeader, Mode, content_digest
from keys.replay import SequenceWindow
from keys.sharetree import SECRET_BYTES, Hop, Share, first_split
from keys.signedheader import SignedHeader, header_of, sign_header, signed_frame, verify_header

__all__ = [
    "NONCE_BYTES",
    "NO_KEY",
    "PROPERTY_HEADER",
    "PROPERTY_KEY",
    "PROPERTY_SHARES",
    "PROPERTY_WRAPS",
    "PROTOCOL_VERSION",
    "TAG_BYTES",
    "DataKey",
    "KeyHeader",
    "KeyName",
    "MessageHeader",
    "Mode",
    "Order",
    "SequenceWindow",
    "SignedHeader",
    "check_share",
    "content_digest",
    "from_property",
    "header_of",
    "make_key",
    "open_key",
    "sign_header",
    "signed_frame",
    "to_property",
    "verify_header",
]

NO_ORDER = Order(0, 0)  # of whoever has one life
TAG_BYTES = 16  # of AES-GCM: sealed content is this much longer
NONCE_BYTES = 12
BLINDING = b"\x01"  # a nonce that begins so seals nothing
_ZEROS = bytes(32)


class DataKey:
    """An AES-256-GCM key, from `make_key` (seals and opens) or `open_key` (opens only). Shows no key bytes.

    The AES context is built once, since building it costs more than sealing a small payload.
    """

    __slots__ = ("_aead", "_message_limit", "_sealed", "key_id")

    def __init__(self, key_id: bytes, enc: bytes, message_limit: int = 0) -> None:
        """Takes the 32-byte AES key. `message_limit`: the most publications that it seals; 0 for a key that only
        opens.
        """
        self.key_id = key_id
        self._aead = AESGCM(enc)
        self._message_limit = message_limit
        # at most message_limit sequences: a nonce must never serve twice
        self._sealed: set[int] | None = set() if message_limit else None

    def has_sealed(self, sequence: int) -> bool:
        """Returns True if this key sealed `sequence` before, and so never seals it again."""
        return self._sealed is not None and sequence in self._sealed

    def seal(self, prefix: bytes, sequence: int, wire_topic: str, inner: bytes) -> bytes:
        """Returns `inner` sealed under nonce `sequence`: 16 bytes longer.

        `prefix`: `MessageHeader.prefix()` of this sequence. Raises `OurFault` if this key was opened
        and not made here, for a sequence that it sealed before (keep the sealed bytes to send them again),
        beyond the message limit, and if prefix and sequence or key differ.
        """
        if self._sealed is None:
            raise OurFault("only the publisher that made a data key seals with it")
        if sequence in self._sealed or len(self._sealed) >= self._message_limit:
            raise OurFault(f"sequence {sequence} needs another data key: a nonce is never used twice")
        associated = _associated_data(prefix, sequence, wire_topic)
        if prefix[SEQUENCE_AT - 16 : SEQUENCE_AT] != self.key_id:
            raise OurFault("the message header names another data key")
        self._sealed.add(sequence)
        return self._aead.encrypt(_nonce(sequence), inner, associated)

    def open(self, prefix: bytes, sequence: int, wire_topic: str, sealed: bytes) -> bytes:
        """Returns the content that was sealed with this prefix, sequence and wire topic. Raises `BadContent`."""
        try:
            return self._aead.decrypt(_nonce(sequence), sealed, _associated_data(prefix, sequence, wire_topic))
        except InvalidTag:
            raise BadContent("sealed content does not open under this key, header and topic") from None

    def blinding(self, sequence: int) -> bytes:
        """Returns 32 secret bytes of this key and number, which tell nothing of what is sealed
        (docs/protocol-options.md §14.2). The first byte of the nonce sets it apart from the nonces of sealing.
        """
        return self._aead.encrypt(BLINDING + _nonce(sequence)[1:], _ZEROS, None)[: len(_ZEROS)]

    @staticmethod
    def open_each(
        keys: Iterable[DataKey], nonces: Iterable[bytes], sealed: Iterable[bytes], associated: Iterable[bytes]
    ) -> list[bytes | None]:
        """Returns the content of each publication, None for one that does not open.

        The caller lays out nonces and associated data as the module's docstring says. All four arguments have one
        length.
        """
        opened: list[bytes | None] = []
        # No bytecode runs for a publication that opens: that would cost as much as opening it.
        each = map(AESGCM.decrypt, map(attrgetter("_aead"), keys), nonces, sealed, associated)
        while True:
            try:
                opened.extend(each)
            except InvalidTag:  # what came before it is in the list
                opened.append(None)
            else:
                return opened

    def __repr__(self) -> str:
        return f"DataKey({self.key_id.hex()})"

    def __reduce__(self) -> str:
        raise OurFault("a data key is not pickled: send the key header and the shares")


def _nonce(sequence: int) -> bytes:
    return sequence.to_bytes(NONCE_BYTES)


def _associated_data(prefix: bytes, sequence: int, wire_topic: str) -> bytes:
    if len(prefix) != PREFIX_BYTES or int.from_bytes(prefix[SEQUENCE_AT : SEQUENCE_AT + 8]) != sequence:
        raise OurFault("the prefix is not that of a message header with this sequence")
    return b"".join((bytes([PROTOCOL_VERSION]), prefix, frames.text(wire_topic)))


def make_key(
    identity: Identity,
    name: KeyName,
    hops: Sequence[Hop],
    first_sequence: int,
    message_limit: int,
    scope_key: bytes | None,
    random: Callable[[int], bytes],
    order: Order = NO_ORDER,
    tree: int = 0,
    *,
    wrapped: bool = False,
) -> tuple[KeyHeader, DataKey, list[Share]]:
    """Returns a new data key: its signed header, the key itself, and the level-1 shares of its secret for hops[0].

    `scope_key`: the 32-byte epoch key of that `name`, None for a shares-only scope. `random(n)` gives n uniformly
    random secret bytes. `order`: the publisher's life and the number of the key in it. `tree`: the number of the tree
    of regions along which its shares travel. `wrapped`: True if a way there is long (`wrapping`). Raises `OurFault` for
    arguments no header can carry.
    """
    derivation = Derivation(scope_key)
    secret = random(SECRET_BYTES)
    shares = first_split(secret, hops[0], random((hops[0].threshold - 1) * SECRET_BYTES))
    draft = KeyHeader(
        publisher=identity.party_id,
        scope=name.scope,
        epoch=name.epoch,
        bump=name.bump,
        hops=tuple(hops),
        order=order,
        first_sequence=first_sequence,
        message_limit=message_limit,
        kcv=derivation.check_value,
        commitment=bytes(32),
        share_commitments=(),
        signature=b"",
        tree=tree,
        wrapped=wrapped,
    )
    binding = draft.binding
    enc, commitment = derivation.derive(secret, binding)
    committed = replace(
        draft,
        commitment=commitment,
        share_commitments=tuple(_share_commitment(binding, share.label[0].place, share.value) for share in shares),
    )
    header = replace(committed, signature=identity.sign(KEY_DOMAIN, committed.signed_bytes))
    return header, DataKey(header.key_id, enc, message_limit), shares


def open_key(header: KeyHeader, secret: bytes, scope_key: bytes | None) -> DataKey:
    """Returns the data key behind a verified header and its recombined 32-byte secret.

    `scope_key`: the policy's key for this scope (None: shares-only), never one the header suggests. Raises
    `WrongEpochKey` if the header was made with another epoch key, `BadContent` if the commitment does not fit.
    """
    check_epoch_key(header, scope_key)
    return open_derived(header.key_id, header.binding, header.commitment, secret, Derivation(scope_key))


def open_derived(key_id: bytes, binding: bytes, commitment: bytes, secret: bytes, derivation: Derivation) -> DataKey:
    """Returns the data key of a header with these fields, whose epoch key was checked. Raises `BadContent` as
    `open_key`.
    """
    enc, derived = derivation.derive(secret, binding)
    if not hmac.compare_digest(derived, commitment):
        raise BadContent("the secret does not fit the commitment of the key header")
    return DataKey(key_id, enc)


def check_epoch_key(header: KeyHeader, scope_key: bytes | None) -> None:
    """Raises `WrongEpochKey` unless the header was made with this epoch key (None: with none).

    To be called before a search: no combination of shares fits a wrong epoch key, and nobody is to blame for that.
    """
    if not hmac.compare_digest(Derivation(scope_key).check_value, header.kcv):
        raise wrong_epoch_key(header.epoch_key)


def wrong_epoch_key(name: KeyName) -> WrongEpochKey:
    """Returns the error for a header whose check value is not that of our key of this name."""
    return WrongEpochKey(f"another epoch key than ours for scope {name.scope!r}, epoch {name.epoch}, bump {name.bump}")


def check_share(header: KeyHeader, place: int, value: bytes) -> bool:
    """Returns True if `value` is the level-1 share the publisher committed to for `place` (1..n)."""
    if not 1 <= place <= len(header.share_commitments):
        return False
    found = _share_commitment(header.binding, place, value)
    return hmac.compare_digest(found, header.share_commitments[place - 1])


def _share_commitment(binding: bytes, place: int, value: bytes) -> bytes:
    data = b"veilmq/1 share" + binding + bytes([place]) + value
    return hashlib.sha256(data).digest()[:SHARE_COMMITMENT_BYTES]
