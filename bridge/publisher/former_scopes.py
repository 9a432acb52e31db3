"""Scopes in which something was stored, over a change of scopes: what the owner takes out, adds or divides.

What is left on disk was stored by the scopes of its time. Which of their records go into the chain of a present scope
is known when they are read. So after a change nothing overtakes what is left: what is new is left behind it, whatever
its scope, until all that was there before the change has been read. And what was protected goes never in clear: whether
a scope that is gone was plain is known here. Both are on disk (`Keep`), for a change while we were not there. Not here:
which record goes where (`placing`).
"""

from __future__ import annotations

from collections.abc import Iterable

from bridge.contract import Keep
from bridge.document import ScopeSecret
from keys.envelope import Mode
from keys.errors import KeysError
from keys.frames import Reader, number, text

FORMER_MAX = 1024
"""Scopes that are gone and of which it is known whether they were plain; of others nothing goes in clear."""
ROW = b"c"  # the name of the row


class FormerScopes:
    """`secrets`: of the scopes that we publish in now."""

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
        """Those of another version of the overlay."""
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
        """Whether what was stored by a scope that is gone went in clear then."""
        return self._former.get(clear_filter, False)

    def stored(self, first: int, last: int) -> None:
        """These numbers are stored, the next ones."""
        if self._is_open:
            self._behind, self._is_open = max(self._behind, first - 1), False
        self._newest = max(self._newest, last)

    def is_behind(self, left: int | None) -> bool:
        """Whether what is new has to wait: `left` is the first that is left on disk."""
        if left is None or (left > self._behind and not self._is_open):
            self._behind, self._is_open = 0, False
        return self._behind > 0 or self._is_open

    # ------------------------------------------------------------------------------------------- over restarts

    def changes(self) -> list[Keep]:
        """The row, if it changed since this was asked last."""
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
        """What a former process kept. A row that is damaged is left out."""
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
