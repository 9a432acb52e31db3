"""Names of the keys that rows need, and which of these keys the file of scope keys lacks.

A name lists all that the file of scope keys must have: scope, epoch and bump, and the tag of the local key sealing the
shares. It follows from the spool alone, so that a name stands for a fixed set of rows, whenever they are read. Not
here: the fate of such rows (`rows_needing`, `spool.ledger`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from keys.envelope import NO_KEY, DataKey
from keys.errors import KeysError
from keys.keyopening import KeyOpener
from spark_ingest.opening.data_keys import GRANT, KeyUse, OpenedKeys, is_absent
from spark_ingest.opening.decode import material_of, values_of
from spark_ingest.secrets import Grants, tag_of

PROBES = 64
"""Data keys of a name that are tried before it counts as missing: a liar's key must not stand for all."""


class KeyNames:
    """The names of keys. Remembers the common parts of headers."""

    def __init__(self) -> None:
        self._opener = KeyOpener()

    def name_of(self, header: bytes, shares: bytes) -> str | None:
        """Returns the name of a key with this header and these shares from the spool; None for an invalid header."""
        try:
            name = self._opener.outline(header).name.described()
        except KeysError:
            return None
        tag = tag_of(shares)
        return name if tag is None else f"{name}, local key {tag.hex()}"

    def rows_needing(self, group: Any, names: Collection[str]) -> Any:
        """Returns the rows of a batch of spool rows (whole groups) that need a key with one of these names."""
        materials = material_of(group)
        ids = group.column("key_id").dictionary_encode()
        needing = [each in materials and self.name_of(*materials[each]) in names for each in values_of(ids.dictionary)]
        return np.array(needing, bool)[ids.indices.to_numpy()]

    def missing(self, groups: Iterable[Any], grants: Grants) -> list[str]:
        """Returns the names of keys that rows of these groups need and the file of scope keys lacks, or has with
        another value.
        """
        keys, known, wrong = OpenedKeys(), set[str](), dict[str, int]()
        absent = set[str]()
        for group in groups:
            materials = material_of(group)
            having = group.select(KeyUse._fields).filter(group.column("key_header").is_valid())
            for use in map(KeyUse._make, zip(*map(values_of, having.columns), strict=True)):
                name = None if use.key_id == NO_KEY else self.name_of(*materials[use.key_id])
                if name is None or name in known or name in absent or wrong.get(name, 0) >= PROBES:
                    continue
                (found,) = keys.keys_for([use], materials, grants)
                if isinstance(found, DataKey):
                    known.add(name)
                elif is_absent(found):
                    absent.add(name)
                elif found.startswith(GRANT):
                    wrong[name] = wrong.get(name, 0) + 1
        return sorted(absent | (wrong.keys() - known))
