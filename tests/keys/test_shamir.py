"""keys.shamir: any k of n give the secret, k - 1 say nothing at all, nonsense is refused before arithmetic."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.errors import BadShare, OurFault
from keys.gf256 import mul
from keys.shamir import combine, interpolate, split, threshold_of, weights_at_zero
from tests.keys.helpers import stream


@settings(max_examples=60)
@given(st.binary(min_size=1, max_size=40), st.integers(1, 9), st.data())
def test_any_k_of_n_give_the_secret(secret: bytes, count: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, count))
    size = (threshold - 1) * len(secret)
    shares = split(secret, threshold, count, data.draw(st.binary(min_size=size, max_size=size)))
    chosen = data.draw(st.permutations(range(1, count + 1)))[:threshold]
    assert combine({x: shares[x - 1] for x in chosen}) == secret


@settings(max_examples=40)
@given(st.integers(1, 20), st.integers(1, 5), st.integers(0, 4), st.data())
def test_a_share_is_the_value_of_the_polynomial_byte_by_byte(
    size: int, threshold: int, spare: int, data: st.DataObject
) -> None:
    numbers = data.draw(st.binary(min_size=threshold * size, max_size=threshold * size))
    rows = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    for x, share in enumerate(split(rows[0], threshold, threshold + spare, numbers[size:]), 1):
        for at in range(size):
            value = 0
            for row in reversed(rows):
                value = mul(value, x) ^ row[at]
            assert share[at] == value


def test_joined_shares_of_many_secrets_are_interpolated_together() -> None:
    secrets = [stream(f"secret {n}")(32) for n in range(5)]
    splits = [split(secret, 3, 5, stream(f"coefficients {n}")(64)) for n, secret in enumerate(secrets)]
    for places in combinations(range(1, 6), 3):
        joined = [b"".join(shares[x - 1] for shares in splits) for x in places]
        assert interpolate(places, joined) == b"".join(secrets)


def test_all_subsets_of_a_region_of_seven() -> None:
    secret = stream("secret")(32)
    shares = split(secret, 4, 7, stream("coefficients")(96))
    assert all(combine({x: shares[x - 1] for x in s}) == secret for s in combinations(range(1, 8), 4))


@pytest.mark.parametrize("place", [1, 2, 3, 255])
def test_one_share_of_two_fits_every_secret_byte_equally_often(place: int) -> None:
    """All 256 polynomials of degree 1 at once: position i of the vector has coefficient i."""
    for secret in range(256):
        shares = split(bytes([secret]) * 256, 2, max(place, 2), bytes(range(256)))
        assert Counter(shares[place - 1]) == Counter(range(256))


def test_two_shares_of_three_fit_every_secret_byte_equally_often() -> None:
    """All 65,536 polynomials of degree 2: each pair of values at two places comes from exactly one of them."""
    first, second = bytes(range(256)) * 256, b"".join(bytes([c]) * 256 for c in range(256))
    for secret in (0, 1, 127, 255):
        shares = split(bytes([secret]) * 65_536, 3, 5, first + second)
        for a, b in ((1, 2), (2, 5)):
            assert len(set(zip(shares[a - 1], shares[b - 1], strict=True))) == 65_536


def test_three_shares_of_three_fit_one_secret_only() -> None:
    """The control of the two tests above: with k shares, distributions of two secrets do not meet."""
    first, second = bytes(range(256)) * 256, b"".join(bytes([c]) * 256 for c in range(256))
    seen = []
    for secret in (7, 8):
        shares = split(bytes([secret]) * 65_536, 3, 3, first + second)
        seen.append(set(zip(*shares, strict=True)))
    assert seen[0].isdisjoint(seen[1])


def test_the_leading_coefficient_may_be_zero() -> None:
    assert split(b"s", 2, 3, b"\0") == (b"s", b"s", b"s")


def test_a_wrong_share_gives_a_wrong_secret() -> None:
    shares = split(b"secret", 2, 3, b"random")
    assert combine({1: shares[0], 2: b"wrong!"}) != b"secret"


@pytest.mark.parametrize(
    ("secret", "threshold", "count", "coefficients"),
    [
        (b"s", 0, 3, b""),
        (b"s", 4, 3, b"abc"),
        (b"s", 2, 256, b"a"),
        (b"", 2, 3, b""),
        (b"s", 2, 3, b""),
        (b"s", 2, 3, b"ab"),
    ],
)
def test_a_split_that_cannot_be(secret: bytes, threshold: int, count: int, coefficients: bytes) -> None:
    with pytest.raises(OurFault):
        split(secret, threshold, count, coefficients)


@pytest.mark.parametrize(
    "shares",
    [
        {},
        {0: b"a", 1: b"b"},
        {256: b"a", 1: b"b"},
        {-1: b"a"},
        {1: b"a", 2: b"ab"},
        {1: b"", 2: b"a"},
        {1: b"", 2: b""},
    ],
)
def test_shares_are_validated_before_arithmetic(shares: dict[int, bytes]) -> None:
    with pytest.raises(BadShare):
        combine(shares)


def test_thresholds_of_regions() -> None:
    assert [threshold_of(n) for n in (1, 2, 3, 4, 5, 7, 9)] == [1, 2, 2, 3, 3, 4, 5]
    for count in (0, 256):
        with pytest.raises(OurFault):
            threshold_of(count)


def test_the_last_place_counts_and_no_place_counts_twice() -> None:
    assert threshold_of(255) == 128
    assert combine({255: b"secret"}) == b"secret"
    for places in ((1, 1), (2, 1, 2), (256,), (0,), ()):
        with pytest.raises(BadShare):
            weights_at_zero(places)
