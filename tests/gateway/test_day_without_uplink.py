"""A busy gateway without uplink for a day: 5 publications a second on 200 topics. Time is injected, the disk is real.

The day crosses four ends of epochs, a restart and a newer policy; then it drains while devices go on. The same in small
is in `test_store_and_forward`, attacks on order and bounds are in `test_backlog`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bridge.contract.machine import Effect, Publication, Send
from bridge.publisher.residents import RESIDENT_MAX
from bridge.publisher.windows import WINDOW_MAX
from gateway.outbox.database import PAGE_ROWS
from keys.envelope import PROPERTY_HEADER, SignedHeader, from_property
from tests.bridge.helpers import NOW
from tests.gateway.test_store_and_forward import CALENDAR, DAY_S, REPLICAS, OutboxLife, make
from tests.sim.world import World

pytestmark = pytest.mark.invariant(39)

PER_S = 5
TOPICS = 200
LIVE_TOPICS = 20
TURN_S = 0.2
"""Time goes on while it drains: no gateway sends more a second than its owner lets it."""


class Recorder(OutboxLife):
    """Keeps the numbers of what was sent instead of the wires, and how many others each one had to wait for."""

    def __init__(self, directory: Path, world: World, now: float) -> None:
        self.got: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self.sends = 0
        super().__init__(directory, world, now)

    def _perform(self, effects: Sequence[Effect]) -> None:
        super()._perform(effects)
        for peer, sends in self.sent.items():
            for send in sends:
                self.got[peer, send.wire.topic].append(_sequence(send))
            self.sends += len(sends) if peer == REPLICAS[0] else 0
            sends.clear()


def _sequence(send: Send) -> int:
    return SignedHeader.decode(from_property(dict(send.wire.properties)[PROPERTY_HEADER])).header.sequence


def _measurements(entries: int) -> Iterator[tuple[float, Publication]]:
    for number in range(entries):
        now = NOW + number * DAY_S / entries
        yield now, Publication(f"plant/{number % TOPICS}", b"%d" % number, 1, time_ms=int(now * 1000))


@pytest.mark.parametrize(
    "entries", [6_000, pytest.param(DAY_S * PER_S, marks=(pytest.mark.slow, pytest.mark.timeout(1_800)))]
)
def test_a_day_drains_in_order_and_once_within_memory_beside_devices_that_go_on(tmp_path: Path, entries: int) -> None:
    world = make()

    async def main() -> None:
        site = Recorder(tmp_path, world, NOW)
        batch: list[Publication] = []
        for number, (now, publication) in enumerate(_measurements(entries), 1):
            site.now = now
            batch.append(publication)
            if len(batch) == 1_000:
                assert set(await site.publish(batch)) == {0}
                batch.clear()
            if number == entries // 3:
                newer = world.with_policy()
                site._perform(site.node.publisher.adopt_overlay(newer, world.secrets_under(newer), now))
            if number == entries // 2:
                site.store.close()
                site = Recorder(tmp_path, world, now)
        assert CALENDAR.epoch_at(site.now) == CALENDAR.epoch_at(NOW) + 3
        assert site.store.depth == entries
        this = CALENDAR.epoch_at(site.now)
        world.learn(world.keys, [this, this + 1])  # the day ends as an epoch does, and what is left drains in the next
        site.up()
        waits, number = [], 0
        while site.store.depth > LIVE_TOPICS:
            before, number = site.sends, number + 1
            topic = f"live/{number % LIVE_TOPICS}"
            heard = len(site.got[REPLICAS[0], "veilmq/batch/2"])
            await site.publish([Publication(topic, b"", 1, time_ms=int(site.now * 1000))])
            while len(site.got[REPLICAS[0], "veilmq/batch/2"]) == heard and site.acknowledge(most=3):
                pass
            site.now += TURN_S
            waits.append(site.sends - before)
            site.acknowledge(most=3 * 200)
        site.acknowledge()
        assert site.store.depth == site.store.held_bytes == 0
        for replica in REPLICAS:
            got = site.got[replica, "veilmq/batch/1"]
            assert list(dict.fromkeys(got)) == sorted(set(got))
            assert len(set(got)) == entries
            assert len(got) - entries <= WINDOW_MAX, "but for what was in flight as the epoch ended, sealed anew"
            assert len(set(site.got[replica, "veilmq/batch/2"])) == number
        assert max(waits) <= WINDOW_MAX, "publications of the backlog that a new one had to wait for"
        assert site.most_resident <= RESIDENT_MAX // 2 + PAGE_ROWS + LIVE_TOPICS
        site.store.close()

    asyncio.run(main())
