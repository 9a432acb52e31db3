"""Shares at rest: sealed under a local key lying beside the scope keys, so that a spool alone opens nothing.

Content of a scope without epoch keys opens with k shares, and a spool holds k shares for each data key. So the
receiver seals them, under a key of its own in the file of scope keys: the owner of that file may read, the owner of
the spool alone (a backup, a disk, a stolen directory) may not. Shares of other scopes are sealed too, on top.

    0x00  tag(4: of the local key)  nonce(12)  AES-256-GCM(local key, encoded shares, associated data: key header)

A frame of shares begins with the protocol's version, which is not 0: shares in clear are told apart, and read. Not
here: where the local key is kept (`grants`).
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
    """A sealer of shares under a single local key of 32 bytes. `random(n)`: n unpredictable bytes."""

    def __init__(self, key: bytes, random: Callable[[int], bytes]) -> None:
        self._head = SEALED + key_tag(key)
        self._aead = AESGCM(key)
        self._random = random

    def seal(self, material: SpooledKey) -> SpooledKey:
        """Returns the material with sealed shares, for the disk."""
        if not material.shares:
            return material
        nonce = self._random(NONCE_BYTES)
        sealed = self._aead.encrypt(nonce, material.shares, material.header)
        return SpooledKey(material.header, self._head + nonce + sealed)

    def seal_all(self, materials: Mapping[bytes, SpooledKey]) -> dict[bytes, SpooledKey]:
        """Returns the materials of a group with sealed shares, by key id."""
        return {key_id: self.seal(material) for key_id, material in materials.items()}


class ShareOpener:
    """An opener of shares sealed under any of some local keys."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._by_tag = {key_tag(key): AESGCM(key) for key in keys}

    def open(self, material: SpooledKey) -> SpooledKey | None:
        """Returns the material with shares in clear, None if none of our keys opens them."""
        shares = self.shares(material.header, material.shares)
        return None if shares is None else SpooledKey(material.header, shares)

    def shares(self, header: bytes, shares: bytes) -> bytes | None:
        """Returns shares in clear of a key with this header, None if none of our keys opens them."""
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
        """Returns the materials that open."""
        return [opened for each in materials if (opened := self.open(each)) is not None]


def tag_of(shares: bytes) -> bytes | None:
    """Returns the tag of the local key that sealed some shares; None for shares in clear."""
    return shares[len(SEALED) : len(SEALED) + TAG_BYTES] if shares.startswith(SEALED) else None


def key_tag(key: bytes) -> bytes:
    """Returns the tag telling a local key from others."""
    return hashlib.sha256(b"veilmq/1 spool key" + key).digest()[:TAG_BYTES]
