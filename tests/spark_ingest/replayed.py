"""The data source with replicas that replay a file: importable by Spark's Python workers."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Collection, Sequence
from typing import Any

from bridge.document import Scope
from bridge.document.overlay import Overlay as SignedOverlay
from keys.envelope import KeyName
from spark_ingest.options import Options
from spark_ingest.receiver.progress import ReplicaLink
from spark_ingest.receiver.receiver import OnArrivals, ReplicaClient
from spark_ingest.secrets.grants import Grants
from spark_ingest.source.source import VeilMQDataSource
from tests.spark_ingest.region import Overlay, published


class FileReplicas:
    """Sends every (place, wire) of a pickle file at each connection, as brokers do that saw no acknowledgement."""

    def __init__(self, options: Options) -> None:
        assert options.identity is not None
        self.directory, self._wires = pickle.loads(options.identity.read_bytes())
        assert isinstance(self.directory, Overlay)
        self._names = self.directory.names(epochs=(0,), bumps=(0,))
        self._on_keys: Callable[[], None] = lambda: None

    @property
    def overlay(self) -> SignedOverlay:
        return self.directory.signed

    @property
    def home_region(self) -> int:
        return self.directory.home

    def held_grants(self) -> Grants:
        return self.directory.held(self._names)

    def want_keys(self, names: Collection[KeyName]) -> None:
        """A key service that gives whatever is asked for."""
        self._names |= set(names)
        self._on_keys()

    is_accepted = reads_back = True
    name = "job"

    def read_scopes(self) -> tuple[Scope, ...]:
        return ()

    def connected_replicas(self) -> tuple[str, ...]:
        return ()

    def clocks(self) -> tuple[float, ...]:
        return ()

    def link_states(self) -> tuple[ReplicaLink, ...]:
        return ()

    def secrets(self) -> tuple[()]:
        return ()

    def take_spooled(self, batches: Any) -> None:
        raise AssertionError("no scope has receipts")

    def keep_evidence(self, proof: Any) -> None:
        raise AssertionError("nobody lies here")

    def ask_replica(self, replica: str, topic: str, payload: bytes) -> None:
        raise AssertionError("nothing is missing here")

    def acknowledge_all(self, publishes: Sequence[object]) -> None:
        """Nobody waits for it."""

    async def run(self, on_arrivals: OnArrivals, on_keys: Callable[[], None]) -> None:
        self._on_keys = on_keys
        for number, (place, wire) in enumerate(self._wires):
            on_arrivals(f"r{place}", [published(wire)], self)
            if number % 50 == 0:
                await asyncio.sleep(0.01)
        await asyncio.Event().wait()


class ReplayedDataSource(VeilMQDataSource):
    @classmethod
    def name(cls) -> str:
        return "veilmq-replayed"

    @staticmethod
    def connect(options: Options) -> ReplicaClient:
        return FileReplicas(options)
