"""Content of publications at a receiver: checked pieces in, whole content out, and requests for what does not come.

Between the collector, which knows what is wanted, and `bridge.reader.assembling`, which puts pieces together and
knows whom to ask. Pure. Not here: headers, keys, acknowledgements, rows.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.overlay import PROPERTY_PART, Assembling, Count, Send, read
from keys.envelope import MessageHeader, Mode, content_digest
from keys.errors import BadContent
from spark_ingest.receiving.directory import Directory

__all__ = ["PROPERTY_PART", "Contents"]


class Contents:
    """What is not whole yet. `count(figure, replica or "")`: where figures go."""

    def __init__(self, directory: Directory, count: Callable[..., None]) -> None:
        self._directory = directory
        self._count = count
        self._assembling = Assembling(())
        self._asks: list[Send] = []
        self._idle = True  # nothing is put together or asked for: most of the time

    def take(
        self, header: MessageHeader, have: bytes | None, replica: str, payload: bytes, part: str | None, now: float
    ) -> bytes | None:
        """What a wire brings of a wanted publication, of which we `have` the content, or not yet; the content, if it is
        whole. `part`: property `vmq-part`.

        Raises BadFrame. A replica whose pieces misfit their signed digests is counted.
        """
        if payload and payload == have:
            return have
        if have is None and part is None and self.whole(header, payload):
            return payload
        pieces = read(header, payload, part)
        if pieces is None:
            self._count("wrong_content", replica)
        if pieces is None or have is not None:
            return have
        if replica not in self._assembling.replicas:
            self._assembling.replicas += (replica,)
        self._idle = False
        publisher = self._directory.certificate(header.publisher)
        hops = len(self._directory.path(publisher.region)) if publisher else 1
        try:
            return self._assembling.take(replica, header, pieces, hops, now)
        except BadContent:
            self._count("bad_blocks")
            return None

    def whole(self, header: MessageHeader, payload: bytes) -> bool:
        """Whether a payload is all of the content at once, as it usually is, and nothing of it is here or asked for."""
        return (
            header.mode is not Mode.BLOCKS
            and content_digest(payload) == header.digests[0]
            and (self._idle or not self._assembling.holds(header))
        )

    def tick(self, now: float) -> None:
        """Ask for what does not come, or give it up."""
        if self._idle:
            return
        for effect in self._assembling.tick(now):
            if isinstance(effect, Send):
                self._asks.append(effect)
            elif isinstance(effect, Count):
                self._count(effect.name, amount=effect.amount)
        self._idle = not len(self._assembling)

    def take_asks(self) -> list[Send]:
        """Requests for replicas, which are in the caller's hands now."""
        asks, self._asks = self._asks, []
        return asks

    @property
    def next_deadline(self) -> float | None:
        return None if self._idle else self._assembling.next_deadline
