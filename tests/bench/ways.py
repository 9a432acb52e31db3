"""What one data key costs over ways of 1 to 10 regions of three: `python -m tests.bench.ways`.

Bytes are those of the frames of key header, shares and wraps that the publisher, all replicas and one reader of the
last region's exchange, everybody honest and each link telling once; as user properties they are a third longer. Time is
processor time of the functions of `keys`: a replica of the last region but one reads what its senders say of the key
and makes what its receivers get; the reader reads what three replicas say and opens the key. Without signatures: each
member verifies one key header, however long the way is. Up to four regions the key is split by shares of shares; what
these would be beyond is the peer of a longer way's bytes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from bridge.replica.wrapping import WrappedKey
from keys.columnsearch import ColumnSearch
from keys.keyheader import frame_bytes
from keys.sharetree import Label, Share, decode_shares, encode_shares, resplit
from keys.wrapping import SEALED_BYTES, Wrap, Wraps, check_wraps, decode_wraps, encode_wraps, is_long, split_wrap_key
from tests.keys.helpers import made
from tests.keys.wrapped import Way

N = 3
LENGTHS = range(1, 11)
MESSAGES = 64  # of a data key, unless its scope says otherwise
EVERYTHING = 1 << 20
RUNS = 41


class Cost(NamedTuple):
    """The costs of one key. `replica_us` is None where no replica passes anything on."""

    regions: int
    total_bytes: int
    unwrapped_bytes: int
    replica_us: float | None
    reader_us: float


def costs() -> list[Cost]:
    """One row for each length."""
    return [
        Cost(
            count,
            key_bytes(count, wrapped=is_long(count)),
            key_bytes(count, wrapped=False),
            None if count < 2 else processor_us(passing_on(count)),
            processor_us(opening(count)),
        )
        for count in LENGTHS
    ]


def processor_us(work: Callable[[], object]) -> float:
    """The median processor time of a call: other processes may want the cores, too."""
    taken: list[int] = []
    for _ in range(RUNS):
        start = time.process_time_ns()
        work()
        taken.append(time.process_time_ns() - start)
    return statistics.median(taken) / 1000


def shares_frame(depth: int, count: int) -> int:
    return 6 + 8 * depth + count * (depth + 4 * (depth - 1) + 32)


def wraps_frame(regions: int, own: int = 0) -> int:
    """All wraps of so many regions, and so many of the sender's own."""
    counts = [N * N] * regions + [own] * (own > 0)
    return 20 + sum(10 + count * (2 + SEALED_BYTES) for count in counts) if counts else 0


def key_bytes(count: int, *, wrapped: bool) -> int:
    """All frames of one key on all links, to one reader at the end."""
    header = frame_bytes("plant/#", count, N)
    total = N * (header + shares_frame(1, 1))
    for region in range(1, count):  # to the next one
        told = shares_frame(2, 1) + wraps_frame(max(0, region - 2), N if region > 1 else 0)
        total += N * N * (header + (told if wrapped else shares_frame(region + 1, N ** (region - 1))))
    last = shares_frame(min(count, 2), N) + wraps_frame(max(0, count - 2))
    return total + N * (header + (last if wrapped else shares_frame(count, N ** (count - 1))))


def passing_on(count: int) -> Callable[[], object]:
    """A replica of the last region but one: what it does for a key."""
    return _passing_wraps(Way((N,) * count)) if is_long(count) else _passing_shares(count)


def _passing_shares(count: int) -> Callable[[], object]:
    key, next_hop = made(*[N] * (count - 1)), made(*[N] * count).hops[-1]
    held = [share for share in key.shares if share.label[-1].place == 1]
    senders = {share.label[-2:-1] for share in held}
    frames = [encode_shares([s for s in held if s.label[-2:-1] == sender]) for sender in senders]

    def work() -> list[bytes]:
        shares = [share for frame in frames for share in decode_shares(frame)]
        splits = [resplit(share, key.header.digest, next_hop, bytes(32)) for share in shares]
        return [encode_shares([parts[place] for parts in splits]) for place in range(N)]

    return work


def _passing_wraps(way: Way) -> Callable[[], object]:
    at = len(way.counts) - 2
    hops, own, next_hop = way.hops[: at + 1], way.place(at, 1), way.hops[at + 1]
    before = {hop.region for hop in way.hops[1 : at - 1]}
    told = []
    for sender in range(1, N + 1):
        place = way.place(at - 1, sender)
        wraps = [w for w in way.wraps if w.name.owner.region in before or w.name.owner == place]
        told.append((place, encode_shares([way.values[at][sender, 1]]), _frame(way, wraps)))

    def work() -> list[bytes | None]:
        key, shares = WrappedKey(way.header, hops, own), dict[Label, Share]()
        for place, shares_told, wraps_told in told:
            shares |= {share.label: share for share in decode_shares(shares_told)}
            _, wraps = decode_wraps(wraps_told)
            check_wraps(wraps, hops, place)
            key.others.take_wraps(wraps, place)
        seed = way.replica_seed(at, 1)
        parts = split_wrap_key(key.wrap_key_share(seed), way.header.digest, next_hop, seed)
        came = [*shares, *key.others.believed]
        return [frame for part in parts for frame in (encode_shares([part]), key.frame(came, shares, seed))]

    return work


def _frame(way: Way, wraps: list[Wrap]) -> bytes:
    return encode_wraps(way.header.key_id, way.hops, wraps)


def opening(count: int) -> Callable[[], object]:
    """A reader of the last region: what it does for a key."""
    if not is_long(count):
        key = made(*[N] * count)
        frames = [encode_shares([s for s in key.shares if s.label[-1].place == place]) for place in range(1, N + 1)]

        def work() -> None:
            search = ColumnSearch(key.hops, key.accept_level1, key.accept_secret)
            for frame in frames:
                search.add_shares(decode_shares(frame))
                if search.search(EVERYTHING, {}) is not None:
                    return
            raise AssertionError("an honest key does not open")

        return work
    way = Way((N,) * count)
    wraps_told = _frame(way, way.wraps)
    told = [encode_shares([s for s in way.told if s.label[-1].place == place]) for place in range(1, N + 1)]

    def unwrap() -> None:
        search, wraps = way.search(), Wraps(2)
        for place, frame in enumerate(told, 1):
            search.add_shares(decode_shares(frame))
            _, said = decode_wraps(wraps_told)
            check_wraps(said, way.hops, way.place(count - 1, place))
            search.add_wraps(wraps.take_wraps(said, way.place(count - 1, place)).believed)
            if search.search(EVERYTHING, {}) is not None:
                return
        raise AssertionError("an honest key does not open")

    return unwrap


def main() -> None:
    """Print the table, for a key and for each of 64 publications under it."""
    print(f"{'regions':>7}{'bytes a key':>14}{'a message':>12}{'shares alone':>15}{'replica us':>12}{'reader us':>11}")
    for cost in costs():
        replica = "-" if cost.replica_us is None else f"{cost.replica_us:.0f}"
        each = cost.total_bytes / MESSAGES
        print(
            f"{cost.regions:>7}{cost.total_bytes:>14,}{each:>12,.0f}{cost.unwrapped_bytes:>15,}"
            f"{replica:>12}{cost.reader_us:>11.0f}"
        )


if __name__ == "__main__":
    main()
