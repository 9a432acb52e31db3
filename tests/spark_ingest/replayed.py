"""The data source with replicas that replay a file: importable by Spark's Python workers."""

from __future__ import annotations

import asyncio
import pickle

from spark_ingest.options import Options
from spark_ingest.receiver import OnWire, ReplicaClient
from spark_ingest.source import VeilMQDataSource

from .region import Overlay


class FileReplicas:
    """Sends every (place, wire) of a pickle file at each connection, as brokers do that saw no acknowledgement."""

    def __init__(self, options: Options) -> None:
        assert options.identity is not None
        self.directory, self._wires = pickle.loads(options.identity.read_bytes())
        assert isinstance(self.directory, Overlay)

    async def run(self, on_wire: OnWire) -> None:
        for number, (place, wire) in enumerate(self._wires):
            on_wire(place, f"r{place}", wire, lambda: None)
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
