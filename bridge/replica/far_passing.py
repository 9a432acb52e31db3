"""Passing on at one replica: far requests towards the asked replica, and far pages back.

A request goes the reader's way, a page back on the links of the request. Towards each replica few requests are open at
once, shared fairly by readers: so pages take the rest of live traffic, and no reader spends the links of others. The
asked replica has `recording` read the page, and seals the page to the reader. Not here: frames
(`contract.history`), ways (`reader.far_asking`).

Source: docs/protocol-options.md §12.6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from bridge.contract import (
    DOMAIN_FAR_PAGE,
    DOMAIN_FAR_REQUEST,
    FAR_PAGE_BYTES,
    FAR_TOPIC,
    HISTORY_TOPIC,
    Allowance,
    Count,
    Effect,
    FairTable,
    FarPage,
    FarRequest,
    HistoryRequest,
    Received,
    Send,
    Wire,
    earliest,
    is_far_request,
    number_of,
)
from bridge.document import Overlay
from bridge.replica.recording import Recorder
from bridge.topology import Routes
from bridge.wire import refused, verify_author
from keys.envelope import SequenceWindow
from keys.errors import BadFrame, KeysError, NotAuthorised, TooOften
from keys.identity import Identity, Role
from keys.sealedbox import is_hybrid

OPEN_MAX = 8  # requests towards one replica whose pages are awaited
WAITING_MAX = 64  # requests that wait for one replica; of the reader with most the oldest goes
ASKED_MAX = 256  # requests for our own history that wait; of the reader with most the oldest goes
OPEN_S = 5.0  # by then the reader takes another way
HELD_S = 1.0  # open so long, it makes room for a reader with fewer: else silent replicas and one reader held all
FORGOTTEN_S = 600.0  # a reader that asked nothing for so long is forgotten
ASKS_BURST, ASKS_EVERY_S = 256, 1 / 128  # requests of one reader on one link: 8 MiB of pages a second
TAKEN_MOST = 2  # as many are taken from a link: so no honest replica passes on more than the next one takes
_READERS = frozenset({Role.GATEWAY, Role.INGEST})


@dataclass(slots=True)
class _Lane:
    """Requests towards one replica: by digest, open and waiting ones, each with sender and end. `look_at`: when there
    may be room for a waiting one.
    """

    look_at: float | None = None
    open: dict[bytes, tuple[FarRequest, str, float]] = field(default_factory=dict)
    waiting: FairTable[bytes, tuple[FarRequest, str, float]] = field(default_factory=lambda: FairTable(WAITING_MAX))

    def next_request(self, now: float) -> tuple[bytes, FarRequest, str] | None:
        """Takes out the waiting request that is passed on now: of the reader with fewest open ones; None without one,
        or without room. Of a reader with more, the oldest that is open for long makes room.
        """
        has = Counter(request.reader for request, _, _ in self.open.values())
        digest, (request, peer, _) = min(self.waiting.items(), key=lambda item: has[item[1][0].reader])
        if len(self.open) >= OPEN_MAX:
            began = now - HELD_S + OPEN_S
            readers = {each: one.reader for each, (one, _, until) in self.open.items() if until <= began}
            held = [each for each, reader in readers.items() if has[reader] > has[request.reader] + 1]
            if not held:
                return None
            del self.open[max(held, key=lambda each: has[readers[each]])]
        self.waiting.pop(digest)
        return digest, request, peer

    def plan_look(self, now: float) -> None:
        """Works out when to look again."""
        ends = [until for _, _, until in self.open.values()] if len(self.waiting) else []
        times = [*ends, *(until - OPEN_S + HELD_S for until in ends)]
        self.look_at = min((at for at in times if at > now), default=None)


@dataclass(slots=True)
class _Reader:
    """A reader with a late request, and the reader's numbers so far."""

    asked_at: float = inf
    numbers: SequenceWindow = field(default_factory=lambda: SequenceWindow(1))


class FarPassing:
    """The far requests and pages at a replica. `routes` are the forwarder's; `recorder` answers."""

    def __init__(self, overlay: Overlay, identity: Identity, routes: Routes, recorder: Recorder) -> None:
        self._overlay, self._identity, self._routes, self._recorder = overlay, identity, routes, recorder
        self._lanes: dict[str, _Lane] = {}
        self._readers: dict[str, _Reader] = {}
        # Requests of each reader that each link brings, and those that it takes. Whoever asks by all ways at once is
        # stopped before the link of a replica that passes on; no link has to answer for what other links brought.
        self._brought: dict[tuple[str, str], Allowance] = {}
        self._taken: dict[tuple[str, str], Allowance] = {}
        # Requests for our own history that the recorder has not answered yet, by reader and number of the request.
        self._asked: FairTable[tuple[str, int], tuple[FarRequest, str]] = FairTable(ASKED_MAX)

    def rotate_identity(self, identity: Identity) -> None:
        """Takes another key to sign with."""
        self._identity = identity

    def adopt_overlay(self, overlay: Overlay) -> None:
        """Takes another version of the overlay, and forgets who is no member any more."""
        self._overlay = overlay
        self._lanes = {peer: lane for peer, lane in self._lanes.items() if peer in overlay.members}
        self._readers = {name: reader for name, reader in self._readers.items() if name in overlay.members}
        self._brought = {pair: each for pair, each in self._brought.items() if overlay.members.keys() >= {*pair}}
        self._taken = {pair: each for pair, each in self._taken.items() if overlay.members.keys() >= {*pair}}

    def take_far_wire(self, event: Received, now: float) -> list[Effect]:
        """Takes a far request or a far page."""
        try:
            if is_far_request(event.wire.payload):
                return self._request(event, now)
            return self._page(event, now)
        except KeysError as error:
            return refused(event.peer, error)

    # ---------------------------------------------------------------------------------------- there

    def _request(self, event: Received, now: float) -> list[Effect]:
        request = FarRequest.decode(event.wire.payload)
        before, behind = request.around(self._routes.name)
        self._check_way(request, event.peer, before)
        reader = self._readers.get(request.reader)
        if reader is None or now - reader.asked_at > FORGOTTEN_S:
            reader = _Reader()
        if request.number in reader.numbers:
            return [Count("far_repeated")]
        inner = HistoryRequest.decode(request.request)
        self._check_reader(request, inner, event.peer, now)
        reader.asked_at = now
        reader.numbers.seen(request.number)
        self._readers[request.reader] = reader
        if behind and not _allows(self._taken, request.reader, behind, 1, now):
            return [Count("far_too_many")]
        if behind:
            lane = self._lanes.setdefault(behind, _Lane())
            lane.waiting.put(request.digest, request.reader.encode(), (request, event.peer, now + OPEN_S))
            return self._pass_on(behind, lane, now)
        self._asked.put((request.reader, inner.number), request.reader.encode(), (request, event.peer))
        return self.answers(self._recorder.queue_request(request.reader, inner, now))

    def _check_way(self, request: FarRequest, peer: str, before: str) -> None:
        """Raises NotAuthorised for a request that came, or would go, another way than along the tree."""
        routes, members = self._routes, self._overlay.members
        if not members.keys() >= {request.reader, *request.way}:
            raise _late(NotAuthorised("a far request that names nobody"))
        role = members[request.reader].certificate.role
        if peer != before or role not in _READERS or not routes.is_replica(request.asked):
            raise NotAuthorised(f"{peer} brings a far request of {request.reader}, who is somebody else")
        home, end = routes.region_of(request.reader), routes.region_of(request.asked)
        ways = [tuple(routes.topology.way(home, end, tree.number)) for tree in self._overlay.trees.open]
        if not all(map(routes.is_replica, request.way)) or tuple(map(routes.region_of, request.way)) not in ways:
            raise _late(NotAuthorised("a far request that does not go along the tree"))

    def _check_reader(self, request: FarRequest, inner: HistoryRequest, peer: str, now: float) -> None:
        """Raises BadSignature, BadFrame, Expired, TooOften; NotAuthorised for a reader without the right now."""
        if inner.most_bytes > FAR_PAGE_BYTES and not (inner.eras or inner.digest):
            raise BadFrame(f"a far request for {inner.most_bytes} bytes; at most {FAR_PAGE_BYTES}")
        if self._overlay.policy.quantum_safe and not is_hybrid(request.box_key):
            raise _late(BadFrame(f"{request.reader} wants pages in boxes that a quantum computer opens"))
        if not self._recorder.may_ask(request.reader, inner, now):
            raise _late(NotAuthorised(f"{request.reader} may not read the history that it asks for"))
        if not _allows(self._brought, request.reader, peer, TAKEN_MOST, now):
            raise _late(TooOften(f"{request.reader} asks more than a reading needs"))
        member = self._overlay.members[request.reader]
        verify_author(member, DOMAIN_FAR_REQUEST, request.signed_bytes(), request.signature, now)

    def _pass_on(self, behind: str, lane: _Lane, now: float) -> list[Effect]:
        """Passes waiting requests on, as far as there is room."""
        lane.open = {digest: each for digest, each in lane.open.items() if each[2] > now}
        for digest in [digest for digest, (_, _, until) in lane.waiting.items() if until <= now]:
            lane.waiting.pop(digest)
        effects: list[Effect] = []
        while len(lane.waiting) and (found := lane.next_request(now)) is not None:
            digest, request, peer = found
            lane.open[digest] = request, peer, now + OPEN_S
            if behind in self._routes.up:
                effects.append(Send(behind, Wire(FAR_TOPIC, request.encode())))
        lane.plan_look(now)
        return effects + ([Count("far_passed", len(effects))] if effects else [])

    # ---------------------------------------------------------------------------------------- and back

    def _page(self, event: Received, now: float) -> list[Effect]:
        page = FarPage.decode(event.wire.payload)
        lane = self._lanes.get(event.peer)
        waits = None if lane is None else lane.open.get(page.digest)
        if lane is None or waits is None:
            return [Count("far_unasked")]
        request, back, _ = waits
        asked = self._overlay.members.get(request.asked)
        if asked is not None:
            verify_author(asked, DOMAIN_FAR_PAGE, page.signed_bytes(), page.signature, now)
        del lane.open[page.digest]
        effects: list[Effect] = [Send(back, event.wire)] if back in self._routes.up and asked is not None else []
        return effects + self._pass_on(event.peer, lane, now)

    def answers(self, effects: Sequence[Effect]) -> list[Effect]:
        """Returns the recorder's effects, pages for readers of other regions signed, sealed and on their way."""
        found: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send) and effect.wire.topic == HISTORY_TOPIC:
                waits = self._asked.pop((effect.peer, number_of(effect.wire.payload)))
                if waits is not None and waits[1] in self._routes.up:
                    page = FarPage.for_request(waits[0], effect.wire.payload, self._identity)
                    found.append(Send(waits[1], Wire(FAR_TOPIC, page.encode())))
                if waits is not None or effect.peer not in self._routes.up:
                    continue
            found.append(effect)
        return found

    # ---------------------------------------------------------------------------------------- time

    def tick(self, now: float) -> list[Effect]:
        """Passes on requests that waited for others whose pages did not come."""
        return [effect for behind, lane in self._lanes.items() for effect in self._pass_on(behind, lane, now)]

    @property
    def next_deadline(self) -> float | None:
        return earliest(*(lane.look_at for lane in self._lanes.values()))


def _allows(of: dict[tuple[str, str], Allowance], reader: str, link: str, times: int, now: float) -> bool:
    """Takes a request of a reader on a link from its allowance, so many times as large as a reading needs."""
    allowance = of.get((reader, link))
    if allowance is None:
        allowance = of[reader, link] = Allowance(times * ASKS_BURST, ASKS_EVERY_S / times, now)
    return allowance.spend_one(now)


def _late(error: KeysError) -> KeysError:
    error.may_be_late = True
    return error
