"""What a job does with what replicas send beside what every reader does: collected, deduplicated, whole, in groups.

What is believed of it, `bridge.reader.Intake` says. No sockets, no files. Imports `bridge` and `spool`.
"""

from __future__ import annotations

from bridge.reader import Lineages
from spark_ingest.receiving.collector import SpoolCollector
from spark_ingest.receiving.dealing import Dealer, Dealt
from spark_ingest.receiving.division import Part
from spark_ingest.receiving.sealings import Group
from spark_ingest.receiving.seen import Seen
from spark_ingest.receiving.usable_keys import materials_from_json, materials_to_json

__all__ = [
    "Dealer",
    "Dealt",
    "Group",
    "Lineages",
    "Part",
    "Seen",
    "SpoolCollector",
    "materials_from_json",
    "materials_to_json",
]
