"""The trouble of a receiver and its begin: for its query, its metrics, and tools looking at the spool.

Not here: the causes of trouble, and how they are waited out (`receiver`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from spark_ingest.errors import ReceiverTrouble
from spark_ingest.spool import tell_trouble

STILL_S = 10.0
"""A receiver that moves at least once a second, and did not for so long, stands still; a busy machine is slow."""


class ReceiverTroubles:
    """The troubles of a receiver, told by its thread, read by any other. `directory`: its part of the spool."""

    def __init__(self, directory: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._directory, self._monotonic = directory, monotonic
        self._shown: str | None = ""
        self._since: float | None = None
        self._moved: float | None = None
        self.text: str | None = None
        """One line about why nothing is received now, None if all is well."""

    def began(self) -> None:
        """Notes the begin of a session; whether the former fault is over remains to be seen."""
        self.text = None

    def tell_trouble(self, text: str | None, *, bad: bool = True) -> bool:
        """Sets the present trouble, None if all is well; returns True if it is news.

        `bad` False: another process receives in this one's place.
        """
        is_news, self.text = text != self.text, text
        if text is None or not bad:
            self._since = None
        elif self._since is None:
            self._since = self._monotonic()
        if bad and text != self._shown:
            self._shown = text
            tell_trouble(self._directory, text)
        return is_news

    def moves(self) -> None:
        """Notes that the receiver is not held by an endless call; to be called at least once a second."""
        self._moved = self._monotonic()

    def rests(self) -> None:
        """Notes the end of a session: waiting for a lock, or reading the spool, is not standing still."""
        self._moved = None

    def check_trouble(self, trouble_s: float) -> None:
        """Raises ReceiverTrouble when there has been trouble for so long, or when the receiver has not moved."""
        if self._since is not None and self._monotonic() - self._since >= trouble_s:
            raise ReceiverTrouble(
                f"nothing could be received for {trouble_s:.0f} s (option trouble_s): {self.text}; "
                "started again, the query goes on where it ended"
            )
        still_s = max(trouble_s, STILL_S)
        if self._moved is not None and self._monotonic() - self._moved >= still_s:
            raise ReceiverTrouble(
                f"the receiver has stood still for {still_s:.0f} s (option trouble_s): its disk, or the server of its "
                "files, does not answer; started again, the query goes on where it ended"
            )
