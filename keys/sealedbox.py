"""Boxes sealed to a party's X25519 key: token keys in the overlay file, answers of key servers (docs/protocol.md
§9.4).

    box = ephemeral public(32)  AES-256-GCM(key, nonce of zeros, plaintext, no associated data)
    key = HKDF(X25519(ephemeral, receiver), no salt, "veilmq/1 box" ‖ ephemeral(32) ‖ receiver(32) ‖ info, 32)

The shape is that of HPKE's base mode (RFC 9180 §5.1.1). The implementation in `cryptography` draws its own
randomness; here the caller passes it in, so that a run can be repeated from its seed. A box does not prove its
author:
where that matters, the box stands inside a signed frame. `info` binds a box to its purpose: under another `info` it
does not open.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from keys.errors import BadContent, BadFrame, OurFault

AGREEMENT_KEY_BYTES = 32
BOX_OVERHEAD_BYTES = AGREEMENT_KEY_BYTES + 16
_NONCE = bytes(12)  # every box has a key of its own


def seal_box(receiver: bytes, plaintext: bytes, info: bytes, ephemeral: bytes) -> bytes:
    """Returns `plaintext` sealed to the 32-byte X25519 public key `receiver`; 48 bytes longer.

    `ephemeral`: 32 uniformly random secret bytes, never used again. Raises `OurFault` for invalid keys.
    """
    if len(ephemeral) != AGREEMENT_KEY_BYTES:
        raise OurFault(f"an X25519 private key has {AGREEMENT_KEY_BYTES} bytes, not {len(ephemeral)}")
    private = X25519PrivateKey.from_private_bytes(ephemeral)
    public = private.public_key().public_bytes_raw()
    try:
        agreed = private.exchange(X25519PublicKey.from_public_bytes(receiver))
    except ValueError:
        raise OurFault("the receiver's key is no X25519 public key of 32 bytes") from None
    return public + AESGCM(_key(agreed, public, receiver, info)).encrypt(_NONCE, plaintext, None)


def open_box(receiver: X25519PrivateKey, box: bytes, info: bytes) -> bytes:
    """Returns the plaintext of a box. Raises `BadFrame` if it is too short, `BadContent` if it is not for us or
    altered.
    """
    if len(box) < BOX_OVERHEAD_BYTES:
        raise BadFrame(f"a sealed box of {len(box)} bytes; at least {BOX_OVERHEAD_BYTES} are needed")
    public = box[:AGREEMENT_KEY_BYTES]
    try:
        agreed = receiver.exchange(X25519PublicKey.from_public_bytes(public))
        key = _key(agreed, public, receiver.public_key().public_bytes_raw(), info)
        return AESGCM(key).decrypt(_NONCE, box[AGREEMENT_KEY_BYTES:], None)
    except (ValueError, InvalidTag):
        raise BadContent(
            "a sealed box does not open: it is altered, for another purpose or for somebody else"
        ) from None


def _key(agreed: bytes, ephemeral: bytes, receiver: bytes, info: bytes) -> bytes:
    bound = b"veilmq/1 box" + ephemeral + receiver + info
    return HKDF(hashes.SHA256(), 32, None, bound).derive(agreed)
