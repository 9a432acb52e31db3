"""Regions in the pure machine, and fixtures of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from bridge.document import Organising
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


def with_keys(epochs: Sequence[int], build: Callable[..., World], *given: Any, **options: Any) -> World:
    """A world whose members hold the keys of these epochs."""
    made = build(*given, **options)
    made.learn(made.keys, epochs)
    return made


def organising(rules: Organising, build: Callable[..., World], *given: Any, **options: Any) -> World:
    """A world whose owner lets its regions measure and change its links by these rules."""
    made = build(*given, **options)
    made.overlay = made.with_policy(organising=rules)
    return made


def fresh(build: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """A fixture: for each test the world that `build` makes anew."""
    return pytest.fixture(lambda: build(*given, **options))


def shared(build: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """A fixture: the world that `build` makes, one for all tests of a module."""
    return pytest.fixture(lambda: build(*given, **options), scope="module")
