"""The data keys of the rows of a batch in an executor, each opened once a process.

A key comes from the header and shares the spool holds on the first row of a group that uses the key, and from the
epoch key in the file of scope keys. No signature and no share is verified again: the receiver did before it wrote. The
commitment proves that header, shares and epoch key are those of the publisher.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bridge.document import RecordRights
from keys.envelope import DataKey
from keys.errors import BadContent, BadFrame, BadShare, KeysError, WrongEpochKey
from keys.keyopening import KeyOpener, Outline, SealedKey, key_id_of, publisher_of
from spark_ingest.secrets import Grants, ShareOpener

KEYS_OPENED_MAX = 8_192
"""Opened data keys that a worker process keeps over batches; an evicted key is recombined again."""
TOPICS_REMEMBERED = 65_536
"""Verdicts on topics that a worker process keeps, in each of its tables."""


GRANT = "grant:"
"""The begin of reasons that a key in the file of scope keys would cure."""
_NO_EPOCH_KEY = f"{GRANT} the grants file has no key for "
_NO_LOCAL_KEY = f"{GRANT} the file of scope keys lacks the local key that seals the shares of this spool"


class KeyUse(NamedTuple):
    """A key of rows; with the publisher of the first of them, and its rights from the spool."""

    key_id: bytes
    publisher: bytes
    rights: str | None


class OpenedKeys:
    """The opened data keys, by key id."""

    def __init__(self) -> None:
        self._opener = KeyOpener()
        self._scopes: dict[str, str] = {}  # by text of rights
        self._known: OrderedDict[bytes, DataKey] = OrderedDict()

    def drop_keys(self) -> None:
        """Drops all keys, since the file of scope keys changed."""
        self._opener = KeyOpener()
        self._known.clear()

    def keys_for(
        self, uses: Iterable[KeyUse], materials: Mapping[bytes, tuple[bytes, bytes]], grants: Grants
    ) -> list[DataKey | str]:
        """Returns a key or a reason for each use, in order. `materials`: the spool's headers and shares, by key id."""
        found: list[DataKey | str] = []
        numbers: list[int] = []
        waiting: list[SealedKey] = []
        epoch_keys = _EpochKeys(grants)
        for number, use in enumerate(uses):
            known: DataKey | str | None = self._known.get(use.key_id)
            if known is None:
                sealed = self._sealed_key(use, materials.get(use.key_id), epoch_keys, grants.shares)
                if isinstance(sealed, SealedKey):
                    numbers.append(number)
                    waiting.append(sealed)
                    known = ""
                else:
                    known = sealed
            found.append(known)
        for number, key, opened in zip(numbers, waiting, self._opener.open_keys(waiting), strict=True):
            if isinstance(opened, KeysError):
                # Not remembered: another group of the spool may hold the same key whole.
                found[number] = reason_of(opened)
            else:
                found[number] = self._known[key.key_id] = opened
        while len(self._known) > KEYS_OPENED_MAX:
            self._known.popitem(last=False)
        return found

    def _sealed_key(
        self, use: KeyUse, material: tuple[bytes, bytes] | None, epoch_keys: _EpochKeys, local: ShareOpener
    ) -> SealedKey | str:
        """Returns the inputs of opening the key, or the reason for which it stays closed."""
        if material is None:
            return "key: the spool holds no key header for this row"
        header, sealed_shares = material
        try:
            outline = self._opener.outline(header)
        except KeysError as error:
            return reason_of(error)
        fits = key_id_of(header) == use.key_id and publisher_of(header) == use.publisher
        if not fits or self._scope_of(use) != outline.name.scope:
            return "key: its header belongs to another key, publisher or scope"
        epoch_key = epoch_keys.key_of_outline(outline)
        if isinstance(epoch_key, str):
            return epoch_key
        shares = local.shares(header, sealed_shares)
        if shares is None:
            return _NO_LOCAL_KEY
        return SealedKey(use.key_id, outline, header, shares, epoch_key)

    def _scope_of(self, use: KeyUse) -> str | None:
        """Returns the scope in which a row was published; None if the spool does not name it."""
        if use.rights is None:
            return None
        known = self._scopes.get(use.rights)
        if known is None:
            if len(self._scopes) >= TOPICS_REMEMBERED:
                self._scopes.clear()
            try:
                known = RecordRights.from_text(use.rights).scope
            except BadFrame:
                return None
            self._scopes[use.rights] = known
        return known


class _EpochKeys:
    """The epoch keys by outline: a key, None for a scope without keys, or the reason for which there is none."""

    def __init__(self, grants: Grants) -> None:
        self._scopes = grants.scopes
        self._known: dict[bytes, bytes | str | None] = {}

    def key_of_outline(self, outline: Outline) -> bytes | str | None:
        if outline.path not in self._known:
            name = outline.name
            scope = self._scopes.get(name.scope)
            found: bytes | str | None = scope.keys.get(name) if scope is not None and scope.keyed else None
            if scope is None or (scope.keyed and found is None):
                found = _NO_EPOCH_KEY + name.described()
            self._known[outline.path] = found
        return self._known[outline.path]


def is_absent(reason: str) -> bool:
    """Returns True if a key stays closed because the file of scope keys lacks the key opening it."""
    return reason.startswith((_NO_EPOCH_KEY, _NO_LOCAL_KEY))


def reason_of(error: KeysError) -> str:
    """Returns the text of column `reason`: the culprit, then the cause."""
    kinds = {WrongEpochKey: "grant", BadContent: "content", BadShare: "shares"}
    return f"{kinds.get(type(error), 'frame')}: {error}"
