"""Scopes that a gateway has subscribed: how often, since when, and that a restart is no new subscription."""

from __future__ import annotations

from bridge.reader.kept import KeptReader
from bridge.reader.scopes import Scopes
from tests.bridge.helpers import NOW


def test_each_subscription_is_another_and_begins_when_it_does() -> None:
    scopes = Scopes(KeptReader())
    assert (scopes.generation("a"), scopes.since("a")) == (0, 0.0)
    scopes.resumed("a", NOW)
    scopes.paused("a")
    scopes.resumed("a", NOW + 5)
    assert (scopes.generation("a"), scopes.since("a")) == (2, NOW + 5)
    assert scopes.generation("b") == 0


def test_after_a_restart_it_goes_on_where_it_was_unless_it_was_left() -> None:
    kept = KeptReader()
    scopes = Scopes(kept)
    for name in ("a", "b"):
        scopes.resumed(name, NOW)
    scopes.paused("b")
    ((keep,),) = [kept.changes(NOW)]
    rows = [(key, row) for key, row in keep.rows if row is not None]  # type: ignore[union-attr]
    again = Scopes(KeptReader())
    again.restore(rows)
    for name in ("a", "b"):
        again.resumed(name, NOW + 60)
    assert [again.generation(name) for name in ("a", "b")] == [0, 1]
    again.resumed("a", NOW + 90)
    assert (again.generation("a"), again.since("a")) == (1, NOW + 90), "once"
