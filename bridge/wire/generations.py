"""Generations: the life of a gateway that may seal, and the end of an identity running twice.

Source: docs/protocol.md §2.11. Each start of a gateway is a *generation*: a number above every former start's, and at
least the milliseconds of the start. So a clone, a restored backup and a gateway whose data directory was lost have
generations of their own, the later start the greater number. The generation stands in every signed key header, and in
every signed header, because a plain publication has no key. A replica with knowledge of a later generation refuses
publications sealed by an earlier generation after the later start, and sends the signed header, of a key or of a
plain publication, as proof of the later start. The gateway stops sealing if, and only if, its signing key, or the
present key of its name, signed that proof: nobody can mute a gateway without a proof. A former key proves nothing
against the present key: a thief of the former key could mute its member with invented starts. Not here: the disk for
the number (`gateway.data`), other refusals (`admission`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bridge.contract import Count, Effect, Outlived, Received, Wire
from bridge.document import Overlay
from bridge.wire.admission import AHEAD_S, Admitted, refused
from bridge.wire.statements import CONTROL_ROOT
from keys.envelope import (
    PROPERTY_HEADER,
    KeyHeader,
    Order,
    from_property,
    header_of,
    to_property,
    verify_header,
)
from keys.errors import Expired, KeysError, NotAuthorised, NotFresh, Replayed, Superseded
from keys.identity import Certificate

GENERATION_TOPIC = f"{CONTROL_ROOT}/generation"
PROOF_EVERY_S = 1.0
"""Seconds between proofs of a replica to one gateway: it refuses each publication, and one proof is enough."""


@dataclass(frozen=True, slots=True)
class _Life:
    """The latest generation of a member under one of its keys, and its proof."""

    generation: int
    proof: Wire


class Generations:
    """A replica's knowledge of each publisher: the signed header with the greatest generation.

    The present key and the former one have one each.
    """

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._latest: dict[str, dict[bytes, _Life]] = {}  # by member, by party
        self._outlives: dict[str, _Life] = {}  # by member, the life that caused its last refusal
        self._proved: dict[str, float] = {}

    def learn(self, member: str, key: KeyHeader, now: float) -> None:
        """Learns from a verified key header of the member's.

        Raises NotFresh for a future start: its author would shut out all lives that really begin before it.
        """
        _check_start(member, key.order.generation, now)
        if self._is_later(member, key.publisher, key.order.generation):
            wire = Wire(GENERATION_TOPIC, key.encode())
            self._latest[member][key.publisher] = _Life(key.order.generation, wire)

    def learn_plain(self, member: str, admitted: Admitted, wire_topic: str, now: float) -> None:
        """Learns from a verified header of a plain publication, which names no key. Raises NotFresh for a future
        start.
        """
        header = admitted.header
        _check_start(member, header.generation, now)
        if self._is_later(member, header.publisher, header.generation):
            told = (PROPERTY_HEADER, to_property(admitted.frame))
            wire = Wire(GENERATION_TOPIC, wire_topic.encode(), properties=(told,))
            self._latest[member][header.publisher] = _Life(header.generation, wire)

    def _is_later(self, member: str, party: bytes, generation: int) -> bool:
        known = self._latest.setdefault(member, {}).get(party)
        return known is None or known.generation < generation

    def check_life(self, member: str, party: bytes, generation: int, sealed_ms: int) -> None:
        """Raises Superseded for a sealing by an earlier life after a later one had begun.

        The later life is one under this key of the member's, or under its present one.
        """
        lives = self._latest.get(member)
        if lives is None:
            return
        is_known_only = len(lives) == 1 and party in lives  # the usual case: one key, whichever is the present one
        for signer in (party,) if is_known_only else (party, self._overlay.certificate(member).party_id):
            life = lives.get(signer)
            if life is not None and generation < life.generation <= sealed_ms:
                self._outlives[member] = life
                raise Superseded(f"a later start of {member} is known")

    def proof(self, member: str, now: float) -> Wire | None:
        """Returns the proof for a refused gateway that it was started again elsewhere; None if it was sent just
        now.
        """
        if now - self._proved.get(member, -PROOF_EVERY_S) < PROOF_EVERY_S:
            return None
        self._proved[member] = now
        return self._outlives[member].proof

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, and forgets keys no member has any more."""
        self._overlay, known = overlay, overlay.by_party
        kept = {name: {p: life for p, life in lives.items() if p in known} for name, lives in self._latest.items()}
        self._latest = {name: lives for name, lives in kept.items() if lives}
        self._proved = {name: at for name, at in self._proved.items() if name in self._latest}
        self._outlives = {name: life for name, life in self._outlives.items() if name in self._latest}


class OwnLife:
    """A gateway's own generation.

    `outlived_by`: the later generation that was proven to run, 0 for none; nothing is sealed from then on, until we
    are started again. `keys_made`: data keys of this life. `passed_over`: generations a wrong clock gave former
    starts, each with the one that is kept for us above it.
    """

    def __init__(self, generation: int, passed_over: Mapping[int, int] = MappingProxyType({})) -> None:
        self.generation = generation
        self._passed_over = passed_over
        self.outlived_by = 0
        self.keys_made = 0

    def next_key(self) -> Order:
        """Returns the order of the next data key."""
        self.keys_made += 1
        return Order(self.generation, self.keys_made)

    def take_proof(self, event: Received, overlay: Overlay, name: str, party: bytes, now: float) -> list[Effect]:
        """Takes a claimed proof that a later life of ours runs. `party`: the key we sign with.

        A future start proves nothing: our clock may have been wrong once, and a holder of a key of that time could
        mute us until then. Nor does it prove anything once that time has come: then we go on above it, for replicas
        may believe it.
        """
        try:
            generation, signer = _proven(event.wire, overlay, name)
            if signer not in (party, overlay.certificate(name).party_id):
                raise Expired("a generation under a former key of ours")
            _check_start(name, generation, now)
            if generation <= self.generation:
                raise Replayed("an earlier generation of ours, or the present one")
        except KeysError as error:
            return refused(event.peer, error)
        if generation <= self.outlived_by:
            return []
        ends = [end for first, end in self._passed_over.items() if first <= generation < end]
        if ends and not self.outlived_by:
            self.generation, self.keys_made = max(ends), 0
            return [Count("generations_passed")]
        self.outlived_by = generation
        return [Count("outlived"), Outlived(self.outlived_by)]


def _proven(wire: Wire, overlay: Overlay, name: str) -> tuple[int, bytes]:
    """Returns the generation a proof shows, and the key of ours that signed it. Raises keys errors."""
    told = dict(wire.properties).get(PROPERTY_HEADER)
    if told is None:
        key = KeyHeader.decode(wire.payload)
        key.verify(_ours(key.publisher, overlay, name).public_key)
        return key.order.generation, key.publisher
    frame = from_property(told)
    header = header_of(frame)
    topic = wire.payload.decode(errors="replace")
    verify_header(header, frame, topic, _ours(header.publisher, overlay, name).public_key)
    return header.generation, header.publisher


def _ours(party: bytes, overlay: Overlay, name: str) -> Certificate:
    certificate = overlay.by_party.get(party)
    if certificate is None or certificate.name != name:
        raise NotAuthorised("a generation of somebody else")
    return certificate


def _check_start(member: str, generation: int, now: float) -> None:
    if generation > (now + AHEAD_S) * 1000:
        raise NotFresh(f"{member} names a start of its own that is to come; its clock or ours is wrong")
