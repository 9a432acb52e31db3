"""`veilmq overlay history`: how far each replica and each region reaches back, of what replicas answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridge.document import History, Overlay, Scope
from gateway.commands import histories
from gateway.commands.histories import RegionReach, named, reach
from gateway.trust import TrustError
from tests.sim.world import make_world
from tests.support.regions import shared

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


SCOPES = [Scope("plant/#", history=History(7, 100)), Scope("open/#"), Scope("yard/#", history=History(7, 9, (2,)))]
overlay = shared(lambda: make_world({1: 3, 2: 5}, [(1, 2)], {"g1": 1}, SCOPES).overlay)


def answer(name: str, first_ms: int, scope: str = "plant/#", refused: str = "") -> dict[str, Any]:
    kept = [{"scope": scope, "first_ms": first_ms, "last_ms": NOW_MS, "bytes": 1_000_000, "refused": refused}]
    return {"level": "well", "findings": [], "overlay": {"name": name, "histories": kept}}


def test_a_region_reaches_as_far_as_enough_of_its_replicas(overlay: Overlay) -> None:
    told = [answer("r1a", 1), answer("r1b", 5), answer("r1c", 9), *(answer(f"r2{n}", 3) for n in "ab")]
    replicas, regions = reach(overlay, named(overlay, "plant/#"), told)
    assert regions == [RegionReach("region-1", 2, 5), RegionReach("region-2", 3, 0)]
    assert {one.replica: one.first_ms for one in replicas if one.first_ms} == {
        "r1a": 1, "r1b": 5, "r1c": 9, "r2a": 3, "r2b": 3,
    }  # fmt: skip
    assert [one.trouble for one in replicas if one.replica == "r2e"] == ["not asked, or does not answer"]


def test_a_replica_with_the_oldest_words_alone_moves_nothing(overlay: Overlay) -> None:
    """A liar that claims to reach back for ever: as many as are needed have to say so."""
    for lie in (1, 0, NOW_MS):
        told = [answer("r1a", lie), answer("r1b", 500), answer("r1c", 900)]
        assert reach(overlay, named(overlay, "1"), told)[1][0].first_ms in (500, 900)


def test_only_regions_that_always_take_the_scope_are_asked_about(overlay: Overlay) -> None:
    replicas, regions = reach(overlay, named(overlay, "yard/#"), [answer("r2a", 5, "yard/#", "no space left")])
    assert [region.region for region in regions] == ["region-2"]
    assert replicas[0].trouble == "no space left"
    assert reach(overlay, named(overlay, "yard/#"), [answer("r2a", 5)])[0][0].trouble == "keeps no history of it"


def test_a_scope_without_a_history_is_one_line_that_lists_the_others(overlay: Overlay) -> None:
    with pytest.raises(TrustError, match=r"open/#: .*plant/# \(1\), yard/# \(3\)"):
        named(overlay, "open/#")


def test_a_gateway_knows_the_number_of_a_scope_whose_name_is_hidden(overlay: Overlay) -> None:
    rights = {"overlay": {"name": "g1", "rights": [{"scope": "secret/#", "number": 3}]}}
    assert named(overlay, "secret/#", [rights, {"overlay": None}]).filter == "yard/#"


@pytest.mark.parametrize(("since", "status"), [(NOW_MS - DAY_MS, 0), (0, 1)])
def test_it_is_printed(
    overlay: Overlay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, veilmq: Any, since: int, status: int
) -> None:
    file = tmp_path / "overlay.json"
    file.write_text(json.dumps(overlay.to_document()))
    monkeypatch.setattr("gateway.trust.load_overlay", lambda *_: overlay)
    names = [name for name in overlay.members if name.startswith("r")]
    told = {f"127.0.0.1:{9000 + at}": answer(name, since) for at, name in enumerate(names)}
    monkeypatch.setattr(histories, "asked", told.__getitem__)
    asks = [each for bind in told for each in ("--ask", bind)]
    code, out, _ = veilmq("overlay", "history", "plant/#", "--overlay", file, *asks)
    assert code == status
    assert ("which have since 2027-01-14" in out) is (status == 0)
    code, out, _ = veilmq("overlay", "history", "plant/#", "--overlay", file, *asks, "--json")
    assert json.loads(out)["regions"][1] == {"region": "region-2", "needed": 3, "first_ms": since}
