"""A trust domain with one gateway that traces, its broker on this event loop or on a thread, and credentials."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bridge.contract.machine import Count
from bridge.traces.kinds import TraceKind
from bridge.tracking.tracker import Observed
from gateway.base.config import parse
from gateway.broker.edge_broker import EdgeBroker
from gateway.tracing.assembly import join, make_tracing
from gateway.tracing.client import Tracker
from gateway.trust.credentials import Credentials
from gateway.trust.domains import Card, TrustDomain
from keys.identity import Role
from tests.gateway.harness import LOOPBACK, serving

WAIT_S = 15.0


class Site:
    """Files below one directory. `counted`: figures of tracing, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counted: dict[str, int] = {}
        self.domain = TrustDomain.create(path / "domain", "works", time.time())
        self.gateway = self.domain.issue("gate", Role.GATEWAY, ("127.0.0.1",), path / "gate", time.time())

    def credentials(self, name: str) -> Path:
        """The directory of an entity or tracker, made at the first call."""
        directory = self.path / name
        if not directory.exists():
            cards = [Card.load(self.gateway.directory / "card.json")]
            Credentials.issue(self.domain, name, cards, directory, time.time())
        return directory

    def config(self, **more: Any) -> dict[str, Any]:
        traces = {
            "authority": str(self.domain.directory / "ca.pem"),
            "identity": str(self.gateway.directory),
            "preset": "lan",
        }
        return {"listeners": LOOPBACK, "allow_anonymous": True, "traces": traces, **more}

    @contextlib.asynccontextmanager
    async def serving(self, **more: Any) -> AsyncIterator[EdgeBroker]:
        config = self.config(**more)
        settings = parse(config)
        assert settings.traces is not None
        tracing = make_tracing(settings.traces, settings.data, self._count)
        try:
            async with serving(config, before_serving=partial(join, tracing)) as broker:
                yield broker
        finally:
            tracing.stop()

    @contextlib.contextmanager
    def running(self, **more: Any) -> Iterator[int]:
        """The broker on a thread of its own; its port."""
        ready: threading.Event = threading.Event()
        found: list[Any] = []

        async def run() -> None:
            stop = asyncio.Event()
            async with self.serving(**more) as broker:
                found.extend((asyncio.get_running_loop(), stop, broker.port()))
                ready.set()
                await stop.wait()

        thread = threading.Thread(target=asyncio.run, args=(run(),))
        thread.start()
        try:
            assert ready.wait(WAIT_S), "the broker did not start"
            yield found[2]
        finally:
            if found:
                found[0].call_soon_threadsafe(found[1].set)
            thread.join(WAIT_S)
            assert not thread.is_alive()

    def _count(self, count: Count) -> None:
        self.counted[count.name] = self.counted.get(count.name, 0) + count.amount


def observed(tracker: Tracker, kind: TraceKind, seconds: float = WAIT_S, **fields: Any) -> Observed:
    """The next trace of this kind with these fields; what comes before is passed over."""
    passed: list[str] = []
    until = time.monotonic() + seconds
    while (left_s := until - time.monotonic()) > 0:
        seen = tracker.next(left_s)
        if seen is None:
            break
        if seen.kind is kind and fields.items() <= dict(seen.fields).items():
            return seen
        passed.append(seen.kind.name)
    raise AssertionError(f"no {kind.name} in {seconds} s; came: {passed}")
