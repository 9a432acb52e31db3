"""What becomes of what replicas send to a job: checked, collected, deduplicated, whole. No sockets, no files.

Imports `spool` for its records.
"""

from __future__ import annotations

from spark_ingest.receiving.admission import TIME_MS_MAX
from spark_ingest.receiving.collector import Collector
from spark_ingest.receiving.directory import Directory, Scope
from spark_ingest.receiving.division import Part
from spark_ingest.receiving.keyring import Keyring, materials_from_json, materials_to_json, told_name
from spark_ingest.receiving.sealings import Group
from spark_ingest.receiving.seen import Seen

__all__ = [
    "TIME_MS_MAX",
    "Collector",
    "Directory",
    "Group",
    "Keyring",
    "Part",
    "Scope",
    "Seen",
    "materials_from_json",
    "materials_to_json",
    "told_name",
]
