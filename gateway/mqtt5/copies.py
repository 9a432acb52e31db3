"""Bodies of PUBLISH packets that were decoded lately, so that a repeated body is not decoded again.

A reader gets each publication from every replica of its region, and these packets differ only in identifiers and
flags. A client reading from several connections gives their decoders one `Copies`. The first packet is decoded and
checked; a later packet with the same topic and the same bytes after the identifier (properties and payload) reuses the
decoded objects. There is no second parser: a body with any other byte is decoded. A malformed body is never kept. A
sender of ever new packets only empties this store: decoding is then as slow as without it.
"""

from __future__ import annotations

from typing import TypeAlias

from gateway.mqtt5.packets import Properties

COPIES_BYTES = 8 << 20
"""Bytes of kept bodies, on all connections together; decoded bodies cost about as much again. Half is dropped at a
time.
"""
COPY_BYTES_MAX = 16 << 10
"""A larger body is not kept: comparing it would cost as much as decoding."""
COPY_PROPERTIES_MAX = 8
"""A body with more user properties is not kept: decoded, these may cost thirty times their bytes."""
BODY_OVERHEAD_BYTES = 600


Body: TypeAlias = tuple[str, bytes, Properties]
"""Topic, payload and properties of a PUBLISH. An empty topic: an alias stands for it, which its connection knows."""


class Copies:
    """Store of decoded bodies in two generations; the older is dropped when the younger is full."""

    __slots__ = ("_bytes", "_half", "generations")

    def __init__(self, most_bytes: int = COPIES_BYTES) -> None:
        self._half = most_bytes // 2
        self._bytes = 0
        self.generations: tuple[dict[bytes, Body], dict[bytes, Body]] = ({}, {})
        """Decoded bodies by their bytes: the younger generation, the older."""

    def keep_body(self, body: bytes, decoded: Body) -> tuple[dict[bytes, Body], dict[bytes, Body]]:
        """Keeps a well-formed body and returns the generations from now on."""
        properties = decoded[2]
        few = len(properties.user) + len(properties.subscription_ids) <= COPY_PROPERTIES_MAX
        if few and len(body) <= COPY_BYTES_MAX:
            size = len(body) + BODY_OVERHEAD_BYTES
            self._bytes += size
            if self._bytes > self._half:
                self.generations = ({}, self.generations[0])
                self._bytes = size
            self.generations[0][body] = decoded
        return self.generations
