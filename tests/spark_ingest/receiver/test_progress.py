"""What workers tell together, and when a connection that comes or goes is news."""

from __future__ import annotations

import logging

import pytest

from spark_ingest.receiver.progress import Progress, ReplicaLink, summed, tell_links, too_few
from tests.spark_ingest.region import Overlay


def test_workers_count_together_and_any_trouble_shows() -> None:
    one = Progress(groups=1, rows=10, bytes=100, fsync_s=0.5, waiting=3, accepted=True)
    two = Progress(groups=2, rows=20, bytes=200, fsync_s=0.25, waiting=4, full=True, clock_off=True)
    assert summed([one, one]) == Progress(2, 20, 200, 1.0, 6, accepted=True)
    assert summed([one, two]) == Progress(3, 30, 300, 0.75, 7, full=True, clock_off=True)


def test_links_are_told_when_they_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    progress = Progress()
    for up, accepted in ((True, False), (True, True), (False, True), (False, True)):
        tell_links("main", progress, iter([ReplicaLink("r1", up, 1, 2)]), accepted)
    assert [record.getMessage() for record in caplog.records] == [
        "receiver main: connected to r1",
        "receiver main: subscribed at enough replicas",
        "receiver main: no connection to r1",
    ]
    assert progress.links == (ReplicaLink("r1", False, 1, 2),)
    assert progress.accepted


def test_fewer_replicas_than_a_publication_takes_are_too_few() -> None:
    """Of three replicas two make a publication whole."""
    signed, home = Overlay().signed, Overlay().home

    def told(*up: str) -> str | None:
        return too_few([ReplicaLink(name, name in up, 0, 0) for name in ("r1", "r2", "r3")], signed, home)

    assert told("r1", "r2", "r3") is None
    assert told("r1", "r3") is None
    assert "r1, r3" in (told("r2") or "")
    assert "r1, r2, r3" in (told() or "")
    assert too_few([], signed, home) is None, "a worker has no connections: its receiver has them"
