"""What an unverified header says of itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract.claims import NOBODYS, Claim, claim_of, tree_of
from keys.envelope import PROPERTY_HEADER, SignedHeader, from_property, sign_header, to_property
from tests.bridge.helpers import NOW, craft
from tests.sim.world import make_world


def test_it_is_what_the_header_says() -> None:
    world = make_world({1: 3}, [], {"site": 1})
    wire = craft(world, "site", "plant/t", sequence=(1 << 63) - 9, key_id=bytes([1]) * 16, order=(6, 4))
    told = dict(wire.properties)[PROPERTY_HEADER]
    party = world.identities["site"].party_id
    assert claim_of(told) == Claim(party, (1 << 63) - 9, int(NOW * 1000), (), (6, 4))


def test_a_snapshot_says_which_sealing_of_its_number_it_is() -> None:
    world = make_world({1: 3}, [], {"site": 1})
    wire = craft(world, "site", "plant/t", sequence=7, key_id=bytes([1]) * 16, retain=True, order=(5, 3), snapshot=True)
    claim = claim_of(dict(wire.properties)[PROPERTY_HEADER])
    assert claim.order == (7, 5, 3, int(NOW * 1000))


@pytest.mark.parametrize("told", ["", "!", "AAAA", "A" * 107, "\N{SNOWMAN}" * 80])
def test_what_is_no_header_is_nobodys(told: str) -> None:
    assert claim_of(told) == NOBODYS
    assert tree_of(told) == -1


def test_it_says_its_tree() -> None:
    world = make_world({1: 3}, [], {"site": 1})
    wire = craft(world, "site", "plant/t", sequence=1, key_id=bytes([1]) * 16)
    header = SignedHeader.decode(from_property(dict(wire.properties)[PROPERTY_HEADER])).header
    for tree in (0, 7, 255):
        signed = sign_header(world.identities["site"], replace(header, tree=tree), "t")
        assert tree_of(to_property(signed.encode())) == tree


@given(st.text(max_size=100))
def test_nothing_makes_it_raise(told: str) -> None:
    assert len(claim_of(told)) == 5
