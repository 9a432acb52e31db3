"""Former scopes of stored publications: scopes that the owner removed, added or divided.

Publications left on disk were stored by the scopes of their time; the chain of each record is known only once it is
read. So after a change new publications wait behind everything left on disk before the change, in any scope, and
nothing is overtaken. A protected publication never goes in clear: this module remembers which former scopes were
plain. Both facts are on disk (`Keep`), for a change while this gateway was down. `placing` gives each record its
scope.
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.contract import Keep
from bridge.document import ScopeSecret
from keys.envelope import Mode
from keys.errors import KeysError
from keys.frames import Reader, number, text

FORMER_MAX = 1024
"""Former scopes of which it is known that they were plain or sealed; publications of others never go in clear."""
ROW = b"c"  # the name of the row


class FormerScopes:
    """The former scopes of one gateway. `secrets` are the scopes in which it publishes now."""

    def __init__(self, secrets: Iterable[ScopeSecret]) -> None:
        self._present = _plain(secrets)
        self._changes = 0
        self._former: dict[str, bool] = {}  # clear filters of scopes that are gone -> whether all of them were plain
        self._behind = 0  # what is left up to this number was stored before the last change
        self._is_open = False  # that number is below the next one that is stored
        self._newest = 0
        self._written = b""
        self._told: tuple[int, int] | None = None  # of what the row was made last

    def adopt(self, secrets: Iterable[ScopeSecret]) -> None:
        """Adopts the scopes of another version of the overlay."""
        self._change(self._present, _plain(secrets))

    def _change(self, before: dict[str, bool], present: dict[str, bool]) -> None:
        if before == present:
            return
        self._changes += 1
        for clear, plain in before.items():
            self._former[clear] = plain and self._former.pop(clear, True)
        while len(self._former) > FORMER_MAX:
            del self._former[next(iter(self._former))]
        self._present = present
        self._behind, self._is_open = max(self._behind, self._newest), not self._newest

    def was_plain(self, clear_filter: str) -> bool:
        """Returns True if a former scope was plain, so that its stored publications were meant to go in clear."""
        return self._former.get(clear_filter, False)

    def stored(self, first: int, last: int) -> None:
        """Notes that the next numbers, `first` to `last`, are stored."""
        if self._is_open:
            self._behind, self._is_open = max(self._behind, first - 1), False
        self._newest = max(self._newest, last)

    def is_behind(self, left: int | None) -> bool:
        """Returns True if new publications must wait. `left` is the first number left on disk."""
        if left is None or (left > self._behind and not self._is_open):
            self._behind, self._is_open = 0, False
        return self._behind > 0 or self._is_open

    # ------------------------------------------------------------------------------------------- over restarts

    def changes(self) -> list[Keep]:
        """Returns the row, if it changed since the last call."""
        now = self._behind, self._changes
        if now == self._told or not self._newest or self._is_open:  # or nothing is stored by these scopes yet
            return []
        self._told = now
        scopes = {**self._present, **self._former}
        told = [number(clear in self._present, 1) + number(plain, 1) + text(clear) for clear, plain in scopes.items()]
        row = number(self._behind, 8) + b"".join(told)
        if row == self._written:
            return []
        self._written = row
        return [Keep(((ROW, row),))]

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Restores the row of a former process; skips a damaged row."""
        for name, row in rows:
            if name == ROW:
                try:
                    behind, before, former = _read(row)
                except (KeysError, ValueError):
                    continue
                self._former.update(former)
                self._behind, self._written = behind, row
                self._change(before, self._present)


def _plain(secrets: Iterable[ScopeSecret]) -> dict[str, bool]:
    return {secret.clear_filter: secret.scope.mode is Mode.PLAIN for secret in secrets if not secret.scope.retiring}


def _read(row: bytes) -> tuple[int, dict[str, bool], dict[str, bool]]:
    reader = Reader(row)
    behind = reader.number(8)
    kinds: tuple[dict[str, bool], dict[str, bool]] = ({}, {})
    while reader.position < len(row):
        kind, plain = kinds[reader.number(1) == 0], bool(reader.number(1))
        kind[reader.text()] = plain
    return behind, kinds[0], kinds[1]
