"""Reed-Solomon blocks: content in `total` blocks, any `needed` of which give it back (A10; docs/protocol.md §4).

Over the field of `gf256`, byte by byte. Blocks 0 .. needed - 1 are the data itself, cut into equal pieces
(systematic); they are the values at x = 0 .. needed - 1 of polynomials of degree below `needed`, and block i is
the value at x = i. A region of n replicas of which f are bad uses total = n and needed = n - f.

The data is padded with zeros up to needed * `block_bytes`. Its length is in no block: it travels beside them (in
what the publisher signed) and is given to `decode`.

Not here: secrecy (blocks show their data), and which block is wrong. These functions correct erasures and no errors:
the caller compares every block with its signed digest first.
"""

from __future__ import annotations

from collections.abc import Mapping

from keys import gf256, shamir
from keys.errors import BadShare, NotEnoughShares, OurFault

MAX_BLOCKS = 255  # points of GF(2^8) without zero


def block_bytes(length: int, needed: int) -> int:
    """Returns the size of each block of `length` >= 1 bytes of data. Raises `OurFault`."""
    if length < 1 or not 1 <= needed <= MAX_BLOCKS:
        raise OurFault(f"cannot cut {length} bytes into {needed} blocks: need 1 byte or more, 1 to {MAX_BLOCKS} blocks")
    return -(-length // needed)


def encode(data: bytes, needed: int, total: int) -> tuple[bytes, ...]:
    """Returns `total` blocks of `block_bytes(len(data), needed)` bytes; `decode` needs `len(data)`.

    Raises `OurFault` for no data, or unless 1 <= needed <= total <= 255.
    """
    _check_counts(needed, total)
    size = block_bytes(len(data), needed)
    padded = data.ljust(needed * size, b"\0")
    pieces = [padded[start : start + size] for start in range(0, needed * size, size)]
    known = tuple(range(needed))
    return (*pieces, *(gf256.weighted_sum(pieces, _weights(known, index)) for index in range(needed, total)))


def decode(blocks: Mapping[int, bytes], needed: int, total: int, length: int) -> bytes:
    """Returns the `length` bytes of data behind `blocks` {index: block}; of more than `needed`, the lowest indexes
    count.

    Raises `NotEnoughShares` for fewer than `needed`, `BadShare` for an index outside 0 .. total - 1, a size that
    does not follow from `length`, or padding that is not zero, `OurFault` for numbers that `encode` refuses.
    """
    size = block_bytes(length, needed)
    places = _checked(blocks, needed, total)
    if len(blocks[places[0]]) != size:
        raise BadShare(f"a block of {len(blocks[places[0]])} bytes where {length} bytes of data make blocks of {size}")
    data = b"".join([_block(blocks, places, index) for index in range(needed)])
    if any(data[length:]):
        raise BadShare("the padding of the last blocks is not zero")
    return data[:length]


def rebuild(blocks: Mapping[int, bytes], index: int, needed: int, total: int) -> bytes:
    """Returns block number `index`, made again from `needed` others, or taken from `blocks`.

    Raises as `decode` does, but knows of no length or padding; `OurFault` for an index outside 0 .. total - 1.
    """
    if not 0 <= index < total:
        raise OurFault(f"there is no block {index} of {total}: blocks are numbered from 0")
    return _block(blocks, _checked(blocks, needed, total), index)


def _check_counts(needed: int, total: int) -> None:
    if not 1 <= needed <= total <= MAX_BLOCKS:
        raise OurFault(f"cannot code {needed} of {total}: need 1 <= needed <= total <= {MAX_BLOCKS}")


def _checked(blocks: Mapping[int, bytes], needed: int, total: int) -> tuple[int, ...]:
    """Returns the `needed` lowest indexes, which have most of the data itself, after all blocks were checked."""
    _check_counts(needed, total)
    places = sorted(blocks)
    if len(places) < needed:
        raise NotEnoughShares(f"{len(places)} of {needed} blocks")
    if places[0] < 0 or places[-1] >= total:
        raise BadShare(f"a block outside 0..{total - 1}")
    size = len(blocks[places[0]])
    if size == 0 or any(len(block) != size for block in blocks.values()):
        raise BadShare("blocks must be of one length, and not empty")
    return tuple(places[:needed])


def _block(blocks: Mapping[int, bytes], places: tuple[int, ...], index: int) -> bytes:
    if index in blocks:
        return blocks[index]
    return gf256.weighted_sum([blocks[place] for place in places], _weights(places, index))


def _weights(places: tuple[int, ...], at: int) -> tuple[bytes, ...]:
    """Returns Lagrange weights at x = `at`. The field has characteristic 2: moving all places by `at` moves that x
    to 0.
    """
    return shamir.weights_at_zero(tuple(place ^ at for place in places))
