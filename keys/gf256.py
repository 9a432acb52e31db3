"""Arithmetic in GF(2^8) on whole byte strings.

The field is the one of FIPS 197 §4.2: polynomials over GF(2) modulo x^8 + x^4 + x^3 + x + 1 (0x11B). Addition
is XOR. A byte string is a vector of field elements: `scale` multiplies all of them by one constant with a
single `bytes.translate`, `xor` adds two vectors as integers, so neither loops in Python; `weighted_sum` does both.

Not here: polynomials and their evaluation (`shamir`), blocks of content (`reedsolomon`). Table look-ups are not
constant-time: an attacker who can watch this process's cache is outside the threat model
(docs/explanation/threat-model.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from keys.errors import OurFault

REDUCTION = 0x11B


def _multiplication_tables() -> tuple[bytes, ...]:
    """Returns 256 rows; row c maps x to c·x. Each row follows from earlier ones: 2c = 2·c, and 2c+1 = 2c + 1."""
    double = bytes((2 * x) ^ (REDUCTION if x & 0x80 else 0) for x in range(256))
    one = bytes(range(256))
    rows = [bytes(256), one]
    for c in range(2, 256):
        even = rows[c >> 1].translate(double)
        rows.append(xor(even, one) if c & 1 else even)
    return tuple(rows)


def xor(a: bytes, b: bytes) -> bytes:
    """Returns a + b, element by element. Raises `OurFault` if their lengths differ."""
    if len(a) != len(b):
        raise OurFault(f"cannot add vectors of {len(a)} and {len(b)} bytes: give equal lengths")
    return (int.from_bytes(a) ^ int.from_bytes(b)).to_bytes(len(a))


MUL_TABLE = _multiplication_tables()
_INVERSE = bytes([0, *(MUL_TABLE[c].index(1) for c in range(1, 256))])


def mul(a: int, b: int) -> int:
    """Returns a·b for two elements (0..255)."""
    return MUL_TABLE[a][b]


def inv(a: int) -> int:
    """Returns 1/a for an element 1..255. Raises `OurFault` for 0, which has no inverse."""
    if a == 0:
        raise OurFault("zero has no inverse in GF(2^8)")
    return _INVERSE[a]


def scale(value: bytes, c: int) -> bytes:
    """Returns c·value, element by element."""
    return value.translate(MUL_TABLE[c])


def weighted_sum(values: Sequence[bytes], tables: Iterable[bytes]) -> bytes:
    """Returns the sum of c·value, for each value with its c as the row `MUL_TABLE[c]`.

    The caller gives as many tables as values, and values of one length: checking a 32-byte share would cost a third
    of
    the sum.
    """
    total = 0
    for product in map(int.from_bytes, map(bytes.translate, values, tables)):  # multiplied and converted in C
        total ^= product
    return total.to_bytes(len(values[0]))
