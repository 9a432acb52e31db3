"""Property `vmq-route`: the planes for which the receiver of a publication is responsible now (C4).

Its value is the cluster bit vector as a decimal number, bit j for plane j. It is not signed: each hop makes its own.
A forged vector makes others send more, once a plane; nobody receives anything twice for it. Not here: who sets it
(`replica.plane_routing`).
"""

from __future__ import annotations

from collections.abc import Mapping

from keys.errors import BadFrame

PROPERTY_ROUTE = "vmq-route"
PLANES_MAX = 64
"""Planes of a vector that is believed."""
_DIGITS_MAX = 20


def read_vector(properties: Mapping[str, str]) -> int:
    """Returns the vector; 0: none. Raises BadFrame."""
    told = properties.get(PROPERTY_ROUTE)
    if told is None:
        return 0
    if not (told.isascii() and told.isdigit() and len(told) <= _DIGITS_MAX) or told[0] == "0":
        raise BadFrame("property vmq-route is no number")
    vector = int(told)
    if vector >> PLANES_MAX:
        raise BadFrame("property vmq-route names planes that no region has")
    return vector
