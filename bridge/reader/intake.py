"""START HERE for readers: what gateway and ingest job ask of every wire alike, before it is their own business.

    keys_of    what it says of a data key: admitted, collected, searched, its liars suspected or named (`key_opening`)
    admission  its header: signed, by whom, may he (`wire.admission`)
    vouched    whether enough replicas brought what is of no live epoch (`replays`)
    pieces     its content against the signed digests; content(...) once that is whole, asked for if it does not come
    opened     what its data key became: `Opening` says what that is
    lineages   under which of its publisher's keys its number was given

One object of each reader; it is driven as every machine here is: events with the time, effects back, `next_deadline`.
Not here: what was seen before, order, acknowledgements: a gateway's are in `collector`, a job's in its receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic

from bridge.contract import Blame, Count, Effect
from bridge.document import Overlay
from bridge.reader.assembling import Assembling
from bridge.reader.kept import KeptReader
from bridge.reader.key_opening import KeyRing
from bridge.reader.lineages import Lineages
from bridge.reader.opening import Opened, Opening
from bridge.reader.replays import Vouchers, is_replayed
from bridge.reader.streams import Stream, StreamId
from bridge.topology import Topology
from bridge.wire import Admission, Admitted, carries_key_alone, read
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, Mode
from keys.errors import BadFrame


class Intake(Generic[Opened]):
    """Of one reader in region `home`. `opening`: what becomes of a key whose shares fit."""

    def __init__(self, overlay: Overlay, home: int, opening: Opening[Opened], kept: KeptReader | None = None) -> None:
        """`kept`: where rows for a next process go, if somebody takes them."""
        self.overlay, self._topology = overlay, Topology(overlay)
        self.home = home
        self.admission = Admission(overlay, replica=False)
        self.keys: KeyRing[Opened] = KeyRing(overlay, home, opening, self.admission, kept)
        self.assembling = Assembling(asked(overlay, home))
        self._vouchers = Vouchers(overlay, home)
        self.lineages = Lineages(overlay, kept)

    def adopt(self, overlay: Overlay, now: float) -> tuple[list[Effect], list[bytes]]:
        """Another version of the overlay, or other views of it, of the same regions. With the effects, the ids of keys
        that were opened."""
        self.overlay = self._vouchers.overlay = overlay
        self._topology = Topology(overlay)
        self.assembling.replicas = asked(overlay, self.home)
        self.admission.adopt(overlay, now)
        self.lineages.adopt(overlay)
        return self.keys.adopt(overlay, now)

    # --------------------------------------------------------------------------------------------- a wire

    def keys_of(self, peer: str, properties: Mapping[str, str], now: float) -> tuple[list[Effect], bytes | None]:
        """With the effects, the id of the key that this opened. Raises keys errors."""
        if PROPERTY_KEY not in properties:
            return [], None
        return self.keys.take(peer, properties, now)

    def told(self, properties: Mapping[str, str], wire_topic: str) -> str | None:
        """Property `vmq` of a publication; None for a key that stands alone. Raises BadFrame where it has to be."""
        if carries_key_alone(wire_topic):
            return None
        told = properties.get(PROPERTY_HEADER)
        if told is None:
            raise BadFrame("publication without a signed header")
        return told

    def is_replayed(
        self,
        told: str,
        wire_topic: str,
        streams: Callable[[StreamId], Stream | None],
        now: float,
        may_be_new: Callable[[bytes, int, int, float], bool],
    ) -> bool:
        """Whether to drop a publication unread, for what its header says of itself. Raises BadFrame."""
        if self.admission.remembers(told, wire_topic):
            return False  # to be looked at costs nothing
        return is_replayed(told, wire_topic, streams, self.lineages, now, may_be_new)

    def vouched(self, peer: str, admitted: Admitted, wire_topic: str) -> bool:
        """A replica brings it: whether it is believed now."""
        return admitted.live or self._vouchers.vouched(peer, admitted, wire_topic)

    def pieces(self, admitted: Admitted, payload: bytes, part: str | None) -> dict[int, bytes] | None:
        """What it brings of its content; None if that misfits the signed digests. `part`: property `vmq-part`. Raises
        BadFrame."""
        return read(admitted.header, payload, part)

    def content(self, peer: str, admitted: Admitted, pieces: Mapping[int, bytes], now: float) -> bytes | None:
        """The content of a publication that is wanted, once it is whole. Raises BadContent for what never will be."""
        if pieces and admitted.header.mode is not Mode.BLOCKS and not self.assembling:
            return pieces[0]  # the usual case: whole, and nothing was asked for
        hops = self._topology.regions_between(admitted.publisher.region, self.home, admitted.tree)
        return self.assembling.take(peer, admitted.header, pieces, hops, now)

    # ----------------------------------------------------------------------------------------------- time

    def tick(self, now: float) -> tuple[list[Effect], list[bytes]]:
        """Search and audit keys, ask for content. With the effects, the ids of keys that were opened."""
        effects, opened = self.keys.tick(now)
        return effects + self.assembling.tick(now), opened

    @property
    def next_deadline(self) -> float | None:
        deadlines = (self.keys.next_deadline, self.assembling.next_deadline)
        return min((at for at in deadlines if at is not None), default=None)


def misfit(peer: str) -> list[Effect]:
    """Of content that does not fit the signed header: whoever brings it altered it, or did not look."""
    return [Count("refused", 1, "content"), Blame(peer, False, "content does not match the signed header")]


def asked(overlay: Overlay, region: int) -> tuple[str, ...]:
    """Who is asked for what does not come: nobody at stock brokers, which answer nothing."""
    return tuple(name for name in overlay.views[region].members if name not in overlay.hosted)
