"""keys.material: who holds which subkey, what a coalition misses, what walking erases."""

from __future__ import annotations

import hmac
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.epochs import EPOCH_MAX, KeyName, scope_key
from keys.errors import BadFrame, KeyGone, NotReady, OurFault
from keys.material import WALK_STEPS_MAX, Material, chain, combine, deal, sets_held, sets_of
from tests.keys.helpers import assert_canonical, assert_strict, stream

SIZES = [(3, 0), (4, 1), (5, 1), (7, 2), (10, 3)]
NAMES = [KeyName(scope, epoch, bump) for scope in ("a/#", "b/#") for epoch in (5, 6, 9) for bump in (0, 1)]


def of_each(materials: Sequence[Material], name: KeyName) -> list[dict[int, bytes]]:
    """What each of these servers can compute of that name."""
    return [dict(m.generation_of(name.epoch).at_epoch(name.epoch).outputs(name)) for m in materials]


def pooled(materials: Sequence[Material], name: KeyName) -> dict[int, bytes]:
    """What they can compute together."""
    return {index: output for held in of_each(materials, name) for index, output in held.items()}


@pytest.mark.parametrize(("servers", "faults"), SIZES)
def test_every_server_holds_the_sets_that_it_is_in(servers: int, faults: int) -> None:
    missing = max(1, faults)
    sets = sets_of(servers, faults)
    assert len(sets) == len(set(sets)) == comb(servers, missing)
    assert {len(members) for members in sets} == {servers - missing}
    for number in range(1, servers + 1):
        assert len(sets_held(servers, faults, number)) == comb(servers - 1, missing)


def test_the_sizes_are_those_of_the_protocol() -> None:
    assert [len(m.generations[0].subkeys) for m in deal(4, 1, 0, stream("4"))] == [3] * 4
    assert [len(m.generations[0].subkeys) for m in deal(7, 2, 0, stream("7"))] == [15] * 7


@pytest.mark.parametrize(("servers", "faults"), [(0, 0), (1, 0), (2, 0), (3, 1), (6, 2), (4, -1), (11, 3), (255, 0)])
def test_a_threshold_that_cannot_be_is_not_dealt(servers: int, faults: int) -> None:
    with pytest.raises(OurFault):
        deal(servers, faults, 0, stream("refused"))


@pytest.mark.parametrize(("servers", "faults"), SIZES)
def test_any_n_minus_f_servers_have_every_key(servers: int, faults: int) -> None:
    materials = deal(servers, faults, 5, stream("all"))
    sets = range(len(sets_of(servers, faults)))
    for name in NAMES if servers < 10 else NAMES[:1]:
        keys = set()
        for some in combinations(of_each(materials, name), servers - max(1, faults)):
            outputs = {index: output for held in some for index, output in held.items()}
            assert sorted(outputs) == list(sets)
            keys.add(combine(list(outputs.values())))
        assert len(keys) == 1


def with_other(index: int) -> Callable[[int], bytes]:
    """The randomness of one deal, in which subkey `index` alone came out differently."""
    calls, same = -1, stream("deal")

    def random(size: int) -> bytes:
        nonlocal calls
        calls += 1
        drawn = same(size)
        return bytes(255 - byte for byte in drawn) if calls == index + 1 else drawn

    return random


@pytest.mark.parametrize(("servers", "faults"), [(3, 0), (4, 1), (7, 2)])
def test_f_servers_that_pool_everything_miss_one_set(servers: int, faults: int) -> None:
    """What any f hold over all epochs is the same in two deals whose keys differ for every name: it tells no key."""
    materials = deal(servers, faults, 5, stream("deal"))
    for coalition in combinations(range(servers), max(1, faults)):
        missed = [
            index
            for index, members in enumerate(sets_of(servers, faults))
            if not members & {number + 1 for number in coalition}
        ]
        assert len(missed) == 1
        other = deal(servers, faults, 5, with_other(missed[0]))
        assert [other[i].encode() for i in coalition] == [materials[i].encode() for i in coalition]
        for name in NAMES[:3]:
            held = pooled([materials[i] for i in coalition], name)
            assert missed[0] not in held
            assert combine(list(pooled(materials, name).values())) != combine(list(pooled(other, name).values()))


@pytest.mark.parametrize(("servers", "faults"), [(4, 1), (7, 2)])
def test_f_plus_one_servers_that_collude_have_every_key(servers: int, faults: int) -> None:
    """The bound is tight: what happens beyond it is said, not hidden."""
    materials = deal(servers, faults, 5, stream("deal"))
    for coalition in combinations(materials, faults + 1):
        assert pooled(coalition, NAMES[0]) == pooled(materials, NAMES[0])


def test_names_do_not_share_keys_and_a_chain_is_its_root() -> None:
    material = chain(5, stream("chain"))
    keys = [combine(list(pooled([material], name).values())) for name in NAMES]
    assert len(set(keys)) == len(NAMES)
    root = material.generations[0].subkeys[0][1]
    assert keys[0] == scope_key(root, "a/#", 5, 0)


def test_the_derivations_are_those_of_the_readme() -> None:
    """Keys of a threshold service two epochs later, with HMAC alone."""
    drawn = stream("readme")
    name, subkeys = (5).to_bytes(4) + drawn(8), [drawn(32) for _ in range(4)]
    materials = deal(4, 1, 5, stream("readme"))
    assert {material.generations[0].deal for material in materials} == {name}
    key = 0
    for first in subkeys:
        subkey = first
        for epoch in (6, 7):
            subkey = hmac.digest(subkey, b"veilmq/1 walk" + epoch.to_bytes(4) + b"\1", "sha256")
        label = b"veilmq/1 scope" + b"\0\3a/#" + (7).to_bytes(4) + (2).to_bytes(2)
        key ^= int.from_bytes(hmac.digest(subkey, label + b"\1", "sha256"))
    assert combine(list(pooled(materials, KeyName("a/#", 7, 2)).values())) == key.to_bytes(32)
    assert [sorted(members) for members in sets_of(4, 1)] == [[1, 2, 3], [1, 2, 4], [1, 3, 4], [2, 3, 4]]
    assert [sorted(members) for members in sets_of(3, 0)] == [[1, 2], [1, 3], [2, 3]]


# ------------------------------------------------------------------------------------------------- walking


def secrets_of(material: Material) -> list[bytes]:
    return [subkey for generation in material.generations for _, subkey in generation.subkeys]


@pytest.mark.parametrize("material", [chain(5, stream("w")), deal(4, 1, 5, stream("w"))[2]])
def test_walking_erases_what_is_over(material: Material) -> None:
    later = material.walked(8)
    assert later.epoch == 8
    assert not any(secret in later.encode() for secret in secrets_of(material))
    for epoch in (5, 7):
        with pytest.raises(KeyGone):
            later.generation_of(epoch)
        with pytest.raises(KeyGone):
            later.generations[0].at_epoch(epoch)
    name = KeyName("a/#", 9, 0)
    assert pooled([later], name) == pooled([material], name)


def test_walking_in_steps_and_at_once_end_alike() -> None:
    material = deal(4, 1, 5, stream("steps"))[0]
    assert material.walked(6).walked(7).walked(20) == material.walked(20)
    assert material.walked(3) == material


def test_no_walk_is_endless() -> None:
    """A clock that is decades ahead does not hold a server up."""
    material = chain(0, stream("far"))
    with pytest.raises(NotReady):
        material.generations[0].at_epoch(WALK_STEPS_MAX + 1)
    assert material.walked(1 << 31).epoch == WALK_STEPS_MAX


def test_the_subkeys_of_two_sets_stay_apart() -> None:
    walked = deal(4, 1, 5, stream("apart"))[0].walked(40)
    assert len(set(secrets_of(walked))) == 3


# --------------------------------------------------------------------------------------------------- rekey


def test_a_rekey_takes_over_at_its_epoch() -> None:
    old, new = chain(5, stream("old")), chain(8, stream("new"))
    both = old.followed_by(new)
    for epoch, expected in ((5, old), (7, old), (8, new), (9, new)):
        name = KeyName("a/#", epoch, 0)
        assert pooled([both], name) == pooled([expected], name)
    assert both.walked(8) == new
    assert both.walked(10) == new.walked(10)
    assert both.walked(7).generations[1:] == new.generations


def test_a_rekey_again_changes_nothing_or_replaces_what_has_not_begun() -> None:
    old, new, newer = chain(5, stream("old")), chain(8, stream("new")), chain(9, stream("newer"))
    both = old.followed_by(new)
    assert both.followed_by(new) == both
    assert both.followed_by(old) == both
    assert both.followed_by(newer) == old.followed_by(newer)


def test_a_rekey_that_comes_late_replaces_what_is_held() -> None:
    """The others are ahead already: to stay behind would keep this server out for good."""
    for first in (6, 7):
        late = chain(first, stream("late"))
        assert chain(5, stream("old")).walked(7).followed_by(late) == late


def test_an_older_deal_than_the_one_in_force_is_refused() -> None:
    old, new = chain(5, stream("old")), chain(8, stream("new"))
    with pytest.raises(OurFault, match="last rekey"):
        old.followed_by(new).walked(8).followed_by(old)
    with pytest.raises(OurFault, match="last rekey"):
        new.followed_by(old)


# -------------------------------------------------------------------------------------------------- frames


REKEYED = chain(1, stream("f")).followed_by(chain(3, stream("g")))


@pytest.mark.parametrize("material", [chain(5, stream("f")), deal(3, 0, 5, stream("f"))[1], REKEYED])
def test_the_frame_of_material_is_strict(material: Material) -> None:
    assert_strict(Material.decode, Material.encode, material.encode())  # type: ignore[arg-type]
    assert Material.decode(material.encode()) == material


@settings(max_examples=60)
@given(st.integers(0, 120), st.binary(min_size=1, max_size=4))
def test_arbitrary_changes_are_refused_or_canonical(offset: int, data: bytes) -> None:
    frame = deal(4, 1, 5, stream("fuzz"))[0].encode()
    changed = frame[:offset] + data + frame[offset + len(data) :]
    assert_canonical(Material.decode, Material.encode, changed)  # type: ignore[arg-type]


def test_material_for_other_sets_or_of_two_overlapping_generations_is_refused() -> None:
    one, two = deal(4, 1, 5, stream("x"))[:2]
    frame = one.encode()
    assert frame[4 + 12 : 4 + 15] == bytes((4, 1, 1))
    for place in (bytes((4, 1, 2)), bytes((4, 1, 5)), bytes((3, 1, 1)), bytes((0, 0, 0))):
        with pytest.raises(BadFrame):
            Material.decode(frame[:16] + place + frame[19:])
    with pytest.raises(OurFault):
        Material(two.generations + one.generations)
    with pytest.raises(OurFault):
        Material(())


def test_no_secret_shows_and_none_is_pickled() -> None:
    material = deal(4, 1, 5, stream("secret"))[0]
    for secret in secrets_of(material):
        assert secret.hex() not in repr(material)
        assert repr(secret)[2:12] not in repr(material)
    with pytest.raises(OurFault):
        pickle.dumps(material)


# ------------------------------------------------------------------------------------------------- edges


def of_first(**changes: object) -> Material:
    """Material of one server with one thing that is not as it was dealt."""
    (generation,) = deal(4, 1, 5, stream("edges"))[0].generations
    return Material((replace(generation, **changes),))  # type: ignore[arg-type]


def test_material_of_an_epoch_before_its_first_or_beyond_the_last_is_none() -> None:
    assert of_first(epoch=5).epoch == 5
    assert Material.decode(of_first(epoch=EPOCH_MAX).encode()).epoch == EPOCH_MAX
    for epoch in (4, EPOCH_MAX + 1):
        with pytest.raises(OurFault, match="before its first"):
            of_first(epoch=epoch)
    with pytest.raises(OurFault):
        of_first(deal=bytes(11))
    with pytest.raises(OurFault):
        of_first(deal=bytes(13))


def test_one_subkey_of_another_size_or_set_spoils_all() -> None:
    whole = of_first().generations[0].subkeys
    for subkeys in (
        (*whole[:-1], (whole[-1][0], bytes(31))),
        (*whole[:-1], (whole[-1][0], bytes(33))),
        whole[:-1],
        (),
        (*whole[:-1], (whole[-1][0] + 1, whole[-1][1])),
        whole[::-1],
    ):
        with pytest.raises(OurFault):
            of_first(subkeys=subkeys)


def test_outputs_are_of_the_epoch_that_subkeys_were_walked_to() -> None:
    generation = of_first().generations[0]
    assert generation.outputs(KeyName("a/#", 5, 0))
    for epoch in (4, 6):
        with pytest.raises(OurFault, match="walk there first"):
            generation.outputs(KeyName("a/#", epoch, 0))


def test_a_walk_is_as_long_as_it_is_wherever_it_begins() -> None:
    late = of_first(epoch=EPOCH_MAX - WALK_STEPS_MAX - 1).generations[0]
    assert late.at_epoch(late.epoch + 1).epoch == late.epoch + 1
    with pytest.raises(NotReady):
        late.at_epoch(EPOCH_MAX)
    assert late.at_epoch(late.epoch + WALK_STEPS_MAX).epoch == EPOCH_MAX - 1


def test_a_second_deal_for_the_same_epoch_replaces_the_first_and_a_walk_past_it_is_no_material() -> None:
    first, second = (chain(5, stream(seed)) for seed in ("one", "two"))
    assert first.followed_by(second) == second
    later = chain(9, stream("later")).generations[0]
    assert Material((first.generations[0].at_epoch(8), later)).epoch == 8
    for epoch in (9, 10):
        with pytest.raises(OurFault, match="follow each other"):
            Material((first.generations[0].at_epoch(epoch), later))


def test_which_servers_bear_which_faults() -> None:
    sets_of.cache_clear()
    assert sets_of(0, 0) == (frozenset(),)
    assert sets_of(3, 0) == ({1, 2}, {1, 3}, {2, 3})
    assert sets_of(4, 1) == ({1, 2, 3}, {1, 2, 4}, {1, 3, 4}, {2, 3, 4})
    assert len(sets_of(10, 3)) == 120
    for servers, faults in ((0, 1), (1, 0), (2, 0), (3, 1), (4, -1), (6, 2), (11, 1)):
        with pytest.raises(OurFault):
            sets_of(servers, faults)


def test_material_of_a_server_that_is_in_no_set_is_none() -> None:
    """A number beyond the last server, without a subkey: it would issue nothing, and everybody would wait for it."""
    (generation,) = deal(4, 1, 0, stream("nobody"))[0].generations
    with pytest.raises(OurFault, match="other sets"):
        Material((replace(generation, number=9, subkeys=()),))


def test_to_walk_nowhere_changes_nothing_and_a_chain_is_for_no_server_in_particular() -> None:
    made = chain(7, stream("chain"))
    (generation,) = made.generations
    assert (generation.servers, generation.faults, generation.number, generation.epoch) == (0, 0, 0, 7)
    assert made.walked(7) is made
    assert made.walked(3) is made
    assert made.walked(8) is not made
