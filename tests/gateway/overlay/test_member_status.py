"""How a party stands: regions and key servers as far as it dials them, its outbox, its keys."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.contract.machine import Acked, Committed, Publication
from bridge.document import SwapNews
from bridge.document.policy import Scope
from gateway.base import HistoryState
from gateway.overlay.member_status import _servers_needed, standing
from keys.epochs import Calendar
from tests.bridge.helpers import gateway, replica
from tests.sim.organised_world import BOSS, endorsements, swap_on
from tests.sim.organised_world import organised as organised_world
from tests.sim.world import NOT_AFTER_MS, NOW, World, make_world
from tests.support.regions import fresh, row_of_regions

HOUR_S = 3600
CALENDAR = Calendar(length_s=HOUR_S, ahead_s=600, grace_s=60)


class Dials(dict[str, Any]):
    def __init__(self, up: tuple[str, ...], *away: str) -> None:
        super().__init__({name: SimpleNamespace(last_error="", clock_ahead_s=0.5) for name in up})
        self.update({name: SimpleNamespace(last_error="cannot be reached", clock_ahead_s=None) for name in away})
        self.connected_peers = up


def stands(
    world: World,
    name: str,
    dials: Dials,
    now: float = NOW,
    depth: int = 0,
    node: Any = None,
    waits: dict[int, float] | None = None,
) -> Any:
    rows = waits or {3: 20.0}

    def first(start: int) -> tuple[int, int] | None:
        return next(((number, int((now - rows[number]) * 1000)) for number in sorted(rows) if number >= start), None)

    store = SimpleNamespace(depth=depth, held_bytes=7, first_from=first)
    reach = [HistoryState("plant/#", 1, 2, 3)]
    figures = SimpleNamespace(
        name=name, role="gateway", named={"liar": "why"}, counts=Counter(), histories=lambda: reach, readers=tuple
    )
    made = node or (gateway(world, name) if name.startswith("g") else replica(world, name))
    links = SimpleNamespace(
        parts=(made, store, SimpleNamespace(overlay=world.overlay), dials),
        figures=figures,
        rights=lambda: (),
        refusal_reasons=lambda at: {"g9": "clock is ahead"} if at == now else {},
    )
    return standing(links, now, 99)  # type: ignore[arg-type]


world = fresh(row_of_regions, 2, {"g1": 1}, calendar=CALENDAR)


def test_a_region_is_what_we_dial_of_it_with_what_it_needs(world: World) -> None:
    found = stands(world, "g1", Dials(("r1a", "keys"), "r1b", "stranger"))
    (region,) = found.regions
    assert (region.name, region.members, region.up, region.needed) == ("region-1", ("r1a", "r1b"), ("r1a",), 2)
    assert region.away == {"r1b": "cannot be reached"}
    assert found.key_servers is not None
    assert (found.key_servers.up, found.key_servers.needed) == (("keys",), 1)
    assert found.clocks == {"r1a": 0.5, "keys": 0.5}
    assert (found.name, found.version, found.named) == ("g1", 1, {"liar": "why"})
    assert found.refused == {"g9": "clock is ahead"}
    assert found.histories == (HistoryState("plant/#", 1, 2, 3),)
    assert found.ends == {"certificate of g1 in the overlay": NOT_AFTER_MS / 1000}


def test_regions_stand_in_order_and_without_key_servers_there_are_none(world: World) -> None:
    found = stands(world, "g1", Dials(("r2a", "r1a")))
    assert [region.name for region in found.regions] == ["region-1", "region-2"]
    assert found.key_servers is None


def test_the_oldest_in_the_outbox_says_how_long_it_waits(world: World) -> None:
    assert stands(world, "g1", Dials(()), depth=2).oldest_s == pytest.approx(20, abs=0.01)
    assert stands(world, "g1", Dials(())).oldest_s == 0.0
    assert stands(world, "g1", Dials(())).outbox_bytes_max == 99


def test_what_only_a_replica_that_is_away_lacks_does_not_wait() -> None:
    world = make_world({1: 3}, [], {"g1": 1}, [Scope("plant/#")])
    node = gateway(world, "g1")
    publication = Publication("plant/t", b"", 1, time_ms=int(NOW * 1000))
    node.handle(Committed(((1, 0, publication), (2, 0, publication))), NOW)
    store: dict[int, float] = {1: 500.0, 2: 90.0}

    def oldest() -> float:
        return float(stands(world, "g1", Dials(("r1a", "r1b"), "r1c"), depth=2, node=node, waits=store).oldest_s)

    assert oldest() == pytest.approx(500, abs=0.01)
    for peer in ("r1a", "r1b"):
        node.handle(Acked(peer, 1), NOW)
    assert oldest() == pytest.approx(90, abs=0.01), "two of three have the first; only the third lacks it"
    for peer in ("r1a", "r1b"):
        node.handle(Acked(peer, 2), NOW)
    assert oldest() == 0.0


def test_a_replica_has_no_bound_of_an_outbox_and_lacks_no_keys(world: World) -> None:
    found = stands(world, "r1a", Dials(("r2a",)))
    assert (found.outbox_bytes_max, found.keys_missing, found.keys_late) == (0, (), ())


def test_keys_are_late_once_they_could_have_been_fetched(world: World) -> None:
    ends = CALENDAR.end_s(CALENDAR.epoch_at(NOW))
    early, late = stands(world, "g1", Dials(()), ends - 700), stands(world, "g1", Dials(()), ends - 500)
    assert (early.keys_late, bool(late.keys_late)) == ((), True)
    assert early.keys_missing == late.keys_missing == late.keys_late
    assert late.late_s == pytest.approx(100)
    assert late.epoch_left_s == pytest.approx(500)
    assert late.epoch == CALENDAR.epoch_at(NOW)


def test_a_quorum_of_key_servers_is_all_but_those_that_may_lie() -> None:
    assert [_servers_needed(4, 1), _servers_needed(7, 2), _servers_needed(3, 0)] == [3, 5, 1]


def test_what_the_organiser_offers_and_what_is_in_the_way_here() -> None:
    organised = organised_world()
    made = replica(organised, "r1a")
    assert stands(organised, "r1a", Dials(()), node=made).swaps == {
        "organiser": BOSS, "in_force": 0, "stopped": False, "offered": None,
    }  # fmt: skip
    swap = swap_on(organised.overlay, organised, (1, 4), (2, 3))
    organised.overlay = organised.overlay.hears(SwapNews((swap,), endorsements(organised, swap, "r2b")), NOW)
    made.keeper.swaps.why = "too little is known of its cycle"
    assert stands(organised, "r1a", Dials(()), node=made).swaps["offered"] == {
        "number": 1, "add": "region-1 - region-4", "remove": "region-2 - region-3", "endorsed": ["r2b"],
        "objection": "too little is known of its cycle",
    }  # fmt: skip
    other = swap_on(organised.overlay, organised, (2, 4), (2, 3))
    organised.overlay = organised.overlay.hears(SwapNews((other,)), NOW)
    assert stands(organised, "r1a", Dials(()), node=made).swaps["stopped"] is True
    nobody = make_world({1: 3}, [], {"g1": 1})
    assert stands(nobody, "r1a", Dials(())).swaps == {}
