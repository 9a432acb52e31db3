"""A broker with thousands of traced entities is killed: all are traced again, and none is told as failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.tracking.entity import Stage, Wishes
from tests.bench.fleet import Fleet, entities
from tests.bench.herd import COUNTED, Traced, entity_limit
from tests.gateway.traced_site import Site

ENTITIES = 2_000
WAIT_S = 180.0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_come_back_to_a_broker_that_restarts_and_nobody_has_failed(tmp_path: Path) -> None:
    number = entity_limit(ENTITIES)
    site = Site(tmp_path)
    broker = Traced(site, None, number)
    fleet = Fleet(broker.port, entities(site.domain, site.gateway, number, Wishes(("desk",))))
    try:
        fleet.run(WAIT_S, lambda: fleet.traced == number)
        assert fleet.traced == number
        before, pings = broker.running.resident_bytes(), fleet.pings
        broker.restart()
        fleet.run(WAIT_S, lambda: fleet.lost >= number)
        fleet.run(WAIT_S, lambda: fleet.traced == number)
        assert fleet.traced == number
        assert all(member.entity.stage is Stage.TRACED for member in fleet.members)
        fleet.run(WAIT_S, lambda: fleet.pings >= pings + 10 * number)
        assert broker.counted(COUNTED[1]) == 0, "nobody failed"
        assert broker.counted(COUNTED[2]) == 0, "and nothing was refused"
        assert broker.running.resident_bytes() < 2 * before
    finally:
        fleet.close()
        broker.stop()


def test_a_fleet_is_traced_by_a_broker_in_a_process_of_its_own(tmp_path: Path) -> None:
    """What the slow test and the bench stand on."""
    number = 50
    site = Site(tmp_path)
    broker = Traced(site, None, number)
    fleet = Fleet(broker.port, entities(site.domain, site.gateway, number, Wishes(("desk",)), ("pump-0",)))
    try:
        fleet.run(WAIT_S, lambda: fleet.traced == number and fleet.pings >= 5 * number)
        assert (fleet.traced, fleet.lost) == (number, 0)
        assert broker.counted(COUNTED[2]) == 0
    finally:
        fleet.close()
        broker.stop()
