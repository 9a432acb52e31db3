"""Requests for what is missing: whom to ask when, and their frame."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.wire import pulling
from bridge.wire.pulling import (
    ANSWERS_MAX,
    GIVE_UP_S,
    PULL_TOPIC,
    REQUESTS_BURST,
    REQUESTS_PER_S,
    RETRY_MAX_S,
    RETRY_S,
    UNKNOWN_BURST,
    UNKNOWN_PER_S,
    Answers,
    PullRequest,
    Pulls,
)
from keys.errors import BadFrame
from tests.bridge.helpers import NOW

pytestmark = pytest.mark.invariant(22)


def test_who_answers_is_asked_first() -> None:
    pulls = Pulls()
    for number in range(6):
        one = pulls.begin_pull((b"p", number), 0, b"p", NOW, 0.0)
        (send,) = pulls.ask_next(one, ["liar", "honest"], (0,))
        if send.peer == "liar":
            (send,) = pulls.ask_next(one, ["liar", "honest"], (0,))
        assert send.peer == "honest"
        pulls.content_came(one, "honest", 0.1)
    assert len(one.asked) == 1, "by now the liar is not asked any more"


def test_where_content_is_usually_late_it_is_waited_for_up_to_a_bound() -> None:
    """A busy host would else answer requests for what is on its way, and become busier."""
    pulls = Pulls()
    assert pulls.begin_pull((b"p", 0), 0, b"p", NOW, 0.02).at == NOW + 0.02
    for _ in range(30):
        pulls.content_came(None, "r1a", 0.2)
    assert NOW + 0.2 < pulls.begin_pull((b"p", 1), 0, b"p", NOW, 0.02).at < NOW + 0.3
    assert pulls.begin_pull((b"p", 2), 0, b"asker", NOW, 0.0).at == NOW, "somebody else waited already"
    asked = pulls.begin_pull((b"p", 3), 0, b"p", NOW, 0.02)
    pulls.ask_next(asked, ["r1b"], (0,))
    before = pulls.patience_s
    pulls.content_came(asked, "r1b", 9.0)
    assert pulls.patience_s == before, "an answer says nothing of what comes by itself"
    for _ in range(100):
        pulls.content_came(None, "liar", 30.0)
    assert pulls.patience_s == pulling.PATIENCE_MAX_S
    for _ in range(100):
        pulls.content_came(None, "r1a", 0.001)
    assert pulls.patience_s < 0.01


def test_the_frame_is_canonical() -> None:
    request = PullRequest(b"p" * 16, 5, 7, (0, 3), 4)
    assert PullRequest.decode(request.encode()) == request
    for parts in ((3, 0), (3, 3)):
        with pytest.raises(BadFrame, match="order"):
            PullRequest.decode(PullRequest(b"p" * 16, 5, 7, parts).encode())


@settings(max_examples=150)
@given(st.integers(0, 50), st.binary(min_size=1, max_size=6), st.binary(max_size=60))
def test_whatever_comes_is_refused_or_canonical(offset: int, data: bytes, garbage: bytes) -> None:
    frame = PullRequest(b"p" * 16, 5, 7, (0, 3), 4).encode()
    for changed in (frame[:offset] + data + frame[offset + len(data) :], frame[:3] + garbage, garbage):
        try:
            assert PullRequest.decode(changed).encode() == changed
        except BadFrame:
            continue


# ---------------------------------------------------------------------------------------------- asking

P = b"p" * 16
NAME = (P, 1)


def asked(
    pulls: Pulls, sources: tuple[str, ...] = ("r1a", "r1b"), parts: tuple[int, ...] = (2,)
) -> tuple[str, PullRequest]:
    """The next request for NAME: to whom, and what."""
    one = pulls.get(NAME)
    assert one is not None
    (send,) = pulls.ask_next(one, ("r1a", "r1b"), (2,))
    assert send.wire.topic == PULL_TOPIC
    return send.peer, PullRequest.decode(send.wire.payload)


def test_sources_are_asked_in_turn_and_every_fourth_time_for_anything() -> None:
    pulls = Pulls()
    pulls.begin_pull(NAME, 50, b"p", NOW, 0.0)
    found = [asked(pulls) for _ in range(8)]
    assert [peer for peer, _ in found] == ["r1a", "r1b"] * 4
    assert [(request.time_ms, request.parts) for _, request in found[:4]] == [(50, (2,))] * 3 + [(0, ())]
    assert [request.parts for _, request in found[4:]] == [(2,)] * 3 + [()]
    one = pulls.get(NAME)
    assert one is not None
    assert pulls.ask_next(one, (), (0,)) == []


def test_requests_come_later_and_later_up_to_a_bound_and_end() -> None:
    pulls = Pulls()
    pulls.begin_pull(NAME, 0, b"p", NOW, 0.0)
    pauses, at = [], NOW
    while (following := pulls.next_deadline) is not None:
        pauses.append(following - at)
        at = following
        asking, gone = pulls.due_pulls(at)
        if gone:
            assert [each.name for each in gone] == [NAME]
            break
        assert [each.name for each in asking] == [NAME]
        asked(pulls)
    assert pauses[0] == 0
    assert pauses[1:5] == pytest.approx([RETRY_S] * 4)
    assert pauses[5:9] == pytest.approx([2 * RETRY_S] * 4)
    assert max(pauses) <= RETRY_MAX_S + 1e-6
    assert at == NOW + GIVE_UP_S
    assert (len(pulls), pulls.next_deadline, pulls.get(NAME)) == (0, None, None)


def test_nothing_is_due_before_its_time_and_what_ended_not_at_all() -> None:
    pulls = Pulls()
    pulls.begin_pull(NAME, 0, b"p", NOW, 0.5)
    other = pulls.begin_pull((b"q" * 16, 2), 0, b"q", NOW, 0.2)
    assert pulls.next_deadline == NOW + 0.2
    assert pulls.due_pulls(NOW + 0.1) == ([], [])
    assert pulls.end_pull(other.name) is other
    assert pulls.next_deadline == NOW + 0.5
    assert pulls.end_pull(other.name) is None


def test_one_that_is_asked_for_already_is_for_the_latest_sealing() -> None:
    pulls = Pulls()
    first = pulls.begin_pull(NAME, 50, b"p", NOW, 0.5)
    assert pulls.begin_pull(NAME, 40, b"p", NOW + 1, 0.0) is first
    assert (first.time_ms, first.at) == (50, NOW + 0.5)
    pulls.begin_pull(NAME, 60, b"p", NOW + 1, 0.0)
    assert first.time_ms == 60
    assert len(pulls) == 1


def test_who_is_no_neighbour_any_more_asked_for_nothing() -> None:
    pulls = Pulls()
    one = pulls.begin_pull(NAME, 0, b"p", NOW, 0.0)
    one.askers = {"here": (1,), "gone": ()}
    pulls.forget_all_but({"here"})
    assert one.askers == {"here": (1,)}


def test_who_wants_most_loses_its_own_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "PULLS_MAX", 3)
    pulls = Pulls()
    pulls.begin_pull((b"h" * 16, 1), 0, b"honest", NOW, 0.0)
    for number in range(5):
        pulls.begin_pull((b"f" * 16, number), 0, b"flooder", NOW, 0.0)
    assert pulls.get((b"h" * 16, 1)) is not None
    assert [pulls.get((b"f" * 16, number)) is not None for number in range(5)] == [False] * 3 + [True] * 2
    assert len(pulls.due_pulls(NOW)[0]) == 3, "wake-ups of those that had to go are stale"


# ------------------------------------------------------------------------------------------- answering


def test_each_piece_is_given_to_one_asker_a_few_times() -> None:
    answers, pieces = Answers(), {0: b"a", 1: b"b"}
    for _ in range(ANSWERS_MAX - 1):
        assert answers.give("r1a", NAME, 5, {0: b"a"}, NOW) == {0: b"a"}
    assert answers.give("r1a", NAME, 5, pieces, NOW) == pieces
    assert answers.give("r1a", NAME, 5, pieces, NOW) == {1: b"b"}
    assert answers.give("r1a", NAME, 5, {0: b"a"}, NOW) is None
    assert answers.give("r1a", NAME, 6, pieces, NOW) == pieces, "another sealing"
    assert answers.give("r1b", NAME, 5, pieces, NOW) == pieces


def test_an_announcement_counts_as_a_piece_of_its_own() -> None:
    answers = Answers()
    assert [answers.give("r1a", NAME, 5, {}, NOW) for _ in range(ANSWERS_MAX + 1)] == [{}] * ANSWERS_MAX + [None]
    assert answers.give("r1a", NAME, 5, {0: b"a"}, NOW) == {0: b"a"}


def test_bytes_to_one_neighbour_are_bounded_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "ANSWER_BYTES_BURST", 2000.0)
    monkeypatch.setattr(pulling, "ANSWER_BYTES_PER_S", 1000.0)
    answers, piece = Answers(), {0: bytes(1500)}
    assert answers.give("r1a", (b"p", 1), 5, piece, NOW) == piece
    assert answers.give("r1a", (b"p", 2), 5, piece, NOW) is None, "1,500 and a header are more than 2,000"
    assert answers.give("r1b", (b"p", 2), 5, piece, NOW) == piece
    assert answers.give("r1a", (b"p", 2), 5, piece, NOW + 0.1) == piece
    answers.forget_all_but({"r1b"})
    assert answers.give("r1a", (b"p", 3), 5, piece, NOW) == piece, "who comes back begins anew"
    assert answers.give("r1b", (b"p", 3), 5, piece, NOW) is None


def test_requests_of_one_neighbour_are_bounded_and_those_for_the_unknown_more() -> None:
    answers = Answers()
    assert sum(answers.may_ask("r1a", P, NOW) for _ in range(int(REQUESTS_BURST) + 50)) == REQUESTS_BURST / 2
    assert sum(answers.may_ask_unknown("r1a", P, NOW) for _ in range(int(UNKNOWN_BURST) + 50)) == UNKNOWN_BURST / 2
    assert answers.may_ask("r1b", P, NOW)
    later = NOW + 1
    assert sum(answers.may_ask("r1a", P, later) for _ in range(5000)) == REQUESTS_PER_S
    assert sum(answers.may_ask_unknown("r1a", P, later) for _ in range(5000)) == UNKNOWN_PER_S
    answers.forget_all_but({"r1b"})
    assert answers.may_ask_unknown("r1a", P, later), "who comes back begins anew"


@pytest.mark.long
@pytest.mark.invariant(29)
def test_holes_of_one_publisher_leave_requests_for_others() -> None:
    """Attack: a publisher signs gaps that nothing fills, so that its readers ask for them without end."""
    answers, honest = Answers(), b"h" * 16
    for number in range(200):
        while answers.may_ask("r1a", P, NOW + number):
            pass
        while answers.may_ask_unknown("r1a", P, NOW + number):
            pass
        asked = [answers.may_ask("r1a", honest, NOW + number) for _ in range(20)]
        asked += [answers.may_ask_unknown("r1a", honest, NOW + number) for _ in range(20)]
        assert all(asked)


def test_a_request_names_any_sealing_and_all_pieces_unless_it_says_which() -> None:
    assert PullRequest(b"p" * 16, 5) == PullRequest(b"p" * 16, 5, 0, ())
    with pytest.raises(BadFrame, match="order"):
        PullRequest.decode(PullRequest(b"p" * 16, 5, 7, (8, 0)).encode())


def test_what_is_waited_for_is_given_up_so_much_later() -> None:
    assert Pulls().begin_pull(NAME, 0, b"p", NOW, 0.5).until == NOW + 0.5 + GIVE_UP_S


def test_what_comes_by_itself_while_somebody_else_is_asked_says_what_is_usual() -> None:
    """An eighth of the difference counts, and a quarter of the spread, four of which are the margin."""
    pulls = Pulls()
    one = pulls.begin_pull(NAME, 0, b"p", NOW, 0.02)
    pulls.ask_next(one, ["r1a"], (0,))
    pulls.content_came(one, "r1b", 0.08)
    assert pulls.patience_s == pytest.approx(0.01 + 4 * 0.02)
    pulls.content_came(None, "r1b", 0.08)
    assert pulls.patience_s == pytest.approx(0.01 + 0.07 / 8 + 4 * (0.02 + (0.07 - 0.02) / 4))


def test_all_that_is_over_is_given_up_at_once() -> None:
    pulls = Pulls()
    for number in range(3):
        pulls.begin_pull((b"p" * 16, number), 0, b"p", NOW, 0.0)
    asking, gone = pulls.due_pulls(NOW + GIVE_UP_S)
    assert (len(asking), len(gone), len(pulls)) == (0, 3, 0)


def test_one_that_is_begun_anew_is_due_when_it_says() -> None:
    pulls = Pulls()
    pulls.begin_pull(NAME, 0, b"p", NOW, 0.2)
    pulls.end_pull(NAME)
    pulls.begin_pull(NAME, 0, b"p", NOW, 0.5)
    assert pulls.next_deadline == NOW + 0.5
