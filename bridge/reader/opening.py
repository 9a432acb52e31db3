"""Opening of a data key whose shares fit their commitments.

A gateway obtains the decryption key (`OpeningKeys`). An ingest job, whose receiver decrypts nothing, obtains k shares
fitting the publisher's commitments. `KeyRing` collects shares and searches.
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
    """A way to open a key whose shares fit their commitments, with its preconditions."""

    def may_open(self, header: KeyHeader) -> bool:
        """Returns True if this reader may read the scope of the key."""

    def lacks(self, header: KeyHeader) -> bool:
        """Returns True if opening needs an epoch key that is not here."""

    def check(self, header: KeyHeader) -> None:
        """Raises WrongEpochKey if the epoch key here differs from the publisher's."""

    def open(self, header: KeyHeader, level1: Mapping[int, bytes], secret: bytes) -> Opened_co:
        """Opens the key. `level1` holds k or more fitting values by place; `secret` follows from k of them. Raises
        BadContent.
        """


class OpeningKeys:
    """A gateway's `Opening`: the decryption keys of the scopes that it may read."""

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
