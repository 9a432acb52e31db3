"""Data keys at a subscriber: when a search pays, who pays for one in vain, and that an honest key still opens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.arriving import Admission
from bridge.opening import KeyRing
from bridge.views import Scope
from keys.keyheader import KEY_DOMAIN
from tests.sim.world import NOW, World, make_world

from .helpers import ForgedKey, counted, forge_key


@pytest.fixture
def world() -> World:
    return make_world({1: 3}, [], {"site": 1, "evil": 1}, [Scope("plant/#"), Scope("sealed/#", shares_only=True)])


def ring_of(world: World) -> KeyRing:
    return KeyRing(world.overlay, 1, world.secrets, Admission(world.overlay))


def take(ring: KeyRing, key: ForgedKey, place: int, now: float = NOW) -> tuple[int, bool]:
    """(searches in vain, did it open) when the replica at `place` sends its share."""
    effects, opened = ring.take(f"r1{'abc'[place - 1]}", dict(key.properties(key.shares[place - 1 : place])), now)
    return counted(effects, "recombine_retries"), opened is not None


def committing_to_nothing(world: World, salt: int) -> ForgedKey:
    key = forge_key(world, "evil", "plant/#", salt)
    header = replace(key.header, commitment=bytes(32))
    key.header = replace(header, signature=world.identities["evil"].sign(KEY_DOMAIN, header.signed_bytes))
    return key


@pytest.mark.parametrize("scope", ["plant/#", "sealed/#"])
def test_k_shares_open_a_key(world: World, scope: str):
    ring, key = ring_of(world), forge_key(world, "site", scope)
    assert [take(ring, key, place)[1] for place in (1, 3, 2)] == [False, True, False]


def test_another_epoch_key_is_nobodys_fault_and_never_searched_for(world: World):
    other = make_world({1: 3}, [], {"site": 1, "evil": 1}, [Scope("plant/#"), Scope("sealed/#", shares_only=True)])
    other.secrets = [replace(s, key=bytes(31) + b"x") for s in other.secrets]
    ring, key = ring_of(other), forge_key(world, "site", "plant/#")
    effects = [
        e
        for p in (1, 2, 3)
        for e in ring.take(f"r1{'abc'[p - 1]}", dict(key.properties(key.shares[p - 1 : p])), NOW)[0]
    ]
    assert counted(effects, "wrong_epoch_key") == 1
    assert counted(effects, "recombine_retries") == 0


def test_a_long_search_in_vain_makes_its_publisher_wait_and_nobody_else(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.opening.SEARCH_STEP_S", 1.0)
    ring, bad = ring_of(world), committing_to_nothing(world, 1)
    next_bad, good = forge_key(world, "evil", "plant/#", 2), forge_key(world, "site", "plant/#")
    assert take(ring, bad, 1) == (0, False)
    assert take(ring, bad, 2) == (1, False)
    assert take(ring, next_bad, 1) == (0, False)
    assert take(ring, next_bad, 2) == (0, False), "no search yet"
    take(ring, good, 1)
    assert take(ring, good, 2) == (0, True)
    assert ring.next_deadline == NOW + 1.0
    _, opened = ring.tick(NOW + 1.0)
    assert opened == [next_bad.header.key_id]
    assert ring.next_deadline is None or ring.next_deadline > NOW + 0.9
