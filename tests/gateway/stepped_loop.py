"""An event loop that is stepped by hand, whose timers may run before their time, as uvloop's do."""

from __future__ import annotations

from collections.abc import Callable


class Timer:
    """A timer of `SteppedLoop`."""

    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at, self.call, self.is_cancelled = at, call, False

    def cancel(self) -> None:
        self.is_cancelled = True


class SteppedLoop:
    """An event loop whose timers run `early_s` before their time."""

    def __init__(self, early_s: float = 0.0) -> None:
        self.now, self.early_s = 100.0, early_s
        self.timers: list[Timer] = []
        self.begun = 0

    def call_later(self, delay_s: float, call: Callable[[], object]) -> Timer:
        self.begun += 1
        self.timers.append(Timer(self.now + delay_s, call))
        return self.timers[-1]

    def run(self, until: float) -> None:
        while True:
            self.timers = [timer for timer in self.timers if not timer.is_cancelled]
            first = min(self.timers, key=lambda timer: timer.at, default=None)
            if first is None or first.at - self.early_s > until:
                self.now = max(self.now, until)
                return
            self.timers.remove(first)
            self.now = max(self.now + 0.0001, first.at - self.early_s)  # a turn takes time
            first.call()
