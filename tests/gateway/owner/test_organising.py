"""The owner's side of a swap: what replicas are asked for, what is refused, how the description has to go on."""

from __future__ import annotations

import base64

import pytest
import yaml

from bridge.measuring import InterestSummary, ReplicaSummary, proposal, swapped
from gateway.owner.description import OrganiseEntry
from gateway.owner.organising import edges_lines, gathered, proposed
from gateway.trust import TrustError
from tests.bridge.measuring.test_swap_proposal import INTERVAL, INTERVAL_S, interests, row_of_four, said, told
from tests.sim.world import NOW, make_world


def encoded(*summaries: ReplicaSummary | InterestSummary) -> list[str]:
    return [base64.b64encode(each.encode()).decode() for each in summaries]


def test_what_is_forged_old_or_no_summary_is_left_out() -> None:
    made = row_of_four()
    name, other = made.overlay.views[2].members[:2]
    forged = ReplicaSummary(name, 2, INTERVAL + 1, INTERVAL_S, 0, 16, processing_us=1).signed(made.identities[other])
    other_filter = InterestSummary(name, 2, INTERVAL + 1, INTERVAL_S, 4, bytes(12_500)).signed(made.identities[other])
    true = [*told(made), *interests(made, 1, 4)]
    words = encoded(*true, forged, other_filter, said(made, name, interval=1))
    found = gathered([*words, "no base64!", "AAAA"], made.overlay)
    assert len(found) == 24
    assert proposed(made.overlay, found, NOW) == proposal(made.overlay, true, NOW)


@pytest.mark.attack(201)
def test_a_summary_of_before_the_length_of_intervals_changed_is_older() -> None:
    made = row_of_four()
    name = made.overlay.views[2].members[0]
    before = ReplicaSummary(name, 2, INTERVAL * 60 - 120, 1, 0, 16).signed(made.identities[name])
    after = said(made, name)
    assert gathered(encoded(after, before), made.overlay) == [after]
    assert gathered(encoded(before, after), made.overlay) == [after]


def test_the_description_goes_on_with_what_was_signed() -> None:
    made = row_of_four()
    found = proposed(made.overlay, [*told(made), *interests(made, 1, 4)], NOW)
    assert found.swap is not None
    assert list(yaml.safe_load(edges_lines(make_world({1: 3, 2: 3}, [(1, 2)], {"g1": 1}).overlay))) == ["edges"]
    policy = swapped(made.overlay, found.swap, NOW)
    lines = yaml.safe_load(edges_lines(made.with_policy(edges=policy.edges, organising=policy.organising)))
    names = {region: view.name for region, view in made.overlay.latest.items()}
    assert lines["edges"] == [[names[a], names[b]] for a, b in policy.edges]
    assert lines["organise"]["links"] == [[names[2], names[3]]]
    assert lines["organise"]["dwell_s"] == 600


def test_without_the_owners_word_there_is_nothing_to_organise() -> None:
    made = make_world({1: 3, 2: 3}, [(1, 2)], {"g1": 1})
    with pytest.raises(TrustError, match="has no `organise`"):
        proposed(made.overlay, [], NOW)


def test_the_next_signing_keeps_the_bars_of_regions_that_stay() -> None:
    made = row_of_four()
    organising = made.overlay.policy.organising
    assert organising is not None
    barred = organising.with_bar((1, 4), NOW).with_bar((2, 4), NOW)
    made.overlay = made.with_policy(organising=barred)
    entry, ids = OrganiseEntry(links=[("a", "c")]), {"a": 1, "b": 2, "c": 3, "d": 4}
    assert entry.organising(ids, made.overlay).bars == barred.bars
    assert entry.organising({"a": 1, "c": 3, "d": 4}, made.overlay).bars == barred.bars[:1]
    assert entry.organising(ids).bars == ()
