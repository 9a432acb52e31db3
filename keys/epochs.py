"""Epoch keys of scopes and the key of topic tokens, derived from one root (E2, PROTOCOL §6).

This is the first epoch's part only: whoever holds the root derives every key. Walking the root forward,
threshold issuance by several servers, revocation and the keeping of old epochs are not here yet; until they
are, an epoch ends by the operator giving out a new root, and a leaver can read until then.
"""

from __future__ import annotations

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from keys import frames
from keys.errors import OurFault

KEY_BYTES = 32


def scope_key(root: bytes, scope: str, epoch: int) -> bytes:
    """K[scope, epoch]: 32 secret bytes, independent for every scope and epoch.

    `root`: 32 uniformly random secret bytes. Raises `OurFault` for other sizes or an epoch beyond 32 bits.
    """
    return _derive(root, b"veilmq/1 scope" + frames.text(scope) + frames.number(epoch, 4))


def token_key(root: bytes, generation: int = 0) -> bytes:
    """K_tok of one generation: the 32-byte key for `topictokens`. It outlives epochs (E2)."""
    return _derive(root, b"veilmq/1 tokens" + frames.number(generation, 4))


def _derive(root: bytes, info: bytes) -> bytes:
    if len(root) != KEY_BYTES:
        raise OurFault(f"a root key of {len(root)} bytes; {KEY_BYTES} are needed")
    return HKDFExpand(hashes.SHA256(), KEY_BYTES, info).derive(root)
