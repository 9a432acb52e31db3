"""What epochs, bumps and revocations must stop, one attack a test, each refused with its own error class.

attack: error class, or what comes of it
    its test (in tests/bridge unless it says keys or sim; `here` is this module)

a publication of a dead epoch: Expired; at a reader: no voucher
    here::test_a_publication_of_a_dead_epoch_…
a publication of an epoch to come: NotAuthorised; at a reader: no voucher
    here::test_a_publication_of_an_epoch_to_come_…
a key of a dead, a future epoch: Expired, NotAuthorised
    here::test_keys_of_dead_and_future_epochs_…
a key of last epoch, replayed: Expired
    here::test_a_key_header_of_last_epoch_…
a key of an outdated bump: WrongEpochKey
    here::test_a_key_of_an_older_bump_…
sealed under the key of another epoch: BadContent (counted: unopened)
    here::test_a_message_sealed_now_under_…
a revoked publisher goes on: NotAuthorised
    here::test_a_revoked_publisher_…
it backdates: at a replica: Expired
    here::test_backdating_helps_…
it backdates: f bad replicas: no voucher; Expired
    here::test_f_bad_replicas_cannot_bring_…, …_cannot_open_…
a just-revoked reader asks again: NotAuthorised
    here::test_a_revoked_reader_that_states_…
it waits for shares: nothing is sent
    here::test_shares_that_come_late_…
it asks key servers: Refused, and no key
    keys/test_fetching::test_a_revoked_member_learns_no_key_…
it taps every link: opens nothing
    sim/test_epochs::test_a_revoked_reader_that_taps_every_wire_…
a forged sequence, another's header: BadSignature
    test_arriving::test_each_lie_has_its_error
wrong topic: BadSignature
    test_arriving::test_each_lie_has_its_error
wrong scope; a replica publishes: NotAuthorised
    test_arriving::test_each_lie_has_its_error
downgrade to plain mode: BadFrame
    test_arriving::test_each_lie_has_its_error
downgrade to shares-only: WrongEpochKey
    keys/test_envelope::test_the_wrong_epoch_key_…
content altered on its way: content (a label); suspected
    test_collecting::test_altered_content_and_headers_…
frames altered or cut: BadFrame, BadSignature
    keys/test_frames, test_keyheader, test_message
two keys for one ciphertext: BadContent
    keys/test_envelope::test_one_ciphertext_under_two_keys_…
a key of another scope or publisher: not delivered, its author is suspected
    test_collecting::test_a_key_of_another_scope_…
a used sequence under one key: OurFault
    keys/test_envelope::test_a_nonce_never_serves_twice_…
zero, repeated coordinates: BadShare, BadFrame
    keys/test_sharetree::test_coordinates_of_zero_…
another's place, another view: BadShare
    test_arriving::test_labels_fit_…
a lying key server: Lied
    keys/test_fetching::test_f_liars_change_nothing_…
answers altered, of another, again: BadSignature, Replayed, BadFrame
    keys/test_fetching::test_answers_of_another_…, …garbage…
requests of strangers, old ones: NotAuthorised, BadSignature, NotFresh
    keys/test_issuing::test_requests_of_strangers_…, …old_and_future…
a statement for another: BadSignature
    test_subscriptions::test_nobody_can_state_for_another
an older overlay, though asked for: not adopted
    test_adopting::test_an_older_version_is_not_adopted_…
an overlay nobody asked for: Replayed
    test_adopting::test_a_document_that_nobody_asked_for_…
a CA, box or address exchanged: OverlayError
    test_views::test_every_field_of_a_member_…
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract.machine import Blame, Effect, Keep, Received, Restored, Subscribed, Tick, Wire
from bridge.document.policy import Scope
from bridge.replica.forwarder import Forwarder
from bridge.wire.admission import BUMP_GRACE_S, Admission
from bridge.wire.statements import RoutingTable, Statement
from keys.envelope import Mode, from_property, header_of, sign_header, to_property
from keys.epochs import Calendar
from keys.errors import Expired, NotAuthorised, WrongEpochKey
from tests.bridge.helpers import (
    NOW,
    ForgedKey,
    counted,
    craft,
    delivered,
    forge_key,
    gateway,
    replica,
    sent,
    statement,
    subscriber,
    with_properties,
)
from tests.sim.world import World, make_world
from tests.support.regions import fresh, one_region, with_keys

pytestmark = pytest.mark.invariant(58)

EPOCH = 7  # it begins at NOW
CALENDAR = Calendar(int((NOW - EPOCH * 100) * 1000), length_s=100, ahead_s=20, grace_s=20, skew_s=5)
DEAD_S = 100 + 20 + 5  # after NOW: from here on the epoch is dead for everybody
REPLICAS = ("r1a", "r1b", "r1c")


SCOPES = [Scope("plant/#"), Scope("clear/#", Mode.PLAIN)]
GATEWAYS = ("site", "evil", "control")
world = fresh(with_keys, range(EPOCH + 4), one_region, *GATEWAYS, scopes=SCOPES, calendar=CALENDAR)


def admission(world: World, *, at_replica: bool = True) -> Admission:
    return Admission(world.overlay, replica=at_replica)


def admit(checks: Admission, wire: Wire, now: float) -> bool:
    return checks.publication(dict(wire.properties)["vmq"], wire.topic, now).live


def clear(world: World, publisher: str, now: float, sequence: int = 1) -> Wire:
    return craft(world, publisher, "clear/a", sequence=sequence, mode=Mode.PLAIN, now=now)


def carried(key: ForgedKey) -> dict[str, str]:
    return dict(key.properties())


def sealed_wires(world: World, key: ForgedKey, now: float, sequence: int = 1) -> list[tuple[str, Wire]]:
    """One sealed publication as each replica passes it on, with its own share."""
    wire = craft(world, "evil", "plant/a", sequence=sequence, key=key, now=now)
    return [
        (peer, with_properties(wire, *key.properties(key.shares[place : place + 1])))
        for place, peer in enumerate(REPLICAS)
    ]


# ------------------------------------------------------------------------------------------------- epochs


@pytest.mark.parametrize("late_s", [0.0, 99.0, DEAD_S - 1.0])
def test_what_was_sealed_in_a_live_epoch_passes(world: World, late_s: float):
    assert admit(admission(world), clear(world, "site", NOW), NOW + late_s)


def test_a_header_that_was_admitted_is_refused_once_its_epoch_is_dead(world: World):
    """Verified is not fresh: a copy that a liar keeps back comes too late however well its header is known."""
    at_replica, wire = admission(world), clear(world, "site", NOW)
    assert admit(at_replica, wire, NOW)
    with pytest.raises(Expired):
        admit(at_replica, wire, NOW + DEAD_S)
    reader = admission(world, at_replica=False)
    assert admit(reader, wire, NOW)
    assert not admit(reader, wire, NOW + DEAD_S)


def test_a_publication_of_a_dead_epoch_is_expired_at_a_replica_and_not_live_for_a_reader(world: World):
    wire = clear(world, "site", NOW + 99)
    with pytest.raises(Expired):
        admit(admission(world), wire, NOW + DEAD_S)
    assert not admit(admission(world, at_replica=False), wire, NOW + DEAD_S)


def test_a_publication_of_an_epoch_to_come_is_refused_and_needs_vouchers_at_a_reader(world: World):
    """Whose clock may be slow: what f + 1 replicas let through has begun."""
    ahead = clear(world, "site", NOW + 100)
    with pytest.raises(NotAuthorised):
        admit(admission(world), ahead, NOW + 100 - CALENDAR.skew_s - 1)
    assert not admit(admission(world, at_replica=False), ahead, NOW + 100 - CALENDAR.skew_s - 1)
    for at_replica in (True, False):
        assert admit(admission(world, at_replica=at_replica), ahead, NOW + 100 - CALENDAR.skew_s)


def test_keys_of_dead_and_future_epochs_are_refused(world: World):
    checks = admission(world)
    key = forge_key(world, "site", "plant/#", epoch=EPOCH)
    assert checks.key_header(carried(key), NOW) == key.header
    with pytest.raises(NotAuthorised):
        checks.key_header(carried(forge_key(world, "site", "plant/#", epoch=EPOCH + 1)), NOW)
    with pytest.raises(Expired):
        checks.key_header(carried(forge_key(world, "site", "plant/#", epoch=EPOCH - 2)), NOW)


def test_a_key_header_of_last_epoch_that_was_verified_once_is_refused_when_replayed(world: World):
    checks, key = admission(world), forge_key(world, "site", "plant/#", epoch=EPOCH)
    checks.key_header(carried(key), NOW + DEAD_S - 1)
    with pytest.raises(Expired):
        checks.key_header(carried(key), NOW + DEAD_S)


def test_a_message_sealed_now_under_the_key_of_an_earlier_epoch_is_not_opened(world: World):
    node = subscriber(world, "control")
    key = forge_key(world, "evil", "plant/#", epoch=EPOCH)
    within, later = NOW + 119, NOW + 120  # the epoch's grace ends between them

    def arriving(now: float, sequence: int) -> list[Effect]:
        return [e for peer, w in sealed_wires(world, key, now, sequence) for e in node.handle(Received(peer, w), now)]

    assert len(delivered(arriving(within, 1))) == 1
    effects = arriving(later, 2)
    assert not delivered(effects)
    assert [e.member for e in effects if isinstance(e, Blame)] == ["evil"]


# -------------------------------------------------------------------------------------------------- bumps


def test_a_key_of_an_older_bump_counts_until_everybody_had_time_to_learn_of_the_newer(world: World):
    checks, key = admission(world), forge_key(world, "site", "plant/#", epoch=EPOCH)
    newer = world.revoked("evil", EPOCH - 1, bump=1)
    checks.adopt_overlay(newer, NOW)
    assert checks.key_header(carried(key), NOW + BUMP_GRACE_S - 1) is not None
    with pytest.raises(WrongEpochKey):
        checks.key_header(carried(key), NOW + BUMP_GRACE_S)
    with pytest.raises(WrongEpochKey):  # whoever starts with the newer policy has no reason to wait
        Admission(newer, replica=True).key_header(carried(key), NOW)


@pytest.mark.attack(204)
def test_each_bump_ends_in_its_own_time_however_many_follow(world: World):
    checks, first = admission(world), forge_key(world, "site", "plant/#", epoch=EPOCH)
    for bump in range(1, 5):
        world.overlay = world.revoked("evil", EPOCH - 1, bump=bump)
        checks.adopt_overlay(world.overlay, NOW + 20 * (bump - 1))
    with pytest.raises(WrongEpochKey):
        checks.key_header(carried(first), NOW + 60)
    world.learn(world.keys, [EPOCH], bump=3)
    third = forge_key(world, "site", "plant/#", epoch=EPOCH, bump=3)
    assert checks.key_header(carried(third), NOW + 60 + BUMP_GRACE_S - 1) is not None
    assert checks.next_stale(NOW + 60) == NOW + 40 + BUMP_GRACE_S
    with pytest.raises(WrongEpochKey):
        checks.key_header(carried(third), NOW + 60 + BUMP_GRACE_S)


def test_an_outdated_key_and_what_is_retained_under_it_go_from_a_replica(world: World):
    node = replica(world, "r1a", ["site", "control"])
    key = forge_key(world, "site", "plant/#", epoch=EPOCH)
    wire = craft(world, "site", "plant/a", sequence=1, key=key, retain=True, properties=key.properties(key.shares[:1]))
    node.handle(Received("site", wire), NOW)
    newer = world.revoked("evil", EPOCH - 1, bump=1)
    node.forwarder.adopt_overlay(newer, NOW)
    assert node.forwarder.tick(NOW + BUMP_GRACE_S - 1) == []
    assert node.forwarder.next_deadline == NOW + BUMP_GRACE_S
    assert counted(node.forwarder.tick(NOW + BUMP_GRACE_S), "retained_ended") == 1
    wanted = node.handle(Received("control", statement(world, "control", "plant/#")), NOW + BUMP_GRACE_S)
    assert not sent(wanted, "control")


def test_what_is_retained_in_clear_goes_with_its_epoch_too(world: World):
    node = replica(world, "r1a", ["site", "control"])
    wire = craft(world, "site", "clear/a", sequence=1, mode=Mode.PLAIN, retain=True)
    node.handle(Received("site", wire), NOW)
    assert counted(node.forwarder.tick(NOW + DEAD_S - 1), "retained_ended") == 0
    assert node.forwarder.next_deadline == NOW + DEAD_S
    effects = node.handle(Received("control", statement(world, "control", "clear/#")), NOW + DEAD_S)
    assert counted(effects, "retained_ended") == 1
    assert not sent(effects, "control")


def test_the_seed_of_a_dead_epoch_is_forgotten_and_never_asked_for_twice():
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}, calendar=CALENDAR)
    world.learn(world.keys, range(EPOCH, EPOCH + 2))
    asked: list[int] = []

    def seeds(epoch: int) -> bytes:
        asked.append(epoch)
        return bytes([epoch] * 32)

    node = Forwarder(world.overlay, "r1a", seeds)
    for peer in ("site", "r2a", "r2b"):
        node.link_up(peer, NOW)
    node.take_wire(Received("r2a", statement(world, "control", "plant/#")), NOW)
    for epoch in (EPOCH, EPOCH + 1):
        for salt in range(2):
            now = CALENDAR.start_s(epoch) + 1
            key = forge_key(world, "site", "plant/#", salt, epoch=epoch)
            wire = craft(world, "site", "plant/a", sequence=1 + 2 * epoch + salt, key=key, now=now)
            effects = node.take_wire(Received("site", with_properties(wire, *key.properties(key.shares[:1]))), now)
            assert {send.peer for send in sent(effects)} == {"r2a", "r2b"}
    assert asked == [EPOCH, EPOCH + 1]
    assert set(node._keys._known_seeds) == {EPOCH, EPOCH + 1}
    node.tick(NOW + DEAD_S)
    assert set(node._keys._known_seeds) == {EPOCH + 1}
    assert {held.header.epoch for held in node._keys} == {EPOCH + 1}


# ------------------------------------------------------------------------------------ revoked publishers


def test_a_revoked_publisher_is_refused_from_the_end_of_its_last_epoch(world: World):
    checks = admission(world)
    checks.adopt_overlay(world.revoked("evil", EPOCH), NOW)
    assert admit(checks, clear(world, "evil", NOW + 99), NOW + 99)
    with pytest.raises(NotAuthorised):
        admit(checks, clear(world, "evil", NOW + 100), NOW + 100)
    with pytest.raises(NotAuthorised):
        checks.key_header(carried(forge_key(world, "evil", "plant/#", epoch=EPOCH + 1)), NOW + 100)


def test_backdating_helps_a_revoked_publisher_at_a_replica_no_longer_than_the_grace(world: World):
    checks = admission(world)
    checks.adopt_overlay(world.revoked("evil", EPOCH), NOW)
    assert admit(checks, clear(world, "evil", NOW + 99), NOW + DEAD_S - 1)
    with pytest.raises(Expired):
        admit(checks, clear(world, "evil", NOW + 99, 2), NOW + DEAD_S)


@pytest.mark.attack(20)
def test_f_bad_replicas_cannot_bring_a_reader_what_a_revoked_publisher_backdates(world: World):
    node = subscriber(world, "control")
    node.collector.adopt_overlay(world.revoked("evil", EPOCH), world.secrets, NOW)
    wire = clear(world, "evil", NOW + 99)
    for _ in range(3):  # again and again over the same link
        effects = node.handle(Received("r1a", wire), NOW + DEAD_S)
        assert not delivered(effects)
        assert counted(effects, "vouchers_awaited") == 1


@pytest.mark.attack(44)
def test_a_voucher_is_for_the_very_header_and_not_for_another_of_its_number_and_time(world: World):
    """Attack: a revoked publisher signs another header of what honest replicas kept for a reader that was away: of the
    same number, time and first block, with other content behind it."""
    node = subscriber(world, "control")
    node.collector.adopt_overlay(world.revoked("evil", EPOCH), world.secrets, NOW)
    kept = clear(world, "evil", NOW + 99)
    told, party = from_property(dict(kept.properties)["vmq"]), world.identities["evil"]
    header = replace(header_of(told), deadline_ms=int((NOW + 9_999) * 1000))
    other = Wire(
        kept.topic, kept.payload, 1, False, (("vmq", to_property(sign_header(party, header, kept.topic).encode())),)
    )
    assert not delivered(node.handle(Received("r1b", kept), NOW + DEAD_S))
    assert not delivered(node.handle(Received("r1a", other), NOW + DEAD_S))
    assert len(delivered(node.handle(Received("r1c", kept), NOW + DEAD_S))) == 1


def test_a_reader_that_was_away_takes_what_f_plus_one_replicas_kept_for_it(world: World):
    node = subscriber(world, "control")
    node.collector.adopt_overlay(world.revoked("evil", EPOCH), world.secrets, NOW)
    wire = clear(world, "evil", NOW + 99)
    assert not delivered(node.handle(Received("r1a", wire), NOW + DEAD_S))
    assert len(delivered(node.handle(Received("r1b", wire), NOW + DEAD_S))) == 1
    assert counted(node.handle(Received("r1c", wire), NOW + DEAD_S), "duplicates_dropped") == 1


def test_bad_content_is_no_voucher(world: World):
    node = subscriber(world, "control")
    wire = clear(world, "site", NOW + 99)
    broken = Wire(wire.topic, b"x" + wire.payload, wire.qos, wire.retain, wire.properties)
    node.handle(Received("r1a", broken), NOW + DEAD_S)
    assert not delivered(node.handle(Received("r1b", wire), NOW + DEAD_S))


def test_a_flood_of_dead_publications_costs_bounded_memory(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.reader.intake.VOUCHED_MAX", 4)
    node = subscriber(world, "control")
    honest = clear(world, "site", NOW + 99)
    node.handle(Received("r1b", honest), NOW + DEAD_S)
    for sequence in range(1, 20):
        node.handle(Received("r1a", clear(world, "evil", NOW + 99, sequence)), NOW + DEAD_S)
    assert [len(brought) for brought in node.collector._intake._vouchers._brought.values()] == [1, 4]
    assert len(delivered(node.handle(Received("r1c", honest), NOW + DEAD_S))) == 1


def test_f_bad_replicas_cannot_open_a_dead_key_for_a_reader(world: World):
    """Shares are vouchers: k of them come over k links, and honest replicas refuse the key."""
    node = subscriber(world, "control")
    key = forge_key(world, "evil", "plant/#", epoch=EPOCH)
    (peer, wire), (other, honest), _ = sealed_wires(world, key, NOW + 99)
    assert not delivered(node.handle(Received(peer, wire), NOW + DEAD_S))
    effects = replica(world, other, ["evil", "control"]).handle(Received("evil", honest), NOW + DEAD_S)
    assert counted(effects, "refused") == 1
    assert not sent(effects)


# --------------------------------------------------------------------------------------- revoked readers


def test_a_reader_gets_nothing_from_the_moment_its_grant_ends_though_nothing_else_happens(world: World):
    node = replica(world, "r1a", ["site", "evil", "control"])
    for member in ("evil", "control"):
        node.handle(Received(member, statement(world, member, "clear/#")), NOW)
    node.forwarder.adopt_overlay(world.revoked("evil", EPOCH), NOW)

    def to(now: float, sequence: int) -> set[str]:
        return {s.peer for s in sent(node.handle(Received("site", clear(world, "site", now, sequence)), now))}

    assert to(NOW + 99.9, 1) == {"evil", "control"}
    assert to(NOW + 100, 2) == {"control"}


def test_shares_that_come_late_are_not_for_a_reader_that_was_revoked_meanwhile(world: World):
    node = replica(world, "r1a", ["site", "evil", "control"])
    for member in ("evil", "control"):
        node.handle(Received(member, statement(world, member, "plant/#")), NOW)
    key = forge_key(world, "site", "plant/#", epoch=EPOCH)
    first = craft(world, "site", "plant/a", sequence=1, key=key, properties=key.properties())  # header, no share yet
    assert {s.peer for s in sent(node.handle(Received("site", first), NOW))} == {"evil", "control"}
    node.forwarder.adopt_overlay(world.revoked("evil", EPOCH - 1), NOW + 1)
    shares = Wire("$veil/keys", b"", 1, False, key.properties(key.shares[:1]))
    assert {s.peer for s in sent(node.handle(Received("site", shares), NOW + 2))} == {"control"}


@pytest.mark.parametrize("through", ["evil", "r1b"])
def test_a_revoked_reader_that_states_its_wish_again_is_refused(world: World, through: str):
    """Whoever passes it on: a bad replica makes no difference."""
    table = RoutingTable(world.overlay)
    table.adopt_overlay(world.revoked("evil", EPOCH))
    wish = Statement("evil", "plant/#", 9, True, int((NOW + 3600) * 1000)).signed(world.identities["evil"])
    assert table.accept(wish, NOW + 99)
    later = Statement("evil", "plant/#", 10, True, int((NOW + 3600) * 1000)).signed(world.identities["evil"])
    with pytest.raises(NotAuthorised):
        table.accept(later, NOW + 100)
    off = Statement("evil", "plant/#", 11, False, int((NOW + 3600) * 1000)).signed(world.identities["evil"])
    assert table.accept(off, NOW + 100), "nobody needs a right to want nothing"


def test_a_newcomer_without_the_right_is_served_no_keys_and_nothing_retained(world: World):
    node = replica(world, "r1a", ["site", "evil"])
    key = forge_key(world, "site", "plant/#", epoch=EPOCH)
    wire = craft(world, "site", "plant/a", sequence=1, key=key, retain=True, properties=key.properties(key.shares[:1]))
    node.handle(Received("site", wire), NOW)
    node.forwarder.adopt_overlay(world.revoked("evil", EPOCH - 1), NOW)
    effects = node.handle(Received("evil", statement(world, "evil", "plant/#")), NOW + 1)
    assert not sent(effects)
    assert counted(effects, "refused") == 1


def test_a_member_that_the_overlay_lists_no_more_is_a_stranger(world: World):
    assert world.owner is not None
    members = [m for name, m in world.overlay.members.items() if name != "evil"]
    newer = type(world.overlay).sign(world.owner, world.overlay.policy, world.overlay.views.values(), members)
    node = replica(world, "r1a", ["site", "evil", "control"])
    node.handle(Received("evil", statement(world, "evil", "clear/#")), NOW)
    node.handle(Received("evil", clear(world, "evil", NOW)), NOW)
    node.forwarder.adopt_overlay(newer, NOW)
    assert not sent(node.handle(Received("site", clear(world, "site", NOW)), NOW), "evil")
    with pytest.raises(NotAuthorised):
        admit(Admission(newer, replica=True), clear(world, "evil", NOW), NOW)


@pytest.mark.attack(50)
def test_what_was_not_believed_is_not_believed_after_a_restart_either(world: World):
    """Attack: something of a live epoch waits for its key at a reader. When the epoch is dead a bad replica brings
    another sealing of its number, which one replica cannot vouch for, and the reader is started again: what it kept
    because it waited it lets in."""
    node, rows = subscriber(world, "control"), dict[bytes, bytes | None]()
    good, never = (forge_key(world, "evil", "plant/#", salt, epoch=EPOCH) for salt in (1, 2))
    waits = with_properties(craft(world, "evil", "plant/a", sequence=9, key=never, now=NOW + 98), *never.properties())
    backdated = craft(world, "evil", "plant/a", sequence=9, key=good, now=NOW + 99, payload=b"backdated")
    brought = [(peer, wire, NOW + 98) for peer, wire in sealed_wires(world, good, NOW + 98, sequence=7)]
    effects: list[Effect] = []
    for peer, wire, now in (*brought, ("r1b", waits, NOW + 99), ("r1a", backdated, NOW + DEAD_S)):
        effects = node.handle(Received(peer, wire), now)
        rows.update(dict(pair for each in effects if isinstance(each, Keep) for pair in each.rows))
    assert counted(effects, "vouchers_awaited") == 1
    again = gateway(world, "control")
    effects = again.handle(Restored(tuple((k, v) for k, v in rows.items() if v is not None)), NOW + DEAD_S + 1)
    effects += again.handle(Subscribed("#"), NOW + DEAD_S + 1) + again.handle(Tick(), NOW + DEAD_S + 30)
    assert not delivered(effects)
