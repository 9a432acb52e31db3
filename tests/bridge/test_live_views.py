"""Views that change while nodes run: what may change a region and what may not, and what becomes of keys on the way.

Attacks first: a minority of replicas, a stolen owner key and whoever delivers documents or endorsements change no
region; keys of different views never mix; who left a view gets nothing of the next.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.contract import EarlyRoom
from bridge.contract.machine import (
    Acked,
    Adopt,
    Adoption,
    Committed,
    Effect,
    LinkDown,
    LinkUp,
    Publication,
    Received,
    Tick,
    Wire,
)
from bridge.document.overlay import Member, Overlay, OverlayError
from bridge.document.policy import Scope
from bridge.document.region_view import Endorsement
from bridge.membership.adopting import OVERLAY_TOPIC, OfferedVersion, canonical
from bridge.membership.endorsing import ATTACH_S, VIEWS_TOPIC
from bridge.node import GatewayNode
from bridge.reader.blame import Evidence
from bridge.topology import peers_of
from bridge.wire.early import EARLY_KEYS_MAX, KEYS, EarlyKeys, keep_key
from bridge.wire.pulling import PULL_TOPIC, PullRequest
from bridge.wire.statements import KEYS_TOPIC
from keys.envelope import PROPERTY_KEY, PROPERTY_SHARES, Mode
from keys.errors import BadShare, Expired, UnknownView
from keys.identity import Certificate, Identity
from keys.sharetree import Hop, Place, Share
from tests.bridge.helpers import (
    counted,
    delivered,
    forge_key,
    gateway,
    named,
    publish,
    replica,
    sent,
    shares_in,
    statement,
    subscribe_at,
    subscriber,
    suspected,
)
from tests.sim.changing import changed, endorsed_by
from tests.sim.world import NOW, World, make_world

pytestmark = pytest.mark.invariant(48, 49)

GRACE_S = 60


def fresh() -> World:
    return make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "far": 2}, [Scope("plant/#")])


def attached(world: World, region: int = 1, grace_s: int = GRACE_S) -> Overlay:
    members = world.overlay.latest[region].members
    return changed(world, world.overlay, region, (*members, f"r{region}d"), NOW, grace_s)


def detached(world: World, name: str = "r1a", grace_s: int = GRACE_S) -> Overlay:
    region = int(name[1])
    members = tuple(member for member in world.overlay.latest[region].members if member != name)
    return changed(world, world.overlay, region, (*members, f"r{region}d"), NOW, grace_s)


def in_force(world: World, overlay: Overlay, region: int = 1, now: float = NOW) -> Overlay:
    return overlay.endorsed(endorsed_by(world, overlay, region, f"r{region}b", f"r{region}c"), now)


def heard(endorsement: Endorsement, sender: str = "r2a") -> Received:
    return Received(sender, Wire(VIEWS_TOPIC, endorsement.encode()))


def adopts(effects: Sequence[Effect]) -> list[Adoption]:
    return [effect.outcome for effect in effects if isinstance(effect, Adopt)]


def told(effects: Sequence[Effect]) -> set[str]:
    return {send.peer for send in sent(effects) if send.wire.topic == VIEWS_TOPIC}


WORLD = fresh()
HONEST = [endorsement.encode() for endorsement in endorsed_by(WORLD, attached(WORLD), 1, "r1a")]
NODES = [gateway(WORLD, "site")]
NODES[0].offered(canonical(attached(WORLD)), NOW)

# ------------------------------------------------------------------------------------- what changes a region


def test_a_view_counts_once_k_of_the_one_before_endorsed_it():
    world = fresh()
    node = gateway(world, "site")
    newer = attached(world)
    assert adopts(node.offered(canonical(newer), NOW)) == [Adoption.LIVE]
    assert node.overlay.views[1].number == 1, "the owner's signature alone changes nothing"
    first, second = endorsed_by(world, newer, 1, "r1a", "r1b")
    effects = node.handle(heard(first, "r1a"), NOW)
    assert (told(effects), adopts(effects)) == ({"r1b", "r1c"}, []), "passed on, and one of two is not enough"
    assert not node.handle(heard(first, "r1b"), NOW), "told once"
    effects = node.handle(heard(second, "r1b"), NOW + 1)
    assert adopts(effects) == [Adoption.LIVE]
    assert [view.number for view in node.overlay.open_views(1)] == [2, 1]
    assert node.next_deadline is not None
    effects = node.handle(Tick(), NOW + 1 + GRACE_S)
    assert adopts(effects) == [Adoption.LIVE]
    assert [view.number for view in node.overlay.open_views(1)] == [2]


def test_replicas_of_the_view_before_endorse_by_themselves_once_newcomers_had_time_to_link_up():
    world = fresh()
    node = replica(world, "r1a", ["site", "r2a"])
    newer = attached(world)
    node.offered(canonical(newer), NOW)
    assert not told(node.handle(Tick(), NOW))
    effects = node.handle(Tick(), NOW + ATTACH_S)
    assert told(effects) == {"site", "r2a"}
    assert node.overlay.endorsers(1) == {"r1a"}
    other = replica(world, "r2a", ["r1a"])
    other.offered(canonical(newer), NOW)
    assert not told(other.handle(Tick(), NOW + ATTACH_S)), "another region's replica has no say"


def test_a_newcomer_does_not_endorse_itself():
    world = fresh()
    newer = attached(world)
    world.overlay = newer
    node = replica(world, "r1d")
    assert not told(node.handle(Tick(), NOW + 2 * ATTACH_S))
    own = newer.endorsed(endorsed_by(world, newer, 1, "r1d", "r1a"), NOW)
    assert own.views[1].number == 1, "its own voice does not count"


@pytest.mark.parametrize("what", ["signature", "digest", "region", "number", "stranger", "gateway", "other replica"])
def test_forged_and_replayed_endorsements_count_nothing(what: str):
    world = fresh()
    newer = attached(world)
    (honest,) = endorsed_by(world, newer, 1, "r1a")
    thief = Identity.generate(bytes(range(2, 34)))
    forged = {
        "signature": replace(honest, member="r1b"),
        "digest": Endorsement.sign_view(replace(newer.latest[1], since_ms=7), "r1b", world.identities["r1b"]),
        "region": Endorsement.sign_view(replace(newer.latest[1], region=2), "r1b", world.identities["r1b"]),
        "number": Endorsement.sign_view(replace(newer.latest[1], number=3), "r1b", world.identities["r1b"]),
        "stranger": Endorsement.sign_view(newer.latest[1], "nobody", thief),
        "gateway": Endorsement.sign_view(newer.latest[1], "site", world.identities["site"]),
        "other replica": Endorsement.sign_view(newer.latest[1], "r2b", world.identities["r2b"]),
    }[what]  # fmt: skip
    node = gateway(world, "site")
    node.offered(canonical(newer), NOW)
    node.handle(heard(honest, "r1a"), NOW)
    effects = node.handle(heard(forged, "r1c"), NOW)
    assert not told(effects)
    assert node.overlay.endorsers(1) == {"r1a"}
    assert node.overlay.views[1].number == 1
    document = newer.to_document()
    document["endorsements"] = [*document["endorsements"], "garbage", 7]
    assert Overlay.from_document(document, int(NOW * 1000)).views[1].number == 1


def test_a_minority_and_the_owner_key_change_nothing_whatever_document_says_so():
    """Attack: who stole the owner's key signs the next version; f replicas of the region help."""
    world = fresh()
    newer = attached(world)
    node = gateway(world, "site")
    helped = newer.endorsed(endorsed_by(world, newer, 1, "r1a"), NOW)
    node.offered(canonical(helped), NOW)
    assert node.overlay.views[1].number == 1
    bare = {region: replace(view, former=None) for region, view in newer.latest.items()}
    assert world.owner is not None
    for policy_version, views in (
        (5, bare.values()),  # a view without the one before it
        (6, [replace(v, number=9, predecessor=bytes(32)) for v in bare.values()]),  # as if it were the first
        (7, [bare[1].successor(("r1a", "r1d", "r1c"), 0), bare[2]]),  # as if that one had been in force
    ):
        policy = replace(newer.policy, version=policy_version)
        forged = Overlay.sign(world.owner, policy, views, newer.members.values(), helped.endorsements)
        with pytest.raises(OverlayError, match="too few of its replicas agreed"):
            node.offered(canonical(forged), NOW)
        assert node.overlay.policy.version == newer.policy.version


def test_such_a_document_from_a_neighbour_is_not_adopted_and_asked_for_again():
    world = fresh()
    node = gateway(world, "site")
    newer = attached(world)
    views = [replace(view, former=None) for view in newer.latest.values()]
    assert world.owner is not None
    forged = Overlay.sign(world.owner, newer.policy, views, newer.members.values())
    node.handle(Received("r1a", Wire(OVERLAY_TOPIC, OfferedVersion.of_overlay(forged).encode())), NOW)
    answer = Wire(OVERLAY_TOPIC, OfferedVersion.of_overlay(forged).encode(2) + zlib.compress(canonical(forged)))
    effects = node.handle(Received("r1a", answer), NOW)
    assert (counted(effects, "views_refused"), adopts(effects), suspected(effects)) == (1, [], set())
    assert node.overlay is world.overlay


def test_an_older_view_in_a_newer_version_and_a_second_view_of_one_number_are_refused():
    world = fresh()
    node = gateway(world, "site")
    newer = in_force(world, attached(world))
    node.offered(canonical(newer), NOW)
    assert node.overlay.views[1].number == 2
    assert world.owner is not None
    back = Overlay.sign(
        world.owner, replace(newer.policy, version=9), world.overlay.latest.values(), world.overlay.members.values()
    )
    other = changed(world, world.overlay, 1, ("r1a", "r1b", "r1e"), NOW)
    rival = Overlay.sign(
        world.owner, replace(other.policy, version=9), other.latest.values(), other.members.values(),
        endorsed_by(world, other, 1, "r1a", "r1b", "r1c"),
    )  # fmt: skip
    for document in (back, rival):
        with pytest.raises(OverlayError, match="too few"):
            node.offered(canonical(document), NOW)
    assert node.overlay.views[1].number == 2


def test_who_missed_a_change_follows_a_later_one_that_k_of_its_own_view_endorsed():
    world = fresh()
    second = in_force(world, attached(world))
    later = NOW + 2 * GRACE_S
    third = changed(world, second.as_of(later), 1, ("r1b", "r1c", "r1d"), later)
    node = gateway(world, "site")
    with pytest.raises(OverlayError):
        node.offered(canonical(third), later)
    agreed = third.endorsed(endorsed_by(world, third, 1, "r1b", "r1c", "r1d"), later)
    assert adopts(node.offered(canonical(agreed), later)) == [Adoption.LIVE]
    assert [view.number for view in node.overlay.open_views(1)] == [3, 2]


def test_endorsements_are_in_the_file_that_a_restart_begins_with():
    world = fresh()
    node = gateway(world, "site")
    newer = attached(world)
    node.offered(canonical(newer), NOW)
    for endorsement in endorsed_by(world, newer, 1, "r1a", "r1b"):
        effects = node.handle(heard(endorsement, "r1a"), NOW)
    (adopt,) = [effect for effect in effects if isinstance(effect, Adopt)]
    loaded = Overlay.from_document(json.loads(adopt.document), int((NOW + 1) * 1000))
    assert [view.number for view in loaded.open_views(1)] == [2, 1]
    later = Overlay.from_document(json.loads(adopt.document), int((NOW + GRACE_S) * 1000))
    assert [view.number for view in later.open_views(1)] == [2]
    again = world.with_policy()  # a later version keeps what was agreed to
    assert node.overlay.policy.version == again.policy.version


def test_endorsements_heard_before_the_version_are_told_again_by_who_has_it():
    world = fresh()
    newer = attached(world)
    ahead, behind = gateway(world, "site"), replica(world, "r1b", ["site"])
    ahead.offered(canonical(newer), NOW)
    (endorsement,) = endorsed_by(world, newer, 1, "r1a")
    ahead.handle(heard(endorsement, "r1a"), NOW)
    assert counted(behind.handle(heard(endorsement, "site"), NOW), "endorsements_unknown") == 1
    effects = behind.offered(canonical(newer), NOW)
    (offer,) = {e.wire for e in effects if hasattr(e, "wire") and e.wire.topic == OVERLAY_TOPIC and e.peer == "site"}
    answers = ahead.handle(Received("r1b", offer), NOW)
    assert told(answers) == {"r1b"}
    assert not told(ahead.handle(Received("r1b", offer), NOW)), "once"


def test_one_endorsement_of_each_replica_is_kept_and_passed_on_however_many_it_signs():
    """With its key it can make signatures without end that differ; here with two keys that count."""
    world = fresh()
    newer = attached(world)
    second = Identity.generate(bytes(range(3, 35)))
    assert world.owner is not None
    former = newer.members["r1a"].certificate
    certificate = Certificate.issue(
        world.owner, name="r1a", role=former.role, public_key=second.public_bytes,
        agreement_key=second.agreement_bytes, domain=former.domain, region=1, not_after_ms=former.not_after_ms,
    )  # fmt: skip
    members = {**newer.members, "r1a": Member(certificate, before=former)}
    rotated = Overlay.sign(world.owner, newer.policy, newer.latest.values(), members.values())
    node = gateway(world, "site")
    node.offered(canonical(rotated), NOW)
    twice = [Endorsement.sign_view(rotated.latest[1], "r1a", key) for key in (second, world.identities["r1a"])]
    assert [bool(told(node.handle(heard(each, "r1a"), NOW))) for each in twice] == [True, False]
    assert len(node.overlay.endorsements) == 1
    assert len(rotated.endorsed(twice, NOW).endorsements) == 1
    assert node.overlay.views[1].number == 1


@given(st.binary(max_size=200))
def test_no_wire_on_the_topic_of_views_makes_a_node_raise(payload: bytes):
    node = NODES[0]
    for data in (payload, HONEST[0][: len(payload)] + payload, HONEST[0] + payload):
        effects = node.handle(Received("r1b", Wire(VIEWS_TOPIC, data)), NOW)
        assert not adopts(effects)


# ------------------------------------------------------------------------------------------------ detached


def test_a_detached_replica_forwards_until_the_view_before_is_closed_and_keeps_nothing():
    world = fresh()
    node = replica(world, "r1a", ["site", "r2a", "r2b", "r2c"])
    subscribe_at(node, world, "far", "plant/#", via="r2a")
    site = gateway(world, "site")
    wires = publish(site, "plant/t", sequence=1)
    node.offered(canonical(in_force(world, detached(world))), NOW)
    assert {s.peer for s in sent(node.handle(Received("site", wires["r1a"]), NOW))} == {"r2a", "r2b", "r2c"}
    assert "r1a" in peers_of(node.overlay, "site")
    effects = node.handle(Tick(), NOW + GRACE_S)
    assert adopts(effects) == [Adoption.REMOVED]
    assert not len(node.forwarder._keys)
    assert "r1a" not in peers_of(node.overlay, "site")
    assert not sent(node.handle(Received("site", publish(site, "plant/t", sequence=2)["r1a"]), NOW + GRACE_S))


def test_remove_now_ends_the_view_before_at_once_for_everybody():
    world = fresh()
    newer = in_force(world, detached(world, grace_s=0))
    site, node = gateway(world, "site"), replica(world, "r2a", ["r1a", "r1b", "far"])
    old = publish(site, "plant/t", sequence=1)
    effects = site.offered(canonical(newer), NOW)
    assert not sent(effects, "r1a")
    assert set(publish(site, "plant/t", sequence=2)) == {"r1b", "r1c"}
    node.offered(canonical(newer), NOW)
    refused = node.handle(Received("r1a", old["r1a"]), NOW)
    assert counted(refused, "refused") == 1
    assert adopts(replica(world, "r1a").offered(canonical(newer), NOW)) == [Adoption.REMOVED]


def test_who_left_gets_nothing_that_is_sealed_for_the_next_view():
    world = fresh()
    site = gateway(world, "site")
    site.offered(canonical(in_force(world, detached(world))), NOW)
    site.handle(LinkUp("r1d"), NOW)
    wires = publish(site, "plant/t", sequence=1)
    assert set(wires) == {"r1b", "r1c", "r1d"}
    places = {peer: [share.label[0] for share in shares_in(wire)] for peer, wire in wires.items()}
    assert places == {"r1b": [Place(1, 2, 1)], "r1c": [Place(1, 2, 2)], "r1d": [Place(1, 2, 3)]}


# ------------------------------------------------------------------------------------------ keys and shares


def test_a_key_of_a_view_to_come_waits_and_its_content_goes_on():
    """Nobody is suspected: the publisher heard the endorsements first."""
    world = fresh()
    newer = attached(world)
    agreed = in_force(world, newer)
    site, node = gateway(world, "site"), replica(world, "r1b", ["site", "r2a", "r2b", "r2c"])
    site.offered(canonical(agreed), NOW)
    node.offered(canonical(newer), NOW)
    subscribe_at(node, world, "far", "plant/#", via="r2a")
    effects = node.handle(Received("site", publish(site, "plant/t", sequence=1)["r1b"]), NOW)
    assert (counted(effects, "keys_ahead"), counted(effects, "forwarded"), suspected(effects)) == (1, 1, set())
    assert not any(shares_in(send.wire) for send in sent(effects))
    for endorsement in agreed.endorsements:
        effects = node.handle(heard(endorsement, "site"), NOW)
    owed = [send for send in sent(effects) if shares_in(send.wire)]
    assert {send.peer for send in owed} == {"r2a", "r2b", "r2c"}


def test_a_subscriber_opens_what_came_before_its_view():
    world = make_world({1: 3}, [], {"site": 1, "near": 1}, [Scope("plant/#")])
    newer = attached(world)
    agreed = in_force(world, newer)
    site, near = gateway(world, "site"), subscriber(world, "near")
    site.offered(canonical(agreed), NOW)
    near.offered(canonical(newer), NOW)
    replicas = {name: replica(world, name, ["site", "near"]) for name in ("r1a", "r1b", "r1c")}
    wires = publish(site, "plant/t", b"early", sequence=1)
    effects: list[Effect] = []
    for name, node in replicas.items():
        node.offered(canonical(agreed), NOW)
        subscribe_at(node, world, "near", "plant/#")
        for send in sent(node.handle(Received("site", wires[name]), NOW), "near"):
            effects += near.handle(Received(name, send.wire), NOW)
    assert not delivered(effects)
    for endorsement in agreed.endorsements:
        effects += near.handle(heard(endorsement, "r1a"), NOW)
    assert [d.publication.payload for d in delivered(effects)] == [b"early"]
    assert not suspected(effects)


def test_a_key_of_a_closed_view_is_refused_and_nobody_blamed():
    world = fresh()
    old = publish(gateway(world, "site"), "plant/t", sequence=1)
    node = replica(world, "r1b", ["site"])
    node.offered(canonical(in_force(world, attached(world))), NOW)
    node.handle(Tick(), NOW + GRACE_S)
    effects = node.handle(Received("site", old["r1b"]), NOW + GRACE_S + 1)
    assert (counted(effects, "refused"), suspected(effects)) == (1, set())


def test_a_newcomer_gets_no_share_of_the_view_before_and_shares_are_counted_by_the_keys_own_places():
    """r1b is at place 2 of the old view and at place 1 of the new one."""
    world = fresh()
    newer = in_force(world, detached(world))
    site = gateway(world, "site")
    old = publish(site, "plant/t", sequence=1)
    nodes = {name: replica(world, name, ["site", "r2a", "r2b", "r2c"]) for name in ("r1b", "r1c")}
    for name, node in nodes.items():
        subscribe_at(node, world, "far", "plant/#", via="r2a")
        node.offered(canonical(newer), NOW)
        before = node.handle(Received("site", old[name]), NOW)
        assert not suspected(before)
        labels = {share.label for send in sent(before, "r2a") for share in shares_in(send.wire)}
        assert labels == {(Place(1, 1, {"r1b": 2, "r1c": 3}[name]), Place(2, 1, 1))}
    new = {send.peer: send.wire for send in sent(site.offered(canonical(newer), NOW))}
    after = nodes["r1b"].handle(Received("site", new["r1b"]), NOW)
    assert counted(after, "forwarded") == 1, "sealed anew, though in the same millisecond"
    labels = {share.label for send in sent(after, "r2a") for share in shares_in(send.wire)}
    assert labels == {(Place(1, 2, 1), Place(2, 1, 1))}
    world.overlay = newer
    newcomer = replica(world, "r1d", ["site", "r2a", "r2b", "r2c"])
    refused = newcomer.handle(Received("site", old["r1b"]), NOW)
    assert not any(shares_in(send.wire) for send in sent(refused))
    assert not len(newcomer.forwarder._keys)


def test_shares_stamped_for_another_view_than_the_keys_are_refused():
    world = fresh()
    newer = in_force(world, attached(world))
    key = forge_key(world, "site", "plant/#")
    first, second = key.header.hops
    node = replica(world, "r2a", ["r1a", "r1d"])
    node.offered(canonical(newer), NOW)
    admission = node.forwarder._admission
    assert admission.key_header(dict(key.properties()), NOW) == key.header
    for label in (Place(1, 2, 1), Place(1, 1, 4)):
        share = Share((label, Place(2, 1, 1)), (bytes(4),), bytes(32))
        carried = dict(key.properties([share]))
        with pytest.raises(BadShare):
            admission.shares(carried, [first, Place(2, 1, 1)])
        assert suspected(node.handle(Received("r1a", Wire("$veil/keys", b"", properties=tuple(carried.items()))), NOW))
    with pytest.raises(BadShare):
        newer.check_view(Hop(1, 2, 2, 3))
    with pytest.raises(UnknownView):
        newer.check_view(Hop(1, 3, 3, 4))
    with pytest.raises(Expired):
        newer.as_of(NOW + GRACE_S).check_view(first)
    newer.check_view(second)


def test_liars_of_two_views_do_not_add_up_to_a_voucher():
    """One bad replica that left and one that came: f + 1 = 2 of nothing."""
    newer = in_force(world := fresh(), detached(world))
    assert not newer.honest_among(1, {"r1a", "r1d"})
    assert newer.honest_among(1, {"r1a", "r1b"})
    assert newer.honest_among(1, {"r1b", "r1d"})


def test_evidence_of_one_view_is_held_against_its_own_members_only():
    """The liar at place 1 left; whoever is at place 1 now is innocent."""
    world = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#")])
    key, evidence = forge_key(world, "site", "plant/#"), Evidence(world.overlay)
    shares = {share.label: share for share in key.shares}
    label = key.shares[0].label
    shares[label] = Share(label, (), bytes(32))
    newer = in_force(world, detached(world))
    evidence.adopt_overlay(newer)
    effects = evidence.judge(key.header, key.header.hops, shares, ())
    assert (named(effects), newer.views[1].members[0]) == ({"r1a"}, "r1b")
    late = Evidence(newer.as_of(NOW + GRACE_S))
    assert not late.judge(key.header, key.header.hops, shares, ())


def test_keys_ahead_are_bounded_and_a_flooder_loses_its_own():
    world = make_world({1: 3}, [], {"site": 1, "evil": 1}, [Scope("plant/#")])
    ahead: EarlyKeys = EarlyRoom(KEYS)
    honest = dict(forge_key(world, "site", "plant/#").properties())
    keep_key(ahead, "r1a", honest, KEYS_TOPIC)
    told_by = dict(forge_key(world, "evil", "plant/#").properties())
    for n in range(EARLY_KEYS_MAX + 100):
        keep_key(ahead, "r1b", told_by, f"topic {n}")
    assert len(ahead) == EARLY_KEYS_MAX
    for n in range(EARLY_KEYS_MAX + 100):
        keep_key(ahead, "r1c", {**honest, PROPERTY_SHARES: f"made up {n}"}, KEYS_TOPIC)
    assert len(ahead) == EARLY_KEYS_MAX
    kept = ahead.take_all()
    assert ("r1a", KEYS_TOPIC, {PROPERTY_KEY: honest[PROPERTY_KEY]}) in kept, "whoever else says what of the same key"


# ------------------------------------------------------------------------------------------------ publisher


def commit(node: GatewayNode, *sequences: int, now: float = NOW) -> list[Effect]:
    entries = tuple((s, s - 1, Publication("plant/t", b"%d" % s, 1, time_ms=int(now * 1000))) for s in sequences)
    return node.handle(Committed(entries), now)


def test_what_a_replica_that_left_may_lack_is_sealed_anew_for_those_that_stay():
    """r1a (a liar, say) and r1b acknowledged; r1c leaves before it has it: r1b's share alone opens nothing."""
    world = fresh()
    site = gateway(world, "site")
    commit(site, 1)
    for peer in ("r1a", "r1b"):
        site.handle(Acked(peer, 1), NOW)
    effects = site.offered(canonical(in_force(world, detached(world, "r1c"))), NOW)
    again = sent(effects)
    assert {send.peer for send in again} == {"r1a", "r1b"}
    assert all(share.label[0].view == 2 for send in again for share in shares_in(send.wire))


@pytest.mark.parametrize("back_s", [0.0, 2.0])
def test_what_is_sealed_anew_is_later_though_the_clock_was_set_back_a_little(back_s):
    """Replicas take an earlier sealing for a repetition, drop it, and acknowledge it all the same."""
    world = fresh()
    site, node = gateway(world, "site"), replica(world, "r1b", ["site"])
    first = {send.peer: send.wire for send in sent(commit(site, 1))}
    newer = canonical(in_force(world, detached(world, "r1c"), now=NOW - back_s))
    again = {send.peer: send.wire for send in sent(site.offered(newer, NOW - back_s))}
    assert counted(node.handle(Received("site", first["r1b"]), NOW), "forwarded") == 1
    node.offered(newer, NOW)
    assert counted(node.handle(Received("site", again["r1b"]), NOW), "forwarded") == 1


def test_an_acknowledgement_of_who_has_a_newer_overlay_forgets_nothing():
    """The gateway was away while a view was replaced and closed: the region refuses what it seals for the old one."""
    world = fresh()
    site = gateway(world, "site", links=False)
    newer = in_force(world, attached(world, grace_s=0))
    effects = commit(site, 1)
    for peer in ("r1a", "r1b", "r1c"):
        effects += site.handle(LinkUp(peer), NOW)
        site.handle(Received(peer, Wire(OVERLAY_TOPIC, OfferedVersion.of_overlay(newer).encode())), NOW)
    forgotten = [site.handle(Acked(peer, 1), NOW) for peer in ("r1a", "r1b", "r1c")]
    assert site.publisher.depth == 1, forgotten
    again = site.offered(canonical(newer), NOW)
    assert {send.peer for send in sent(again)} == {"r1a", "r1b", "r1c"}
    assert {share.label[0].view for send in sent(again) for share in shares_in(send.wire)} == {2}
    site.handle(LinkUp("r1d"), NOW)
    for peer in ("r1a", "r1b", "r1c", "r1d"):
        site.handle(Acked(peer, 1), NOW)
    assert site.publisher.depth == 0


def test_a_replica_that_is_away_while_a_newcomer_comes_causes_no_second_sending():
    world = fresh()
    site = gateway(world, "site")
    site.handle(LinkDown("r1c"), NOW)
    commit(site, 1)
    for peer in ("r1a", "r1b"):
        site.handle(Acked(peer, 1), NOW)
    assert not sent(site.offered(canonical(in_force(world, attached(world))), NOW))
    assert not [send for send in sent(site.handle(LinkUp("r1d"), NOW)) if send.wire.topic == "plant/t"]
    assert site.publisher.depth == 1, "r1c is to have it"


@pytest.mark.parametrize("change", [attached, detached])
def test_what_all_acknowledged_stays_for_repair_through_a_change_of_views(change):
    """The only replica that was sent a block may be a liar; the others are asking for it just now."""
    world = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#", Mode.BLOCKS)])
    site = gateway(world, "site")
    publish(site, "plant/t", bytes(2000), sequence=1)
    for peer in ("r1a", "r1b", "r1c"):
        site.handle(Acked(peer, 1), NOW)
    site.offered(canonical(in_force(world, change(world))), NOW)
    site.handle(LinkUp("r1d"), NOW)
    asks = Received("r1b", Wire(PULL_TOPIC, PullRequest(world.identities["site"].party_id, 1).encode()))
    assert [send.peer for send in sent(site.handle(asks, NOW + 5))] == ["r1b"]
    site.handle(Tick(), NOW + 11)
    assert not sent(site.handle(asks, NOW + 11))


def test_what_is_retained_is_sealed_anew_for_the_next_view():
    world = fresh()
    site = gateway(world, "site")
    publication = Publication("plant/state", b"on", 1, True, time_ms=int(NOW * 1000))
    site.handle(Committed(((1, 0, publication),)), NOW)
    for peer in ("r1a", "r1b", "r1c"):
        site.handle(Acked(peer, 1), NOW)
    effects = site.offered(canonical(in_force(world, attached(world))), NOW)
    assert counted(effects, "retained_resealed") == 1


# ------------------------------------------------------------------------------------------ routing state


def test_a_newcomer_hears_all_statements_whatever_one_neighbour_withholds_or_replays():
    """Statements are signed and versioned: one honest neighbour is enough, an old one changes nothing (A14)."""
    world = fresh()
    world.overlay = attached(world)
    newcomer = replica(world, "r1d", ["site"])
    honest = replica(world, "r2a", ["far"])
    subscribe_at(honest, world, "far", "plant/#")
    for send in sent(honest.handle(LinkUp("r1d"), NOW)):
        newcomer.handle(Received("r2a", send.wire), NOW)
    newcomer.handle(LinkUp("r2b"), NOW)  # says nothing
    newcomer.handle(LinkUp("r2c"), NOW)
    old = statement(world, "far", "plant/#", version=0, on=False)
    newcomer.handle(Received("r2c", old), NOW)
    scope = newcomer.overlay.scope_named("plant/#")
    assert scope is not None
    assert newcomer.forwarder.routing.wanting(scope, NOW) == ["far"]


def test_nobody_but_the_newcomers_own_neighbours_has_links_with_it_and_it_forwards_nothing_before_its_view_counts():
    world = fresh()
    newer = attached(world)
    assert "r1d" in peers_of(newer, "site")
    assert "r1d" in peers_of(newer, "r2a")
    assert "r1d" not in peers_of(newer, "far")
    site = gateway(world, "site")
    site.offered(canonical(newer), NOW)
    site.handle(LinkUp("r1d"), NOW)
    assert set(publish(site, "plant/t", sequence=1)) == {"r1a", "r1b", "r1c"}


@pytest.mark.parametrize("seed", range(10))
def test_whatever_order_documents_and_endorsements_come_in_the_same_views_are_in_force(seed: int):
    rng = random.Random(seed)
    world = fresh()
    newer = attached(world)
    agreed = in_force(world, newer)
    node = gateway(world, "site")
    steps = [*agreed.endorsements, *agreed.endorsements, newer, agreed]
    rng.shuffle(steps)
    for step in steps:
        if isinstance(step, Endorsement):
            node.handle(heard(step, "r1a"), NOW)
        elif step.policy.version > node.overlay.policy.version:
            node.offered(canonical(step), NOW)
    for endorsement in agreed.endorsements:  # told again by who has our version
        node.handle(heard(endorsement, "r1b"), NOW)
    assert [view.number for view in node.overlay.open_views(1)] == [2, 1]
