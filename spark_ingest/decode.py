"""Executor side: rows of the spool in, rows in clear out. Recombines shares, derives data keys, opens content.

One key for many rows: shares are combined and the key derived once per key and process; a row then costs one
AES-GCM opening. What cannot be opened is never dropped without a trace: it becomes a row of the quarantine
stream with a reason, and the other streams log how many there were.

It verifies no publisher signature again: the receiver did before it wrote. It still notices every change of
content, header or topic, since all three are authenticated by the data key, and that by the commitment.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keys.envelope import NO_KEY, DataKey, Inner, KeyHeader, open_key
from keys.errors import BadContent, KeysError, WrongEpochKey
from keys.message import PREFIX_BYTES
from keys.shamir import combine
from keys.sharetree import decode_shares
from keys.topictokens import matches, tokenise_topic

from .admission import TIME_MS_MAX
from .grants import Grants, GrantsFile
from .keyring import told_name
from .spool_writer import KeyMaterial

KEYS_OPENED_MAX = 8_192
"""Opened data keys that a worker process keeps; an evicted one is recombined again."""
TOPICS_REMEMBERED = 65_536
"""Verdicts on topics that a worker process keeps."""


@dataclass(slots=True)
class Opened:
    """What came of one record batch: row numbers with their content, and row numbers with a reason."""

    rows: list[int] = field(default_factory=list)
    inners: list[Inner] = field(default_factory=list, repr=False)
    closed: list[tuple[int, str]] = field(default_factory=list)


class Opener:
    """Opens rows with the keys of one grants file. Keeps opened keys between batches."""

    def __init__(self, grants: Path) -> None:
        self._file = GrantsFile(grants)
        self._grants = Grants({})
        self._keys: OrderedDict[bytes, DataKey | str] = OrderedDict()
        self._tokens: dict[tuple[str, str], bool] = {}

    @property
    def hides_topics(self) -> bool:
        """Whether wire topics may be tokens, so that only the sealed topic tells what a row is about."""
        return bool(self._grants.token_keys)

    def refresh(self) -> None:
        """Read the grants file again if it changed. Raises GrantsError."""
        self._grants, changed = self._file.load()
        if changed:
            self._keys.clear()
            self._tokens.clear()

    def open(self, batch: Any, wanted: Sequence[bool] | None = None) -> Opened:
        """Open a batch of spool rows (one group), or of them the `wanted` ones. Raises nothing for bad rows."""
        result = Opened()
        names = ("sequence", "key_id", "wire_topic", "header", "sealed", "reason", "publisher")
        columns = [batch.column(name).to_pylist() for name in names]
        material = _material(batch)
        for row, (sequence, key_id, topic, header, sealed, reason, publisher) in enumerate(zip(*columns, strict=True)):
            if wanted is not None and not wanted[row]:
                continue
            if reason is not None or sealed is None:
                result.closed.append((row, reason or "content: the spool holds none"))
                continue
            try:
                if key_id == NO_KEY:
                    inner = Inner.decode(sealed)
                else:
                    key = self._key(key_id, publisher, topic, material.get(key_id))
                    inner = Inner.decode(key.open(header[:PREFIX_BYTES], sequence, topic, sealed))
                self._check(inner, topic)
            except KeysError as error:
                result.closed.append((row, _reason(error)))
            except _NoKeyError as error:
                result.closed.append((row, str(error)))
            else:
                result.rows.append(row)
                result.inners.append(inner)
        return result

    def _key(self, key_id: bytes, publisher: bytes, topic: str, material: KeyMaterial | None) -> DataKey:
        known = self._keys.get(key_id)
        if known is None:
            try:
                known = self._derive(key_id, publisher, topic, material)
            except KeysError as error:
                known = _reason(error)
            self._keys[key_id] = known
            if len(self._keys) > KEYS_OPENED_MAX:
                self._keys.popitem(last=False)
        if isinstance(known, str):
            raise _NoKeyError(known)
        return known

    def _derive(self, key_id: bytes, publisher: bytes, topic: str, material: KeyMaterial | None) -> DataKey | str:
        """The data key, or why there is none."""
        if material is None:
            raise _NoKeyError("key: the spool holds no key header for this row")
        header = KeyHeader.decode(material.header)
        if header.key_id != key_id or header.publisher != publisher or not matches(header.scope, topic):
            return "key: its header belongs to another key, publisher or scope"
        scope = self._grants.scopes.get(header.scope)
        epoch_key = scope.keys.get(header.epoch_key) if scope is not None and scope.keyed else None
        if scope is None or (scope.keyed and epoch_key is None):
            return f"grant: the grants file has no key for {told_name(header.epoch_key)}"
        shares = {share.label[0].place: share.value for share in decode_shares(material.shares)}
        if len(shares) != header.hops[0].threshold:
            return "shares: not exactly k of them"
        return open_key(header, combine(shares), epoch_key)

    def _check(self, inner: Inner, wire_topic: str) -> None:
        """The publisher had the right to the wire topic, so the sealed topic must be the same one."""
        if inner.time_ms > TIME_MS_MAX:
            raise _NoKeyError("content: a time beyond the year 9999")
        if inner.topic == wire_topic:
            return
        pair = (inner.topic, wire_topic)
        if pair not in self._tokens:
            if len(self._tokens) >= TOPICS_REMEMBERED:
                self._tokens.clear()
            self._tokens[pair] = any(tokenise_topic(inner.topic, key) == wire_topic for key in self._grants.token_keys)
        if not self._tokens[pair]:
            raise _NoKeyError("content: sealed for another topic than the one on the wire")


class TopicSet:
    """Whether a topic matches one of some filters; remembers verdicts."""

    def __init__(self, filters: Sequence[str]) -> None:
        self._filters = tuple(filters)
        self._known: dict[str, bool] = {}

    def __contains__(self, topic: str) -> bool:
        verdict = self._known.get(topic)
        if verdict is None:
            if len(self._known) >= TOPICS_REMEMBERED:
                self._known.clear()
            verdict = self._known[topic] = any(matches(each, topic) for each in self._filters)
        return verdict


class _NoKeyError(Exception):
    """Why a row stays closed although no frame is malformed; the message is the row's `reason`."""


def _reason(error: KeysError) -> str:
    if isinstance(error, WrongEpochKey):
        return f"grant: {error}"
    return f"{'content' if isinstance(error, BadContent) else 'frame'}: {error}"


def _material(batch: Any) -> dict[bytes, KeyMaterial]:
    """Key material of a group: on the first row that uses each key."""
    headers = batch.column("key_header")
    if headers.null_count == len(headers):
        return {}
    names = ("key_id", "key_header", "shares")
    return {
        key_id: KeyMaterial(header, shares or b"")
        for key_id, header, shares in zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        if header is not None
    }
