"""What a gateway published retained: the latest of each topic, again when its keys end, over restarts, in bounds."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.contract import Count, Deliver, Keep, Numbered, Publication, Wire, packed
from bridge.document import RegionView, Scope, ScopeSecret
from bridge.publisher import own_retained
from bridge.publisher.entry import Entry
from bridge.publisher.own_retained import (
    FORMER,
    LOOK_AGAIN_S,
    RETELL_BURST,
    RETELL_EVERY_S,
    ROW,
    KeptRetained,
    OwnRetained,
    snapshots,
)
from bridge.publisher.resealing import AWAY_S
from keys.epochs import KeyName

NOW = 1000.0
SCOPE = "plant/#"
NOTHING: dict[int, Entry] = {}


def value(topic: str = "plant/t", payload: bytes = b"21", expiry_s: int | None = None) -> Publication:
    return Publication(topic, payload, 1, True, expiry_s=expiry_s, time_ms=int(NOW * 1000))


def entry(sequence: int, publication: Publication, wire: Wire | None = None, epoch: int = 7) -> Entry:
    secret = ScopeSecret(Scope(SCOPE), SCOPE)
    name = KeyName(SCOPE, epoch, 0)
    return Entry(sequence, publication, secret, 0, NOW, wire=wire, name=name)


def sealer(seal: str) -> Any:
    """As much of one as counts here."""
    return SimpleNamespace(seal_of=lambda _: seal, ask_review=lambda _at: None)


def kept(*topics: str, seal: str = "one") -> OwnRetained:
    """These, sealed."""
    retained = OwnRetained()
    for sequence, topic in enumerate(topics, 1):
        assert retained.take_published(sequence, value(topic), True) == []
        retained.note_sealing(entry(sequence, value(topic), Wire(topic, b"")), sealer(seal), NOW)
    return retained


def due(retained: OwnRetained, now: float = NOW, seal: str = "two", oldest: int = 0) -> list[str]:
    return [each.publication.topic for each in retained.due_retained(lambda _: seal, oldest, now)]


def told(retained: OwnRetained, peer: str = "r1a", now: float = NOW, seal: str = "one") -> list[KeptRetained]:
    return retained.to_retell(peer, lambda _: seal, NOTHING, now)


def rows_of(retained: OwnRetained) -> dict[bytes, bytes | None]:
    return {key: row for effect in retained.changed_rows() if isinstance(effect, Keep) for key, row in effect.rows}


def test_the_latest_of_each_topic_is_kept() -> None:
    retained = OwnRetained()
    for sequence, payload in ((5, b"new"), (4, b"old"), (5, b"same")):
        retained.take_published(sequence, value(payload=payload), True)
    retained.note_sealing(entry(5, value(), Wire("w", b"")), sealer("one"), NOW)
    (one,) = told(retained)
    assert (one.sequence, one.publication.payload) == (5, b"new")


def test_what_is_due_is_sealed_otherwise_and_not_expired_in_order() -> None:
    retained = kept("plant/a", "plant/b")
    retained.take_published(3, value("plant/unsent"), True)
    retained.take_published(4, value("plant/c", expiry_s=60), True)
    retained.note_sealing(entry(4, value("plant/c"), Wire("w", b"")), sealer("one"), NOW)
    assert due(retained, seal="one") == []
    assert due(retained, seal="") == [], "it cannot be sealed now"
    assert due(retained, NOW + 60) == ["plant/a", "plant/b", "plant/c"], "what was never sealed is in the outbox"
    assert due(retained, NOW + 60.01) == ["plant/a", "plant/b"]
    assert due(retained) == ["plant/a", "plant/b"], "what expired is forgotten"


@pytest.mark.attack(24)
def test_a_tombstone_lives_until_the_epoch_of_its_first_sealing_is_dead() -> None:
    """And with it every sealing of what it cleared: a replica that lost its memory would else believe an old value."""
    retained = kept("plant/t")
    gone = value(payload=b"")
    retained.take_published(2, gone, True)
    retained.note_sealing(entry(2, gone, Wire("w", b"")), sealer("one"), NOW)
    assert [each.sequence for each in told(retained)] == [2]
    assert due(retained, oldest=7) == ["plant/t"]
    retained.note_sealing(entry(2, gone, Wire("w", b""), epoch=8), sealer("two"), NOW)
    assert due(retained, seal="three", oldest=7) == ["plant/t"]
    assert due(retained, seal="three", oldest=8) == []
    assert told(retained, seal="two") == []


def test_what_somebody_else_published_later_is_not_brought_back() -> None:
    retained = kept("plant/a", "plant/b")
    retained.overtaken("plant/a", int(NOW * 1000) - 1)
    retained.overtaken("plant/x", int(NOW * 1000))
    assert due(retained) == ["plant/a", "plant/b"]
    retained.overtaken("plant/a", int(NOW * 1000))
    assert due(retained) == ["plant/b"]


@pytest.mark.parametrize(("later_ms", "retains", "ours"), [(-1, False, ["plant/a"]), (0, True, []), (5, True, [])])
def test_what_somebody_else_published_earlier_does_not_take_the_place_of_ours(
    later_ms: int, retains: bool, ours: list[str]
) -> None:
    retained = kept("plant/a")
    time_ms = value("plant/a").time_ms + later_ms
    heard = retained.take_delivery(Deliver("far", 1, Publication("plant/a", b"theirs", 1, True, time_ms=time_ms)))
    assert heard.publication.retain is retains
    assert due(retained) == ours


def test_a_replica_is_told_again_in_order_and_not_without_end() -> None:
    retained = kept("plant/b", "plant/a")
    retained.take_published(3, value("plant/b"), True)
    retained.note_sealing(entry(3, value("plant/b"), Wire("w", b"")), sealer("one"), NOW)
    for _ in range(RETELL_BURST):
        assert [one.sequence for one in told(retained)] == [2, 3]
    assert told(retained) == []
    assert len(told(retained, "r1b")) == 2
    assert told(retained, now=NOW + RETELL_EVERY_S - 1) == []
    assert retained.retold.due_keys(NOW + RETELL_EVERY_S - 1) == []
    assert retained.retold.due_keys(NOW + RETELL_EVERY_S) == ["r1a"], "postponed, and not forgotten"
    assert len(told(retained, now=NOW + RETELL_EVERY_S)) == 2


def test_a_replica_is_not_told_what_is_sealed_otherwise_now_or_comes_from_the_outbox() -> None:
    retained = kept("plant/a", "plant/b")
    assert told(retained, seal="two") == []
    waiting, done = entry(1, value("plant/a")), entry(2, value("plant/b"))
    done.acked.add("r1a")
    entries = {1: waiting, 2: done}
    assert [each.sequence for each in retained.to_retell("r1a", lambda _: "one", entries, NOW)] == [2]


def test_one_that_has_nothing_to_tell_spends_nothing() -> None:
    retained = OwnRetained()
    for _ in range(2 * RETELL_BURST):
        assert told(retained) == []
    retained.take_published(1, value(), True)
    retained.note_sealing(entry(1, value(), Wire("w", b"")), sealer("one"), NOW)
    assert len(told(retained)) == 1


def test_it_is_told_as_it_was_sealed_last() -> None:
    retained = OwnRetained()
    retained.take_published(1, value(), True)
    wire = Wire("plant/t", b"sealed")
    retained.note_sealing(entry(2, value(), wire), sealer("one"), NOW)
    assert told(retained) == [], "another one of the topic was sealed"
    retained.note_sealing(entry(1, value(), wire), sealer("one"), NOW)
    retained.note_sealing(entry(1, value("plant/unknown"), wire), sealer("one"), NOW)
    assert told(retained)[0].wire is wire


def test_topics_are_bounded_and_the_longest_untouched_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_retained, "RETAINED_OWN_MAX", 2)
    retained = kept("plant/a", "plant/b")
    retained.take_published(3, value("plant/a"), True)
    retained.note_sealing(entry(3, value("plant/a"), Wire("w", b"")), sealer("one"), NOW)
    assert retained.take_published(4, value("plant/c"), True) == [Count("retained_own_dropped", 1)]
    retained.note_sealing(entry(4, value("plant/c"), Wire("w", b"")), sealer("one"), NOW)
    assert due(retained) == ["plant/a", "plant/c"]


def test_bytes_count_in_clear_and_sealed_and_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_retained, "RETAINED_OWN_BYTES_MAX", 100)
    retained = OwnRetained()
    retained.take_published(1, value("plant/a", bytes(20)), True)
    retained.take_published(2, value("plant/b", bytes(20)), True)
    for _ in range(3):  # sealed anew, in the place of the former
        assert retained.note_sealing(entry(2, value("plant/b"), Wire("plant/b", bytes(60))), sealer("one"), NOW) == []
    assert retained.take_published(3, value("plant/c", b"x"), True) == [Count("retained_own_dropped", 1)]
    retained.take_published(4, value("plant/b", b""), True)
    assert retained.take_published(5, value("plant/d", bytes(99)), True) == []
    dropped = retained.note_sealing(entry(5, value("plant/d"), Wire("plant/d", bytes(2))), sealer("one"), NOW)
    assert dropped == [Count("retained_own_dropped", 3)]
    assert due(retained) == []


def test_what_was_never_sealed_is_not_told() -> None:
    retained = OwnRetained()
    retained.take_published(1, value(), True)
    assert told(retained, seal="") == []


def test_a_tombstone_is_as_old_as_its_first_sealing_and_be_that_the_first_of_all() -> None:
    retained, gone = OwnRetained(), value(payload=b"")
    retained.take_published(1, gone, True)
    for epoch, seal in ((0, "one"), (1, "two")):
        retained.note_sealing(entry(1, gone, Wire("w", b""), epoch=epoch), sealer(seal), NOW)
    assert due(retained, seal="three", oldest=0) == ["plant/t"]
    assert due(retained, seal="three", oldest=1) == []


def test_owners_are_expected_in_bounds_and_the_longest_expected_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_retained, "EXPECTED_MAX", 2)
    retained = OwnRetained()
    for topic in "abac":
        retained.expect(topic, f"user of {topic}", "client")
    for sequence, topic in enumerate("abc", 1):
        retained.take_published(sequence, replace(value(topic), owner="unknown"), True)
    assert [one.owner for one in retained._kept.values()] == ["user of a\0client", "unknown", "user of c\0client"]


# ------------------------------------------------------------------------------------------- when snapshots go


VIEW = RegionView(1, 1, "home", ("a", "b", "c"))


def judging(is_current: bool, epoch_only: bool = False) -> Any:
    """As much of a sealer as counts here; what ends with its epoch alone is within its grace."""
    asked: list[float] = []
    return SimpleNamespace(
        asked=asked,
        ask_review=asked.append,
        secret_for=lambda topic: ScopeSecret(Scope(SCOPE), SCOPE) if topic.startswith("plant") else None,
        is_current=lambda _: is_current,
        is_current_but_for_its_epoch=lambda _: epoch_only,
        calendar=SimpleNamespace(grace_s=0, may_seal=lambda _epoch, _now: True),
    )


def test_what_is_not_in_memory_goes_as_a_snapshot_if_a_scope_takes_it() -> None:
    due = [KeptRetained(1, value("plant/t"), True, "one"), KeptRetained(2, value("gone/t"), True, "one")]
    made, again, effects = snapshots(due, {}, judging(False), VIEW, NOW)
    assert [(each.sequence, each.is_snapshot, each.born, each.previous) for each in made] == [(1, True, NOW, 0)]
    assert (again, effects) == ([], [Count("retained_resealed", 1)])
    assert snapshots([], {}, judging(False), VIEW, NOW) == ([], [], [])


@pytest.mark.parametrize(
    ("acked", "age_s", "seal", "sealer", "goes", "as_snapshot"),
    [
        ("a", 0, "one", judging(False), True, False),
        ("ab", 0, "one", judging(False), True, False),
        ("ab", AWAY_S + 1, "one", judging(False), True, True),
        ("abc", 0, "one", judging(False), True, True),
        ("ab", 0, "one", judging(False, epoch_only=True), False, False),
        ("ab", AWAY_S + 1, "one", judging(False, epoch_only=True), True, True),
        ("abc", 0, "one", judging(False, epoch_only=True), True, True),
        ("a", 0, FORMER, judging(True), False, False),
        ("a", AWAY_S + 1, FORMER, judging(True), False, False),
        ("ab", 0, FORMER, judging(True), False, False),
        ("ab", AWAY_S + 1, FORMER, judging(True), True, True),
        ("abc", 0, FORMER, judging(True), True, True),
        ("ab", 0, FORMER, judging(False), True, False),
    ],
)
def test_what_a_replica_may_still_get_becomes_no_snapshot_yet(
    acked: str, age_s: float, seal: str, sealer: Any, goes: bool, as_snapshot: bool
) -> None:
    """Readers would get it late, or never live. Whether it goes is asked again as long as it is none."""
    there = entry(1, value(), Wire("w", b""))
    there.acked, there.sealed_ms = set(acked), int((NOW - age_s) * 1000)
    sealer.asked.clear()
    kept = KeptRetained(1, value(), True, seal)
    made, again, effects = snapshots([kept], {1: there}, sealer, VIEW, NOW)
    assert (made, again, there.is_snapshot) == ([], [1] if goes else [], as_snapshot)
    assert effects == ([Count("retained_resealed", 1)] if goes else [])
    assert sealer.asked == ([] if as_snapshot else [NOW + LOOK_AGAIN_S])
    there.is_snapshot = True
    assert snapshots([kept], {1: there}, sealer, VIEW, NOW)[1] == [1], "nothing waits for a snapshot"
    there.wire = None
    assert snapshots([kept], {1: there}, sealer, VIEW, NOW) == ([], [], []), "it is sealed soon"


# ------------------------------------------------------------------------------------------- over restarts


def test_a_row_of_an_earlier_version_names_no_owner() -> None:
    content = packed("plant/t", [Numbered(3, value())]).payload
    row = (3).to_bytes(8) + b"\x01" + (8).to_bytes(8) + content
    again = OwnRetained()
    again.restore([(ROW + b"plant/t", row)], lambda _: False)
    (one,) = again.due_retained(lambda _: "one", 0, NOW)
    assert (one.sequence, one.publication, one.protected, one.epoch, one.owner) == (3, value(), True, 7, "")


def test_the_next_process_seals_what_this_one_sealed_and_nothing_that_it_dropped() -> None:
    retained = kept("plant/a", "plant/b", "plant/left")
    retained.take_published(4, value("plant/b", b""), True)
    retained.note_sealing(entry(4, value("plant/b", b""), Wire("w", b"")), sealer("one"), NOW)
    retained.take_published(5, value("plant/never"), False)
    retained.overtaken("plant/a", int(NOW * 1000))
    rows = rows_of(retained)
    assert rows[ROW + b"plant/a"] is None
    assert rows_of(retained) == {}, "once"
    again = OwnRetained()
    found = [(key, row) for key, row in rows.items() if row is not None]
    again.restore([*found, (b"k" + bytes(16), b"of others"), (ROW + b"x", b"damaged")], lambda number: number == 3)
    assert again.due_retained(lambda _: "", 0, NOW) == []
    (one,) = again.due_retained(lambda _: "one", 0, NOW)
    assert (one.sequence, one.publication, one.protected, one.epoch) == (4, value("plant/b", b""), True, 7)
    assert due(again, oldest=8) == [], "the epoch of the clearing is over"


def test_what_the_next_process_hears_of_from_its_outbox_first_is_kept() -> None:
    rows = rows_of(kept("plant/a"))
    again = OwnRetained()
    again.restore([(key, row) for key, row in rows.items() if row is not None], lambda _: True)
    assert due(again) == [], "it comes from the outbox"
    assert again.take_published(1, value("plant/a"), True) == []
    sealed = entry(1, value("plant/a"), Wire("w", b""))
    again.note_sealing(sealed, sealer("one"), NOW)
    assert due(again, seal="one") == ["plant/a"], "replicas may take it for a repetition: a snapshot follows"
    sealed.is_snapshot = True
    again.note_sealing(sealed, sealer("one"), NOW)
    assert due(again, seal="one") == []
    assert [each.sequence for each in told(again)] == [1]


def flood(
    retained: OwnRetained, owner: str, topics: int, payload: bytes = b"x", start: int = 100, client: str = "c"
) -> None:
    for number in range(topics):
        topic = f"plant/{owner}/{client}/{number}"
        retained.expect(topic, owner, client)
        retained.take_published(start + number, value(topic, payload), True)
        retained.note_sealing(entry(start + number, value(topic, payload), Wire("w", payload)), sealer("one"), NOW)


@pytest.mark.attack(144)
@pytest.mark.parametrize("payload", [b"x", bytes(2_000)], ids=["many topics", "many bytes"])
def test_a_client_that_retains_without_end_loses_its_own(monkeypatch: pytest.MonkeyPatch, payload: bytes) -> None:
    """Attack: 40 messages of 1 MB, or 11,000 names: what all other clients of the gateway retain was forgotten."""
    monkeypatch.setattr(own_retained, "RETAINED_OWN_MAX", 30)
    monkeypatch.setattr(own_retained, "RETAINED_OWN_BYTES_MAX", 50_000)
    retained = OwnRetained()
    flood(retained, "good", 5, start=1)
    flood(retained, "evil", 100, payload)
    topics = {one.publication.topic for one in told(retained)}
    assert {f"plant/good/c/{number}" for number in range(5)} <= topics
    assert len(topics) > 10, "alone it may use all that others do not need"


@pytest.mark.attack(144)
def test_owners_outlive_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_retained, "RETAINED_OWN_MAX", 30)
    before = OwnRetained()
    flood(before, "good", 5, start=1)
    flood(before, "evil", 24)
    rows = {name: row for name, row in rows_of(before).items() if row is not None}
    after = OwnRetained()
    after.restore(rows.items(), lambda _: False)
    flood(after, "evil2", 200, start=1_000)
    flood(after, "evil", 30, start=2_000)
    assert {f"plant/good/c/{number}" for number in range(5)} <= {one.publication.topic for one in after._kept.values()}


def test_an_owner_is_the_one_who_published_last() -> None:
    retained = OwnRetained()
    for sequence, owner in enumerate(("one", "two"), 1):
        retained.expect("plant/t", owner)
        retained.take_published(sequence, value(), True)
    assert [one.owner for one in retained._kept.values()] == ["two\0"]
    retained.overtaken("plant/t", int(NOW * 1000))
    assert not len(retained._weights), "nothing is left of either"


@pytest.mark.attack(149)
def test_one_user_under_many_client_ids_is_one_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a user retains one message under each of a thousand client ids, so that none of them has most."""
    monkeypatch.setattr(own_retained, "RETAINED_OWN_MAX", 30)
    retained = OwnRetained()
    flood(retained, "good", 5, start=1)
    for number in range(100):
        flood(retained, "evil", 1, start=100 + number, client=f"evil{number}")
    assert sum(topic.startswith("plant/good/") for topic in retained._kept) == 5


@pytest.mark.attack(149)
def test_of_one_user_the_client_with_most_loses_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_retained, "RETAINED_OWN_MAX", 30)
    retained = OwnRetained()
    flood(retained, "fleet", 5, start=1, client="pump")
    flood(retained, "fleet", 100, start=100, client="broken")
    assert [f"plant/fleet/pump/{number}" in retained._kept for number in range(5)] == [True] * 5
    assert "plant/fleet/broken/99" in retained._kept


def test_a_restart_brings_back_nothing_older_than_is_known() -> None:
    rows = [(name, row) for name, row in rows_of(kept("plant/a")).items() if row is not None]
    retained = OwnRetained()
    retained.take_published(7, value("plant/a"), True)
    retained.restore(rows, lambda _: False)
    assert due(retained, seal="two") == [], "the newer one was never sealed"


def test_a_sealing_that_replicas_may_take_for_a_repetition_is_followed_by_a_snapshot_soon() -> None:
    asked: list[float] = []
    sealing = SimpleNamespace(seal_of=lambda _: "one", ask_review=asked.append)
    retained, there = OwnRetained(), entry(1, value(), Wire("w", b""))
    retained.take_published(1, value(), True)
    for _ in range(2):
        retained.note_sealing(there, sealing, NOW)  # type: ignore[arg-type]
        assert (due(retained, seal="one"), asked) == ([], [])
    there.had_enough = True
    retained.note_sealing(there, sealing, NOW)  # type: ignore[arg-type]
    assert (due(retained, seal="one"), asked) == (["plant/t"], [NOW + LOOK_AGAIN_S])
