"""Property `vmq-skip`: a replica's word on a gap before a publication.

The value is a number, `low`: every reliable publication of the publisher in the scope after `low`, up to `previous` of
the header, came to that replica, or was left out by replicas before, and fitted no statement leading over this link.
The word is believed of f + 1 replicas of a view, one of whom is honest; else the gap is asked for like any other. Not
here: the speaker (`replica.filtering`), the effects (`reader.skipped`). Paper item C10.
"""

from __future__ import annotations

from collections.abc import Mapping

from keys.errors import BadFrame
from keys.message import MessageHeader

PROPERTY_SKIP = "vmq-skip"
_DIGITS_MAX = 19


def read_skip(properties: Mapping[str, str], header: MessageHeader) -> int | None:
    """Returns `low`; None without the property. Raises BadFrame for a bad number, or one that leaves no gap."""
    told = properties.get(PROPERTY_SKIP)
    if told is None:
        return None
    if not (told.isascii() and told.isdigit() and len(told) <= _DIGITS_MAX) or (told[0] == "0" and told != "0"):
        raise BadFrame("property vmq-skip is no number")
    low = int(told)
    if low >= header.previous:
        raise BadFrame("property vmq-skip says that nothing was left out")
    return low


def agreed(lows: Mapping[str, int], threshold: int) -> int | None:
    """Returns the least `low` that `threshold` replicas agree on; None if fewer say anything."""
    return sorted(lows.values())[threshold - 1] if len(lows) >= threshold else None
