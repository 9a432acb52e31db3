"""The service by which members get the keys of scopes: the overlay as a directory of rights, requests and answers as
wires, and the secrets the owner hands over in the overlay itself (docs/protocol.md §6.4).

    asker -> server   `$veil/grant`, payload: `keys.requests.KeyRequest`
    server -> asker   `$veil/grant`, payload: `keys.requests.KeyAnswer`, on the same link

Not here: the checks of a server (`keys.issuing`) and of an asker (`keys.fetching`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from bridge.contract import Blame, Count, Effect, Event, KeysChanged, Received, Rotated, Send, Tick, Wire
from bridge.document import Issuer, Overlay, ScopeSecret
from bridge.membership.node import Node
from keys import fetching
from keys.epochs import Calendar, KeyName, ScopeKeys
from keys.errors import KeysError
from keys.fetching import KeyFetcher
from keys.handover import open_grants
from keys.identity import Certificate, Identity
from keys.issuing import KeyServer
from keys.material import Material

GRANT_TOPIC = "$veil/grant"


class OverlayDirectory:
    """A directory (`keys.issuing.Directory`) of a version of the overlay. Scopes without epoch keys are absent."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._bumps = {scope.filter: scope.bump for scope in overlay.policy.scopes if scope.keyed}

    @property
    def version(self) -> int:
        return self._overlay.policy.version

    @property
    def calendar(self) -> Calendar:
        return self._overlay.policy.calendar

    @property
    def servers(self) -> Sequence[str]:
        return self._overlay.policy.key_servers

    @property
    def faults(self) -> int:
        return self._overlay.policy.server_faults

    @property
    def chain(self) -> bool:
        return self._overlay.policy.issuer is Issuer.CHAIN

    def certificate(self, party: bytes) -> Certificate | None:
        return self._overlay.by_party.get(party)

    def keyed_scopes(self) -> Iterable[str]:
        return self._bumps.keys()

    def bump(self, scope: str) -> int | None:
        return self._bumps.get(scope)

    def may_read(self, name: str, scope: str, epoch: int) -> bool:
        found = self._overlay.scope_named(scope) if scope in self._bumps else None
        return found is not None and self._overlay.may_read(name, found, epoch)

    def may_publish_in(self, name: str, scope: str, epoch: int) -> bool:
        found = self._overlay.scope_named(scope) if scope in self._bumps else None
        return found is not None and self._overlay.may_publish_in(name, found, epoch)

    def readers(self, epoch: int) -> Iterable[tuple[Certificate, Sequence[str]]]:
        for name, member in self._overlay.members.items():
            scopes = [scope for scope in self._bumps if self.may_read(name, scope, epoch)]
            for certificate in member.certificates if scopes else ():
                yield certificate, scopes


def answer(server: KeyServer, event: Received, now: float) -> list[Effect]:
    """Answers a request that came over a link. A refused request is counted and charged to the link."""
    issued, refused = server.issued, server.refused
    try:
        data = server.answer(event.wire.payload, now)
    except KeysError as error:
        return [Count("refused", 1, type(error).__name__), Blame(event.peer, False, str(error))]
    effects: list[Effect] = [Send(event.peer, Wire(GRANT_TOPIC, data)), Count("key_requests_answered")]
    effects += [Count("keys_issued", server.issued - issued)] if server.issued > issued else []
    return effects + ([Count("keys_refused", server.refused - refused)] if server.refused > refused else [])


class KeyClient:
    """The asker's end: turns the sends, lessons and blame of `keys.fetching` into effects. `KeysChanged`: keys came.

    `random(n)`: n random bytes.
    """

    def __init__(
        self, overlay: Overlay, identity: Identity, name: str, keys: ScopeKeys, random: Callable[[int], bytes]
    ) -> None:
        self._fetcher = KeyFetcher(identity, name, OverlayDirectory(overlay), keys, random)

    def link_up(self, server: str, now: float) -> list[Effect]:
        return _as_effects(self._fetcher.link_up(server, now))

    def link_down(self, server: str, now: float) -> list[Effect]:
        return _as_effects(self._fetcher.link_down(server, now))

    def take_answer(self, event: Received, now: float) -> list[Effect]:
        """Takes an answer. An invalid answer is dropped, counted and charged to the link."""
        try:
            return _as_effects(self._fetcher.take_answer(event.peer, event.wire.payload, now))
        except KeysError as error:
            return [Count("refused", 1, type(error).__name__), Blame(event.peer, False, str(error))]

    def want_key(self, name: KeyName, now: float) -> list[Effect]:
        """Asks for a key we lack and under which a publisher sealed."""
        return _as_effects(self._fetcher.want_key(name, now))

    def doubted(self, name: KeyName, now: float) -> list[Effect]:
        """Takes note that a publisher sealed under another key of this name than ours."""
        return _as_effects(self._fetcher.doubted(name, now))

    def adopt_overlay(self, overlay: Overlay, now: float) -> list[Effect]:
        return _as_effects(self._fetcher.adopt_directory(OverlayDirectory(overlay), now))

    def rotate_identity(self, identity: Identity) -> None:
        self._fetcher.rotate_identity(identity)

    def tick(self, now: float) -> list[Effect]:
        return _as_effects(self._fetcher.tick(now))

    @property
    def next_deadline(self) -> float | None:
        at = self._fetcher.next_deadline
        return None if at == float("inf") else at


def _as_effects(said: Iterable[fetching.Effect]) -> list[Effect]:
    effects: list[Effect] = []
    learned = 0
    for what in said:
        match what:
            case fetching.Ask(server, data):
                effects += [Send(server, Wire(GRANT_TOPIC, data)), Count("key_requests")]
            case fetching.Learned():
                learned += 1
            case fetching.Lied(server, why):
                effects += [Blame(server, True, why), Count("key_server_lies", 1, server)]
            case fetching.RefusedByServer(server, _):
                effects.append(Count("key_refusals", 1, server))
    return [*effects, Count("keys_fetched", learned), KeysChanged()] if learned else effects


def handed_over(
    overlay: Overlay, name: str, identity: Identity, known: Sequence[ScopeSecret], keys: ScopeKeys
) -> tuple[list[ScopeSecret], bool]:
    """Returns the secrets of a member under a version of the overlay (former secrets of scopes that remain, and the
    secrets in the member's box) and True if epoch keys came with them, which go into `keys`.

    A box that does not open is sealed to our next key, and opens after the rotation. Until then the former secrets
    hold.
    """
    secrets = {secret.scope.filter: secret for secret in known}
    try:
        grants = open_grants(overlay.policy.overlay, name, identity, overlay.members[name].box)
    except KeysError:
        grants = []
    came = False
    for grant in grants:
        scope = overlay.scope_named(grant.wire_filter)
        if scope is not None:
            secrets[scope.filter] = ScopeSecret(scope, grant.clear_filter, grant.token_key)
            for key_name, key in grant.keys:
                if keys.get(key_name) != key:
                    keys.replace(key_name, key)
                    came = True
    scopes = {scope.filter: scope for scope in overlay.policy.scopes}
    return [replace(secret, scope=scopes[f]) for f, secret in secrets.items() if f in scopes], came


class KeyServerNode(Node):
    """A key server: answers requests for epoch keys, and erases ended epochs. A key server is in no region.

    `material`: the owner's deal for this server; `archive`: the stored archives by ended epoch, as in `KeepArchive`.
    """

    def __init__(
        self,
        overlay: Overlay,
        identity: Identity,
        name: str,
        material: Material,
        archive: Mapping[int, bytes],
        random: Callable[[int], bytes],
    ) -> None:
        super().__init__(overlay, name)
        self.server = KeyServer(identity, name, material, OverlayDirectory(overlay), random, archive)

    def _handle_event(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Received(peer, wire):
                if wire.topic != GRANT_TOPIC:
                    return [Count("refused", 1, "topic"), Blame(peer, False, "a key server takes requests only")]
                # Erase ended epochs before any further answer, however late the tick is.
                return [*self._walk(now), *answer(self.server, event, now)]
            case Tick():
                return self._walk(now)
            case Rotated(identity):
                self.server.rotate_identity(identity)
        return []

    def _walk(self, now: float) -> list[Effect]:
        return [*self.server.walk(now)] if now >= self.server.next_deadline else []

    def _adopt_overlay(self, overlay: Overlay, now: float) -> list[Effect]:
        self.server.adopt_directory(OverlayDirectory(overlay))
        return self._walk(now)

    def _deadlines(self) -> list[float | None]:
        return [self.server.next_deadline]
