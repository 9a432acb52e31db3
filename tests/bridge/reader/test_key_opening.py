"""Data keys at a subscriber: when a search pays, who pays for one in vain, and that an honest key still opens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from bridge.contract.machine import Blame, Doubted, Effect, Keep, Wanted
from bridge.document.policy import Scope
from bridge.reader.kept import KeptReader, key_of
from bridge.reader.key_opening import KeyRing, OpeningKeys
from bridge.topology import Topology
from bridge.wire.admission import Admission
from keys.envelope import DataKey, from_property
from keys.epochs import KeyName, ScopeKeys
from keys.keyheader import KEY_DOMAIN
from keys.sharetree import decode_shares, resplit
from tests.bridge.helpers import ForgedKey, counted, forge_key
from tests.sim.world import NOW, World, make_world
from tests.support.regions import fresh, one_region

world = fresh(one_region, "site", "evil", scopes=[Scope("plant/#"), Scope("sealed/#", shares_only=True)])


def ring_of(world: World) -> KeyRing[DataKey]:
    return KeyRing(world.overlay, 1, OpeningKeys(world.secrets, world.keys), Admission(world.overlay, replica=True))


def take(ring: KeyRing[DataKey], key: ForgedKey, place: int, now: float = NOW) -> tuple[int, bool]:
    """(refused for good, did it open) when the replica at `place` sends its share."""
    effects, opened = ring.take(f"r1{'abc'[place - 1]}", dict(key.properties(key.shares[place - 1 : place])), now)
    return counted(effects, "keys_refuted"), opened is not None


def committing_to_nothing(world: World, salt: int) -> ForgedKey:
    key = forge_key(world, "evil", "plant/#", salt)
    header = replace(key.header, commitment=bytes(32))
    key.header = replace(header, signature=world.identities["evil"].sign(KEY_DOMAIN, header.signed_bytes))
    return key


def down_the_path(world: World, key: ForgedKey) -> ForgedKey:
    """The shares as honest replicas split them on, to region 3."""
    for hop in Topology(world.overlay).key_way(key.header, 1, 3)[1:]:
        key.shares = [s for share in key.shares for s in resplit(share, key.header.digest, hop, bytes(32))]
    return key


@pytest.mark.attack(40)
def test_a_share_is_kept_once_however_often_it_comes_again():
    """Attack: a replica that brings one share more each time, beside all that came before: of three regions of seven
    half a megabyte for each key, and 170 times that written to the disk."""
    world = make_world({1: 5, 3: 3}, [(1, 3)], {"evil": 1, "reader": 3}, [Scope("plant/#")])
    kept, admission = KeptReader(), Admission(world.overlay, replica=False)
    ring = KeyRing(world.overlay, 3, OpeningKeys(world.secrets, world.keys), admission, kept)
    key = down_the_path(world, forge_key(world, "evil", "plant/#"))
    of_a = [share for share in key.shares if share.label[-1].place == 1]
    for count in range(1, 6):
        ring.take("r3a", dict(key.properties(of_a[:count])), NOW)
    ((_, row), *_) = next(effect.rows for effect in kept.changes(NOW) if isinstance(effect, Keep))
    assert row is not None
    brought = [decode_shares(from_property(told)) for _, told in key_of(row)[2]]
    assert [share for shares in brought for share in shares] == of_a
    restored = KeyRing(world.overlay, 3, OpeningKeys(world.secrets, world.keys), admission, KeptReader())
    restored.restore(row, NOW)
    of_b = [share for share in key.shares if share.label[-1].place == 2]
    assert restored.take("r3b", dict(key.properties(of_b)), NOW)[1] == key.header.key_id


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


@pytest.mark.invariant(29)
@pytest.mark.attack(3)
def test_who_commits_to_garbage_waits_and_nobody_else(world: World):
    ring, good = ring_of(world), forge_key(world, "site", "plant/#")
    for salt in range(40):  # the time owed doubles with each
        bad = committing_to_nothing(world, salt)
        take(ring, bad, 1)
        if take(ring, bad, 2) == (0, False):
            break
    assert 5 < salt < 12
    assert ring.next_deadline is not None
    assert ring.next_deadline > NOW
    take(ring, good, 1)
    assert take(ring, good, 2) == (0, True)
    assert not ring.tick(ring.next_deadline)[1]


def test_an_honest_key_of_who_has_to_wait_opens_when_that_is_paid(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.reader.key_opening.STEP_S", 1.0)
    ring, bad, honest = ring_of(world), committing_to_nothing(world, 1), forge_key(world, "evil", "plant/#", 2)
    assert [take(ring, bad, place) for place in (1, 2)] == [(0, False), (1, False)]
    assert [take(ring, honest, place) for place in (1, 2)] == [(0, False), (0, False)]
    due = ring.next_deadline
    assert due == pytest.approx(NOW + 2.0 - 0.02, rel=0, abs=0.001)
    assert due is not None
    assert ring.tick(due)[1] == [honest.header.key_id]


@pytest.mark.attack(3)
def test_no_turn_tries_more_choices_than_its_share_of_the_loop(monkeypatch: pytest.MonkeyPatch):
    """Behind two regions of five whose first places lie; the search goes on at the next ticks and nothing is lost."""
    monkeypatch.setattr("bridge.reader.key_opening.TURN_CHOICES", 7)
    world = make_world({1: 5, 2: 5, 3: 5}, [(1, 2), (2, 3)], {"site": 1, "evil": 1}, [Scope("plant/#")])
    ring = KeyRing(world.overlay, 3, OpeningKeys(world.secrets, world.keys), Admission(world.overlay, replica=False))
    key = down_the_path(world, forge_key(world, "site", "plant/#"))
    shares = [
        replace(s, value=bytes(b ^ (16 * s.places[1] + s.places[2]) for b in s.value))
        if s.places[1] < 3 or s.places[2] < 3
        else s
        for s in key.shares
    ]
    effects: list[Effect] = []
    for place in range(1, 6):
        of_one = [share for share in shares if share.places[2] == place]
        effects += ring.take(f"r3{'abcde'[place - 1]}", dict(key.properties(of_one)), NOW)[0]
    now, turns, opened = NOW, 0, list[bytes]()
    while not opened:
        assert ring.next_deadline is not None, "given up"
        now, turns = max(now, ring.next_deadline), turns + 1
        news, opened = ring.tick(now)
        effects += news
    assert turns > 10
    assert counted(effects, "recombine_retries") == 1
    assert counted(effects, "keys_refuted") == 0
    next_key = down_the_path(
        world, forge_key(world, "site", "plant/#", salt=1)
    )  # the liars' columns are tried last now
    opening = ring.take("r3e", dict(next_key.properties([s for s in next_key.shares if s.places[2] == 5])), now)[0]
    for place in (3, 4):
        of_one = [share for share in next_key.shares if share.places[2] == place]
        opening += ring.take(f"r3{'abcde'[place - 1]}", dict(next_key.properties(of_one)), now)[0]
    assert counted(opening, "recombined") == 1


@pytest.mark.long
@pytest.mark.attack(3)
def test_garbage_twice_a_second_behind_three_regions_of_five_delays_no_honest_key():
    """Attack: whole trees of shares, 25 from each replica, under commitments that nothing fits, for a minute."""
    world = make_world({1: 5, 2: 5, 3: 5}, [(1, 2), (2, 3)], {"site": 1, "evil": 1}, [Scope("plant/#")])
    ring = KeyRing(world.overlay, 3, OpeningKeys(world.secrets, world.keys), Admission(world.overlay, replica=False))
    refuted = 0

    def takes(key: ForgedKey, places: Iterable[int], now: float) -> bytes | None:
        nonlocal refuted
        opened = None
        for place in places:
            of_one = [share for share in key.shares if share.label[-1].place == place]
            effects, told = ring.take(f"r3{'abcde'[place - 1]}", dict(key.properties(of_one)), now)
            refuted += counted(effects, "keys_refuted")
            opened = told or opened
        return opened

    for half in range(120):
        now = NOW + half / 2
        takes(down_the_path(world, committing_to_nothing(world, half)), range(1, 6), now)
        if half % 10 == 0:
            honest = down_the_path(world, forge_key(world, "site", "plant/#", half))
            assert takes(honest, range(1, 4), now) == honest.header.key_id, "at once, with its third sender"
        effects, _ = ring.tick(now)
        refuted += counted(effects, "keys_refuted")
    assert 5 < refuted < 30, "each costs its author twice the last: the others are not tried"
