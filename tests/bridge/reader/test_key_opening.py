"""Data keys at a subscriber: when a search pays, who pays for one in vain, and that an honest key still opens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from bridge.contract.machine import Blame, Doubted, Effect, Keep, Wanted
from bridge.document.policy import Scope
from bridge.reader.kept import KEY, KeptReader, key_of
from bridge.reader.key_opening import AUDIT_AFTER_S, KeyRing, OpeningKeys
from bridge.topology import Topology
from bridge.wire.admission import Admission, Admitted
from keys.envelope import DataKey, from_property
from keys.epochs import Calendar, KeyName, ScopeKeys
from keys.errors import BadContent
from keys.keyheader import KEY_DOMAIN
from keys.sharetree import decode_shares, resplit
from tests.bridge.helpers import ForgedKey, counted, craft, forge_key
from tests.sim.world import NOW, World, make_world
from tests.support.regions import fresh, one_region

world = fresh(one_region, "site", "evil", scopes=[Scope("plant/#"), Scope("sealed/#", shares_only=True)])


def ring_of(world: World) -> KeyRing[DataKey]:
    return KeyRing(world.overlay, 1, OpeningKeys(world.secrets, world.keys), Admission(world.overlay, replica=True))


def take(ring: KeyRing[DataKey], key: ForgedKey, place: int, now: float = NOW) -> tuple[int, bool]:
    """(refused for good, did it open) when the replica at `place` sends its share."""
    effects, opened = ring.take_key_wire(
        f"r1{'abc'[place - 1]}", dict(key.properties(key.shares[place - 1 : place])), now
    )
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
        ring.take_key_wire("r3a", dict(key.properties(of_a[:count])), NOW)
    ((_, row), *_) = next(effect.rows for effect in kept.changed_rows(NOW) if isinstance(effect, Keep))
    assert row is not None
    brought = [decode_shares(from_property(told)) for _, told in key_of(row)[2]]
    assert [share for shares in brought for share in shares] == of_a
    restored = KeyRing(world.overlay, 3, OpeningKeys(world.secrets, world.keys), admission, KeptReader())
    restored.restore(row, NOW)
    of_b = [share for share in key.shares if share.label[-1].place == 2]
    assert restored.take_key_wire("r3b", dict(key.properties(of_b)), NOW)[1] == key.header.key_id


@pytest.mark.parametrize("scope", ["plant/#", "sealed/#"])
def test_k_shares_open_a_key(world: World, scope: str):
    ring, key = ring_of(world), forge_key(world, "site", scope)
    assert [take(ring, key, place)[1] for place in (1, 3, 2)] == [False, True, False]


def test_another_epoch_key_is_nobodys_fault_and_never_searched_for(world: World):
    held = ScopeKeys()
    name = KeyName("plant/#", 0, 0)
    held.put_key(name, bytes(31) + b"x")
    ring = KeyRing(world.overlay, 1, OpeningKeys(world.secrets, held), Admission(world.overlay, replica=False))
    key = forge_key(world, "site", "plant/#")
    effects = [
        e
        for p in (1, 2, 3)
        for e in ring.take_key_wire(f"r1{'abc'[p - 1]}", dict(key.properties(key.shares[p - 1 : p])), NOW)[0]
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
        for effect in ring.take_key_wire(f"r1{'abc'[p - 1]}", dict(key.properties(key.shares[p - 1 : p])), NOW)[0]
    ]
    name = KeyName("plant/#", 0, 0)
    assert [e for e in effects if isinstance(e, Wanted)] == [Wanted(name)]
    assert ring.keys_changed(NOW)[1] == []
    key = world.keys.get(name)
    assert key is not None
    held.put_key(name, key)
    effects, opened = ring.keys_changed(NOW + 1)
    assert sorted(opened) == sorted(key.header.key_id for key in keys)
    assert counted(effects, "recombined") == 3
    assert ring.keys_changed(NOW + 2) == ([], [])


def test_a_key_of_a_newer_bump_waits_for_the_newer_policy(world: World):
    held, name = ScopeKeys(), KeyName("plant/#", 0, 1)
    world.learn(held, [0], bump=1)
    world.keys.put_key(name, held.get(name) or b"")
    key = forge_key(world, "site", "plant/#", bump=1)
    opening = OpeningKeys(world.secrets, ScopeKeys())
    ring = KeyRing(world.overlay, 1, opening, Admission(world.overlay, replica=False))
    effects = [
        effect
        for p in (1, 2, 3)
        for effect in ring.take_key_wire(f"r1{'abc'[p - 1]}", dict(key.properties(key.shares[p - 1 : p])), NOW)[0]
    ]
    assert not [e for e in effects if isinstance(e, Wanted)]
    newer = world.revoked("evil", -1, bump=1)
    opening.adopt_scopes(world.secrets_under(newer))
    effects, opened = ring.adopt_overlay(newer, NOW)
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
        effects += ring.take_key_wire(f"r3{'abcde'[place - 1]}", dict(key.properties(of_one)), NOW)[0]
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
    opening = ring.take_key_wire(
        "r3e", dict(next_key.properties([s for s in next_key.shares if s.places[2] == 5])), now
    )[0]
    for place in (3, 4):
        of_one = [share for share in next_key.shares if share.places[2] == place]
        opening += ring.take_key_wire(f"r3{'abcde'[place - 1]}", dict(next_key.properties(of_one)), now)[0]
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
            effects, told = ring.take_key_wire(f"r3{'abcde'[place - 1]}", dict(key.properties(of_one)), now)
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


# --------------------------------------------------------------------------------------------- opened keys in use


def opened_ring(world: World, key: ForgedKey, kept: KeptReader | None = None) -> KeyRing[DataKey]:
    opening, admission = OpeningKeys(world.secrets, world.keys), Admission(world.overlay, replica=False)
    ring = KeyRing(world.overlay, 1, opening, admission, kept)
    assert [take(ring, key, place)[1] for place in (1, 2)] == [False, True]
    return ring


def sealed(world: World, key: ForgedKey, sequence: int, publisher: str = "site", **header: Any) -> Admitted:
    of = {"key_id": key.header.key_id, "order": key.header.order, "content": b"sealed", **header}
    wire = craft(world, publisher, "plant/t", sequence=sequence, **of)
    told, now = dict(wire.properties)["vmq"], header.get("time_ms", NOW * 1000) / 1000
    return Admission(world.overlay, replica=False).publication(told, wire.topic, now)


def test_a_key_opens_so_many_messages_as_it_says_each_as_often_as_it_comes(world: World) -> None:
    key = forge_key(world, "site", "plant/#", messages=2)
    ring = opened_ring(world, key)
    for sequence in (1, 2, 1, 2):
        assert ring.opened_key(sealed(world, key, sequence)) is not None
    with pytest.raises(BadContent, match="more was sealed"):
        ring.opened_key(sealed(world, key, 3))
    assert ring.opened_key(sealed(world, key, 2)) is not None


def test_before_it_is_open_a_key_serves_nobody_and_is_waited_for(world: World) -> None:
    key, ring = forge_key(world, "site", "plant/#", messages=1), ring_of(world)
    one, foreign = sealed(world, key, 1), sealed(world, key, 1, "evil")
    assert ring.waits_for(one)
    assert ring.opened_key(one) is None
    assert not ring.knows_key(key.header.key_id)
    take(ring, key, 1)
    assert ring.knows_key(key.header.key_id)
    assert ring.waits_for(one)
    assert not ring.waits_for(foreign), "it will never be its key"
    assert ring.opened_key(one) is ring.opened_key(sealed(world, key, 2)) is None, "not counted yet"
    take(ring, key, 2)
    assert not ring.waits_for(one)
    assert ring.opened_key(one) is not None


def test_a_key_opens_nothing_of_another_publisher_or_of_another_order(world: World) -> None:
    key = forge_key(world, "site", "plant/#")
    ring = opened_ring(world, key)
    with pytest.raises(BadContent, match="another publisher"):
        ring.opened_key(sealed(world, key, 1, "evil"))
    generation, counter = key.header.order
    for order in ((generation + 1, counter), (generation, counter + 1)):
        with pytest.raises(BadContent, match="another generation"):
            ring.opened_key(sealed(world, key, 1, order=order))


def test_a_key_opens_what_was_sealed_in_its_epoch_alone() -> None:
    calendar = Calendar(int((NOW - 150) * 1000), length_s=100, ahead_s=20, grace_s=20, skew_s=5)
    world = make_world({1: 3}, [], {"site": 1, "evil": 1}, [Scope("plant/#")], calendar=calendar)
    world.learn(world.keys, [1])
    key = forge_key(world, "site", "plant/#", epoch=1)
    ring = opened_ring(world, key)
    first_ms, end_ms = calendar.sealing_ms(1)
    assert ring.opened_key(sealed(world, key, 1, time_ms=first_ms)) is not None
    assert ring.opened_key(sealed(world, key, 2, time_ms=end_ms - 1)) is not None
    for time_ms in (first_ms - 1, end_ms):
        with pytest.raises(BadContent, match="not sealed"):
            ring.opened_key(sealed(world, key, 3, time_ms=time_ms))


def with_value(key: ForgedKey, place: int, value: bytes) -> dict[str, str]:
    share = key.shares[place - 1]
    return dict(key.properties([replace(share, value=value)]))


def test_shares_are_judged_together_a_while_after_a_key_opened(world: World) -> None:
    key, ring = forge_key(world, "site", "plant/#"), ring_of(world)
    take(ring, key, 1)
    take(ring, key, 2)
    assert ring.next_deadline == NOW + AUDIT_AFTER_S
    ring.take_key_wire("r1c", with_value(key, 3, bytes(32)), NOW + 0.5)
    assert ring.next_deadline == NOW + AUDIT_AFTER_S, "not later for that"
    assert ring.tick(NOW + AUDIT_AFTER_S - 0.01) == ([], [])
    effects, opened = ring.tick(NOW + AUDIT_AFTER_S)
    assert {(e.member, e.named) for e in effects if isinstance(e, Blame)} == {("r1c", False), ("r1c", True)}
    assert opened == []
    assert ring.next_deadline is None
    assert ring.tick(NOW + 60) == ([], []), "judged once"


def test_a_share_that_comes_after_the_audit_is_judged_too(world: World) -> None:
    key, ring = forge_key(world, "site", "plant/#"), ring_of(world)
    take(ring, key, 1)
    take(ring, key, 2)
    assert ring.tick(NOW + AUDIT_AFTER_S) == ([], [])
    ring.take_key_wire("r1c", with_value(key, 3, bytes(32)), NOW + 9)
    assert ring.next_deadline == NOW + 9 + AUDIT_AFTER_S
    effects, _ = ring.tick(NOW + 9 + AUDIT_AFTER_S)
    assert "r1c" in {e.member for e in effects if isinstance(e, Blame) and e.named}


def test_a_second_different_share_of_one_place_makes_its_sender_suspected(world: World) -> None:
    key, ring = forge_key(world, "site", "plant/#"), ring_of(world)
    take(ring, key, 1)
    assert ring.take_key_wire("r1a", dict(key.properties(key.shares[:1])), NOW) == ([], None)
    for _ in range(2):
        effects, _ = ring.take_key_wire("r1a", with_value(key, 1, bytes(32)), NOW)
        assert [(e.member, e.named) for e in effects if isinstance(e, Blame)] == [("r1a", False)], "each time"
    assert take(ring, key, 2)[1], "the first one counts"


def test_a_share_of_a_stock_broker_that_does_not_fit_takes_no_place(world: World) -> None:
    world = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#")], hosted=("r1c",))
    key, ring = forge_key(world, "site", "plant/#"), ring_of(world)
    effects, _ = ring.take_key_wire("r1c", with_value(key, 3, bytes(32)), NOW)
    assert [(e.member, e.named) for e in effects if isinstance(e, Blame)] == [("r1c", False)]
    assert counted(effects, "refused") == 1
    assert counted(effects, "shares_received") == 0
    assert [take(ring, key, place)[1] for place in (3, 1)] == [False, True], "the true one is welcome"


def test_a_key_that_was_open_opens_in_the_next_process_without_shares_or_audit(world: World) -> None:
    key, kept = forge_key(world, "site", "plant/#"), KeptReader()
    opened_ring(world, key, kept)
    ((_, row), *_) = [row for e in kept.changed_rows(NOW) if isinstance(e, Keep) for row in e.rows if row[0][:1] == KEY]
    assert row is not None
    assert key_of(row)[2] == [], "its secret suffices"
    later = ring_of(world)
    assert later.restore(row, NOW + 60) == []
    assert later.next_deadline is None
    assert later.opened_key(sealed(world, key, 1)) is not None


def test_a_key_of_an_earlier_process_of_a_job_goes_on(world: World) -> None:
    key, other = forge_key(world, "site", "plant/#"), forge_key(world, "site", "plant/#", 1)
    former = opened_ring(world, key)
    take(former, other, 1)
    ring = ring_of(world)
    for each in (key, other):
        found = former.held_key(each.header.key_id)
        assert found is not None
        ring.resume(*found)
    assert ring.held_key(bytes(16)) is None
    assert {*ring} == {other.header.key_id, key.header.key_id}
    assert ring.opened_key(sealed(world, key, 1)) is not None
    assert take(ring, other, 2)[1], "with the share that came then"


def test_an_epoch_key_is_doubted_once_until_keys_come(world: World) -> None:
    held, name = ScopeKeys(), KeyName("plant/#", 0, 0)
    held.put_key(name, bytes(31) + b"x")
    ring = KeyRing(world.overlay, 1, OpeningKeys(world.secrets, held), Admission(world.overlay, replica=False))

    def doubts(salt: int) -> int:
        key = forge_key(world, "site", "plant/#", salt)
        told = [ring.take_key_wire(f"r1{'ab'[p]}", dict(key.properties(key.shares[p : p + 1])), NOW)[0] for p in (0, 1)]
        return sum(isinstance(effect, Doubted) for effects in told for effect in effects)

    assert [doubts(salt) for salt in (0, 1)] == [1, 0]
    effects, opened = ring.keys_changed(NOW)
    assert opened == []
    assert sum(isinstance(effect, Doubted) for effect in effects) == 1, "of both, once"
