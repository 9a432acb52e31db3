"""Subscriptions of scopes by their streams: what goes on, what begins anew."""

from __future__ import annotations

from bridge.document import Scope
from bridge.reader.kept import KeptReader
from bridge.reader.subscribed import Subscriptions
from tests.bridge.helpers import NOW

FIRST, LATER = Scope("a/#", number=3), Scope("b/#", number=7, origin=3)


def rows(kept: KeptReader) -> list[tuple[bytes, bytes]]:
    found = [pair for keep in kept.changes(NOW) for pair in keep.rows]  # type: ignore[attr-defined]
    return [(key, row) for key, row in found if row is not None]


def test_a_scope_with_other_tokens_is_the_same_subscription() -> None:
    subscriptions = Subscriptions(KeptReader())
    assert subscriptions.generation(FIRST) == 0
    subscriptions.resumed(3, NOW)
    assert [subscriptions.generation(scope) for scope in (FIRST, LATER)] == [1, 1]
    assert [subscriptions.since(scope) for scope in (FIRST, LATER)] == [NOW, NOW]
    subscriptions.paused(3)
    subscriptions.resumed(3, NOW + 1)
    assert (subscriptions.generation(LATER), subscriptions.since(LATER)) == (2, NOW + 1)


def test_what_a_former_process_had_subscribed_goes_on_once() -> None:
    kept = KeptReader()
    Subscriptions(kept).resumed(3, NOW)
    again = Subscriptions(KeptReader())
    again.restore(rows(kept))
    again.resumed(3, NOW + 1)
    assert again.generation(LATER) == 0
    again.resumed(3, NOW + 2)
    assert again.generation(LATER) == 1
    paused = Subscriptions(kept)
    paused.resumed(3, NOW)
    paused.paused(3)
    assert not [key for key, _ in rows(kept) if key[:1] == b"w"]
