"""The extras of many records as columns (the form: `keys.records.Extras`): properties, sealed properties, numbers.

They are read field by field over all records (`contents`). Where extras are malformed, `Extras.decode` finds
the record and the cause, and the others are read again. Not here: the places of extras (`unpacking`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.wire import NUL, is_topic
from keys.errors import BadFrame, KeysError
from keys.message import PROPERTIES_LIMIT, SEALED
from keys.records import EXPIRY, NUMBER, NUMBER_MAX, PROPERTIES, Extras
from spark_ingest.opening.contents import Walk, property_lists, read_sealed


class ExtrasColumns(NamedTuple):
    """The extras of all records. `sealed`: by the names of `keys.message.SEALED`; `numbers`, `expiry_s`: int64, -1 for
    none.
    """

    sealed: Mapping[str, Any]
    properties: Any
    numbers: Any
    expiry_s: Any

    def unfit(self) -> Any:
        """Returns records with a text that would break a receiver's connection, or with an invalid response topic."""
        replies = self.sealed["response_topic"].dictionary_encode()
        wrong = np.array([not is_topic(name) for name in replies.dictionary.to_pylist()], bool)
        unfit = np.zeros(len(self.numbers), bool)
        if wrong.any():
            unfit |= wrong[replies.indices.fill_null(0).to_numpy()] & replies.is_valid().to_numpy(False)
        unfit |= _have_nul(self.sealed["content_type"])
        pairs = self.properties.flatten()
        if len(pairs):
            owners = np.repeat(np.arange(len(unfit)), np.diff(self.properties.offsets.to_numpy()))
            for texts in pairs.flatten():
                unfit[owners[_have_nul(texts)]] = True
        return unfit


def read_extras(
    data: bytes, begins: Any, ends: Any, chosen: Any, count: int
) -> tuple[ExtrasColumns, dict[int, KeysError]]:
    """Returns the extras of `count` records, and the errors of some. The `chosen` records have extras in `data`."""
    try:
        return _columns(data, begins, ends, chosen, count), {}
    except (BadFrame, pa.ArrowInvalid):
        pass
    bad: dict[int, KeysError] = {}
    for at, begin, end in zip(chosen.tolist(), begins.tolist(), ends.tolist(), strict=True):
        try:
            Extras.decode(data[begin:end])
        except KeysError as error:
            bad[at] = error
    good = ~np.isin(chosen, list(bad))
    return _columns(data, begins[good], ends[good], chosen[good], count), bad


def _have_nul(texts: Any) -> Any:
    return pc.match_substring(texts, NUL).fill_null(False).to_numpy(zero_copy_only=False)


def _columns(data: bytes, begins: Any, ends: Any, chosen: Any, count: int) -> ExtrasColumns:
    """Returns the extras as columns. Raises BadFrame, or ArrowInvalid for invalid UTF-8."""
    walk = Walk(data, begins, ends)
    flags = walk.number(1).astype(np.uint8)
    if np.any((flags == 0) | (flags & 128 != 0)):
        raise BadFrame("extras of unknown flags")
    expiry_s = np.full(count, -1, np.int64)
    expiring = walk.some(flags & EXPIRY)
    expiry_s[chosen[expiring.chosen]] = expiring.number(4).astype(np.int64)
    sealed = read_sealed(walk, [flags & each.flag for each in SEALED], chosen, count)
    numbers = np.full(count, -1, np.int64)
    numbered = walk.some(flags & NUMBER)
    found = numbered.number(8)
    if np.any(found > NUMBER_MAX):
        raise BadFrame("a number that no record has")
    numbers[chosen[numbered.chosen]] = found.astype(np.int64)
    having = walk.some(flags & PROPERTIES)
    lengths = np.zeros(len(begins), np.int64)
    lengths[having.chosen] = having.number(2)
    if np.any(lengths[having.chosen] < 1) or np.any(lengths > PROPERTIES_LIMIT):
        raise BadFrame("no user properties, or too many")
    properties = property_lists(walk, lengths, chosen, count)
    walk.finish()
    return ExtrasColumns(sealed, properties, numbers, expiry_s)
