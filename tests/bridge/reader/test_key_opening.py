"""Data keys at a subscriber: when a search pays, who pays for one in vain, and that an honest key still opens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract.machine import Blame, Doubted, Wanted
from bridge.document.policy import Scope
from bridge.reader.key_opening import KeyRing, OpeningKeys
from bridge.wire.admission import Admission
from keys.envelope import DataKey
from keys.epochs import KeyName, ScopeKeys
from keys.keyheader import KEY_DOMAIN
from tests.bridge.helpers import ForgedKey, counted, forge_key
from tests.sim.world import NOW, World, make_world


@pytest.fixture
def world() -> World:
    return make_world({1: 3}, [], {"site": 1, "evil": 1}, [Scope("plant/#"), Scope("sealed/#", shares_only=True)])


def ring_of(world: World) -> KeyRing[DataKey]:
    return KeyRing(world.overlay, 1, OpeningKeys(world.secrets, world.keys), Admission(world.overlay, replica=True))


def take(ring: KeyRing[DataKey], key: ForgedKey, place: int, now: float = NOW) -> tuple[int, bool]:
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
    held = ScopeKeys()
    name = KeyName("plant/#", 0, 0)
    held.put(name, bytes(31) + b"x")
    ring = KeyRing(world.overlay, 1, OpeningKeys(world.secrets, held), Admission(world.overlay, replica=False))
    key = forge_key(world, "site", "plant/#")
    effects = [
        e
        for p in (1, 2, 3)
        for e in ring.take(f"r1{'abc'[p - 1]}", dict(key.properties(key.shares[p - 1 : p])), NOW)[0]
    ]
    assert counted(effects, "wrong_epoch_key") == 1
    assert counted(effects, "recombine_retries") == 0
    assert [e for e in effects if isinstance(e, Doubted)] == [Doubted(name)]
    assert not [e for e in effects if isinstance(e, Blame)]
    right = world.keys.get(name)
    assert right is not None
    held.replace(name, right)  # a key server had lied to us
    assert ring.keys_changed(NOW)[1] == [key.header.key_id]


def test_a_key_waits_for_its_epoch_key_which_is_asked_for_once(world: World):
    held = ScopeKeys()
    ring = KeyRing(world.overlay, 1, OpeningKeys(world.secrets, held), Admission(world.overlay, replica=False))
    keys = [forge_key(world, "site", "plant/#", salt) for salt in range(3)]
    effects = [
        effect
        for key in keys
        for p in (1, 2, 3)
        for effect in ring.take(f"r1{'abc'[p - 1]}", dict(key.properties(key.shares[p - 1 : p])), NOW)[0]
    ]
    name = KeyName("plant/#", 0, 0)
    assert [e for e in effects if isinstance(e, Wanted)] == [Wanted(name)]
    assert ring.keys_changed(NOW)[1] == []
    key = world.keys.get(name)
    assert key is not None
    held.put(name, key)
    effects, opened = ring.keys_changed(NOW + 1)
    assert sorted(opened) == sorted(key.header.key_id for key in keys)
    assert counted(effects, "recombined") == 3
    assert ring.keys_changed(NOW + 2) == ([], [])


def test_a_key_of_a_newer_bump_waits_for_the_newer_policy(world: World):
    held, name = ScopeKeys(), KeyName("plant/#", 0, 1)
    world.learn(held, [0], bump=1)
    world.keys.put(name, held.get(name) or b"")
    key = forge_key(world, "site", "plant/#", bump=1)
    opening = OpeningKeys(world.secrets, ScopeKeys())
    ring = KeyRing(world.overlay, 1, opening, Admission(world.overlay, replica=False))
    effects = [
        effect
        for p in (1, 2, 3)
        for effect in ring.take(f"r1{'abc'[p - 1]}", dict(key.properties(key.shares[p - 1 : p])), NOW)[0]
    ]
    assert not [e for e in effects if isinstance(e, Wanted)]
    newer = world.revoked("evil", -1, bump=1)
    opening.adopt(world.secrets_under(newer))
    effects, opened = ring.adopt(newer, NOW)
    assert [e for e in effects if isinstance(e, Wanted)] == [Wanted(name)]
    assert not opened


def test_a_long_search_in_vain_makes_its_publisher_wait_and_nobody_else(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.reader.key_opening.SEARCH_STEP_S", 1.0)
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
