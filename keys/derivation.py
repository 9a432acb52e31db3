"""The derivation of content keys from the secret of a data key and the epoch key of its scope (docs/protocol.md §2.4).

    PRK        = HKDF-Extract(salt = K[scope, epoch] or zeros, ikm = S)
    enc        = HKDF-Expand(PRK, "veilmq/1 enc" ‖ H, 32)             the AES-256-GCM key
    commitment = HKDF-Expand(PRK, "veilmq/1 commit" ‖ H, 32)          in the key header
    kcv        = HKDF-Expand(K, "veilmq/1 kcv", 16)                   zeros for a shares-only scope

HKDF (RFC 5869) with SHA-256, and HMAC (RFC 2104) inside it, are written out over `hashlib`: each output is a single
block, the epoch key is hashed once for many secrets, and the two outputs share a key. A library's objects take three
times as long. A test compares the results with such a library.

Not here: who checks the results, and against what (`envelope`, `keyopening`).
"""

from __future__ import annotations

from hashlib import sha256

from keys.errors import OurFault
from keys.keyheader import KCV_BYTES, NO_KCV

NO_SALT = bytes(32)
_BLOCK_BYTES = 64
_INNER = bytes(each ^ 0x36 for each in range(256))
_OUTER = bytes(each ^ 0x5C for each in range(256))
_LAST = b"\x01"  # number of the only block of an output


class Derivation:
    """A derivation under a single 32-byte epoch key, or under none (a shares-only scope). Raises `OurFault` for any
    other key.
    """

    __slots__ = ("_inner", "_outer", "check_value")

    def __init__(self, scope_key: bytes | None) -> None:
        if scope_key is not None and (len(scope_key) != len(NO_SALT) or scope_key == NO_SALT):
            raise OurFault("an epoch key has 32 bytes and is not zero: pass None for a shares-only scope")
        inner, outer = _pads(NO_SALT if scope_key is None else scope_key)
        self._inner, self._outer = sha256(inner), sha256(outer)
        self.check_value = NO_KCV if scope_key is None else _expand(inner, outer, b"veilmq/1 kcv")[:KCV_BYTES]
        """What a key header made with this epoch key carries as `kcv`."""

    def derive(self, secret: bytes, binding: bytes) -> tuple[bytes, bytes]:
        """Returns the AES-256-GCM key and the commitment, 32 bytes each. `binding`: the hash H of the key header."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(secret)
        outer.update(inner.digest())
        pads = _pads(outer.digest())
        return _expand(*pads, b"veilmq/1 enc" + binding), _expand(*pads, b"veilmq/1 commit" + binding)


def _pads(key: bytes) -> tuple[bytes, bytes]:
    """Returns the inner and the outer block that HMAC hashes first."""
    block = key.ljust(_BLOCK_BYTES, b"\0")
    return block.translate(_INNER), block.translate(_OUTER)


def _expand(inner: bytes, outer: bytes, info: bytes) -> bytes:
    """Returns the first block of an HKDF output; the key is given as its pads."""
    return sha256(outer + sha256(inner + info + _LAST).digest()).digest()
