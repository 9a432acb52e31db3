"""Tables of states: they are whole, and the page draws what they say."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from bridge.base import Transitions
from bridge.document.succession import VIEW
from bridge.document.trees import TREE, Phase
from bridge.publisher.entry import ENTRY, EntryTurn, Standing
from bridge.reader.interest import SUBSCRIPTION
from bridge.reader.streams import HELD
from bridge.replica.resplitting import DATA_KEY
from bridge.traces.pings import ENTITY, Health, Sign
from tests.test_repository import ROOT

TABLES: tuple[Transitions[Any, Any], ...] = (ENTRY, DATA_KEY, HELD, VIEW, TREE, SUBSCRIPTION, ENTITY)


@pytest.mark.parametrize("life", TABLES, ids=lambda life: life.thing)
def test_every_state_can_be_reached_and_every_event_has_one_answer(life: Transitions[Any, Any]) -> None:
    reached = set(life.first) | {row.after for row in life.rows}
    assert reached == set(life.states)
    told = [(row.event, state) for row in life.rows for state in row.before]
    assert len(told) == len(set(told))
    assert {event for event, _ in told} == set(type(life.rows[0].event))


def test_what_cannot_happen_is_no_transition() -> None:
    assert ENTRY.after((EntryTurn.SEALED, Standing.FRESH)) is Standing.SEALED
    with pytest.raises(KeyError):
        ENTRY.after((EntryTurn.SEALED, Standing.SETTLED))
    with pytest.raises(KeyError):
        ENTITY.after((Sign.SILENCE, Health.FAILED))


def test_the_page_has_each_row_and_draws_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs/generate"), *sys.path])
    lifecycles = importlib.import_module("lifecycles")
    page = lifecycles.lifecycles_page()
    assert set(lifecycles.LIFECYCLES) == set(TABLES)
    assert all(row.effects in page for life in TABLES for row in life.rows)
    assert page.count('marker-end="url(#head)"') == sum(len(lifecycles.arcs(life)) for life in TABLES)
    assert lifecycles.arcs(TREE) == {
        (Phase.SETTLING, Phase.IN_FORCE): ["settled"],
        (Phase.SETTLING, Phase.ALONE): ["closed"],
        (Phase.IN_FORCE, Phase.ALONE): ["closed"],
    }
