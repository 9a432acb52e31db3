"""A stored batch whose scope or rights changed: each record goes where it belongs now, or waits alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import Committed, Effect, Forget, OutboxPage, Publication, Send, Wire
from bridge.contract.batches import Numbered, packed, unpacked
from bridge.contract.machine import Acked, Keep, LinkDown, LinkUp, Received, Restored
from bridge.document import ScopeSecret
from bridge.document.policy import Scope
from bridge.node import GatewayNode
from bridge.publisher.cutting import DROPPED_ROW, ROW
from bridge.publisher.entry import Entry
from bridge.publisher.publisher import UNAUTHORISED_S
from bridge.publisher.scope_placement import homeless, nowhere, parts_of
from keys.envelope import Mode
from keys.epochs import KeyName, scope_key
from tests.bridge.helpers import NOW, counted, delivered, gateway, sent, subscriber, wire_topic
from tests.sim.world import ROOT, World
from tests.support.regions import fresh, one_region

world = fresh(one_region, "site", "control", scopes=[Scope("open/#")])


def batch(first: int, *topics: str, qos: int = 1) -> Publication:
    time_ms = int(NOW * 1000)
    return packed(
        "open/#", [Numbered(n, Publication(t, b"%d" % n, qos, time_ms=time_ms)) for n, t in enumerate(topics, first)]
    )


def rescoped(world: World, *filters: str, mode: Mode = Mode.COPIES) -> list[ScopeSecret]:
    """The owner has these scopes from now on; what parties know of them."""
    kept = {scope.filter: scope for scope in world.overlay.policy.scopes}
    scopes = tuple(kept.get(each, Scope(each, mode, number=20 + at)) for at, each in enumerate(filters))
    world.overlay = world.with_policy(scopes=scopes)
    for scope in scopes:
        world.keys.put_key(KeyName(scope.filter, 0, 0), scope_key(ROOT, scope.filter, 0))
    found = [ScopeSecret(scope, scope.filter) for scope in scopes]
    world.secrets = found
    return found


def adopted(world: World, node: GatewayNode, secrets: list[ScopeSecret]) -> list[Effect]:
    return node.publisher.adopt_overlay(world.overlay, secrets, NOW)


def carried(node: GatewayNode) -> dict[int, tuple[str, list[int], int]]:
    """By number: chain, records and predecessor of what is in memory."""
    return {
        n: (e.chain, [r.number for r in unpacked(e.publication.payload, n) if isinstance(r, Numbered)], e.previous)
        for n, e in sorted(node.publisher._entries.items())
    }


@pytest.mark.attack(99)
def test_records_go_into_the_chains_of_the_scopes_that_take_their_topics(world: World) -> None:
    site = gateway(world, "site", links=False)
    adopted(world, site, rescoped(world, "open/a/#", "open/b/#"))
    rows = ((1, 0, batch(1, "open/a/t", "open/b/t", "open/a/t")), (4, 1, batch(4, "open/a/t")))
    effects = site.handle(OutboxPage(rows, None), NOW)
    assert not [e for e in effects if isinstance(e, Forget)]
    assert carried(site) == {1: ("open/a/#", [1, 3], 0), 2: ("open/b/#", [2], 0), 4: ("open/a/#", [4], 1)}


def test_what_is_new_in_such_a_chain_follows_what_came_into_it(world: World) -> None:
    site = gateway(world, "site", links=False)
    adopted(world, site, rescoped(world, "open/a/#"))
    site.handle(OutboxPage(((1, 0, batch(1, "open/a/t")),), None), NOW)
    new = packed("open/a/#", [Numbered(9, Publication("open/a/t", b"x", 1, time_ms=int(NOW * 1000)))])
    site.handle(Committed(((9, 0, new),)), NOW)
    assert carried(site)[9] == ("open/a/#", [9], 1)


def test_what_follows_a_batch_that_left_its_scope_does_not_name_it(world: World) -> None:
    site = gateway(world, "site")
    rescoped(world, "open/#", "open/a/#")
    adopted(world, site, world.secrets)
    rows = ((1, 0, batch(1, "open/x")), (2, 1, batch(2, "open/a/t")), (3, 2, batch(3, "open/x")))
    site.handle(OutboxPage(rows, None), NOW)
    headers = {n: e.header.previous for n, e in site.publisher._entries.items() if e.header is not None}
    assert headers == {1: 0, 2: 0, 3: 1}


@pytest.mark.attack(99)
def test_the_row_goes_with_its_last_part_and_what_nobody_may_have_is_counted_by_records(world: World) -> None:
    site = gateway(world, "site")
    adopted(world, site, rescoped(world, "open/a/#"))
    effects = site.handle(OutboxPage(((1, 0, batch(1, "open/a/t", "open/b/t", "open/b/u")),), None), NOW)
    assert (counted(effects, "not_authorised"), {send.ticket for send in sent(effects)}) == (2, {1})
    gone = [e for peer in ("r1a", "r1b", "r1c") for e in site.handle(Acked(peer, 1), NOW)]
    assert not [e for e in gone if isinstance(e, Forget)]
    later = site.publisher.tick(NOW + UNAUTHORISED_S + 1)
    assert counted(later, "not_authorised_dropped") == 2
    assert [e.sequences for e in later if isinstance(e, Forget)] == [(1,)]


@pytest.mark.attack(100)
def test_over_a_restart_parts_stay_parts_and_what_went_does_not_go_again(world: World) -> None:
    """Readers know a batch by its number: as one, it would come again, or not at all."""
    site, control = gateway(world, "site"), subscriber(world, "control")
    adopted(world, site, rescoped(world, "open/#", "open/a/#"))
    control.secrets = list(world.secrets)
    control.collector.adopt_overlay(world.overlay, world.secrets, NOW)
    grants = world.overlay.policy.grants
    narrow = tuple(replace(g, filter="open/x") if g.member == "site" else g for g in grants)
    world.overlay = world.with_policy(grants=narrow)
    adopted(world, site, world.secrets)
    stored = batch(1, "open/y", "open/x", "open/y", qos=2)
    effects = site.handle(OutboxPage(((1, 0, stored),), None), NOW)
    rows = [row for e in effects if isinstance(e, Keep) for row in e.rows]
    got = received(control, effects)
    for peer in ("r1a", "r1b", "r1c"):
        effects = site.handle(Acked(peer, 2), NOW)
        rows += [row for e in effects if isinstance(e, Keep) for row in e.rows]
    world.overlay = world.with_policy(grants=grants)
    again = gateway(world, "site")
    again.handle(Restored(tuple((k, v) for k, v in dict(rows).items() if v is not None)), NOW)
    effects = again.handle(OutboxPage(((1, 0, stored),), None), NOW)
    assert carried(again) == {1: ("open/#", [1, 3], 0)}
    control.collector.adopt_overlay(world.overlay, world.secrets, NOW)
    got += received(control, effects)
    got += [d.sequence for d in delivered(control.collector.tick(NOW + 11))]
    assert sorted(got) == [1, 2, 3]


def kept(effects: list[Effect]) -> Restored:
    rows = dict(row for e in effects if isinstance(e, Keep) for row in e.rows)
    return Restored(tuple((name, row) for name, row in rows.items() if row is not None))


@pytest.mark.attack(120)
@pytest.mark.parametrize("there", [True, False])
def test_over_a_restart_what_went_whole_into_another_scope_at_qos_2_stays_there(world: World, there: bool) -> None:
    """The disk has it in the scope that took it. There it would wait for ever, or come again."""
    site = gateway(world, "site")
    effects = adopted(world, site, rescoped(world, *(("open/#", "open/a/#") if there else ("open/a/#",))))
    effects += site.handle(OutboxPage(((1, 0, stored := batch(1, "open/a/t", "open/a/t", qos=2)),), None), NOW)
    assert {send.ticket for send in sent(effects)} == {1}
    again = gateway(world, "site")
    again.handle(kept(effects), NOW)
    effects = again.handle(OutboxPage(((1, 0, stored),), None), NOW)
    assert (carried(again), counted(effects, "not_authorised")) == ({1: ("open/a/#", [1, 2], 0)}, 0)
    assert {send.ticket for send in sent(effects)} == {1}
    effects = [e for peer in ("r1a", "r1b", "r1c") for e in again.handle(Acked(peer, 1), NOW)]
    assert [e.sequences for e in effects if isinstance(e, Forget)] == [(1,)]
    assert (b"p" + (1).to_bytes(8), None) in [row for e in effects if isinstance(e, Keep) for row in e.rows]


@pytest.mark.attack(120)
def test_over_a_restart_what_another_scope_took_at_qos_2_does_not_come_again_by_the_first(world: World) -> None:
    site, control = gateway(world, "site"), subscriber(world, "control")
    first = list(world.secrets)
    effects = adopted(world, site, rescoped(world, "open/#", "open/a/#"))
    control.collector.adopt_overlay(world.overlay, world.secrets, NOW)
    effects += site.handle(OutboxPage(((1, 0, stored := batch(1, "open/a/t", qos=2)),), None), NOW)
    assert received(control, effects) == [1]
    rescoped(world, "open/#")
    control.collector.adopt_overlay(world.overlay, first, NOW)
    again = gateway(world, "site")
    again.handle(kept(effects), NOW)
    effects = again.handle(OutboxPage(((1, 0, stored),), None), NOW)
    assert (received(control, effects), counted(effects, "not_authorised")) == ([], 1)


def received(reader: GatewayNode, effects: list[Effect]) -> list[int]:
    sends = [e for e in effects if isinstance(e, Send) and e.ticket > 0]
    came = [e for send in sends for e in reader.handle(Received(send.peer, send.wire), NOW)]
    return [d.sequence for d in delivered(came)]


@pytest.mark.attack(101)
def test_what_was_sealed_stays_whole_at_qos_2_and_waits(world: World) -> None:
    """A reader may have got it, and knows no record by its number in another scope."""
    site = gateway(world, "site")
    for number, qos in ((1, 1), (3, 2)):
        site.handle(Committed(((number, 0, batch(number, "open/a/t", "open/b/t", qos=qos)),)), NOW)
    effects = adopted(world, site, rescoped(world, "open/a/#", "open/b/#"))
    assert {send.ticket for send in sent(effects)} == {1, 2}
    assert counted(effects, "not_authorised") == 2
    assert carried(site)[3][1] == [3, 4]
    assert counted(site.publisher.tick(NOW + UNAUTHORISED_S + 1), "not_authorised_dropped") == 2


@pytest.mark.attack(101)
def test_what_is_sealed_keeps_a_scope_that_is_there(world: World) -> None:
    site = gateway(world, "site")
    site.handle(Committed(((1, 0, batch(1, "open/a/t")),)), NOW)
    retiring = replace(world.overlay.policy.scopes[0], retiring=True)
    world.overlay = world.with_policy(scopes=(retiring, Scope("#", number=30)))
    world.keys.put_key(KeyName("#", 0, 0), scope_key(ROOT, "#", 0))
    secrets = [replace(world.secrets[0], scope=retiring), ScopeSecret(world.overlay.policy.scopes[1], "#")]
    assert not sent(adopted(world, site, secrets))
    site.handle(OutboxPage(((2, 1, batch(2, "open/a/t")),), None), NOW)
    assert carried(site) == {1: ("open/#", [1], 0), 2: ("#", [2], 0)}


def test_what_was_protected_goes_never_in_clear(world: World) -> None:
    site = gateway(world, "site")
    effects = adopted(world, site, rescoped(world, "#", mode=Mode.PLAIN))
    effects += site.handle(OutboxPage(((1, 0, batch(1, "open/a/t")),), None), NOW)
    assert (sent(effects), counted(effects, "not_authorised")) == ([], 1)
    entry = Entry(1, batch(1, "open/a/t"), nowhere(batch(1, "open/a/t"), plain=True), 0, NOW)
    assert parts_of(entry, site.publisher.sealer, NOW)[0][0].clear_filter == "#"


# ------------------------------------------------------------------------------------------ what parts leave behind


def part_rows(effects: list[Effect]) -> dict[bytes, bytes | None]:
    return {name: row for e in effects if isinstance(e, Keep) for name, row in e.rows if name[:1] == ROW}


def test_what_follows_a_batch_of_which_one_record_left_names_what_stayed(world: World) -> None:
    site = gateway(world, "site")
    adopted(world, site, rescoped(world, "open/#", "open/a/#"))
    rows = ((1, 0, batch(1, "open/x")), (2, 1, batch(2, "open/x", "open/a/t")), (4, 2, batch(4, "open/x")))
    effects = site.handle(OutboxPage(rows, None), NOW)
    headers = {n: e.header.previous for n, e in site.publisher._entries.items() if e.header is not None}
    assert headers == {1: 0, 2: 1, 3: 0, 4: 2}
    assert not [name for e in effects if isinstance(e, Keep) for name, _ in e.rows if name[:1] == DROPPED_ROW]


@pytest.mark.parametrize(("qos", "rows"), [(0, 0), (1, 0), (2, 1)])
def test_what_went_whole_into_another_scope_has_a_row_where_readers_know_its_number(
    world: World, qos: int, rows: int
) -> None:
    site = gateway(world, "site", links=False)
    effects = site.handle(Committed(((1, 0, batch(1, "open/a/t", qos=qos)),)), NOW)
    effects += adopted(world, site, rescoped(world, "open/#", "open/a/#"))
    assert carried(site)[1][0] == "open/a/#"
    assert len(part_rows(effects + site.publisher.rows.changed_rows())) == rows


@pytest.mark.parametrize("qos", [1, 2])
def test_a_retained_publication_that_goes_into_another_scope_stays_one(world: World, qos: int) -> None:
    site = gateway(world, "site", links=False)
    of = Publication("open/a/t", b"on", qos, retain=True, time_ms=int(NOW * 1000))
    effects = site.handle(Committed(((1, 0, of),)), NOW)
    effects += adopted(world, site, rescoped(world, "open/#", "open/a/#"))
    effects += [e for peer in ("r1a", "r1b", "r1c") for e in site.handle(LinkUp(peer), NOW)]
    wires = [send.wire for send in sent(effects) if send.ticket == 1]
    assert [(wire.retain, wire.topic) for wire in wires] == [
        (True, wire_topic(world, "site", "open/a/t", retain=True))
    ] * 3
    assert part_rows(effects) == {}


def test_a_snapshot_leaves_no_row(world: World) -> None:
    """It has none in the outbox, though a plain scope took its publication."""
    plain = Scope("open/#", Mode.PLAIN, number=20)
    world.overlay = world.with_policy(scopes=(plain,))
    world.secrets = [ScopeSecret(plain, "open/#")]
    site = gateway(world, "site")
    of = Publication("open/t", b"on", 1, retain=True, time_ms=int(NOW * 1000))
    effects = site.handle(Committed(((1, 0, replace(of, in_clear=True)),)), NOW)
    effects += [e for peer in ("r1a", "r1b", "r1c") for e in site.handle(Acked(peer, 1), NOW)]
    for _ in range(2):
        world.overlay = world.with_policy(scopes=(Scope("open/#", number=20),))
        effects += adopted(world, site, [ScopeSecret(world.overlay.policy.scopes[0], "open/#")])
    assert counted(effects, "retained_resealed") == 1
    assert part_rows(effects + site.publisher.rows.changed_rows()) == {}


@pytest.mark.parametrize("qos", [0, 1])
def test_parts_take_the_room_of_their_batch_and_give_it_back(world: World, qos: int) -> None:
    site = gateway(world, "site", links=False)
    publisher, before = site.publisher, site.publisher.room
    publisher.take_entries([(1, 0, batch(1, "open/x", "open/a/t", qos=qos))], NOW)
    adopted(world, site, rescoped(world, "open/#", "open/a/#"))
    assert (publisher.depth, publisher.unstored, before[0] - publisher.room[0]) == (2, 0 if qos else 2, 2)
    for peer in ("r1a", "r1b", "r1c"):
        site.handle(LinkUp(peer), NOW)
    for peer in ("r1a", "r1b", "r1c"):
        for number in (1, 2):
            site.handle(Acked(peer, number), NOW)
    assert (publisher.depth, publisher.unstored) == (0, 0)
    for peer in ("r1a", "r1b", "r1c"):
        site.handle(LinkDown(peer), NOW)
    assert publisher.room == before


# -------------------------------------------------------------------------------------------- rows of parts


def divided(world: World, qos: int = 1) -> tuple[GatewayNode, Publication, dict[bytes, bytes | None]]:
    """A batch of which one record went into another scope, and the row that says so."""
    site = gateway(world, "site")
    adopted(world, site, rescoped(world, "open/#", "open/a/#"))
    stored = batch(1, "open/x", "open/a/t", "open/x", qos=qos)
    return site, stored, part_rows(site.handle(OutboxPage(((1, 0, stored),), None), NOW))


def resumed(world: World, rows: dict[bytes, bytes | None], stored: Publication) -> tuple[GatewayNode, list[Effect]]:
    again = gateway(world, "site")
    again.handle(Restored(tuple((name, row) for name, row in rows.items() if row is not None)), NOW)
    return again, again.handle(OutboxPage(((1, 0, stored),), None), NOW)


def test_a_row_says_which_parts_are_left_and_goes_with_the_last(world: World) -> None:
    site, stored, rows = divided(world)
    assert list(rows) == [ROW + (1).to_bytes(8)]
    ended = part_rows([e for peer in ("r1a", "r1b", "r1c") for e in site.handle(Acked(peer, 2), NOW)])
    assert ended.keys() == rows.keys()
    again, effects = resumed(world, ended, stored)
    assert carried(again) == {1: ("open/#", [1, 3], 0)}
    assert part_rows(effects) == ended, "as it was"
    for node in (site, again):
        gone = [e for peer in ("r1a", "r1b", "r1c") for e in node.handle(Acked(peer, 1), NOW)]
        assert [e.sequences for e in gone if isinstance(e, Forget)] == [(1,)]
        assert part_rows(gone) == dict.fromkeys(rows)
    again, _ = resumed(world, rows, stored)
    assert carried(again) == {1: ("open/#", [1, 3], 0), 2: ("open/a/#", [2], 0)}


def test_what_follows_parts_of_a_former_process_follows_the_last_of_its_chain(world: World) -> None:
    site, stored, _ = divided(world)
    ended = part_rows([e for peer in ("r1a", "r1b", "r1c") for e in site.handle(Acked(peer, 1), NOW)])
    again, _ = resumed(world, ended, stored)
    again.handle(Committed(((4, 0, replace(batch(4, "open/a/t"), topic="open/a/#")),)), NOW)
    assert carried(again) == {2: ("open/a/#", [2], 0), 4: ("open/a/#", [4], 2)}


def test_a_row_that_does_not_fit_its_batch_loses_nothing_that_is_there(world: World) -> None:
    """A damaged disk must not stop the outbox."""
    _, stored, rows = divided(world)
    shorter = batch(1, "open/x", "open/a/t")
    again, _ = resumed(world, rows, shorter)
    assert carried(again) == {1: ("open/#", [1], 0), 2: ("open/a/#", [2], 0)}
    again = gateway(world, "site")
    name, row = ROW + (5).to_bytes(8), next(iter(rows.values()))
    assert row is not None
    damaged = ((name, row[:-1]), (name + b"x", row), (b"z" + name[1:], row), (name[:1], row))
    again.handle(Restored((*damaged, (ROW + (1).to_bytes(8), row[:9]))), NOW)
    again.handle(OutboxPage(((5, 0, batch(5, "open/x")), (1, 0, stored)), None), NOW)
    assert sorted(carried(again)) == [1, 2, 5]
    foreign = gateway(world, "site")
    foreign.handle(Restored(((name, row),)), NOW)
    foreign.handle(OutboxPage(((5, 0, batch(5, "open/x", "open/y")),), None), NOW)
    assert carried(foreign) == {5: ("open/#", [5, 6], 0)}, "its records are none of those of the row"


def test_rows_of_batches_that_are_not_on_disk_go_once_all_is_read(world: World) -> None:
    _, stored, rows = divided(world)
    again = gateway(world, "site")
    (row,) = [row for row in rows.values() if row is not None]
    names = [ROW + number.to_bytes(8) for number in (1, 50)]
    again.publisher.rows.restore([(name, row) for name in names])
    again.publisher.take_entries([(1, 0, stored)], NOW)
    assert part_rows(again.publisher.rows.changed_rows()).keys() == {names[0]}
    again.publisher.rows.all_read()
    assert part_rows(again.publisher.rows.changed_rows()) == {names[1]: None}
    again.publisher.rows.all_read()
    assert again.publisher.rows.changed_rows() == again.publisher.cuts.changed_rows() == []


def test_what_only_stands_for_something_is_not_placed_anew(world: World) -> None:
    """A void has no record of its own, and a snapshot goes where its topic is."""
    site = gateway(world, "site")
    sealer, view = site.publisher.sealer, world.overlay.views[1]
    site.handle(Committed(((1, 0, batch(1, "open/a/t")),)), NOW)
    entry = site.publisher._entries[1]
    adopted(world, site, rescoped(world, "open/a/#"))
    before = ScopeSecret(Scope("open/#", number=1), "open/#")
    sealed = replace(entry, secret=before, wire=Wire("t", b""), acked=set())
    assert parts_of(sealed, sealer, NOW)[0][0].clear_filter == "open/a/#"
    assert homeless({1: sealed}, sealer, view, NOW) == [1]
    for changes in ({"is_void": True}, {"is_snapshot": True}):
        other = replace(sealed, **changes)
        assert parts_of(other, sealer, NOW) == [(before, ())]
        assert homeless({1: other}, sealer, view, NOW) == []
    assert homeless({1: replace(sealed, wire=None)}, sealer, view, NOW) == []
    assert homeless({1: replace(sealed, acked=set(view.members[:2]))}, sealer, view, NOW) == []
