"""Password hashes as Mosquitto writes them, so that one file serves both brokers. No I/O.

    $7$ITERATIONS$SALT$HASH    PBKDF2 with HMAC-SHA-512; made here, and by Mosquitto 2
    $6$SALT$HASH               SHA-512 of password and salt, once: made by Mosquitto 1; verified, never made

Salt and hash are base64. Not here: the file (`password_file`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable

ITERATIONS = 20_000
"""Iterations of a new hash: about 10 ms of one core for a login. A thief of the file could try passwords under
Mosquitto's 101 a hundred times as fast.
"""
ITERATIONS_MAX = 10_000_000
"""Stops a line of the file from holding up a broker for minutes at each login."""
SALT_BYTES = 16
HASH_BYTES = 64
TEXT_MAX = 1024  # characters of a hash in a file


class HashError(ValueError):
    """An error of a hash in an unknown form; the message does not quote it."""


def make_hash(password: bytes, random: Callable[[int], bytes], iterations: int = ITERATIONS) -> str:
    """Returns a hash of a password.

    `random(n)`: n random bytes. Raises HashError for a forbidden number of iterations.
    """
    if not 1 <= iterations <= ITERATIONS_MAX:
        raise HashError(f"{iterations} iterations are not between 1 and {ITERATIONS_MAX}")
    salt = random(SALT_BYTES)
    digest = hashlib.pbkdf2_hmac("sha512", password, salt, iterations, HASH_BYTES)
    return f"$7${iterations}${_text(salt)}${_text(digest)}"


def is_known(hashed: str) -> bool:
    """Returns True if the text has a known form, `$7$` or `$6$`."""
    try:
        _parts(hashed)
    except HashError:
        return False
    return True


def verify(password: bytes, hashed: str) -> bool:
    """Returns True if the hash is the password's, in a time independent of the similarity. Raises HashError."""
    iterations, salt, expected = _parts(hashed)
    if iterations == 0:
        found = hashlib.sha512(password + salt).digest()
    else:
        found = hashlib.pbkdf2_hmac("sha512", password, salt, iterations, len(expected))
    return hmac.compare_digest(found, expected)


def _parts(hashed: str) -> tuple[int, bytes, bytes]:
    """Returns iterations (0: once, without PBKDF2), salt, hash."""
    if len(hashed) > TEXT_MAX:
        raise HashError("longer than any password hash")
    kind, *fields = hashed.split("$")[1:] or [""]
    if kind == "7" and len(fields) == 3 and fields[0].isascii() and fields[0].isdigit():
        iterations = int(fields[0])
        if not 1 <= iterations <= ITERATIONS_MAX:
            raise HashError(f"{iterations} iterations are not between 1 and {ITERATIONS_MAX}")
    elif kind == "6" and len(fields) == 2:
        iterations = 0
    else:
        raise HashError("no hash of the forms $7$ or $6$")
    try:
        salt, expected = (base64.b64decode(field, validate=True) for field in fields[-2:])
    except (binascii.Error, ValueError):
        raise HashError("salt or hash is not base64") from None
    if len(expected) != HASH_BYTES or not hashed.startswith("$"):
        raise HashError(f"hash is not of {HASH_BYTES} bytes")
    return iterations, salt, expected


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
