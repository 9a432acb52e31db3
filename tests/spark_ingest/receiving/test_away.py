"""A job that was away: what replicas and stock brokers kept for it becomes rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bridge.contract.machine import LinkUp, Wire
from bridge.document.policy import Scope
from bridge.wire.admission import KEPT_S, LATE_S
from gateway.overlay import SESSION_EXPIRY_S
from keys.derivation import Derivation
from keys.envelope import Mode
from keys.epochs import Calendar
from keys.replay import BLOCK_NUMBERS
from spark_ingest.receiver.recovery import recovered, state_of
from spark_ingest.receiving.collector import SpoolCollector
from spark_ingest.receiving.seen import BLOCKS_MAX, Seen
from tests.bridge.helpers import NOW, craft, gateway, publish
from tests.sim.world import World, make_world
from tests.support.regions import fresh

REPLICAS = ("r1a", "r1b", "r1c")
HOUR_S, DAY_S = 3600.0, 86_400.0
BEGAN = NOW - HOUR_S


def world_with(hosted: Sequence[str]) -> World:
    return make_world({1: 3}, [], {"site": 1, "g2": 1}, hosted=tuple(hosted))


class Job:
    """A receiver in memory. `seen`: what a former one wrote."""

    def __init__(self, world: World, seen: Seen | None = None) -> None:
        if seen is None:
            seen = Seen()
            seen.begins(int(BEGAN * 1000))
        self.collector = SpoolCollector(world.overlay, 1, seen=seen)
        self.collector.learn({name: Derivation(key).check_value for name, key in world.keys})
        self.acknowledged = 0

    def bring(self, wires: dict[str, Wire], now: float, peers: Sequence[str] = REPLICAS) -> list[tuple[int, str]]:
        """These replicas bring it, and 11 s pass. Rows: number, and the first word of the reason, '' for none."""
        for peer in peers:
            self.collector.receive(peer, wires[peer], self._acknowledge, now)
        self.collector.do_due_work(now + 11)
        group = self.collector.take_group(100)
        if group is None:
            return []
        for ack in self.collector.note_written(group):
            ack()
        assert all(record.sealed is not None for record in group.records if record.reason is None)
        return [(record.sequence, (record.reason or "").partition(":")[0]) for record in group.records]

    def _acknowledge(self) -> None:
        self.acknowledged += 1


def away(world: World, sealed: float) -> tuple[Job, dict[str, Wire]]:
    """A job that wrote number 1, and what was sealed as number 2 then."""
    site, job = gateway(world, "site"), Job(world)
    for replica in REPLICAS:
        site.handle(LinkUp(replica), NOW)
    assert job.bring(publish(site, "plant/t", b"before", sequence=1), NOW) == [(1, "")]
    return job, publish(site, "plant/t", b"meanwhile", sequence=2, previous=1, now=sealed)


@pytest.mark.attack(92)
@pytest.mark.parametrize("hours", [3, 24, 6 * 24])
@pytest.mark.parametrize("hosted", [(), REPLICAS, ("r1b", "r1c")], ids=["own", "hosted", "mixed"])
def test_what_was_kept_while_a_job_was_away_is_a_row_whoever_kept_it(hosted: tuple[str, ...], hours: int) -> None:
    job, kept = away(world_with(hosted), NOW + 60)
    later = NOW + 3600 * hours
    assert job.bring(kept, later) == [(2, "")]
    assert job.acknowledged == 6
    assert job.bring(kept, later) == [], "once"


@pytest.mark.parametrize("liar", ["r1a", "r1b"], ids=["a replica of ours", "a stock broker"])
def test_in_a_mixed_region_one_liar_that_withholds_keeps_nothing_back(liar: str) -> None:
    """Two of ours and a stock broker: one liar of ours leaves one that could vouch, where two would have to."""
    job, kept = away(world_with(["r1b"]), NOW + 60)
    honest = [replica for replica in REPLICAS if replica != liar]
    assert job.bring(kept, NOW + 5 * HOUR_S, honest) == [(2, "")]


def test_a_job_that_was_started_again_knows_since_when_it_reads(world: World) -> None:
    """Its state says so: replicas kept for the session, which outlived the process."""
    job, kept = away(world, NOW + 60)
    later = NOW + 3 * HOUR_S
    seen, _ = recovered(state_of(job.collector.seen, job.collector.keys()), [], now_ms=int(later * 1000))
    again = Job(world, seen)
    assert seen.since_ms == BEGAN * 1000
    assert again.bring(kept, later) == [(2, "")]


world = fresh(world_with, REPLICAS)


@pytest.mark.attack(92)
def test_what_was_sealed_before_a_job_began_comes_as_late_as_before(world: World) -> None:
    """It is new to the job, and may be anything that a liar carried: nothing of then was ever written."""
    job, kept = away(world, BEGAN - 1)
    assert job.bring(kept, BEGAN - 1 + KEPT_S + 1) == [(2, "epoch")]


@pytest.mark.parametrize("off_s", [-60, 60])
def test_nobody_brings_what_is_older_than_a_session_and_its_way(world: World, off_s: int) -> None:
    job, kept = away(world, NOW + 60)
    later = NOW + 60 + SESSION_EXPIRY_S + LATE_S + off_s
    assert job.bring(kept, later) == [(2, "" if off_s < 0 else "epoch")]


def test_what_is_of_a_dead_epoch_still_needs_replicas_that_vouch() -> None:
    """Age alone is forgiven. Who was shut out with an epoch could date back what it makes now."""
    calendar = Calendar(int((NOW - DAY_S) * 1000), length_s=int(2 * DAY_S), ahead_s=60, grace_s=300, skew_s=5)
    scopes = [Scope("clear/#", Mode.PLAIN)]
    world = make_world({1: 3}, [], {"site": 1, "g2": 1}, scopes, calendar=calendar, hosted=REPLICAS)
    job = Job(world)

    def bring(sequence: int, sealed: float, now: float) -> list[tuple[int, str]]:
        wire = craft(world, "site", "clear/t", sequence=sequence, mode=Mode.PLAIN, now=sealed)
        return job.bring(dict.fromkeys(REPLICAS, wire), now)

    assert bring(1, NOW, NOW) == [(1, "")]
    assert bring(2, NOW + 60, NOW + 5 * HOUR_S) == [(2, "")]
    assert bring(3, NOW + 120, NOW + DAY_S + 306) == [(3, "epoch")]


@pytest.mark.attack(92)
def test_what_the_account_of_a_publisher_has_forgotten_counts_as_written(world: World) -> None:
    """32,768 blocks of 4,096 numbers: what is below them nobody brings back, however old or young it says it is."""
    job, kept = away(world, NOW + 60)
    author = next(iter(job.collector.seen._windows))
    for block in range(1, BLOCKS_MAX + 1):
        job.collector.seen.mark_written(author, block * BLOCK_NUMBERS, "plant/t", False)
    assert job.bring(kept, NOW + 3 * HOUR_S) == []
    assert job.collector.figures["duplicates_dropped", ""] == 3
