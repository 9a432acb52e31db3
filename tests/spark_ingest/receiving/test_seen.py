"""What is in the spool already: repetitions are known, over restarts too, and retained state is let in once."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keys.replay import BLOCK_NUMBERS
from spark_ingest.receiving import seen as module
from spark_ingest.receiving.seen import BLOCKS_MAX, Seen

A, B = b"a" * 16, b"b" * 16


def has(seen: Seen, sequence: int, publisher: bytes = A, topic: str = "t", retain: bool = False) -> bool:
    return seen.has_written(publisher, sequence, topic, retain)


def written(*sequences: int, publisher: bytes = A, topic: str = "t", retain: bool = False) -> Seen:
    seen = Seen()
    for sequence in sequences:
        seen.mark_written(publisher, sequence, topic, retain)
    return seen


def far_behind(seen: Seen) -> int:
    """A sequence that the publisher's window does not reach."""
    for block in range(1, BLOCKS_MAX + 1):
        seen.mark_written(A, block * BLOCK_NUMBERS, "other", False)
    return 5


def test_what_was_written_is_known_and_gaps_are_not() -> None:
    seen = written(1, 2, 5)
    assert [has(seen, number) for number in range(1, 7)] == [True, True, False, False, True, False]
    assert seen.knows_author(A)
    assert not seen.knows_author(B)
    assert not has(seen, 1, publisher=B)


def test_what_is_older_than_the_window_counts_as_written() -> None:
    seen = written(1)
    old = far_behind(seen)
    assert has(seen, old)
    assert not has(seen, BLOCKS_MAX * BLOCK_NUMBERS + 1)


def test_retained_state_that_is_older_than_the_window_is_let_in_once() -> None:
    seen = written(1)
    old = far_behind(seen)
    assert not has(seen, old, retain=True)
    seen.mark_written(A, old, "t", True)
    assert has(seen, old, retain=True)
    assert has(seen, old - 1, retain=True), "of a topic the newest counts"
    assert not has(seen, old + 1, retain=True)
    assert not has(seen, old, topic="other", retain=True)
    seen.mark_written(A, old - 3, "t", True)
    assert has(seen, old, retain=True), "what is older takes nothing back"


def test_topics_of_retained_state_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETAINED_TOPICS_MAX", 2)
    seen = written(1)
    old = far_behind(seen)
    for topic in ("x", "y", "x", "z"):
        seen.mark_written(A, old, topic, True)
    assert [has(seen, old, topic=topic, retain=True) for topic in "xyz"] == [True, False, True]


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 5_000), st.booleans()), max_size=40))
def test_a_restart_changes_nothing(marks: list[tuple[bytes, int, bool]]) -> None:
    seen = Seen()
    for publisher, sequence, retain in marks:
        seen.mark_written(publisher, sequence, "t", retain)
    again = Seen.from_json(json.loads(json.dumps(seen.to_json())))
    assert again.to_json() == seen.to_json()
    for publisher in (A, B):
        for sequence in {number for _, number, _ in marks} | {1, 4_999}:
            for retain in (True, False):
                args = (publisher, sequence, "t", retain)
                assert again.has_written(*args) == seen.has_written(*args)


@pytest.mark.parametrize("document", [
    {}, {"windows": {}}, {"windows": {"zz": ""}, "retained": []}, {"windows": {"aa": "!"}, "retained": []},
    {"windows": {}, "retained": [["aa", "t"]]}, {"windows": {}, "retained": [["aa", "t", "x"]]},
    {"windows": {"aa": 7}, "retained": []},
])  # fmt: skip
def test_what_is_no_state_is_refused(document: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Seen.from_json(document)


def test_it_says_since_when_it_knows_what_was_written() -> None:
    """The first receiver that began counts, and one whose clock was ahead of it does not; those beside, too."""
    seen = Seen()
    assert seen.since_ms is None
    seen.begins(2_000)
    seen.begins(3_000)
    assert Seen.from_json(json.loads(json.dumps(seen.to_json()))).since_ms == 2_000
    seen.begins(1_000)
    assert Seen([seen]).since_ms == 1_000
    former = {name: value for name, value in seen.to_json().items() if name != "since_ms"}
    assert Seen.from_json(former).since_ms is None
