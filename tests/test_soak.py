"""What a soak judges by: growth of figures, and books of receivers. The soak itself takes minutes: `make soak`."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.mqtt5.packets import PubComp, PubRec, PubRel, Version
from tests.bench.soak_clients import Flow, Herd, Receiver, faults
from tests.bench.soak_figures import BOUNDS, Sample, disk_mb, grown
from tests.bench.soak_member import counted
from tests.gateway.harness import on_loop, serving
from tests.waits import until

STEADY = Sample(100.0, 50, 200_000, 60, 4, 20.0, 900.0, 12.0)


def test_what_stays_within_its_bounds_has_not_grown() -> None:
    assert not list(grown(STEADY, STEADY))


@pytest.mark.parametrize("figure", BOUNDS)
def test_each_figure_beyond_its_bound_is_named(figure: str) -> None:
    factor, addend = BOUNDS[figure]
    now = getattr(STEADY, figure) * factor + addend
    assert not list(grown(STEADY, dataclasses.replace(STEADY, **{figure: now})))
    (line,) = grown(STEADY, dataclasses.replace(STEADY, **{figure: now + 1}))
    assert line.startswith(f"{figure} grew")


@pytest.mark.parametrize(
    ("qos", "came", "found"),
    [
        (1, [0, 0, 1, 2, 3], []),
        (2, [0, 0, 1, 2, 3], []),
        (1, [1, 2, 1, 2, 3], []),
        (2, [1, 2, 2, 3], ["1 twice"]),
        (1, [1, 3], ["1 lost, the first 2"]),
        (2, [2, 1, 3], ["out of order: 1 behind a later one"]),
        (2, [1, 2, 3, 4], []),
    ],
)
def test_books_of_a_flow_are_judged(qos: int, came: list[int], found: list[str]) -> None:
    assert list(faults(qos, {1, 2, 3}, came)) == found


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("qos", [1, 2])
@on_loop
async def test_clients_finish_what_they_began_over_connections_that_break(version: Version, qos: int) -> None:
    async with serving() as broker:
        port = broker.port("default")
        receiver = Receiver(port, "soak-reader", version, ("soak/#",))
        flow = Flow(port, "soak/one", version, qos, 500.0)
        tasks = [asyncio.create_task(line.run()) for line in (receiver, flow)]
        await until(lambda: receiver.subscribed)
        await flow.probe([receiver])
        stopped = asyncio.Event()
        tasks.append(asyncio.create_task(flow.press(stopped)))
        for line in (flow, receiver):
            before = line.connections
            sent = flow.sent
            await until(lambda sent=sent: flow.sent > sent + 5)  # type: ignore[misc]
            line.cut()
            await until(lambda line=line, before=before: line.connections > before)  # type: ignore[misc]
        stopped.set()
        await until(lambda: not flow.unfinished and flow.acknowledged <= set(receiver.books["soak/one"]))
        assert not list(faults(qos, flow.acknowledged, receiver.books["soak/one"]))
        assert not flow.lost_sessions + receiver.lost_sessions
        for task in tasks:
            task.cancel()


def test_a_refused_publication_is_not_taken_for_acknowledged() -> None:
    flow = Flow(1, "soak/one", Version.V5, 2, 1.0)
    flow.publish(b"1", 1)
    flow.publish(b"2", 2)
    (first, second) = flow.unfinished
    flow.take(PubRec(first, 0x97))
    flow.take(PubRec(second))
    assert flow.refused == {1}
    assert flow.acknowledged == {2}
    assert isinstance(flow.unfinished[second][1], PubRel)
    flow.take(PubComp(second))
    assert not flow.unfinished


@on_loop
async def test_a_storm_connects_all_again() -> None:
    async with serving() as broker:
        herd = Herd(broker.port("default"), 40, step=15)
        for _ in range(2):
            await herd.storm()
            assert herd.refused == 0
            await until(lambda: sum(not one.closed for one in broker.lifecycle.connections) == 40)
        herd.cut()


def test_what_is_on_disk_is_counted_with_its_folders(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "one").write_bytes(bytes(1_000_000))
    (tmp_path / "two").write_bytes(bytes(500_000))
    assert disk_mb(tmp_path) == 1.5


@on_loop
async def test_unfinished_tasks_are_counted_and_finished_ones_are_not() -> None:
    before = counted()["tasks"]
    forever = asyncio.create_task(asyncio.Event().wait())
    done = asyncio.create_task(asyncio.sleep(0))
    await done
    assert counted()["tasks"] == before + 1
    forever.cancel()


def test_a_soak_of_less_than_three_minutes_is_refused_in_one_line() -> None:
    asked = [sys.executable, "-m", "tests.bench.soak", "--minutes", "2"]
    refused = subprocess.run(
        asked, capture_output=True, text=True, check=False, timeout=60, cwd=Path(__file__).parents[1], env=os.environ
    )
    assert refused.returncode == 2
    assert "at least 3" in refused.stderr
