"""Property `vmq-route`: its one spelling, and what it cannot name."""

from __future__ import annotations

import pytest

from bridge.wire import PROPERTY_ROUTE, read_vector
from bridge.wire.plane_vectors import PLANES_MAX
from keys.errors import BadFrame


def test_planes_are_bits() -> None:
    assert read_vector({}) == 0
    assert read_vector({PROPERTY_ROUTE: "5"}) == 0b101
    assert read_vector({PROPERTY_ROUTE: str((1 << PLANES_MAX) - 1)}) == (1 << PLANES_MAX) - 1


@pytest.mark.parametrize("told", ["", "0", "05", "-1", "x", "٣", "1 ", str(1 << PLANES_MAX), "9" * 21])
def test_what_names_no_plane_is_refused(told: str) -> None:
    with pytest.raises(BadFrame):
        read_vector({PROPERTY_ROUTE: told})
