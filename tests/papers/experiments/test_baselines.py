"""The attacks of Figures 3 and 4 carried out, and that re-splitting withstands what the baselines do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import gf256
from keys.shamir import threshold_of
from papers.experiments.baselines import (
    Algorithm1,
    Algorithm2,
    NetworkCoding,
    Spread,
    arriving,
    attacked,
    coalitions,
    forwarded,
    gathered,
    solve,
)
from papers.experiments.draws import Draws

NOBODY: frozenset[int] = frozenset()


def bad(*places: int) -> frozenset[int]:
    return frozenset(places)


# ------------------------------------------------------------------------------------------- Figure 3


def test_figure_3_a_a_bad_replica_hands_its_share_to_one_of_the_next_node_which_then_has_two_of_2_3():
    scheme = Algorithm1((3, 3), Spread.FILL, Draws("a"))
    coalition = (bad(3), bad(2))
    assert scheme.one_replica_reads(coalition)
    assert scheme.reads(coalition)
    assert not scheme.delivers(coalition)


def test_figure_3_a_five_replicas_and_3_5_help_against_that_coalition_while_the_first_one_passes_its_share_on():
    scheme = Algorithm1((5, 3), Spread.FILL, Draws("a"))
    path = forwarded((5, 3), Spread.FILL, 3)
    assert path[1] == {1: {1, 2}, 2: {3, 4}, 3: {5}}
    assert not scheme.reads((bad(3), bad(2)))
    assert arriving(path, (NOBODY, bad(2))) == {1, 2, 5}  # the three shares of the paper
    assert not scheme.delivers((bad(3), bad(2)))  # it may drop it instead: the fifth share then ends at the second one


def test_figure_3_b_but_not_against_the_same_with_the_first_replica_of_the_next_node():
    scheme = Algorithm1((5, 3), Spread.FILL, Draws("b"))
    assert scheme.one_replica_reads((bad(3), bad(1)))
    assert not scheme.delivers((bad(3), bad(1)))


def test_algorithm_1_as_printed_gives_every_replica_of_the_second_node_enough_shares_to_read():
    scheme = Algorithm1((3, 3), Spread.PRINTED, Draws("printed"))
    assert all(scheme.one_replica_reads((NOBODY, bad(place))) for place in (1, 2, 3))


@pytest.mark.parametrize("spread", [Spread.FILL, Spread.EVEN])
@pytest.mark.parametrize("counts", [(3,), (5,)])
def test_on_one_virtual_node_algorithm_1_is_plain_sharing_and_holds(spread: Spread, counts: Sequence[int]):
    result = attacked(Algorithm1(counts, spread, Draws("one")), counts)
    assert (result.read, result.stopped) == (0, 0)


@pytest.mark.parametrize(("counts", "lost", "placements"), [
    ((3, 3), 6, 9), ((3, 3, 3), 24, 27), ((5, 5), 90, 100), ((5, 5, 5), 990, 1000),
])  # fmt: skip
def test_in_its_ideal_case_algorithm_1_still_loses_most_placements(counts: tuple[int, ...], lost: int, placements: int):
    """A placement is survived only if the bad replicas sit in no more than f columns together."""
    result = attacked(Algorithm1(counts, Spread.EVEN, Draws("ideal")), counts)
    assert (result.placements, result.read, result.stopped) == (placements, lost, lost)


# ------------------------------------------------------------------------------------------- Figure 4


def test_figure_4_a_blocks_handed_down_by_bad_replicas_meet_the_last_one_in_the_third_node():
    scheme = NetworkCoding((3, 3, 3), Draws("4a"))
    assert scheme.one_replica_reads((bad(3), bad(2), bad(1)))
    assert not scheme.reads((bad(3), bad(2), NOBODY))
    assert not scheme.reads((bad(1), bad(1), bad(1)))


@pytest.mark.parametrize(("counts", "read"), [((3, 3), 0), ((3, 3, 3), 6), ((5, 5), 0)])
def test_network_coding_is_read_where_bad_replicas_cover_all_columns_and_stopped_everywhere(
    counts: tuple[int, ...], read: int
):
    result = attacked(NetworkCoding(counts, Draws("coding")), counts)
    assert (result.read, result.stopped) == (read, result.placements)


def test_without_bad_replicas_every_scheme_delivers():
    nobody = (NOBODY, NOBODY)
    schemes = [Algorithm1((3, 5), spread, Draws("all")) for spread in Spread]
    for scheme in (*schemes, NetworkCoding((3, 5), Draws("all")), Algorithm2((3, 5), Draws("all"))):
        assert scheme.delivers(nobody)
        assert not scheme.reads(nobody)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.data())
def test_elimination_finds_the_pieces_exactly_when_the_blocks_determine_them(count: int, data: st.DataObject):
    pieces = [data.draw(st.binary(min_size=4, max_size=4)) for _ in range(count)]
    vectors = data.draw(st.lists(st.binary(min_size=count, max_size=count), max_size=count + 2))
    blocks = []
    for vector in vectors:
        combination = bytes(4)
        for factor, piece in zip(vector, pieces, strict=True):
            combination = gf256.xor(combination, gf256.scale(piece, factor))
        blocks.append((vector, combination))
    assert solve(blocks) == (pieces if rank(vectors) == count else [])


def rank(vectors: Sequence[bytes]) -> int:
    """Of vectors over GF(2^8), one basis vector at a time, by another way than `solve`."""
    basis: dict[int, bytes] = {}
    for vector in vectors:
        rest = vector
        for column in range(len(rest)):
            if rest[column]:
                if column not in basis:
                    basis[column] = gf256.scale(rest, gf256.inv(rest[column]))
                    break
                rest = gf256.xor(rest, gf256.scale(basis[column], rest[column]))
    return len(basis)


# ---------------------------------------------------------------------------------------- Algorithm 2


@pytest.mark.parametrize("counts", [(3,), (3, 3), (3, 3, 3), (5,), (5, 5), (5, 3, 5), (4, 3)])
def test_no_placement_of_f_bad_replicas_a_node_reads_or_stops_algorithm_2(counts: tuple[int, ...]):
    result = attacked(Algorithm2(counts, Draws("two")), counts)
    assert (result.read, result.stopped) == (0, 0)
    assert result.placements > 0


@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_bad_replica_more_in_any_node_reads_and_stops_it(at: int):
    coalition = [bad(1), bad(2), bad(3)]
    coalition[at] = bad(1, 2)
    scheme = Algorithm2((3, 3, 3), Draws("more"))
    assert scheme.reads(coalition)
    assert not scheme.delivers(coalition)


@pytest.mark.parametrize("counts", [(3, 3), (3, 3, 3), (5, 5)])
def test_what_a_coalition_sees_of_algorithm_2_fits_every_secret(counts: tuple[int, ...]):
    """Linear algebra instead of interpolation: the secret is no combination of the values that were seen."""
    for coalition in coalitions(counts):
        seen = symbolic(counts, coalition)
        secret = bytes([1]) + bytes(len(seen[0]) - 1)
        assert rank([*seen, secret]) == rank(seen) + 1


def symbolic(counts: Sequence[int], coalition: Sequence[frozenset[int]]) -> list[bytes]:
    """All that bad replicas see, as combinations of the secret (first column) and of every split's coefficients."""
    unknowns = 1
    splits = 1
    for count in counts:
        unknowns += splits * (threshold_of(count) - 1)
        splits *= count
    fresh = iter(range(1, unknowns))
    level, seen = [bytes([1]) + bytes(unknowns - 1)], []
    for count, places in zip(counts, coalition, strict=True):
        following = []
        for value in level:
            columns = [next(fresh) for _ in range(threshold_of(count) - 1)]
            for x in range(1, count + 1):
                part, power = bytearray(value), 1
                for column in columns:
                    power = gf256.mul(power, x)
                    part[column] ^= power
                following.append(bytes(part))
                if x in places:
                    seen.append(bytes(part))
        level = following
    return seen


def test_a_replica_without_bad_ones_before_it_sees_its_own_column_only():
    path = forwarded((3, 3), Spread.EVEN, 2)
    assert gathered(path, (NOBODY, bad(2))).pooled == {2}
