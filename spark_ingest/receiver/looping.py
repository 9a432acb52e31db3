"""An event loop in a thread of its own, on which a receiver runs beside the program that started it.

The thread dies with the process. Not here: the work on the loop (`receiver`, `workers`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable


class LoopThread:
    """A thread running `main(stop)` until it returns, soon after `stop` is set.

    `failed` gets the exception that ended `main` instead, in the thread.
    """

    def __init__(self, main: Callable[[asyncio.Event], Awaitable[None]], failed: Callable[[Exception], None]) -> None:
        self._main, self._failed = main, failed
        self._thread = threading.Thread(target=self._run_loop, name="veilmq-receiver", daemon=True)
        self._begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def alive(self) -> bool:
        """True while `main` runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Starts the thread; returns when its event loop runs."""
        self._thread.start()
        self._begun.wait()

    def stop(self, timeout_s: float) -> None:
        """Asks `main` to end, and waits for it up to `timeout_s`."""
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout_s)

    def _run_loop(self) -> None:
        try:
            asyncio.run(self._run_main())
        except Exception as error:  # noqa: BLE001  kept for whoever started us
            self._failed(error)
        finally:
            self._begun.set()

    async def _run_main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._begun.set()
        await self._main(self._stop)
