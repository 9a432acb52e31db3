"""A gateway's own subscriptions: whole scopes, accepted by a quorum only, renewed, and repeated to who comes back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from bridge.contract.machine import Acked, Count, Effect, Keep, NotTaken, Send, Watch
from bridge.contract.refusing import Reason
from bridge.document import Scope, ShownAttribute, batch_topic, retained_filter
from bridge.predicates import Predicate, parse_where, widen
from bridge.reader.interest import (
    GATHER_S,
    NARROW_S,
    REPEAT_S,
    WITHDRAWALS_BURST,
    WITHDRAWALS_EVERY_S,
    ScopeInterest,
)
from bridge.reader.kept import KeptReader
from bridge.replica.forwarder import NEWCOMER_BURST, NEWCOMER_EVERY_S
from bridge.wire.statements import RENEW_AFTER_S, SUBSCRIBE_TOPIC, RoutingTable, Statement
from keys.epochs import Calendar
from keys.identity import Identity
from tests.bridge.helpers import counted, sent
from tests.sim.world import NOW, World, make_world
from tests.support.regions import fresh, one_region

pytestmark = pytest.mark.invariant(38)

SCOPES = [Scope("plant/#"), Scope("open/#")]
REPLICAS = ("r1a", "r1b", "r1c", "r1d", "r1e")


world = fresh(one_region, "control", "blind", scopes=SCOPES, rights={"blind": (("#",), ("open/#",))}, replicas=5)


def interest_of(world: World, name: str = "control") -> ScopeInterest:
    interest = ScopeInterest(world.overlay, world.identities[name], name, world.secrets)
    for replica in REPLICAS:
        interest.link_up(replica)
    return interest


def statements(effects: list[Effect]) -> list[Statement]:
    assert all(s.wire.topic == SUBSCRIBE_TOPIC and s.ticket < 0 for s in sent(effects))
    return [Statement.decode(s.wire.payload) for s in sent(effects)]


def acks(effects: list[Effect]) -> dict[str, Acked]:
    return {e.peer: Acked(e.peer, e.ticket) for e in effects if isinstance(e, Send)}


def test_replicas_learn_whole_scopes_only(world: World):
    effects = interest_of(world).take_subscription("plant/line1/+/temp", NOW)
    assert {(s.member, s.filter, s.on) for s in statements(effects)} == {("control", "plant/#", True)}
    assert {s.peer for s in sent(effects)} == set(REPLICAS)
    assert {(w.filter, w.on) for w in effects if isinstance(w, Watch)} == {("plant/#", True)}
    assert RoutingTable(world.overlay).accept(statements(effects)[0], NOW)


def test_what_we_may_not_read_is_not_asked_for(world: World):
    assert {s.filter for s in statements(interest_of(world, "blind").take_subscription("#", NOW))} == {"open/#"}


def test_a_quorum_makes_it_accepted(world: World):
    interest = interest_of(world)
    answers = acks(interest.take_subscription("plant/#", NOW))
    for peer in ("r1a", "r1b"):
        assert not counted(interest.acked(answers[peer]), "subscriptions_accepted")
        interest.acked(answers[peer])
        assert not interest.is_accepted("plant/#"), "one replica's acknowledgement counts once"
    assert counted(interest.acked(answers["r1c"]), "subscriptions_accepted") == 1
    assert interest.is_accepted("plant/#")


def test_acknowledgements_of_an_earlier_statement_do_not_count(world: World):
    interest = interest_of(world)
    early = acks(interest.take_subscription("plant/#", NOW))
    interest.drop_subscription("plant/#", NOW + 1)
    late = acks(interest.take_subscription("plant/#", NOW + 2))
    for peer in REPLICAS:
        interest.acked(early[peer])
    assert not interest.is_accepted("plant/#")
    for peer in REPLICAS[:3]:
        interest.acked(late[peer])
    assert interest.is_accepted("plant/#")


def test_nobody_acknowledges_for_another(world: World):
    interest = interest_of(world)
    answers = acks(interest.take_subscription("plant/#", NOW))
    for answer in answers.values():
        interest.acked(Acked("r1a", answer.ticket))
    assert not interest.is_accepted("plant/#")


def test_replicas_that_never_acknowledge_cost_no_memory(world: World):
    interest = interest_of(world)
    for n in range(200):
        interest.take_subscription("plant/#", NOW + n)
        interest.drop_subscription("plant/#", NOW + n)
    assert len(interest._told) == len(interest._tickets) <= len(REPLICAS) * len(SCOPES)


def test_the_second_client_says_nothing_new_and_the_last_one_ends_it(world: World):
    interest = interest_of(world)
    first = statements(interest.take_subscription("plant/a", NOW))
    assert interest.take_subscription("plant/b", NOW) == []
    assert interest.drop_subscription("plant/a", NOW) == []
    last = interest.drop_subscription("plant/b", NOW)
    assert {s.on for s in statements(last)} == {False}
    assert statements(last)[0].version > first[0].version
    assert not interest.is_accepted("plant/#")
    assert interest.next_deadline is None


def test_leases_are_renewed_in_time_and_ticks_do_not_spin(world: World):
    interest = interest_of(world)
    first = statements(interest.take_subscription("plant/#", NOW))[0]
    assert interest.next_deadline == NOW + RENEW_AFTER_S
    assert interest.tick(NOW + RENEW_AFTER_S - 1) == []
    second = statements(interest.tick(NOW + RENEW_AFTER_S))[0]
    assert second.version > first.version
    assert second.expires_ms > first.expires_ms
    assert interest.next_deadline == NOW + 2 * RENEW_AFTER_S


def test_a_replica_that_comes_back_is_told_again(world: World):
    interest = interest_of(world)
    before = statements(interest.take_subscription("plant/#", NOW))[0]
    interest.link_down("r1a")
    again = interest.link_up("r1a")
    assert statements(again) == [before]
    assert interest.acked(Acked("r1a", sent(again)[0].ticket)) == []


def test_versions_rise_over_a_restart(world: World):
    before = statements(interest_of(world).take_subscription("plant/#", NOW))[0]
    after = statements(interest_of(world).take_subscription("plant/#", NOW + 1))[0]
    assert after.version > before.version


def rows_of(interest: ScopeInterest) -> list[tuple[bytes, bytes]]:
    assert interest.kept is not None
    kept = [effect for effect in interest.kept.changed_rows(NOW) if isinstance(effect, Keep)]
    return [(key, row) for effect in kept for key, row in effect.rows if row is not None]


@pytest.mark.attack(31)
def test_a_clock_that_was_set_back_at_a_restart_does_not_mute_us(world: World):
    """Attack: the operator's clock, or who sets it, goes back by minutes while we are away. Replicas know our former
    statement, by which nobody here wants anything; whatever is older they do not hear."""
    table = RoutingTable(world.overlay)
    scope = world.overlay.scope_named("plant/#")
    former = interest_of(world)
    former.kept = KeptReader()
    for effects in (former.take_subscription("plant/#", NOW), former.drop_subscription("plant/#", NOW + 1)):
        assert table.accept(statements(effects)[0], NOW + 1)
    later = interest_of(world)
    later.restore(rows_of(former))
    again = statements(later.take_subscription("plant/#", NOW - 600))[0]
    assert table.accept(again, NOW + 2)
    assert scope is not None
    assert table.wanting(scope, NOW + 2) == ["control"]


def test_a_version_that_a_clock_far_ahead_drew_is_given_up_once_a_replica_says_so(world: World):
    former = interest_of(world)
    former.kept = KeptReader()
    former.take_subscription("plant/#", NOW + 7_200)
    later = interest_of(world)
    later.restore(rows_of(former))
    effects = later.take_subscription("plant/#", NOW)
    assert statements(effects)[0].version > (NOW + 7_200) * 1000
    for peer in REPLICAS[:3]:
        later.take_refusal(NotTaken(peer, acks(effects)[peer].ticket, Reason.TIME), NOW)
    again = statements(later.tick(NOW + REPEAT_S))[0]
    assert again.version == int((NOW + REPEAT_S) * 1000)


@pytest.mark.attack(45)
def test_f_liars_that_say_that_our_version_is_to_come_mute_nobody(world: World):
    """Our clock was set back a minute: what we said before has a greater version than the present clock gives. Were it
    given up, nothing that we say would count until what we said before has ended."""
    interest, table = interest_of(world), RoutingTable(world.overlay)
    assert table.accept(statements(interest.take_subscription("plant/#", NOW))[0], NOW)
    later = NOW - 60
    effects = interest.drop_subscription("plant/#", later)
    for peer in ("r1d", "r1e", "r1d"):
        interest.take_refusal(NotTaken(peer, acks(effects)[peer].ticket, Reason.TIME), later)
    again = statements(interest.take_subscription("plant/#", later))
    assert table.accept(again[0], NOW)


@pytest.mark.attack(65)
@pytest.mark.parametrize("reason", [Reason.TIME, Reason.RIGHT, Reason.FORM])
def test_f_liars_that_refuse_a_statement_make_nobody_else_hear_another(world: World, reason: Reason):
    """Attack: two of five replicas refuse whatever we state. A new statement every 30 s would go round the whole
    overlay, bring us all that is retained each time, and count nowhere until it is acknowledged. Those two hear the
    same again."""
    interest = interest_of(world)
    effects = interest.take_subscription("plant/#", NOW)
    (first,) = {statement.version for statement in statements(effects)}
    told = acks(effects)
    for peer in ("r1a", "r1b", "r1c"):
        interest.acked(told[peer])
    heard, now = Counter[str](), NOW
    while now < NOW + 600:
        for send in sent(effects):
            if send.peer in ("r1d", "r1e"):
                interest.take_refusal(NotTaken(send.peer, send.ticket, reason), now)
        assert interest.is_accepted("plant/#")
        due = interest.next_deadline
        assert due is not None
        assert due > now
        now = due
        effects = interest.tick(now) if now < NOW + 600 else []
        heard.update(send.peer for send in sent(effects))
        assert {statement.version for statement in statements(effects)} <= {first}
    assert set(heard) == {"r1d", "r1e"}
    assert max(heard.values()) <= 20


def test_who_took_it_since_does_not_say_that_our_version_is_to_come(world: World):
    interest = interest_of(world)
    interest.take_subscription("plant/#", NOW + 60)
    for peer in (*REPLICAS[:2], *REPLICAS[:3]):  # each says so, takes the next one, and says so again
        effects = interest.drop_subscription("plant/#", NOW)
        interest.take_refusal(NotTaken(peer, acks(effects)[peer].ticket, Reason.TIME), NOW)
        taken = interest.take_subscription("plant/#", NOW)
        interest.acked(acks(taken)[peer])
    assert statements(interest.drop_subscription("plant/#", NOW))[0].version > (NOW + 60) * 1000


# ------------------------------------------------------------------------------------------------- epochs


CALENDAR = Calendar(int((NOW - 700) * 1000), length_s=100, ahead_s=20, grace_s=20, skew_s=5)


def epochs_world(first: int, last: int) -> World:
    world = make_world({1: 5}, [], {"control": 1}, SCOPES, calendar=CALENDAR)
    ranged = tuple(replace(grant, first_epoch=first, last_epoch=last) for grant in world.overlay.policy.grants)
    world.overlay = world.with_policy(grants=ranged)
    return world


def test_a_right_that_begins_with_an_epoch_is_used_once_all_clocks_are_in_it():
    interest = interest_of(epochs_world(8, 20))
    assert statements(interest.take_subscription("#", NOW)) == []
    assert interest.wanted() == frozenset()
    assert interest.next_deadline == NOW + 5, "epoch 7 began at NOW, for the slowest clock 5 s later"
    for now in (NOW + 5, NOW + 100, NOW + 104):
        assert statements(interest.tick(now)) == []
    fresh = interest_of(epochs_world(8, 20))
    assert statements(fresh.take_subscription("#", NOW + 104)) == [], "some replica may still be in epoch 7"
    for waiting in (interest, fresh):
        assert {s.filter for s in statements(waiting.tick(NOW + 105))} == {"plant/#", "open/#"}
    assert statements(interest.tick(NOW + 205)) == [], "said once"


def test_a_right_that_ends_takes_the_statement_back():
    interest = interest_of(epochs_world(0, 7))
    assert {s.on for s in statements(interest.take_subscription("#", NOW))} == {True}
    assert {s.on for s in statements(interest.tick(NOW + 105))} == {False}
    assert interest.wanted() == frozenset()
    assert not interest.is_accepted("plant/#")
    assert statements(interest.tick(NOW + RENEW_AFTER_S + 105)) == []


def test_a_newer_overlay_that_lets_us_read_is_used_at_once_and_said_again_when_all_must_have_it():
    world = epochs_world(20, 30)
    interest = interest_of(world)
    assert statements(interest.take_subscription("plant/t", NOW + 10)) == []
    granted = world.with_policy(grants=tuple(replace(g, first_epoch=7) for g in world.overlay.policy.grants))
    first = statements(interest.adopt_overlay(granted, world.secrets, NOW + 11))
    again = statements(interest.tick(NOW + 11 + REPEAT_S))
    assert {s.filter for s in first} == {s.filter for s in again} == {"plant/#"}
    assert min(s.version for s in again) > max(s.version for s in first)


@pytest.mark.attack(117)
@pytest.mark.parametrize("ahead_s", [600, 7200])
@pytest.mark.parametrize("refused", [True, False])
def test_a_reader_whose_clock_is_set_right_subscribes_at_once(world: World, ahead_s: float, refused: bool):
    interest, wrong = interest_of(world), NOW + ahead_s
    for told in sent(interest.take_subscription("plant/#", wrong)):
        if refused:
            interest.take_refusal(NotTaken(told.peer, told.ticket, Reason.TIME), wrong)
    assert {s.filter for s in statements(interest.tick(NOW + 1))} == {"plant/#"}
    assert statements(interest.tick(NOW + 2)) == [], "said once"


def test_after_a_rotation_statements_are_signed_with_the_new_key(world: World):
    interest = interest_of(world)
    fresh = Identity.generate(bytes(range(32)))
    interest.rotate_identity(fresh)
    (statement, *_) = statements(interest.take_subscription("plant/t", NOW))
    assert statement == statement.signed(fresh)


def test_a_stock_broker_gets_ordinary_subscriptions_and_its_answer_counts():
    world = make_world({1: 3}, [], {"control": 1}, SCOPES, hosted=("r1c",))
    interest = interest_of(world)
    effects = interest.take_subscription("plant/#", NOW)
    scope = world.overlay.policy.scopes[0].number
    told = [each for each in effects if isinstance(each, Send | Watch) and each.peer == "r1c"]
    assert [(each.filter, each.on) for each in told if isinstance(each, Watch)] == [
        (retained_filter(scope), True), (batch_topic(scope), True),
    ]  # fmt: skip
    (ticket,) = [each.ticket for each in told if each.ticket]
    assert interest.acked(Acked("r1c", ticket)) == []
    assert counted(interest.acked(acks(effects)["r1a"]), "subscriptions_accepted") == 1
    assert counted(interest.acked(acks(effects)["r1b"]), "subscriptions_accepted") == 0, "said once"
    ended = [each for each in interest.drop_subscription("plant/#", NOW + 1) if isinstance(each, Watch)]
    assert {each.on for each in ended} == {False}


def test_who_refuses_while_others_take_it_hears_the_same_again_after_a_while(world: World):
    interest = interest_of(world)
    effects = interest.take_subscription("plant/#", NOW)
    told = acks(effects)
    for peer in REPLICAS[:2]:
        assert interest.take_refusal(NotTaken(peer, told[peer].ticket, Reason.RIGHT), NOW) == [
            Count("refused_by_replica", 1, Reason.RIGHT)
        ]
    assert interest.next_deadline == NOW + REPEAT_S
    assert interest.tick(NOW + REPEAT_S - 0.1) == []
    interest.link_down("r1a")
    again = interest.tick(NOW + REPEAT_S)
    assert {send.peer for send in sent(again)} == {"r1b"}, "a link that comes up brings all"
    assert interest.acked(told["r1b"]) == [], "of the former telling"
    interest.acked(acks(again)["r1b"])
    for peer in REPLICAS[2:]:
        interest.acked(told[peer])
    assert interest.is_accepted("plant/#")


def test_what_f_plus_one_refuse_is_stated_anew_for_all(world: World):
    interest = interest_of(world)
    effects = interest.take_subscription("plant/#", NOW)
    for peer in REPLICAS[:3]:
        interest.take_refusal(NotTaken(peer, acks(effects)[peer].ticket, Reason.RIGHT), NOW)
    assert interest.tick(NOW + REPEAT_S - 0.1) == []
    again = interest.tick(NOW + REPEAT_S)
    assert {send.peer for send in sent(again)} == set(REPLICAS)
    assert len({each.version for each in statements(again)} - {each.version for each in statements(effects)}) == 1


# ------------------------------------------------------------------------------------------ predicates of clients

ATTIC, CELLAR = parse_where("room = 'attic'"), parse_where("room = 'cellar'")


def shown_world() -> World:
    shown = (ShownAttribute(("room",)),)
    return make_world({1: 3}, [], {"control": 1}, [Scope("plant/#", shown=shown), Scope("open/#")])


def ask(interest: ScopeInterest, topic_filter: str, at: float, wanted: Predicate | None = None) -> list[Statement]:
    return statements(
        [e for e in interest.take_subscription(topic_filter, NOW + at, wanted) if isinstance(e, Send)][:1]
    )


def ticked(interest: ScopeInterest, at: float) -> list[Statement]:
    return statements([e for e in interest.tick(NOW + at) if isinstance(e, Send)][:1])


def test_a_cover_is_stated_and_widens_at_once():
    interest = interest_of(shown_world())
    first = ask(interest, "plant/a", 0, ATTIC)[0]
    assert (first.cover, first.goes_on) == (ATTIC, False)
    assert ask(interest, "plant/a", 5, parse_where("room = 'attic' AND owner = 'me'")) == [], "it is covered"
    second = ask(interest, "plant/b", 6, CELLAR)[0]
    assert second.cover == widen((ATTIC, CELLAR))
    assert second.goes_on
    assert ask(interest, "plant/b", 9)[0].cover is None, "somebody wants everything"
    assert ask(interest, "plant/b", 9, ATTIC) == []


def test_covers_that_widen_soon_after_each_other_become_the_whole_scope_for_a_while():
    interest = interest_of(shown_world())
    assert ask(interest, "plant/a", 0, ATTIC)[0].cover == ATTIC
    assert ask(interest, "plant/a", 0.5, CELLAR)[0].cover is None
    assert ask(interest, "plant/a", 0.6, parse_where("room = 'hall'")) == []
    assert interest.next_deadline == NOW + 0.5 + GATHER_S
    assert ticked(interest, 0.4 + GATHER_S) == []
    stated = ticked(interest, 0.5 + GATHER_S)[0]
    assert stated.cover == widen((ATTIC, CELLAR, parse_where("room = 'hall'")))


def test_a_cover_narrows_after_it_has_stood_for_a_while():
    interest = interest_of(shown_world())
    ask(interest, "plant/a", 0, ATTIC)
    ask(interest, "plant/b", 2, CELLAR)
    assert not [e for e in interest.drop_subscription("plant/b", NOW + 3) if isinstance(e, Send)]
    assert ticked(interest, 1.9 + NARROW_S) == []
    assert ticked(interest, 2 + NARROW_S)[0].cover == ATTIC
    effects = interest.take_subscription("plant/a", NOW + 30, CELLAR, narrows=True)
    stated = statements([e for e in effects if isinstance(e, Send)])
    assert {statement.cover for statement in stated} == {CELLAR}, "what is wanted more counts at once"


@pytest.mark.attack(112)
def test_where_replicas_left_out_what_is_wanted_now_is_told_once():
    """What was left out is not known here: replayed, it would look like news (`subscriptions`)."""
    interest = interest_of(shown_world())
    ask(interest, "plant/a", 0, ATTIC)
    (scope,) = interest.widened()
    assert interest.widened() == frozenset()
    ask(interest, "plant/b", 6, CELLAR)
    assert interest.widened() == {scope}
    interest.drop_subscription("plant/b", NOW + 7)
    assert ticked(interest, 7 + NARROW_S)[0].cover == ATTIC
    ticked(interest, 7 + NARROW_S + RENEW_AFTER_S)
    assert interest.widened() == frozenset(), "less, and the same"


@pytest.mark.parametrize("cover", [ATTIC, None])
def test_with_other_tokens_nothing_was_left_out_that_was_not_before(cover: Predicate | None):
    world = shown_world()
    interest = interest_of(world)
    ask(interest, "plant/a", 0, cover)
    interest.widened()
    interest.adopt_overlay(world.renew_tokens("plant/#"), world.secrets, NOW + 60)
    assert len(interest.wanted()) == 2
    assert interest.widened() == frozenset()
    ask(interest, "plant/b", 66, CELLAR)
    assert interest.widened() == (frozenset() if cover is None else interest.wanted())


def test_a_renewal_repeats_the_cover_and_serves_as_it_always_did():
    interest = interest_of(shown_world())
    ask(interest, "plant/a", 0, ATTIC)
    renewed = ticked(interest, RENEW_AFTER_S)[0]
    assert (renewed.cover, renewed.goes_on) == (ATTIC, False)
    interest.drop_subscription("plant/a", NOW + RENEW_AFTER_S + 1)
    again = ask(interest, "plant/a", RENEW_AFTER_S + 2, CELLAR)[0]
    assert (again.cover, again.goes_on) == (CELLAR, False), "it may lack what is retained"


def test_a_scope_that_shows_nothing_is_wanted_as_a_whole():
    interest = interest_of(shown_world())
    assert ask(interest, "open/a", 0, ATTIC)[0].cover is None
    assert ask(interest, "open/a", 5, CELLAR) == []
    assert interest.next_deadline == NOW + RENEW_AFTER_S


def test_the_owner_shows_other_attributes():
    world = shown_world()
    interest = interest_of(world)
    assert ask(interest, "plant/a", 0, parse_where("door = 'open'"))[0].cover is None
    scopes = tuple(replace(s, shown=(ShownAttribute(("door",)),)) for s in world.overlay.policy.scopes)
    overlay = world.with_policy(scopes=scopes)
    interest.adopt_overlay(overlay, world.secrets_under(overlay), NOW + 3)
    assert ticked(interest, 3)[0].cover == parse_where("door = 'open'")


@pytest.mark.attack(138)
def test_a_client_that_subscribes_and_unsubscribes_does_not_use_up_what_replicas_serve_newcomers(world: World):
    """Attack: a client with a right to one topic flaps; its gateway's next subscriber got what was retained before, or
    nothing, for a minute and more."""
    interest = interest_of(world)
    stated = [statements(interest.take_subscription("plant/lobby", NOW))]
    for n in range(100):
        stated.append(statements(interest.drop_subscription("plant/lobby", NOW + n / 10)))
        stated.append(statements(interest.take_subscription("plant/lobby", NOW + n / 10)))
    newcomers = [each for each in stated if each and each[0].on]
    assert len(newcomers) == WITHDRAWALS_BURST + 1 <= NEWCOMER_BURST
    assert WITHDRAWALS_EVERY_S >= NEWCOMER_EVERY_S
    interest.drop_subscription("plant/lobby", NOW + 10)
    assert interest.wanted() == {"plant/#"}, "so that what is retained stays true"
    assert not statements(interest.take_subscription("plant/valve", NOW + 11))


def test_a_withdrawal_that_waits_is_made_when_it_is_due_and_nobody_came_back(world: World):
    interest = interest_of(world)
    for _ in range(WITHDRAWALS_BURST + 1):
        interest.take_subscription("plant/lobby", NOW)
        interest.drop_subscription("plant/lobby", NOW)
    at = interest.next_deadline
    assert at is not None
    assert at <= NOW + WITHDRAWALS_EVERY_S
    assert {s.on for s in statements(interest.tick(NOW + WITHDRAWALS_EVERY_S))} == {False}
    assert interest.wanted() == set()
    interest.take_subscription("plant/lobby", NOW + 70)
    interest.drop_subscription("plant/lobby", NOW + 70)
    interest.take_subscription("plant/lobby", NOW + 71)
    assert interest.tick(NOW + 131) == []
    assert interest.wanted() == {"plant/#"}, "who came back stays"
