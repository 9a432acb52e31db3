"""A scope is added inside another while batches wait for a job: their rows have the rights of the time of sealing."""

from __future__ import annotations

import pytest

from bridge.wire.admission import BUMP_GRACE_S
from spark_ingest.receiving import Seen
from spark_ingest.receiving.collector import SpoolCollector
from tests.bridge.helpers import NOW
from tests.bridge.wire.test_scopes_that_came import ADOPTED, batch, split, world_of


@pytest.mark.attack(114)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_writes_the_rights_of_the_time_of_sealing(restarts: bool) -> None:
    """Whoever opens the row judges by them: see `spark_ingest.opening`."""
    world = world_of()
    job = SpoolCollector(world.overlay, 1)
    job.do_due_work(NOW)
    newer, _ = split(world)
    if restarts:
        job = SpoolCollector(newer, 1, seen=Seen.from_json(job.seen.to_json()))
        job.do_due_work(ADOPTED)
    else:
        job.adopt_overlay(newer, ADOPTED)
    at = ADOPTED + BUMP_GRACE_S
    for sealed_at, sequence in ((NOW + 20, 5), (at, 6)):
        job.receive("r1a", batch(world, sealed_at, sequence=sequence), lambda: None, at)
    group = job.take_group(10)
    assert group is not None
    allowed = [entry.admitted.rights.allow(world.secrets[0].wire_topic("open/a/t")) for entry in group.entries]
    assert allowed == [True, False]
