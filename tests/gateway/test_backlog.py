"""A backlog on disk: read in pages as there is room, in order on each topic, beside what is new, within every bound."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.contract.machine import Publication
from bridge.document.policy import Scope
from bridge.publisher import residents
from bridge.publisher.entry import Standing
from bridge.publisher.windows import LATE_WINDOW_MIN
from gateway.outbox import database as outbox
from keys.envelope import Mode
from keys.message import MessageHeader
from tests.bridge.helpers import NOW
from tests.gateway.test_store_and_forward import REPLICAS, SIX_HOURS_S, OutboxLife, headers, make, measurement
from tests.seldom import mostly_slow
from tests.sim.world import World, make_world

pytestmark = pytest.mark.invariant(39)

RESIDENT_MAX, PAGE_ROWS = 60, 7
PLANT, LIVE, OPEN = "veilmq/batch/1", "veilmq/batch/2", "veilmq/batch/2"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a few hundred entries reach."""
    monkeypatch.setattr(residents, "RESIDENT_MAX", RESIDENT_MAX)
    monkeypatch.setattr(residents, "WAITING_MAX", RESIDENT_MAX)
    monkeypatch.setattr(outbox, "PAGE_ROWS", PAGE_ROWS)


def on(topic: str, number: int, qos: int = 1, now: float = NOW, **fields: object) -> Publication:
    scope = "live" if topic == "quiet" else "plant"
    return Publication(f"{scope}/{topic}", b"%d" % number, qos, time_ms=int(now * 1000), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("seed", mostly_slow(range(8), 0, 1, 2))
@pytest.mark.usefixtures("small")
def test_whatever_happens_each_topic_keeps_its_order_nothing_is_lost_and_memory_is_bounded(
    tmp_path: Path, seed: int, batches: bool
) -> None:
    world, dice = make(), random.Random(seed)
    number = 0
    accepted: defaultdict[str, set[int]] = defaultdict(set)
    first_sent: defaultdict[tuple[str, str], list[int]] = defaultdict(list)

    async def main() -> None:
        nonlocal number
        site = OutboxLife(tmp_path, world, NOW, batches=batches)

        def check() -> None:
            for peer in REPLICAS:
                for topic, header in headers(site, peer):
                    seen = first_sent[peer, topic]
                    if header.qos and header.sequence not in seen:
                        seen.append(header.sequence)
            site.sent.clear()
            counted = site.node.publisher._residents
            assert counted.room(True)[0] + site.node.publisher.unstored >= -PAGE_ROWS

        for _ in range(60):
            what = dice.choice(["publish", "publish", "burst", "up", "down", "ack", "ack", "restart"])
            if what in {"publish", "burst"}:
                batch = [
                    on(f"t{dice.randrange(6)}", n, dice.choice([0, 1, 1, 1]))
                    for n in range(number, number + (90 if what == "burst" else dice.randrange(1, 8)))
                ]
                number += len(batch)
                assert set(await site.publish(batch)) == {0}
            elif what == "up":
                site.up()
            elif what == "down":
                site.down(*dice.sample(REPLICAS, dice.randrange(1, 4)))
            elif what == "ack":
                site.acknowledge(most=dice.randrange(400))
            elif dice.random() < 0.3:
                check()
                site.store.close()
                site = OutboxLife(tmp_path, world, site.now, batches=batches)
            check()
        site.up()
        site.acknowledge()
        check()
        assert site.store.depth == 0
        site.store.close()

    asyncio.run(main())
    for (peer, topic), got in first_sent.items():
        assert got == sorted(got), f"{topic} at {peer}"
        accepted[topic] |= set(got)
    for (peer, topic), got in first_sent.items():
        assert set(got) == accepted[topic], f"{topic} at {peer}"
    assert sum(map(len, accepted.values())) > (9 if batches else 100)


@pytest.mark.usefixtures("small")
def test_a_restart_reads_nothing_before_there_is_a_link_and_then_some_pages(tmp_path: Path) -> None:
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        await site.publish([measurement(n, NOW) for n in range(500)])
        site.store.close()
        site = OutboxLife(tmp_path, world, NOW)
        site.refill()
        assert (site.store.depth, site.node.publisher.depth) == (500, 0)
        site.up()
        assert site.node.publisher.depth <= RESIDENT_MAX // 2 + PAGE_ROWS
        assert site.acknowledge() == 3 * 500
        assert site.most_resident <= RESIDENT_MAX // 2 + PAGE_ROWS
        assert site.store.depth == site.store.held_bytes == 0
        site.store.close()

    asyncio.run(main())


@pytest.mark.usefixtures("small")
def test_what_is_new_in_other_scopes_passes_a_backlog_and_in_its_scope_waits_for_it(tmp_path: Path) -> None:
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        await site.publish([on("busy", n) for n in range(800)])
        site.up()
        for n in range(20):
            before = len(site.sent["r1a"])
            await site.publish([on("quiet", n), on("busy", 800 + n)])
            site.acknowledge(most=3 * (LATE_WINDOW_MIN + 2))
            assert LIVE in {send.wire.topic for send in site.sent["r1a"][before:]}
        topics = [header.sequence for topic, header in headers(site, "r1a") if topic == LIVE]
        assert len(topics) == 20, "though hundreds of the backlog are still to come"
        assert site.store.depth > 100
        site.acknowledge()
        for peer in REPLICAS:
            for got in site.sequences(peer).values():
                assert got == sorted(set(got))
            assert {topic: len(got) for topic, got in site.sequences(peer).items()} == {PLANT: 820, LIVE: 20}
        site.store.close()

    asyncio.run(main())


@pytest.mark.usefixtures("small")
def test_after_a_restart_a_scope_whose_last_publication_everybody_has_is_not_held_up(tmp_path: Path) -> None:
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        site.up()
        await site.publish([on("quiet", 0)])
        site.acknowledge()
        site.down(*REPLICAS)
        await site.publish([on("busy", n) for n in range(400)])
        site.store.close()
        site = OutboxLife(tmp_path, world, NOW)
        site.up()
        await site.publish([on("quiet", 1)])
        site.acknowledge(most=3 * LATE_WINDOW_MIN)
        assert LIVE in site.sequences("r1a")
        site.store.close()

    asyncio.run(main())


@pytest.mark.usefixtures("small")
def test_qos_0_never_overtakes_what_its_scope_has_on_disk(tmp_path: Path) -> None:
    """Attack on order: it would look as if what is on disk came too late, and subscribers would drop it."""
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        await site.publish([on("busy", n) for n in range(400)])
        site.store.close()
        site = OutboxLife(tmp_path, world, NOW)
        site.up()
        await site.publish([on("busy", 400, 0), on("quiet", 0, 0)])
        site.acknowledge()
        assert site.figures.counts["qos0_dropped"] == 1
        sequences = site.sequences("r1a")
        assert len(sequences[PLANT]) == 400
        assert len(sequences[LIVE]) == 1
        site.store.close()

    asyncio.run(main())


@pytest.mark.usefixtures("small")
def test_a_scope_without_a_key_holds_up_neither_devices_nor_other_scopes(tmp_path: Path) -> None:
    world = with_open_scope()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        site.up()
        await site.publish([replace(on("x", 0), topic="open/x")])
        for start in range(0, 4 * RESIDENT_MAX, 20):  # keys are not there: they wait, then are left on disk
            assert set(await site.publish([on("x", n) for n in range(start, start + 20)])) == {0}
            site.acknowledge()
        assert site.node.publisher.depth <= 2 * RESIDENT_MAX
        await site.publish([replace(on("x", 1), topic="open/x")])
        site.acknowledge()
        assert [len(got) for got in site.sequences("r1a").values()] == [2]
        world.learn(world.keys, [make().overlay.policy.calendar.epoch_at(NOW)])
        site._perform(site.node.publisher.keys_changed(NOW))
        site.acknowledge()
        got = site.sequences("r1a")[PLANT]
        assert len(got) == 4 * RESIDENT_MAX
        assert got == sorted(got)
        site.store.close()

    asyncio.run(main())


def with_open_scope() -> World:
    """A scope without a key, and one in clear."""
    scopes = [Scope("plant/#"), Scope("open/#", Mode.PLAIN)]
    return make_world({1: 3}, [], {"site": 1}, scopes, calendar=make().overlay.policy.calendar)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.usefixtures("small")
def test_on_disk_a_scope_that_waits_is_passed_by_the_others_and_comes_in_order_with_its_key(
    tmp_path: Path, is_restarted: bool
) -> None:
    """Attack on availability: one client's entries in a scope without a key, and all others' behind them."""
    world = with_open_scope()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        site.up()
        await site.publish([on("x", n) for n in range(4 * RESIDENT_MAX)])
        site.down(*REPLICAS)
        await site.publish([replace(on("x", n), topic="open/x") for n in range(2 * RESIDENT_MAX)])
        if is_restarted:
            site.store.close()
            site = OutboxLife(tmp_path, world, NOW)
        site.up()
        site.acknowledge()
        assert {topic: len(got) for topic, got in site.sequences("r1a").items()} == {OPEN: 2 * RESIDENT_MAX}
        await site.publish([on("x", 1), replace(on("x", 1), topic="open/x")])
        site.acknowledge()
        world.learn(world.keys, [make().overlay.policy.calendar.epoch_at(NOW)])
        site._perform(site.node.publisher.keys_changed(NOW))
        site.refill()
        site.acknowledge()
        for peer in REPLICAS:
            got = site.sequences(peer)
            assert {topic: len(each) for topic, each in got.items()} == {
                PLANT: 4 * RESIDENT_MAX + 1,
                OPEN: 2 * RESIDENT_MAX + 1,
            }
            assert all(each == sorted(set(each)) for each in got.values())
        assert site.store.depth == 0
        site.store.close()

    asyncio.run(main())


@pytest.mark.parametrize("seed", mostly_slow(range(8), 0, 1, 2))
@pytest.mark.usefixtures("small")
def test_whatever_happens_while_a_scope_waits_each_scope_keeps_its_order_and_memory_is_bounded(
    tmp_path: Path, seed: int
) -> None:
    world, dice = with_open_scope(), random.Random(seed)
    first_sent: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    published = {"plant/x": 0, "open/x": 0}

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)

        def check() -> None:
            for peer in REPLICAS:
                for topic, header in headers(site, peer):
                    if header.sequence not in first_sent[peer, topic]:
                        first_sent[peer, topic].append(header.sequence)
            site.sent.clear()
            waiting = [e for e in site.node.publisher._entries.values() if e.standing is Standing.WAITING]
            assert len(waiting) <= 2 * RESIDENT_MAX

        for _ in range(50):
            turn = dice.choice(["publish", "publish", "up", "down", "acknowledge", "acknowledge", "restart"])
            if turn == "publish":
                topics = [dice.choice(["plant/x", "plant/x", "open/x"]) for _ in range(dice.randrange(1, RESIDENT_MAX))]
                for topic in topics:
                    published[topic] += 1
                assert set(await site.publish([replace(on("x", 0), topic=topic) for topic in topics])) == {0}
            elif turn == "up":
                site.up()
            elif turn == "down":
                site.down(*dice.sample(REPLICAS, dice.randrange(1, 4)))
            elif turn == "acknowledge":
                site.acknowledge(most=dice.randrange(400))
            elif dice.random() < 0.4:
                check()
                site.store.close()
                site = OutboxLife(tmp_path, world, NOW)
            check()
        site.up()
        site.acknowledge()
        check()
        assert len(first_sent["r1a", OPEN]) == published["open/x"], "though the other scope has no key"
        assert not first_sent["r1a", PLANT]
        world.learn(world.keys, [make().overlay.policy.calendar.epoch_at(NOW)])
        site._perform(site.node.publisher.keys_changed(NOW))
        site.refill()
        site.acknowledge()
        check()
        assert site.store.depth == 0
        site.store.close()

    asyncio.run(main())
    for peer in REPLICAS:
        assert len(first_sent[peer, PLANT]) == published["plant/x"]
    assert all(got == sorted(got) for got in first_sent.values())
    assert published["plant/x"] > RESIDENT_MAX


@pytest.mark.usefixtures("small")
def test_a_retained_value_that_is_left_on_disk_is_not_overtaken_by_an_older_one_sealed_anew(tmp_path: Path) -> None:
    world = make()
    calendar = world.overlay.policy.calendar

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        site.up()
        await site.publish([replace(on("state", 0), retain=True)])
        site.acknowledge()
        site.down(*REPLICAS)
        await site.publish([on("busy", n) for n in range(2 * RESIDENT_MAX)])
        await site.publish([replace(on("state", 1, now=NOW + 1), retain=True)])
        site.now = NOW + SIX_HOURS_S + calendar.grace_s + 1
        world.learn(world.keys, [calendar.epoch_at(site.now)])
        site.up()
        site.acknowledge()
        assert site.figures.counts["retained_resealed"] == 0
        site.store.close()

    asyncio.run(main())


# -------------------------------------------------------------------------------------------------- bounds


def test_at_the_bound_in_bytes_what_is_refused_is_counted(tmp_path: Path) -> None:
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW, max_bytes=20_000)
        told = await site.publish([measurement(number, NOW) for number in range(1000)])
        assert site.figures.counts["outbox_refused.full"] == told.count(0x97) > 0
        site.store.close()

    asyncio.run(main())


@pytest.mark.usefixtures("small")
def test_at_the_bound_in_age_the_oldest_go_in_memory_and_on_disk_without_a_link(tmp_path: Path) -> None:
    """So there is room for what is new; the stored time counts on disk, so the outbox's clock is pushed back here."""
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW, max_age_s=3600.0)
        await site.publish([measurement(n, NOW) for n in range(300)])
        backdate(tmp_path, NOW)
        assert site.store.depth == 300
        site.now += 3000
        await site.publish([measurement(n, site.now) for n in range(300, 400)])
        backdate(tmp_path, site.now, 400 - 100)
        site.refill()
        assert site.store.depth == 400
        site.now = NOW + 3700
        site._perform(site.node.publisher.tick(site.now))
        site.refill()
        assert site.figures.counts["outbox_expired.age"] == 300
        assert site.store.depth == 100
        site.up()
        site.acknowledge()
        firsts: dict[str, MessageHeader] = {}
        for topic, header in headers(site, "r1a"):
            firsts.setdefault(topic, header)
        assert len(site.sent["r1a"]) == 100
        sent = {header.sequence for _, header in headers(site, "r1a")}
        assert all(header.previous not in range(1, min(sent)) for header in firsts.values())
        site.store.close()

    asyncio.run(main())


def backdate(directory: Path, now: float, keep: int = 0) -> None:
    """As if all entries but the first `keep` had been stored at `now`."""
    db = sqlite3.connect(directory / "outbox.sqlite3", timeout=10)
    db.execute(
        "UPDATE outbox SET committed_ms = ? "
        "WHERE sequence NOT IN (SELECT sequence FROM outbox ORDER BY sequence LIMIT ?)",
        (int(now * 1000), keep),
    )
    db.commit()
    db.close()


def test_a_message_that_expired_in_the_outbox_is_not_sent_and_nobody_waits_for_it(tmp_path: Path) -> None:
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        site.up()
        await site.publish([on("x", 0)])
        site.acknowledge()
        site.down(*REPLICAS)
        await site.publish([on("x", 1, expiry_s=60), on("x", 2, expiry_s=60), on("x", 3), on("x", 4, expiry_s=600)])
        site.now += 100
        site.up()
        site.acknowledge()
        assert site.figures.counts["outbox_expired.message"] == 2
        (first, second, third) = [header for _, header in headers(site, "r1a")]
        assert (second.previous, third.previous) == (first.sequence, second.sequence)
        assert site.store.depth == 0
        site.store.close()

    asyncio.run(main())


def test_a_damaged_entry_is_said_and_counted_and_the_others_go_on(tmp_path: Path) -> None:
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        await site.publish([on("x", n) for n in range(10)])
        site.store.close()
        db = sqlite3.connect(tmp_path / "outbox.sqlite3")
        db.execute("UPDATE outbox SET previous = 77 WHERE sequence = (SELECT min(sequence) + 3 FROM outbox)")
        db.commit()
        db.close()
        site = OutboxLife(tmp_path, world, NOW)
        site.up()
        site.acknowledge()
        assert len(site.sent["r1a"]) == 9
        assert site.figures.counts["outbox_damaged"] == 1
        assert site.store.depth == 1
        site.store.close()

    asyncio.run(main())
