"""Executor side: the data keys of the rows of a batch, each opened once a process.

A key comes from the header and shares that the spool holds on the first row of a group that uses it, and from the
epoch key in the file of scope keys. No signature and no share is verified again: the receiver did before it wrote.
That header, shares and epoch key are those that the publisher meant shows in the commitment.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from keys.envelope import DataKey
from keys.errors import BadContent, BadShare, KeysError, WrongEpochKey
from keys.keyopening import KeyOpener, SealedKey, key_id_of, publisher_of
from keys.topictokens import matches

from .grants import Grants
from .keyring import told_name
from .spool_writer import KeyMaterial

KEYS_OPENED_MAX = 8_192
"""Opened data keys that a worker process keeps over batches; an evicted one is recombined again."""
TOPICS_REMEMBERED = 65_536
"""Verdicts on topics that a worker process keeps, in each of its tables."""


class Use(NamedTuple):
    """A key that rows are sealed with; publisher and wire topic of the first of them."""

    key_id: bytes
    publisher: bytes
    wire_topic: str


class DataKeys:
    """Data keys by key id."""

    def __init__(self) -> None:
        self._opener = KeyOpener()
        self._scopes: dict[tuple[str, str], bool] = {}
        self._known: OrderedDict[bytes, DataKey] = OrderedDict()

    def clear(self) -> None:
        """The file of scope keys changed."""
        self._opener = KeyOpener()
        self._known.clear()

    def get(self, uses: Iterable[Use], materials: Mapping[bytes, KeyMaterial], grants: Grants) -> list[DataKey | str]:
        """For each use, in order."""
        found: list[DataKey | str] = []
        waiting: list[tuple[int, Use, SealedKey]] = []
        for number, use in enumerate(uses):
            known: DataKey | str | None = self._known.get(use.key_id)
            if known is None:
                sealed = self._sealed(use, materials.get(use.key_id), grants)
                if isinstance(sealed, SealedKey):
                    waiting.append((number, use, sealed))
                known = sealed if isinstance(sealed, str) else ""
            found.append(known)
        for (number, use, _), opened in zip(waiting, self._opener.open([each for *_, each in waiting]), strict=True):
            if isinstance(opened, KeysError):
                # Not remembered: another group of the spool may hold the same key whole.
                found[number] = reason_of(opened)
            else:
                found[number] = self._known[use.key_id] = opened
        while len(self._known) > KEYS_OPENED_MAX:
            self._known.popitem(last=False)
        return found

    def _sealed(self, use: Use, material: KeyMaterial | None, grants: Grants) -> SealedKey | str:
        """What it takes to open the key, or why it stays closed."""
        if material is None:
            return "key: the spool holds no key header for this row"
        header = material.header
        try:
            outline = self._opener.outline(header)
        except KeysError as error:
            return reason_of(error)
        name = outline.name
        fits = key_id_of(header) == use.key_id and publisher_of(header) == use.publisher
        if not fits or not self._in_scope(name.scope, use.wire_topic):
            return "key: its header belongs to another key, publisher or scope"
        scope = grants.scopes.get(name.scope)
        epoch_key = scope.keys.get(name) if scope is not None and scope.keyed else None
        if scope is None or (scope.keyed and epoch_key is None):
            return f"grant: the grants file has no key for {told_name(name)}"
        unsealed = grants.shares.open(material)
        if unsealed is None:
            return "grant: the file of scope keys lacks the local key that seals the shares of this spool"
        return SealedKey(use.key_id, outline, header, unsealed.shares, epoch_key)

    def _in_scope(self, scope: str, wire_topic: str) -> bool:
        pair = (scope, wire_topic)
        verdict = self._scopes.get(pair)
        if verdict is None:
            if len(self._scopes) >= TOPICS_REMEMBERED:
                self._scopes.clear()
            verdict = self._scopes[pair] = matches(scope, wire_topic)
        return verdict


def reason_of(error: KeysError) -> str:
    """Column `reason`: what is to blame, then why."""
    kinds = {WrongEpochKey: "grant", BadContent: "content", BadShare: "shares"}
    return f"{kinds.get(type(error), 'frame')}: {error}"
