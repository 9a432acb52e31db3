"""START HERE for readers: checks that gateways and ingest jobs share, made on every wire before their own work.

    keys_of    takes the data key on a wire: admission, collection, search, suspects and named liars (`key_opening`)
    admission  checks the header: signature, signer and right (`wire.admission`)
    vouched    True if enough replicas brought a publication of no live epoch (`replays`)
    pieces     checks content against the signed digests; content(...) returns it when whole, and requests missing
    pieces
    opened     the opened data key, as `Opening` defines it
    lineages   finds the publisher's key under which a number was given

Each reader has a single object, driven like every machine here: events with the time in, effects out, `next_deadline`.
Known publications, order and acknowledgements belong to `collector` in a gateway, and to the receiver in a job.
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
    """The shared checks of a reader in region `home`. `opening` opens a key whose shares fit."""

    def __init__(self, overlay: Overlay, home: int, opening: Opening[Opened], kept: KeptReader | None = None) -> None:
        """Takes in `kept` the store of rows for a next process; None if no rows are stored."""
        self.overlay, self._topology = overlay, Topology(overlay)
        self.home = home
        self.admission = Admission(overlay, replica=False)
        self.keys: KeyRing[Opened] = KeyRing(overlay, home, opening, self.admission, kept)
        self.assembling = Assembling(asked(overlay, home))
        self._vouchers = Vouchers(overlay, home)
        self.lineages = Lineages(overlay, kept)

    def adopt(self, overlay: Overlay, now: float) -> tuple[list[Effect], list[bytes]]:
        """Adopts another version of the overlay, or other views, with unchanged regions. Returns effects and the ids
        of keys that were opened.
        """
        self.overlay = self._vouchers.overlay = overlay
        self._topology = Topology(overlay)
        self.assembling.replicas = asked(overlay, self.home)
        self.admission.adopt(overlay, now)
        self.lineages.adopt(overlay)
        return self.keys.adopt(overlay, now)

    # --------------------------------------------------------------------------------------------- a wire

    def keys_of(self, peer: str, properties: Mapping[str, str], now: float) -> tuple[list[Effect], bytes | None]:
        """Takes the data key on a wire. Returns effects and the id of the key if this wire opened it. Raises keys
        errors.
        """
        if PROPERTY_KEY not in properties:
            return [], None
        return self.keys.take(peer, properties, now)

    def told(self, properties: Mapping[str, str], wire_topic: str) -> str | None:
        """Returns property `vmq` of a publication; None for a key standing alone. Raises BadFrame if a publication has
        no such property.
        """
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
        """Returns True if a publication should be dropped unread because of its header's unverified claims. Raises
        BadFrame.
        """
        if self.admission.verified((told, wire_topic)) is not None:
            return False  # to be looked at costs nothing
        return is_replayed(told, wire_topic, streams, self.lineages, now, may_be_new)

    def vouched(self, peer: str, admitted: Admitted, wire_topic: str) -> bool:
        """Counts the replica as a voucher and returns True if the publication is believed now."""
        return admitted.live or self._vouchers.vouched(peer, admitted, wire_topic)

    def pieces(self, admitted: Admitted, payload: bytes, part: str | None) -> dict[int, bytes] | None:
        """Returns the pieces of content on a wire; None if they do not fit the signed digests. `part` is property
        `vmq-part`. Raises BadFrame.
        """
        return read(admitted.header, payload, part)

    def content(self, peer: str, admitted: Admitted, pieces: Mapping[int, bytes], now: float) -> bytes | None:
        """Returns the content of a wanted publication once it is whole. Raises BadContent if it can never be whole."""
        if pieces and admitted.header.mode is not Mode.BLOCKS and not self.assembling:
            return pieces[0]  # the usual case: whole, and nothing was asked for
        hops = self._topology.regions_between(admitted.publisher.region, self.home, admitted.tree)
        return self.assembling.take(peer, admitted.header, pieces, hops, now)

    # ----------------------------------------------------------------------------------------------- time

    def tick(self, now: float) -> tuple[list[Effect], list[bytes]]:
        """Searches and audits keys, and requests content. Returns effects and the ids of keys that were opened."""
        effects, opened = self.keys.tick(now)
        return effects + self.assembling.tick(now), opened

    @property
    def deadlines(self) -> tuple[float | None, float | None]:
        """The next times at which a key is searched or audited, and at which content is asked for."""
        return self.keys.next_deadline, self.assembling.next_deadline


def misfit(peer: str) -> list[Effect]:
    """Returns the effects for content that does not fit the signed header: the sender altered it or did not check
    it.
    """
    return [Count("refused", 1, "content"), Blame(peer, False, "content does not match the signed header")]


def asked(overlay: Overlay, region: int) -> tuple[str, ...]:
    """Returns the replicas to ask for missing content: never stock brokers, which answer nothing."""
    return tuple(name for name in overlay.views[region].members if name not in overlay.hosted)
