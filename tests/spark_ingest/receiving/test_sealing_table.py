"""Forms in memory: live from the first piece to the disk, known for a while after, and then forgotten."""

from __future__ import annotations

from typing import Any, cast

import pytest

from spark_ingest.receiving import sealing_table
from spark_ingest.receiving.sealing_table import FormTable
from spark_ingest.receiving.sealings import Form, State

PUBLICATION = (b"p" * 16, 7)


def form(name: str = "a", publication: tuple[bytes, int] = PUBLICATION, state: State = State.WAITING) -> Form:
    none: Any = cast(Any, None)
    return Form((name, "topic"), none, none, "topic", 0.0, publication, state=state)


def test_forms_of_one_publication_are_found_together_and_by_what_was_told() -> None:
    table, one, two, other = FormTable(), form("a"), form("b"), form("c", (b"p" * 16, 8))
    for each in (one, two, other, one):
        table.add_form(each)
    assert list(table.forms_of(PUBLICATION)) == [one, two]
    assert list(table.forms_of((b"x", 1))) == []
    assert table.told["b", "topic"] is two


def test_one_that_left_may_join_again_and_leaving_twice_is_nothing() -> None:
    table, one = FormTable(), form()
    table.add_form(one)
    for _ in range(2):
        table.leave_live(one)
    assert list(table.forms_of(PUBLICATION)) == []
    assert table.told["a", "topic"] is one, "it is recognised all the same"
    table.join(one)
    assert list(table.forms_of(PUBLICATION)) == [one]


def test_what_ended_gives_its_content_back_and_is_recognised_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing_table, "DONE_KEPT", 2)
    table, forms = FormTable(), [form(name) for name in "abc"]
    for each in forms:
        each.content = b"content"
        table.add_form(each)
        table.end_form(each)
        assert (each.state, each.content, each.material) == (State.DONE, None, None)
    assert len(table.told) == 3
    table.forget_ended()
    assert sorted(name for name, _ in table.told) == ["b", "c"]
    assert list(table.forms_of(PUBLICATION)) == []


def test_what_came_anew_under_the_same_name_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing_table, "DONE_KEPT", 0)
    table, before, again = FormTable(), form(), form()
    table.add_form(before)
    table.end_form(before)
    table.add_form(again)
    table.forget_ended()
    assert table.told["a", "topic"] is again


@pytest.mark.parametrize(("state", "reason", "found"), [
    (State.READY, None, True), (State.WRITING, None, True), (State.WAITING, None, False), (State.LATE, None, False),
    (State.DONE, None, False), (State.READY, "incomplete", False),
])  # fmt: skip
def test_another_form_that_is_whole_is_the_row_already(state: State, reason: str | None, found: bool) -> None:
    table, mine, other = FormTable(), form("a"), form("b", state=state)
    other.reason = reason
    table.add_form(mine)
    table.add_form(other)
    mine.state = State.READY
    assert table.other_whole(mine) is (other if found else None)
