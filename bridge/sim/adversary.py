"""A Byzantine replica: an honest node whose effects are falsified on the way out.

The adversary knows all that its node knows and does what no honest node does: drops, duplicates, replays,
flips bits in content, headers and shares, mislabels shares, reorders, strips properties, sets the retain flag, and
puts keys on publications that they do not belong to. What it does is drawn from its own random source.
The same wrapper makes the liar of the demonstration; `veilmq broker` cannot reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import Enum

from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, PROPERTY_SHARES, from_property, to_property
from keys.sharetree import Share, decode_shares, encode_shares

from ..machine import Effect, Event, Machine, Send, UserProperties, Wire
from .kernel import RandomSource

REPLAYS_MAX = 256


class Behaviour(Enum):
    """One way to lie; several may be combined."""

    DROP = "drop"
    DUPLICATE = "duplicate"
    REPLAY = "replay"
    CONTENT = "content"
    HEADER = "header"
    SHARES = "shares"
    LABELS = "labels"
    TOPIC = "topic"
    REORDER = "reorder"
    STRIP = "strip"
    RETAIN = "retain"
    FOREIGN_KEY = "foreign key"


class Adversary:
    """Wraps a machine; lies in the given ways while `lying(now)` is true, each time with `probability`."""

    def __init__(
        self,
        machine: Machine,
        behaviours: Collection[Behaviour],
        rng: RandomSource,
        probability: float = 1.0,
        lying: Callable[[float], bool] = lambda now: True,
    ) -> None:
        self.machine = machine
        self._behaviours = frozenset(behaviours)
        self._rng = rng
        self._probability = probability
        self._lying = lying
        self._seen: list[Wire] = []
        self._held_back: dict[str, Send] = {}
        self._keys: list[tuple[str, str]] = []

    @property
    def next_deadline(self) -> float | None:
        return self.machine.next_deadline

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        """What the honest node would do, falsified."""
        effects = self.machine.handle(event, now)
        if not self._lying(now):
            return effects
        falsified: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send) and self._rng.random() < self._probability:
                falsified += self._falsify(effect)
            else:
                falsified.append(effect)
        return falsified

    def _falsify(self, send: Send) -> list[Effect]:
        has = self._behaviours.__contains__
        if has(Behaviour.DROP):
            return []
        wire = send.wire
        if has(Behaviour.CONTENT) and wire.payload:
            wire = replace(wire, payload=self._flip(wire.payload))
        if has(Behaviour.HEADER):
            wire = self._rewrite(wire, PROPERTY_HEADER, self._flip)
        if has(Behaviour.SHARES):
            wire = self._rewrite(wire, PROPERTY_SHARES, lambda data: self._each_share(data, self._bad_value))
        if has(Behaviour.LABELS):
            wire = self._rewrite(wire, PROPERTY_SHARES, lambda data: self._each_share(data, self._bad_label))
        if has(Behaviour.TOPIC):
            wire = replace(wire, topic=wire.topic + "x")
        if has(Behaviour.FOREIGN_KEY):
            wire = self._with_foreign_key(wire)
        if has(Behaviour.STRIP):
            wire = replace(wire, properties=tuple(p for p in wire.properties if p[0] != PROPERTY_SHARES))
        if has(Behaviour.RETAIN):
            wire = replace(wire, retain=True)
        sent: list[Effect] = [replace(send, wire=wire)]
        if has(Behaviour.REORDER):
            before = self._held_back.pop(send.peer, None)
            if before is None:
                self._held_back[send.peer] = send
                return []
            sent.append(before)
        if has(Behaviour.DUPLICATE):
            sent.append(replace(send, wire=wire, ticket=0))
        if has(Behaviour.REPLAY):
            if self._seen:
                sent.append(Send(send.peer, self._seen[self._rng.randrange(len(self._seen))]))
            self._seen = [*self._seen[-REPLAYS_MAX:], send.wire]
        return sent

    def _with_foreign_key(self, wire: Wire) -> Wire:
        """Exchanges the wire's key header for any that passed by, and drops the shares, which would not fit it."""
        self._keys = [*self._keys[-REPLAYS_MAX:], *(p for p in wire.properties if p[0] == PROPERTY_KEY)]
        if not self._keys:
            return wire
        others = tuple(p for p in wire.properties if p[0] not in (PROPERTY_KEY, PROPERTY_SHARES))
        return replace(wire, properties=(*others, self._keys[self._rng.randrange(len(self._keys))]))

    def _flip(self, data: bytes) -> bytes:
        at = self._rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << self._rng.randrange(8))]) + data[at + 1 :]

    def _rewrite(self, wire: Wire, name: str, change: Callable[[bytes], bytes]) -> Wire:
        properties: UserProperties = tuple(
            (key, to_property(change(from_property(value))) if key == name else value) for key, value in wire.properties
        )
        return replace(wire, properties=properties)

    def _each_share(self, data: bytes, change: Callable[[Share], Share]) -> bytes:
        changed = {share.label: share for share in map(change, decode_shares(data))}
        return encode_shares(changed.values())

    def _bad_value(self, share: Share) -> Share:
        return replace(share, value=self._rng.randbytes(len(share.value)))

    def _bad_label(self, share: Share) -> Share:
        """Claims another first place: a share of somebody else's column."""
        first = share.label[0]
        moved = first._replace(place=first.place % 3 + 1)
        return replace(share, label=(moved, *share.label[1:]))
