"""The version of the overlay in force, and the wires by which running members learn of a newer one
(docs/protocol.md §6.6).

    offer     opening(3: version, kind 15, flags 0)  policy version(8)  SHA-256 of the policy's body(32)
    ask       the same with flag 1: send me that version
    document  the same with flag 2, then the zlib-compressed canonical JSON of `Overlay.to_document()`

All three are wires on `$veil/overlay`. A member offers its version on every new link and after adopting; a neighbour
with an older version asks. A member asks a single neighbour at a time, beginning with the neighbour asked longest ago,
so that a liar offering and never sends costs at most `ASK_S`. An unasked document is dropped unread. A requested
document is checked from cheap to costly: stated version, size, number of values, the owner's signature over the
policy, then all the rest.

The policy's body holds a digest over views and members, so its digest names the whole version. Views change while a
node runs: endorsements of the neighbours (`endorsing`) put the next view in force, and the clock ends the former. A
version whose views or trees do not follow from ours is refused, whoever signed the version. Trees change by the clock
alone: the next tree comes into force and the former closes (`document.trees`). Issuer and calendar stay fixed while a
node runs: a version that changes them is kept and passed on, and counts after a restart; rights the version takes away
are gone at once (`document.narrowing`). A member that is given another role or region stops, and begins again in the
new place. Not here: the file and its pin (the shell's, on `Adopt`), the machines' own work.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import Any

from bridge.contract import Adopt, Adoption, Allowance, Blame, Count, Effect, Prove, Received, Send, Wire
from bridge.document import (
    Contradiction,
    NotProvedError,
    Overlay,
    OverlayError,
    SignedSwap,
    SwapNews,
    of_overlays,
    of_swaps,
)
from bridge.document.narrowing import narrowed
from bridge.document.region_view import Endorsement
from bridge.membership.endorsing import Endorser, told
from bridge.membership.own_place import moved, place_of, same_epochs, serves
from bridge.membership.swapping import (
    NEWS_BURST,
    NEWS_EVERY_S,
    SwapEndorser,
    is_known,
    news_since,
    question,
)
from bridge.membership.swapping import told as told_swaps
from keys.errors import BadFrame, BadSignature, KeysError, NotAuthorised, Replayed
from keys.frames import Kind, Reader, number, opening
from keys.identity import Identity

OVERLAY_TOPIC = "$veil/overlay"
OVERLAY_BYTES_MAX = 16 << 20  # a decompressed document: some 10,000 members; stops a zip bomb
OVERLAY_VALUES_MAX = 1 << 19  # 32 bytes a value, a true document has 50; 16 MiB of empty values take 400 MiB
FLAG_ASK = 0x01
FLAG_DOCUMENT = 0x02
ASK_S = 5.0  # the time that an asked neighbour has to send before the next is asked
DISTRUST_S = 600.0  # a neighbour that sent an invalid document is not asked for this time
DOCUMENT_BURST = 3  # documents that one link gets at once ...
DOCUMENT_EVERY_S = 10.0  # ... then one in this time: only a neighbour that asks without end pays
UNENDORSED_S = 5.0  # the same for a neighbour that sent views with too few endorsements so far
OFFER_AGAIN_S = 30.0  # a neighbour that named an older version is told again after this time


@dataclass(frozen=True, slots=True)
class OfferedVersion:
    """The version an offer names. `digest`: SHA-256 of the policy's body."""

    number: int
    digest: bytes

    @classmethod
    def of_overlay(cls, overlay: Overlay) -> OfferedVersion:
        return cls(overlay.policy.version, hashlib.sha256(overlay.policy.signed_bytes()).digest())

    def encode(self, flags: int = 0) -> bytes:
        return opening(Kind.OVERLAY_OFFER, flags) + number(self.number, 8) + self.digest


@dataclass(slots=True)
class _Peer:
    """A neighbour. `offered`: the newest version the neighbour named; `awaited`: asked, and the answer is still
    due.
    """

    documents: Allowance
    questions: Allowance
    swaps: Allowance
    swaps_at: float = float("inf")  # the time to tell all swaps
    offered: OfferedVersion | None = None
    asked_at: float = float("-inf")
    distrusted_until: float = float("-inf")
    told_at: float = 0.0
    awaited: bool = False


class OverlayKeeper:
    """The keeper of the version in force (`overlay`) and of the newest version known, which differs if it needs a
    restart.
    """

    def __init__(self, overlay: Overlay, name: str, identity: Identity | None = None) -> None:
        """Takes the `identity` of a replica, which endorses views; None for other members."""
        self._name = name
        self._moved = False
        self._enforce(overlay)
        self._endorser = Endorser(name, identity)
        self.swaps = SwapEndorser(name, identity)
        self._now = 0.0  # the time of the last event
        self._endorser.adopt_overlay(overlay, 0.0)  # at the first tick: endorsements that a stop prevented
        self._begun = False
        self._latest = OfferedVersion.of_overlay(overlay)
        self._document = canonical(overlay)
        self._place = place_of(overlay, name)  # fixed while we run
        self.level: frozenset[str] = frozenset()
        """Neighbours that named a version, and none newer than we know."""
        self._peers: dict[str, _Peer] = {}  # neighbours whose link is up ...
        self._away: dict[str, _Peer] = {}  # ... or was: to reconnect refills no allowance and restores no trust
        self._pending: tuple[str, float] | None = None  # the asked neighbour, and the end of our wait
        self._equivocated = False
        self._due: float | None = None  # the deadline as it was worked out last ...
        self._is_due_known = False  # ... if nothing happened since

    def _enforce(self, overlay: Overlay) -> None:
        """Puts an overlay in force. `removed`: True if it lists us nowhere or in another place; then we seal and pass
        on nothing.
        """
        self.overlay, self._is_due_known = overlay, False
        self.removed = self._moved or not serves(overlay, self._name)

    @property
    def versions(self) -> dict[str, int]:
        """The number of the version each connected neighbour named; neighbours that named none are absent."""
        return {name: peer.offered.number for name, peer in self._peers.items() if peer.offered is not None}

    def is_ahead(self, peer: str) -> bool:
        """Returns True if a neighbour named a newer version than we know, so that its views may differ from ours."""
        known = self._peers.get(peer)
        return known is not None and known.offered is not None and known.offered.number > self._latest.number

    def may_be_ahead(self, peer: str, now: float) -> bool:
        """Returns True if a neighbour named a newer version than we know or has named none yet. False for a neighbour
        we distrust since it sent an invalid document.
        """
        known = self._peers.get(peer)
        if known is None or known.distrusted_until - now > UNENDORSED_S:
            return False
        return known.offered is None or known.offered.number > self._latest.number

    def _compare(self) -> None:
        """Compares the versions that neighbours named with the newest known."""
        named = [(name, peer.offered) for name, peer in self._peers.items()]
        self.level = frozenset([name for name, offered in named if offered and offered.number <= self._latest.number])

    # --------------------------------------------------------------------------------------------- events

    def link_up(self, peer: str, now: float) -> list[Effect]:
        self._is_due_known = False
        known = self._peers.get(peer) or self._away.pop(peer, None)
        documents, news = (DOCUMENT_BURST, DOCUMENT_EVERY_S, now), (NEWS_BURST, NEWS_EVERY_S, now)
        self._peers[peer] = known or _Peer(Allowance(*documents), Allowance(*news), Allowance(*news))
        self._peers[peer].told_at, self._peers[peer].offered, self._peers[peer].awaited = now, None, False
        self._peers[peer].swaps_at = now
        self._compare()
        return [self._offer(peer), *self._endorser.link_up(peer, self.overlay), *self._tell_swaps(now)]

    def link_down(self, peer: str, now: float) -> list[Effect]:
        self._is_due_known = False
        if peer in self._peers:
            self._away[peer] = self._peers.pop(peer)
            self._compare()
        if self._pending is not None and self._pending[0] == peer:
            self._pending = None
        return self._ask_newer(now)

    def take_overlay_wire(self, event: Received, now: float) -> list[Effect]:
        """Takes a wire on `OVERLAY_TOPIC`. An invalid wire is dropped, counted and charged to the link."""
        self._is_due_known = False
        peer = self._peers.get(event.peer)
        if peer is None:
            return []
        try:
            frame = Reader(event.wire.payload)
            flags = frame.opening(Kind.OVERLAY_OFFER, FLAG_ASK | FLAG_DOCUMENT)
            version = OfferedVersion(frame.number(8), frame.take_bytes(32))
            if flags == FLAG_DOCUMENT:
                return self._answered(event.peer, peer, version, frame.take_rest(), now)
            frame.expect_end()
            if flags == FLAG_ASK:
                return self._answer_asker(event.peer, peer, now)
            if flags:
                raise BadFrame("an offer is not a question and a document at once")
            peer.offered = version
            self._compare()
            agrees = version == self._latest == OfferedVersion.of_overlay(self.overlay)
            return self._ask_newer(now) + (self._endorser.agrees(event.peer, self.overlay) if agrees else [])
        except KeysError as error:
            return [Count("refused", 1, type(error).__name__), Blame(event.peer, False, str(error))]

    def offered(self, document: bytes, now: float) -> list[Effect]:
        """Takes another overlay file the shell found. Raises OverlayError, in a line, if the version cannot be
        adopted.
        """
        self._is_due_known = False
        parsed = _parse(document)
        overlay = Overlay.from_document(parsed, int(now * 1000), self.overlay.owner)
        self._check_name(overlay)
        version = OfferedVersion.of_overlay(overlay)
        if version == self._latest:
            return self._hear(overlay.swap_news, "", now)
        overlay = overlay.carrying(self.overlay)
        if version.number == self._latest.number:
            raise OverlayError(
                f"the owner signed two overlays of version {version.number}; ask the owner for a newer one"
            )
        if version.number < self._latest.number:
            raise OverlayError(
                f"overlay file is of version {version.number}, version {self._latest.number} is known; "
                "fetch the newest from the owner"
            )
        if not overlay.may_follow(self.overlay):
            raise OverlayError(
                f"version {version.number} joins regions otherwise under an old number of the tree; the owner has to "
                "sign it on top of what was signed last"
            )
        strange = overlay.unendorsed(self.overlay)
        if strange:
            raise OverlayError(
                f"version {version.number} changes region {strange[0]}, and too few of its replicas agreed; wait for "
                "them, or restart with that file if its owner says that it is right"
            )
        return self._take_newer(overlay, version, now)

    def endorsed(self, event: Received, now: float) -> list[Effect]:
        """Takes an endorsement: a wire on `VIEWS_TOPIC`. Passes on a valid endorsement that is new."""
        self._is_due_known = False
        try:
            endorsement = Endorsement.decode(event.wire.payload)
            latest = self.overlay.latest.get(endorsement.region)
            if endorsement.member in self.overlay.endorsers(endorsement.region):
                return []
            if latest is None or endorsement.number != latest.number or self.is_ahead(event.peer):
                return [Count("endorsements_unknown")]  # of a former version, or of a version to come
            overlay = self.overlay.endorsed([endorsement], now)
            if overlay is self.overlay:
                raise BadSignature(f"an endorsement of another view {latest.number}, or not by {endorsement.member}")
        except KeysError as error:
            return [Count("refused", 1, type(error).__name__), Blame(event.peer, False, str(error))]
        return told([endorsement], self._peers.keys() - {event.peer}) + self._put_in_force(overlay)

    def swapped(self, event: Received, now: float) -> list[Effect]:
        """Takes a wire on `SWAPS_TOPIC`: swaps and endorsements, or the question for all of them. Passes on valid
        news.
        """
        self._is_due_known = False
        peer = self._peers.get(event.peer)
        if peer is None:
            return []
        try:
            news = SwapNews.decode(event.wire.payload)
            if not news:
                answers = peer.documents.spend_one(now)
                return told_swaps(self.overlay.swap_news, [event.peer]) if answers else [Count("swaps_withheld")]
            effects = self._hear(news, event.peer, now)
        except KeysError as error:
            return [Count("refused", 1, type(error).__name__), Blame(event.peer, False, str(error))]
        if effects or is_known(news, self.overlay):
            return effects
        asks = question(event.peer) if peer.questions.spend_one(now) else ()
        return [Count("swaps_unknown") if self.is_ahead(event.peer) else Count("refused", 1, "swap"), *asks]

    def _tell_swaps(self, now: float) -> list[Effect]:
        """Tells all swaps counting to each neighbour that linked up. A link going up and down often is told later, so
        that reconnecting costs us no more.
        """
        effects: list[Effect] = []
        for name, peer in self._peers.items():
            if peer.swaps_at <= now:
                told = peer.swaps.spend_one(now)
                peer.swaps_at = float("inf") if told else now + NEWS_EVERY_S
                effects += told_swaps(self.overlay.swap_news, [name]) if told else []
        return effects

    def offer_swap(self, swap: SignedSwap, now: float) -> list[Effect]:
        """Takes a swap we signed as the organiser; the swap is kept before anybody hears of it."""
        self._is_due_known = False
        return self._hear(SwapNews((swap,)), "", now)

    def _hear(self, news: SwapNews, teller: str, now: float) -> list[Effect]:
        """Takes news of swaps and passes on the new part to all neighbours but the teller. Raises BadSignature."""
        before, overlay = self.overlay, self.overlay.hears(news, now)
        if overlay is before:
            return []
        effects: list[Effect] = [Count("swaps_heard")]
        if overlay.proof and not before.proof:
            one, other = overlay.proof
            effects.append(Blame(one.author, True, f"signed two swaps of number {one.number}"))
            effects += _proved(of_swaps(overlay.owner, one, other))
        ours = any(each.member == self._name for each in news_since(before, overlay).endorsements)
        effects += self._put_in_force(
            overlay, keep=ours or overlay.offered != before.offered or overlay.proof != before.proof
        )
        self.swaps.adopt_overlay(overlay, now)
        return effects + told_swaps(news_since(before, overlay), self._peers.keys() - {teller})

    def rotate_identity(self, identity: Identity, now: float) -> None:
        self._is_due_known = False
        self._endorser.rotate_identity(identity, self.overlay, now)
        self.swaps.rotate_identity(identity)

    def tick(self, now: float) -> list[Effect]:
        self._is_due_known = False
        self._now = now
        if not self._begun:
            self._begun = True
            self.swaps.adopt_overlay(self.overlay, now)
        effects = self._ask_newer(now) + self._tell_swaps(now)
        effects += self._hear(SwapNews((), self.swaps.due_endorsements(self.overlay, now)), "", now)
        ours = self._endorser.due_endorsements(self.overlay, now)
        overlay = self.overlay.endorsed(ours, now)
        if overlay is not self.overlay:
            effects += told(ours, self._peers) + self._put_in_force(overlay)
        effects += self._put_in_force(self.overlay.as_of(now))
        for name, peer in self._peers.items():
            if self._is_behind(peer) and now >= peer.told_at + OFFER_AGAIN_S:
                peer.told_at = now
                effects.append(self._offer(name))
        return effects

    @property
    def next_deadline(self) -> float | None:
        """The next time at which `tick` is wanted, worked out once after each event of the keeper."""
        if not self._is_due_known:
            self._due, self._is_due_known = self._find_deadline(), True
        return self._due

    def _find_deadline(self) -> float | None:
        apart = [peer for peer in self._peers.values() if peer.offered not in (None, self._latest)]
        deadlines = [peer.told_at + OFFER_AGAIN_S for peer in apart if self._is_behind(peer)]
        deadlines += [peer.swaps_at for peer in self._peers.values() if peer.swaps_at < float("inf")]
        others = self.overlay.next_closing, self._endorser.next_deadline
        deadlines += [at for at in (*others, self.swaps.next_deadline(self.overlay, self._now)) if at is not None]
        ready = [_ready_at(peer) for peer in apart if self._is_wanted(peer)]
        deadlines += ready if self._pending is None else [self._pending[1]]
        return min(deadlines, default=None)

    # -------------------------------------------------------------------------------------------- asking

    def _is_behind(self, peer: _Peer) -> bool:
        return peer.offered is not None and peer.offered.number < self._latest.number

    def _is_wanted(self, peer: _Peer) -> bool:
        """Returns True if a neighbour offers a newer version, or a different document under our number: proof that the
        owner signed two.
        """
        offered = peer.offered
        if offered is None or offered.number != self._latest.number:
            return offered is not None and offered.number > self._latest.number
        return offered != self._latest and not self._equivocated

    def _ask_newer(self, now: float) -> list[Effect]:
        """Asks a single neighbour that has a newer version, unless another was asked less than `ASK_S` ago."""
        if self._pending is not None and now < self._pending[1]:
            return []
        self._pending = None
        ready = [(peer.asked_at, name) for name, peer in self._peers.items()
                 if self._is_wanted(peer) and now >= _ready_at(peer)]  # fmt: skip
        if not ready:
            return []
        peer = self._peers[name := min(ready)[1]]
        assert peer.offered is not None
        peer.asked_at, peer.awaited = now, True
        self._pending = (name, now + ASK_S)
        return [Send(name, Wire(OVERLAY_TOPIC, peer.offered.encode(FLAG_ASK)))]

    def _answer_asker(self, name: str, peer: _Peer, now: float) -> list[Effect]:
        """Answers a neighbour that asked, with the newest version we have."""
        if not peer.documents.spend_one(now):
            return [Count("overlays_withheld", 1, name)]
        payload = self._latest.encode(FLAG_DOCUMENT) + zlib.compress(self._document)
        return [Send(name, Wire(OVERLAY_TOPIC, payload)), Count("overlays_sent")]

    def _answered(self, name: str, peer: _Peer, stated: OfferedVersion, packed: bytes, now: float) -> list[Effect]:
        """Takes a document we asked for, even if other neighbours were asked meanwhile: a slow link is no lie, and
        asking in turn would miss every answer. Raises keys errors; after an error the neighbour is not asked for
        `DISTRUST_S`.
        """
        if not peer.awaited:
            raise Replayed("an overlay that was not asked for")
        peer.awaited = False
        if self._pending is not None and self._pending[0] == name:
            self._pending = None
        if stated.number < self._latest.number or stated == self._latest:
            return self._ask_newer(now)  # another neighbour was faster
        peer.distrusted_until = now + DISTRUST_S
        overlay = self._verified(_unpacked(packed), stated, now)
        peer.distrusted_until = float("-inf")
        grown = overlay.may_follow(self.overlay) or stated.number == self._latest.number
        strange = overlay.unendorsed(self.overlay) + ([] if grown else ["tree"])
        if strange:
            peer.distrusted_until = now + UNENDORSED_S
            return [Count("views_refused", 1, strange[0]), *self._ask_newer(now)]
        if stated.number == self._latest.number:
            self._equivocated = True
            why = f"the owner signed two overlays of version {stated.number}; ours stays"
            ours = Overlay.policy_of(_parse(self._document), self.overlay.owner)
            proved = _proved(of_overlays(overlay.owner, ours, overlay.policy))
            return [Count("overlay_equivocations"), Blame(name, False, why), *proved, *self._ask_newer(now)]
        return self._take_newer(overlay, stated, now)

    def _verified(self, packed: bytes, stated: OfferedVersion, now: float) -> Overlay:
        try:
            document = _parse(packed)
            policy = Overlay.policy_of(document, self.overlay.owner)
            if OfferedVersion(policy.version, hashlib.sha256(policy.signed_bytes()).digest()) != stated:
                raise BadSignature("an overlay of another version than its wire says")
            overlay = Overlay.from_document(document, int(now * 1000), self.overlay.owner)
            self._check_name(overlay)
            return overlay.carrying(self.overlay)
        except OverlayError as error:
            raise NotAuthorised(str(error)) from None

    def _check_name(self, overlay: Overlay) -> None:
        """Raises OverlayError for another overlay of our owner: signatures name no overlay, so a key has one alone."""
        name, ours = overlay.policy.overlay, self.overlay.policy.overlay
        if name != ours:
            raise OverlayError(f"this file is of overlay {name}, we are in {ours}; each takes an identity of its own")

    # ------------------------------------------------------------------------------------------ adopting

    def _take_newer(self, overlay: Overlay, version: OfferedVersion, now: float) -> list[Effect]:
        """Takes a newer version the owner signed, in force at once or after a restart, and offers it to the
        neighbours.
        """
        overlay = overlay.following(self.overlay, now)
        outcome = self._outcome(overlay)
        self._latest, self._document, self._pending, self._equivocated = version, canonical(overlay), None, False
        self._compare()
        self._moved = moved(overlay, self._name, self._place)
        self._enforce(narrowed(self.overlay, overlay) if outcome is Adoption.RESTART else overlay)
        self._endorser.adopt_overlay(self.overlay, now)
        self.swaps.adopt_overlay(self.overlay, now)
        effects: list[Effect] = [Adopt(overlay, self._document, outcome), Count("overlays_adopted", 1, outcome.value)]
        for name in [name for name in self._peers if name not in overlay.members]:
            del self._peers[name]
        self._away = {name: peer for name, peer in self._away.items() if name in overlay.members}
        for name, peer in self._peers.items():
            peer.told_at = now
            effects.append(self._offer(name))
        return effects + self._ask_newer(now)

    def _put_in_force(self, overlay: Overlay, keep: bool = False) -> list[Effect]:
        """Puts a changed state of the version in force: more endorsements, or ended views and trees removed. The
        machines follow if views or trees changed. `keep`: the file must hold the change before any neighbour hears of
        it.
        """
        before = self.overlay
        if overlay is before:
            return []
        self._enforce(overlay)
        if OfferedVersion.of_overlay(overlay) == self._latest:
            self._document = canonical(overlay)
        same_views = all(overlay.open_views(region) == before.open_views(region) for region in overlay.latest)
        changed = not same_views or overlay.trees != before.trees
        if not changed and not keep:
            return []
        outcome = Adoption.LIVE if serves(overlay, self._name) else Adoption.REMOVED
        return [Adopt(overlay, self._document, outcome), *([Count("views_changed")] if changed else [])]

    def _outcome(self, overlay: Overlay) -> Adoption:
        if not serves(overlay, self._name):
            return Adoption.REMOVED
        # The overlay in force may list us no more, so our place is taken from the start of the run.
        has_moved = moved(overlay, self._name, self._place)
        return Adoption.RESTART if has_moved or not same_epochs(self.overlay, overlay) else Adoption.LIVE

    def _offer(self, peer: str) -> Send:
        return Send(peer, Wire(OVERLAY_TOPIC, self._latest.encode()))


def _proved(evidence: Contradiction) -> list[Effect]:
    """Returns the effect that keeps evidence; none for two statements that prove nothing to others."""
    try:
        return [Prove(evidence, evidence.check_proof())]
    except NotProvedError:
        return []


def canonical(overlay: Overlay) -> bytes:
    """Returns the bytes of the overlay file: a version has a single spelling."""
    return json.dumps(overlay.to_document(), sort_keys=True, separators=(",", ":")).encode()


def _ready_at(peer: _Peer) -> float:
    return max(peer.asked_at + ASK_S, peer.distrusted_until)


def _unpacked(packed: bytes) -> bytes:
    """Decompresses a document. Raises BadFrame if the zlib stream is invalid, cut off, or longer than
    `OVERLAY_BYTES_MAX` when decompressed.
    """
    stream = zlib.decompressobj()
    try:
        document = stream.decompress(packed, OVERLAY_BYTES_MAX + 1)
    except zlib.error:
        raise BadFrame("an overlay is not compressed as it should be") from None
    if len(document) > OVERLAY_BYTES_MAX or not stream.eof or stream.unused_data:
        raise BadFrame(f"an overlay is cut off, has a tail or more than {OVERLAY_BYTES_MAX} bytes")
    return document


def _parse(document: bytes) -> dict[str, Any]:
    """Parses an overlay file. Raises OverlayError if the file has too many values or is no JSON object."""
    if sum(map(document.count, (b",", b"[", b"{"))) > OVERLAY_VALUES_MAX:
        raise OverlayError(f"overlay file has over {OVERLAY_VALUES_MAX} values; make it with `veilmq overlay sign`")
    try:
        parsed = json.loads(document)
    except (ValueError, RecursionError):
        raise OverlayError("overlay file is not JSON; make it with `veilmq overlay sign`") from None
    if not isinstance(parsed, dict):
        raise OverlayError("overlay file is not a JSON object; make it with `veilmq overlay sign`")
    return parsed
