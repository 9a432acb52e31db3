"""Bytes in front of a connection: a header, more needed, or refused; nothing else, and never more than its bound."""

from __future__ import annotations

import struct
from ipaddress import ip_address

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.listening.proxy_header import V1_BYTES_MAX, V2_BYTES_MAX, V2_PREFIX, ProxyHeaderError, parse_proxy_header

PORTS = st.integers(0, 65_535)


def parsed(data: bytes) -> object:
    try:
        return parse_proxy_header(data)
    except ProxyHeaderError as error:
        return str(error)


@given(st.one_of(
    st.binary(min_size=1, max_size=300),
    st.binary(max_size=200).map(lambda rest: b"PROXY TCP4 " + rest),
    st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 65_535), st.binary(max_size=300)).map(
        lambda parts: V2_PREFIX + struct.pack(">BBH", *parts[:3]) + parts[3]
    ),
))  # fmt: skip
@example(V2_PREFIX)
def test_any_bytes_are_a_header_or_refused_and_one_at_a_time_says_the_same(data: bytes) -> None:
    whole = parsed(data)
    said = next((answer for n in range(1, len(data) + 1) if (answer := parsed(data[:n])) is not None), None)
    assert said == whole
    assert whole is not None or len(data) < max(V1_BYTES_MAX, V2_BYTES_MAX)


@given(st.ip_addresses(v=4), st.ip_addresses(v=6), PORTS, st.booleans(), st.binary(max_size=100))
def test_what_a_proxy_writes_is_read(four: object, six: object, port: int, is_six: bool, more: bytes) -> None:
    address = six if is_six else four
    text = f"PROXY {'TCP6' if is_six else 'TCP4'} {address} {address} {port} 1883\r\n".encode()
    packed = ip_address(str(address)).packed
    rest = packed * 2 + struct.pack(">HH", port, 1883) + more
    binary = V2_PREFIX + struct.pack(">BBH", 0x21, 0x21 if is_six else 0x11, len(rest)) + rest
    for header in (text, binary):
        found = parse_proxy_header(header + b"next")
        assert found is not None
        assert (found.length, found.client) == (len(header), (str(address), port))
