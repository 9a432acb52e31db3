"""Verifier of SHA-512 crypt (`$6$salt$hash`), which amqtt's password files may hold.

Python 3.13 has no `crypt` any more. Slow by design, and in pure Python: some 10 ms for 5,000 rounds. Never made here:
`password_hashes` hashes new passwords. Source: "Unix crypt using SHA-256 and SHA-512", Ulrich Drepper, version 0.6.
"""

from __future__ import annotations

import hashlib
import hmac
import re

ROUNDS, ROUNDS_MIN, ROUNDS_MAX = 5_000, 1_000, 1_000_000
"""Rounds by default, at least and at most; the maximum is ours: it stops a line from occupying a thread for minutes."""
_FORM = re.compile(r"\$6\$(?:rounds=(\d{1,9})\$)?([^$:\n]{0,16})\$([./0-9A-Za-z]{86})")
_ALPHABET = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DIGEST_BYTES = 64


def is_sha_crypt(hashed: str) -> bool:
    """Returns True for a SHA-512 crypt hash with an acceptable number of rounds."""
    found = _FORM.fullmatch(hashed)
    return found is not None and int(found[1] or ROUNDS) <= ROUNDS_MAX


def verify(password: bytes, hashed: str) -> bool:
    """Returns True if the hash is the password's. Raises ValueError for a text of another form."""
    found = _FORM.fullmatch(hashed)
    if found is None or not is_sha_crypt(hashed):
        raise ValueError("no SHA-512 crypt")
    rounds = max(ROUNDS_MIN, int(found[1] or ROUNDS))
    return hmac.compare_digest(_text(_digest(password, found[2].encode(), rounds)), found[3])


def _repeated(digest: bytes, length: int) -> bytes:
    return (digest * (length // _DIGEST_BYTES + 1))[:length]


def _digest(password: bytes, salt: bytes, rounds: int) -> bytes:
    other = hashlib.sha512(password + salt + password).digest()
    first = hashlib.sha512(password + salt + _repeated(other, len(password)))
    length = len(password)
    while length:
        first.update(other if length & 1 else password)
        length >>= 1
    digest = first.digest()
    p = _repeated(hashlib.sha512(password * len(password)).digest(), len(password))
    s = _repeated(hashlib.sha512(salt * (16 + digest[0])).digest(), len(salt))
    for number in range(rounds):
        parts = [p if number & 1 else digest]
        if number % 3:
            parts.append(s)
        if number % 7:
            parts.append(p)
        parts.append(digest if number & 1 else p)
        digest = hashlib.sha512(b"".join(parts)).digest()
    return digest


def _text(digest: bytes) -> str:
    """Encodes 24 bits at a time, in the order of the reference: 0 21 42, 22 43 1, 44 2 23, ..."""
    found = []
    a, b, c = 0, 21, 42
    for _ in range(21):
        found += _characters(digest[a] << 16 | digest[b] << 8 | digest[c], 4)
        a, b, c = b + 1, c + 1, a + 1
    return "".join(found + _characters(digest[63], 2))


def _characters(bits: int, number: int) -> list[str]:
    return [_ALPHABET[bits >> 6 * place & 63] for place in range(number)]
