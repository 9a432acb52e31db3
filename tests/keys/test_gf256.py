"""keys.gf256 against FIPS 197 and the field axioms."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys import gf256
from keys.errors import OurFault

element = st.integers(0, 255)


def multiply_by_hand(a: int, b: int) -> int:
    """Shift and add, reduced by x^8 + x^4 + x^3 + x + 1."""
    product = 0
    while b:
        if b & 1:
            product ^= a
        a <<= 1
        if a & 0x100:
            a ^= 0x11B
        b >>= 1
    return product


def test_the_examples_of_fips_197() -> None:
    assert gf256.mul(0x57, 0x83) == 0xC1
    assert gf256.mul(0x57, 0x13) == 0xFE
    assert gf256.inv(0x53) == 0xCA


def test_every_product_is_that_of_the_polynomials() -> None:
    assert all(gf256.mul(a, b) == multiply_by_hand(a, b) for a in range(256) for b in range(256))


def test_the_tables_are_of_the_field_and_no_more() -> None:
    assert [len(row) for row in gf256.MUL_TABLE] == [256] * 256


def test_every_nonzero_element_has_an_inverse_and_zero_has_none() -> None:
    assert all(gf256.mul(a, gf256.inv(a)) == 1 for a in range(1, 256))
    with pytest.raises(OurFault):
        gf256.inv(0)


@settings(max_examples=50)
@given(st.binary(max_size=64), element)
def test_a_vector_is_scaled_element_by_element(value: bytes, c: int) -> None:
    assert gf256.scale(value, c) == bytes(multiply_by_hand(x, c) for x in value)


@settings(max_examples=50)
@given(st.binary(max_size=64), st.data())
def test_vectors_are_added_element_by_element(a: bytes, data: st.DataObject) -> None:
    b = data.draw(st.binary(min_size=len(a), max_size=len(a)))
    assert gf256.xor(a, b) == bytes(x ^ y for x, y in zip(a, b, strict=True))


def test_vectors_of_different_lengths_are_not_added() -> None:
    with pytest.raises(OurFault):
        gf256.xor(b"ab", b"abc")


@settings(max_examples=50)
@given(st.lists(st.tuples(element, st.binary(min_size=7, max_size=7)), min_size=1, max_size=6))
def test_a_weighted_sum_is_scaled_and_added_element_by_element(terms: list[tuple[int, bytes]]) -> None:
    expected = bytes(7)
    for c, value in terms:
        expected = bytes(x ^ multiply_by_hand(c, y) for x, y in zip(expected, value, strict=True))
    assert gf256.weighted_sum([value for _, value in terms], [gf256.MUL_TABLE[c] for c, _ in terms]) == expected
