"""A gateway without uplink for a day: what devices are told, what is kept, and how it drains. Time is injected.

Policy: what was acknowledged is kept until enough replicas have it, whatever its age; at the bound in bytes the newest
is refused (0x97), so a device knows, and nothing acknowledged is lost.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.contract.batches import Chain
from bridge.contract.machine import (
    Acked,
    Count,
    Effect,
    Event,
    Forget,
    LeaveOnDisk,
    LinkDown,
    LinkUp,
    Publication,
    ReadPage,
    Send,
    Tick,
)
from bridge.document.policy import Scope
from bridge.node import GatewayNode
from bridge.publisher.windows import WINDOW_MAX
from gateway.base.figures import Figures
from gateway.data import DataDirectory
from gateway.outbox.outgoing import Outgoing
from gateway.outbox.store import Store
from keys.envelope import PROPERTY_HEADER, PROPERTY_KEY, KeyHeader, MessageHeader, SignedHeader, from_property
from keys.epochs import Calendar
from tests.bridge.helpers import NOW
from tests.sim.world import World, make_world
from tests.waits import until

REPLICAS = ("r1a", "r1b", "r1c")
SIX_HOURS_S = 6 * 3600
DAY_S = 24 * 3600
ENTRIES = 4_320
"""One every 20 s for a day: a gateway of 25 devices that each report every 500 s. 1/20 of what a busy one has."""
TOPICS = 25
CALENDAR = Calendar(length_s=SIX_HOURS_S, zero_ms=int(NOW * 1000) - 1000 * SIX_HOURS_S * 1000, ahead_s=60, grace_s=60)


def make() -> World:
    world = make_world({1: 3}, [], {"site": 1}, [Scope("plant/#"), Scope("live/#")], calendar=CALENDAR)
    world.learn(world.keys, [CALENDAR.epoch_at(NOW)])
    return world


class OutboxLife:
    """One life of a gateway's outbox and node, with replicas that acknowledge when the test says so."""

    def __init__(
        self, directory: Path, world: World, now: float, max_age_s: float | None = None, batches: bool = False,
        **options: int,
    ) -> None:  # fmt: skip
        """`batches`: whether publications of one commit go together; else each is an entry that the test can count."""
        self.now, self.world = now, world
        self.store = Store(DataDirectory.open(directory), **options)
        rng = random.Random("site")
        self.node = GatewayNode(
            world.overlay, world.identities["site"], "site", world.secrets, world.keys_of("site"), rng.randbytes,
            max_age_s=max_age_s, shelf=self.store,
        )  # fmt: skip
        self.figures = Figures("site", "gateway")
        self._batches = batches
        self.outgoing = Outgoing(self.store, self.figures, self._handle, self._chain_of)
        self.sent: defaultdict[str, list[Send]] = defaultdict(list)
        self.unacknowledged: defaultdict[str, deque[int]] = defaultdict(deque)
        self.most_in_flight = self.most_resident = 0
        self._pages: deque[int] = deque()

    def _handle(self, event: Event) -> None:
        self._perform(self.node.handle(event, self.now))
        self.most_resident = max(self.most_resident, self.node.publisher.depth)

    def _chain_of(self, topic: str) -> Chain:
        chain = self.node.chain_of(topic, 1 << 20)
        return chain if self._batches else chain._replace(records=1)

    def refill(self) -> None:
        """What the driver does between other events."""
        self._handle(Tick())
        while self._pages:
            self.outgoing.read_page(self._pages.popleft())

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and effect.ticket:
                self.sent[effect.peer].append(effect)
                self.unacknowledged[effect.peer].append(effect.ticket)
                self.most_in_flight = max(self.most_in_flight, len(self.unacknowledged[effect.peer]))
            elif isinstance(effect, Forget):
                self.store.forget_entries(effect.sequences)
            elif isinstance(effect, LeaveOnDisk):
                self.outgoing.leave_on_disk(effect.sequences)
            elif isinstance(effect, ReadPage):
                self._pages.append(effect.start)
            elif isinstance(effect, Count):
                self.figures.count_effect(effect)

    async def publish(self, publications: Sequence[Publication]) -> list[int]:
        """What the devices are told, in the order of the answers."""
        codes: list[int] = []
        for publication in publications:
            self.outgoing.take_publication(publication, codes.append)
        await until(lambda: len(codes) >= len(publications), 30)
        return codes

    def up(self, *peers: str) -> None:
        for peer in peers or REPLICAS:
            self._handle(LinkUp(peer))
        self.refill()

    def down(self, *peers: str) -> None:
        for peer in peers:
            self.unacknowledged.pop(peer, None)
            self._handle(LinkDown(peer))

    def acknowledge(self, *peers: str, most: int = 1 << 30) -> int:
        """Each of `peers` acknowledges, one at a time in turn, until there is nothing more; how many that were."""
        count = 0
        while count < most:
            waiting = [self.unacknowledged[peer] for peer in peers or REPLICAS if self.unacknowledged[peer]]
            if not waiting:
                break
            for peer in peers or REPLICAS:
                if self.unacknowledged[peer]:
                    self._handle(Acked(peer, self.unacknowledged[peer].popleft()))
                    count += 1
            self.refill()
        return count

    def sequences(self, peer: str) -> dict[str, list[int]]:
        """By topic, as the replica got them."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for send in self.sent[peer]:
            header = SignedHeader.decode(from_property(dict(send.wire.properties)[PROPERTY_HEADER])).header
            found[send.wire.topic].append(header.sequence)
        return dict(found)

    def epochs(self) -> set[int]:
        """Of all keys that were announced."""
        properties = [dict(send.wire.properties) for sends in self.sent.values() for send in sends]
        return {KeyHeader.decode(from_property(p[PROPERTY_KEY])).epoch for p in properties if PROPERTY_KEY in p}


def headers(site: OutboxLife, peer: str) -> Iterator[tuple[str, MessageHeader]]:
    """Of all that a replica was sent, with wire topics."""
    for send in site.sent[peer]:
        told = dict(send.wire.properties)[PROPERTY_HEADER]
        yield send.wire.topic, SignedHeader.decode(from_property(told)).header


def measurement(number: int, now: float) -> Publication:
    return Publication(f"plant/{number % TOPICS}", b"%d" % number, 1, time_ms=int(now * 1000))


def test_a_day_without_uplink_and_a_restart_lose_nothing_and_drain_in_order_under_the_present_epoch(
    tmp_path: Path,
) -> None:
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        for start in range(0, ENTRIES, 240):
            if start == ENTRIES // 2:
                site.store.close()  # the outbox is what is on disk; `kill -9` is in test_store and test_region
                site = OutboxLife(tmp_path, world, site.now)
                assert site.store.depth == start
            batch = [measurement(number, site.now) for number in range(start, start + 240)]
            assert set(await site.publish(batch)) == {0}
            site.now += DAY_S / ENTRIES * 240
        assert CALENDAR.epoch_at(site.now) == CALENDAR.epoch_at(NOW) + 4
        assert not site.sent
        world.learn(world.keys, [CALENDAR.epoch_at(site.now)])
        site.up()
        assert site.most_in_flight <= WINDOW_MAX
        assert site.acknowledge() == 3 * ENTRIES
        assert site.most_in_flight <= WINDOW_MAX
        for replica in REPLICAS:
            got = site.sequences(replica)
            assert [len(one) for one in got.values()] == [ENTRIES], "one scope, one chain"
            assert all(one == sorted(set(one)) for one in got.values())
        assert site.epochs() == {CALENDAR.epoch_at(site.now)}
        assert site.store.depth == site.store.held_bytes == 0
        site.store.close()
        again = OutboxLife(tmp_path, world, site.now)
        assert again.store.first_from(0) is None  # also on disk
        again.store.close()

    asyncio.run(main())


def test_an_epoch_that_ends_while_it_drains_costs_neither_order_nor_entries(tmp_path: Path) -> None:
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        await site.publish([measurement(number, NOW) for number in range(2 * WINDOW_MAX)])
        site.up()
        site.acknowledge(most=300)
        site.now = NOW + SIX_HOURS_S + CALENDAR.grace_s + 1
        world.learn(world.keys, [CALENDAR.epoch_at(site.now)])
        site.up()  # the links came back, too
        site.acknowledge()
        for replica in REPLICAS:
            for topic, got in site.sequences(replica).items():
                once = list(dict.fromkeys(got))
                assert once == sorted(once), topic
                assert len(once) == 2 * WINDOW_MAX
        assert site.store.depth == 0
        site.store.close()

    asyncio.run(main())


def test_at_the_bound_devices_are_told_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW, max_bytes=20_000)
        told = await site.publish([measurement(number, NOW) for number in range(1000)])
        taken = told.count(0)
        assert 50 < taken < 1000
        assert sorted(set(told)) == [0, 0x97]
        assert site.store.held_bytes <= 20_000
        site.up()
        assert site.acknowledge() == 3 * taken
        (first, *_) = site.sequences("r1a").values()
        assert len(first) == taken  # the oldest is what was kept
        assert await site.publish([measurement(1, NOW)]) == [0]
        site.store.close()

    asyncio.run(main())


@pytest.mark.parametrize("silent", REPLICAS)
def test_a_replica_that_never_acknowledges_holds_up_neither_devices_nor_the_others(tmp_path: Path, silent: str) -> None:
    """Attack: with n = 3 one replica may be bad; its window fills, and that is all."""
    world = make()
    others = tuple(replica for replica in REPLICAS if replica != silent)

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        site.up()
        for start in range(0, 2_000, 500):
            assert set(await site.publish([measurement(n, NOW) for n in range(start, start + 500)])) == {0}
            site.acknowledge(*others)
        assert len(site.sent[silent]) == WINDOW_MAX
        assert [len(site.sent[replica]) for replica in others] == [2_000, 2_000]
        assert site.most_in_flight <= WINDOW_MAX
        site.store.close()

    asyncio.run(main())


def test_what_comes_in_while_a_backlog_drains_is_sent_in_order_and_once(tmp_path: Path) -> None:
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        await site.publish([measurement(number, NOW) for number in range(1_000)])
        site.up()
        for start in range(1_000, 1_500, 50):
            await site.publish([measurement(number, NOW) for number in range(start, start + 50)])
            site.acknowledge(most=90)
        site.acknowledge()
        for replica in REPLICAS:
            got = site.sequences(replica)
            assert sum(map(len, got.values())) == 1_500
            assert all(one == sorted(set(one)) for one in got.values())
        assert site.store.depth == 0
        site.store.close()

    asyncio.run(main())


def test_links_that_come_and_go_repeat_only_what_was_not_acknowledged(tmp_path: Path) -> None:
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW)
        await site.publish([measurement(number, NOW) for number in range(600)])
        for _ in range(5):
            site.up()
            site.acknowledge(most=3 * 100)
            site.down(*REPLICAS)
        site.up()
        site.acknowledge()
        for replica in REPLICAS:
            repeats = len(site.sent[replica]) - 600
            assert 0 <= repeats <= 5 * WINDOW_MAX
            assert sum(len(set(one)) for one in site.sequences(replica).values()) == 600
        assert site.store.depth == 0
        site.store.close()

    asyncio.run(main())


def test_what_a_former_process_left_comes_before_what_is_new_in_its_scope(tmp_path: Path) -> None:
    world = make()

    async def main() -> None:
        before = OutboxLife(tmp_path, world, NOW)
        await before.publish([replace(measurement(n, NOW), retain=n == 1) for n in range(3)])
        before.store.close()
        site = OutboxLife(tmp_path, world, NOW, batches=True)
        await site.publish([measurement(n, NOW) for n in range(3, 6)])
        site.up()
        site.acknowledge()
        for replica in REPLICAS:
            sent = [header for _, header in headers(site, replica)]
            assert [header.sequence for header in sent] == sorted(header.sequence for header in sent)
            assert [header.previous for header in sent] == [0, *[header.sequence for header in sent[:-1]]]
            assert [header.retain for header in sent] == [False, True, False, False]
        site.store.close()

    asyncio.run(main())


def test_what_is_retained_follows_the_batch_before_it_and_the_next_one_follows_it(tmp_path: Path) -> None:
    world = make()

    async def main() -> None:
        site = OutboxLife(tmp_path, world, NOW, batches=True)
        asked = [Publication("plant/a", b"x", 1, retain, time_ms=1) for retain in (False, True, False)]
        await site.publish(asked)
        first, second, third = _rows(site)
        assert (second[1], third[1]) == (first[0], second[0])
        site.store.close()

    asyncio.run(main())


def _rows(site: OutboxLife) -> list[tuple[int, int]]:
    return site.store._outbox._reader.execute("SELECT sequence, previous FROM outbox ORDER BY sequence").fetchall()
