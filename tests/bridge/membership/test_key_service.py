"""The overlay as a directory of rights, key servers' wires at nodes, and what the owner hands over in a new version."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bridge.contract.machine import Blame, Count, Effect, KeysChanged, LinkUp, Received, Rotated, Send, Tick, Wire
from bridge.document.overlay import Overlay
from bridge.document.policy import Issuer, Scope
from bridge.membership import key_service
from bridge.membership.adopting import canonical
from bridge.membership.key_service import GRANT_TOPIC, KeyClient, OverlayDirectory, answer, handed_over
from bridge.node import GatewayNode, KeyServerNode, ReaderNode
from bridge.topology import peers_of
from keys.envelope import Mode
from keys.epochs import KeyName, ScopeKeys
from keys.errors import NotAuthorised
from keys.fetching import Ask, Learned, Lied, RefusedByServer
from keys.grants import Grant, Right
from keys.handover import ScopeGrant, seal_grants
from keys.identity import Certificate, Identity
from tests.bridge.helpers import counted, gateway, suspected
from tests.sim.keyservers import CALENDAR, SERVERS, Service, key_world
from tests.sim.world import NOT_AFTER_MS, NOW, make_world


@pytest.fixture(scope="module")
def service() -> Service:
    return key_world(seed=3)


def wires(effects: list[Effect], peer: str) -> list[Wire]:
    return [e.wire for e in effects if isinstance(e, Send) and e.peer == peer and e.wire.topic == GRANT_TOPIC]


def test_links_join_key_servers_with_gateways_and_jobs_of_all_regions(service: Service):
    assert peers_of(service.overlay, "key1") == {"site", "control"}
    assert peers_of(service.overlay, "site") == {"r1a", "r1b", "r1c", *SERVERS}
    assert peers_of(service.overlay, "r1a").isdisjoint(SERVERS)


def test_the_directory_knows_scopes_with_keys_only_and_rights_by_epoch():
    scopes = [Scope("plant/#", bump=3), Scope("open/#", mode=Mode.PLAIN), Scope("few/#", shares_only=True)]
    world = make_world({1: 3}, [], {"site": 1, "late": 1, "writer": 1}, scopes)
    grants = (
        Grant("site", "#", Right.READ, 2, 4), Grant("late", "plant/line1/#", Right.READ),
        Grant("writer", "plant/line1/#", Right.PUBLISH),
    )  # fmt: skip
    overlay = world.with_policy(grants=grants, scopes=tuple(scopes))
    directory = OverlayDirectory(overlay)
    assert (list(directory.keyed_scopes()), directory.bump("plant/#"), directory.bump("open/#")) == (
        ["plant/#"],
        3,
        None,
    )
    assert [directory.may_read("site", "plant/#", epoch) for epoch in (1, 2, 4, 5)] == [False, True, True, False]
    assert not directory.may_read("late", "plant/#", 2), "a part of a scope is not the scope"
    assert directory.may_publish_in("writer", "plant/#", 0)
    assert not directory.may_publish_in("writer", "open/#", 0), "there are no keys to give out"
    assert [(c.name, list(s)) for c, s in directory.readers(2)] == [("site", ["plant/#"])]
    assert list(directory.readers(5)) == []


def test_a_member_in_rotation_is_a_reader_under_both_certificates():
    world = make_world({1: 3}, [], {"site": 1})
    assert world.owner is not None
    fresh = Identity.generate(bytes(range(7, 39)))
    members = dict(world.overlay.members)
    old = members["site"].certificate
    new = renewed(world.owner, old, fresh)
    members["site"] = replace(members["site"], certificate=new, before=old)
    overlay = Overlay.sign(world.owner, world.overlay.policy, world.overlay.views.values(), members.values())
    readers = [certificate for certificate, _ in OverlayDirectory(overlay).readers(0)]
    assert readers == [new, old]
    assert OverlayDirectory(overlay).certificate(old.party_id) == old


def renewed(owner: Identity, old: Certificate, identity: Identity) -> Certificate:
    return Certificate.issue(
        owner, name=old.name, role=old.role, public_key=identity.public_bytes, agreement_key=identity.agreement_bytes,
        domain=old.domain, region=old.region, not_after_ms=NOT_AFTER_MS,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- wires


def test_a_gateway_asks_and_f_plus_one_answers_give_keys(service: Service):
    node = service.gateway("site")
    servers = {name: service.server(name) for name in SERVERS}
    effects: list[Effect] = []
    for name in SERVERS:
        for wire in wires(node.handle(LinkUp(name), NOW), name):
            for given in wires(servers[name].handle(Received("site", wire), NOW), "site"):
                effects += node.handle(Received(name, given), NOW)
    assert any(isinstance(effect, KeysChanged) for effect in effects)
    epoch = CALENDAR.epoch_at(NOW)
    assert service.held("site", KeyName("plant/#", epoch, 0)) == service.right(KeyName("plant/#", epoch, 0))


def test_garbage_and_answers_over_a_foreign_link_are_charged_to_it(service: Service):
    node = service.gateway("site")
    node.handle(LinkUp("key1"), NOW)
    for wire in (Wire(GRANT_TOPIC, b""), Wire(GRANT_TOPIC, b"\1\16\0"), Wire("plant/t", b"x")):
        effects = node.handle(Received("key1", wire), NOW)
        assert (counted(effects, "refused"), suspected(effects)) == (1, {"key1"})
    (question, *_) = wires(node.handle(LinkUp("key2"), NOW), "key2")
    (given,) = wires(service.server("key2").handle(Received("site", question), NOW), "site")
    assert counted(node.handle(Received("r1a", given), NOW), "refused") == 1
    assert counted(node.handle(Received("key1", given), NOW), "refused") == 1


def test_a_key_server_answers_members_only_and_nothing_but_requests(service: Service):
    server = service.server("key1")
    for wire in (Wire(GRANT_TOPIC, b"x"), Wire("plant/t", b"x")):
        effects = server.handle(Received("site", wire), NOW)
        assert (counted(effects, "refused"), wires(effects, "site")) == (1, [])
    assert counted(server.handle(Received("r1a", Wire(GRANT_TOPIC, b"x")), NOW), "refused") == 1


def test_a_key_server_follows_a_newer_overlay(service: Service):
    """A revoked reader gets no key that is issued later, though its link is still there."""
    server, node = service.server("key1"), service.gateway("site")
    server.handle(LinkUp("site"), NOW)
    server.offered(canonical(service.world.revoked("site", -1)), NOW)
    assert isinstance(server, KeyServerNode)
    (question, *_) = wires(node.handle(LinkUp("key1"), NOW), "key1")
    effects = server.handle(Received("site", question), NOW)
    assert counted(effects, "keys_issued") == 0
    assert counted(effects, "keys_refused") > 0


def test_a_reader_without_a_collector_asks_for_what_its_shell_lacks(service: Service):
    keys = ScopeKeys()
    node = ReaderNode(service.overlay, service.world.identities["site"], "site", service.world.secrets, keys, draw())
    node.handle(LinkUp("key1"), NOW)
    epoch = CALENDAR.epoch_at(NOW)
    name = KeyName("plant/#", epoch - 1, 0)
    assert wires(node.wanted(name, NOW), "key1")
    assert node.handle(Received("r1a", Wire("plant/t", b"x")), NOW) == [], "its shell opens publications"


def draw() -> random.Random:
    return random.Random(5).randbytes  # type: ignore[return-value]


# --------------------------------------------------------------------------------- what the owner hands over


def boxed(to: Identity, bump: int, key: bytes) -> tuple[Overlay, object]:
    world = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#")])
    assert world.owner is not None
    name = KeyName("plant/#", 0, bump)
    grants = [ScopeGrant("plant/#", "plant/#", None, ((name, key),))]
    members = dict(world.overlay.members)
    box = seal_grants(world.overlay.policy.overlay, "site", to.agreement_bytes, grants, bytes(range(32)))
    members["site"] = replace(members["site"], box=box)
    policy = replace(world.overlay.policy, version=2, scopes=(Scope("plant/#", bump=bump),))
    return Overlay.sign(world.owner, policy, world.overlay.views.values(), members.values()), world


def test_a_bump_of_the_owner_is_sealed_under_at_once():
    """No key service: the new key comes inside the new version."""
    world = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#")])
    overlay, _ = boxed(world.identities["site"], 1, b"k" * 32)
    node = gateway(world, "site")
    effects = node.offered(canonical(overlay), NOW)
    assert any(isinstance(effect, KeysChanged) for effect in effects)
    assert world.keys.get(KeyName("plant/#", 0, 1)) == b"k" * 32
    assert node.secrets[0].scope.bump == 1


def test_a_box_for_our_next_key_opens_after_the_rotation():
    world = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#")])
    fresh = Identity.generate(bytes(range(9, 41)))
    overlay, _ = boxed(fresh, 1, b"k" * 32)
    node = gateway(world, "site")
    node.offered(canonical(overlay), NOW)
    assert world.keys.get(KeyName("plant/#", 0, 1)) is None
    effects = node.handle(Rotated(fresh), NOW)
    assert any(isinstance(effect, KeysChanged) for effect in effects)
    assert world.keys.get(KeyName("plant/#", 0, 1)) == b"k" * 32


def test_scopes_that_are_gone_are_forgotten_and_known_ones_follow_the_policy():
    world = make_world({1: 3}, [], {"site": 1})
    overlay = world.with_policy(scopes=(Scope("plant/#", bump=4),))
    secrets, came = handed_over(overlay, "site", world.identities["site"], world.secrets, world.keys)
    assert ([(s.scope.filter, s.scope.bump) for s in secrets], came) == ([("plant/#", 4)], False)


@pytest.mark.invariant(59)
def test_key_servers_erase_what_is_over_before_they_answer(service: Service):
    """The clock passes an epoch and a request comes before the tick."""
    server = service.server("key1")
    later = NOW + 3 * CALENDAR.length_s
    effects = server.handle(Received("site", Wire(GRANT_TOPIC, b"x")), later)
    kinds = [type(effect).__name__ for effect in effects]
    assert kinds[0] == "KeepArchive"
    assert kinds.index("KeepMaterial") < kinds.index("Count")
    assert server.handle(Tick(), later) == []


def test_without_a_key_service_no_link_speaks_of_keys():
    world = make_world({1: 3}, [], {"site": 1})
    node = gateway(world, "site")
    assert isinstance(node, GatewayNode)
    assert counted(node.handle(Received("r1a", Wire(GRANT_TOPIC, b"x")), NOW), "refused") == 1
    assert node.wanted(KeyName("plant/#", 0, 9), NOW) == node.doubted(KeyName("plant/#", 0, 0), NOW) == []
    assert world.overlay.policy.issuer is Issuer.OWNER


# ------------------------------------------------------------------------------------ rights, figures, blame


def test_there_is_no_right_to_keys_of_a_scope_that_has_none_or_does_not_exist():
    """Attack: to ask for keys of a plain scope, of one with shares only, or of one that nobody made."""
    scopes = (Scope("plant/#"), Scope("open/#", mode=Mode.PLAIN), Scope("few/#", shares_only=True))
    world = make_world({1: 3}, [], {"site": 1}, scopes)
    grants = (Grant("site", "#", Right.READ), Grant("site", "#", Right.PUBLISH))
    directory = OverlayDirectory(world.with_policy(grants=grants, scopes=scopes))
    for may in (directory.may_read, directory.may_publish_in):
        assert [may("site", scope, 0) for scope in ("plant/#", "open/#", "few/#", "none/#")] == [True] + [False] * 3


class ScriptedServer:
    """Issues and refuses so many keys in each answer; or raises."""

    issued, refused = 10, 20

    def __init__(self, issues: int = 0, refuses: int = 0, error: Exception | None = None) -> None:
        self._now, self._error = (issues, refuses), error

    def answer(self, data: bytes, now: float) -> bytes:
        if self._error is not None:
            raise self._error
        self.issued, self.refused = self.issued + self._now[0], self.refused + self._now[1]
        return data[::-1]


def test_an_answer_goes_back_over_its_link_and_is_counted_by_what_it_gave():
    assert GRANT_TOPIC == "$veil/grant"
    event = Received("site", Wire(GRANT_TOPIC, b"abc"))
    given = [Send("site", Wire("$veil/grant", b"cba")), Count("key_requests_answered")]
    issued, refused = Count("keys_issued", 3), Count("keys_refused", 2)
    for server, more in (
        (ScriptedServer(), []), (ScriptedServer(3), [issued]), (ScriptedServer(0, 2), [refused]),
        (ScriptedServer(3, 2), [issued, refused]),
    ):  # fmt: skip
        assert answer(server, event, NOW) == given + more  # type: ignore[arg-type]
    stranger = ScriptedServer(error=NotAuthorised("nobody"))
    assert answer(stranger, event, NOW) == [  # type: ignore[arg-type]
        Count("refused", 1, "NotAuthorised"), Blame("site", False, "nobody"),
    ]  # fmt: skip


class ScriptedFetcher:
    """Says always the same."""

    def __init__(self, *said: object) -> None:
        self.said, self.rotated, self.next_deadline = said, [], float("inf")

    def tick(self, now: float) -> tuple[object, ...]:
        return self.said

    def rotate_identity(self, identity: Identity) -> None:
        self.rotated.append(identity)  # type: ignore[attr-defined]


def client(fetcher: ScriptedFetcher, monkeypatch: pytest.MonkeyPatch) -> KeyClient:
    world = make_world({1: 3}, [], {"site": 1})
    monkeypatch.setattr(key_service, "KeyFetcher", lambda *_: fetcher)
    return KeyClient(world.overlay, world.identities["site"], "site", ScopeKeys(), bytes)


def test_a_server_is_named_for_a_lie_only_and_each_thing_is_counted_once(monkeypatch: pytest.MonkeyPatch):
    """A refusal names nobody: policies may differ for a while."""
    learned = Learned(KeyName("plant/#", 0, 0))
    said = (learned, Ask("key1", b"q"), Lied("key2", "false"), RefusedByServer("key3", "no"), learned)
    assert client(ScriptedFetcher(*said), monkeypatch).tick(NOW) == [
        Send("key1", Wire(GRANT_TOPIC, b"q")), Count("key_requests"),
        Blame("key2", True, "false"), Count("key_server_lies", 1, "key2"),
        Count("key_refusals", 1, "key3"),
        Count("keys_fetched", 2), KeysChanged(),
    ]  # fmt: skip
    assert client(ScriptedFetcher(said[3]), monkeypatch).tick(NOW) == [Count("key_refusals", 1, "key3")]


def test_a_client_hands_its_new_key_pair_on_and_has_a_deadline_if_time_can_help(monkeypatch: pytest.MonkeyPatch):
    fetcher = ScriptedFetcher()
    one, fresh = client(fetcher, monkeypatch), Identity.generate(bytes(range(5, 37)))
    one.rotate_identity(fresh)
    assert fetcher.rotated == [fresh]
    assert one.next_deadline is None
    fetcher.next_deadline = NOW
    assert one.next_deadline == NOW


def test_what_is_handed_over_replaces_what_was_known_and_only_new_keys_are_news():
    world = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#")])
    assert world.owner is not None
    name, keys = KeyName("plant/#", 0, 0), ScopeKeys()
    grants = [
        ScopeGrant("gone/#", "gone/#", None, ((KeyName("gone/#", 0, 0), b"g" * 32),)),
        ScopeGrant("plant/#", "factory/#", b"t" * 32, ((name, b"k" * 32),)),
    ]
    identity = world.identities["site"]
    box = seal_grants(world.overlay.policy.overlay, "site", identity.agreement_bytes, grants, bytes(range(32)))
    members = {**world.overlay.members, "site": replace(world.overlay.members["site"], box=box)}
    overlay = Overlay.sign(world.owner, world.overlay.policy, world.overlay.views.values(), members.values())
    came = []
    for _ in range(2):
        secrets, new = handed_over(overlay, "site", identity, world.secrets, keys)
        came.append(new)
        assert [(s.scope.filter, s.clear_filter, s.token_key) for s in secrets] == [("plant/#", "factory/#", b"t" * 32)]
    assert came == [True, False]
    assert (keys.get(name), keys.get(KeyName("gone/#", 0, 0))) == (b"k" * 32, None)
