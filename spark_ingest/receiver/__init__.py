"""A running receiver: links to the replicas, groups synced to the spool, acknowledgements, its state over restarts.

Imports `receiving`, `secrets`, `spool`.
"""

from __future__ import annotations

from spark_ingest.receiver.receiver import Receiver, ReceiverSettings, ReplicaClient
from spark_ingest.receiver.recovery import state_of

__all__ = [
    "Receiver",
    "ReceiverSettings",
    "ReplicaClient",
    "state_of",
]
