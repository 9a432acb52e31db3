"""The receiver's file of scope keys: new keys come before the rows needing them, old ones stay as long as those rows.

The order makes it safe: a key is in the file, synced, before the collector takes publications under it for whole, so
no executor sees a row of a new epoch without its key. A key the job no longer holds (its epoch is over) stays until
the last segment with rows under it has been trimmed; a key that is neither held nor needed goes. Scopes without epoch
keys stay. Only the process that has the receiver's lock writes. Not here: where keys come from (`replicas`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from gateway.files import write_durably
from keys.derivation import Derivation
from keys.envelope import KeyHeader, KeyName
from keys.epochs import KEY_BYTES
from keys.errors import KeysError
from keys.identity import Identity
from spark_ingest.secrets.grants import GrantedScope, Grants, encode_grants, read_grants, seal_grants

KEPT_MAX = 65_536
"""Old keys that are kept for their segments; beyond this bound the oldest epochs go first."""


class GrantsWriter:
    """The writer of a receiver's file. `renew_content`, then `write` the result, then tell the collector
    `key_names`.
    """

    def __init__(
        self,
        path: Path,
        newest_segment: int,
        needed: Iterable[KeyName],
        *,
        readers: Sequence[Identity] = (),
        random: Callable[[int], bytes] | None = None,
    ) -> None:
        """Reads the present file. Raises GrantsError for a file that is not ours.

        `needed`: keys of the newest segment's rows. `readers`: the identity to which the file is sealed, and former
        ones.
        `random(n)`: n unpredictable bytes, for the local key of shares and for sealing; without it, there is no local
        key.
        A segment number beyond the newest is of another spool, whose rows may still exist: it is lowered.
        """
        self._path = path
        self._readers, self._random = readers, random
        known = read_grants(path, readers) if path.exists() else Grants({})
        self._scopes = dict(known.scopes)
        self.spool_key = next(iter(known.spool_keys), None)
        """In the file with the first `write`: nothing may be sealed under it before."""
        # Sealed anew by each process: the file may be in clear, or sealed to the key of before a rotation.
        self._unwritten = bool(readers) or (self.spool_key is None and random is not None)
        if self.spool_key is None and random is not None:
            self.spool_key = random(KEY_BYTES)
        self._last = {
            name: min(number, newest_segment)
            for scope in self._scopes.values()
            for name, number in scope.segments.items()
        }
        self._held: set[KeyName] = set()
        self.used(newest_segment, needed)

    @property
    def key_names(self) -> frozenset[KeyName]:
        """The epoch keys that executors have."""
        return frozenset(name for scope in self._scopes.values() for name in scope.keys)

    @property
    def check_values(self) -> dict[KeyName, bytes]:
        """The epoch keys that executors have, each with its check value in key headers."""
        keys = (pair for scope in self._scopes.values() for pair in scope.keys.items())
        return {name: Derivation(key).check_value for name, key in keys}

    def used(self, segment: int, names: Iterable[KeyName]) -> None:
        """Notes that rows under these keys are in this segment."""
        for name in names:
            self._last[name] = max(segment, self._last.get(name, 0))

    def renew_content(self, held: Grants, oldest_segment: int, newest_segment: int) -> bytes | None:
        """Returns the new content of the file, None if it needs none. `held`: the scopes and keys the job may read
        now.
        """
        now = {name for scope in held.scopes.values() for name in scope.keys}
        # What was held until now may be under way to the newest segment.
        self.used(newest_segment, self._held - now)
        self._held = now
        old = [name for name in self.key_names - now if self._last.get(name, 0) >= max(1, oldest_segment)]
        kept = set(sorted(old, key=lambda name: (name.epoch, name.bump))[-KEPT_MAX:])
        self._last = {name: number for name, number in self._last.items() if name in kept or name in now}
        scopes: dict[str, GrantedScope] = {}
        for wire in {*self._scopes, *held.scopes}:
            before, scope = self._scopes.get(wire), held.scopes.get(wire)
            known = {} if before is None else {name: key for name, key in before.keys.items() if name in kept}
            keys = {**known, **(scope.keys if scope is not None else {})}
            rule = scope or before
            assert rule is not None
            if scope is not None or keys or not rule.keyed:
                segments = {name: self._last[name] for name in keys if self._last.get(name)}
                scopes[wire] = GrantedScope(wire, rule.keyed, rule.token_key, keys, segments)
        unchanged = scopes == self._scopes and self._path.exists() and not self._unwritten
        self._scopes = scopes
        if unchanged:
            return None
        content = encode_grants(scopes.values(), self.spool_key)
        if self._readers and self._random is not None:
            return seal_grants(content, self._readers[0], self._random(KEY_BYTES))
        return content

    def write(self, content: bytes) -> None:
        """Replaces the file, mode 0600, so that a crash leaves the old or the new one. Raises OSError."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._path, content)
        self._unwritten = False


def names_in(batches: Iterable[Any]) -> set[KeyName]:
    """Returns the epoch keys under which rows of the spool are sealed."""
    headers = (batch.column("key_header").drop_null().to_pylist() for batch in batches)
    return names_of(header for batch in headers for header in batch)


def names_of(key_headers: Iterable[bytes]) -> set[KeyName]:
    """Returns the epoch keys of some key headers of the spool."""
    names = set()
    for header in key_headers:
        try:
            names.add(KeyHeader.decode(header).epoch_key)
        except KeysError:
            continue  # of another version of the frames: nobody opens it
    return names
