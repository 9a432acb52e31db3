"""Keys at rest beside a spool: the file of scope keys, shares sealed under a local key.

Imports `spool`.
"""

from __future__ import annotations

from spark_ingest.secrets.grants import (
    GRANTS_BYTES_MAX,
    GrantedScope,
    Grants,
    GrantsFile,
    load_readers,
    read_grants,
)
from spark_ingest.secrets.grants_writer import GrantsWriter, names_in, names_of
from spark_ingest.secrets.packbox import local_tags, pack_key, seal_pack_key
from spark_ingest.secrets.sharebox import ShareBox, ShareOpener, tag_of

__all__ = [
    "GRANTS_BYTES_MAX",
    "GrantedScope",
    "Grants",
    "GrantsFile",
    "GrantsWriter",
    "ShareBox",
    "ShareOpener",
    "load_readers",
    "local_tags",
    "names_in",
    "names_of",
    "pack_key",
    "read_grants",
    "seal_pack_key",
    "tag_of",
]
