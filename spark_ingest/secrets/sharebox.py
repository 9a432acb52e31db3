"""Shares at rest: sealed under a local key that lies beside the scope keys, so that a spool alone opens nothing.

Content of a scope without epoch keys opens with k shares, and k shares are what a spool holds for each data key. So the
receiver seals them, under a key of its own that it keeps in the file of scope keys: who has that file may read, who has
only the spool (a backup, a disk, a stolen directory) may not. Of other scopes the shares are sealed too, on top.

    0x00  tag(4: of the local key)  nonce(12)  AES-256-GCM(local key, encoded shares, associated data: key header)

A frame of shares begins with the protocol's version, which is not 0: what an older receiver wrote in clear is told
apart, and read. Not here: where the local key is kept (`grants`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from spark_ingest.spool import SpooledKey

SEALED = b"\0"
TAG_BYTES = 4
NONCE_BYTES = 12
_HEAD_BYTES = len(SEALED) + TAG_BYTES + NONCE_BYTES


class ShareBox:
    """Seals under one local key of 32 bytes. `random(n)`: n unpredictable bytes."""

    def __init__(self, key: bytes, random: Callable[[int], bytes]) -> None:
        self._head = SEALED + key_tag(key)
        self._aead = AESGCM(key)
        self._random = random

    def seal(self, material: SpooledKey) -> SpooledKey:
        """For the disk."""
        if not material.shares:
            return material
        nonce = self._random(NONCE_BYTES)
        sealed = self._aead.encrypt(nonce, material.shares, material.header)
        return SpooledKey(material.header, self._head + nonce + sealed)

    def seal_all(self, materials: Mapping[bytes, SpooledKey]) -> dict[bytes, SpooledKey]:
        """The same for those of a group, by key id."""
        return {key_id: self.seal(material) for key_id, material in materials.items()}


class ShareOpener:
    """Opens what was sealed under any of some local keys."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._by_tag = {key_tag(key): AESGCM(key) for key in keys}

    def open(self, material: SpooledKey) -> SpooledKey | None:
        """With the shares in clear, None if none of our keys opens them."""
        shares = self.shares(material.header, material.shares)
        return None if shares is None else SpooledKey(material.header, shares)

    def shares(self, header: bytes, shares: bytes) -> bytes | None:
        """The shares in clear, of a key with this header; None as above."""
        if not shares.startswith(SEALED):
            return shares
        aead = self._by_tag.get(shares[len(SEALED) : len(SEALED) + TAG_BYTES])
        if aead is None or len(shares) < _HEAD_BYTES:
            return None
        try:
            return aead.decrypt(shares[_HEAD_BYTES - NONCE_BYTES : _HEAD_BYTES], shares[_HEAD_BYTES:], header)
        except InvalidTag:
            return None

    def open_all(self, materials: Iterable[SpooledKey]) -> list[SpooledKey]:
        """Those that open."""
        return [opened for each in materials if (opened := self.open(each)) is not None]


def tag_of(shares: bytes) -> bytes | None:
    """Which local key sealed some shares; None for shares in clear."""
    return shares[len(SEALED) : len(SEALED) + TAG_BYTES] if shares.startswith(SEALED) else None


def key_tag(key: bytes) -> bytes:
    """What tells a local key from another."""
    return hashlib.sha256(b"veilmq/1 spool key" + key).digest()[:TAG_BYTES]
