"""The collecting half of a job: pieces from replicas, deduplicated, made whole, put into groups.

`bridge.reader.Intake` decides which pieces are believed. No sockets, no files. Imports `bridge` and `spool`.
"""

from __future__ import annotations

from bridge.reader import Lineages
from spark_ingest.receiving.backfill import LANES_MAX, Backfill
from spark_ingest.receiving.collector import SpoolCollector
from spark_ingest.receiving.dealing import Dealer, Dealt
from spark_ingest.receiving.division import Part
from spark_ingest.receiving.had import SpooledBatch, SpooledBatches
from spark_ingest.receiving.past import PastPublications
from spark_ingest.receiving.sealings import Group
from spark_ingest.receiving.seen import Seen
from spark_ingest.receiving.usable_keys import materials_from_json, materials_to_json

__all__ = [
    "LANES_MAX",
    "Backfill",
    "Dealer",
    "Dealt",
    "Group",
    "Lineages",
    "Part",
    "PastPublications",
    "Seen",
    "SpoolCollector",
    "SpooledBatch",
    "SpooledBatches",
    "materials_from_json",
    "materials_to_json",
]
