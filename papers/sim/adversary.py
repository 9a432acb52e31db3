"""A Byzantine replica: an honest node whose effects are falsified on the way out.

The adversary knows all that its node knows and acts as no honest node does: each `Behaviour` is a single such lie,
drawn from its own random source. Liars working together share a `Coalition`: they never deceive each other, alter
shares alike so that their shares fit together, and send the wires an accomplice received. The wrapper also makes the
liar of the demonstration; `veilmq broker` cannot reach it. Not here: the knowledge of a coalition
(`tests/sim/linearview`), publishers and subscribers that lie.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial

from bridge.contract import Effect, Event, OverlayNode, Received, Send, UserProperties, Wire
from bridge.document import Overlay
from bridge.wire import KEYS_TOPIC, NO_PART, PROPERTY_PART, PULL_TOPIC, SUBSCRIBE_TOPIC, PullRequest, Statement
from keys.envelope import (
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    PROPERTY_WRAPS,
    SignedHeader,
    from_property,
    to_property,
)
from keys.errors import KeysError
from keys.sharetree import Hop, Place, Share, decode_shares, encode_shares
from keys.wrapping import Wrap, decode_wraps, encode_wraps
from papers.sim.kernel import RandomSource

REPLAYS_MAX = 256  # wires that a liar, or a coalition, remembers
DELAYED_MAX = 4096  # wires that a liar holds back; beyond it the oldest go out early
DELAY_MAX_S = 30.0
FLOOD_EACH = 4  # invented wires for one that an honest node would send
INVENTED_BYTES_MAX = 400


class Behaviour(Enum):
    """A way to lie; several may be combined."""

    DROP = "drop"
    SILENT = "silent"  # from the first event on: no effect at all, though its links stay up
    DELAY = "delay"
    DUPLICATE = "duplicate"
    REPLAY = "replay"
    REORDER = "reorder"
    FLOOD = "flood"
    CONTENT = "content"
    HEADER = "header"
    KEY = "key"
    SHARES = "shares"  # and wraps, other ones to each peer
    LABELS = "labels"  # claims another first place: a share of another column
    POSITION = "position"  # claims to be another sender, or that the receiver is at another place
    PATH = "path"  # claims that the share came through another region
    VIEW = "view"  # claims another view of every region
    TOPIC = "topic"
    STRIP = "strip"
    RETAIN = "retain"
    FOREIGN_KEY = "foreign key"
    EQUIVOCATE = "equivocate"  # honest to about half of its peers; to the rest as told, or content and shares
    COLLUDE = "collude"  # honest to its accomplices; to the rest as told, or shares that fit their accomplices'
    WITHHOLD = "withhold"  # announces everything and never gives content, not when it is asked either
    HOARD = "hoard"  # passes announcements on, and nothing that has content
    PARTS = "parts"  # claims that its blocks are others
    PULLS = "pulls"  # asks for publications without end, those that there were and others
    FRAME = "frame"  # honest to its accomplices; alters shares that came through one honest replica, to blame it


_OF_SHARES = (PROPERTY_SHARES, PROPERTY_WRAPS)
_SELECTIVE = frozenset({Behaviour.EQUIVOCATE, Behaviour.COLLUDE})
_LOYAL = frozenset({Behaviour.COLLUDE, Behaviour.FRAME})


class Coalition:
    """The common state of liars working together: their names, their received wires, and their shift of every share.

    `members`: by name, the (region, place) of each.
    """

    def __init__(self, members: Mapping[str, tuple[int, int]], rng: RandomSource) -> None:
        self.members = dict(members)
        self.shift = rng.randbytes(32)
        self.received: deque[Wire] = deque(maxlen=REPLAYS_MAX)
        self.victim: tuple[int, int] | None = None  # the honest replica that is to look guilty


class Adversary:
    """A wrapper of a machine lying in the given ways while `lying(now)` is true, each time with `probability`.

    `coalition`: the accomplices of `Behaviour.COLLUDE`; without one the liar has none.
    """

    def __init__(
        self,
        machine: OverlayNode,
        behaviours: Collection[Behaviour],
        rng: RandomSource,
        probability: float = 1.0,
        lying: Callable[[float], bool] = lambda now: True,
        coalition: Coalition | None = None,
    ) -> None:
        self.machine = machine
        self._behaviours = frozenset(behaviours)
        self._rng = rng
        self._probability = probability
        self._lying = lying
        self._coalition = coalition or Coalition({}, rng)
        self._ways = self._behaviours - _SELECTIVE
        if not self._ways:
            self._ways = frozenset({Behaviour.CONTENT, Behaviour.SHARES})
            if Behaviour.COLLUDE in self._behaviours:
                self._ways = frozenset({Behaviour.SHARES, Behaviour.REPLAY})
        self._deceived: dict[str, bool] = {}
        self._seen: deque[Wire] = deque(maxlen=REPLAYS_MAX)
        self._held_back: dict[str, Send] = {}
        self._delayed: list[tuple[float, int, Send]] = []  # a heap by moment of sending
        self._count = 0
        self._keys: deque[tuple[str, str]] = deque(maxlen=REPLAYS_MAX)
        self._silent = False

    @property
    def overlay(self) -> Overlay:
        return self.machine.overlay

    @property
    def peers(self) -> frozenset[str]:
        return self.machine.peers

    @property
    def removed(self) -> bool:
        return self.machine.removed

    @property
    def versions(self) -> dict[str, int]:
        return self.machine.versions

    @property
    def next_deadline(self) -> float | None:
        if self._silent:
            return None
        delayed = self._delayed[0][0] if self._delayed else None
        return min((at for at in (self.machine.next_deadline, delayed) if at is not None), default=None)

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        """Returns the effects of the honest node, falsified."""
        lying = self._lying(now)
        self._silent = lying and Behaviour.SILENT in self._behaviours
        if self._silent:
            return []
        if isinstance(event, Received):
            self._coalition.received.append(event.wire)
        effects = self.machine.handle(event, now)
        falsified: list[Effect] = []
        while self._delayed and (self._delayed[0][0] <= now or len(self._delayed) > DELAYED_MAX):
            falsified.append(heapq.heappop(self._delayed)[2])
        for effect in effects:
            if lying and isinstance(effect, Send) and self._deceives(effect.peer):
                falsified += self._falsify(effect, now)
            else:
                falsified.append(effect)
        return falsified

    def _deceives(self, peer: str) -> bool:
        """Returns True if the liar lies to this peer this time."""
        if peer in self._coalition.members and not self._behaviours.isdisjoint(_LOYAL):
            return False
        if Behaviour.EQUIVOCATE in self._behaviours and peer not in self._deceived:
            self._deceived[peer] = self._rng.random() < 0.5
        return self._deceived.get(peer, True) and self._rng.random() < self._probability

    # ------------------------------------------------------------------------------- sending, and its times

    def _falsify(self, send: Send, now: float) -> list[Effect]:
        has = self._ways.__contains__
        if has(Behaviour.DROP) or (has(Behaviour.HOARD) and send.wire.payload and PROPERTY_HEADER in _names(send.wire)):
            return []
        wire = self._altered(send.wire)
        sent: list[Send] = [replace(send, wire=wire)]
        if has(Behaviour.REORDER):
            before = self._held_back.pop(send.peer, None)
            if before is None:
                self._held_back[send.peer] = send
                return []
            sent.append(before)
        if has(Behaviour.DUPLICATE):
            sent.append(replace(send, wire=wire, ticket=0))
        if has(Behaviour.REPLAY):
            known = self._coalition.received if Behaviour.COLLUDE in self._behaviours else self._seen
            if known:
                sent.append(Send(send.peer, self._one_of(known)))
            self._seen.append(send.wire)
        if has(Behaviour.FLOOD):
            sent += [Send(send.peer, self._invented(send.wire)) for _ in range(FLOOD_EACH)]
        if has(Behaviour.PULLS):
            sent += [Send(send.peer, self._pull(send.wire)) for _ in range(FLOOD_EACH)]
        if has(Behaviour.DELAY):
            for one in sent:
                self._count += 1
                heapq.heappush(self._delayed, (now + self._rng.uniform(0.0, DELAY_MAX_S), self._count, one))
            return []
        return [*sent]

    def _pull(self, like: Wire) -> Wire:
        """Returns a request for the wire's publication, or for one that never existed."""
        told = dict(like.properties).get(PROPERTY_HEADER)
        try:
            header = SignedHeader.decode(from_property(told or "")).header
        except KeysError:
            return Wire(PULL_TOPIC, self._rng.randbytes(40))
        past = self._rng.randrange(1 << 16)
        sequence = header.sequence if past % 2 else header.sequence + past
        parts = (self._rng.randrange(len(header.digests)),) if past % 3 else ()
        return Wire(PULL_TOPIC, PullRequest(header.publisher, sequence, 0, parts).encode())

    def _invented(self, like: Wire) -> Wire:
        """Returns garbage in the form of a wire."""
        kind = self._rng.randrange(4)
        garbage = self._rng.randbytes(1 + self._rng.randrange(INVENTED_BYTES_MAX))
        if kind == 0:
            return replace(like, topic=f"{like.topic}/{self._rng.randrange(1 << 16)}", payload=garbage)
        if kind == 1:
            properties = ((PROPERTY_KEY, to_property(garbage)), (PROPERTY_SHARES, to_property(garbage[::-1])))
            return Wire(KEYS_TOPIC, b"", properties=properties)
        if kind == 2:
            statement = Statement("control", "plant/#", 1 << 60, False, 1 << 60, self._rng.randbytes(64))
            return Wire(SUBSCRIBE_TOPIC, statement.encode())
        return Wire("plant/x", garbage, properties=((PROPERTY_HEADER, to_property(garbage)),))

    # ---------------------------------------------------------------------------------------- contents of wires

    def _altered(self, wire: Wire) -> Wire:
        has = self._ways.__contains__
        if has(Behaviour.CONTENT) and wire.payload:
            wire = replace(wire, payload=self._flip(wire.payload))
        if has(Behaviour.WITHHOLD) and wire.payload and PROPERTY_HEADER in _names(wire):
            wire = replace(wire, payload=b"", properties=_as_part(wire, NO_PART))
        if has(Behaviour.PARTS) and wire.payload and PROPERTY_HEADER in _names(wire):
            wire = replace(wire, properties=_as_part(wire, str(self._rng.randrange(3))))
        if has(Behaviour.HEADER):
            wire = self._rewrite(wire, PROPERTY_HEADER, self._flip)
        if has(Behaviour.KEY):
            wire = self._rewrite(wire, PROPERTY_KEY, self._flip)
        for change in self._changes_of_shares():
            wire = self._rewrite(wire, PROPERTY_SHARES, partial(_each_share, change=change))
        if has(Behaviour.SHARES):
            wire = self._rewrite(wire, PROPERTY_WRAPS, partial(each_wrap, change=self._bad_wrap))
        if has(Behaviour.TOPIC):
            wire = replace(wire, topic=wire.topic + "x")
        if has(Behaviour.FOREIGN_KEY):
            wire = self._with_foreign_key(wire)
        if has(Behaviour.STRIP):
            wire = replace(wire, properties=tuple(p for p in wire.properties if p[0] not in _OF_SHARES))
        if has(Behaviour.RETAIN):
            wire = replace(wire, retain=True)
        return wire

    def _changes_of_shares(self) -> Iterator[Callable[[Share], Share]]:
        changes = {
            Behaviour.SHARES: self._shifted if Behaviour.COLLUDE in self._behaviours else self._bad_value,
            Behaviour.LABELS: _of_another_column,
            Behaviour.POSITION: self._at_another_place,
            Behaviour.PATH: _through_another_region,
            Behaviour.VIEW: _of_another_view,
            Behaviour.FRAME: self._framing,
        }
        return (change for behaviour, change in changes.items() if behaviour in self._ways)

    def _with_foreign_key(self, wire: Wire) -> Wire:
        """Exchanges the wire's key header for any that passed by, and drops shares and wraps, which would not fit."""
        self._keys.extend(p for p in wire.properties if p[0] == PROPERTY_KEY)
        if not self._keys:
            return wire
        others = tuple(p for p in wire.properties if p[0] not in (PROPERTY_KEY, *_OF_SHARES))
        return replace(wire, properties=(*others, self._keys[self._rng.randrange(len(self._keys))]))

    def _one_of(self, wires: Sequence[Wire]) -> Wire:
        return wires[self._rng.randrange(len(wires))]

    def _flip(self, data: bytes) -> bytes:
        at = self._rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ (1 << self._rng.randrange(8))]) + data[at + 1 :]

    def _rewrite(self, wire: Wire, name: str, change: Callable[[bytes], bytes]) -> Wire:
        properties: UserProperties = tuple(
            (key, to_property(change(from_property(value))) if key == name else value) for key, value in wire.properties
        )
        return replace(wire, properties=properties)

    def _bad_wrap(self, wrap: Wrap) -> Wrap:
        """Spoils what a wrap hides; a coalition's lies are alike."""
        colluding = Behaviour.COLLUDE in self._behaviours
        noise = self._coalition.shift if colluding else self._rng.randbytes(32)
        spoiled = int.from_bytes(wrap.sealed) ^ int.from_bytes(noise)
        return wrap._replace(sealed=spoiled.to_bytes(len(wrap.sealed)))

    def _bad_value(self, share: Share) -> Share:
        return replace(share, value=self._rng.randbytes(len(share.value)))

    def _shifted(self, share: Share) -> Share:
        """Shifts a share by the coalition's number: shifted shares fit together, to a shifted secret."""
        shift = int.from_bytes(self._coalition.shift)
        return replace(share, value=(int.from_bytes(share.value) ^ shift).to_bytes(len(share.value)))

    def _framing(self, share: Share) -> Share:
        """Shifts only shares that came through the victim: all other columns speak for the liar."""
        bad = set(self._coalition.members.values())
        through = [(place.region, place.place) for place in share.label]
        before = through[:-1] if through[-1] in bad else through[:-2]  # last is the liar, or whom it sends to
        honest = [place for place in before if place not in bad]
        if honest and self._coalition.victim is None:
            self._coalition.victim = honest[self._rng.randrange(len(honest))]
        return self._shifted(share) if self._coalition.victim in before else share

    def _at_another_place(self, share: Share) -> Share:
        at = len(share.label) - 1 - self._rng.randrange(min(2, len(share.label)))
        return _relabelled(share, at, share.label[at]._replace(place=share.label[at].place % 3 + 1))


def _names(wire: Wire) -> list[str]:
    return [name for name, _ in wire.properties]


def _as_part(wire: Wire, part: str) -> UserProperties:
    return (*(p for p in wire.properties if p[0] != PROPERTY_PART), (PROPERTY_PART, part))


# ------------------------------------------------------------------------------------------ falsified labels


def _each_share(data: bytes, change: Callable[[Share], Share]) -> bytes:
    """Returns a frame of shares, each changed; unchanged if the changed shares fit no frame."""
    try:
        changed = {share.label: share for share in map(change, decode_shares(data))}
        return encode_shares(changed.values())
    except KeysError:
        return data


def each_wrap(data: bytes, change: Callable[[Wrap], Wrap]) -> bytes:
    """Returns a frame of wraps, each changed; unchanged if the changed wraps fit no frame."""
    try:
        key_id, wraps = decode_wraps(data)
        changed = [*map(change, wraps)]
        regions = dict.fromkeys((owner.region, owner.view) for (owner, _), _ in changed)
        return encode_wraps(key_id, [Hop(region, view, 1, 1) for region, view in regions], changed)
    except KeysError:
        return data


def _relabelled(share: Share, at: int, place: Place) -> Share:
    return replace(share, label=(*share.label[:at], place, *share.label[at + 1 :]))


def _of_another_column(share: Share) -> Share:
    return _relabelled(share, 0, share.label[0]._replace(place=share.label[0].place % 3 + 1))


def _through_another_region(share: Share) -> Share:
    return _relabelled(share, 0, share.label[0]._replace(region=share.label[0].region + 100))


def _of_another_view(share: Share) -> Share:
    return replace(share, label=tuple(place._replace(view=place.view + 1) for place in share.label))
