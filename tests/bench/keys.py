"""Medians of what `keys` costs: `python -m tests.bench.keys [--json]`.

With --json one object a line: bench, work, ours, peer, peer_name, ratio, unit; ratio is ours / peer, below 1 is faster.
Sharing has no peer: the one Python library with a maintained Shamir (pycryptodome) is not installed, and a
textbook version written here would only flatter us.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from keys import shamir
from keys.envelope import HeaderVerifier, SignedHeader, leaf, make_key, open_key, sign_batch
from keys.sharetree import Hop, recombine
from tests.keys.helpers import PUBLISHER, SCOPE_KEY, made, message_header

ROUNDS = 15
ROUND_S = 0.01
NO_PEER = "none (pycryptodome is not installed)"
TOPIC = "plant/line/speed"


@dataclass(frozen=True)
class Row:
    """One line of the table, microseconds a call."""

    work: str
    ours_us: float
    peer_us: float | None = None
    peer_name: str = NO_PEER


def median_us(work: Callable[[], object]) -> float:
    """The median over `ROUNDS` rounds of the time of one call, in microseconds."""
    calls, spent_s = 1, 0.0
    while spent_s < ROUND_S:
        calls *= 2
        spent_s = _round_s(work, calls)
    return statistics.median(_round_s(work, calls) for _ in range(ROUNDS)) / calls * 1e6


def _round_s(work: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        work()
    return time.perf_counter() - start


def sharing() -> list[Row]:
    """Split and combine of a 32-byte secret, and recombination of a whole tree."""
    rows = []
    for threshold, count in ((2, 3), (3, 5), (5, 9)):
        secret, coefficients = os.urandom(32), os.urandom(32 * (threshold - 1))
        shares = shamir.split(secret, threshold, count, coefficients)
        chosen = {x: shares[x - 1] for x in range(1, threshold + 1)}
        name = f"32 B ({threshold},{count})"
        rows.append(
            Row(f"split {name}", median_us(lambda: shamir.split(secret, threshold, count, coefficients)))  # noqa: B023
        )
        rows.append(Row(f"combine {name}", median_us(lambda: shamir.combine(chosen))))  # noqa: B023
    for counts in ((3,), (3, 3), (5, 5), (3, 3, 3)):
        key = made(*counts)
        cost = median_us(
            lambda: recombine(key.shares, key.hops, key.accept_level1, key.accept_secret)  # noqa: B023
        )
        rows.append(Row(f"recombine and check, regions of {'-'.join(map(str, counts))}", cost))
    return rows


def sealing() -> list[Row]:
    """256 bytes under a data key, against AES-GCM of `cryptography` with a kept key and the same associated data."""
    hops = (Hop(1, 1, 2, 3),)
    header, key, _ = make_key(PUBLISHER, "s", 0, hops, 0, 1 << 31, SCOPE_KEY, bytes)
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


def headers() -> list[Row]:
    """Verification of a message header alone and in batches, against one bare Ed25519 verification each."""
    made_headers = [message_header(bytes(15) + b"\1", 1000 + index) for index in range(16)]
    proofs = sign_batch(PUBLISHER, [leaf(header.encode(), TOPIC) for header in made_headers])
    batch = [SignedHeader(header, proof) for header, proof in zip(made_headers, proofs, strict=True)]
    public = Ed25519PublicKey.from_public_bytes(PUBLISHER.public_bytes)
    data = made_headers[0].encode()
    signature = PUBLISHER._private.sign(data)
    peer = median_us(lambda: public.verify(signature, data))
    frame = batch[0].encode()

    def whole_batch() -> None:
        verifier = HeaderVerifier()
        for signed in batch:
            verifier.verify(signed, TOPIC, PUBLISHER.public_bytes)

    name = "Ed25519 of cryptography, one a header"
    alone = median_us(lambda: HeaderVerifier().verify(batch[0], TOPIC, PUBLISHER.public_bytes))
    return [
        Row("verify a header alone", alone, peer, name),
        Row("verify a header of a batch of 16", median_us(whole_batch) / 16, peer, name),
        Row("decode a signed header", median_us(lambda: SignedHeader.decode(frame)), None, "none"),
    ]


def main() -> None:
    """Print the table, or JSON lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    as_json = parser.parse_args().json
    if not as_json:
        print(f"{'work':<40}{'ours us':>10}{'peer us':>10}{'ratio':>8}  peer")
    for row in (*sharing(), *sealing(), *headers()):
        ratio = None if row.peer_us is None else row.ours_us / row.peer_us
        if as_json:
            fields = {
                "bench": "keys",
                "work": row.work,
                "ours": round(row.ours_us, 3),
                "peer": None if row.peer_us is None else round(row.peer_us, 3),
                "peer_name": row.peer_name,
                "ratio": None if ratio is None else round(ratio, 3),
                "unit": "us",
            }
            print(json.dumps(fields))
        else:
            peer, times = ("-", "-") if ratio is None else (f"{row.peer_us:.2f}", f"{ratio:.2f}")
            print(f"{row.work:<40}{row.ours_us:>10.2f}{peer:>10}{times:>8}  {row.peer_name}")


if __name__ == "__main__":
    main()
