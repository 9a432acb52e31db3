"""Which rows wait for which key: names of keys that rows need, and which of them the file of scope keys lacks.

A name says all that the file of scope keys must have: scope, epoch and bump, and the tag of the local key that shares
are sealed under. It follows from what the spool holds alone, so the rows that a name stands for are the same whenever
they are read. Not here: what becomes of such rows (`rows`, `spool.ledger`).
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
"""Data keys of a name that are tried before it counts as missing: one that a liar made must not stand for all."""


class KeyNames:
    """Names of keys; remembers what headers have in common."""

    def __init__(self) -> None:
        self._opener = KeyOpener()

    def name(self, header: bytes, shares: bytes) -> str | None:
        """Of a key with this header and these shares, as the spool has them; None for what is no header."""
        try:
            name = self._opener.outline(header).name.described()
        except KeysError:
            return None
        tag = tag_of(shares)
        return name if tag is None else f"{name}, local key {tag.hex()}"

    def rows(self, group: Any, names: Collection[str]) -> Any:
        """Which rows of a batch of spool rows (whole groups) need a key with one of these names."""
        materials = material_of(group)
        ids = group.column("key_id").dictionary_encode()
        needing = [each in materials and self.name(*materials[each]) in names for each in values_of(ids.dictionary)]
        return np.array(needing, bool)[ids.indices.to_numpy()]

    def missing(self, groups: Iterable[Any], grants: Grants) -> list[str]:
        """Names of keys that rows of these groups need and that are not in the file of scope keys, or are others."""
        keys, known, wrong = OpenedKeys(), set[str](), dict[str, int]()
        absent = set[str]()
        for group in groups:
            materials = material_of(group)
            having = group.select(KeyUse._fields).filter(group.column("key_header").is_valid())
            for use in map(KeyUse._make, zip(*map(values_of, having.columns), strict=True)):
                name = None if use.key_id == NO_KEY else self.name(*materials[use.key_id])
                if name is None or name in known or name in absent or wrong.get(name, 0) >= PROBES:
                    continue
                (found,) = keys.get([use], materials, grants)
                if isinstance(found, DataKey):
                    known.add(name)
                elif is_absent(found):
                    absent.add(name)
                elif found.startswith(GRANT):
                    wrong[name] = wrong.get(name, 0) + 1
        return sorted(absent | (wrong.keys() - known))
