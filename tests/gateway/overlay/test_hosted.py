"""Hosted brokers in the owner's description and a gateway's configuration, and what their CONNACK rules out."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from bridge.contract import BATCH_BYTES, size_of
from bridge.contract.machine import Committed, LinkUp, Publication
from bridge.document.overlay import Overlay, OverlayError
from bridge.publisher.sealing import PACKET_OVERHEAD_BYTES, Scope
from gateway.base import LinkFigures
from gateway.base.config import ConfigError, parse
from gateway.client import PACKET_BYTES_MAX
from gateway.client.tls import LinkTls
from gateway.client.wanted import WantedSubscriptions
from gateway.mqtt5.client_session import Answered
from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import ConnAck, Properties, Publish, SubAck, Subscription, Version
from gateway.outbox.bundling import bundled
from gateway.outbox.database import StoredRow
from gateway.overlay.dials import Dials
from gateway.overlay.gateway_overlay import GatewayOverlay
from gateway.overlay.hosted import PACKET_BYTES_MIN, client_id, logins, unusable
from gateway.owner.signing import sign_overlay
from gateway.trust.domains import TrustDomain
from gateway.trust.errors import TrustError
from keys.envelope import Mode
from keys.identity import Role
from keys.records import FILL_MAX
from tests.bridge.helpers import gateway, sent
from tests.sim.world import NOW, make_world


class Owner:
    """A description with hosted brokers a and c, and r as a replica of ours between them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        roles = {"site": Role.GATEWAY, "r": Role.REPLICA, "ca": Role.REPLICA, "keys": Role.KEY_SERVER}
        for name, role in roles.items():
            domain = TrustDomain.create(directory / f"domain-{name}", f"{name}.example", time.time())
            domain.issue(name, role, (), directory / name, time.time())
        self.description: dict[str, Any] = {
            "name": "test",
            "regions": [{"name": "cloud", "members": [self.hosted("a"), self.own("r"), self.hosted("c")]}],
            "scopes": [{"filter": "plant/#"}],
            "key_service": {"issuer": "chain", "servers": [self.own("keys")]},
            "members": [{"card": "site/card.json", "region": "cloud", "publish": ["#"], "read": ["#"]}],
        }

    def hosted(self, name: str, **changes: Any) -> dict[str, Any]:
        entry = {
            "hosted": True,
            "name": name,
            "domain": f"{name}.test",
            "address": f"{name}.test:8883",
            "ca": "ca/ca.pem",
        }
        return entry | changes

    def own(self, name: str) -> dict[str, Any]:
        return {"card": f"{name}/card.json", "address": "127.0.0.1:8883"}

    def sign(self) -> Overlay:
        path = self.directory / "overlay.yaml"
        path.write_text(yaml.safe_dump(self.description))
        return sign_overlay(path, self.directory / "domain-site", self.directory / "overlay.json", time.time()).overlay


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


def test_places_follow_the_description_and_a_broker_keeps_its_mark(owner: Owner):
    first = owner.sign()
    assert first.views[1].members == ("a", "r", "c")
    assert first.hosted == {"a", "c"}
    assert first.members["a"].ca == first.members["c"].ca != b""
    second = owner.sign()
    assert second.policy.version == 2
    assert second.certificate("a").public_key == first.certificate("a").public_key
    assert second.views[1] == first.views[1]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"address": "a.test"}, r"regions\.0\.members\.0\.address: string should match pattern"),
        ({"address": "mqtts://a.test:8883"}, r"address: string should match"),
        ({"card": "x"}, r"members\.0\.card: unknown key here"),
        ({"ca": "overlay.yaml"}, "holds no certificate in PEM; ask a.test for its CA"),
        ({"ca": "nowhere.pem"}, "nowhere.pem: No such file"),
        ({"domain": "c.test"}, "a and c of region cloud are of one trust domain"),
        ({"name": "c"}, "c is listed twice"),
    ],
)
def test_entries_that_cannot_be_are_one_line(owner: Owner, entry: dict[str, Any], why: str):
    owner.description["regions"][0]["members"][0] |= entry
    with pytest.raises((TrustError, OverlayError), match=why):
        owner.sign()


def test_a_replica_does_not_become_a_hosted_broker_under_its_name(owner: Owner):
    owner.sign()
    owner.description["regions"][0]["members"][1] = owner.hosted("r")
    with pytest.raises(TrustError, match="r was a replica before; name the hosted broker otherwise"):
        owner.sign()


def test_who_signs_a_providers_certificate_vouches_for_no_member(owner: Owner):
    overlay = owner.sign()
    tls = LinkTls("site", owner.directory / "site/cert.pem", owner.directory / "site/key.pem", overlay.members)
    known = {entry["subject"] for entry in tls.client.get_ca_certs()}
    assert not any("ca.example" in str(subject) for subject in known)
    assert any("r.example" in str(subject) for subject in known)


def test_logins_are_for_hosted_brokers_of_our_region_and_show_no_password(owner: Owner, tmp_path: Path):
    overlay = owner.sign()
    secret = tmp_path / "password"
    secret.touch(0o600)
    secret.write_text("hunter2\n")

    def given(name: str = "a", **fields: str) -> Any:
        where = {"identity": "site", "overlay": "overlay.json", "hosted": {name: fields}}
        settings = parse({"overlay": where}, directory=tmp_path).overlay
        assert settings is not None
        return settings.hosted

    found = logins(overlay, "site", given(username="u", password_file="password"))
    assert found["a"].password == b"hunter2"
    assert "hunter2" not in repr(found)
    with pytest.raises(ConfigError, match="r is no hosted broker of our region; known are a, c"):
        logins(overlay, "site", given("r", username="u"))
    assert logins(overlay, "keys", {}) == {}, "a key server is in no region"
    with pytest.raises(ConfigError, match="password_file needs username"):
        given(password_file="password")
    secret.chmod(0o644)
    with pytest.raises(ConfigError, match=r"a: .*chmod 600"):
        logins(overlay, "site", given(username="u", password_file="password"))


def test_client_ids_are_taken_everywhere_and_differ_by_member_and_overlay(owner: Owner):
    overlay = owner.sign()
    one = client_id(overlay, "site")
    assert len(one) == 23
    assert one.isalnum()
    assert one == client_id(overlay, "site") != client_id(overlay, "control")
    assert one != client_id(make_world({1: 3}, [], {"site": 1}).overlay, "site")


@pytest.mark.parametrize(
    ("offer", "why"),
    [
        ({}, ""),
        ({"maximum_qos": 1, "retain_available": 1, "maximum_packet_size": 4096}, ""),
        ({"maximum_qos": 0}, "takes QoS 0 at most"),
        ({"retain_available": 0}, "does not retain"),
        ({"wildcard_subscription_available": 0}, "no subscriptions with wildcards"),
        ({"maximum_packet_size": 4095}, "packets of 4095 bytes"),
    ],
)
def test_what_an_offer_rules_out(offer: dict[str, int], why: str):
    said = unusable(ConnAck(False, 0, Properties(**offer)))
    assert why in said
    assert bool(why) is bool(said)


@pytest.mark.long
@pytest.mark.parametrize(("size", "padding"), [(3, 0), (7, 0), (255, 0), (3, 64), (3, 1000), (3, FILL_MAX)])
@pytest.mark.parametrize(
    "scope",
    [Scope("plant/#", tokens=True), Scope("plant/#"), Scope("plant/#", Mode.PLAIN), Scope("plant/#", Mode.ONE)],
    ids=["tokens", "copies", "plain", "one"],
)
def test_the_bound_of_a_packet_holds_and_is_close(size: int, padding: int, scope: Scope):
    names = [f"r1m{i}" if size > 26 else f"r1{chr(97 + i)}" for i in range(size)]
    node = gateway(make_world({1: size}, [], {"g1": 1}, [scope], hosted=names), "g1")
    node.publisher.sealer.padding = padding
    node.handle(LinkUp(names[0]), NOW)
    publications = [
        Publication(f"plant/line {n}/temp", b"x" * 5000, 1, True, properties=(("k", "v" * n),), time_ms=int(NOW * 1000))
        for n in range(16)
    ]
    effects = node.handle(Committed(tuple((n + 1, n, p) for n, p in enumerate(publications))), NOW)
    for send in sent(effects, names[0]):
        wire, publication = send.wire, publications[send.ticket - 1]
        packet = Publish(wire.topic, wire.payload, 1, True, packet_id=1, properties=Properties(user=wire.properties))
        bound = node.publisher.sealer.packet_bytes(publication)
        assert bound - PACKET_OVERHEAD_BYTES < len(encode(packet, Version.V5)) <= bound


@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.PLAIN])
@pytest.mark.parametrize(("limit", "padding"), [(4096, 0), (6000, 0), (40_000, 0), (6000, 64), (40_000, FILL_MAX)])
def test_a_batch_fits_into_the_packets_that_its_brokers_take(limit: int, padding: int, mode: Mode) -> None:
    names = ["r1a", "r1b", "r1c"]
    node = gateway(make_world({1: 3}, [], {"g1": 1}, [Scope("plant/#", mode)], hosted=names), "g1")
    node.publisher.sealer.padding = padding
    node.handle(LinkUp(names[0]), NOW)
    chain = node.chain_of("plant/0", limit)
    assert chain.bytes < limit
    made = [Publication(f"plant/{n}", b"x" * (n % 99), 1, time_ms=int(NOW * 1000)) for n in range(1, 999)]
    rows = bundled([StoredRow(2 * n, chain, 1, b"", each, size_of(each)) for n, each in enumerate(made, 1)])
    assert len(rows) > 1
    effects = node.handle(Committed(tuple((row.sequence, 0, row.publication) for row in rows)), NOW)
    packets = [
        encode(Publish(w.topic, w.payload, 1, True, packet_id=1, properties=Properties(user=w.properties)), Version.V5)
        for w in (send.wire for send in sent(effects, names[0]))
    ]
    assert len(packets) > 1
    assert 0.4 * limit < max(map(len, packets)) <= limit
    assert node.chain_of("plant/0", 1 << 20).bytes == BATCH_BYTES
    assert node.chain_of("plant/0", 100).bytes == 1  # each goes alone


def test_who_has_not_said_what_it_takes_takes_the_least_if_it_is_a_hosted_broker() -> None:
    class Client:
        def __init__(self, limit: int, connections: int) -> None:
            self.packet_limit, self.figures = limit, LinkFigures(connections=connections)

    clients = {"a": Client(9000, 1), "b": Client(PACKET_BYTES_MAX, 0), "c": Client(7000, 1)}
    dials = Dials(cast(Any, clients.get))
    dials._clients = cast(Any, clients)
    assert dials.packet_limit("abc", 2) == 9000
    assert dials.packet_limit("abc", 2, {"a", "b", "c"}) == 7000
    assert dials.packet_limit("abcd", 4, {"d"}) == PACKET_BYTES_MIN


def test_what_was_too_large_for_a_broker_that_did_not_say_so_shows_what_it_takes() -> None:
    class Client:
        def __init__(self) -> None:
            self.packet_limit, self.figures = PACKET_BYTES_MAX, LinkFigures(connections=1)

    dials = Dials(cast(Any, None))
    dials._clients = cast(Any, {name: Client() for name in "abc"})
    for size in (40_000, 30_000, 50_000):
        dials.showed("a", size)
    assert dials.packet_limit("abc", 2) == PACKET_BYTES_MAX, "two others take it"
    dials.showed("b", 20_000)
    assert dials.packet_limit("abc", 2) == 30_000
    assert dials.packet_limit("abc", 2, {"a", "b", "c"}) == 15_000, "a batch is cut for what surely fits sooner"
    dials._events = cast(Any, SimpleNamespace(link_up=lambda peer: None))
    dials._up("a")
    assert dials.packet_limit("abc", 2) == PACKET_BYTES_MAX, "it may take more now"


def test_the_same_wish_twice_on_one_connection_is_answered_as_the_first_was():
    """Who asks again waits for an answer too, and the server is not asked again."""

    class Session:
        def subscribe(self, subscriptions: object, token: object, now: float) -> bytes:
            return b"SUBSCRIBE"

    wanted, packets, heard = WantedSubscriptions("here"), list[bytes](), list[tuple[str, int]]()
    options = Subscription("a/#", 1)

    def want(who: str) -> bool:
        return wanted.add_wanted(options, lambda code: heard.append((who, code)))

    assert want("first")
    wanted.send_wanted(Session(), packets.append, 0.0)  # type: ignore[arg-type]
    assert not want("before the answer")
    wanted.take_answer(Answered((options,), SubAck(1, (1,))))
    assert not want("after it")
    assert heard == [("before the answer", 1), ("after it", 1)]
    assert len(packets) == 1
    wanted.begin_connection(session_present=False)
    assert want("anew")
    assert len(heard) == 2


@pytest.mark.parametrize("padding", [0, 64, 1000, FILL_MAX])
@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.PLAIN])
def test_what_fits_only_without_its_fill_is_refused_and_not_kept_for_ever(mode: Mode, padding: int) -> None:
    """A small payload that is filled beyond the largest packet would be acknowledged, and no broker would take it."""
    names = ["r1a", "r1b", "r1c"]
    node = gateway(make_world({1: 3}, [], {"g1": 1}, [Scope("plant/#", mode)], hosted=names), "g1")
    node.publisher.sealer.padding = padding
    dials: Any = SimpleNamespace(packet_limit=lambda *_: PACKET_BYTES_MIN)
    overlay: Any = SimpleNamespace(_dials=dials, _gateway=node)
    taken = []
    for size in range(0, 4000, 50):
        publication = Publication("plant/t", b"x" * size, 1, time_ms=int(NOW * 1000))
        fits = GatewayOverlay._fits_replicas(overlay, publication)
        assert fits == (node.packet_bytes(publication) <= PACKET_BYTES_MIN)
        taken.append(fits)
    assert not taken[-1]
    assert taken[0] == (padding < FILL_MAX or mode is Mode.PLAIN)


@pytest.mark.attack(197)
@pytest.mark.parametrize(
    "large",
    [
        {"topic": "plant/" + "t" * 4000}, {"topic": "plant/" + "\U0001f525" * 1000}, {"content_type": "t" * 4000},
        {"response_topic": "plant/" + "t" * 4000}, {"correlation_data": bytes(4000)},
        {"properties": (("a", "b" * 4000),)},
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.PLAIN])
def test_a_small_payload_with_much_beside_is_refused_and_not_kept_for_ever(mode: Mode, large: dict[str, Any]) -> None:
    """Attack: a publication of one byte with correlation data of 64 KiB was acknowledged, and no broker took it: it
    stayed in the outbox, and all others of the scope were told to follow it.
    """
    names = ["r1a", "r1b", "r1c"]
    node = gateway(make_world({1: 3}, [], {"g1": 1}, [Scope("plant/#", mode)], hosted=names), "g1")
    dials: Any = SimpleNamespace(packet_limit=lambda *_: PACKET_BYTES_MIN)
    overlay: Any = SimpleNamespace(_dials=dials, _gateway=node)
    small = Publication("plant/t", b"x", 1, time_ms=int(NOW * 1000))
    assert GatewayOverlay._fits_replicas(overlay, small)
    assert not GatewayOverlay._fits_replicas(overlay, replace(small, **large))
