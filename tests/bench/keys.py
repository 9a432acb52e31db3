"""Medians of what `keys` costs, beside peers in the same run: `python -m tests.bench.keys [--json]`.

With --json one object a line: bench, work, ours, peer, peer_name, ratio, unit. Times are in us, ratio is ours / peer:
below 1 is faster. Rows in MB/s have no peer. What the ratios must be:

    combine 32 B (3,5)                    <= 0.05 of the fastest library's own recombination
    split 32 B (3,5)                      <= 0.5 of the fastest library, all drawing their randomness
    recombine (3,5)-(3,5)-(3,5), values   <= 0.6 of 25 single combines
    open ..., as replicas send            <= 2 of all shares at once
    seal 256 B, open 256 B                <= 3 of AES-GCM with a kept key

Peers of sharing, all in pure Python: pycryptodome over GF(2^128), which splits 16 bytes, so twice for a key; shamirs
over a prime field, given one that holds 32 bytes; shamir-mnemonic over our field, its raw shares without words and
encryption. Its recombination interpolates twice and compares a digest; the row "interpolation alone" leaves that out
and is no function that it offers.

Recombining "values" is arithmetic, tags and faults of a tree whose shares are sorted into their grid; "search" adds
reading 125 `Share` objects, which costs more than all the arithmetic; "and check" adds the commitments.
"A key over r regions of three": bytes of all frames of one key on all links, and time at a replica and at the reader,
as `tests.bench.ways` says; the peer beyond four regions is shares of shares alone.
"As replicas send": a property of each replica of the last region for each place before it, in any order; "share by
share": each alone, in any order, which no honest replica does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import shamirs
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from shamir_mnemonic import shamir as mnemonic

from bridge.contract.batches import Numbered, packed, unpacked
from bridge.contract.machine import Publication
from keys import reedsolomon, shamir
from keys.columnsearch import ColumnSearch
from keys.envelope import KeyName, SignedHeader, make_key, open_key, sign_header, verify_header
from keys.records import Records, fill
from keys.sealedbox import seal_box
from keys.sharetree import Hop, Share, _Tree
from papers.simulating.simulate import median_us
from tests.bench.ways import costs
from tests.keys.helpers import PUBLISHER, SCOPE_KEY, Made, made, message_header, recombine
from tests.sim.searches import bound, split, worst

EVERYTHING = 1 << 20  # steps
KINDS = ((2, 3), (3, 5), (5, 9), (6, 10))
SINGLES = 25  # the values at depth 2 of three hops of five: what a tree would take one by one, at its last level alone
CODED_BYTES = 1 << 16
BATCH_RECORDS = 100
PRIME = 2**256 + 297  # the least that holds 32 bytes
NO_PEER = "none"
TOPIC = "plant/line/speed"


@dataclass(frozen=True)
class Row:
    """One line of the table, in `unit`."""

    work: str
    ours: float
    peer: float | None = None
    peer_name: str = NO_PEER
    unit: str = "us"


Peer = tuple[str, Callable[[], object]]


def splitting_peers(secret: bytes, threshold: int, count: int) -> list[Peer]:
    """Every library's split of 32 bytes."""
    number = int.from_bytes(secret)
    return [
        ("pycryptodome", lambda: [Shamir.split(threshold, count, half) for half in (secret[:16], secret[16:])]),
        ("shamirs", lambda: shamirs.shares(number, quantity=count, modulus=PRIME, threshold=threshold)),
        ("shamir-mnemonic", lambda: mnemonic._split_secret(threshold, count, secret)),
    ]


def combining_peers(secret: bytes, threshold: int, count: int) -> list[Peer]:
    """Every library's recombination of its own shares; each is seen to give the secret back."""
    halves = [Shamir.split(threshold, count, half)[:threshold] for half in (secret[:16], secret[16:])]
    number = int.from_bytes(secret)
    points = shamirs.shares(number, quantity=count, modulus=PRIME, threshold=threshold)[:threshold]
    raw = mnemonic._split_secret(threshold, count, secret)[:threshold]
    assert b"".join(Shamir.combine(half) for half in halves) == mnemonic._recover_secret(threshold, raw) == secret
    assert shamirs.interpolate(points) == number
    return [
        ("pycryptodome", lambda: [Shamir.combine(half) for half in halves]),
        ("shamirs", lambda: shamirs.interpolate(points)),
        ("shamir-mnemonic", lambda: mnemonic._recover_secret(threshold, raw)),
        ("shamir-mnemonic, interpolation alone", lambda: mnemonic._interpolate(raw, mnemonic.SECRET_INDEX)),
    ]


def sharing() -> Iterator[Row]:
    """Split and combine of a 32-byte secret, beside every peer."""
    for threshold, count in KINDS:
        secret, size = os.urandom(32), 32 * (threshold - 1)
        shares = shamir.split(secret, threshold, count, os.urandom(size))
        chosen = {x: shares[x - 1] for x in range(1, threshold + 1)}
        assert shamir.combine(chosen) == secret
        name = f"32 B ({threshold},{count})"
        split = median_us(lambda: shamir.split(secret, threshold, count, os.urandom(size)))  # noqa: B023
        for peer_name, peer in splitting_peers(secret, threshold, count):
            yield Row(f"split {name}", split, median_us(peer), peer_name)
        combine = median_us(lambda: shamir.combine(chosen))  # noqa: B023
        for peer_name, peer in combining_peers(secret, threshold, count):
            yield Row(f"combine {name}", combine, median_us(peer), peer_name)


def trees() -> Iterator[Row]:
    """Recombination of whole trees, everybody honest."""
    key = made(5, 5, 5)
    tree, places = _Tree(key.shares, key.hops), (1, 2, 3)

    def values_alone() -> bytes:
        tree._memo = {(): tree._memo[()]}
        rows = tree.level1_rows((places, places))
        return shamir.interpolate(places, [rows[place] or b"" for place in places])

    assert values_alone() == key.secret
    secret = os.urandom(32)
    chosen = dict(enumerate(shamir.split(secret, 3, 3, os.urandom(64)), 1))
    singles = SINGLES * median_us(lambda: shamir.combine(chosen))
    search = median_us(lambda: recombine(key.shares, key.hops, lambda *_: True, lambda _: True))
    peer_name, fastest = min(
        ((name, median_us(peer)) for name, peer in combining_peers(secret, 3, 5)[:3]), key=lambda each: each[1]
    )
    name = "recombine (3,5)-(3,5)-(3,5)"
    yield Row(f"{name}, values", median_us(values_alone), singles, f"{SINGLES} x shamir.combine")
    yield Row(f"{name}, search", search, singles, f"{SINGLES} x shamir.combine")
    yield Row(f"{name}, search", search, SINGLES * fastest, f"{SINGLES} x {peer_name}")
    for counts in ((3,), (3, 3), (5, 5), (3, 3, 3), (5, 5, 5)):
        key = made(*counts)
        at_once = median_us(lambda: opened([key.shares], key))  # noqa: B023
        regions = "-".join(map(str, counts))
        yield Row(f"recombine and check, regions of {regions}", at_once)
        if len(counts) > 2:
            for how, wires in (("as replicas send", as_sent(key)), ("share by share", one_by_one(key))):
                cost = median_us(lambda: opened(wires, key))  # noqa: B023
                yield Row(f"open {regions}, {how}", cost, at_once, "all shares at once")


def opened(wires: Sequence[Sequence[Share]], key: Made) -> None:
    """An honest key, its shares coming in these wires."""
    search = ColumnSearch(key.hops, key.accept_level1, key.accept_secret)
    for wire in wires:
        search.add_shares(wire)
        if search.search(EVERYTHING, {}) is not None:
            return
    raise AssertionError("an honest key does not open")


def as_sent(key: Made) -> list[list[Share]]:
    """Each replica of the last region sends what came through one place before it together."""
    together: dict[tuple[int, ...], list[Share]] = {}
    for share in key.shares:
        together.setdefault(share.places[-2:], []).append(share)
    return random.Random(1).sample(list(together.values()), len(together))


def one_by_one(key: Made) -> list[list[Share]]:
    return [[share] for share in random.Random(1).sample(key.shares, len(key.shares))]


def coding() -> Iterator[Row]:
    """Reed-Solomon over 64 KiB: encode, and decode with as many of the first blocks lost as may be."""
    data = os.urandom(CODED_BYTES)
    for total, needed in ((3, 2), (5, 3), (7, 4)):
        blocks = dict(enumerate(reedsolomon.encode(data, needed, total)))
        last = {index: blocks[index] for index in range(total - needed, total)}
        assert reedsolomon.decode(last, needed, total, CODED_BYTES) == data
        encode = median_us(lambda: reedsolomon.encode(data, needed, total))  # noqa: B023
        decode = median_us(lambda: reedsolomon.decode(last, needed, total, CODED_BYTES))  # noqa: B023
        rebuild = median_us(lambda: reedsolomon.rebuild(last, 0, needed, total))  # noqa: B023
        for work, cost, size in (
            ("encode", encode, CODED_BYTES),
            ("decode, first blocks lost", decode, CODED_BYTES),
            ("rebuild one block", rebuild, len(last[total - 1])),
        ):
            yield Row(f"Reed-Solomon ({total},{needed}) 64 KiB: {work}", size / cost, unit="MB/s")


def searching() -> Iterator[Row]:
    """Recombination under attack: the liars are in the first places of each region, so that the last choice fits."""
    for counts in ((5, 5, 5), (5, 5, 5, 5), (5, 7, 7)):
        key = split(counts)
        shares = worst(key)
        took_s, after_s = [], []
        for _ in range(3):
            start = time.perf_counter()
            search = key.search(shares)
            found = search.search(EVERYTHING, {})
            took_s.append(time.perf_counter() - start)
            assert found is not None
            contradicted = search.contradictions(found)
            start = time.perf_counter()
            assert key.search(shares).search(EVERYTHING, contradicted) is not None
            after_s.append(time.perf_counter() - start)
        regions = "-".join(map(str, counts))
        work = f"recombine {regions} where f of each lie"
        yield Row(f"{work}, {search.steps:,} steps of {bound(counts):,} choices", statistics.median(took_s) * 1e6)
        yield Row(f"{work}, the next key", statistics.median(after_s) * 1e6)


def over_ways() -> Iterator[Row]:
    """One data key over 1 to 10 regions of three."""
    for cost in costs():
        name = f"a key over {cost.regions} regions of three"
        peer = cost.unwrapped_bytes / 1000
        yield Row(f"{name}, all frames", cost.total_bytes / 1000, peer, "shares of shares", "kB")
        if cost.replica_us is not None:
            yield Row(f"{name}, passed on by one replica", cost.replica_us)
        yield Row(f"{name}, opened", cost.reader_us)


def sealing() -> list[Row]:
    """256 bytes under a data key, against AES-GCM of `cryptography` with a kept key and the same associated data."""
    hops = (Hop(1, 1, 2, 3),)
    header, key, _ = make_key(PUBLISHER, KeyName("s", 0, 0), hops, 0, 1 << 31, SCOPE_KEY, bytes)
    reader = open_key(header, bytes(32), SCOPE_KEY)
    content, bare, prefix = os.urandom(256), AESGCM(bytes(32)), message_header(header.key_id, 1).prefix()
    head, tail, topic = prefix[:36], prefix[44:], TOPIC.encode()
    sequences, nonces = iter(range(1 << 31)), iter(range(1 << 31))

    def seal() -> bytes:
        sequence = next(sequences)
        return key.seal(head + sequence.to_bytes(8) + tail, sequence, TOPIC, content)

    def bare_seal() -> bytes:
        sequence = next(nonces)
        return bare.encrypt(sequence.to_bytes(12), content, head + sequence.to_bytes(8) + tail + topic)

    name = "AESGCM of cryptography, kept key"
    rows = [Row("seal 256 B", median_us(seal), median_us(bare_seal), name)]
    sealed = key.seal(message_header(header.key_id, 1 << 40).prefix(), 1 << 40, TOPIC, content)
    where = message_header(header.key_id, 1 << 40).prefix()
    bare_sealed = bare.encrypt(bytes(12), content, where)
    opened = median_us(lambda: reader.open(where, 1 << 40, TOPIC, sealed))
    return [*rows, Row("open 256 B", opened, median_us(lambda: bare.decrypt(bytes(12), bare_sealed, where)), name)]


def boxes() -> list[Row]:
    """Boxes with an epoch key, hybrid beside classical, and their sizes."""
    key, ephemeral, info = bytes(32), random.Random(1).randbytes(32), b"bench"
    receivers = (PUBLISHER.hybrid_bytes, PUBLISHER.agreement_bytes)
    sealed = [seal_box(receiver, key, info, ephemeral) for receiver in receivers]
    sealing = [median_us(partial(seal_box, receiver, key, info, ephemeral)) for receiver in receivers]
    opening = [median_us(partial(PUBLISHER.open_box, box, info)) for box in sealed]
    name = "X25519 alone"
    return [
        Row("seal a hybrid box", sealing[0], sealing[1], name),
        Row("open a hybrid box", opening[0], opening[1], name),
        Row("a hybrid box with a key", len(sealed[0]), len(sealed[1]), name, "bytes"),
    ]


def filling() -> list[Row]:
    """What `overlay.padding: 64` costs a lone publication of 20 bytes: filling, sealing and opening."""
    one = Publication(TOPIC, bytes(20), 1, time_ms=1)
    content = packed(TOPIC, [Numbered(1, one)]).payload
    aead, nonce = AESGCM(bytes(32)), bytes(12)

    def sealed_and_read(multiple: int) -> object:
        clear = fill(content, multiple) if multiple else content
        return Records.decode(aead.decrypt(nonce, aead.encrypt(nonce, clear, None), None))

    return [
        Row("fill, seal and read 20 B, to 64", median_us(partial(sealed_and_read, 64)),
            median_us(partial(sealed_and_read, 0)), "not filled"),
        Row("content of 20 B, filled to 64", len(fill(content, 64)), len(content), "not filled", "bytes"),
    ]  # fmt: skip


def batches() -> list[Row]:
    """100 records of 256 bytes on one topic as one batch, each row for one record; the peer of sealing and opening is
    AES-GCM of `cryptography` with a kept key over the same bytes."""
    made_ms = 1_800_000_000_000
    records = [
        Numbered(at, Publication(TOPIC, os.urandom(256), 1, time_ms=made_ms + at)) for at in range(1, BATCH_RECORDS + 1)
    ]
    content = packed("plant/#", records).payload
    header, key, _ = make_key(PUBLISHER, KeyName("s", 0, 0), (Hop(1, 1, 2, 3),), 0, 1 << 31, SCOPE_KEY, bytes)
    reader, bare = open_key(header, bytes(32), SCOPE_KEY), AESGCM(bytes(32))
    sequences, nonces = iter(range(1 << 31)), iter(range(1 << 31))
    prefix = message_header(header.key_id, 1 << 40).prefix()
    sealed, bare_sealed = key.seal(prefix, 1 << 40, TOPIC, content), bare.encrypt(bytes(12), content, prefix)
    name = "AESGCM of cryptography, kept key"
    key = make_key(PUBLISHER, KeyName("s", 0, 0), (Hop(1, 1, 2, 3),), 0, 1 << 31, SCOPE_KEY, bytes)[1]

    def seal() -> bytes:
        sequence = next(sequences)
        return key.seal(prefix[:36] + sequence.to_bytes(8) + prefix[44:], sequence, TOPIC, content)

    works: list[tuple[str, Callable[[], object], Callable[[], object] | None]] = [
        ("put together", lambda: packed("plant/#", records), None),
        ("take apart", lambda: list(unpacked(content, 1)), None),
        (
            "seal",
            seal,
            lambda: bare.encrypt(next(nonces).to_bytes(12), content, prefix),
        ),
        (
            "open",
            lambda: reader.open(prefix, 1 << 40, TOPIC, sealed),
            lambda: bare.decrypt(bytes(12), bare_sealed, prefix),
        ),
    ]
    return [
        Row(
            f"{work} a batch of {BATCH_RECORDS}, one record of 256 B",
            median_us(ours) / BATCH_RECORDS,
            None if peer is None else median_us(peer) / BATCH_RECORDS,
            NO_PEER if peer is None else name,
        )
        for work, ours, peer in works
    ]


def headers() -> list[Row]:
    """Verification of a message header, which is by libsodium, against one bare Ed25519 verification by OpenSSL."""
    header = message_header(bytes(15) + b"\1", 1000)
    frame = sign_header(PUBLISHER, header, TOPIC).encode()
    public = Ed25519PublicKey.from_public_bytes(PUBLISHER.public_bytes)
    signature = PUBLISHER._private.sign(frame)
    peer = median_us(lambda: public.verify(signature, frame))
    ours = median_us(lambda: verify_header(header, frame, TOPIC, PUBLISHER.public_bytes))
    return [
        Row("verify a header", ours, peer, "Ed25519 of OpenSSL (cryptography)"),
        Row("decode a signed header", median_us(lambda: SignedHeader.decode(frame)), None, "none"),
    ]


def main() -> None:
    """Print the table, or JSON lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    as_json = parser.parse_args().json
    if not as_json:
        print(f"{'work':<58}{'ours':>10}{'peer':>10}{'ratio':>8}  {'unit':<5} peer")
    rest = (*boxes(), *filling(), *batches(), *headers())
    for row in (*sharing(), *trees(), *searching(), *over_ways(), *coding(), *sealing(), *rest):
        ratio = None if row.peer is None else row.ours / row.peer
        if as_json:
            fields = {
                "bench": "keys",
                "work": row.work,
                "ours": round(row.ours, 3),
                "peer": None if row.peer is None else round(row.peer, 3),
                "peer_name": row.peer_name,
                "ratio": None if ratio is None else round(ratio, 3),
                "unit": row.unit,
            }
            print(json.dumps(fields))
        else:
            peer, times = ("-", "-") if ratio is None else (f"{row.peer:.2f}", f"{ratio:.3f}")
            print(f"{row.work:<58}{row.ours:>10.2f}{peer:>10}{times:>8}  {row.unit:<5} {row.peer_name}")


if __name__ == "__main__":
    main()
