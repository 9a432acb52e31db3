"""Which overlay is in force: newer versions spread, everything else is refused, liars cost seconds at most."""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import replace

import pytest

from bridge.contract.machine import (
    Adopt,
    Adoption,
    Blame,
    Committed,
    Count,
    Effect,
    LinkUp,
    Prove,
    Publication,
    Received,
    Send,
    Subscribed,
    Tick,
    Wire,
)
from bridge.document.evidence import Lie
from bridge.document.overlay import Overlay, OverlayError
from bridge.document.policy import Issuer, Scope
from bridge.document.region_view import Endorsement
from bridge.membership.adopting import (
    ASK_S,
    DISTRUST_S,
    DOCUMENT_BURST,
    FLAG_ASK,
    FLAG_DOCUMENT,
    OFFER_AGAIN_S,
    OVERLAY_BYTES_MAX,
    OVERLAY_TOPIC,
    OVERLAY_VALUES_MAX,
    UNENDORSED_S,
    OfferedVersion,
    OverlayKeeper,
    canonical,
)
from bridge.membership.endorsing import ATTACH_S
from keys.epochs import Calendar
from keys.identity import CERTIFICATE_DOMAIN, Identity
from papers.sim.kernel import Kernel
from tests.bridge.helpers import counted, gateway, replica, sent, suspected
from tests.sim.changing import changed, endorsed_by
from tests.sim.world import NOT_AFTER_MS, NOW, Traffic, World, make_world

WORLD = make_world({1: 3}, [], {"site": 1, "control": 1})
OVERLAY = WORLD.overlay
NEWER = WORLD.revoked("control", -1)


def keeper(*peers: str, name: str = "site", overlay: Overlay = OVERLAY) -> OverlayKeeper:
    made = OverlayKeeper(overlay, name)
    for peer in peers or ("r1a", "r1b", "r1c"):
        made.link_up(peer, NOW)
    return made


def offer(overlay: Overlay) -> Wire:
    return Wire(OVERLAY_TOPIC, OfferedVersion.of_overlay(overlay).encode())


def document(overlay: Overlay, packed: bytes | None = None) -> Wire:
    return Wire(
        OVERLAY_TOPIC,
        OfferedVersion.of_overlay(overlay).encode(FLAG_DOCUMENT) + (packed or zlib.compress(canonical(overlay))),
    )


def asks(effects: list[Effect]) -> list[str]:
    return [e.peer for e in effects if isinstance(e, Send) and e.wire.payload[2] == FLAG_ASK]


def adopted(effects: list[Effect]) -> list[Adopt]:
    return [e for e in effects if isinstance(e, Adopt)]


def answered(made: OverlayKeeper, wire: Wire, of: Overlay = NEWER, now: float = NOW) -> list[Effect]:
    """r1a offers, is asked, and sends `wire`."""
    assert asks(made.take_overlay_wire(Received("r1a", offer(of)), now)) == ["r1a"]
    return made.take_overlay_wire(Received("r1a", wire), now)


def resigned(owner: Identity, overlay: Overlay = OVERLAY, **changes: object) -> Overlay:
    policy = replace(overlay.policy, **changes)  # type: ignore[arg-type]
    return Overlay.sign(owner, policy, overlay.views.values(), overlay.members.values())


def owner() -> Identity:
    assert WORLD.owner is not None
    return WORLD.owner


def test_a_newer_version_is_asked_for_adopted_and_offered_to_all():
    made = keeper()
    effects = answered(made, document(NEWER))
    (adopt,) = adopted(effects)
    assert (adopt.outcome, json.loads(adopt.document)) == (Adoption.LIVE, NEWER.to_document())
    assert made.overlay.policy.version == OVERLAY.policy.version + 1
    assert {e.peer for e in effects if isinstance(e, Send)} == {"r1a", "r1b", "r1c"}


def test_a_version_with_a_scope_whose_regions_are_not_joined_is_not_adopted(monkeypatch: pytest.MonkeyPatch):
    """Signed by an owner whose program did not look: neither from a file nor from a neighbour, who is no liar for it
    more than for any other document that cannot be used."""
    world = make_world({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], {"site": 1})
    with monkeypatch.context() as older:
        older.setattr("bridge.document.overlay.unjoined", lambda overlay, tree: "")
        apart = world.with_policy(scopes=(Scope("plant/#", regions=(1, 3)), Scope("open/#")))
    made = keeper(overlay=world.overlay)
    with pytest.raises(OverlayError, match="not joined"):
        made.offered(canonical(apart), NOW)
    effects = answered(made, document(apart), apart)
    assert not adopted(effects)
    assert made.overlay is world.overlay
    assert adopted(made.offered(canonical(world.with_policy(scopes=(Scope("plant/#", regions=(1, 2)),))), NOW))


def test_who_is_asked_sends_the_document_and_no_more_than_the_bound():
    made = keeper(overlay=NEWER)
    question = Received("r1a", Wire(OVERLAY_TOPIC, OfferedVersion.of_overlay(NEWER).encode(FLAG_ASK)))
    answers = [made.take_overlay_wire(question, NOW) for _ in range(DOCUMENT_BURST + 5)]
    given = [e for effects in answers for e in effects if isinstance(e, Send)]
    assert [send.wire for send in given] == [document(NEWER)] * DOCUMENT_BURST
    assert sum(counted(effects, "overlays_withheld") for effects in answers) == 5


@pytest.mark.invariant(45)
@pytest.mark.parametrize("of", [OVERLAY, resigned(owner(), version=0)])
def test_older_and_present_versions_are_not_asked_for(of: Overlay):
    assert keeper().take_overlay_wire(Received("r1a", offer(of)), NOW) == []


def bomb() -> bytes:
    return zlib.compress(b'{"policy":"' + b" " * OVERLAY_BYTES_MAX, 9)


def spoiled(part: str) -> bytes:
    """One byte of a signed part is another."""
    changed = NEWER.to_document()
    if part == "policy":
        changed["policy"] = changed["policy"] | {"signature": OVERLAY.to_document()["policy"]["signature"]}
    else:
        changed["members"] = OVERLAY.to_document()["members"][1:]
    return zlib.compress(json.dumps(changed).encode())


@pytest.mark.invariant(45)
@pytest.mark.parametrize(
    "packed",
    [
        b"", b"garbage", zlib.compress(canonical(NEWER))[:-3], zlib.compress(canonical(NEWER)) + b"x", bomb(),
        zlib.compress(b"[" * 100_000), zlib.compress(b"[]"), zlib.compress(b"{}"), zlib.compress(b"\xff"),
        spoiled("policy"), spoiled("members"), zlib.compress(canonical(OVERLAY)),
        zlib.compress(canonical(resigned(Identity.generate(bytes(range(1, 33))), version=2))),
    ],
    ids=[
        "empty", "garbage", "truncated", "tail", "bomb", "nested", "list", "nothing", "no text", "unsigned", "members",
        "downgrade", "other owner",
    ],
)  # fmt: skip
def test_what_does_not_hold_is_refused_and_its_sender_not_asked_again(packed: bytes):
    made = keeper()
    effects = answered(made, document(NEWER, packed or b" "))
    assert (counted(effects, "refused"), suspected(effects), adopted(effects)) == (1, {"r1a"}, [])
    assert made.overlay is OVERLAY
    assert asks(made.take_overlay_wire(Received("r1a", offer(NEWER)), NOW + 2 * ASK_S)) == []
    assert asks(made.take_overlay_wire(Received("r1b", offer(NEWER)), NOW + 2 * ASK_S)) == ["r1b"]


@pytest.mark.attack(39)
@pytest.mark.parametrize("unit", [b"{},", b"[],", b'{"":0},', b"0,"])
def test_a_document_of_ever_so_many_values_is_not_parsed(unit: bytes, monkeypatch: pytest.MonkeyPatch):
    """Attack: 16 MiB of empty values, a few kB on the wire, take 400 MiB before the owner's signature is looked at."""
    monkeypatch.setattr("bridge.membership.adopting.json.loads", lambda _: pytest.fail("parsed"))
    packed = zlib.compress(b"[" + unit * OVERLAY_VALUES_MAX + b"0]")
    effects = answered(keeper(), document(NEWER, packed))
    assert (counted(effects, "refused"), suspected(effects)) == (1, {"r1a"})


def test_a_document_that_nobody_asked_for_is_dropped_unread():
    made = keeper()
    made.take_overlay_wire(Received("r1a", offer(NEWER)), NOW)
    effects = made.take_overlay_wire(Received("r1b", document(NEWER)), NOW)
    assert counted(effects, "refused") == 1
    assert made.overlay is OVERLAY


@pytest.mark.invariant(45)
def test_two_contents_of_one_version_are_told_and_ours_stays():
    """The owner equivocates: whoever relays it is not named, and it is told once."""
    made = keeper()
    other = resigned(owner(), edges=(), grants=OVERLAY.policy.grants[:1])
    effects = answered(made, document(other), other)
    assert counted(effects, "overlay_equivocations") == 1
    (proof,) = [effect for effect in effects if isinstance(effect, Prove)]
    assert (proof.evidence.check_proof().author, proof.proven.lie) == ("the owner", Lie.OVERLAYS)
    assert made.overlay is OVERLAY
    assert asks(made.take_overlay_wire(Received("r1b", offer(other)), NOW + 2 * ASK_S)) == []
    with pytest.raises(OverlayError, match="two overlays of version 1"):
        made.offered(canonical(other), NOW)


def test_liars_that_offer_and_withhold_are_passed_over():
    """f of the neighbours offer what nobody has, again and again: the honest one is asked within ASK_S for each."""
    made = keeper()
    lie = Wire(OVERLAY_TOPIC, OfferedVersion(1 << 63, bytes(32)).encode())
    asked = []
    now = NOW
    made.take_overlay_wire(Received("r1a", lie), now)
    made.take_overlay_wire(Received("r1b", lie), now)
    made.take_overlay_wire(Received("r1c", offer(NEWER)), now)
    for _ in range(2):
        deadline = made.next_deadline
        assert deadline is not None
        now = deadline
        asked += asks(made.tick(now))
        made.take_overlay_wire(Received("r1a", lie), now)
    assert asked[-1] == "r1c"
    assert now <= NOW + 2 * ASK_S


def test_offers_without_end_cost_a_question_in_ask_s():
    made = keeper()
    lies = [Wire(OVERLAY_TOPIC, OfferedVersion(n, bytes(32)).encode()) for n in range(100, 1100)]
    effects = [e for lie in lies for e in made.take_overlay_wire(Received("r1a", lie), NOW)]
    assert asks(effects) == ["r1a"]
    assert len(effects) == 1


def test_who_stays_behind_is_told_again():
    made = keeper("r1a")
    answered(made, document(NEWER))
    made.take_overlay_wire(Received("r1a", offer(OVERLAY)), NOW)
    assert made.next_deadline == NOW + OFFER_AGAIN_S
    assert len(made.tick(NOW + OFFER_AGAIN_S)) == 1


def test_another_calendar_waits_for_a_restart_but_what_it_takes_away_is_gone():
    """Members, rights and publishers that the newer version shuts out are shut out before anybody restarts."""
    made = keeper()
    grants = tuple(grant for grant in OVERLAY.policy.grants if grant.member == "site")
    calendar = replace(OVERLAY.policy.calendar, zero_ms=OVERLAY.policy.calendar.zero_ms + 1)
    policy = replace(OVERLAY.policy, version=5, grants=grants, calendar=calendar)
    later = Overlay.sign(owner(), policy, OVERLAY.latest.values(), OVERLAY.members.values())
    effects = made.offered(canonical(later), NOW)
    (adopt,) = adopted(effects)
    assert adopt.outcome is Adoption.RESTART
    assert made.overlay.policy == OVERLAY.policy
    plant = OVERLAY.policy.scopes[0]
    assert OVERLAY.may_read("control", plant, 0)
    assert not made.overlay.may_read("control", plant, 0)
    assert made.overlay.may_read("site", plant, 0)
    assert [e.wire for e in effects if isinstance(e, Send)] == [offer(later)] * 3
    assert made.offered(canonical(later), NOW) == []
    rest = [member for name, member in OVERLAY.members.items() if name != "control"]
    gone = Overlay.sign(owner(), replace(policy, version=6), OVERLAY.latest.values(), rest)
    made.offered(canonical(gone), NOW)
    assert "control" not in made.overlay.members
    assert len(made.overlay.by_party) == len(rest)


def test_who_is_given_another_region_stops_until_it_begins_again():
    larger = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 1})
    moved = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 2}).overlay
    later = Overlay.sign(owner(), replace(moved.policy, version=2), moved.latest.values(), moved.members.values())
    node = gateway(larger, "control")
    effects = node.offered(canonical(later), NOW)
    assert [adopt.outcome for adopt in adopted(effects)] == [Adoption.RESTART]
    assert node.removed
    assert node.peers == frozenset()
    other = replica(larger, "r1a", ["site", "control"])
    assert [adopt.outcome for adopt in adopted(other.offered(canonical(later), NOW))] == [Adoption.LIVE]
    assert "control" not in other.peers


def test_regions_and_edges_change_while_we_run_under_a_new_number_only():
    made = keeper()
    larger = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 1}).overlay
    rival = Overlay.sign(owner(), replace(larger.policy, version=5), larger.latest.values(), larger.members.values())
    with pytest.raises(OverlayError, match="old number of the tree"):
        made.offered(canonical(rival), NOW)
    assert not adopted(answered(made, document(rival), rival))
    tree = OVERLAY.policy.tree.followed_by((), int(NOW * 1000), 0, 60)
    policy = replace(larger.policy, version=6, tree=tree)
    grown = Overlay.sign(owner(), policy, larger.latest.values(), larger.members.values())
    assert [adopt.outcome for adopt in adopted(made.offered(canonical(grown), NOW))] == [Adoption.LIVE]
    assert made.overlay.neighbours(1) == (2,)
    assert len(made.overlay.trees.open) == 2
    assert len(adopted(made.tick(NOW + 60))) == 1
    assert len(made.overlay.trees.open) == 1


def test_the_operator_is_told_why_a_file_is_not_taken():
    made = keeper(overlay=NEWER)
    for data, why in ((canonical(OVERLAY), "version 2 is known"), (b"{", "not JSON"), (b"[]", "not a JSON object")):
        with pytest.raises(OverlayError, match=why):
            made.offered(data, NOW)


def without(name: str) -> Overlay:
    """A version that does not list the member any more."""
    rest = [member for listed, member in OVERLAY.members.items() if listed != name]
    grants = tuple(grant for grant in OVERLAY.policy.grants if grant.member != name)
    policy = replace(OVERLAY.policy, version=9, grants=grants)
    return Overlay.sign(owner(), policy, OVERLAY.views.values(), rest)


def test_a_node_that_is_removed_stops_and_passes_it_on():
    node = gateway(WORLD, "control")
    effects = node.offered(canonical(without("control")), NOW)
    assert [adopt.outcome for adopt in adopted(effects)] == [Adoption.REMOVED]
    assert {e.peer for e in effects if isinstance(e, Send)} == {"r1a", "r1b", "r1c"}
    assert node.handle(Subscribed("#"), NOW) == []
    assert node.handle(Committed(((1, 0, Publication("plant/t", b"x", 1)),)), NOW) == []
    assert node.handle(Tick(), NOW) == []
    question = Received("r1a", Wire(OVERLAY_TOPIC, OfferedVersion.of_overlay(without("control")).encode(FLAG_ASK)))
    assert counted(node.handle(question, NOW), "overlays_sent") == 1


def test_a_member_that_left_is_a_stranger_at_once():
    node = replica(WORLD, "r1a", ["site", "control"])
    node.offered(canonical(without("control")), NOW)
    assert counted(node.handle(LinkUp("control"), NOW), "refused") == 1
    assert not sent(node.handle(LinkUp("site"), NOW), "control")


@pytest.mark.invariant(55)
def test_a_revoked_member_cannot_hold_the_revocation_up():
    """It keeps the old version and offers it: nobody takes a step back, and it gets the new one."""
    node = replica(WORLD, "r1a", ["site", "control"])
    node.offered(canonical(NEWER), NOW)
    assert node.handle(Received("control", offer(OVERLAY)), NOW) == []
    assert counted(node.handle(Received("control", document(OVERLAY)), NOW), "refused") == 1
    assert node.overlay.policy.version == NEWER.policy.version


# ---------------------------------------------------------------------------------------------- simulation


class Withholder:
    """A replica that offers and asks like all, and never hands a document over; half of them invent versions too."""

    def __init__(self, node: object, invents: bool) -> None:
        self.node, self.invents = node, invents

    @property
    def next_deadline(self) -> float | None:
        return self.node.next_deadline  # type: ignore[attr-defined, no-any-return]

    def handle(self, event: object, now: float) -> list[Effect]:
        effects = []
        for effect in self.node.handle(event, now):  # type: ignore[attr-defined]
            if isinstance(effect, Send) and effect.wire.topic == OVERLAY_TOPIC:
                if effect.wire.payload[2] == FLAG_DOCUMENT:
                    continue
                if self.invents and effect.wire.payload[2] == 0:
                    invented = Wire(OVERLAY_TOPIC, OfferedVersion(int(now), bytes(32)).encode())
                    effects.append(replace(effect, wire=invented))
                    continue
            effects.append(effect)
        return effects


@pytest.mark.long
@pytest.mark.invariant(46)
@pytest.mark.parametrize("seed", range(6))
def test_under_load_and_with_liars_every_honest_node_adopts_within_bounded_time(seed: int):
    rng = random.Random(seed)
    world: World = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "far": 2}, [Scope("plant/#")], seed=seed)
    kernel: Kernel = world.kernel(rng)
    liars = {f"r{region}{rng.choice('abc')}" for region in (1, 2)}
    for liar in liars:
        kernel.nodes[liar] = Withholder(kernel.nodes[liar], rng.random() < 0.5)  # type: ignore[assignment]
    traffic = Traffic("site")
    kernel.plan_event(NOW + 2, "far", Subscribed("plant/#"))
    for n in range(60):
        traffic.publish(kernel, NOW + 3 + n / 4, "plant/t", str(n).encode())
    kernel.run(NOW + 5)
    newer = world.with_policy(scopes=(*world.overlay.policy.scopes, Scope("more/#")))
    started = rng.choice(["site", "far", *sorted(set(world.overlay.members) - liars)])
    kernel.call(started, lambda node, now: node.offered(canonical(newer), now))  # type: ignore[attr-defined]
    # each hop may lose ASK_S to every liar among its neighbours (one a region); the way has three hops
    trace = kernel.run(NOW + 5 + 3 * 2 * ASK_S + 1)
    versions = {n: kernel.nodes[n].overlay.policy.version for n in set(world.overlay.members) - liars}  # type: ignore[attr-defined]
    assert set(versions.values()) == {2}, (seed, versions)
    trace = kernel.run(NOW + 60)
    assert [d.publication.payload for d in trace.delivered["far"]] == [str(n).encode() for n in range(60)]
    assert not trace.named_members()


def test_a_document_that_takes_longer_than_the_next_question_is_adopted():
    """On slow links every answer comes when somebody else was asked already."""
    made = keeper()
    asked = [
        name for peer in ("r1a", "r1b") for name in asks(made.take_overlay_wire(Received(peer, offer(NEWER)), NOW))
    ]
    assert (asked, asks(made.tick(NOW + ASK_S))) == (["r1a"], ["r1b"])
    assert len(adopted(made.take_overlay_wire(Received("r1a", document(NEWER)), NOW + ASK_S + 1))) == 1
    late = made.take_overlay_wire(Received("r1b", document(NEWER)), NOW + ASK_S + 2)
    assert not suspected(late), "it was asked"
    assert suspected(made.take_overlay_wire(Received("r1b", document(NEWER)), NOW + ASK_S + 3)) == {"r1b"}, "once"


def test_to_reconnect_refills_no_allowance_and_restores_no_trust():
    made = keeper(overlay=NEWER)
    question = Received("r1a", Wire(OVERLAY_TOPIC, OfferedVersion.of_overlay(NEWER).encode(FLAG_ASK)))
    given: list[Effect] = []
    for _ in range(DOCUMENT_BURST + 5):
        given += made.take_overlay_wire(question, NOW)
        made.link_down("r1a", NOW)
        made.link_up("r1a", NOW)
    assert counted(given, "overlays_sent") == DOCUMENT_BURST
    liar = keeper("r1a")
    answered(liar, document(NEWER, b"garbage"))
    liar.link_down("r1a", NOW)
    liar.link_up("r1a", NOW)
    assert not asks(liar.take_overlay_wire(Received("r1a", offer(NEWER)), NOW + ASK_S))
    assert asks(liar.tick(NOW + DISTRUST_S)) == ["r1a"]


def test_what_was_asked_over_a_link_that_fell_is_not_answered_over_the_next():
    made = keeper("r1a")
    assert asks(made.take_overlay_wire(Received("r1a", offer(NEWER)), NOW)) == ["r1a"]
    made.link_down("r1a", NOW)
    made.link_up("r1a", NOW)
    assert not adopted(made.take_overlay_wire(Received("r1a", document(NEWER)), NOW))


def test_who_is_listed_again_in_another_region_has_to_start_anew():
    """Its machines know where they are from the start; the version between does not list them."""
    world = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1, "control": 1})
    assert world.owner is not None
    present = world.overlay
    node = gateway(world, "control")

    def with_members(version: int, moved_to: int | None) -> bytes:
        members = [member for name, member in present.members.items() if name != "control"]
        if moved_to is not None:
            moved = replace(present.certificate("control"), region=moved_to)
            moved = replace(moved, signature=world.owner.sign(CERTIFICATE_DOMAIN, moved.signed_bytes()))  # type: ignore[union-attr]
            members.append(replace(present.members["control"], certificate=moved))
        policy = replace(present.policy, version=present.policy.version + version)
        return canonical(Overlay.sign(world.owner, policy, present.views.values(), members))  # type: ignore[arg-type]

    outcomes = [adopted(node.offered(with_members(*what), NOW))[0].outcome for what in ((1, None), (2, 2), (3, 1))]
    assert outcomes == [Adoption.REMOVED, Adoption.RESTART, Adoption.LIVE]


def test_an_older_version_is_not_adopted_though_it_was_asked_for_and_is_signed():
    """Attack: to offer a newer version and, asked, to send one in which a revoked member still had its rights."""
    made = keeper(overlay=NEWER)
    newest = resigned(owner(), version=NEWER.policy.version + 1)
    assert not adopted(answered(made, document(OVERLAY), newest))
    assert made.overlay is NEWER


DAILY: dict[str, object] = {"calendar": Calendar(length_s=86_400)}
ENDLESS: dict[str, object] = {"calendar": Calendar()}


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (DAILY, {"calendar": Calendar(zero_ms=1000, length_s=86_400)}, Adoption.RESTART),
        (DAILY, {"calendar": Calendar(length_s=86_401)}, Adoption.RESTART),
        (ENDLESS, {"issuer": Issuer.OWNER, "key_servers": ()}, Adoption.RESTART),
        (DAILY, {"calendar": Calendar(length_s=86_400, grace_s=60)}, Adoption.LIVE),
    ],
)
def test_who_issues_keys_and_how_epochs_are_numbered_changes_at_a_restart(
    before: dict[str, object], after: dict[str, object], outcome: Adoption
):
    world = make_world({1: 3}, [], {"site": 1}, calendar=Calendar(length_s=86_400))
    assert world.owner is not None
    present = resigned(world.owner, world.overlay, **before)
    changed = resigned(world.owner, present, version=present.policy.version + 1, **after)
    (adopt,) = adopted(keeper(overlay=present).offered(canonical(changed), NOW))
    assert adopt.outcome is outcome


# ------------------------------------------------------------------------------ files, links, deadlines at their edge


def test_a_file_counts_until_the_moment_its_certificates_end():
    last = NOT_AFTER_MS / 1000
    assert adopted(keeper().offered(canonical(NEWER), last - 1))
    with pytest.raises(OverlayError):
        keeper().offered(canonical(NEWER), last + 1)
    for now, taken in ((last - 1, 1), (last + 1, 0)):
        assert len(adopted(answered(keeper(), document(NEWER), now=now))) == taken


def test_an_adopted_version_is_counted_once_and_the_owner_may_sign_two_of_a_later_one_too():
    assert OVERLAY_TOPIC == "$veil/overlay"
    made = keeper()
    (_, count, *_) = answered(made, document(NEWER))
    assert count == Count("overlays_adopted", 1, "live")
    other = resigned(owner(), version=NEWER.policy.version)
    assert asks(made.take_overlay_wire(Received("r1b", offer(other)), NOW)) == ["r1b"]
    told_why = made.take_overlay_wire(Received("r1b", document(other)), NOW)
    assert [(e.member, e.named) for e in told_why if isinstance(e, Blame)] == [("r1b", False)]


def test_an_offer_with_a_tail_or_two_meanings_is_refused_and_not_remembered():
    made = keeper()
    for payload in (
        OfferedVersion.of_overlay(NEWER).encode() + b"x",
        OfferedVersion.of_overlay(NEWER).encode(FLAG_ASK) + b"x",
        OfferedVersion.of_overlay(NEWER).encode(FLAG_ASK | FLAG_DOCUMENT),
    ):
        effects = made.take_overlay_wire(Received("r1a", Wire(OVERLAY_TOPIC, payload)), NOW)
        assert (counted(effects, "refused"), suspected(effects), len(effects)) == (1, {"r1a"}, 2)
    assert (made.versions, made.next_deadline) == ({}, None)


def test_what_a_neighbour_said_counts_while_its_link_is_up():
    made = keeper(overlay=NEWER)
    made.take_overlay_wire(Received("r1a", offer(OVERLAY)), NOW)
    made.take_overlay_wire(Received("r1b", offer(NEWER)), NOW)
    made.take_overlay_wire(Received("r1c", offer(resigned(owner(), version=9))), NOW)
    assert made.versions == {"r1a": 1, "r1b": 2, "r1c": 9}
    assert [made.is_ahead(peer) for peer in ("r1a", "r1b", "r1c", "stranger")] == [False, False, True, False]
    made.link_down("r1c", NOW)
    made.link_down("stranger", NOW)
    assert (made.versions, made.is_ahead("r1c")) == ({"r1a": 1, "r1b": 2}, False)
    made.link_up("r1a", NOW)
    assert (made.versions, made.is_ahead("r1a")) == ({"r1b": 2}, False), "a new link has to say it again"


def test_the_next_is_asked_when_the_link_of_who_was_asked_falls_and_not_when_another_does():
    made = keeper()
    for peer in ("r1a", "r1b"):
        made.take_overlay_wire(Received(peer, offer(NEWER)), NOW)
    assert asks(made.link_down("r1c", NOW + 1)) == []
    assert asks(made.link_down("r1a", NOW + 1)) == ["r1b"]


def test_a_question_that_nobody_answers_is_over_at_its_deadline():
    made = keeper()
    made.take_overlay_wire(Received("r1a", offer(NEWER)), NOW)
    assert made.next_deadline == NOW + ASK_S
    made.take_overlay_wire(Received("r1a", offer(OVERLAY)), NOW)
    assert made.tick(NOW + ASK_S) == []
    assert made.next_deadline is None


def test_an_answer_of_one_neighbour_does_not_end_the_wait_for_another():
    made = keeper()
    for peer in ("r1a", "r1b"):
        made.take_overlay_wire(Received(peer, offer(NEWER)), NOW)
    assert asks(made.tick(NOW + ASK_S)) == ["r1b"]
    made.take_overlay_wire(Received("r1a", document(NEWER, b"garbage")), NOW + ASK_S)
    assert made.next_deadline == NOW + 2 * ASK_S
    assert asks(made.tick(NOW + 2 * ASK_S - 1)) == []
    made.take_overlay_wire(Received("r1b", document(NEWER, b"garbage")), NOW + 2 * ASK_S - 1)
    assert made.next_deadline == NOW + ASK_S + DISTRUST_S, "whoever is trusted again first"


def test_who_gave_what_holds_is_asked_for_the_next_one_too():
    made = keeper("r1a")
    answered(made, document(NEWER))
    newest = resigned(owner(), version=NEWER.policy.version + 1)
    assert asks(made.take_overlay_wire(Received("r1a", offer(newest)), NOW + ASK_S)) == ["r1a"]


def test_who_is_behind_is_told_at_the_moment_and_nobody_else():
    made = keeper("r1a", "r1b", "r1c", overlay=NEWER)
    made.take_overlay_wire(Received("r1a", offer(OVERLAY)), NOW)
    made.take_overlay_wire(Received("r1b", offer(NEWER)), NOW)
    assert made.next_deadline == NOW + OFFER_AGAIN_S
    assert made.tick(NOW + OFFER_AGAIN_S - 0.5) == []
    assert made.tick(NOW + OFFER_AGAIN_S) == [Send("r1a", offer(NEWER))]
    assert made.tick(NOW + OFFER_AGAIN_S) == []
    assert made.next_deadline == NOW + 2 * OFFER_AGAIN_S
    made.offered(canonical(resigned(owner(), version=5)), NOW + 40)
    assert made.next_deadline == NOW + 40 + OFFER_AGAIN_S, "all were told just now"


def test_members_that_left_get_no_offers_and_those_that_stay_keep_their_allowance():
    made = keeper("r1a", "r1b", "control", name="r1c")
    made.link_up("r1a", NOW)
    question = Wire(OVERLAY_TOPIC, OfferedVersion.of_overlay(NEWER).encode(FLAG_ASK))
    for peer in ("r1a", "control"):
        for _ in range(DOCUMENT_BURST):
            made.take_overlay_wire(Received(peer, question), NOW)
    made.link_down("r1a", NOW)
    effects = made.offered(canonical(without("control")), NOW)
    assert {e.peer for e in effects if isinstance(e, Send)} == {"r1b"}
    made.link_up("r1a", NOW)
    assert counted(made.take_overlay_wire(Received("r1a", question), NOW), "overlays_withheld") == 1
    back = resigned(owner(), version=10)
    made.offered(canonical(back), NOW)
    made.link_up("control", NOW)
    assert counted(made.take_overlay_wire(Received("control", question), NOW), "overlays_sent") == 1, "it begins anew"


def test_who_is_removed_keeps_its_links_to_pass_that_on():
    made = keeper("r1a", "control", name="site")
    gone = without("site")
    assert {e.peer for e in made.offered(canonical(gone), NOW) if isinstance(e, Send)} == {"r1a", "control"}
    assert made.removed


# -------------------------------------------------------------------------------------------------- views

LIVE = make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1})
GROWN = changed(LIVE, LIVE.overlay, 1, ("r1a", "r1b", "r1c", "r1d"), NOW)


def endorsement(name: str, of: Overlay = GROWN) -> Wire:
    return Wire("$veil/views", endorsed_by(LIVE, of, 1, name)[0].encode())


def observer(overlay: Overlay = GROWN) -> OverlayKeeper:
    return keeper("r1a", "r1b", name="r2a", overlay=overlay)


def test_news_of_a_view_are_passed_on_and_the_second_puts_it_in_force():
    made = observer()
    assert made.endorsed(Received("r1a", endorsement("r1a")), NOW) == [Send("r1b", endorsement("r1a"))]
    assert made.endorsed(Received("r1b", endorsement("r1a")), NOW) == [], "known"
    question = Received("r1a", Wire(OVERLAY_TOPIC, OfferedVersion.of_overlay(GROWN).encode(FLAG_ASK)))
    assert Send("r1a", document(made.overlay)) in made.take_overlay_wire(question, NOW), "with what was endorsed"
    (passed, adopt, count) = made.endorsed(Received("r1b", endorsement("r1b")), NOW)
    assert passed == Send("r1a", endorsement("r1b"))
    assert adopt == Adopt(made.overlay, canonical(made.overlay), Adoption.LIVE)
    assert count == Count("views_changed")
    assert [view.number for view in made.overlay.open_views(1)] == [2, 1]
    assert made.next_deadline == NOW + 60
    assert made.tick(NOW + 59) == []
    assert made.tick(NOW + 60) == [Adopt(made.overlay, canonical(made.overlay), Adoption.LIVE), Count("views_changed")]
    assert made.tick(NOW + 60) == []


def test_an_endorsement_of_another_view_is_charged_and_one_of_another_version_is_not():
    made = observer()
    false = replace(GROWN.latest[1], name="elsewhere")
    forged = Wire("$veil/views", Endorsement.sign_view(false, "r1a", LIVE.identities["r1a"]).encode())
    (count, blame) = made.endorsed(Received("r1b", forged), NOW)
    assert count == Count("refused", 1, "BadSignature")
    assert isinstance(blame, Blame)
    assert (blame.member, blame.named) == ("r1b", False)
    unknown = [Count("endorsements_unknown")]
    for view in (replace(false, number=3), replace(false, region=7)):
        wire = Wire("$veil/views", Endorsement.sign_view(view, "r1a", LIVE.identities["r1a"]).encode())
        assert made.endorsed(Received("r1b", wire), NOW) == unknown
    made.take_overlay_wire(Received("r1b", Wire(OVERLAY_TOPIC, OfferedVersion(99, bytes(32)).encode())), NOW)
    assert made.endorsed(Received("r1b", forged), NOW) == unknown, "it has views that we do not know"
    assert made.overlay is GROWN


def test_a_replica_endorses_by_the_clock_and_tells_all_once():
    made = OverlayKeeper(GROWN, "r1a", LIVE.identities["r1a"])
    assert made.next_deadline == ATTACH_S, "what was due before it was stopped"
    made.rotate_identity(LIVE.identities["r1a"], NOW)
    assert made.next_deadline == NOW + ATTACH_S
    made.link_up("r1b", NOW)
    made.link_up("r1c", NOW)
    assert made.tick(NOW) == []
    given = [Send(peer, endorsement("r1a")) for peer in ("r1b", "r1c")]
    assert made.tick(NOW + ATTACH_S) == given
    assert made.tick(NOW + ATTACH_S) == []
    agreed = made.take_overlay_wire(Received("r1b", offer(GROWN)), NOW)
    assert agreed == given[:1], "it may have missed it"
    assert made.take_overlay_wire(Received("r1c", offer(LIVE.overlay)), NOW) == []
    second = OverlayKeeper(made.overlay, "r1b", LIVE.identities["r1b"])
    second.link_up("r1a", NOW)
    assert [type(effect) for effect in second.tick(NOW + ATTACH_S)] == [Send, Adopt, Count]


def test_a_replica_endorses_a_version_that_it_adopts_while_it_runs():
    made = OverlayKeeper(LIVE.overlay, "r1a", LIVE.identities["r1a"])
    made.offered(canonical(GROWN), NOW)
    assert made.next_deadline == NOW + ATTACH_S


def test_a_view_that_does_not_follow_from_ours_is_not_taken_whoever_signed_it():
    """Attack: with the owner's key, to exchange a region's replicas in two steps that no replica agreed to."""
    twice = changed(
        LIVE, changed(LIVE, LIVE.overlay, 1, ("r1d", "r1e", "r1f"), NOW - 99), 1, ("r1d", "r1e", "r1g"), NOW
    )
    made = keeper("r1a", name="r2a", overlay=LIVE.overlay)
    with pytest.raises(OverlayError, match="too few of its replicas agreed"):
        made.offered(canonical(twice), NOW)
    assert asks(made.take_overlay_wire(Received("r1a", offer(twice)), NOW)) == ["r1a"]
    refused = made.take_overlay_wire(Received("r1a", document(twice)), NOW + 1)
    assert refused == [Count("views_refused", 1, twice.latest[1].name)]
    assert made.overlay is LIVE.overlay
    assert made.next_deadline == NOW + 1 + UNENDORSED_S, "endorsements may still come"
    assert asks(made.tick(NOW + UNENDORSED_S)) == []
    assert asks(made.tick(NOW + 1 + UNENDORSED_S)) == ["r1a"]


def test_what_waits_for_a_restart_is_passed_on_though_views_change_meanwhile():
    made = observer()
    later = changed(LIVE, GROWN, 2, ("r2a", "r2b", "r2c"), NOW, calendar=Calendar(zero_ms=7))
    (adopt,) = adopted(made.offered(canonical(later), NOW))
    assert adopt.outcome is Adoption.RESTART
    made.endorsed(Received("r1a", endorsement("r1a")), NOW)
    question = Received("r1a", Wire(OVERLAY_TOPIC, OfferedVersion.of_overlay(later).encode(FLAG_ASK)))
    (send, _) = made.take_overlay_wire(question, NOW)
    assert send == Send("r1a", document(later))


def test_a_replica_is_of_use_until_the_view_before_closes():
    smaller = changed(LIVE, LIVE.overlay, 1, ("r1a", "r1b", "r1d"), NOW)
    made = keeper("r1a", "r1b", name="r1c", overlay=smaller)
    for name in ("r1a", "r1b"):
        made.endorsed(Received(name, endorsement(name, smaller)), NOW)
    assert not made.removed
    (adopt, _) = made.tick(NOW + 60)
    assert isinstance(adopt, Adopt)
    assert (adopt.outcome, made.removed) == (Adoption.REMOVED, True)


def test_strangers_are_not_heard_and_a_link_that_comes_up_twice_refills_nothing():
    made = keeper("r1a", overlay=NEWER)
    question = Wire(OVERLAY_TOPIC, OfferedVersion.of_overlay(NEWER).encode(FLAG_ASK))
    assert made.take_overlay_wire(Received("stranger", question), NOW) == []
    for _ in range(DOCUMENT_BURST):
        made.take_overlay_wire(Received("r1a", question), NOW)
    made.link_up("r1a", NOW)
    assert made.take_overlay_wire(Received("r1a", question), NOW) == [Count("overlays_withheld", 1, "r1a")]


def test_one_version_has_one_spelling():
    spelled = canonical(NEWER)
    assert json.dumps(json.loads(spelled), sort_keys=True, separators=(",", ":")).encode() == spelled
