"""Boxes sealed to a party's public key: keys in the overlay file, answers of key servers (docs/protocol.md §9.4).

The length of the receiver's key decides the form. A *hybrid* key of 1,216 bytes is an ML-KEM-768 encapsulation key
(FIPS 203) followed by an X25519 key. Its box is a message of HPKE's base mode (RFC 9180):

    box = HPKE(MLKEM768-X25519 (draft-ietf-hpke-pq), HKDF-SHA256, AES-256-GCM; info = "veilmq/1 hybrid box" ‖ info)

The shared secret hashes the secrets of both parts, so that a box opens only to a party that breaks both. A
*classical* key is an X25519 key of 32 bytes; whoever breaks X25519 later opens a box that was recorded today:

    box = ephemeral public(32)  AES-256-GCM(key, nonce of zeros, plaintext, no associated data)
    key = HKDF(X25519(ephemeral, receiver), no salt, "veilmq/1 box" ‖ ephemeral(32) ‖ receiver(32) ‖ info, 32)

A box does not prove its author: where that matters, the box stands inside a signed frame. `info` binds a box to its
purpose: under another `info` it does not open. For a classical box the caller passes the randomness in, so that a
simulation can be repeated from its seed; HPKE's library draws its own.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from keys.errors import BadContent, BadFrame, OurFault

AGREEMENT_KEY_BYTES = 32
ENCAPSULATION_KEY_BYTES = 1184
HYBRID_KEY_BYTES = ENCAPSULATION_KEY_BYTES + AGREEMENT_KEY_BYTES
TAG_BYTES = 16
BOX_OVERHEAD_BYTES = AGREEMENT_KEY_BYTES + TAG_BYTES
HYBRID_OVERHEAD_BYTES = 1120 + TAG_BYTES
HYBRID_DOMAIN = b"veilmq/1 hybrid box"
_NONCE = bytes(12)  # every classical box has a key of its own
_TRIAL = X25519PrivateKey.from_private_bytes(bytes(32))  # no secret: tells whether a public key can be agreed with
CHECKED_MAX = 1_024  # receivers' keys known to be good: they come again with each version and request
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class BoxKey:
    """A party's private key for boxes: an X25519 key, and an ML-KEM-768 key from a 64-byte seed."""

    __slots__ = ("_agreement", "_hybrid", "agreement_bytes", "hybrid_bytes")

    def __init__(self, agreement: bytes, seed: bytes) -> None:
        """`agreement`: 32 secret bytes; `seed`: 64 secret bytes, independent of the others."""
        self._agreement = X25519PrivateKey.from_private_bytes(agreement)
        encapsulation = MLKEM768PrivateKey.from_seed_bytes(seed)
        self._hybrid = MLKEM768X25519PrivateKey(encapsulation, self._agreement)
        self.agreement_bytes: bytes = self._agreement.public_key().public_bytes_raw()
        """The classical public key, 32 bytes."""
        self.hybrid_bytes: bytes = encapsulation.public_key().public_bytes_raw() + self.agreement_bytes
        """The hybrid public key, 1,216 bytes."""

    def open(self, box: bytes, info: bytes) -> bytes:
        """Returns the plaintext of a box of either form. Raises `BadFrame` if the box is too short, `BadContent` if it
        is altered or for somebody else.
        """
        if len(box) < BOX_OVERHEAD_BYTES:
            raise BadFrame(f"a sealed box of {len(box)} bytes; at least {BOX_OVERHEAD_BYTES} are needed")
        if len(box) >= HYBRID_OVERHEAD_BYTES:
            try:
                return _SUITE.decrypt(box, self._hybrid, HYBRID_DOMAIN + info)
            except (ValueError, InvalidTag):
                pass  # a long classical box
        public = box[:AGREEMENT_KEY_BYTES]
        try:
            agreed = self._agreement.exchange(X25519PublicKey.from_public_bytes(public))
            key = _key(agreed, public, self.agreement_bytes, info)
            return AESGCM(key).decrypt(_NONCE, box[AGREEMENT_KEY_BYTES:], None)
        except (ValueError, InvalidTag):
            raise BadContent(
                "a sealed box does not open: it is altered, for another purpose or for somebody else"
            ) from None

    def __repr__(self) -> str:
        return "BoxKey()"

    def __reduce__(self) -> str:
        raise OurFault("a private key is not pickled")


def is_hybrid(receiver: bytes) -> bool:
    """Returns True for a hybrid public key, False for a classical one."""
    return len(receiver) == HYBRID_KEY_BYTES


@lru_cache(CHECKED_MAX)
def check_receiver(receiver: bytes) -> None:
    """Raises `OurFault` for bytes to which no box can be sealed. Good keys are remembered: somebody who shows ever new
    ones makes others be tried anew, which costs what it cost before.
    """
    if len(receiver) not in (AGREEMENT_KEY_BYTES, HYBRID_KEY_BYTES):
        raise OurFault(f"a public key for boxes has {AGREEMENT_KEY_BYTES} or {HYBRID_KEY_BYTES} bytes")
    if is_hybrid(receiver):
        _hybrid_key(receiver)
    try:  # with a point of small order all agree on zeros, which is refused
        _TRIAL.exchange(X25519PublicKey.from_public_bytes(receiver[-AGREEMENT_KEY_BYTES:]))
    except ValueError:
        raise OurFault("the receiver's X25519 key is a point of small order") from None


def seal_box(receiver: bytes, plaintext: bytes, info: bytes, ephemeral: bytes) -> bytes:
    """Returns `plaintext` sealed to the public key `receiver`: 1,136 bytes longer for a hybrid key, else 48.

    `ephemeral`: 32 uniformly random secret bytes, never used again; a hybrid box has randomness of its own. Raises
    `OurFault` for invalid keys.
    """
    if is_hybrid(receiver):
        key = _hybrid_key(receiver)
        try:
            return _SUITE.encrypt(plaintext, key, HYBRID_DOMAIN + info)
        except ValueError:
            raise OurFault("the receiver's X25519 key is a point of small order") from None
    if len(ephemeral) != AGREEMENT_KEY_BYTES:
        raise OurFault(f"an X25519 private key has {AGREEMENT_KEY_BYTES} bytes, not {len(ephemeral)}")
    private = X25519PrivateKey.from_private_bytes(ephemeral)
    public = private.public_key().public_bytes_raw()
    try:
        agreed = private.exchange(X25519PublicKey.from_public_bytes(receiver))
    except ValueError:
        raise OurFault("the receiver's key is no X25519 public key of 32 bytes") from None
    return public + AESGCM(_key(agreed, public, receiver, info)).encrypt(_NONCE, plaintext, None)


def _hybrid_key(receiver: bytes) -> MLKEM768X25519PublicKey:
    try:
        encapsulation = MLKEM768PublicKey.from_public_bytes(receiver[:ENCAPSULATION_KEY_BYTES])
        agreement = X25519PublicKey.from_public_bytes(receiver[ENCAPSULATION_KEY_BYTES:])
    except ValueError:
        raise OurFault("the receiver's key is no ML-KEM-768 and X25519 key") from None
    return MLKEM768X25519PublicKey(encapsulation, agreement)


def _key(agreed: bytes, ephemeral: bytes, receiver: bytes, info: bytes) -> bytes:
    bound = b"veilmq/1 box" + ephemeral + receiver + info
    return HKDF(hashes.SHA256(), 32, None, bound).derive(agreed)
