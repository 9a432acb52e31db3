"""Since when a reader remembers all that came, and that what it would know is no replay, however late it comes."""

from __future__ import annotations

import pytest

from bridge.contract.machine import (
    Effect,
    Keep,
    LinkDown,
    LinkUp,
    Received,
    Restored,
    Subscribed,
    Tick,
    Unsubscribed,
    Wire,
)
from bridge.document.policy import Scope
from bridge.node import GatewayNode
from bridge.reader.intake import FRESH_S, GATEWAY_SESSION_S
from bridge.reader.interest import Subscriptions
from bridge.reader.kept import SCOPE, KeptReader, of_kind
from bridge.wire.admission import KEPT_S
from keys.envelope import Mode
from keys.frames import number
from tests.bridge.helpers import NOW, counted, craft, delivered, gateway, publish, sent, subscriber
from tests.sim.world import World, make_world
from tests.support.regions import fresh, one_region

REPLICAS = ("r1a", "r1b", "r1c")
PLANT, OPEN, OLD = 1, 2, 3  # streams
SITE, OTHER = b"s" * 16, b"o" * 16


world = fresh(one_region, "site", "other", "control", scopes=[Scope("plant/#"), Scope("clear/#", Mode.PLAIN)])


def bring(node: GatewayNode, wires: dict[str, Wire], now: float) -> list[Effect]:
    effects = [effect for peer, wire in wires.items() for effect in node.handle(Received(peer, wire), now)]
    return effects + [effect for second in range(1, 16) for effect in node.handle(Tick(), now + second)]


def ms(at: float) -> int:
    return int(at * 1000)


def rows_of(kept: KeptReader) -> list[tuple[bytes, bytes]]:
    found = [pair for keep in kept.changed_rows(NOW) if isinstance(keep, Keep) for pair in keep.rows]
    return [(key, row) for key, row in found if row is not None]


def kept_of(effects: list[Effect], rows: dict[bytes, bytes]) -> None:
    for effect in effects:
        if isinstance(effect, Keep):
            for key, value in effect.rows:
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value


# -------------------------------------------------------------------------------------------------- what it knows


def test_a_scope_with_other_tokens_is_the_same_subscription() -> None:
    later = Scope("b/#", number=7, origin=3)
    subscriptions = Subscriptions(KeptReader())
    assert subscriptions.generation(later.stream) == 0
    subscriptions.resume_scope(3, NOW)
    assert subscriptions.generation(later.stream) == 1
    assert [subscriptions.is_before(later.stream, ms(at)) for at in (NOW - 1, NOW)] == [True, False]
    subscriptions.paused(3)
    subscriptions.resume_scope(3, NOW + 1)
    assert subscriptions.generation(later.stream) == 2
    assert [subscriptions.is_before(later.stream, ms(at)) for at in (NOW, NOW + 1)] == [True, False]


def test_what_a_former_process_had_subscribed_goes_on_once() -> None:
    kept = KeptReader()
    Subscriptions(kept).resume_scope(3, NOW)
    again = Subscriptions(KeptReader())
    again.restore(rows_of(kept), NOW + 1)
    again.resume_scope(3, NOW + 1)
    assert again.generation(3) == 0
    again.paused(3)
    again.resume_scope(3, NOW + 2)
    assert again.generation(3) == 1
    paused = Subscriptions(kept)
    paused.resume_scope(3, NOW)
    paused.paused(3)
    assert not [key for key, _ in rows_of(kept) if key[:1] == SCOPE]


@pytest.mark.attack(127)
@pytest.mark.parametrize("restarts", [(1,), (1, 2000, 4000), (1, 2000, 4000, 9000)])
def test_what_nobody_wants_for_longer_than_replicas_keep_it_goes_on_no_more(restarts: tuple[float, ...]) -> None:
    """However often it starts again meanwhile."""
    kept = KeptReader()
    Subscriptions(kept).resume_scope(3, NOW)
    rows: dict[bytes, bytes] = {}
    kept_of(kept.changed_rows(NOW), rows)
    for at in restarts:
        kept = KeptReader()
        again = Subscriptions(kept)
        again.restore(tuple(rows.items()), NOW + at)
        kept_of(kept.changed_rows(NOW + at), rows)
    again.resume_scope(3, NOW + 1 + GATEWAY_SESSION_S + 1 + restarts[-1])
    assert again.generation(3) == 1
    assert not again.would_know(SITE, 3, ms(NOW + 1), NOW + 9000)


def test_what_goes_on_after_a_restart_goes_on_after_the_next_one_whenever_that_is() -> None:
    rows: dict[bytes, bytes] = {}
    kept = KeptReader()
    Subscriptions(kept).resume_scope(3, NOW)
    kept_of(kept.changed_rows(NOW), rows)
    for at in (10, 10 + 3 * GATEWAY_SESSION_S):
        kept = KeptReader()
        again = Subscriptions(kept)
        again.restore(tuple(rows.items()), NOW + at)
        again.resume_scope(3, NOW + at + 1)
        kept_of(kept.changed_rows(NOW + at), rows)
        assert again.generation(3) == 0
        assert again.would_know(SITE, 3, ms(NOW + 1), NOW + at + 2)


def test_what_a_former_process_left_and_becomes_wider_goes_on_no_longer() -> None:
    kept = KeptReader()
    before = Subscriptions(kept)
    before.resume_scope(PLANT, NOW)
    rows = rows_of(kept)
    kept = KeptReader()
    after = Subscriptions(kept)
    after.restore(rows, NOW + 10)
    after.widened(PLANT, NOW + 60)
    last = Subscriptions(KeptReader())
    last.restore(rows_of(kept), NOW + 70)
    last.resume_scope(PLANT, NOW + 10 + GATEWAY_SESSION_S + 1)
    assert last.generation(PLANT) == 1, "the third process has no more time than the second"


def test_what_was_sealed_after_the_subscription_would_be_known_and_nothing_before_or_to_come() -> None:
    scopes = Subscriptions(KeptReader())
    assert not scopes.would_know(SITE, PLANT, ms(NOW), NOW), "nobody asked for it"
    scopes.resume_scope(PLANT, NOW)
    later = NOW + 600
    times = (NOW - 1, NOW, NOW + 1, later, later + 1)
    assert [scopes.would_know(SITE, PLANT, ms(at), later) for at in times] == [False, False, True, True, False]


def test_who_subscribes_again_knows_nothing_of_the_time_between() -> None:
    scopes = Subscriptions(KeptReader())
    scopes.resume_scope(PLANT, NOW)
    scopes.paused(PLANT)
    assert not scopes.would_know(SITE, PLANT, ms(NOW + 1), NOW + 2)
    scopes.resume_scope(PLANT, NOW + 60)
    assert not scopes.would_know(SITE, PLANT, ms(NOW + 1), NOW + 90)
    assert scopes.would_know(SITE, PLANT, ms(NOW + 61), NOW + 90)


def test_what_replicas_left_out_or_we_forgot_may_be_a_replay() -> None:
    scopes = Subscriptions(KeptReader())
    scopes.widened(OPEN, NOW)
    scopes.forgot(SITE, OPEN, NOW)
    assert not scopes.would_know(SITE, OPEN, ms(NOW + 1), NOW + 2), "it is not subscribed"
    scopes.resume_scope(PLANT, NOW)
    scopes.widened(PLANT, NOW + 60)
    assert not scopes.would_know(SITE, PLANT, ms(NOW + 59), NOW + 600)
    scopes.forgot(SITE, PLANT, NOW + 90)
    assert not scopes.would_know(SITE, PLANT, ms(NOW + 90 + FRESH_S), NOW + 900), "its publisher's clock may be ahead"
    assert scopes.would_know(SITE, PLANT, ms(NOW + 91 + FRESH_S), NOW + 900)
    assert scopes.would_know(OTHER, PLANT, ms(NOW + 61), NOW + 900), "all of its own is remembered"


@pytest.mark.attack(126)
def test_of_whom_something_was_forgotten_the_next_process_knows_until_the_subscription_ends() -> None:
    kept = KeptReader()
    scopes = Subscriptions(kept)
    scopes.resume_scope(PLANT, NOW)
    scopes.forgot(SITE, PLANT, NOW + 90)
    rows = rows_of(kept)
    after = Subscriptions(KeptReader())
    after.restore(rows, NOW + 600)
    after.resume_scope(PLANT, NOW + 601)
    at = ms(NOW + 90 + FRESH_S)
    assert [after.would_know(who, PLANT, at, NOW + 900) for who in (SITE, OTHER)] == [False, True]
    scopes.paused(PLANT)
    gone = {key: row for keep in kept.changed_rows(NOW) if isinstance(keep, Keep) for key, row in keep.rows}
    assert all(gone[key] is None for key, _ in rows if key[:1] == SCOPE)


def test_of_too_many_authors_of_whom_something_was_forgotten_all_count_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.reader.interest.FORGOTTEN_MAX", 3)
    kept = KeptReader()
    scopes = Subscriptions(kept)
    scopes.resume_scope(PLANT, NOW)
    for n in range(1, 5):
        scopes.forgot(bytes([n]) * 16, PLANT, NOW + n)
    assert not scopes.would_know(OTHER, PLANT, ms(NOW + 4 + FRESH_S), NOW + 900)
    assert scopes.would_know(OTHER, PLANT, ms(NOW + 5 + FRESH_S), NOW + 900)
    assert [key for key, _ in rows_of(kept) if key[:1] == SCOPE] == [SCOPE + number(PLANT, 4)]


def test_the_next_process_knows_since_when() -> None:
    kept = KeptReader()
    before = Subscriptions(kept)
    before.resume_scope(PLANT, NOW)
    before.resume_scope(OPEN, NOW)
    before.paused(OPEN)
    rows = rows_of(kept)
    assert [key for key, _ in of_kind(rows, SCOPE)] == [number(PLANT, 4)]
    after = Subscriptions(KeptReader())
    after.restore([*rows, (SCOPE + number(OLD, 4), b"")], NOW + 600)
    after.resume_scope(PLANT, NOW + 601)
    assert after.would_know(SITE, PLANT, ms(NOW + 1), NOW + 700)
    assert not after.would_know(SITE, OLD, ms(NOW + 599), NOW + 700), "its row does not say since when"


# ----------------------------------------------------------------------------------------------------- what comes


@pytest.mark.attack(111)
@pytest.mark.parametrize("back_s", [FRESH_S + 1, 600, GATEWAY_SESSION_S])
def test_the_first_of_a_stream_that_came_while_a_running_reader_was_cut_off_is_delivered(world: World, back_s: float):
    """Its process runs on; its replicas kept the alarm for it, and acknowledged it to its publisher."""
    site, control = gateway(world, "site"), subscriber(world, "control")
    for peer in REPLICAS:
        control.handle(LinkDown(peer), NOW + 30)
    alarm = publish(site, "plant/alarm", b"fire", sequence=1, now=NOW + 60, qos=2)
    back = NOW + 60 + back_s
    for peer in REPLICAS:
        control.handle(LinkUp(peer), back)
    assert [d.sequence for d in delivered(bring(control, alarm, back))] == [1]
    assert not delivered(bring(control, alarm, back + 60)), "once"


@pytest.mark.attack(111)
def test_the_first_of_a_stream_that_waited_between_regions_is_delivered(world: World):
    """Mode `one`, say: a single replica brings it, the others vouch for nothing."""
    alarm = craft(world, "site", "clear/alarm", sequence=1, mode=Mode.PLAIN, now=NOW + 60)
    control = subscriber(world, "control")
    assert [d.sequence for d in delivered(bring(control, {"r1a": alarm}, NOW + 60 + 1800))] == [1]


@pytest.mark.attack(111)
def test_it_is_delivered_over_a_restart_of_the_reader_and_once(world: World):
    rows: dict[bytes, bytes] = {}
    control = gateway(world, "control")
    kept_of(control.handle(Subscribed("#"), NOW), rows)
    kept_of(control.handle(Tick(), NOW + 1), rows)
    alarm = {"r1a": craft(world, "site", "clear/alarm", sequence=1, mode=Mode.PLAIN, now=NOW + 60)}
    for at in (NOW + 1800, NOW + 1900):  # long after what `freshness` covers of the time before a restart
        control = gateway(world, "control", links=False)
        kept_of(control.handle(Restored(tuple(rows.items())), at), rows)
        kept_of(control.handle(Subscribed("#"), at), rows)
        effects = bring(control, alarm, at + 60)
        kept_of(effects, rows)
        assert len(delivered(effects)) == (1 if at == NOW + 1800 else 0)


# -------------------------------------------------------------------------------------------------------- attacks


@pytest.mark.attack(112)
@pytest.mark.parametrize("age_s", [FRESH_S + 1, 1800, KEPT_S - 60])
@pytest.mark.parametrize("peers", [("r1a",), REPLICAS])
def test_what_was_published_before_a_subscription_is_not_replayed_to_it(
    world: World, age_s: float, peers: tuple[str, ...]
):
    """Attack: a replica, or all of them, bring a new subscriber what they carried a moment before it subscribed."""
    wires = publish(gateway(world, "site"), "plant/t", sequence=1, now=NOW - 1)
    effects = bring(subscriber(world, "control"), {peer: wires[peer] for peer in peers}, NOW - 1 + age_s)
    assert not delivered(effects)
    assert counted(effects, "replays_dropped") == len(peers)


@pytest.mark.attack(112)
def test_what_was_published_while_nobody_here_subscribed_is_not_replayed_to_who_does_again(world: World):
    """Attack: as before; the gateway had the scope once."""
    control = gateway(world, "control")
    control.handle(Subscribed("plant/#"), NOW)
    control.handle(Unsubscribed("plant/#"), NOW + 10)
    wires = publish(gateway(world, "site"), "plant/t", sequence=1, now=NOW + 60)
    control.handle(Subscribed("plant/#"), NOW + 120)
    assert not delivered(bring(control, wires, NOW + 120 + FRESH_S))


@pytest.mark.attack(112)
def test_a_stream_that_was_pushed_out_is_not_replayed(world: World, monkeypatch: pytest.MonkeyPatch):
    """Attack: the table of streams was full, and a replica brings again what came on one that is forgotten."""
    monkeypatch.setattr("bridge.reader.collector.STREAMS_MAX", 1)
    control = subscriber(world, "control")
    first = {"r1a": craft(world, "site", "clear/a", sequence=1, mode=Mode.PLAIN, now=NOW + 1)}
    assert delivered(bring(control, first, NOW + 2))
    other = {"r1a": craft(world, "other", "clear/b", sequence=1, mode=Mode.PLAIN, now=NOW + 3)}
    assert delivered(bring(control, other, NOW + 4))
    assert not delivered(bring(control, first, NOW + 2 * FRESH_S))


@pytest.mark.attack(126)
@pytest.mark.parametrize("keys_come", [False, True])
def test_who_fills_the_table_of_streams_harms_nobody_elses_first_publications(
    monkeypatch: pytest.MonkeyPatch, keys_come: bool
):
    """Attack: a member retains on ever new topics, under keys that never come, or publishes in all scopes."""
    monkeypatch.setattr("bridge.reader.collector.STREAMS_MAX", 1 if keys_come else 50)
    scopes = [Scope("plant/#"), Scope("clear/#", Mode.PLAIN), Scope("open/#", Mode.PLAIN)]
    world = make_world({1: 3}, [], {"site": 1, "other": 1, "control": 1}, scopes)
    control = subscriber(world, "control", "#")
    for at in (10, 900):
        for n in range(1, 61):
            number, topic = at * 1000 + n, f"{('open', 'clear')[n % 2]}/t" if keys_come else f"plant/x{at}-{n}"
            wire = (
                craft(world, "other", topic, sequence=number, mode=Mode.PLAIN, now=NOW + at)
                if keys_come
                else craft(world, "other", topic, sequence=number, key_id=n.to_bytes(16), retain=True, snapshot=True,
                           order=(1, 1), now=NOW + at)
            )  # fmt: skip
            control.handle(Received("r1a", wire), NOW + at)
        bring(control, {}, NOW + at)
    victim = "clear/v" if keys_come else "plant/v"
    wires = publish(gateway(world, "site"), victim, b"alarm", sequence=1, now=NOW + 400)
    assert [d.publisher for d in delivered(bring(control, wires, NOW + 1000))] == ["site"]


@pytest.mark.attack(126)
def test_what_was_never_opened_leaves_nothing_in_the_table_of_streams(world: World):
    control = subscriber(world, "control")
    for n in range(1, 4):
        wire = craft(world, "other", "plant/t", sequence=n, key_id=n.to_bytes(16), order=(1, 1), now=NOW)
        control.handle(Received("r1a", wire), NOW)
    assert len(control.collector._streams) == 1
    bring(control, {}, NOW)
    assert len(control.collector._streams) == 0


@pytest.mark.attack(127)
def test_a_scope_that_nobody_wanted_for_hours_after_a_restart_is_not_whole_since_the_former_process(world: World):
    """Attack: replicas sent nothing of that time; one brings what was published before this subscription as news."""
    rows: dict[bytes, bytes] = {}
    kept_of(gateway(world, "control").handle(Subscribed("clear/#"), NOW), rows)
    again = gateway(world, "control", links=False)
    kept_of(again.handle(Restored(tuple(rows.items())), NOW + 60), rows)
    for minute in range(2, 150):
        kept_of(again.handle(Tick(), NOW + 60 * minute), rows)
    assert not [key for key in rows if key[:1] == SCOPE]
    wire = craft(world, "site", "clear/t", sequence=1, mode=Mode.PLAIN, now=NOW + 7000)
    again.handle(Subscribed("clear/#"), NOW + 9000)
    assert not delivered(bring(again, {"r1a": wire}, NOW + 9001))


# ------------------------------------------------------------------------------------------ the publisher's own links


@pytest.mark.attack(113)
def test_what_was_in_flight_when_the_publishers_link_went_reaches_who_subscribed_meanwhile(world: World):
    site = gateway(world, "site")
    first = publish(site, "plant/alarm", b"fire", sequence=1, qos=2)  # lost on the links
    for peer in REPLICAS:
        site.handle(LinkDown(peer), NOW + 1)
    control, back = gateway(world, "control"), NOW + 600
    control.handle(Subscribed("#"), NOW + 300)
    effects = [effect for peer in REPLICAS for effect in site.handle(LinkUp(peer), back)]
    wires = {send.peer: send.wire for send in sent(effects) if send.ticket == 1}
    assert sorted(wires) == list(REPLICAS)
    assert [d.sequence for d in delivered(bring(control, wires, back))] == [1]
    assert not delivered(bring(control, first, back + 20)), "of two sealings one is delivered"
