"""Protocol between the demonstration and its own processes: JSON lines out, words in.

Events go to standard output, commands come on standard input, troubles go to standard error. At the end of input the
starter is gone: the process stops too, so that no process is left behind.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

STOP = "stop"


def emit(event: str, **fields: Any) -> None:
    """Sends an event to the starter."""
    print(json.dumps({"event": event, **fields}, separators=(",", ":")), flush=True)


class Commands:
    """The words from the starter, in order; `stop` without end after the end of input."""

    def __init__(self) -> None:
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._ended = False
        threading.Thread(target=self._read_words, name="commands", daemon=True).start()

    def _read_words(self) -> None:
        for line in sys.stdin:
            self._words.put(line.strip())
        self._words.put(STOP)

    def next_word(self, timeout_s: float) -> str | None:
        """Returns the next word, or None after `timeout_s`."""
        if self._ended:
            return STOP
        try:
            word = self._words.get(timeout=max(0.0, timeout_s))
        except queue.Empty:
            return None
        self._ended = word == STOP
        return word


def run_child(main: Callable[[], None]) -> int:
    """Returns the exit status of `main`.

    A full disk and similar errors are a line on standard error and status 2.
    """
    try:
        main()
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        print(f"{error.filename or 'input or output'}: {error.strerror or error}", file=sys.stderr)
        return 2
    return 0
