"""Parser of the PROXY protocol's header, versions 1 and 2, in which a proxy names the client. No I/O.

A proxy writes the header before all other bytes, TLS included. Any other beginning is refused. Source: haproxy.org,
`proxy-protocol.txt`, revision of 2020/03/05, sections 2.1 and 2.2.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

V1_PREFIX = b"PROXY "
V1_BYTES_MAX = 107
"""Bytes of a header of version 1 with its CRLF, by the specification."""
V2_PREFIX = b"\r\n\r\n\0\r\nQUIT\n"
V2_FIXED = struct.Struct(">12sBBH")
V2_BYTES_MAX = 2_048
"""Bytes of a header of version 2 with all additions of a proxy (TLS names, cloud ids). Stops a header of 64 KiB for
each
connection.
"""
_LOCAL, _PROXY = 0x20, 0x21
_UNKNOWN = 0x00
_ADDRESSES = {0x11: (4, IPv4Address), 0x21: (16, IPv6Address)}
"""Length in bytes and type of an address, by the byte of family and transport (both over a stream)."""
_FAMILIES_V1: dict[bytes, type[IPv4Address | IPv6Address]] = {b"TCP4": IPv4Address, b"TCP6": IPv6Address}


class ProxyHeaderError(Exception):
    """An error of a header that is not one of the PROXY protocol; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A PROXY header.

    `length`: in bytes. `client`: address and port, or None if the proxy connects for itself, as in health checks.
    """

    length: int
    client: tuple[str, int] | None


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """Returns the header at the beginning of `data`, or None if more bytes are needed. Raises ProxyHeaderError."""
    if data[:1] == b"P":
        return _version_1(data)
    if data.startswith((V2_PREFIX[: len(data)], V2_PREFIX)):
        return _version_2(data)
    raise ProxyHeaderError("begins with no header of the PROXY protocol")


def _version_1(data: bytes) -> ProxyHeader | None:
    if not data.startswith((V1_PREFIX[: len(data)], V1_PREFIX)):
        raise ProxyHeaderError("begins with no header of the PROXY protocol")
    end = data.find(b"\r\n", 0, V1_BYTES_MAX)
    if end < 0:
        if len(data) >= V1_BYTES_MAX:
            raise ProxyHeaderError(f"its header is longer than {V1_BYTES_MAX} bytes")
        return None
    words = data[len(V1_PREFIX) : end].split(b" ")
    if words[0] == b"UNKNOWN":
        return ProxyHeader(end + 2, None)
    kind = _FAMILIES_V1.get(words[0])
    if kind is None or len(words) != 5:
        raise ProxyHeaderError("its header names no TCP connection")
    source, _ = _address(kind, words[1]), _address(kind, words[2])
    port, _ = _port(words[3]), _port(words[4])
    return ProxyHeader(end + 2, (source, port))


def _address(kind: type[IPv4Address | IPv6Address], word: bytes) -> str:
    try:
        address = ip_address(word.decode("ascii"))
    except ValueError:
        raise ProxyHeaderError("its header holds what is no IP address") from None
    if not isinstance(address, kind) or "%" in str(address):
        raise ProxyHeaderError("its header holds an address of another family")
    return str(address)


def _port(word: bytes) -> int:
    if not word.isdigit() or len(word) > 5 or (len(word) > 1 and word[:1] == b"0") or int(word) > 65_535:
        raise ProxyHeaderError("its header holds what is no port")
    return int(word)


def _version_2(data: bytes) -> ProxyHeader | None:
    if len(data) < V2_FIXED.size:
        return None
    _, command, family, count = V2_FIXED.unpack_from(data)
    if command not in (_LOCAL, _PROXY):
        raise ProxyHeaderError("its header has an unknown version or command")
    length = V2_FIXED.size + count
    if length > V2_BYTES_MAX:
        raise ProxyHeaderError(f"its header is longer than {V2_BYTES_MAX} bytes")
    if command == _PROXY and family != _UNKNOWN and family not in _ADDRESSES:
        raise ProxyHeaderError("its header names no TCP connection")
    if len(data) < length:
        return None
    if command == _LOCAL or family == _UNKNOWN:
        return ProxyHeader(length, None)
    size, kind = _ADDRESSES[family]
    if count < 2 * size + 4:
        raise ProxyHeaderError("its header is too short for its addresses")
    source = kind(data[V2_FIXED.size : V2_FIXED.size + size])
    (port,) = struct.unpack_from(">H", data, V2_FIXED.size + 2 * size)
    return ProxyHeader(length, (str(source), port))
