"""A gateway's shared groups: the times of its leases, the groups that do not get a publication, and held publications.

A group's first local client makes a lease, its last client ends the lease. The lease says at once we serve our own
devices' publications; in the choice for others' publications we take part once a quorum of the region knows that we
want the scope, and `JOIN_S` later, when everybody knows. A gateway leaving ends its lease at once; the others hold its
publications for `HOLD_S`, and serve all publications beyond the end of the lease. Publications still on their way to a
departed gateway are given back: the end of its lease moves to before them. So a group loses nothing when members come
and go, as long as gateways and replicas are connected; publications delivered between the two ends may come twice.

A group is *narrow* here while no local client may receive all that its filter matches. A narrow group gets no lease,
since others would leave to us publications we may deliver to nobody. Its clients get the permitted publications of our
own devices, and those no other gateway has leased. Not here: the choice (`leases`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TypeAlias

from bridge.base import TopicIndex, overlaps
from bridge.contract import Count, Deliver, DeliverShared, Effect, FairTable, Publication, Received, Send, Wire
from bridge.document import Overlay, ScopeSecret
from bridge.groups.leases import GROUPS_TOPIC, GroupId, Lease, LeaseQuestion, LeaseTable, group_id
from bridge.wire import refused
from keys.errors import KeysError
from keys.identity import Identity

LEASE_S = 60.0  # a gateway that died is believed for so long
RENEW_AFTER_S = 20.0
JOIN_S = 3.0  # from a lease to its start: until then every gateway has it
LINGER_S = 3.0  # a gateway that left stays subscribed so long, to give back publications on their way
HOLD_S = 5.0  # another gateway's publications are held so long, in case it has left
HELD_MAX = 4_096  # publications held; a publisher of too many loses its own oldest
LARGE_BYTES = 16_384  # larger ones are held apart ...
HELD_LARGE_MAX = 32  # ... and so few, lest they fill memory
LEARN_S = 0.5  # after the first lease that we hear, all that this replica knows has come
GROUPS_MAX = 1_024  # local groups that get leases; who has most loses its oldest, served as if nobody else had members
OWNERS_MAX = (
    8  # owners of a group's clients that are remembered, the latest; while one has room the group keeps its lease
)
NARROWED_MS = 2_000  # the broker reads rights again within a second: for so long before, others take over

SharedName: TypeAlias = tuple[str, str]
"""Name and clear filter of a group."""


NOTHING = Lease("", "", b"", 0, False, 0, 0, 0, 0)
"""The lease of a share before its first one."""


@dataclass(slots=True)
class _Share:
    """A group in a single scope, as we lease it. Times in milliseconds, as in `Lease`."""

    id: GroupId
    own_from_ms: int
    starts_ms: int = 0
    ends_ms: int = 0
    served_ms: int = 0  # the latest publication that we served the group with
    lease: Lease = NOTHING
    renew_at: float = 0.0


@dataclass(slots=True)
class _Group:
    """A group with local members, or that had some until a moment ago (`linger_until`)."""

    name: SharedName
    is_narrow: bool = False
    shares: dict[str, _Share] = field(default_factory=dict)  # by wire filter of the scope
    linger_until: float | None = None
    owners: dict[str, None] = field(default_factory=dict)  # of clients that joined
    counted_for: str = ""  # one of them

    def own(self, owner: str) -> None:
        """Adds the owner of a client that joined."""
        self.owners.setdefault(owner)
        if len(self.owners) > OWNERS_MAX:
            del self.owners[next(iter(self.owners))]


@dataclass(frozen=True, slots=True)
class _Held:
    """A publication with which another gateway is to serve one of our groups.

    `unknown`: maybe we serve it; leases we have not heard yet, of others or of our former process, will tell.
    """

    group: _Group
    deliver: Deliver
    until: float
    unknown: bool

    @property
    def key(self) -> tuple[SharedName, str, int]:
        return self.group.name, self.deliver.publisher, self.deliver.sequence


class SharedGroups:
    """A gateway's shared groups.

    `accepted`: returns True if a quorum of our region knows that we want a scope, by its wire filter.
    """

    def __init__(
        self,
        overlay: Overlay,
        identity: Identity,
        name: str,
        secrets: Sequence[ScopeSecret],
        accepted: Callable[[str], bool],
    ) -> None:
        self._identity, self._name = identity, name
        self._home = overlay.certificate(name).region
        self._view = overlay.views[self._home]
        self._set_secrets(secrets)
        self._accepted = accepted
        self._table = LeaseTable(overlay)
        self._groups: FairTable[SharedName, _Group] = FairTable(GROUPS_MAX)  # by user
        self._index: TopicIndex[_Group] = TopicIndex()
        self._by_id: dict[GroupId, _Group] = {}
        self._postponed: set[str] = set()  # filters that nobody here wants, but groups that linger do
        self._up: set[str] = set()
        self._version = 0
        self._held: FairTable[tuple[SharedName, str, int], _Held] = FairTable(HELD_MAX)
        self._held_large: FairTable[tuple[SharedName, str, int], _Held] = FairTable(HELD_LARGE_MAX)
        self._learned_at = float("inf")  # when we know the leases that others, and a former process, made before
        self._drop_at = float("inf")  # when to look for publications held for long enough
        self._deadline: float | None = None  # of leases and groups; None: compute anew

    # ------------------------------------------------------------------------------------- local clients

    def join_group(self, name: SharedName, now: float, is_whole: bool = True, owner: str = "") -> list[Effect]:
        """Takes a group with local clients.

        `is_whole`: one of them may receive all of the group. `owner`: who loses its oldest group, if there are
        too many and nobody has more.
        """
        group = self._groups.get(name)
        if group is not None:
            group.own(owner)
        if group is not None and group.linger_until is None:
            if group.is_narrow is not is_whole:
                return []
            if group.is_narrow:
                group.is_narrow = False
                return self._lease_anew(group, now)
            return self._narrow(group, now)
        effects: list[Effect] = []
        if group is None:
            group = _Group(name)
            self._index.add(name[1], name[0], group)
            group.own(owner)
            gone = self._entered_for(group, owner)
            effects = self._evicted(gone, now) if gone is not None else []
        group.linger_until, group.is_narrow = None, not is_whole
        return effects if self._groups.get(name) is None else effects + self._lease_anew(group, now)

    def _entered_for(self, group: _Group, owner: str) -> _Group | None:
        """Enters a group for an owner, and returns the group that goes. One with clients of another owner, too, goes
        over to that owner first: nobody fills the table and takes the lease of others' groups by joining them.
        """
        group.counted_for = owner
        while (gone := self._groups.put(group.name, group.counted_for.encode(), group)) is not None:
            group = gone[1]
            group.owners.pop(group.counted_for, None)
            if not group.owners:
                return group
            group.counted_for = next(iter(group.owners))
        return None

    def _lease_anew(self, group: _Group, now: float) -> list[Effect]:
        group.shares.clear()
        return self._lease(group, now)

    def _narrow(self, group: _Group, now: float) -> list[Effect]:
        """Ends our part in a group of which no local client may receive all: others take over, also the last two
        seconds.
        """
        group.is_narrow, before_ms = True, int(now * 1000) - NARROWED_MS
        leased = [share for share in group.shares.values() if share.lease.on]
        return [e for s in leased for e in self._cut(s, min(s.ends_ms, before_ms), before_ms, now)]

    def _evicted(self, group: _Group, now: float) -> list[Effect]:
        """Ends the leases of a group, since there are too many: it is served as if no other gateway had members."""
        ended = [effect for share in group.shares.values() if share.lease.on for effect in self._end_share(share, now)]
        self._unlist(group)
        return [*ended, Count("groups_unleased")]

    def _lease(self, group: _Group, now: float) -> list[Effect]:
        """Leases the group in every scope that it touches and has no lease in."""
        effects: list[Effect] = []
        for secret in self._secrets:
            scope = secret.scope.filter
            if scope not in group.shares and overlaps(secret.clear_filter, group.name[1]):
                # A publication of this millisecond may be before or after: rather twice than never.
                share = _Share((scope, group_id(secret, *group.name)), int(now * 1000) + 1)
                group.shares[scope] = share
                self._by_id[share.id] = group
                effects += [] if group.is_narrow else self._state(share, now)
        return effects

    def leave_group(self, name: SharedName, now: float) -> list[Effect]:
        """Ends our part in a group that its last local client left. Called before `Unsubscribed`."""
        group = self._groups.get(name)
        if group is None or group.linger_until is not None:
            return []
        group.linger_until = now + LINGER_S
        self._deadline = None
        return [effect for share in group.shares.values() if share.lease.on for effect in self._end_share(share, now)]

    def postpones(self, topic_filter: str) -> bool:
        """Returns True if an unwanted filter must stay subscribed, until `tick` returns it."""
        lingers = any(g.name[1] == topic_filter and g.linger_until is not None for g in self._groups.values())
        if lingers:
            self._postponed.add(topic_filter)
        return lingers

    def wanted(self, topic_filter: str) -> None:
        """Notes that a local client wants the filter again."""
        self._postponed.discard(topic_filter)

    # ----------------------------------------------------------------------------------- the neighbours

    def link_up(self, peer: str, now: float) -> list[Effect]:
        """Sends our leases to a replica that connected, maybe without memory.

        It has them before our publications, and so have the parties to which it passes both on.
        """
        self._up.add(peer)
        if self._view.quorum(self._up):
            self._learned_at = min(self._learned_at, now + HOLD_S)
        effects: list[Effect] = []
        for share in self._shares():
            if share.lease.on and (share.lease.own_until_ms <= now * 1000 or self._begins(share, now)):
                effects += self._state(share, now)
        ours = [lease for lease in self._table if lease.member == self._name]  # ended leases too
        return effects + [effect for lease in ours for effect in self._tell_lease([peer], lease)]

    def link_down(self, peer: str) -> None:
        self._up.discard(peer)

    def reviewed(self, now: float) -> list[Effect]:
        """Takes part in the choice of groups of newly accepted scopes."""
        waiting = [share for share in self._shares() if share.lease.on and self._begins(share, now)]
        return [effect for share in waiting for effect in self._state(share, now)]

    def take_lease(self, event: Received, now: float) -> list[Effect]:
        """Takes a lease of any gateway."""
        try:
            lease = Lease.decode(event.wire.payload)
            if not self._table.accept(lease, now):
                return []
        except KeysError as error:
            return refused(event.peer, error)
        self._learned_at = min(self._learned_at, now + LEARN_S)
        if len(self._held) + len(self._held_large):
            self._drop_at = min(self._drop_at, max(now, self._learned_at))
        if lease.member == self._name:
            return [Count("leases"), *self._own_of_before(lease, now)]
        return [Count("leases"), *([] if lease.on else self._released(lease.id, now))]

    def _own_of_before(self, lease: Lease, now: float) -> list[Effect]:
        """Ends a lease of our former process. Without members of the group we must not be believed to serve it."""
        held = self._by_id.get(lease.id)
        if not lease.on or (held is not None and not held.is_narrow):
            return []
        self._version = max(self._version, lease.version)
        now_ms = int(now * 1000)
        until_ms, ends_ms = min(lease.own_until_ms, now_ms), min(lease.ends_ms, now_ms)
        ended = self._entered(replace(lease, on=False, own_until_ms=until_ms, ends_ms=ends_ms), now)
        return self._tell_lease(self._up, ended)

    def adopt_overlay(self, overlay: Overlay, secrets: Sequence[ScopeSecret], now: float) -> list[Effect]:
        """Takes another version of the overlay, or other views, of unchanged regions."""
        self._view = overlay.views[self._home]
        self._table.adopt_overlay(overlay)
        self._set_secrets(secrets)
        scopes = {secret.scope.filter for secret in secrets}
        effects: list[Effect] = []
        for group in list(self._groups.values()):
            for gone in [scope for scope in group.shares if scope not in scopes]:
                self._by_id.pop(group.shares.pop(gone).id, None)
            effects += self._lease(group, now) if group.linger_until is None else []
        return effects + [effect for group in list(self._by_id) for effect in self._released(group, now)]

    def rotate_identity(self, identity: Identity) -> None:
        """Signs with another key of ours from now on."""
        self._identity = identity

    def _set_secrets(self, secrets: Sequence[ScopeSecret]) -> None:
        self._secrets = list(secrets)
        first: dict[int, str] = {}
        for scope in sorted((secret.scope for secret in secrets), key=lambda scope: scope.number):
            first.setdefault(scope.stream, scope.filter)
        self._leased_by = {secret.scope.filter: first[secret.scope.stream] for secret in secrets}

    def _leased(self, scope: str) -> str:
        """Returns the scope whose leases serve publications of `scope`, both by wire filter.

        While old tokens retire, it is the old scope, which everybody has, with or without the new tokens.
        """
        return self._leased_by.get(scope, scope)

    # -------------------------------------------------------------------------------------- publications

    @property
    def has_any(self) -> bool:
        """True if there is a local group, so that `placed` may mark a publication."""
        return len(self._groups) > 0

    def placed(self, deliver: Deliver, now: float) -> list[Effect]:
        """Marks a publication of another gateway with the local groups that do not get it."""
        groups = self._index.match(deliver.publication.topic)
        if not groups:
            return [deliver]
        lost: set[SharedName] = set()
        effects: list[Effect] = []
        for group in groups:
            share = group.shares.get(self._leased(deliver.scope))
            if share is None:
                continue  # we have no lease there: nobody chooses us, and nobody can tell others to leave it to us
            server = self._server(share, deliver, now)
            gives_back = group.linger_until is not None or group.is_narrow
            if gives_back and server == self._name and deliver.sealed_ms < share.ends_ms:
                effects += self._give_back(share, deliver.sealed_ms, now)
            if group.linger_until is not None:
                continue
            if server == self._name and (now >= self._learned_at or deliver.sealed_ms >= share.own_from_ms):
                share.served_ms = max(share.served_ms, deliver.sealed_ms)
            else:
                # Publications queued for us come before, and between, the leases that assign them.
                lost.add(group.name)
                if now < self._learned_at or server not in (None, deliver.publisher):
                    effects += self._hold(group, deliver, now)
        return [replace(deliver, groups_lost=frozenset(lost)) if lost else deliver, *effects]

    def _server(self, share: _Share, deliver: Deliver, now: float) -> str | None:
        """Returns the gateway serving the group: this one, if no lease says.

        None: nobody, since the publication is retained and came before us.
        """
        p = deliver.publication
        asked = LeaseQuestion(deliver.publisher, deliver.sequence, p.time_ms, deliver.sealed_ms, p.retain)
        early = p.retain and p.time_ms < share.own_from_ms
        return self._table.server(share.id, asked, now) or (None if early else self._name)

    def _hold(self, group: _Group, deliver: Deliver, now: float) -> list[Effect]:
        unknown = now < self._learned_at
        held = _Held(group, deliver, now + HOLD_S, unknown)
        gone = self._table_of(deliver.publication).put(held.key, deliver.publisher.encode(), held)
        self._drop_at = min(self._drop_at, held.until, self._learned_at if unknown else held.until)
        return self._let_go(gone[1], now) if gone else []

    def _let_go(self, held: _Held, now: float) -> list[Effect]:
        """Lets go of a held publication after its time, or when too much is held.

        If its server was unknown, we serve it unless another gateway has said so.
        """
        share = held.group.shares.get(self._leased(held.deliver.scope))
        if not held.unknown or share is None or held.group.linger_until is not None:
            return []
        return self._take_over(held, share) if self._server(share, held.deliver, now) == self._name else []

    def _take_over(self, held: _Held, share: _Share) -> list[Effect]:
        share.served_ms = max(share.served_ms, held.deliver.sealed_ms)
        return [DeliverShared(*held.group.name, held.deliver.publication), Count("groups_taken_over")]

    def _table_of(self, publication: Publication) -> FairTable[tuple[SharedName, str, int], _Held]:
        return self._held_large if len(publication.payload) > LARGE_BYTES else self._held

    def _released(self, group: GroupId, now: float) -> list[Effect]:
        """Gives held publications that are ours now to our members, since a lease of the group ended."""
        ours = self._by_id.get(group)
        effects: list[Effect] = []
        for held in [held for table in (self._held, self._held_large) for held in table.values() if held.group is ours]:
            share = held.group.shares.get(self._leased(held.deliver.scope))
            if share is None or share.id != group or held.group.linger_until is not None or held.unknown:
                continue
            if self._server(share, held.deliver, now) == self._name:
                self._table_of(held.deliver.publication).pop(held.key)
                effects += self._take_over(held, share)
        return effects

    # ---------------------------------------------------------------------------------------------- time

    def tick(self, now: float) -> tuple[list[Effect], list[str]]:
        """Renews leases and forgets groups and publications whose time is over. Returns also filters no longer
        wanted.
        """
        effects: list[Effect] = []
        self._deadline = None
        for group in [g for g in self._groups.values() if g.linger_until is not None and g.linger_until <= now]:
            self._forget_group(group)
        for share in self._shares():
            if share.lease.on and share.renew_at <= now:
                effects += self._state(share, now)
        if self._drop_at <= now:
            effects += self._drop_ended(now)
        lingering = {group.name[1] for group in self._groups.values() if group.linger_until is not None}
        over = sorted(self._postponed - lingering)
        self._postponed &= lingering
        return effects, over

    def _drop_ended(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for table in (self._held, self._held_large):
            learned = now >= self._learned_at
            for held in [held for held in table.values() if held.until <= now or (held.unknown and learned)]:
                table.pop(held.key)
                ours = self._let_go(held, now)
                if held.unknown and not ours and now < held.until:  # theirs, for all we know now: they may have left
                    table.put(held.key, held.deliver.publisher.encode(), replace(held, unknown=False))
                effects += ours
        self._drop_at = now + HOLD_S if len(self._held) + len(self._held_large) else float("inf")
        return effects

    @property
    def next_deadline(self) -> float | None:
        if self._deadline is None:  # asked after every event, and there may be many leases
            renewals = [share.renew_at for share in self._shares() if share.lease.on]
            lingers = [group.linger_until for group in self._groups.values() if group.linger_until is not None]
            self._deadline = min(renewals + lingers, default=float("inf"))
        return min(self._deadline, self._drop_at)

    def _shares(self) -> list[_Share]:
        return [share for group in self._groups.values() for share in group.shares.values()]

    def _forget_group(self, group: _Group) -> None:
        self._groups.pop(group.name)
        self._unlist(group)

    def _unlist(self, group: _Group) -> None:
        self._index.remove(group.name[1], group.name[0])
        for share in group.shares.values():
            self._by_id.pop(share.id, None)
        for table in (self._held, self._held_large):
            for held in [held for held in table.values() if held.group is group]:
                table.pop(held.key)

    # -------------------------------------------------------------------------------------------- leases

    def _begins(self, share: _Share, now: float) -> bool:
        """Returns True if others do not count on us, or ceased to, and can be told to now."""
        return share.ends_ms <= now * 1000 and self._view.quorum(self._up) and self._accepted(share.id[0])

    def _state(self, share: _Share, now: float) -> list[Effect]:
        """Makes a new lease. Its end is prolonged only while a quorum hears us.

        Else, were we cut off, others would serve the group meanwhile, and we again when the replicas' kept
        publications come.
        """
        ends_ms = int((now + LEASE_S) * 1000)
        if self._begins(share, now):
            share.starts_ms, share.ends_ms = ceil((now + JOIN_S) * 1000), ends_ms
        elif share.ends_ms > now * 1000 and self._view.quorum(self._up):
            share.ends_ms = ends_ms
        share.renew_at = now + RENEW_AFTER_S
        self._deadline = None
        lease = Lease(
            self._name, *share.id, 0, True, share.own_from_ms, ends_ms, share.starts_ms, share.ends_ms or ends_ms
        )
        share.lease = self._entered(lease, now)
        return self._tell_lease(self._up, share.lease)

    def _end_share(self, share: _Share, now: float) -> list[Effect]:
        """Ends our part in the group from now on."""
        now_ms = int(now * 1000)
        return self._cut(share, min(share.lease.ends_ms, max(now_ms, share.served_ms + 1)), now_ms, now)

    def _give_back(self, share: _Share, since_ms: int, now: float) -> list[Effect]:
        """Gives others the publications from `since_ms` on, since we left and one sent then came for us."""
        return self._cut(share, since_ms, share.lease.own_until_ms, now)

    def _cut(self, share: _Share, ends_ms: int, own_until_ms: int, now: float) -> list[Effect]:
        share.ends_ms = ends_ms
        ended = replace(share.lease, on=False, own_until_ms=own_until_ms, ends_ms=ends_ms)
        share.lease = self._entered(ended, now)
        self._deadline = None
        return self._tell_lease(self._up, share.lease)

    def _entered(self, lease: Lease, now: float) -> Lease:
        """Signs and enters a lease of ours. Its version is the time, so that it rises over restarts too."""
        self._version = max(self._version + 1, int(now * 1000))
        lease = replace(lease, version=self._version).signed(self._identity)
        self._table.enter_lease(lease)
        return lease

    def _tell_lease(self, peers: Iterable[str], lease: Lease) -> list[Effect]:
        return [Send(peer, Wire(GROUPS_TOPIC, lease.encode())) for peer in sorted(peers)]
