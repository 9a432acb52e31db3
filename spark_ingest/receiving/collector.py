"""The collector: takes pieces from the replicas of the home region, gives whole publications for the spool.

START HERE for the receiving side. A piece is a single MQTT message of a replica: signed header, perhaps content,
perhaps key header and shares. `bridge.reader.Intake` decides which pieces are believed, as at every gateway: before a
piece is kept, waited for or counted against a publisher, its signature and its publisher's right to the topic are
verified. A publication is *whole* with a copy of the content fitting the signed digest, k shares fitting the
publisher's commitments and an epoch key that executors have (`learn`); the collector itself needs no key. A
publication that is not whole after `incomplete_s` is spooled with the reason, so that a dead replica, a liar or an
absent key service can neither fill the senders' windows nor hide a publication; if it becomes whole later, it is
spooled again.

Pure: no socket, file, thread or clock. A piece may be acknowledged only after the group with its publication is
on disk (`note_written`); refused and superfluous pieces are acknowledged at once. Not here: order on a topic
(rows carry sequence and time).

Pieces that are refused for want of a right: the version of the overlay giving the right may be on its way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import NamedTuple

from bridge.contract import CHAR_BYTES, Blame, Count, EarlyPolicy, EarlyRoom, Effect, LinkGuard, Prove, Send, Wire
from bridge.document import Overlay
from bridge.reader import Intake, misfit
from bridge.wire import PROPERTY_PART, Admitted, refused
from gateway.overlay import SESSION_EXPIRY_S, Publish
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, KeyName, Mode
from keys.errors import BadContent, KeysError, NotAuthorised
from spark_ingest.receiving.division import Part
from spark_ingest.receiving.publications import HeldOverflowError, Publications
from spark_ingest.receiving.sealings import UNVOUCHED, WHOLE, Ack, Form, Group, State, call_each
from spark_ingest.receiving.seen import Seen
from spark_ingest.receiving.usable_keys import GrantedKeys, KShares, Usable, material_of, restore
from spark_ingest.spool import SpooledKey

EARLY_S = 10.0
EARLY_PIECES = 2048  # of the 4,096 that a replica may have under way
EARLY_BYTES = 64 << 20  # of one replica's: content, properties and topics


class EarlyPiece(NamedTuple):
    """A received piece, and the time of its arrival."""

    replica: str
    topic: str
    payload: bytes
    properties: Sequence[tuple[str, str]]
    ack: Ack
    since: float

    @property
    def size(self) -> int:
        """The bytes of the piece. Its topic and properties are unverified and may be long."""
        texts = (self.topic, *(text for pair in self.properties for text in pair))
        return len(self.payload) + CHAR_BYTES * sum(map(len, texts))


def early_pieces() -> EarlyRoom[object, EarlyPiece]:
    """Returns a room of early pieces, in which each replica has a part of its own."""
    policy = EarlyPolicy(inf, 0, own_bytes=EARLY_BYTES, own_count=EARLY_PIECES, waits_s=EARLY_S)
    return EarlyRoom(policy)


def keep_piece(room: EarlyRoom[object, EarlyPiece], piece: EarlyPiece) -> bool:
    """Keeps a piece; returns False if its replica's part is full."""
    return room.keep_value(object(), piece.replica.encode(), piece, piece.size, piece.since) is not None


class SpoolCollector:
    """A merger of the pieces that one receiver gets. `receive` and `do_due_work`, then `take_group`, write,
    `note_written`.
    """

    def __init__(
        self,
        overlay: Overlay,
        home: int,
        *,
        seen: Seen | None = None,
        keys: Iterable[SpooledKey] = (),
        incomplete_s: float = 10.0,
        part: Part | None = None,
        acknowledge: Callable[[Sequence[Ack]], None] = call_each,
        live: SpoolCollector | None = None,
    ) -> None:
        """Takes the overlay and `home`, our region.

        `keys`: known to an earlier process. `part`: the publications for this receiver, if there are other receivers;
        pieces
        of other parts are acknowledged. `acknowledge`: gets the `ack` of each piece that owes the disk nothing. `live`:
        the collector of the same spool beside which this one takes past publications.
        """
        self._part = part
        self._acknowledge = acknowledge
        self._intake: Intake[Usable] = Intake(overlay, home, KShares())
        self._keys = self._intake.keys
        restore(self._keys, keys)
        self.granted = GrantedKeys()
        self.home = home
        lineages = self._intake.lineages
        if live is None:
            self.seen = seen or Seen()
            self.seen.goes_by(lineages)
        else:  # publications are those of the spool, under its names of authors
            self.seen, lineages = live.seen, live.seen.lineages or lineages
        self._has_begun = live is not None
        self._links, self._early = LinkGuard(), early_pieces()
        self._asks: list[Send] = []
        self._proved: list[Prove] = []
        self.figures: Counter[tuple[str, str]] = Counter() if live is None else live.figures
        """(name of a figure, replica or empty): what was counted."""
        self._publications = Publications(
            self._missing, partial(material_of, self._keys), self._count_figure, self.seen, lineages, incomplete_s
        )
        if live is not None:
            self._publications.is_beside = live._publications.is_beside = True

    @property
    def doubt(self) -> str | None:
        """The evidence of publishers against our clock, if any: apparent replays are held until the clock is
        believed.
        """
        return self._publications.heard.doubt

    def vouch(self, vouched: bool) -> None:
        """Tells if most replicas have a clock like ours, so that publishers need not be asked. The initial value is
        True.
        """
        self._publications.heard.vouched = vouched

    @property
    def overlay(self) -> Overlay:
        """The version in force."""
        return self._intake.overlay

    def adopt_overlay(self, overlay: Overlay, now: float) -> None:
        """Adopts another version of the overlay, or other views of it, with unchanged regions."""
        self._links.forget_all_but(overlay.replicas(self._intake.home))
        self._news(*self._intake.adopt_overlay(overlay, now))
        for early in self._early.take_all():
            self._receive(*early[:-1], now, early.since)
        self._settle_owed()

    def _note_begin(self, now: float) -> None:
        """Notes the begin of this process at the first event.

        Replicas keep pieces as long as our sessions live, and the rows written since the begin are known: an older
        publication
        that is unknown here has waited at the replicas, whichever replica brings it (docs/protocol.md §2.7).
        """
        if self._has_begun:
            return
        self._has_begun = True
        since_ms = self.seen.since_ms
        if since_ms is None:
            since_ms = int(now * 1000)
            self.seen.begins(since_ms)
        else:
            self._intake.admission.began(now)
        self._intake.admission.goes_back(since_ms, SESSION_EXPIRY_S)

    # ------------------------------------------------------------------------------------------- pieces

    def receive(self, replica: str, wire: Wire, ack: Ack, now: float) -> None:
        """Takes a piece from a replica of the home region. Never raises for its content."""
        self._note_begin(now)
        self._receive(replica, wire.topic, wire.payload, wire.properties, ack, now)
        self._settle_owed()

    def receive_all(self, replica: str, publishes: Sequence[Publish], acks: Iterable[Ack], now: float) -> None:
        """Takes the pieces of a read, each with its `ack`, as `receive` does."""
        self._note_begin(now)
        entries = self._publications.told
        for publish, ack in zip(publishes, acks, strict=False):
            properties = publish.properties.user
            if len(properties) != 1 or properties[0][0] != PROPERTY_HEADER:
                self._receive(replica, publish.topic, publish.payload, properties, ack, now)
                continue
            told = (properties[0][1], publish.topic)
            known = entries.get(told)
            if known is not None and known.state in WHOLE and known.reason is None and known.content == publish.payload:
                known.acks.append(ack)  # another replica's copy, byte for byte, of what is whole already
            else:
                self._receive(replica, publish.topic, publish.payload, properties, ack, now)
        self._settle_owed()

    def _settle_owed(self) -> None:
        publications = self._publications
        if publications.owed:
            owed, publications.owed = publications.owed, []
            self._acknowledge(owed)

    def _receive(
        self,
        replica: str,
        topic: str,
        payload: bytes,
        told: Sequence[tuple[str, str]],
        ack: Ack,
        now: float,
        since: float | None = None,
    ) -> None:
        """Takes a single piece. `since`: the time at which it came first."""
        owed = self._publications.owed
        if self._links.closed(replica, told, now):
            self._count_figure("link_throttled", replica)
            owed.append(ack)
            return
        properties = dict(told)
        try:
            if PROPERTY_KEY in properties:
                news, opened = self._intake.keys_of(replica, properties, now)
                self._effects(replica, news, now)
                if opened is not None:
                    self._publications.wake(opened)
            header = self._intake.told_property(properties, topic)
            if header is None:
                owed.append(ack)
            elif self._part is not None and not self._part.takes(header):
                self._count_figure("others_dropped")  # but the key that rode on it may be for what is ours
                owed.append(ack)
            else:
                self._announced(replica, (header, topic), payload, properties.get(PROPERTY_PART), ack, now)
        except KeysError as error:
            came = now if since is None else since
            early = isinstance(error, NotAuthorised) and 0 <= now - came < EARLY_S
            if early and keep_piece(self._early, EarlyPiece(replica, topic, payload, told, ack, came)):
                self._count_figure("publications_ahead")
                return
            self._effects(replica, refused(replica, error), now)
            owed.append(ack)
        except HeldOverflowError:
            self._count_figure("held_overflow")

    def _announced(
        self, replica: str, told: tuple[str, str], payload: bytes, part: str | None, ack: Ack, now: float
    ) -> None:
        """Takes a message with a header. `told`: property `vmq` and wire topic, `part`: property `vmq-part`.

        Raises KeysError, HeldOverflowError.
        """
        publications = self._publications
        known = publications.told.get(told)
        admitted = known.admitted if known is not None else self._first(told, now)
        pieces = self._intake.pieces(admitted, payload, part)
        if pieces is None:
            self._effects(replica, misfit(replica), now)
        form = known if known is not None else publications.begin_form(replica, told, admitted, now)
        if form is None:
            publications.owed.append(ack)
            return
        if pieces is not None:
            self._brought(form, replica, pieces, now)
        if known is not None or not publications.is_whole_at_once(form, ack):
            publications.piece(form, ack)

    def _first(self, told: tuple[str, str], now: float) -> Admitted:
        """Verifies a header, and compares it with others of its number. Raises KeysError."""
        admission = self._intake.admission
        admitted = admission.admit_once(*told, now)
        admission.sealings.saw(admitted.header, admitted.frame, told[1], admitted.publisher)
        if admission.sealings.fresh:
            for effect in admission.sealings.news():
                match effect:
                    case Prove():
                        self._proved.append(effect)
                    case Blame(member, False):
                        self._count_figure("suspected", member)
                    case Count(name, amount, member):
                        self._count_figure(name, member, amount)
        return admitted

    def _brought(self, entry: Form, replica: str, pieces: Mapping[int, bytes], now: float) -> None:
        """Takes content that fits its digests, and its replica's word for the publication."""
        if entry.unvouched_at is not None and self._intake.vouched(replica, entry.admitted, entry.topic):
            self._publications.release_form(entry)
        if entry.content is None and entry.state is not State.DONE:
            try:
                entry.content = self._intake.content(replica, entry.admitted, pieces, now)
            except BadContent as error:
                publisher = entry.admitted.publisher.name
                self._effects(replica, [Count("unopened"), Blame(publisher, False, str(error))], now)
            self._publications.note_content(entry)

    def _effects(self, replica: str, effects: Sequence[Effect], now: float) -> None:
        """Carries out the effects of a replica's wire."""
        self._links.charge(replica, effects, now)
        for effect in effects:
            match effect:
                case Count("refused", amount, label):
                    self._count_figure(f"refused_{label}", replica, amount)
                case Count(name, amount, label):
                    self._count_figure(name, label, amount)
                case Blame(member, False):
                    self._count_figure("suspected", member)
                case Send():
                    self._asks.append(effect)

    def _news(self, effects: Sequence[Effect], opened: Iterable[bytes]) -> None:
        """Carries out effects that came of no wire: of views or time."""
        self._effects("", effects, 0.0)
        for key_id in opened:
            self._publications.wake(key_id)

    # ------------------------------------------------------------------------------------- completing

    def learn(self, check_values: Mapping[KeyName, bytes]) -> None:
        """Notes the epoch keys that executors have: publications that waited for one may be whole now."""
        self.granted.learn(check_values)
        self._publications.wake_all()

    def _missing(self, entry: Form) -> str | None:
        """Returns the missing part in the words of column `reason`; None for a whole publication."""
        if entry.unvouched_at is not None:
            return f"{UNVOUCHED}: of none that is live, or its certificate ended, and brought by too few replicas"
        if entry.content is None:
            return "content: no copy fits the signed digest"
        if entry.header.mode is Mode.PLAIN:
            return None
        try:
            usable = self._keys.opened_key(entry.admitted)
        except BadContent as error:
            return f"key: {error}"
        if usable is None:
            came = self._keys.knows_key(entry.header.key_id)
            return "shares: fewer than k fit the commitments" if came else "key: no key header came"
        if entry.admitted.scope.keyed:
            if self.granted.lacks(usable.name):
                return f"grant: no epoch key came for {usable.name.described()}"
            if self.granted.contradicts(usable):
                return f"grant: another epoch key than ours for {usable.name.described()}"
        entry.material = usable.material
        return None

    def do_due_work(self, now: float) -> None:
        """Gives up publications after `incomplete_s`; forgets old headers; asks for content; judges keys."""
        self._note_begin(now)
        self._news(*self._intake.tick(now))
        self.judge_early(now)
        self._publications.give_up(now)

    def judge_early(self, now: float) -> None:
        """Refuses pieces that have waited long enough for a version of the overlay allowing them."""
        for early in self._early.take_due(now):
            self._receive(*early[:-1], now, early.since)
        self._settle_owed()

    @property
    def next_deadline(self) -> float | None:
        """The time of the next `do_due_work` with work to do."""
        deadlines = (self._publications.next_deadline, *self._intake.deadlines, self._early.next_deadline)
        return min((at for at in deadlines if at is not None), default=None)

    @property
    def is_asking(self) -> bool:
        """True while requested content is awaited, a matter of milliseconds."""
        return self._intake.assembling.next_deadline is not None

    def take_asks(self) -> list[Send]:
        """Returns requests for content, which the caller has to send to replicas."""
        asks, self._asks = self._asks, []
        return asks

    def take_proved(self) -> list[Prove]:
        """Returns evidence against publishers, which the caller has to keep."""
        proved, self._proved = self._proved, []
        return proved

    def keys(self) -> list[SpooledKey]:
        """Returns the material of data keys for the next process; those that were opened last at the end."""
        found = [material_of(self._keys, key_id) for key_id in self._keys]
        return [each for each in found if each is not None]

    # ------------------------------------------------------------------------------------------- writing

    @property
    def ready(self) -> int:
        """The number of publications waiting to be written."""
        return self._publications.ready

    def take_group(self, max_rows: int, max_bytes: int | None = None) -> Group | None:
        """Returns the next publications to write, in the order of becoming whole; None if there are none.

        At most `max_rows`, with at most `max_bytes` of content, but one at least.
        """
        return self._publications.take_group(max_rows, max_bytes)

    def note_written(self, group: Group) -> list[Ack]:
        """Notes that the group is on disk; returns the pieces that may be acknowledged now."""
        return self._publications.note_written(group)

    def _count_figure(self, figure: str, replica: str = "", amount: int = 1) -> None:
        self.figures[figure, replica] += amount
