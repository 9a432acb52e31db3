"""Evidence: what contradicts itself is proved to anybody, and nobody else ever is."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from typing import Any

import pytest

from bridge.contract import LinkUp, Publication, Rotated, Tick
from bridge.contract.machine import Committed, OutboxEntry, Wire
from bridge.document import (
    Contradiction,
    Lie,
    NotProvedError,
    Overlay,
    Policy,
    Scope,
    SignedStatement,
    of_overlays,
    of_swaps,
)
from bridge.document.policy import DOMAIN_POLICY
from bridge.membership.adopting import canonical
from bridge.node import GatewayNode
from keys.envelope import PROPERTY_HEADER, Mode, from_property, header_of
from keys.identity import Certificate, Identity
from tests.bridge.helpers import NOW, craft, forge_key, gateway, publish, sent
from tests.bridge.reader.test_newest_retained import rotated
from tests.sim.organised_world import organised, swap_on
from tests.sim.world import World
from tests.support.regions import one_region, shared

SCOPES = [Scope("plant/#"), Scope("clear/#", Mode.PLAIN)]


world = shared(one_region, "site", "evil", scopes=SCOPES)


def statement(wire: Wire) -> SignedStatement:
    frame = from_property(dict(wire.properties)[PROPERTY_HEADER])
    return SignedStatement(frame[:-64], frame[-64:], wire.topic)


def evidence(world: World, first: Wire, second: Wire, member: str = "evil") -> Contradiction:
    certificate = world.overlay.certificate(member).encode()
    return Contradiction(Lie.PUBLICATIONS, world.overlay.owner, statement(first), statement(second), certificate)


def two_of_one_number(world: World) -> tuple[Wire, Wire]:
    """`evil` seals two contents under one key and number."""
    one, other = (forge_key(world, "evil", "plant/#") for _ in range(2))
    assert one.header.key_id == other.header.key_id
    first = craft(world, "evil", "plant/t", sequence=5, key=one, payload=b"on")
    return first, craft(world, "evil", "plant/t", sequence=5, key=other, payload=b"off")


# ------------------------------------------------------------------------------------------------- the guilty


@pytest.mark.attack(172)
def test_two_contents_of_one_number_are_proved_from_the_file_alone(world: World) -> None:
    made = evidence(world, *two_of_one_number(world))
    read = Contradiction.from_document(json.loads(json.dumps(made.to_document())))
    assert read == made
    proven = read.check_proof()
    assert (proven.author, proven.lie) == ("evil", Lie.PUBLICATIONS)
    assert (proven.key, proven.owner) == (world.identities["evil"].public_bytes, world.overlay.owner)
    assert "two different publications of one number" in proven.says


def owner_of(world: World) -> Identity:
    assert world.owner is not None
    return world.owner


def signed(owner: Identity, policy: Policy, **changes: Any) -> Policy:
    made = replace(policy, **changes)
    return replace(made, signature=owner.sign(DOMAIN_POLICY, made.signed_bytes()))


def test_two_policies_of_one_version_are_proved(world: World) -> None:
    policy, owner = world.overlay.policy, owner_of(world)
    other = signed(owner, policy, grants=policy.grants[:1])
    proven = of_overlays(owner.public_bytes, policy, other).check_proof()
    assert (proven.author, proven.lie, proven.key) == ("the owner", Lie.OVERLAYS, owner.public_bytes)


def test_an_owner_with_two_overlays_of_one_name_is_not_called_a_liar(world: World) -> None:
    """Attack: nothing in a policy tells two overlays of one name and key apart. The verdict says so."""
    policy, owner = world.overlay.policy, owner_of(world)
    elsewhere = signed(owner, policy, contents=bytes(32))
    proven = of_overlays(owner.public_bytes, policy, elsewhere).check_proof()
    assert "no lie if the owner made two overlays of this name" in proven.says
    differently_named = signed(owner, policy, overlay=f"{policy.overlay}-2")
    nobody(of_overlays(owner.public_bytes, policy, differently_named), "not of one version")


def test_two_swaps_of_one_number_are_proved() -> None:
    world = organised()
    one, other = (swap_on(world.overlay, world, *links) for links in (((1, 4), (2, 3)), ((1, 3), (1, 2))))
    assert (one.number, one.former) == (other.number, other.former)
    proven = of_swaps(world.overlay.owner, one, other).check_proof()
    assert (proven.author, proven.lie) == (one.author, Lie.SWAPS)


# ------------------------------------------------------------------------------------------------ the innocent


def nobody(made: Contradiction, why: str) -> None:
    with pytest.raises(NotProvedError, match=why):
        made.check_proof()


def headers(effects: list[Any]) -> list[Wire]:
    return [send.wire for send in sent(effects, "r1a") if PROPERTY_HEADER in dict(send.wire.properties)]


def entries(numbers: range, retain: bool = False) -> tuple[OutboxEntry, ...]:
    made = [Publication("plant/t", bytes([n % 256]), 1, retain, time_ms=int(NOW * 1000)) for n in numbers]
    return tuple((n, n - 1 if n > 1 else 0, each) for n, each in zip(numbers, made, strict=True))


def life(world: World, started: float, seed: str, overlay: Overlay | None = None) -> GatewayNode:
    """A start of `site`. Lives of one seed draw the same numbers, as no two processes should."""
    node = GatewayNode(
        overlay or world.overlay, world.identities["site"], "site", world.secrets, world.keys,
        random.Random(seed).randbytes, generation=int(started * 1000),
    )  # fmt: skip
    for peer in world.overlay.views[1].members:
        node.handle(LinkUp(peer), started)
    return node


@pytest.mark.long
@pytest.mark.attack(173)
def test_nothing_that_honest_lives_of_a_gateway_sign_is_evidence(world: World) -> None:
    """Attack: whoever recorded all headers of an honest gateway puts any two of them together. It started again, came
    back from an old copy of its disk, with the same numbers and other content, its clock went back, links were cut so
    that it sealed anew, its rights came in another version, and its key changed.
    """
    told: list[Wire] = []
    for started, seed in ((NOW, "first"), (NOW + 60, "restored"), (NOW + 60 - 3600, "clock set back")):
        node = life(world, started, seed)
        for numbers in (range(1, 7), range(4, 7)):  # the latter come again from the outbox
            told += headers(node.handle(Committed(entries(numbers)), started))
        told += headers(node.handle(Committed(entries(range(20, 22), retain=True)), started + 1))
        for later in (300.0, 301.0, -200.0, 4000.0):
            for peer in ("r1a", "r1b", "r1c"):
                told += headers(node.handle(LinkUp(peer), started + later))
            told += headers(node.handle(Tick(), started + later))
        after = rotated(world, "site", 9)
        told += headers(node.offered(canonical(after.overlay), started + 4001))
        told += headers(node.handle(Rotated(after.identities["site"]), started + 4002))
        told += headers(node.handle(Committed(entries(range(30, 32))), started + 4003))
        for later in (4040.0, 4080.0):
            told += headers(node.handle(Tick(), started + later))
    named = {(header.sequence, header.key_id) for header in map(header_read, told)}
    assert len(named) > len({number for number, _ in named}) + 10, "numbers were sealed anew, or this shows nothing"
    assert len({header.publisher for header in map(header_read, told)}) == 2, "the key changed"
    certificates = [certificate.encode() for certificate in after.overlay.members["site"].certificates]
    for first, second in itertools.combinations(dict.fromkeys(told), 2):
        for certificate in certificates:
            made = Contradiction(
                Lie.PUBLICATIONS, world.overlay.owner, statement(first), statement(second), certificate
            )
            with pytest.raises(NotProvedError):
                made.check_proof()


@pytest.mark.parametrize("later_s", [1.0, 61.0])
def test_a_copy_of_memory_proves_something_only_while_its_data_key_lives(world: World, later_s: float) -> None:
    """Attack: an image of a running machine goes on beside it, or it is thrown back. Both number alike. After the
    age of a data key both draw another one. Before, they are one identity in two processes, which docs/protocol.md
    §2.11 excludes.
    """
    told: list[list[Wire]] = []
    for number, payload in enumerate((b"as it was", b"as it went on")):
        draws = random.Random("one memory")
        node = GatewayNode(
            world.overlay, world.identities["site"], "site", world.secrets, world.keys,
            lambda size, draws=draws: draws.randbytes(size), generation=int(NOW * 1000),
        )  # fmt: skip
        for peer in world.overlay.views[1].members:
            node.handle(LinkUp(peer), NOW)
        headers(node.handle(Committed(entries(range(1, 3))), NOW))
        draws.seed(number)  # from here on each machine draws its own
        one = Publication("plant/t", payload, 1, time_ms=int(NOW * 1000))
        told.append(headers(node.handle(Committed(((3, 2, one),)), NOW + later_s)))
    made = evidence(world, told[0][-1], told[1][-1], "site")
    assert header_read(told[0][-1]).sequence == header_read(told[1][-1]).sequence == 3
    if later_s > 60:
        nobody(made, "not of one number")
    else:
        assert made.check_proof().author == "site"


def header_read(wire: Wire) -> Any:
    return header_of(from_property(dict(wire.properties)[PROPERTY_HEADER]))


def test_a_repetition_is_no_lie(world: World) -> None:
    first, _ = two_of_one_number(world)
    nobody(evidence(world, first, first), "say the same")


@pytest.mark.attack(173)
def test_a_signature_of_somebody_else_proves_nothing(world: World) -> None:
    """Attack: `evil` signs the second header, in the name of `site` and in its own, with the key id of `site`."""
    wire = publish(gateway(world, "site"), "plant/t", sequence=5)["r1a"]
    header = header_read(wire)
    stolen = craft(world, "evil", "plant/t", sequence=5, key_id=header.key_id, content=b"lie" * 9)
    nobody(evidence(world, wire, stolen, "site"), "another publisher")
    nobody(evidence(world, stolen, wire, "evil"), "another publisher")
    said = statement(wire)
    forged = SignedStatement(
        replace(header, digests=(bytes(32),)).encode(),
        world.identities["evil"].sign("veilmq/1 header", b""),
        said.topic,
    )
    certificate = world.overlay.certificate("site").encode()
    nobody(Contradiction(Lie.PUBLICATIONS, world.overlay.owner, said, forged, certificate), "does not verify")


def test_a_header_moved_to_another_topic_proves_nothing(world: World) -> None:
    """Attack: the topic is signed with the header, so one header on two topics is not two statements."""
    first, _ = two_of_one_number(world)
    nobody(evidence(world, first, replace(first, topic="veilmq/batch/9")), "does not verify")


def test_two_numbers_and_two_keys_and_plain_publications_prove_nothing(world: World) -> None:
    one, other = forge_key(world, "evil", "plant/#"), forge_key(world, "evil", "plant/#", 1)
    first = craft(world, "evil", "plant/t", sequence=5, key=one)
    nobody(evidence(world, first, craft(world, "evil", "plant/t", sequence=6, key=one)), "not of one number")
    nobody(evidence(world, first, craft(world, "evil", "plant/t", sequence=5, key=other)), "not of one number")
    two = [craft(world, "evil", "clear/t", sequence=5, mode=Mode.PLAIN, payload=p) for p in (b"a", b"b")]
    nobody(evidence(world, *two), "plain")


def test_a_certificate_that_the_owner_did_not_sign_proves_nothing(world: World) -> None:
    """Attack: a member of nobody's overlay, under a name of this one."""
    made = evidence(world, *two_of_one_number(world))
    invented = Certificate.issue(
        world.identities["evil"], name="site", role=world.overlay.certificate("evil").role,
        public_key=world.identities["evil"].public_bytes, agreement_key=world.identities["evil"].hybrid_bytes,
        domain="x", region=1, not_after_ms=1 << 50,
    )  # fmt: skip
    nobody(replace(made, certificate=invented.encode()), "does not verify")
    assert replace(
        made, certificate=invented.encode(), owner=world.identities["evil"].public_bytes
    ).check_proof().owner != (world.overlay.owner), "the file says which owner it goes by"


def test_versions_and_overlays_that_differ_prove_nothing(world: World) -> None:
    policy, owner = world.overlay.policy, owner_of(world)
    public = owner.public_bytes
    nobody(of_overlays(public, policy, signed(owner, policy, version=policy.version + 1)), "not of one version")
    nobody(of_overlays(public, policy, signed(owner, policy, overlay="another")), "not of one version")
    nobody(of_overlays(public, policy, policy), "say the same")
    nobody(of_overlays(public, policy, signed(world.identities["evil"], policy, grants=())), "does not verify")


def test_swaps_of_two_overlays_that_one_organiser_serves_prove_nothing() -> None:
    """Attack: one key organises two overlays of one owner, and gives both a swap of the same number."""
    world = organised()
    one = swap_on(world.overlay, world, (1, 4), (2, 3))
    there = replace(one, former=bytes(32), since_ms=one.since_ms + 1).signed(world.identities[one.author])
    nobody(of_swaps(world.overlay.owner, one, there), "not of one number")


@pytest.mark.parametrize("field", ["owner", "lie", "first", "second", "certificate", "veilmq_evidence"])
@pytest.mark.parametrize("value", [None, 7, "?", [], {}, {"body": "", "signature": "", "more": ""}, "AAAA"])
def test_a_damaged_file_is_refused_in_a_line(world: World, field: str, value: object) -> None:
    document = evidence(world, *two_of_one_number(world)).to_document()
    for changed in ({**document, field: value}, {k: v for k, v in document.items() if k != field}):
        with pytest.raises(NotProvedError, match="; "):
            Contradiction.from_document(changed).check_proof()


def test_every_altered_byte_of_a_statement_is_noticed(world: World) -> None:
    made = evidence(world, *two_of_one_number(world))
    rng = random.Random(7)
    for part in ("body", "signature"):
        data = getattr(made.second, part)
        for at in rng.sample(range(len(data)), 40):
            altered = bytes([*data[:at], data[at] ^ (1 << rng.randrange(8)), *data[at + 1 :]])
            with pytest.raises(NotProvedError):
                replace(made, second=replace(made.second, **{part: altered})).check_proof()


def test_what_arrives_proves_nothing_of_who_brought_it(world: World) -> None:
    """A replica that passes both on is not the author."""
    first, second = two_of_one_number(world)
    replica = world.overlay.certificate("r1a").encode()
    made = replace(evidence(world, first, second), certificate=replica)
    nobody(made, "publishes nothing")
