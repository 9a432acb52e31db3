"""What a data key becomes once its shares fit their commitments.

To a gateway the key that decrypts (`OpeningKeys`); to an ingest job, whose receiver decrypts nothing, k shares that fit
what the publisher committed to. Not here: collecting and searching (`KeyRing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from bridge.document import ScopeSecret
from keys.envelope import DataKey, KeyHeader, check_epoch_key, open_key
from keys.epochs import ScopeKeys

Opened = TypeVar("Opened")
Opened_co = TypeVar("Opened_co", covariant=True)


class Opening(Protocol[Opened_co]):
    """What becomes of a key whose shares fit their commitments, and what that takes."""

    def may_open(self, header: KeyHeader) -> bool:
        """Whether its scope is for us."""

    def lacks(self, header: KeyHeader) -> bool:
        """Whether it takes an epoch key that is not here."""

    def check(self, header: KeyHeader) -> None:
        """Raises WrongEpochKey if ours is another one than the publisher's."""

    def open(self, header: KeyHeader, level1: Mapping[int, bytes], secret: bytes) -> Opened_co:
        """`level1`: by place, k or more values that fit; `secret` follows from k of them. Raises BadContent."""


class OpeningKeys:
    """A gateway's `Opening`: the keys that decrypt, in the scopes that it may read."""

    def __init__(self, secrets: Sequence[ScopeSecret], keys: ScopeKeys) -> None:
        self.adopt(secrets)
        self._keys = keys

    def adopt(self, secrets: Sequence[ScopeSecret]) -> None:
        self._keyed = {secret.scope.filter: secret.scope.keyed for secret in secrets}

    def may_open(self, header: KeyHeader) -> bool:
        return header.scope in self._keyed

    def lacks(self, header: KeyHeader) -> bool:
        return self._keyed[header.scope] and self._keys.get(header.epoch_key) is None

    def check(self, header: KeyHeader) -> None:
        check_epoch_key(header, self._epoch_key(header))

    def open(self, header: KeyHeader, level1: Mapping[int, bytes], secret: bytes) -> DataKey:
        return open_key(header, secret, self._epoch_key(header))

    def _epoch_key(self, header: KeyHeader) -> bytes | None:
        return self._keys.get(header.epoch_key) if self._keyed[header.scope] else None
