"""Sealing: which key, how many headers a signature, and what cannot be sealed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bridge.contract.batches import BATCH_FORM_BYTES, Chain, Numbered, packed, size_of
from bridge.contract.machine import (
    Acked,
    Committed,
    Count,
    Effect,
    Forget,
    LinkUp,
    Publication,
    Wire,
)
from bridge.document import ScopeSecret, ShownAttribute, batch_topic
from bridge.document.policy import Batching, Refresh, Scope
from bridge.node import GatewayNode
from bridge.publisher.entry import Entry
from bridge.publisher.own_retained import KeptRetained
from bridge.publisher.sealing import BESIDE_MAX, CLOCK_STEP_S, PACKET_OVERHEAD_BYTES, Sealer
from bridge.wire import PROPERTY_SHOWN, OwnLife
from bridge.wire.pieces import INLINE_BYTES
from bridge.wire.shown_lists import LIST_BYTES, read_list
from keys.envelope import (
    NO_KEY,
    PROPERTY_HEADER,
    PROPERTY_KEY,
    TAG_BYTES,
    MessageHeader,
    Mode,
    SignedHeader,
    content_digest,
    from_property,
)
from keys.epochs import Calendar, ScopeKeys
from keys.identity import Identity
from keys.records import encode
from tests.bridge.helpers import NOW, counted, gateway, publish, sent, shares_in, wire_topic
from tests.sim.world import World, make_world
from tests.support.regions import fresh, one_region

REPLICAS = ("r1a", "r1b", "r1c")


world = fresh(one_region, "site", scopes=[Scope("plant/#"), Scope("open/#"), Scope("clear/#", Mode.PLAIN)])


def signed(wire: Wire) -> SignedHeader:
    return SignedHeader.decode(from_property(dict(wire.properties)[PROPERTY_HEADER]))


def key_of(wire: Wire) -> bytes:
    return signed(wire).header.key_id


def carries_key(wire: Wire) -> bool:
    assert (PROPERTY_KEY in dict(wire.properties)) == bool(shares_in(wire))
    return bool(shares_in(wire))


def one(node: GatewayNode, sequence: int, now: float, topic: str = "plant/t", size: int = 1) -> Wire:
    wires = publish(node, topic, bytes(size), sequence=sequence, now=now)
    for peer in wires:
        node.handle(Acked(peer, sequence), now)
    return wires["r1a"]


def entry(sequence: int, topic: str = "plant/t", qos: int = 1, **fields: object) -> tuple[int, int, Publication]:
    return sequence, 0, Publication(topic, b"x", qos, time_ms=int(NOW * 1000), **fields)


def forgotten(effects: list[Effect]) -> set[int]:
    return {s for e in effects if isinstance(e, Forget) for s in e.sequences}


# ---------------------------------------------------------------------------------------------------- keys


def test_a_clock_step_backwards_ends_every_key(world: World):
    node = gateway(world, "site")
    first = key_of(one(node, 1, NOW))
    assert key_of(one(node, 2, NOW - 61)) != first


def test_each_scope_has_its_own_key_and_plain_ones_none(world: World):
    node = gateway(world, "site")
    assert key_of(one(node, 1, NOW)) != key_of(one(node, 2, NOW, "open/t"))
    assert key_of(one(node, 3, NOW, "clear/t")) == NO_KEY


def test_retained_publications_always_carry_the_key(world: World):
    node = gateway(world, "site")
    for n in range(1, 5):
        assert all(carries_key(w) and w.retain for w in publish(node, "plant/t", sequence=n, retain=True).values())


# ------------------------------------------------------------------------------------------------- batches


@pytest.mark.invariant(42)
def test_what_cannot_be_sealed_is_given_up_alone(world: World):
    """A local client's publication that fits no frame must not stop the outbox, now or after every restart."""
    node = gateway(world, "site")
    bad = [entry(2, properties=(("k", "v"),) * 2000), entry(3, content_type="\ud800")]
    effects = node.handle(Committed((entry(1), *bad, entry(4))), NOW)
    assert [signed(s.wire).header.sequence for s in sent(effects, "r1a")] == [1, 4]
    assert forgotten(effects) == {2, 3}
    assert counted(effects, "unsealable") == 2
    assert len(sent(node.handle(Committed((entry(5),)), NOW))) == 3


# ----------------------------------------------------------------------------------------------- randomness


def test_randomness_is_the_callers():
    world = make_world({1: 3}, [], {"site": 1})
    wires = []
    for seed in ("a", "a", "b"):
        node = world.node("site", random.Random(seed))
        node.handle(LinkUp("r1a"), NOW)
        wires.append(sent(node.handle(Committed((entry(1),)), NOW))[0].wire)
    assert wires[0] == wires[1]
    assert wires[0].payload != wires[2].payload


# ------------------------------------------------------------------------------------- which scope, and its right

EPOCH = 1_800_000
CALENDAR = Calendar(0, 1000, ahead_s=100, grace_s=100, skew_s=10)  # epoch `EPOCH` begins at NOW
NARROW = [Scope("plant/#"), Scope("plant/hall/#"), Scope("clear/#", Mode.PLAIN)]


def sealer_of(world: World, *, reviewed: bool = True) -> Sealer:
    draw = random.Random(1).randbytes
    site = world.identities["site"]
    made = Sealer(world.overlay, site, "site", world.secrets, world.keys, draw, OwnLife(1))
    if reviewed:
        made.review({}, NOW)
    return made


def made_of(sealer: Sealer, of: Publication, sequence: int = 1) -> Entry:
    secret = sealer.secret_of(of)
    assert secret is not None
    return Entry(sequence, of, secret, 0, NOW)


def sealed(sealer: Sealer, of: Publication, sequence: int = 1, now: float = NOW) -> Entry:
    made = made_of(sealer, of, sequence)
    assert sealer.seal_entries([made], now) == ([], [Count("sealed", 1)])
    return made


def header_of(entry: Entry) -> MessageHeader:
    assert entry.wire is not None
    return signed(entry.wire).header


def value(topic: str = "plant/t", payload: bytes = b"x", qos: int = 1, **fields: object) -> Publication:
    return Publication(topic, payload, qos, time_ms=int(NOW * 1000), **fields)  # type: ignore[arg-type]


def by_epochs(*epochs: int, scopes: Sequence[Scope] = (Scope("plant/#"),)) -> World:
    made = one_region("site", scopes=scopes, calendar=CALENDAR)
    made.learn(made.keys, epochs)
    return made


def scope_of(world: World, clear: str, **changes: object) -> World:
    """The world after the owner changed a scope."""
    changed = [replace(s, **changes) if s.filter == clear else s for s in world.overlay.policy.scopes]  # type: ignore[arg-type]
    world.overlay = world.with_policy(scopes=tuple(changed))
    world.secrets = world.secrets_under(world.overlay)
    return world


def test_the_most_specific_scope_takes_a_topic_and_a_batch_names_its_own() -> None:
    sealer = sealer_of(one_region("site", scopes=NARROW))
    filters = {"plant/t": "plant/#", "plant/hall/t": "plant/hall/#", "clear": "clear/#", "else/t": None}
    for topic, clear in filters.items():
        found = sealer.secret_for(topic)
        assert (found and found.clear_filter) == clear
        assert sealer.secret_of(value(topic)) is found
        assert sealer.secret_of(replace(value(topic), records=1)) is None, "no scope has this name"
    for secret in sealer._secrets:
        batch = packed(secret.clear_filter, [Numbered(1, value("plant/hall/t"))])
        assert sealer.secret_of(batch) is secret


def test_a_scope_that_retires_takes_nothing_more() -> None:
    sealer = sealer_of(scope_of(one_region("site", scopes=NARROW), "plant/hall/#", retiring=True))
    found = sealer.secret_for("plant/hall/t")
    assert found is not None
    assert found.clear_filter == "plant/#"
    assert sealer.secret_of(replace(value("plant/hall/#"), records=1)) is None


def test_publishing_takes_a_scope_and_a_right_in_it() -> None:
    world = one_region("site", scopes=NARROW, rights={"site": (["plant/hall/#", "else/#"], [])})
    sealer = sealer_of(world)
    topics = ("plant/hall/t", "plant/t", "clear/t", "else/t")
    assert [sealer.may_publish(topic, NOW) for topic in topics] == [True, False, False, False]


def test_it_knows_its_own_keys(world: World) -> None:
    sealer = sealer_of(world)
    assert sealer.is_us(world.identities["site"].party_id)
    assert not sealer.is_us(world.identities["r1a"].party_id)
    assert not sealer.is_us(bytes(16))


def test_a_scope_is_renewed_as_the_policy_has_it_and_what_was_protected_stays_so(world: World) -> None:
    before = world.secrets[0]
    sealer = sealer_of(world)
    scope_of(world, "plant/#", refresh=Refresh(messages=3))
    sealer.adopt_overlay(world.overlay, world.secrets)
    assert sealer.renewed(before) is sealer.secret_for("plant/t")
    sealer.adopt_overlay(world.overlay, [])  # no name in clear came with it
    assert sealer.renewed(before).scope.refresh.messages == 3
    scope_of(world, "plant/#", mode=Mode.PLAIN)
    for secrets in (world.secrets, []):
        sealer.adopt_overlay(world.overlay, secrets)
        assert sealer.renewed(before) is before
    plain = world.secrets[0]
    scope_of(world, "plant/#", refresh=Refresh(messages=4))
    sealer.adopt_overlay(world.overlay, world.secrets)
    assert sealer.renewed(plain).scope.refresh.messages == 4
    world.overlay = world.with_policy(scopes=world.overlay.policy.scopes[1:])
    world.secrets = world.secrets_under(world.overlay)
    sealer.adopt_overlay(world.overlay, world.secrets)
    assert sealer.renewed(before) is before, "it is gone"
    unnumbered = ScopeSecret(Scope("gone/#"), "gone/#")
    sealer.adopt_overlay(world.overlay, [ScopeSecret(Scope("a/#"), "a/#")])
    assert sealer.renewed(unnumbered) is unnumbered, "two without a number are not one"


def test_a_scope_is_renewed_under_its_newest_tokens() -> None:
    world = one_region("site", scopes=[Scope("plant/#", tokens=True)])
    sealer, before = sealer_of(world), world.secrets[0]
    world.renew_tokens("plant/#")
    sealer.adopt_overlay(world.overlay, world.secrets)
    newest = sealer.renewed(before)
    assert newest.scope.filter != before.scope.filter
    assert newest is sealer.secret_for("plant/t")


def test_the_wire_names_a_scope_by_its_number_and_a_retained_topic_by_a_name_of_ours(world: World) -> None:
    sealer, plant = sealer_of(world), world.secrets[0]
    assert sealer.wire_topic_of(plant, value("plant/a")) == wire_topic(world, "site", "plant/b")
    retained = [value(f"plant/{name}", retain=True) for name in "ab"]
    topics = [sealer.wire_topic_of(plant, of) for of in retained]
    assert topics == [wire_topic(world, "site", f"plant/{name}", retain=True) for name in "ab"]
    gone = ScopeSecret(Scope("gone/#", number=77), "gone/#")
    assert sealer.wire_topic_of(gone, value("gone/t")) == batch_topic(77)


# -------------------------------------------------------------------------------------------- sizes of packets


def bytes_of(wire: Wire) -> int:
    """Returns the length of the PUBLISH that carries it."""
    properties = sum(5 + len(name) + len(said) for name, said in wire.properties)
    return 15 + len(wire.topic) + len(wire.payload) + properties


SHOWN = (ShownAttribute(("a",)), ShownAttribute(("b",)))


@pytest.mark.parametrize("replicas", [3, 64])
@pytest.mark.parametrize("padding", [0, 4096])
@pytest.mark.parametrize("scope", [Scope("plant/#"), Scope("plant/#", Mode.PLAIN), Scope("plant/#", shown=SHOWN)])
def test_no_packet_is_longer_than_its_bound(scope: Scope, padding: int, replicas: int) -> None:
    """A replica would drop a longer one: the first of a key carries key and shares, retained ones always."""
    world = one_region("site", scopes=[scope], replicas=replicas)
    node = gateway(world, "site")
    sealer = node.publisher.sealer
    sealer.padding = padding
    for number, size in enumerate((0, 1, 4000, 4096, 70_000), 1):
        properties = tuple((name, "v" * 250) for name in "ab")
        of = value(payload=bytes(size), retain=number % 2 == 0, properties=properties)
        wire = sent(node.handle(Committed(((number, 0, of),)), NOW))[0].wire
        bound = sealer.packet_bytes(of)
        assert bytes_of(wire) <= bound
        more = (LIST_BYTES * 4 // 3 if scope.shown else 0) + PACKET_OVERHEAD_BYTES
        assert len(wire.payload) < bound <= len(wire.payload) + more + 100 * replicas + 200


def test_a_shown_list_a_key_and_padding_count_where_they_travel() -> None:
    scopes = [Scope("plant/#"), Scope("shows/#", shown=SHOWN), Scope("clear/#", Mode.PLAIN)]
    sealer = sealer_of(one_region("site", scopes=scopes))
    plain, shows, clear = (sealer.packet_bytes(value(f"{name}/t")) for name in ("plant", "shows", "clear"))
    assert shows - plain == LIST_BYTES * 4 // 3
    assert plain > clear, "a key rides along"
    sealer.padding = 1024
    assert sealer.packet_bytes(value("clear/t")) == clear
    assert sealer.packet_bytes(value("plant/t")) == sealer.packet_bytes(value("plant/t", bytes(500)))


@pytest.mark.parametrize("of", [value("else/t"), value(content_type="\ud800"), value("plant/\ud800")])
def test_what_is_never_sealed_has_no_packet(of: Publication) -> None:
    assert sealer_of(one_region("site")).packet_bytes(of) == 0


def test_batches_are_as_large_as_packets_may_be() -> None:
    scopes = [Scope("plant/#", batch=Batching(5, 10_000, 7)), Scope("clear/#", Mode.PLAIN)]
    sealer = sealer_of(one_region("site", scopes=scopes))
    assert sealer.chain_of("else/t") == sealer.chain_of("else/t", 10) == Chain("else/t")
    assert sealer.chain_of("clear/t") == Chain("clear/#", in_clear=True)
    whole = Chain("plant/#", 5, 10_000, 7)
    assert sealer.chain_of("plant/t") == whole
    assert sealer.chain_of("plant/t", 10_000 + BESIDE_MAX) == sealer.chain_of("plant/t", 15_000) == whole
    assert sealer.chain_of("plant/t", 500) == whole._replace(bytes=1), "each alone"
    for sealer.padding in (0, 512):
        for limit in (3000, 8000, 10_000):
            chain = sealer.chain_of("plant/t", limit)
            assert chain == whole._replace(bytes=chain.bytes)
            longest = value(payload=bytes(chain.bytes - size_of(value(payload=b""))))
            assert size_of(longest) == chain.bytes
            assert 0 <= limit - sealer.packet_bytes(longest) < BATCH_FORM_BYTES + 32 + sealer.padding


# ------------------------------------------------------------------------------------- under what, and until when


def test_a_sealing_is_named_by_key_view_and_protection_and_by_who_signs(world: World) -> None:
    """A retained publication is sealed anew when its name is another one."""
    sealer = sealer_of(world)
    kept = KeptRetained(1, value(retain=True), protected=True)
    entry = sealed(sealer, kept.publication)
    words = [sealer.seal_for(kept)]
    assert words == [sealer.seal_of(entry)]
    assert sealer.is_current(entry)
    changes: list[dict[str, object]] = [{"bump": 1}, {"bump": 0, "shares_only": True}]
    for change in changes:
        scope_of(world, "plant/#", **change)
        world.learn(world.keys, [0], bump=1)
        sealer.adopt_overlay(world.overlay, world.secrets)
        sealer.review({}, NOW)
        words.append(sealer.seal_for(kept))
        entry.secret = sealer.renewed(entry.secret)
        assert not sealer.is_current(entry)
        assert not sealer.is_current_but_for_its_epoch(entry)
    sealer.rotate_identity(Identity.generate(bytes(32)))
    sealer.review({}, NOW)
    words.append(sealer.seal_for(kept))
    assert len({*words, ""}) == len(words) + 1


def test_what_cannot_be_sealed_or_would_go_in_clear_has_no_name(world: World) -> None:
    sealer = sealer_of(world)
    topics = {"plant/t": True, "clear/t": False, "else/t": False}
    for topic, is_sealed in topics.items():
        assert bool(sealer.seal_for(KeptRetained(1, value(topic), protected=True))) is is_sealed
    assert sealer.seal_for(KeptRetained(1, value("clear/t"), protected=False))
    world.keys = ScopeKeys()
    keyless = sealer_of(world)
    assert keyless.seal_for(KeptRetained(1, value("plant/t"), protected=True)) == ""
    assert sealer_of(world, reviewed=False).seal_for(KeptRetained(1, value("clear/t"), protected=False)) == ""


def test_the_next_epoch_ends_a_sealing_by_its_epoch_alone() -> None:
    sealer = sealer_of(by_epochs(EPOCH, EPOCH + 1))
    entry = sealed(sealer, value())
    sealer.review({}, NOW + 999)
    assert sealer.is_current(entry)
    sealer.review({}, NOW + 1000)
    assert not sealer.is_current(entry)
    assert sealer.is_current_but_for_its_epoch(entry)
    assert header_of(sealed(sealer, value(), 2, NOW + 1000)).key_id != header_of(entry).key_id


def test_an_epoch_is_dead_after_its_grace_and_the_skew_of_clocks() -> None:
    sealer = sealer_of(by_epochs(EPOCH))
    ends_s = CALENDAR.grace_s + CALENDAR.skew_s
    assert [sealer.oldest(NOW + at) for at in (0, ends_s - 1, ends_s)] == [EPOCH - 1, EPOCH - 1, EPOCH]


def test_why_an_entry_waits() -> None:
    world = by_epochs(scopes=NARROW)
    sealer = sealer_of(world)
    entry = made_of(sealer, value())
    assert sealer.hindrance(entry, NOW) == "key_waits"
    assert sealer.hindrance(made_of(sealer, value("clear/t")), NOW) is None, "it takes no key"
    world.learn(world.keys, [EPOCH])
    assert sealer.hindrance(entry, NOW) == "key_waits", "until a review"
    sealer.review({}, NOW)
    assert sealer.hindrance(entry, NOW) is None
    sealer.adopt_overlay(world.with_policy(grants=()), world.secrets)
    sealer.review({}, NOW)
    assert sealer.hindrance(entry, NOW) == "not_authorised"
    sealer._life.outlived_by = 2
    assert sealer.hindrance(entry, NOW) == "outlived_waits"


def test_a_review_is_due_at_the_end_of_grace_and_of_the_epoch_and_when_something_changed() -> None:
    world = by_epochs(EPOCH)
    sealer = sealer_of(world, reviewed=False)
    sealer.ask_review(NOW + 5)
    assert sealer.review_due(0), "it is due already"
    for at, then in ((0, 100), (99, 100), (100, 1000), (999, 1000)):
        sealer.review({}, NOW + at)
        assert sealer.review_at == NOW + then
        assert [sealer.review_due(NOW + then - 1), sealer.review_due(NOW + then)] == [False, True]
    sealer.ask_review(NOW + 2000)
    assert sealer.review_at == NOW + 1000, "one is due before"
    sealer.ask_review(NOW + 500)
    assert sealer.review_at == NOW + 500
    changes = (
        sealer.keys_changed, lambda: sealer.adopt_overlay(world.overlay, world.secrets), sealer.ask_review,
        lambda: sealer.rotate_identity(world.identities["site"]),
    )  # fmt: skip
    for change in changes:
        sealer.review({}, NOW)
        assert not sealer.review_due(NOW)
        change()
        assert sealer.review_due(NOW)
    assert sealer.changes == 2, "of keys, rights and views"


def test_without_epochs_no_review_is_due_by_itself(world: World) -> None:
    sealer = sealer_of(world)
    assert not sealer.review_due(NOW + 1e9)


def test_a_clock_that_was_set_back_asks_for_a_review_once(world: World) -> None:
    sealer = sealer_of(world)
    sealed(sealer, value())
    assert not sealer.review_due(NOW - CLOCK_STEP_S)
    assert sealer.review_due(NOW - CLOCK_STEP_S - 1)
    sealer.review({}, NOW - CLOCK_STEP_S - 1)
    assert not sealer.review_due(NOW - CLOCK_STEP_S - 1)


def test_a_scope_of_an_entry_that_is_not_ours_any_more_is_reviewed_too(world: World) -> None:
    sealer, before = sealer_of(world), world.secrets[0]
    entry = Entry(1, value(), before, 0, NOW)
    world.secrets = world.secrets[1:]
    sealer.adopt_overlay(world.overlay, world.secrets)
    sealer.review({}, NOW)
    assert sealer.hindrance(entry, NOW) == "key_waits"
    sealer.review({before.scope.filter: before.scope}, NOW)
    assert sealer.hindrance(entry, NOW) is None


# ----------------------------------------------------------------------------------------------- the sealing


@pytest.mark.parametrize(("step_s", "is_new"), [(60, False), (61, True), (-60, False), (-61, True)])
def test_a_key_ends_with_a_step_of_the_clock(step_s: int, is_new: bool) -> None:
    sealer = sealer_of(one_region("site", scopes=[Scope("plant/#", refresh=Refresh(age_s=3600))]))
    keys = [header_of(sealed(sealer, value(), n, at)).key_id for n, at in ((1, NOW), (2, NOW + step_s))]
    assert (keys[0] != keys[1]) is is_new


def test_nothing_to_seal_is_no_time_at_which_something_was_sealed(world: World) -> None:
    sealer = sealer_of(world)
    first = header_of(sealed(sealer, value()))
    assert sealer.seal_entries([], NOW + 1000) == ([], [])
    assert header_of(sealed(sealer, value(), 2, NOW + 1)).key_id == first.key_id


def test_new_keys_end_a_data_key(world: World) -> None:
    sealer = sealer_of(world)
    first = header_of(sealed(sealer, value()))
    sealer.keys_changed()
    sealer.review({}, NOW)
    assert header_of(sealed(sealer, value(), 2)).key_id != first.key_id


@pytest.mark.parametrize(
    ("step_s", "then_s"), [(1.0, 1.0), (0.001, 0.001), (0.0, 0.001), (-1.0, 0.001), (-59.5, 0.001), (-61.0, -61.0)]
)
def test_what_is_sealed_anew_is_later_than_before_but_for_a_clock_that_was_set_back_far(
    world: World, step_s: float, then_s: float
) -> None:
    """An earlier sealing is a repetition to replicas."""
    sealer = sealer_of(world)
    entry = sealed(sealer, value())
    sealer.seal_entries([entry], NOW + step_s)
    assert header_of(entry).time_ms == round((NOW + then_s) * 1000)


def test_what_is_sealed_anew_in_the_epoch_before_is_of_that_epoch() -> None:
    sealer = sealer_of(by_epochs(EPOCH - 1, EPOCH))
    entry = sealed(sealer, value(), now=NOW + 5)
    sealer.review({}, NOW - 5)
    sealer.seal_entries([entry], NOW - 5)
    assert header_of(entry).time_ms == int((NOW - 5) * 1000)
    sealer.seal_entries([entry], NOW - 6)
    assert header_of(entry).time_ms == int((NOW - 5) * 1000) + 1


def test_a_header_says_of_its_publication_what_replicas_need(world: World) -> None:
    sealer = sealer_of(world)
    lasting = header_of(sealed(sealer, value(), 1))
    assert (lasting.deadline_ms, lasting.qos, lasting.retain, lasting.tombstone) == (0, 1, False, False)
    fleeting = header_of(sealed(sealer, value(qos=0, expiry_s=7), 2))
    assert (fleeting.deadline_ms, fleeting.qos) == (int(NOW + 7) * 1000, 0)
    ended = header_of(sealed(sealer, value(expiry_s=0), 3))
    assert ended.deadline_ms == int(NOW * 1000)
    kept = header_of(sealed(sealer, value(retain=True), 4))
    assert (kept.retain, kept.tombstone, kept.snapshot) == (True, False, False)
    assert header_of(sealed(sealer, value(payload=b"", retain=True), 5)).tombstone
    assert not header_of(sealed(sealer, value(payload=b""), 6)).tombstone


def test_a_snapshot_follows_nothing(world: World) -> None:
    sealer = sealer_of(world)
    for number, is_snapshot in enumerate((False, True), 8):
        entry = replace(made_of(sealer, value(retain=True), number), previous=5, is_snapshot=is_snapshot)
        sealer.seal_entries([entry], NOW)
        header = header_of(entry)
        assert (header.previous, header.snapshot) == ((0, True) if is_snapshot else (5, False))


@pytest.mark.parametrize(
    ("hosted", "mode", "size", "retain", "becomes"),
    [
        ((), Mode.ONE, 9000, False, Mode.ONE),
        ((), Mode.ONE, 9000, True, Mode.COPIES),
        ((), Mode.ONE, 10, False, Mode.COPIES),
        ((), Mode.BLOCKS, 9000, False, Mode.BLOCKS),
        (("r1b",), Mode.ONE, 9000, False, Mode.COPIES),
        (("r1b",), Mode.BLOCKS, 9000, False, Mode.COPIES),
        (("r1b",), Mode.PLAIN, 9000, False, Mode.PLAIN),
    ],
)
def test_how_content_travels(hosted: tuple[str, ...], mode: Mode, size: int, retain: bool, becomes: Mode) -> None:
    """Stock brokers put nothing together and are asked for nothing."""
    sealer = sealer_of(one_region("site", scopes=[Scope("plant/#", mode)], hosted=hosted))
    entry = sealed(sealer, value(payload=bytes(size), retain=retain))
    header = header_of(entry)
    assert header.mode is becomes
    assert header.digests == tuple(map(content_digest, entry.pieces))
    assert len(entry.pieces) == (3 if becomes is Mode.BLOCKS else 1)
    assert entry.wire is not None
    assert (len(entry.wire.payload) > size) is (becomes in (Mode.COPIES, Mode.PLAIN))
    assert (header.key_id == NO_KEY) is (mode is Mode.PLAIN)


def test_content_that_rides_everywhere_is_not_cut_as_it_is_sealed() -> None:
    sealer = sealer_of(one_region("site", scopes=[Scope("plant/#", Mode.ONE)]))
    entries = [sealed(sealer, value(payload=bytes(size)), size) for size in range(INLINE_BYTES - 120, INLINE_BYTES, 8)]
    longer = [len(entry.pieces[0]) > INLINE_BYTES for entry in entries]
    assert [header_of(entry).mode is Mode.ONE for entry in entries] == longer
    assert set(longer) == {False, True}


def test_sealed_content_is_filled_up_and_plain_is_not(world: World) -> None:
    sealer = sealer_of(world)
    sealer.padding = 256
    sizes = [
        [len(sealed(sealer, value(topic, bytes(n)), n + 1).pieces[0]) for n in (1, 40)]
        for topic in ("plant/t", "clear/t")
    ]
    assert sizes[0] == [256 + TAG_BYTES] * 2
    assert all(size % 256 for size in sizes[1])


def test_numbers_of_qos_2_are_noted_once_sealed(world: World) -> None:
    """The next process tells the ones that readers may have."""
    sealer = sealer_of(world)
    for qos in (0, 1):
        sealed(sealer, value(qos=qos), qos + 1)
    assert sealer.sealed_before.changed_rows() == []
    sealed(sealer, value(qos=2), 7)
    (kept,) = sealer.sealed_before.changed_rows()
    sealer.sealed_before.restore([(name, row) for name, row in kept.rows if row is not None])
    assert [number for number in range(10) if sealer.sealed_before.may_be(number)] == [7]


# ------------------------------------------------------------------------------------------ shown attributes


@pytest.mark.parametrize(
    ("clear", "retain", "shows"), [("shows/t", False, True), ("shows/t", True, False), ("plant/t", False, False)]
)
def test_a_scope_shows_its_attributes_on_each_publication_but_retained_ones(
    clear: str, retain: bool, shows: bool
) -> None:
    sealer = sealer_of(one_region("site", scopes=[Scope("plant/#"), Scope("shows/#", shown=SHOWN)]))
    entry = sealed(sealer, value(clear, retain=retain, properties=(("a", "1"), ("c", "2"))))
    assert entry.wire is not None
    lists = [from_property(told) for name, told in entry.wire.properties if name == PROPERTY_SHOWN]
    assert (len(lists) == 1) is shows
    assert header_of(entry).attributes == b"".join(map(content_digest, lists))
    for shown in lists:
        (row,) = read_list(shown, header_of(entry).attributes).rows
        assert row == {("a",): 1.0}


def test_each_record_of_a_batch_shows_its_attributes_and_an_unreadable_one_hides_all() -> None:
    sealer = sealer_of(one_region("site", scopes=[Scope("shows/#", shown=SHOWN)]))
    records = [value("shows/t", properties=(("a", str(n)),)) for n in range(3)]
    batch = packed("shows/#", [Numbered(1 + at, each) for at, each in enumerate(records)])
    entry = sealed(sealer, batch)
    assert entry.shown is not None
    assert [row["a",] for row in read_list(entry.shown, content_digest(entry.shown)).rows] == [0.0, 1.0, 2.0]
    damaged = encode(bytes([1, 1]), [1, 1], [b"shows/t", b"\xff"], [b"", b""], [b"x", b"y"])
    assert sealed(sealer, replace(batch, payload=damaged, records=2), 7).shown is None


def test_what_fits_no_record_is_not_sealed_whatever_is_wrong_with_it(world: World) -> None:
    sealer = sealer_of(world)
    bad = [
        value(content_type="\ud800"), value("plant/\ud800"), replace(value(), time_ms=-1),
        value(properties=(("k", "v"),) * 2000), value(payload=b"", properties=(("k", "\ud800"),)),
    ]  # fmt: skip
    entries = [made_of(sealer, of, number) for number, of in enumerate([value(), *bad, value()], 1)]
    assert sealer.seal_entries(entries, NOW) == ([2, 3, 4, 5, 6], [Count("sealed", 2), Count("unsealable", 5)])
    assert sealer.seal_entries(entries[1:-1], NOW) == ([2, 3, 4, 5, 6], [Count("unsealable", 5)])
