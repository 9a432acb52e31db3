"""Fetching scope keys from key servers, some of which may lie, be behind or be away (E2, docs/protocol.md §6.4).

A gateway or job has one `KeyFetcher`. The fetcher asks for the present epoch's keys of all scopes of its member, for
the next epoch's keys ahead of time, and for the names given to `want_key`. An output of a set of servers is believed
once f + 1 of them signed equal bytes; a key goes into `ScopeKeys` once every set has an output. Until then every
server is asked again after a growing pause, so that an outage ends by itself. In a chain the fetcher asks a single
server at a time, and the next after a refusal or without an answer.

Outputs of different deals (`material`) are never mixed; of two complete deals the later one counts. Not here: who
has which right (`issuing.Directory`), how requests travel, keeping keys on disk.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from keys.archive import archive_info
from keys.epochs import KeyName, ScopeKeys
from keys.errors import BadContent, BadFrame, BadSignature, Expired, Replayed
from keys.identity import Identity, Role
from keys.issuing import Directory
from keys.requests import NAMES_MAX, NONCE_BYTES, KeyAnswer, KeyRequest, Outputs, answer_info, decode_outputs, digest_of
from keys.verdicts import Verdict

RETRY_S = 2.0  # the first pause before a server is asked for the same key again; it doubles
RETRY_MAX_S = 60.0
PENDING_MAX = 64  # requests without an answer at one server; the oldest are given up
EXTRA_MAX = 256  # names beyond our scopes' present and next keys; stops a publisher that invents epochs
EXTRA_EVERY_S = 3.0  # such names are gathered: one request of at most 64 so often, less than servers bear for ever
EXTRA_S = 600.0  # how long such a name is asked for; a header that needs it later names it again
DOUBT_S = 60.0  # how long a doubted key is asked for again, and how soon it may be doubted again


@dataclass(frozen=True, slots=True)
class Ask:
    """An effect: send this request to that key server."""

    server: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Learned:
    """An effect: this key is in `ScopeKeys` now, or replaced a wrong one there."""

    name: KeyName


@dataclass(frozen=True, slots=True)
class Lied:
    """An effect: this server signed an output that f + 1 others contradict, of which at least one is honest."""

    server: str
    why: str


@dataclass(frozen=True, slots=True)
class RefusedByServer:
    """An effect: this server gave no usable output. Nobody is blamed: policies may differ for a while."""

    server: str
    why: str


Effect = Ask | Learned | Lied | RefusedByServer


@dataclass(slots=True)
class _Try:
    """The requests to a server for a key: how many, when the next is due, and whether it refused since."""

    count: int = 0
    at: float = 0.0
    refused: bool = False


@dataclass(slots=True)
class _Wish:
    """A key we want, or got and still compare.

    `until`: when to stop asking; infinity for our scopes' present and next keys. `doubt`: servers that are asked once
    more,
    because a publisher uses another key.
    """

    verdict: Verdict
    until: float
    open: bool = True
    tries: dict[str, _Try] = field(default_factory=dict)
    doubt: set[str] | None = None
    doubted_at: float = float("-inf")

    @property
    def times_asked(self) -> int:
        """The number of times that the server asked most often was asked."""
        return max((each.count for each in self.tries.values()), default=0)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request on its way. `identity`: our key pair at that time; the answer is sealed to it."""

    names: tuple[KeyName, ...]
    identity: Identity


class KeyFetcher:
    """The state machine getting a single member's scope keys from key servers. Every method returns the effects to
    carry out.

    `name`: our overlay name. `random(n)`: n random bytes. Raises `OurFault` if the directory's servers cannot be a
    key
    service.
    """

    def __init__(
        self,
        identity: Identity,
        name: str,
        directory: Directory,
        keys: ScopeKeys,
        random: Callable[[int], bytes],
    ) -> None:
        self._identity = identity
        self._name = name
        self._directory = directory
        self._keys = keys
        self._random = random
        self._wishes: dict[KeyName, _Wish] = {}
        self._up: dict[str, OrderedDict[bytes, _Asked]] = {}
        self._ahead = (-1, 0.0)  # an epoch and when to fetch its keys
        self._planned: tuple[int, bool] | None = None
        self._extra_at = float("-inf")  # when names beyond our own may be asked for again
        self._named: set[str] = set()  # liars of this epoch
        self._next = float("-inf")
        self._verdict()

    # -------------------------------------------------------------------------------------------- inputs

    @property
    def next_deadline(self) -> float:
        """The time of the next `tick`; infinity if only a link or an answer can help."""
        return self._next

    def link_up(self, server: str, now: float) -> list[Effect]:
        """Notes that a key server can be reached, and asks it at once."""
        if server in self._directory.servers:
            self._up[server] = OrderedDict()
            for wish in self._wishes.values():
                wish.tries.pop(server, None)
        return self._work(now)

    def link_down(self, server: str, now: float) -> list[Effect]:
        """Notes that a key server cannot be reached; its open requests go elsewhere or later."""
        self._up.pop(server, None)
        return self._work(now)

    def want_key(self, name: KeyName, now: float) -> list[Effect]:
        """Asks for the key of a header that was met. A name that is held, forbidden or impossible is ignored."""
        if self._keys.get(name) is not None or not self._possible(name, now):
            return []
        if name not in self._wishes:
            self._add_wish(name, now + EXTRA_S)
        if now < self._extra_at:
            self._next = min(self._next, self._extra_at)
            return []
        return self._work(now)

    def doubted(self, name: KeyName, now: float) -> list[Effect]:
        """Asks servers again for a key of which a publisher uses another value; in a chain those that were not asked
        yet.

        A bad publisher can cause that once in `DOUBT_S` for a name, but cannot make us believe another key.
        """
        if self._keys.get(name) is None or not self._possible(name, now):
            return self.want_key(name, now)
        wish = self._wishes.get(name) or self._add_wish(name, now + DOUBT_S)
        if now < wish.doubted_at + DOUBT_S:
            return []
        servers = set(self._directory.servers)
        wish.doubt = servers if self._directory.faults else servers - wish.verdict.voters()
        wish.open, wish.doubted_at, wish.tries = True, now, {}
        wish.verdict.doubt()
        return self._work(now)

    def adopt_directory(self, directory: Directory, now: float) -> list[Effect]:
        """Adopts another version of the overlay: other rights, bumps, servers. Raises `OurFault` as the class does."""
        self._directory = directory
        self._verdict()
        self._up = {server: asked for server, asked in self._up.items() if server in directory.servers}
        extra = {name: wish.until for name, wish in self._wishes.items() if wish.until < float("inf")}
        self._wishes = {name: self._wish(until) for name, until in extra.items() if self._possible(name, now)}
        self._planned = None
        return self._work(now)

    def rotate_identity(self, identity: Identity) -> None:
        """Adopts a new key pair. Answers that are on their way still open with the former one."""
        self._identity = identity

    def tick(self, now: float) -> list[Effect]:
        """Carries out the work that is due at `now`."""
        return self._work(now) if now >= self._next else []

    def take_answer(self, server: str, data: bytes, now: float) -> list[Effect]:
        """Takes an answer that came over that server's link.

        Raises `BadFrame`, `BadSignature`, `Expired`, or `Replayed` for an answer to no open request.
        """
        answer = KeyAnswer.decode(data)
        certificate = self._directory.certificate(answer.server)
        if certificate is None or certificate.name != server or certificate.role is not Role.KEY_SERVER:
            raise BadSignature(f"an answer about keys that is not from {server}")
        answer.verify(certificate)
        if now * 1000 > certificate.not_after_ms:
            raise Expired(f"the certificate of {server} has ended")
        asked = self._up[server].pop(answer.request, None) if server in self._up else None
        if asked is None:
            raise Replayed(f"an answer of {server} to what it was not asked, or answered before")
        effects = list(self._refusals(server, answer, asked))
        try:
            for said in _opened(server, answer, asked):
                effects += self._take_outputs(server, said)
        except (BadContent, BadFrame) as error:
            self._turn_from(server, asked.names)
            effects.append(RefusedByServer(server, f"its answer cannot be read: {error}"))
        return effects + self._work(now)

    # ------------------------------------------------------------------------------------------- answers

    def _refusals(self, server: str, answer: KeyAnswer, asked: _Asked) -> Iterator[Effect]:
        for index, reason in answer.refused:
            if index >= len(asked.names):
                yield RefusedByServer(server, "it refuses what it was not asked for")
                return
            name = asked.names[index]
            self._turn_from(server, (name,))
            what = reason.name.lower().replace("_", " ")
            yield RefusedByServer(server, f"{what}: scope {name.scope!r}, epoch {name.epoch}, bump {name.bump}")

    def _take_outputs(self, server: str, said: Outputs) -> list[Effect]:
        wish = self._wishes.get(said.name)
        if wish is None:
            return []
        if not wish.verdict.hear(server, said):
            self._turn_from(server, (said.name,))
            return [RefusedByServer(server, f"outputs of other sets than its own for scope {said.name.scope!r}")]
        if wish.doubt is not None:
            wish.doubt.discard(server)
        effects: list[Effect] = []
        key = wish.verdict.agreed_key()
        if key is not None:
            if self._keys.get(said.name) != key:
                self._keys.replace(said.name, key)
                effects.append(Learned(said.name))
            for liar in sorted(wish.verdict.liars() - self._named):
                self._named.add(liar)
                why = f"another output than {self._directory.faults + 1} servers for scope {said.name.scope!r}"
                effects.append(Lied(liar, f"{why}, epoch {said.name.epoch}, bump {said.name.bump}"))
        return effects

    def _turn_from(self, server: str, names: tuple[KeyName, ...]) -> None:
        """Notes that a server gave nothing for these names: in a chain the next server is asked."""
        for name in names:
            wish = self._wishes.get(name)
            if wish is not None and server in wish.tries:
                wish.tries[server].refused = True

    # -------------------------------------------------------------------------------------------- asking

    def _work(self, now: float) -> list[Effect]:
        """Plans, gives up finished wishes, asks each server that is due, and sets the next deadline."""
        self._plan(now)
        due: dict[str, list[KeyName]] = {}
        deadlines = [self._directory.calendar.end_s(self._directory.calendar.epoch_at(now)), self._ahead[1]]
        pauses: dict[tuple[str, int], float] = {}
        extra = NAMES_MAX if now >= self._extra_at else 0
        # Names that were asked for least come first: those that no server has keep no new one waiting.
        for name, wish in sorted(self._wishes.items(), key=lambda each: each[1].times_asked):
            if not wish.open:
                continue
            servers = self._due(wish, now)
            if servers and wish.until < float("inf"):
                extra, servers = extra - 1, servers if extra > 0 else []
                self._extra_at = now + EXTRA_EVERY_S if servers else self._extra_at
                deadlines.append(self._extra_at)
            for server in servers:
                due.setdefault(server, []).append(name)
                count = wish.tries[server].count + 1 if server in wish.tries else 1
                if (server, count) not in pauses:  # what is asked together is asked together again
                    pauses[server, count] = self._pause_s(count)
                wish.tries[server] = _Try(count, now + pauses[server, count])
            deadlines += [wish.tries[server].at for server in wish.tries.keys() & self._up.keys()]
            deadlines.append(wish.until)
        self._next = min((at for at in deadlines if at > now), default=float("inf"))
        return [ask for server, names in due.items() for ask in self._ask_server(server, names, now)]

    def _plan(self, now: float) -> None:
        """Wishes for our scopes' present keys and, from a random moment ahead of it on, for the next epoch's."""
        calendar, directory = self._directory.calendar, self._directory
        present = calendar.epoch_at(now)
        if self._ahead[0] != present + 1:
            # a random moment of the first half, lest all members ask at once
            moment = calendar.fetch_from_s(present + 1) + self._chance() * calendar.ahead_s / 2
            self._ahead = (present + 1, moment)
        for name, wish in list(self._wishes.items()):
            over = now >= wish.until or (wish.until == float("inf") and name.epoch + 1 < present)
            if over:
                del self._wishes[name]
            elif not wish.doubt or now >= wish.doubted_at + DOUBT_S:
                wish.doubt, wish.open = None, self._keys.get(name) is None
        planned = (present, now >= self._ahead[1])
        if planned == self._planned:
            return
        if self._planned is None or self._planned[0] != present:
            self._named.clear()
        self._planned = planned
        epochs = range(present, (calendar.last(now) if planned[1] else present) + 1)
        for scope in directory.keyed_scopes():
            for epoch in epochs:
                if directory.may_read(self._name, scope, epoch) or directory.may_publish_in(self._name, scope, epoch):
                    name = KeyName(scope, epoch, directory.bump(scope) or 0)
                    if self._keys.get(name) is None:
                        self._wishes.setdefault(name, self._wish(0.0)).until = float("inf")

    def _due(self, wish: _Wish, now: float) -> list[str]:
        servers = [server for server in self._up if wish.doubt is None or server in wish.doubt]
        tries = {server: wish.tries.get(server, _Try()) for server in servers}
        due = [server for server in servers if tries[server].at <= now]
        if not self._directory.chain:
            return due
        if any(found.at > now and not found.refused for found in tries.values()):
            return []  # its answer may still come
        return sorted(due, key=lambda server: (tries[server].count, self._rank(server)))[:1]

    def _ask_server(self, server: str, names: list[KeyName], now: float) -> Iterator[Ask]:
        pending = self._up[server]
        for start in range(0, len(names), NAMES_MAX):
            some = tuple(names[start : start + NAMES_MAX])
            request = KeyRequest.signed(self._identity, server, self._random(NONCE_BYTES), int(now * 1000), some)
            data = request.encode()
            pending[digest_of(data)] = _Asked(some, self._identity)
            if len(pending) > PENDING_MAX:
                pending.popitem(last=False)
            yield Ask(server, data)

    def _possible(self, name: KeyName, now: float) -> bool:
        bump = self._directory.bump(name.scope)
        if bump is None or name.bump > bump or name.epoch > self._directory.calendar.last(now):
            return False
        return self._directory.may_read(self._name, name.scope, name.epoch)

    def _add_wish(self, name: KeyName, until: float) -> _Wish:
        extra = [name for name, wish in self._wishes.items() if wish.until < float("inf")]
        if len(extra) >= EXTRA_MAX:
            del self._wishes[extra[0]]
        wish = self._wishes[name] = self._wish(until)
        return wish

    def _wish(self, until: float) -> _Wish:
        return _Wish(self._verdict(), until)

    def _verdict(self) -> Verdict:
        directory = self._directory
        return Verdict(tuple(directory.servers), directory.faults, chain=directory.chain)

    def _rank(self, server: str) -> int:
        """Returns a server's turn in a chain, in which different members begin with different servers."""
        servers = list(self._directory.servers)
        return (servers.index(server) + sum(self._identity.party_id)) % len(servers)

    def _pause_s(self, count: int) -> float:
        return min(RETRY_MAX_S, RETRY_S * 2.0 ** min(count - 1, 10)) * (0.75 + self._chance() / 2)

    def _chance(self) -> float:
        return int.from_bytes(self._random(4)) / 2**32


def _opened(server: str, answer: KeyAnswer, asked: _Asked) -> list[Outputs]:
    """Returns a server's outputs for the names we asked for; all else in its boxes is ignored."""
    said = decode_outputs(asked.identity.open_box(answer.box, answer_info(server, answer.request)))
    for epoch, box in answer.archived:
        info = archive_info(server, asked.identity.party_id, epoch)
        said += decode_outputs(asked.identity.open_box(box, info))
    return [outputs for outputs in said if outputs.name in asked.names]
