"""A gateway's own subscriptions to the overlay: turns local filters into signed statements, one for each scope.

Local clients subscribe to clear filters; upstream the gateway asks for whole scopes (docs/protocol.md §5.4), so
replicas learn nothing finer. For a scope showing attributes the gateway asks for the cover of its clients' predicates,
if all clients have one: a wider cover is stated at once, a narrower one after the present cover has stood for a while.
A subscription is *accepted* when a quorum of the home region's replicas acknowledged the statement. `statements` is the
replica's end. A hosted broker understands no statement: the gateway sends an ordinary SUBSCRIBE there, and the SUBACK
counts.

`Subscriptions` are the subscribed scopes, each with the number of the subscription and the time since the reader
remembers all arrivals. A publication sealed after that time and not remembered did not come: such a publication is late
and no replay, after however long a way. Cut links of this reader, of the publisher or between regions may have delayed
the publication. A *generation* is a single subscription of a scope, from the first interest of a local client to the
end of all interest; earlier publications are not waited for. A scope keeps its generation while its tokens change,
under its first number (`Scope.stream`). So does a scope a former process had subscribed at its end: replicas kept its
publications, and a row holds the time since which all is known. That state ends an hour after the last interest: by
then replicas send nothing of the scope any more. `streams` records arrivals, `intake` judges publications sealed before
or during an absence.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from bridge.base import Row, Transitions, overlaps
from bridge.contract import Acked, Count, Deferrals, Effect, NotTaken, Send, Watch, Wire
from bridge.contract.refusing import Reason
from bridge.document import Overlay, ScopeSecret, batch_topic, retained_filter
from bridge.predicates import Predicate, implies, widen
from bridge.reader.intake import FRESH_S, Away, asked
from bridge.reader.kept import ALIVE, SCOPE, VERSION, KeptReader, Rows, of_kind
from bridge.wire import RENEW_AFTER_S, SUBSCRIBE_TOPIC, Statement, cover_of, lease_s
from bridge.wire.admission import GATEWAY_SESSION_S
from keys.frames import number
from keys.identity import Identity

GATHER_S = 1.0  # covers that widen sooner after each other become the whole scope, for so long
NARROW_S = 10.0  # so long a cover stands before a narrower one is stated
# Times that a scope may be taken back at once, and then once a minute: fewer than replicas serve newcomers, so that a
# client that subscribes and unsubscribes does not use that up. Later ones wait; the scope stays subscribed meanwhile.
WITHDRAWALS_BURST, WITHDRAWALS_EVERY_S = 6, 60.0
REPEAT_S = 30.0  # after another version of the overlay, statements are repeated once when all must have it


@dataclass(slots=True)
class _Want:
    """A scope that local clients want: its local filters and its statement. `narrow_at` is the time to check for a
    narrower cover.
    """

    filters: set[str] = field(default_factory=set)
    statement: Statement | None = None
    stated_at: float = 0.0
    renew_at: float = 0.0
    narrow_at: float = inf
    acked: set[str] = field(default_factory=set)
    refused_by: set[str] = field(default_factory=set)

    def narrow_later(self, now: float) -> None:
        """Schedules the check for a narrower cover."""
        self.narrow_at = min(self.narrow_at, max(now, self.stated_at + NARROW_S))


class ScopeInterest:
    """The scopes that this gateway wants, and their acceptance by the home region."""

    def __init__(self, overlay: Overlay, identity: Identity, name: str, secrets: Sequence[ScopeSecret]) -> None:
        self._overlay = overlay
        self._identity = identity
        self._name = name
        self._home = overlay.certificate(name).region
        self._lease_s = lease_s(overlay.certificate(name).role)
        self._secrets = list(secrets)
        self._readable: dict[str, ScopeSecret] = {}  # by wire filter, as of the last review
        # What local clients want, whether a scope has it or not: by filter the cover of their predicates, None: all.
        self._filters: dict[str, Predicate | None] = {}
        self._withdrawals: Deferrals[str] = Deferrals(WITHDRAWALS_BURST, WITHDRAWALS_EVERY_S)  # by wire filter
        self._lingering: set[str] = set()  # filters that no client wants, and that stay until a withdrawal is due
        self._reviewed_at = 0.0
        self._review_at = 0.0  # when rights may change next; 0: they were not looked at yet
        self._wants: dict[str, _Want] = {}
        self._up: set[str] = set()
        # Ticket of the statement told last to a peer of a filter, both ways; negative: the outbox uses the positive
        # ones. An acknowledgement of an earlier statement says nothing of the present one.
        self._tickets: dict[tuple[str, str], int] = {}
        self._told: dict[int, tuple[str, str]] = {}
        self._last_ticket = 0
        self._version = 0
        self._ahead_of: set[str] = set()  # replicas to whose clocks our version is to come
        self._again: dict[tuple[str, str], float] = {}  # who refused a statement of which filter, and hears it then
        self._widened: set[str] = set()
        self.kept: KeptReader | None = None
        """The store of the last stated version, for a next process."""

    def restore(self, rows: Rows) -> None:
        """Restores the last version a former process stated. Replicas ignore lower versions until that statement has
        ended, whatever the clock says now.
        """
        self._version = max((int.from_bytes(row) for _, row in of_kind(rows, VERSION)), default=0)

    def take_subscription(
        self, topic_filter: str, now: float, wanted: Predicate | None = None, narrows: bool = False
    ) -> list[Effect]:
        """Takes a new local filter, or a wider predicate for a known one; with `narrows`, a possibly narrower
        predicate.
        """
        self._lingering.discard(topic_filter)
        is_new = topic_filter not in self._filters
        before = self._filters.get(topic_filter)
        if not is_new and not narrows and (before is None or (wanted is not None and implies(wanted, before))):
            return []
        if not is_new and not narrows and before is not None and wanted is not None:
            wanted = widen((before, wanted))
        self._filters[topic_filter] = wanted
        effects: list[Effect] = []
        if now >= self._review_at:
            effects = self._review_scopes(now)
        elif is_new:
            effects = self._want({topic_filter}, now)
        for wire_filter, want in self._wants.items():
            if topic_filter in want.filters:
                effects += self._widen(wire_filter, want, now)
        return effects

    def drop_subscription(self, topic_filter: str, now: float) -> list[Effect]:
        """Removes a filter no local client wants any more. A scope that was withdrawn too often stays subscribed
        meanwhile, so that retained publications here stay up to date for the next client.
        """
        alone = [wire_filter for wire_filter, want in self._wants.items() if want.filters == {topic_filter}]
        if len([each for each in alone if self._withdrawals.spend_one(each, now)]) < len(alone):
            self._lingering.add(topic_filter)
            return []
        self._lingering.discard(topic_filter)
        self._filters.pop(topic_filter, None)
        effects: list[Effect] = []
        for wire_filter, want in self._wants.items():
            if topic_filter in want.filters:
                want.filters.discard(topic_filter)
                if not want.filters:
                    effects += self._state(wire_filter, want, False, now)
                elif self._shows(wire_filter):
                    want.narrow_later(now)
        return effects

    def adopt_overlay(self, overlay: Overlay, secrets: Sequence[ScopeSecret], now: float) -> list[Effect]:
        """Adopts another version of the overlay, or other views, with unchanged regions: states newly readable
        scopes.
        """
        self._overlay = overlay
        self._secrets = list(secrets)
        effects = self._review_scopes(now)
        self._withdrawals.forget_unless(lambda wire_filter: overlay.scope_named(wire_filter) is not None)
        for want in self._wants.values():  # a replica that adopts after us refuses a right that it does not know yet
            if want.filters:
                want.renew_at = min(want.renew_at, now + REPEAT_S)
                want.narrow_at = now  # the owner may show other attributes, or hide them by another key
        return effects

    def rotate_identity(self, identity: Identity) -> None:
        """Signs with another key of this gateway from now on."""
        self._identity = identity

    def _review_scopes(self, now: float) -> list[Effect]:
        """States wanted scopes that have become readable; withdraws scopes that are no longer readable."""
        calendar = self._overlay.policy.calendar
        self._reviewed_at = now
        # Replicas' clocks may be behind by skew_s, and would refuse a right that begins with the epoch.
        self._review_at = calendar.end_s(calendar.epoch_at(now - calendar.skew_s)) + calendar.skew_s
        epochs = {calendar.epoch_at(now), calendar.epoch_at(now - calendar.skew_s)}
        self._readable = {
            secret.scope.filter: secret
            for secret in self._secrets
            if all(self._overlay.may_read(self._name, secret.scope, epoch) for epoch in epochs)
        }
        effects: list[Effect] = []
        for wire_filter, want in self._wants.items():
            if want.filters and wire_filter not in self._readable:
                want.filters.clear()
                effects += self._state(wire_filter, want, False, now)
        return effects + self._want(self._filters.keys(), now)

    def _want(self, topic_filters: Collection[str], now: float) -> list[Effect]:
        """States every scope that these filters want and no statement covers yet."""
        effects: list[Effect] = []
        for wire_filter, secret in self._readable.items():
            filters = {f for f in topic_filters if overlaps(secret.clear_filter, f)}
            if filters:
                want = self._wants.setdefault(wire_filter, _Want())
                want.filters |= filters
                if want.statement is None or not want.statement.on:
                    effects += self._state(wire_filter, want, True, now, self._cover(wire_filter, want))
                elif filters:
                    effects += self._widen(wire_filter, want, now)
        return effects

    def widened(self) -> frozenset[str]:
        """Returns the scopes of which replicas may have left out wanted publications since the last call."""
        widened, self._widened = frozenset(self._widened), set()
        return widened

    def _is_asked_for(self, wire_filter: str) -> bool:
        """Returns True if this gateway asks for all wanted publications of the scope under its former tokens. Then
        nothing was left out under the new tokens: replicas send everything to a gateway without a statement on them.
        """
        scope = self._overlay.scope_named(wire_filter)
        formers = {s.filter for s in self._overlay.policy.scopes if scope and s.stream == scope.stream} - {wire_filter}
        for former, want in ((each, self._wants[each]) for each in formers & self._wants.keys()):
            if want.filters and want.statement is not None and want.statement.on:
                return want.statement.cover is None or want.statement.cover == self._cover(former, want)
        return False

    def _shows(self, wire_filter: str) -> bool:
        secret = self._readable.get(wire_filter)
        return secret is not None and bool(secret.scope.shown)

    def _cover(self, wire_filter: str, want: _Want) -> Predicate | None:
        secret = self._readable.get(wire_filter)
        wanted = [self._filters[topic_filter] for topic_filter in want.filters]
        return None if secret is None or not wanted else cover_of(wanted, secret)

    def _widen(self, wire_filter: str, want: _Want, now: float) -> list[Effect]:
        """States a wider cover at once if clients want more; schedules the check for a narrower one otherwise."""
        if want.statement is None or not want.statement.on or not self._shows(wire_filter):
            return []
        cover, stated = self._cover(wire_filter, want), want.statement.cover
        if cover == stated:
            return []
        if stated is None or (cover is not None and implies(cover, stated)):
            want.narrow_later(now)
            return []
        if now < want.stated_at + GATHER_S:
            cover = None
        effects = self._state(wire_filter, want, True, now, cover)
        want.narrow_at = now + GATHER_S if cover is None else inf
        return effects

    def _narrow(self, wire_filter: str, want: _Want, now: float) -> list[Effect]:
        want.narrow_at = inf
        if want.statement is None or not want.filters:
            return []
        cover = self._cover(wire_filter, want)
        return [] if cover == want.statement.cover else self._state(wire_filter, want, True, now, cover)

    def link_up(self, peer: str) -> list[Effect]:
        """Repeats all statements to a connected replica, which may have lost its memory."""
        self._up.add(peer)
        return [effect for f, want in self._wants.items() for effect in self._tell_statement(peer, f, want)]

    def link_down(self, peer: str) -> list[Effect]:
        self._up.discard(peer)
        self._tickets = {told: ticket for told, ticket in self._tickets.items() if told[0] != peer}
        self._told = {ticket: told for told, ticket in self._tickets.items()}
        self._again = {told: at for told, at in self._again.items() if told[0] != peer}
        return []

    def acked(self, event: Acked) -> list[Effect]:
        """Takes a replica's acknowledgement of a statement; reports the moment at which a quorum has acknowledged."""
        told = self._told.get(event.ticket)
        if told is None or told[0] != event.peer:
            return []
        del self._told[event.ticket], self._tickets[told]
        self._ahead_of.discard(event.peer)
        want = self._wants[told[1]]
        if event.peer in want.acked:
            return []
        before = self._has_quorum(want)
        want.acked.add(event.peer)
        return [Count("subscriptions_accepted")] if self._has_quorum(want) and not before else []

    def take_refusal(self, event: NotTaken, now: float) -> list[Effect]:
        """Takes a replica's refusal of a statement: the replica no longer counts, and hears the statement again.

        A new statement follows once an honest replica must have refused; a few liars could otherwise make all replicas
        take new statements, and serve this gateway anew, for ever.
        """
        begins_anew = False
        told = self._told.pop(event.ticket, None)
        if event.reason == Reason.TIME:
            self._ahead_of.add(event.peer)
            heard_by = asked(self._overlay, self._home)
            if self._overlay.honest_among(self._home, self._ahead_of) or self._ahead_of.issuperset(heard_by):
                # Our clock, or that of a former process, was wrong: versions begin anew. One who lies does not say so
                # alone: below the version that the others have, nothing that we say would count.
                self._version, begins_anew = 0, True
                self._ahead_of.clear()
        if told is not None:
            self._tickets.pop(told, None)
            want = self._wants[told[1]]
            want.refused_by.add(event.peer)
            others = set(asked(self._overlay, self._home)) - want.refused_by
            if begins_anew or not others or self._overlay.honest_among(self._home, want.refused_by):
                want.renew_at = min(want.renew_at, now + REPEAT_S)
            else:
                self._again[told] = now + REPEAT_S
        return [Count("refused_by_replica", 1, event.reason)]

    def wanted(self) -> frozenset[str]:
        """Returns the wire filters of the scopes that local clients want now."""
        return frozenset(wire_filter for wire_filter, want in self._wants.items() if want.filters)

    def wanted_scopes(self) -> dict[str, str]:
        """Returns the clear filters of the scopes that local clients want now, by wire filter."""
        wanted = self.wanted()
        return {s.scope.filter: s.clear_filter for s in self._secrets if s.scope.filter in wanted}

    def is_accepted(self, wire_filter: str) -> bool:
        """Returns True if a quorum of the home region, in its view in force, acknowledged the statement on the
        scope.
        """
        want = self._wants.get(wire_filter)
        return want is not None and self._has_quorum(want)

    def awaits(self, topic_filter: str) -> bool:
        """Returns True if a local filter asks for a scope that is not accepted yet."""
        return any(topic_filter in want.filters and not self._has_quorum(want) for want in self._wants.values())

    def _has_quorum(self, want: _Want) -> bool:
        return bool(want.filters) and self._overlay.views[self._home].quorum(want.acked)

    def tick(self, now: float) -> list[Effect]:
        """Renews leases in time, and reviews the readable scopes in a new epoch."""
        was_set_back = now < self._reviewed_at - REPEAT_S
        effects = self._review_scopes(now) if 0 < self._review_at <= now or (self._review_at and was_set_back) else []
        for wire_filter, want in self._wants.items():
            # A clock that was set back: what it said before may be to come for replicas, and they refused it.
            due = want.renew_at <= now or now < want.stated_at - REPEAT_S
            if want.filters and due and want.statement is not None:
                effects += self._state(wire_filter, want, True, now, want.statement.cover)
            if want.narrow_at <= now:
                effects += self._narrow(wire_filter, want, now)
        if self._withdrawals.due_keys(now):
            effects += [effect for each in tuple(self._lingering) for effect in self.drop_subscription(each, now)]
        for peer, wire_filter in [told for told, at in self._again.items() if at <= now]:
            del self._again[peer, wire_filter]
            want = self._wants[wire_filter]
            if peer in self._up and peer not in want.acked and want.statement is not None:
                effects += self._tell_statement(peer, wire_filter, want)
        return effects

    @property
    def next_deadline(self) -> float | None:
        renewals = [min(want.renew_at, want.narrow_at) for want in self._wants.values() if want.filters]
        review = [self._review_at] if self._filters and self._review_at < float("inf") else []
        due = self._withdrawals.next_deadline
        return min([*renewals, *review, *self._again.values(), *([] if due is None else [due])], default=None)

    def _state(
        self, wire_filter: str, want: _Want, on: bool, now: float, cover: Predicate | None = None
    ) -> list[Effect]:
        """Makes a new statement. Its version is the time in milliseconds, or the last version plus one, over restarts
        too.
        """
        self._version = max(self._version + 1, int(now * 1000))
        if self.kept is not None:
            self.kept.put_row(VERSION, number(self._version, 8))
        expires_ms = int((now + self._lease_s) * 1000)
        before = want.statement if want.statement is not None and want.statement.on else None
        # Where only the cover is another, what is retained is here: it is left out for no cover.
        goes_on = on and before is not None and before.cover != cover
        covered = before.cover if before is not None else None
        # Of the cover that our former process stated we know nothing.
        first = before is None and self._shows(wire_filter) and not self._is_asked_for(wire_filter)
        if on and (first or (covered is not None and (cover is None or not implies(cover, covered)))):
            self._widened.add(wire_filter)
        statement = Statement(self._name, wire_filter, self._version, on, expires_ms, cover=cover, goes_on=goes_on)
        want.statement = statement.signed(self._identity)
        want.stated_at, want.renew_at, want.narrow_at = now, now + RENEW_AFTER_S, inf
        want.acked.clear()
        want.refused_by.clear()
        return [effect for peer in sorted(self._up) for effect in self._tell_statement(peer, wire_filter, want)]

    def _tell_statement(self, peer: str, wire_filter: str, want: _Want) -> list[Effect]:
        assert want.statement is not None
        self._last_ticket -= 1
        self._told.pop(self._tickets.get((peer, wire_filter), 0), None)
        self._told[self._last_ticket] = (peer, wire_filter)
        self._tickets[peer, wire_filter] = self._last_ticket
        scope, on = self._overlay.scope_named(wire_filter), want.statement.on
        if peer in self._overlay.hosted:
            if scope is None:  # gone with another version
                return []
            retained = Watch(peer, retained_filter(scope.number), on)
            return [retained, Watch(peer, batch_topic(scope.number), on, self._last_ticket)]
        statement = Send(peer, Wire(SUBSCRIBE_TOPIC, want.statement.encode()), self._last_ticket)
        return [Watch(peer, wire_filter, on), statement]


FORGOTTEN_MAX = 1_024
"""Authors of one scope with forgotten publications; with one more, all authors count as such."""


class Course(StrEnum):
    """The course of a subscription of a scope. LEFT: the former process had it, and no client asked for it since."""

    ENDED = "ended"
    LEFT = "left"
    RUNNING = "running"


class CourseTurn(StrEnum):
    """An event in the life of a subscription of a scope."""

    WANTED = "wanted"
    UNWANTED = "unwanted"
    OVERDUE = "overdue"


SUBSCRIPTION = Transitions(
    "A subscription",
    (Course.ENDED, Course.LEFT),
    (
        Row(CourseTurn.WANTED, (Course.ENDED,), Course.RUNNING,
            "a new generation: nothing earlier is waited for, and all arrivals are remembered from now on"),
        Row(CourseTurn.WANTED, (Course.LEFT,), Course.RUNNING,
            "the generation of the former process goes on, with all that was remembered"),
        Row(CourseTurn.UNWANTED, (Course.RUNNING,), Course.ENDED, "no client wants the scope: its rows are dropped"),
        Row(CourseTurn.OVERDUE, (Course.LEFT,), Course.ENDED,
            "replicas send nothing of the scope any more: its rows are dropped"),
    ),
    "the gateway forgets it; an ended one keeps its number of generations only",
)  # fmt: skip


@dataclass(slots=True)
class _Subscription:
    """A scope's subscription. `generation`: how often it was subscribed. `since`: when this process subscribed it last.
    `whole_since`: since when all that came is remembered, while the subscription has not ended. `until`: how long a
    LEFT one may go on. `forgotten`: by author, the same as `whole_since` where that is later.
    """

    course: Course = Course.ENDED
    generation: int = 0
    since: float = 0.0
    whole_since: float = 0.0
    until: float = 0.0
    forgotten: dict[bytes, float] = field(default_factory=dict)

    def move(self, turn: CourseTurn) -> None:
        """Moves the subscription as the table of its life says."""
        self.course = SUBSCRIPTION.after((turn, self.course))


class Subscriptions:
    """The subscriptions of a gateway. `kept` takes the rows for a next process. Scopes are named by their streams."""

    def __init__(self, kept: KeptReader) -> None:
        self._kept = kept
        self.away = Away()
        """The time between the former process and this one."""
        self._of: dict[int, _Subscription] = {}

    def restore(self, rows: Rows, now: float) -> None:
        """Restores a former process's subscriptions with their times, and its last life sign."""
        for key, row in of_kind(rows, SCOPE):
            stream, author, until = int.from_bytes(key[:4]), key[4:], row[8:]
            since = int.from_bytes(row[:8]) / 1000 if row else now
            known = self._of.setdefault(stream, _Subscription())
            if author:
                known.forgotten[author] = since
                continue
            known.course, known.whole_since = Course.LEFT, since
            known.until = int.from_bytes(until) / 1000 if until else now + GATEWAY_SESSION_S
            self._keep_row(stream, known)
        for _, row in of_kind(rows, ALIVE):
            self.away = Away(int.from_bytes(row) / 1000, now)

    def follow_interest(self, interest: ScopeInterest, overlay: Overlay, now: float) -> None:
        """Follows the present interest of local clients; replicas left out publications of scopes that have become
        wider.
        """
        filters, widened = interest.wanted(), interest.widened()
        wanted = {scope.stream for scope in overlay.policy.scopes if scope.filter in filters}
        for stream, known in self._of.items():
            is_unwanted = known.course is Course.RUNNING and stream not in wanted
            if is_unwanted or (known.course is Course.LEFT and now > known.until):
                self.paused(stream)
        for stream in wanted:
            if not self.is_wanted(stream):
                self.resume_scope(stream, now)
        for stream in {scope.stream for scope in overlay.policy.scopes if scope.filter in widened} if widened else ():
            self.widened(stream, now)

    def is_wanted(self, stream: int) -> bool:
        """Returns True if local clients want the scope."""
        return self._course(stream) is Course.RUNNING

    def _course(self, stream: int) -> Course:
        known = self._of.get(stream)
        return Course.ENDED if known is None else known.course

    def resume_scope(self, stream: int, now: float) -> None:
        """Starts a subscription of the scope; publications of the time before are not waited for. Continues the former
        process's subscription if that ended not long ago.
        """
        known = self._of.setdefault(stream, _Subscription())
        if known.course is Course.LEFT and now > known.until:
            self.paused(stream)
        if known.course is Course.ENDED:
            known.generation += 1
            known.since = known.whole_since = now
        known.move(CourseTurn.WANTED)
        self._keep_row(stream, known)

    def paused(self, stream: int) -> None:
        """Ends the subscription of the scope."""
        known = self._of[stream]
        known.move(CourseTurn.UNWANTED if known.course is Course.RUNNING else CourseTurn.OVERDUE)
        self._kept.drop_row(SCOPE + number(stream, 4))
        self._same_for_all(stream, known)

    def widened(self, stream: int, now: float) -> None:
        """Starts the remembered time of the scope anew: replicas left out newly wanted publications until now."""
        if self._course(stream) is not Course.ENDED:
            known = self._of[stream]
            known.whole_since = now
            self._keep_row(stream, known)

    def forgot(self, author: bytes, stream: int, now: float) -> None:
        """Notes that an author's arrivals were forgotten. By the author's clock they may have been sealed a bit
        later.
        """
        if self._course(stream) is Course.ENDED:
            return
        known = self._of[stream]
        known.forgotten[author] = now + FRESH_S
        self._kept.put_row(SCOPE + number(stream, 4) + author, _ms(now + FRESH_S))
        if len(known.forgotten) > FORGOTTEN_MAX:
            known.whole_since = max(known.forgotten.values())
            self._keep_row(stream, known)
            self._same_for_all(stream, known)

    def _same_for_all(self, stream: int, known: _Subscription) -> None:
        for author in known.forgotten:
            self._kept.drop_row(SCOPE + number(stream, 4) + author)
        known.forgotten.clear()

    def generation(self, stream: int) -> int:
        """Returns the number of the scope's present subscription; 0 before the first one of this process."""
        known = self._of.get(stream)
        return 0 if known is None else known.generation

    def is_before(self, stream: int, time_ms: int) -> bool:
        """Returns True if that time was before this process subscribed the scope."""
        known = self._of.get(stream)
        return known is not None and time_ms / 1000 < known.since

    def may_be_new(self, author: bytes, stream: int, time_ms: int, now: float) -> bool:
        """Returns True if a publication sealed then may be new, where nothing else is known of its author in the
        scope.
        """
        return self.away.is_fresh(time_ms, now) or self.would_know(author, stream, time_ms, now)

    def would_know(self, author: bytes, stream: int, time_ms: int, now: float) -> bool:
        """Returns True if an arrival of a publication sealed then would be remembered: sealed after the subscription
        and not in the future.
        """
        known = self._of.get(stream)
        if known is None or known.course is Course.ENDED:
            return False
        since = max(known.whole_since, known.forgotten.get(author, 0.0)) if known.forgotten else known.whole_since
        return since < time_ms / 1000 <= now

    def _keep_row(self, stream: int, known: _Subscription) -> None:
        until = _ms(known.until) if known.course is Course.LEFT else b""
        self._kept.put_row(SCOPE + number(stream, 4), _ms(known.whole_since) + until)


def _ms(at: float) -> bytes:
    return number(int(at * 1000), 8)
