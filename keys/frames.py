"""Canonical binary frames: the primitives for writing and reading every frame of VeilMQ.

All hashed, signed or sealed bytes are such frames: version byte, kind byte, flags byte,
then fields in fixed order, integers big-endian, strings and byte strings behind 16-bit lengths. A reader is
strict: unknown version, kind or flag, a missing or a trailing byte, or invalid UTF-8 is `BadFrame`. Hence
a value has exactly one encoding, and two parties that hash equal values hash equal bytes.

Not here: the fields of each frame (`sharetree`, `wrapping`, `envelope` and the modules that it imports, `identity`,
`grants`, `handover`, `requests`, `material`, `archive`, `ownword`; `bridge` for kinds 7 to 10, 15, 21, 34 to 36 and
39 to 44 and 46 to 48).
"""

from __future__ import annotations

import base64
import binascii
from enum import IntEnum

from keys.errors import BadFrame, OurFault

PROTOCOL_VERSION = 1
PROPERTY_HEADER = "vmq"
PROPERTY_KEY = "vmq-key"
PROPERTY_SHARES = "vmq-shares"
PROPERTY_WRAPS = "vmq-wraps"
PROPERTY_LENGTH_LIMIT = 65_535  # an MQTT string cannot be longer (MQTT 5.0 §1.5.4)
TEXT_BYTES_LIMIT = 65_535  # a field has a length of two bytes


class Kind(IntEnum):
    """The second byte of a frame: bytes of one kind can never be taken for another kind."""

    SHARES = 1
    KEY_HEADER = 2
    MESSAGE_HEADER = 3
    CERTIFICATE = 6
    VIEW = 7
    POLICY = 8
    SCOPE = 9
    STATEMENT = 10
    GRANT = 11
    SEALED_GRANT = 12
    KEY_REQUEST = 13
    KEY_ANSWER = 14
    OVERLAY_OFFER = 15
    KEY_OUTPUTS = 16
    KEY_ARCHIVE = 17
    KEY_MATERIAL = 18
    GROUP_LEASE = 19
    PULL = 20
    ENDORSEMENT = 21
    OWN_WORD = 22
    ADVERTISEMENT = 24
    TOKEN = 25
    TRACE = 26
    TRACE_KEY = 27
    REGISTRATION = 28
    REGISTERED = 29
    TRACE_SESSION = 30
    INTEREST = 31
    DISCOVERY = 32
    SUMMARY = 34
    INTEREST_FILTER = 35
    SHOWN = 36
    KNOCK = 37
    RESUMED = 38
    SWAP = 39
    SWAP_ENDORSEMENT = 40
    SWAP_NEWS = 41
    PRESENCE = 42
    HISTORY_REQUEST = 43
    HISTORY_PAGE = 44
    WRAPS = 45
    RECEIPT = 46
    FAR_REQUEST = 47
    FAR_PAGE = 48


def opening(kind: Kind, flags: int = 0) -> bytes:
    """Returns the three bytes that every frame starts with."""
    return bytes((PROTOCOL_VERSION, kind, flags))


def number(value: int, size: int) -> bytes:
    """Returns `value` as `size` big-endian bytes. Raises `OurFault` if it does not fit."""
    try:
        return value.to_bytes(size)
    except OverflowError:
        raise OurFault(f"{value} does not fit an unsigned field of {8 * size} bits") from None


def sized(data: bytes) -> bytes:
    """Returns `data` behind its 16-bit length. Raises `OurFault` above 65,535 bytes."""
    if len(data) > TEXT_BYTES_LIMIT:
        raise OurFault(f"{len(data)} bytes do not fit a field of {TEXT_BYTES_LIMIT}")
    return len(data).to_bytes(2) + data


def text(value: str) -> bytes:
    """Returns `value` as UTF-8 behind its 16-bit length. Raises `OurFault` if it cannot be encoded."""
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise OurFault("a string has characters (lone surrogates) that UTF-8 cannot encode") from None
    return len(data).to_bytes(2) + data if len(data) <= TEXT_BYTES_LIMIT else sized(data)


class Reader:
    """A reader of a frame from front to back; every method raises `BadFrame` when the bytes do not allow it."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def opening(self, kind: Kind, known_flags: int = 0) -> int:
        """Reads version, kind and flags; returns the flags, all of which lie inside `known_flags`."""
        version, found, flags = self.take_bytes(3)
        if version != PROTOCOL_VERSION:
            raise BadFrame(f"protocol version {version} is not supported")
        if found != kind:
            raise BadFrame(f"a frame of kind {found} where {kind.name} was expected")
        unknown = flags & ~int(known_flags)  # of an IntFlag, ~ is only what a byte's next bit holds
        if unknown:
            raise BadFrame(f"unknown critical flags {unknown:#04x}")
        return flags

    def take_bytes(self, size: int) -> bytes:
        """Returns the next `size` bytes."""
        end = self._at + size
        part = self._data[self._at : end]
        if len(part) != size:
            raise BadFrame(f"the frame ends at byte {len(self._data)}, {end} are needed")
        self._at = end
        return part

    def number(self, size: int) -> int:
        """Returns the next `size` bytes as an unsigned integer."""
        return int.from_bytes(self.take_bytes(size))

    def sized(self) -> bytes:
        """Returns a byte string behind its 16-bit length."""
        return self.take_bytes(self.number(2))

    def text(self) -> str:
        """Returns a UTF-8 string behind its 16-bit length."""
        try:
            return self.sized().decode()
        except UnicodeDecodeError:
            raise BadFrame("a string is not UTF-8") from None

    @property
    def position(self) -> int:
        """The number of bytes read so far."""
        return self._at

    def take_rest(self) -> bytes:
        """Returns all bytes that are left."""
        part = self._data[self._at :]
        self._at = len(self._data)
        return part

    def expect_end(self) -> None:
        """Raises `BadFrame` if bytes are left."""
        if self._at != len(self._data):
            raise BadFrame(f"{len(self._data) - self._at} trailing bytes")


def to_property(data: bytes) -> str:
    """Returns a frame as the value of an MQTT user property: unpadded base64url (RFC 4648 §5). Raises `OurFault` if too
    long.
    """
    value = binascii.b2a_base64(data, newline=False).rstrip(b"=").translate(_TO_URLSAFE).decode("ascii")
    if len(value) > PROPERTY_LENGTH_LIMIT:
        raise OurFault(f"a frame of {len(data)} bytes does not fit a user property")
    return value


def from_property(value: str) -> bytes:
    """Returns the frame behind a user property; strict, so that one frame has a single spelling. Raises `BadFrame`."""
    if len(value) > PROPERTY_LENGTH_LIMIT:
        raise BadFrame("a user property longer than MQTT allows")
    try:
        text = value.encode("ascii").translate(_TO_STANDARD)
        data = binascii.a2b_base64(text + b"=" * (-len(text) % 4), strict_mode=True)
    except (UnicodeEncodeError, binascii.Error):
        raise BadFrame("a user property is not unpadded base64url") from None
    # Bits of the last character that belong to no byte are zero: otherwise one frame would have many spellings.
    if len(text) % 4 and value[-1] not in _LAST[len(text) % 4]:
        raise BadFrame("a user property is not canonical base64url")
    return data


def to_base64(data: bytes) -> str:
    """Returns bytes as a field of a JSON document: base64 with padding (RFC 4648 §4)."""
    return base64.b64encode(data).decode("ascii")


def of_base64(text: str) -> bytes:
    """Returns the bytes of a field. Raises ValueError for other characters and wrong padding, TypeError for no text."""
    return base64.b64decode(text, validate=True)


_TO_STANDARD = bytes.maketrans(b"-_+/=", b"+/!!!")
_TO_URLSAFE = bytes.maketrans(b"+/", b"-_")
"""base64url as `binascii` reads it; characters of the standard alphabet alone become an invalid one."""
_LAST = {1: "", 2: "AQgw", 3: "AEIMQUYcgkosw048"}
"""The characters that may stand last, by length modulo 4."""
