"""SCRAM-SHA-256, the server's side: a client proves its password without sending it, and the server does not store it.

    exchange = ScramServer(lookup, nonce)         # one exchange; `nonce` is fresh randomness
    challenge = exchange.first(client_first)      # server-first-message
    answer = exchange.final(client_final)         # server-final-message; `exchange.username` is proven now

No I/O, clock or randomness of its own. An unknown user is treated as a user with a wrong password: `Decoys` gives
salt and iterations that are constant for a name. Channel binding is not offered, so SCRAM-...-PLUS is another method
and `p=` is refused. Login rules and storage of credentials: `enhanced_auth.py`. Source: RFC 5802, RFC 7677; SASLprep:
RFC 4013.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import stringprep
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field

METHOD = "SCRAM-SHA-256"
ITERATIONS_MIN = 4_096
"""RFC 7677 §4; fewer make a stolen file too easy to search."""
ITERATIONS_MAX = 10_000_000
"""Stops a file from keeping clients busy for minutes by mistake."""
NONCE_BYTES = 18
SALT_BYTES = 16
MESSAGE_BYTES_MAX = 4_096
"""Bound of a message from an unauthenticated client, with bounds of its nonce and its name."""
NONCE_CHARACTERS_MAX = 512  # of a client that nobody knows yet
NAME_CHARACTERS_MAX = 512  # the same

_VERIFIER = re.compile(r"SCRAM-SHA-256\$(\d{1,8}):([^$]+)\$([^:]+):(.+)")
# Optional extensions may follow; they are signed and ignored. Mandatory extensions (`m=` before the name)
# match nowhere.
_EXTENSIONS = r"(?:,[a-zA-Z]=[^,]+)*"
_FIRST = re.compile(
    r"(?P<gs2>(?P<binding>n|y|p=[^,]*),(?:a=(?P<authzid>[^,]+))?,)n=(?P<name>[^,]*),r=(?P<nonce>[^,]+)" + _EXTENSIONS
)
_FINAL = re.compile(rf"(?P<bare>c=(?P<binding>[^,]*),r=(?P<nonce>[^,]*){_EXTENSIONS}),p=(?P<proof>[^,]*)")


class ScramError(Exception):
    """A failed proof or a violation of the protocol. The text has nothing an attacker may not read."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """The stored form of a password. A thief of it can pretend to be the server, and search the password."""

    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @classmethod
    def from_password(cls, password: str, salt: bytes, iterations: int) -> Verifier:
        """Makes a verifier from a password with this number of iterations.

        Raises ValueError for an invalid password or number.
        """
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ValueError(f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        salted = hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(), salt, iterations)
        client_key = _mac(salted, b"Client Key")
        return cls(iterations, salt, hashlib.sha256(client_key).digest(), _mac(salted, b"Server Key"))

    @classmethod
    def parse(cls, text: str) -> Verifier:
        """Parses `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`, base64, as PostgreSQL keeps it.

        Raises ValueError.
        """
        match = _VERIFIER.fullmatch(text)
        if match is None:
            raise ValueError("not of the form SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey")
        iterations = int(match[1])
        salt, stored_key, server_key = (_unbase64(match[place]) for place in (2, 3, 4))
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ValueError(f"{iterations} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted")
        if len(stored_key) != 32 or len(server_key) != 32 or not salt:
            raise ValueError("salt or a key has another length than SCRAM-SHA-256 has")
        return cls(iterations, salt, stored_key, server_key)

    def __str__(self) -> str:
        salt, stored, server = (_base64(part) for part in (self.salt, self.stored_key, self.server_key))
        return f"{METHOD}${self.iterations}:{salt}${stored}:{server}"


@dataclass(frozen=True, slots=True)
class Decoys:
    """Verifiers for unknown names, which repeated requests cannot tell from real users' verifiers.

    `key`: 32 secret bytes that outlive restarts. `shapes`: (iterations, salt bytes) of the real users, so that
    neither gives a name away.
    """

    key: bytes = field(repr=False)
    shapes: tuple[tuple[int, int], ...] = ((ITERATIONS_MIN, SALT_BYTES),)

    def verifier(self, username: str) -> Verifier:
        drawn = hashlib.shake_256(_mac(self.key, username.encode())).digest(8 + 64 + 64)
        iterations, salt_bytes = self.shapes[int.from_bytes(drawn[:8]) % len(self.shapes)]
        salt = hashlib.shake_256(drawn[8:72]).digest(salt_bytes)
        return Verifier(iterations, salt, drawn[72:104], drawn[104:136])


class ScramServer:
    """An exchange. `lookup` returns (verifier, is it a real user) for a prepared name; `nonce`: fresh random bytes.

    `first_message` and `final` raise ScramError; after that, or after `final`, the exchange is over.
    """

    def __init__(self, lookup: Callable[[str], tuple[Verifier, bool]], nonce: bytes) -> None:
        if len(nonce) < NONCE_BYTES:
            raise ValueError(f"a nonce of less than {NONCE_BYTES} bytes")
        self._lookup, self._nonce = lookup, _base64(nonce)
        self._claimed = ""
        self._verifier: Verifier | None = None
        self._is_user = False
        self._gs2 = self._signed = ""
        # The proven user name, once `final` has returned.
        self.username: str | None = None

    def first_message(self, message: bytes) -> bytes:
        """Returns the server-first-message for a client-first-message (RFC 5802 §7)."""
        if self._gs2:
            raise ScramError("a second client-first-message")
        text = _text(message)
        match = _FIRST.fullmatch(text)
        if match is None:
            raise ScramError("no client-first-message")
        if match["binding"].startswith("p="):
            raise ScramError("channel binding is not offered")
        nonce, name = match["nonce"], _name(match["name"])
        if len(nonce) > NONCE_CHARACTERS_MAX or not all("!" <= character <= "~" for character in nonce):
            raise ScramError("nonce is too long or not printable")
        if match["authzid"] is not None and _name(match["authzid"]) != name:
            raise ScramError("acting for another user is not offered")
        self._claimed, self._gs2, self._nonce = name, match["gs2"], nonce + self._nonce
        self._verifier, self._is_user = self._lookup(name)
        answer = f"r={self._nonce},s={_base64(self._verifier.salt)},i={self._verifier.iterations}"
        self._signed = f"{text[match.end('gs2') :]},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """Returns the server-final-message for a client-final-message proving the password."""
        verifier, self._verifier = self._verifier, None
        if verifier is None:
            raise ScramError("no exchange is under way")
        match = _FINAL.fullmatch(_text(message))
        if match is None:
            raise ScramError("no client-final-message")
        # The client's copy of its choice must equal ours: otherwise an attacker removed channel binding on the way.
        if not _equal(match["binding"], _base64(self._gs2.encode())):
            raise ScramError("the channel binding header was changed on the way")
        if not _equal(match["nonce"], self._nonce):
            raise ScramError("the nonce is not that of this exchange")
        try:
            proof = _unbase64(match["proof"])
        except ValueError:
            raise ScramError("the proof is not base64") from None
        if len(proof) != 32:
            raise ScramError("the proof is not of this method")
        signed = f"{self._signed},{match['bare']}".encode()
        signature = _mac(verifier.stored_key, signed)
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        is_proven = hmac.compare_digest(hashlib.sha256(client_key).digest(), verifier.stored_key)
        # Not `and`: an unknown name takes the same steps.
        if not (is_proven & self._is_user):
            raise ScramError("wrong user name or password")
        self.username = self._claimed
        return b"v=" + _base64(_mac(verifier.server_key, signed)).encode()


# --------------------------------------------------------------------------------------------- the small parts


def saslprep(text: str) -> str:
    """Returns the canonical form of a name or password (RFC 4013), whatever the keyboard. Raises ValueError."""
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    if not prepared:
        raise ValueError("is empty")
    for character in prepared:
        if any(prohibits(character) for prohibits in _PROHIBITED) or stringprep.in_table_a1(character):
            raise ValueError("holds a character that is not allowed in names and passwords")
    if any(map(stringprep.in_table_d1, prepared)):  # RFC 3454 §6
        ends = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not ends or any(map(stringprep.in_table_d2, prepared)):
            raise ValueError("mixes writing directions")
    return prepared


_PROHIBITED: tuple[Callable[[str], bool], ...] = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def _name(text: str) -> str:
    """Decodes a user name of the wire: `=2C` is a comma, `=3D` an equals sign, any other `=` an error (§5.1)."""
    if len(text) > NAME_CHARACTERS_MAX or re.search("=(?!2C|3D)", text):
        raise ScramError("not a user name")
    try:
        return saslprep(text.replace("=2C", ",").replace("=3D", "="))
    except ValueError:
        raise ScramError("not a user name") from None


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramError("a message that is too long")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message that is not UTF-8") from None
    if "\0" in text:
        raise ScramError("a message with U+0000")
    return text


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
