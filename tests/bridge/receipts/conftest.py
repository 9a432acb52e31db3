"""Fixtures of receipts."""

from __future__ import annotations

import pytest

from tests.bridge.receipts.helpers import Scene, the_world
from tests.sim.world import World


@pytest.fixture(scope="package")
def world() -> World:
    return the_world(rights={"spy": (["plant/#"], ["quiet/#"])})


@pytest.fixture
def scene(world: World) -> Scene:
    return Scene(world)
