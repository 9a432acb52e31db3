"""Headers of the PROXY protocol: examples by the specification, and everything else refused."""

from __future__ import annotations

import struct

import pytest

from gateway.listening.proxy_header import (
    V1_BYTES_MAX,
    V2_BYTES_MAX,
    V2_PREFIX,
    ProxyHeader,
    ProxyHeaderError,
    parse_proxy_header,
)

FOUR = bytes([192, 0, 2, 7, 198, 51, 100, 1]) + struct.pack(">HH", 40_000, 1883)
SIX = bytes.fromhex("20010db8" + "00" * 11 + "07") * 2 + struct.pack(">HH", 40_001, 1883)


def version_2(command: int, family: int, rest: bytes, length: int | None = None) -> bytes:
    return V2_PREFIX + struct.pack(">BBH", command, family, len(rest) if length is None else length) + rest


GOOD = [
    (b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 1883\r\n", ("192.0.2.7", 40_000)),
    (b"PROXY TCP6 2001:db8::7 2001:db8::1 40001 1883\r\n", ("2001:db8::7", 40_001)),
    (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", ("255.255.255.255", 65_535)),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::1 ffff::1 65535 65535\r\n", None),
    (version_2(0x21, 0x11, FOUR), ("192.0.2.7", 40_000)),
    (version_2(0x21, 0x21, SIX), ("2001:db8::7", 40_001)),
    (version_2(0x21, 0x11, FOUR + b"\x04\0\1x"), ("192.0.2.7", 40_000)),
    (version_2(0x21, 0x00, b""), None),
    (version_2(0x20, 0x00, b""), None),
    (version_2(0x20, 0x11, FOUR), None),
    (version_2(0x21, 0x11, FOUR + bytes(V2_BYTES_MAX - 16 - len(FOUR))), ("192.0.2.7", 40_000)),
]
BAD = [
    b"\x10\x0c\0\4MQTT\4\2\0<\0\0",
    b"GET / HTTP/1.1\r\n",
    b"PROXX TCP4 192.0.2.7 198.51.100.1 40000 1883\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 40000\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 1883 1\r\n",
    b"PROXY TCP4  192.0.2.7 198.51.100.1 40000 1883\r\n",
    b"PROXY TCP4 2001:db8::7 2001:db8::1 40000 1883\r\n",
    b"PROXY TCP6 192.0.2.7 198.51.100.1 40000 1883\r\n",
    b"PROXY TCP6 fe80::1%eth0 fe80::2 40000 1883\r\n",
    b"PROXY UDP4 192.0.2.7 198.51.100.1 40000 1883\r\n",
    b"PROXY TCP4 192.0.2.999 198.51.100.1 40000 1883\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 1883\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 040000 1883\r\n",
    b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 1883\r\n",
    b"PROXY TCP4 \xff 198.51.100.1 1 1883\r\n",
    b"PROXY UNKNOWN " + b"x" * V1_BYTES_MAX,
    version_2(0x11, 0x11, FOUR),
    version_2(0x22, 0x11, FOUR),
    version_2(0x21, 0x12, FOUR),
    version_2(0x21, 0x31, bytes(216)),
    version_2(0x21, 0x11, FOUR[:-1]),
    version_2(0x21, 0x21, FOUR),
    version_2(0x21, 0x11, b"", V2_BYTES_MAX - 15),
]


@pytest.mark.parametrize(("data", "client"), GOOD)
def test_a_header_names_the_client_and_ends_where_it_ends(data: bytes, client: tuple[str, int] | None) -> None:
    expected = ProxyHeader(len(data), client)
    assert parse_proxy_header(data) == expected
    assert parse_proxy_header(data + b"\x16\x03\x01") == expected
    for length in range(1, len(data)):
        assert parse_proxy_header(data[:length]) is None, length


@pytest.mark.parametrize("data", BAD)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        parse_proxy_header(data)


def test_no_header_is_waited_for_beyond_its_bound() -> None:
    """Bytes of a header that never ends are refused, not collected."""
    with pytest.raises(ProxyHeaderError, match="longer than 107 bytes"):
        parse_proxy_header(b"PROXY UNKNOWN".ljust(V1_BYTES_MAX, b"x"))
    assert parse_proxy_header(b"PROXY UNKNOWN".ljust(V1_BYTES_MAX - 1, b"x")) is None
