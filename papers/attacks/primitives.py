"""Table 1 of the EventGuard paper: the speed of the cryptographic primitives, theirs and ours, by a clock from outside.

Where it used MD5, HMAC-MD5, AES-128-CBC and ElGamal of 512 bits, VeilMQ uses SHA-256, HMAC-SHA-256, AES-256-GCM and
Ed25519. Ours are called as the product calls them. Paper item E2.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from functools import partial
from statistics import median

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from keys.identity import Identity, verify
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series

ROUNDS = 21
CALLS = 50
SMALL_BYTES, LARGE_BYTES = 16, 1_024
PAPER = {
    ("hash", SMALL_BYTES): 2.0, ("hash", LARGE_BYTES): 61.0,
    ("keyed hash", SMALL_BYTES): 1.5, ("keyed hash", LARGE_BYTES): 49.0,
    ("encryption", LARGE_BYTES): 10.0, ("sign", 0): 714.0, ("verify", 0): 588.0,
}  # fmt: skip
"""The paper's numbers, by primitive and bytes of a block: MB/s; of a signature: a second."""
OURS = {
    "hash": "SHA-256", "keyed hash": "HMAC-SHA-256", "encryption": "AES-256-GCM", "sign": "Ed25519", "verify": "Ed25519"
}  # fmt: skip
THEIRS = {
    "hash": "MD5", "keyed hash": "HMAC-MD5", "encryption": "AES-128-CBC", "sign": "ElGamal 512",
    "verify": "ElGamal 512",
}  # fmt: skip


def figure_primitives(
    seed: int, progress: Progress, *, clock: Callable[[], float], rounds: int = ROUNDS, calls: int = CALLS
) -> Figure:
    """Measures the table. `clock`: seconds."""
    work = _work(Draws("primitives", seed))
    rows = []
    for done, ((primitive, size), paper) in enumerate(PAPER.items(), 1):
        a_second = 1 / median(_call_s(work[primitive, size], clock, calls) for _ in range(rounds))
        ours = a_second * size / 1e6 if size else a_second
        unit = f"MB/s of {size} bytes" if size else "a second"
        rows.append((primitive, OURS[primitive], THEIRS[primitive], unit, ours, paper))
        progress(done / len(PAPER))
    xs = tuple(map(float, range(len(rows))))
    return Figure(
        experiment="eventguard",
        number="table-1",
        title=f"How fast the primitives are, median of {rounds} rounds",
        x_label="row of the table",
        y_label="MB/s, or signatures a second",
        series=(Series("ours", xs, tuple(row[4] for row in rows)), Series("paper", xs, tuple(row[5] for row in rows))),
        columns=("primitive", "here", "in the paper", "unit", "ours", "paper"),
        rows=tuple(rows),
        notes=(
            "Paper: Java 1.5 on a Pentium III of 900 MHz. Ours: Python calling OpenSSL on this machine; what a call "
            "costs by itself is in it, so small blocks are far from what the processor could do.",
            "An Ed25519 signature costs less to make than to verify; with ElGamal of 512 bits it was about the same.",
        ),
        log_y=True,
    )


def _work(draws: Draws) -> dict[tuple[str, int], Callable[[], object]]:
    key = draws.randbytes(32)
    blocks = {size: draws.randbytes(size) for size in (SMALL_BYTES, LARGE_BYTES)}
    cipher, identity = AESGCM(key), Identity.generate(draws.randbytes(32))
    nonces = iter(range(1 << 63))
    signature, public = identity.sign("table", blocks[LARGE_BYTES]), identity.public_bytes
    work: dict[tuple[str, int], Callable[[], object]] = {}
    for size, block in blocks.items():
        work["hash", size] = partial(_hash, block)
        work["keyed hash", size] = partial(hmac.digest, key, block, "sha256")
    work["encryption", LARGE_BYTES] = lambda: cipher.encrypt(next(nonces).to_bytes(12), blocks[LARGE_BYTES], None)
    work["sign", 0] = lambda: identity.sign("table", blocks[LARGE_BYTES])
    work["verify", 0] = lambda: verify(public, "table", blocks[LARGE_BYTES], signature)
    return work


def _hash(block: bytes) -> bytes:
    return hashlib.sha256(block).digest()


def _call_s(work: Callable[[], object], clock: Callable[[], float], calls: int) -> float:
    start = clock()
    for _ in range(calls):
        work()
    return (clock() - start) / calls
