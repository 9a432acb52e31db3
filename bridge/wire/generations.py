"""Which life of a gateway may seal, and what becomes of an identity that runs twice (docs/protocol.md §2.11).

Each start of a gateway is a *generation*: a number above that of every start before, and at least the milliseconds of
the start. It stands in every signed key header. So a clone, a restored backup and a gateway whose data directory was
lost have generations of their own, the later start the greater one. A replica that knows a later generation refuses
what an earlier one sealed after the later one's start, and sends the signed key header that proves the later one. The
gateway stops sealing if, and only if, a key of its own signed that proof: nobody can mute it by saying so.
Not here: the disk that keeps the number (`gateway.outbox`), what is refused otherwise (`admission`).
"""

from __future__ import annotations

from collections.abc import Container

from bridge.contract import Count, Effect, Outlived, Received, Wire
from bridge.document import Overlay
from bridge.wire.admission import AHEAD_S, refused
from bridge.wire.statements import CONTROL_ROOT
from keys.envelope import KeyHeader, Order
from keys.errors import KeysError, NotAuthorised, NotFresh, Replayed, Superseded

GENERATION_TOPIC = f"{CONTROL_ROOT}/generation"
PROOF_EVERY_S = 1.0
"""How often a replica proves it to one gateway: it refuses each publication, and one proof is enough."""


class Generations:
    """What a replica knows: of each publisher the signed key header with the greatest generation."""

    def __init__(self) -> None:
        self._latest: dict[str, KeyHeader] = {}
        self._proved: dict[str, float] = {}

    def learn(self, member: str, key: KeyHeader, now: float) -> None:
        """A verified key header of the member's. Raises NotFresh for a start that is still to come: who could name
        one would shut out all lives that really begin before it."""
        _check_start(member, key, now)
        known = self._latest.get(member)
        if known is None or known.order.generation < key.order.generation:
            self._latest[member] = key

    def check(self, member: str, generation: int, sealed_ms: int) -> None:
        """Raise Superseded for what an earlier life sealed when a later one had begun."""
        latest = self._latest.get(member)
        if latest is not None and generation < latest.order.generation <= sealed_ms:
            raise Superseded(f"a later start of {member} is known")

    def proof(self, member: str, now: float) -> Wire | None:
        """What shows a gateway that it was started again elsewhere; None if it was told just now."""
        if now - self._proved.get(member, -PROOF_EVERY_S) < PROOF_EVERY_S:
            return None
        self._proved[member] = now
        return Wire(GENERATION_TOPIC, self._latest[member].encode())

    def keep(self, parties: Container[bytes]) -> None:
        """Forget whose key is no member's any more."""
        self._latest = {name: key for name, key in self._latest.items() if key.publisher in parties}
        self._proved = {name: at for name, at in self._proved.items() if name in self._latest}


class OwnLife:
    """A gateway's own generation. `outlived_by`: the later one that was proven to run, 0 for none; nothing is sealed
    from then on, until we are started again."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.outlived_by = 0
        self._keys = 0

    def next_key(self) -> Order:
        """Of the next data key."""
        self._keys += 1
        return Order(self.generation, self._keys)

    def heard(self, event: Received, overlay: Overlay, name: str, now: float) -> list[Effect]:
        """Somebody says that a later life of ours runs. A start that is still to come proves none: we may have had a
        clock that was wrong, and whoever kept a key of that time could mute us until then."""
        try:
            key = KeyHeader.decode(event.wire.payload)
            certificate = overlay.by_party.get(key.publisher)
            if certificate is None or certificate.name != name:
                raise NotAuthorised("a generation of somebody else")
            key.verify(certificate.public_key)
            _check_start(name, key, now)
            if key.order.generation <= self.generation:
                raise Replayed("an earlier generation of ours, or the present one")
        except KeysError as error:
            return refused(event.peer, error)
        if key.order.generation <= self.outlived_by:
            return []
        self.outlived_by = key.order.generation
        return [Count("outlived"), Outlived(self.outlived_by)]


def _check_start(member: str, key: KeyHeader, now: float) -> None:
    if key.order.generation > (now + AHEAD_S) * 1000:
        raise NotFresh(f"{member} names a start of its own that is to come; its clock or ours is wrong")
