"""The extras of many records as columns (the form: `keys.records.Extras`): properties, what else is sealed, numbers.

Read field by field over all records, as `inners` reads frames. Where one is not well-formed, `Extras.decode` finds
which and why, and the others are read again. Not here: where extras lie (`unpacking`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from keys.errors import BadFrame, KeysError
from keys.message import PROPERTIES_LIMIT, SEALED
from keys.records import EXPIRY, NUMBER, PROPERTIES, Extras
from spark_ingest.opening.inners import Walk, property_lists, read_sealed

_NUMBER_MAX = np.iinfo(np.int64).max


class ExtrasColumns(NamedTuple):
    """Of all records. `sealed`: by the names of `keys.message.SEALED`; `numbers`: int64, -1 for those without."""

    sealed: Mapping[str, Any]
    properties: Any
    numbers: Any


def read_extras(
    data: bytes, begins: Any, ends: Any, chosen: Any, count: int
) -> tuple[ExtrasColumns, dict[int, KeysError]]:
    """Of `count` records, of which those that are `chosen` have extras there in `data`; and what is wrong with some."""
    try:
        return _columns(data, begins, ends, chosen, count), {}
    except (BadFrame, pa.ArrowInvalid):
        pass
    bad: dict[int, KeysError] = {}
    for at, begin, end in zip(chosen.tolist(), begins.tolist(), ends.tolist(), strict=True):
        try:
            number = Extras.decode(data[begin:end]).number
            if number is not None and number > _NUMBER_MAX:
                raise BadFrame("a number that no publication has")
        except KeysError as error:
            bad[at] = error
    good = ~np.isin(chosen, list(bad))
    return _columns(data, begins[good], ends[good], chosen[good], count), bad


def _columns(data: bytes, begins: Any, ends: Any, chosen: Any, count: int) -> ExtrasColumns:
    """Raises BadFrame, or ArrowInvalid for what is not UTF-8."""
    walk = Walk(data, begins, ends, "little")
    flags = walk.number(1).astype(np.uint8)
    if np.any((flags == 0) | (flags & 128 != 0)):
        raise BadFrame("extras of unknown flags")
    walk.some(flags & EXPIRY).number(4)
    sealed = read_sealed(walk, [flags & each.record_flag for each in SEALED], chosen, count)
    numbers = np.full(count, -1, np.int64)
    numbered = walk.some(flags & NUMBER)
    found = numbered.number(8)
    if np.any(found > _NUMBER_MAX):
        raise BadFrame("a number that no publication has")
    numbers[chosen[numbered.chosen]] = found.astype(np.int64)
    having = walk.some(flags & PROPERTIES)
    lengths = np.zeros(len(begins), np.int64)
    lengths[having.chosen] = having.number(2)
    if np.any(lengths[having.chosen] < 1) or np.any(lengths > PROPERTIES_LIMIT):
        raise BadFrame("no user properties, or too many")
    properties = property_lists(walk, lengths, chosen, count)
    walk.finish(np.zeros(len(begins), bool))
    return ExtrasColumns(sealed, properties, numbers)
