"""Regions in the pure machine, and fixtures of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from bridge.document.policy import Scope
from tests.sim.world import World, make_world


def one_region(*gateways: str, scopes: Sequence[Scope] | None = None, replicas: int = 3, **options: Any) -> World:
    """A region of replicas r1a, r1b, ..., and gateways of it. `options`: those of `make_world`."""
    return make_world({1: replicas}, [], dict.fromkeys(gateways, 1), scopes, **options)


def row_of_regions(
    count: int, gateways: Mapping[str, int], scopes: Sequence[Scope] | None = None, **options: Any
) -> World:
    """Regions 1, 2, ... of three replicas each, each linked to the next; gateways with their home region."""
    sizes = dict.fromkeys(range(1, count + 1), 3)
    return make_world(sizes, [(n, n + 1) for n in range(1, count)], gateways, scopes, **options)


def fresh(build: Callable[..., World], *given: Any, **options: Any) -> Any:
    """A fixture: for each test the world that `build` makes anew."""

    @pytest.fixture
    def world() -> World:
        return build(*given, **options)

    return world
