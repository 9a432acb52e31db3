"""Bodies of PUBLISH packets that were decoded lately: what comes once more is not decoded once more.

A reader gets each publication from every replica of its region, and these packets differ in nothing but their
identifiers and flags. Whoever reads from several connections gives their decoders one `Copies`: the first packet is
decoded and checked as ever, a later one whose bytes after the identifier are the same (properties and payload), under
the same topic, is made of the same objects. So it is no second parser: a byte that differs is decoded. What is
malformed is never kept. Whoever sends ever new packets empties this only, and makes others as slow as without it.
"""

from __future__ import annotations

from typing import TypeAlias

from gateway.mqtt5.packets import Properties

COPIES_BYTES = 8 << 20
"""Of kept bodies, on all connections together; decoded they cost about as much again. Half of it goes at a time."""
COPY_BYTES_MAX = 16 << 10
"""A larger body is not kept: comparing it would cost what decoding costs."""
COPY_PROPERTIES_MAX = 8
"""One with more user properties is not kept: decoded, these may cost thirty times their bytes."""
BODY_OVERHEAD_BYTES = 600


Body: TypeAlias = tuple[str, bytes, Properties]
"""Topic, payload and properties of a PUBLISH. An empty topic: an alias stands for it, which its connection knows."""


class Copies:
    """See the module: two generations, of which the older goes when the younger is full."""

    __slots__ = ("_bytes", "_half", "generations")

    def __init__(self, most_bytes: int = COPIES_BYTES) -> None:
        self._half = most_bytes // 2
        self._bytes = 0
        self.generations: tuple[dict[bytes, Body], dict[bytes, Body]] = ({}, {})
        """What bodies were decoded to: the younger, the older."""

    def keep(self, body: bytes, decoded: Body) -> tuple[dict[bytes, Body], dict[bytes, Body]]:
        """A body is well-formed; the generations from now on."""
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
