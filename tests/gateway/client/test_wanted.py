"""Subscriptions that a client wants: asked once a connection, again after a lost session; who asks hears the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.client import wanted
from gateway.client.wanted import FILTERS_PER_PACKET, TooManySubscriptionsError, WantedSubscriptions, _Dropping
from gateway.mqtt5.client_session import Answered, Unanswered
from gateway.mqtt5.packets import SubAck, Subscription, UnsubAck
from gateway.mqtt5.types import ReasonCode, Refused


class Session:
    """Records what is asked; `room`: requests that it still takes."""

    def __init__(self, room: int = 1_000) -> None:
        self.room = room
        self.asked: list[tuple[str, tuple[str, ...], object]] = []

    def _take(self, what: str, filters: tuple[str, ...], token: object) -> bytes:
        if not self.room:
            raise Refused("too many requests without an answer", ReasonCode.QUOTA_EXCEEDED)
        self.room -= 1
        self.asked.append((what, filters, token))
        return what.encode()

    def subscribe(self, options: tuple[Subscription, ...], token: object, now: float) -> bytes:
        return self._take("subscribe", tuple(each.filter for each in options), token)

    def unsubscribe(self, filters: tuple[str, ...], token: object, now: float) -> bytes:
        return self._take("unsubscribe", filters, token)


def ask(wishes: WantedSubscriptions, room: int = 1_000) -> Session:
    session = Session(room)
    wishes.send_wanted(session, lambda data: None, 0.0)  # type: ignore[arg-type]
    return session


def answer(wishes: WantedSubscriptions, *codes: int, options: tuple[Subscription, ...]) -> None:
    wishes.take_answer(Answered(options, SubAck(1, codes)))


A, B = Subscription("a", 1), Subscription("b", 2)


def test_what_is_wanted_is_asked_once_a_connection() -> None:
    wishes = WantedSubscriptions("broker")
    assert wishes.add_wanted(A, None)
    assert wishes.add_wanted(B, None)
    assert [(what, filters) for what, filters, _ in ask(wishes).asked] == [("subscribe", ("a", "b"))]
    assert ask(wishes).asked == []
    wishes.begin_connection(session_present=True)
    assert ask(wishes).asked == [], "the server knows"
    wishes.begin_connection(session_present=False)
    assert len(ask(wishes).asked) == 1


def test_the_same_wish_again_hears_the_answer_that_came_or_the_one_to_come() -> None:
    wishes, heard = WantedSubscriptions("broker"), list[int]()
    wishes.add_wanted(A, None)
    ask(wishes)
    assert not wishes.add_wanted(A, heard.append)
    answer(wishes, 1, options=(A,))
    assert heard == [1]
    assert not wishes.add_wanted(A, heard.append)
    assert heard == [1, 1]
    assert wishes.add_wanted(Subscription("a", 2), heard.append), "other options are another wish"
    answer(wishes, 1, options=(A,))
    assert heard == [1, 1], "an answer to what is not wanted any more"


def test_many_filters_go_in_packets_of_so_many() -> None:
    wishes = WantedSubscriptions("broker")
    for number in range(FILTERS_PER_PACKET + 1):
        wishes.add_wanted(Subscription(str(number)), None)
    assert [len(filters) for _, filters, _ in ask(wishes).asked] == [FILTERS_PER_PACKET, 1]
    for number in range(FILTERS_PER_PACKET + 1):
        wishes.drop_wanted(str(number))
    assert [(what, len(filters)) for what, filters, _ in ask(wishes).asked] == [
        ("unsubscribe", FILTERS_PER_PACKET), ("unsubscribe", 1),
    ]  # fmt: skip


def test_what_finds_no_room_is_asked_later() -> None:
    wishes = WantedSubscriptions("broker")
    for number in range(2 * FILTERS_PER_PACKET):
        wishes.add_wanted(Subscription(str(number)), None)
    assert len(ask(wishes, room=1).asked) == 1
    ((_, filters, _),) = ask(wishes).asked
    assert filters == tuple(str(number) for number in range(FILTERS_PER_PACKET, 2 * FILTERS_PER_PACKET))
    wishes.drop_wanted("0")
    assert ask(wishes, room=0).asked == []
    assert [filters for _, filters, _ in ask(wishes).asked] == [("0",)]


def test_what_is_dropped_is_unsubscribed_once_and_not_where_the_server_forgot_it() -> None:
    wishes = WantedSubscriptions("broker")
    assert not wishes.drop_wanted("a")
    wishes.add_wanted(A, None)
    ask(wishes)
    assert wishes.drop_wanted("a")
    assert not wishes.drop_wanted("a")
    assert [what for what, _, _ in ask(wishes).asked] == ["unsubscribe"]
    assert ask(wishes).asked == []
    wishes.add_wanted(B, None)
    wishes.drop_wanted("b")
    wishes.begin_connection(session_present=False)
    assert ask(wishes).asked == []


def test_who_wants_again_what_was_dropped_is_not_unsubscribed() -> None:
    wishes = WantedSubscriptions("broker")
    wishes.add_wanted(A, None)
    ask(wishes)
    wishes.drop_wanted("a")
    wishes.add_wanted(A, None)
    assert [what for what, _, _ in ask(wishes).asked] == ["subscribe"]


def test_requests_that_a_lost_connection_left_unanswered_are_asked_again() -> None:
    wishes = WantedSubscriptions("broker")
    wishes.add_wanted(A, None)
    wishes.add_wanted(B, None)
    ((_, _, token),) = ask(wishes).asked
    wishes.drop_wanted("b")
    ((_, _, dropping),) = ask(wishes).asked
    assert isinstance(dropping, _Dropping)
    wishes.unanswered(Unanswered(token))
    wishes.unanswered(Unanswered(dropping))
    assert [(what, filters) for what, filters, _ in ask(wishes).asked] == [
        ("subscribe", ("a",)), ("unsubscribe", ("b",)),
    ]  # fmt: skip
    wishes.add_wanted(B, None)
    wishes.unanswered(Unanswered(dropping))
    assert [what for what, _, _ in ask(wishes).asked] == ["subscribe"], "it is wanted again meanwhile"


def test_a_refusal_is_told_and_logged_and_other_packets_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    wishes, heard = WantedSubscriptions("broker"), list[int]()
    wishes.add_wanted(A, heard.append)
    ask(wishes)
    wishes.take_answer(Answered((A,), UnsubAck(1, (0,))))
    wishes.take_answer(Answered(_Dropping(("a",)), SubAck(1, (0,))))
    assert heard == []
    answer(wishes, 0x87, options=(A,))
    assert heard == [0x87]
    assert [one.getMessage() for one in caplog.records] == [f"broker refused the subscription to {A.filter}: 0x87"]


def test_wishes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted, "MAX_SUBSCRIPTIONS", 2)
    wishes = WantedSubscriptions("broker")
    wishes.add_wanted(A, None)
    wishes.add_wanted(B, None)
    with pytest.raises(TooManySubscriptionsError, match="wildcards"):
        wishes.add_wanted(Subscription("c"), None)
    assert wishes.add_wanted(Subscription("a", 2), None), "in the place of one that is there"
    wishes.drop_wanted("b")
    assert wishes.add_wanted(Subscription("c"), None)


def test_asked_again_everything_is_asked_with_what_is_retained() -> None:
    wishes = WantedSubscriptions("broker")
    wishes.add_wanted(replace(A, retain_handling=2), None)
    ask(wishes)
    assert ask(wishes).asked == []
    wishes.mark_all_unsent()
    assert ask(wishes).asked == [("subscribe", (A.filter,), (A,))]
