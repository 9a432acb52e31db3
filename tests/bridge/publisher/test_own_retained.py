"""What a gateway published retained: the latest of each topic, within bounds, again when its keys end."""

from __future__ import annotations

import pytest

from bridge.contract import Count, Effect, Publication, Republish, Wire
from bridge.document import Scope, ScopeSecret
from bridge.publisher import own_retained
from bridge.publisher.own_retained import RETELL_BURST, RETELL_EVERY_S, OwnRetained
from bridge.publisher.sealing import Entry

NOW = 1000.0
SCOPE = "plant/#"


def value(topic: str = "plant/t", payload: bytes = b"21", expiry_s: int | None = None) -> Publication:
    return Publication(topic, payload, 1, True, expiry_s=expiry_s, time_ms=int(NOW * 1000))


def entry(sequence: int, publication: Publication, wire: Wire | None = None) -> Entry:
    secret = ScopeSecret(Scope(SCOPE), SCOPE)
    return Entry(sequence, publication, secret, publication.topic, 0, NOW, wire=wire)


def kept(*topics: str) -> OwnRetained:
    retained = OwnRetained()
    for sequence, topic in enumerate(topics, 1):
        assert retained.published(sequence, SCOPE, value(topic)) == []
    return retained


def due(retained: OwnRetained, *scopes: str, unsent: tuple[int, ...] = (), now: float = NOW) -> list[str]:
    effects = retained.due(scopes or (SCOPE,), unsent, now)
    found = [p.topic for e in effects if isinstance(e, Republish) for p in e.publications]
    counts: list[Effect] = [Count("retained_resealed", len(found))] if found else []
    assert [e for e in effects if isinstance(e, Count)] == counts
    return found


def test_the_latest_of_each_topic_is_kept() -> None:
    retained = OwnRetained()
    for sequence, payload in ((5, b"new"), (4, b"old"), (5, b"same")):
        retained.published(sequence, SCOPE, value(payload=payload))
    (one,) = retained.to_retell("r1a", NOW)
    assert (one.sequence, one.publication.payload) == (5, b"new")
    retained.published(6, SCOPE, value(payload=b""))
    assert due(retained) == []
    retained.published(5, SCOPE, value(payload=b"newer than what is known now"))
    assert due(retained) == ["plant/t"]


def test_what_is_due_is_of_these_scopes_sent_and_not_expired() -> None:
    retained = kept("plant/a", "plant/b")
    retained.published(3, "open/#", value("open/t"))
    retained.published(4, SCOPE, value("plant/c", expiry_s=60))
    assert due(retained, "nothing/#") == []
    assert due(retained, unsent=(2,)) == ["plant/a", "plant/c"]
    assert due(retained, SCOPE, "open/#", now=NOW + 60) == ["plant/a", "plant/b", "open/t", "plant/c"]
    assert due(retained, "open/#", now=NOW + 60.01) == ["open/t"]
    assert due(retained, now=NOW) == ["plant/a", "plant/b"], "what expired is forgotten, whosever turn it was"


def test_what_somebody_else_published_later_is_not_brought_back() -> None:
    retained = kept("plant/a", "plant/b")
    retained.overtaken("plant/a", int(NOW * 1000) - 1)
    retained.overtaken("plant/x", int(NOW * 1000))
    assert due(retained) == ["plant/a", "plant/b"]
    retained.overtaken("plant/a", int(NOW * 1000))
    assert due(retained) == ["plant/b"]


def test_a_replica_is_told_again_in_order_and_not_without_end() -> None:
    retained = kept("plant/b", "plant/a")
    retained.published(3, SCOPE, value("plant/b"))
    for _ in range(RETELL_BURST):
        assert [one.sequence for one in retained.to_retell("r1a", NOW)] == [2, 3]
    assert retained.to_retell("r1a", NOW) == []
    assert len(retained.to_retell("r1b", NOW)) == 2
    assert retained.to_retell("r1a", NOW + RETELL_EVERY_S - 1) == []
    assert len(retained.to_retell("r1a", NOW + RETELL_EVERY_S)) == 2


def test_one_that_has_nothing_to_tell_spends_nothing() -> None:
    retained = OwnRetained()
    for _ in range(2 * RETELL_BURST):
        assert retained.to_retell("r1a", NOW) == []
    retained.published(1, SCOPE, value())
    assert len(retained.to_retell("r1a", NOW)) == 1


def test_it_is_told_as_it_was_sealed_last() -> None:
    retained = kept("plant/t")
    wire = Wire("plant/t", b"sealed")
    retained.sealed(entry(2, value(), wire))
    assert retained.to_retell("r1a", NOW)[0].wire is None, "another one of the topic was sealed"
    retained.sealed(entry(1, value(), wire))
    retained.sealed(entry(1, value("plant/unknown"), wire))
    assert retained.to_retell("r1a", NOW)[0].wire is wire


def test_topics_are_bounded_and_the_longest_untouched_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_retained, "RETAINED_OWN_MAX", 2)
    retained = kept("plant/a", "plant/b")
    retained.published(3, SCOPE, value("plant/a"))
    assert retained.published(4, SCOPE, value("plant/c")) == [Count("retained_own_dropped", 1)]
    assert due(retained) == ["plant/a", "plant/c"]


def test_bytes_count_in_clear_and_sealed_and_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_retained, "RETAINED_OWN_BYTES_MAX", 100)
    retained = OwnRetained()
    retained.published(1, SCOPE, value("plant/a", bytes(20)))
    retained.published(2, SCOPE, value("plant/b", bytes(20)))
    for _ in range(3):  # sealed anew, in the place of the former
        assert retained.sealed(entry(2, value("plant/b"), Wire("plant/b", bytes(60)))) == []
    assert retained.published(3, SCOPE, value("plant/c", b"x")) == [Count("retained_own_dropped", 1)]
    assert due(retained) == ["plant/b", "plant/c"]
    retained.published(4, SCOPE, value("plant/b", b""))
    assert retained.published(5, SCOPE, value("plant/d", bytes(99))) == []
    assert retained.sealed(entry(5, value("plant/d"), Wire("plant/d", bytes(2)))) == [Count("retained_own_dropped", 2)]
    assert due(retained) == []
