"""Shamir's secret sharing, byte by byte over GF(2^8) (A1, A2; Shamir 1979).

The secret is the value at x = 0 of a polynomial of degree threshold - 1, share i its value at x = i. Every coefficient
is drawn from all 256 values, the leading one too: forbidding zero there would tell holders of threshold - 1 shares one
value the secret does not have.

Nothing here draws randomness, knows places or regions (`sharetree`), or notices a wrong share: `combine` of
wrong shares is a wrong secret. Commitments are checked by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from keys import gf256
from keys.errors import BadShare, OurFault

MAX_PLACE = 255  # points of GF(2^8) without zero, where the secret stands
WEIGHTS_KEPT = 8192  # bounds memory when a peer makes us try many subsets of places
POWERS_KEPT = 64  # bounds memory: there are few kinds of regions, whatever views a peer names


def threshold_of(count: int) -> int:
    """Returns k = floor(n/2) + 1, the sharing threshold of a region of n replicas (A1)."""
    if not 1 <= count <= MAX_PLACE:
        raise OurFault(f"a region has 1 to {MAX_PLACE} replicas, not {count}")
    return count // 2 + 1


def split(secret: bytes, threshold: int, count: int, coefficients: bytes) -> tuple[bytes, ...]:
    """Returns `count` shares of `secret`, any `threshold` of which give it back; share number i is for x = i + 1.

    `coefficients`: (threshold - 1) * len(secret) uniformly random bytes, never used for another secret.
    Raises `OurFault` unless 1 <= threshold <= count <= 255 and the sizes fit.
    """
    size = len(secret)
    if not 1 <= threshold <= count <= MAX_PLACE:
        raise OurFault(f"cannot split {threshold} of {count}: need 1 <= threshold <= count <= {MAX_PLACE}")
    if size == 0 or len(coefficients) != (threshold - 1) * size:
        raise OurFault(f"need {(threshold - 1) * size} coefficient bytes for {size} secret bytes")
    # all shares side by side in one integer: a coefficient is added to every share by one XOR, not one a share
    total = int.from_bytes(secret * count)
    for start, tables in zip(range(0, len(coefficients), size), _power_tables(threshold, count), strict=True):
        coefficient = coefficients[start : start + size]
        total ^= int.from_bytes(b"".join(map(coefficient.translate, tables)))
    shares = total.to_bytes(size * count)
    return tuple([shares[start : start + size] for start in range(0, size * count, size)])


@lru_cache(maxsize=POWERS_KEPT)
def _power_tables(threshold: int, count: int) -> tuple[tuple[bytes, ...], ...]:
    """Returns, for the coefficients of x, x², ... up to threshold - 1, the tables of that power at x = 1..count."""
    powers, rows = [1] * count, []
    for _ in range(1, threshold):
        powers = [gf256.mul(power, x) for x, power in enumerate(powers, 1)]
        rows.append(tuple(gf256.MUL_TABLE[power] for power in powers))
    return tuple(rows)


@lru_cache(maxsize=WEIGHTS_KEPT)
def weights_at_zero(places: tuple[int, ...]) -> tuple[bytes, ...]:
    """Returns Lagrange weights at x = 0 of the distinct nonzero `places`, each as its multiplication table."""
    if not places or len(set(places)) != len(places) or not all(1 <= x <= MAX_PLACE for x in places):
        raise BadShare(f"coordinates must be distinct and in 1..{MAX_PLACE}")
    tables = []
    for x in places:
        weight = 1
        for other in places:
            if other != x:
                weight = gf256.mul(weight, gf256.mul(other, gf256.inv(other ^ x)))
        tables.append(gf256.MUL_TABLE[weight])
    return tuple(tables)


def interpolate(places: tuple[int, ...], values: Sequence[bytes]) -> bytes:
    """Returns the value at x = 0 of the polynomial through (places[i], values[i]). The caller checks the lengths.

    Each value may be many shares joined, if their places are equal: one call interpolates them all.
    """
    return gf256.weighted_sum(values, weights_at_zero(places))


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Returns the secret behind `shares` {x: value}. All are used: pass exactly threshold of them.

    Raises `BadShare` for coordinates outside 1..255, no share at all, or unequal or zero lengths.
    """
    # as gf256.weighted_sum, with lengths checked on the way: the call and a pass of its own would cost a third more
    total, size = 0, -1
    for product in map(bytes.translate, shares.values(), weights_at_zero(tuple(shares))):
        if len(product) != size:
            if size >= 0:
                raise BadShare("shares must be of one length")
            size = len(product)
        total ^= int.from_bytes(product)
    if size == 0:
        raise BadShare("shares must not be empty")
    return total.to_bytes(size)
