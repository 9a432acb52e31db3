"""What the owner is advised by what replicas say: each has one voice, and liars have no more than theirs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.document import Overlay
from gateway.owner.live_placing import NUMBER_MAX, advise, spares_in
from gateway.setup import Made, Plan, join, make_overlay
from gateway.trust import TrustError, load_overlay
from keys.identity import Role

NOW = time.time()
QUIET = {"failures": 0, "down_s": 0.0, "watched_s": 100.0, "from_per_s": 0.0, "to_per_s": 0.0}
FAILS = {**QUIET, "failures": 30, "down_s": 20.0}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_overlay(tmp_path_factory.mktemp("live") / "owners", Plan(regions=2), 21500, NOW)


@pytest.fixture(scope="module")
def overlay(made: Made) -> Overlay:
    return load_overlay(made.overlay_path, int(NOW * 1000))


def names(overlay: Overlay, region: int) -> list[str]:
    return list(overlay.latest[region].members)


def answer(name: str, seen: Any) -> dict[str, Any]:
    return {"level": "well", "findings": [], "overlay": {"name": name}, "seen": seen}


def answers(overlay: Overlay, failing: str, others: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """All replicas, of all members: one fails."""
    found = {}
    for region in overlay.latest:
        for name in names(overlay, region):
            found[name] = answer(name, {one: FAILS if one == failing else QUIET for one in overlay.members})
    return {**found, **(others or {})}


def test_the_one_that_fails_is_replaced_by_the_spare(overlay: Overlay) -> None:
    failing = names(overlay, 2)[1]
    advice = advise(overlay, answers(overlay, failing), 1)
    assert advice.step is not None
    assert (advice.region, advice.step.is_attach, advice.step.steps) == ("region2", True, 2)
    assert advice.failures["region2"] == {failing: 30}
    assert advice.failures["region1"] == {}
    assert (advice.witnesses, advice.silent) == (6, {})


def test_what_gateways_send_and_get_weighs_their_ways(overlay: Overlay) -> None:
    gateways = {m.certificate.region: n for n, m in overlay.members.items() if m.certificate.role is Role.GATEWAY}
    found = answers(overlay, "")
    for name in names(overlay, 1):
        found[name]["seen"][gateways[1]] = {**QUIET, "from_per_s": 500.0, "to_per_s": 1.0}
    liar = names(overlay, 1)[0]
    found[liar]["seen"][gateways[1]] = {**QUIET, "from_per_s": 1e300}
    assert advise(overlay, found, 0).rates == {gateways[1]: 500.0, gateways[2]: 0.0}
    found[liar]["seen"] = {}
    assert advise(overlay, found, 0).rates[gateways[1]] == 500.0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_one_liar_of_each_region_changes_nothing_whatever_it_answers(overlay: Overlay, data: st.DataObject) -> None:
    failing = names(overlay, 2)[0]
    honest = advise(overlay, answers(overlay, failing), 2)
    number = st.one_of(st.floats(allow_nan=True), st.integers(), st.none(), st.text(max_size=3))
    one = st.dictionaries(st.sampled_from(sorted(QUIET)), number)
    lies: dict[str, Any] = {}
    for region in overlay.latest:
        liar = data.draw(st.sampled_from(names(overlay, region)))
        seen = data.draw(st.one_of(st.none(), st.dictionaries(st.sampled_from(sorted(overlay.members)), one)))
        lies[liar] = data.draw(st.sampled_from([answer(liar, seen), {"level": "well"}, answer(failing, seen)]))
    told = advise(overlay, answers(overlay, failing, lies), 2)
    assert told.step == honest.step
    assert told.failures == honest.failures


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_one_liar_of_each_region_makes_nobody_fail(overlay: Overlay, data: st.DataObject) -> None:
    lies = {
        liar: answer(liar, {one: {**FAILS, "failures": data.draw(st.integers(1, 10**9))} for one in overlay.members})
        for liar in (data.draw(st.sampled_from(names(overlay, region))) for region in overlay.latest)
    }
    assert advise(overlay, answers(overlay, "", lies), 4).step is None


def test_who_answers_for_another_or_with_no_numbers_is_said_and_does_not_count(overlay: Overlay) -> None:
    one, other, third = names(overlay, 1)
    away = {"level": "broken", "findings": [{"level": "broken", "key": "away", "text": "nothing answers at x"}]}
    advice = advise(
        overlay,
        {one: answer(other, {}), other: answer(other, {third: {**QUIET, "failures": -1}}), third: away},
        1,
    )
    assert advice.silent == {
        one: f"{other} answers there", other: f"what it says of {third} are no numbers", third: "nothing answers at x",
    }  # fmt: skip
    assert advice.witnesses == 0
    assert advice.step is None


def test_numbers_are_bounded_and_strangers_left_out(overlay: Overlay) -> None:
    witnesses, failing = names(overlay, 1), names(overlay, 2)[0]
    said = {w: answer(w, {failing: {**FAILS, "failures": 1e200}, "stranger": {"x": 1}}) for w in witnesses}
    assert advise(overlay, said, 1).failures["region2"] == {failing: NUMBER_MAX}


def test_spares_are_those_of_the_folder_that_are_in_no_region(made: Made, overlay: Overlay, tmp_path: Path) -> None:
    join(tmp_path / "r9", Role.REPLICA, "127.0.0.1:9", NOW)
    line = {"card": "r9/identity/card.json", "address": "127.0.0.1:9"}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(line))
    listed = names(overlay, 1)[0]
    card = made.directory / listed / "identity" / "card.json"
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"card": str(card), "address": "127.0.0.1:9"}))
    assert [one.name for one in spares_in(tmp_path, overlay)] == ["r9"]
    (tmp_path / "c.yaml").write_text("card: r9/identity/card.json\n")
    with pytest.raises(TrustError, match=r"c\.yaml: address: missing; add it"):
        spares_in(tmp_path, overlay)
    with pytest.raises(TrustError, match="is no folder"):
        spares_in(tmp_path / "none", overlay)
