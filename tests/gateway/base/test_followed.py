"""Who follows messages sees the steps that were asked for, later ones by their name, within bounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.base.followed import (
    CLIENTS_MAX,
    FOLLOWINGS_MAX,
    MESSAGES_MAX,
    PASSED_MAX,
    SHOWN_CHARACTERS,
    STEPS_MAX,
    FollowedMessages,
    FollowError,
    Following,
    Wish,
)

AT = 1_767_323_045.678


@pytest.fixture
def changes() -> list[bool]:
    return []


@pytest.fixture
def followed(changes: list[bool]) -> FollowedMessages:
    return FollowedMessages("site", changes.append, lambda: AT)


def names(following: Following) -> list[str]:
    found = []
    while (step := following.take_step()) is not None:
        found.append(step.name)
    return found


def test_a_step_shows_what_is_known_and_nothing_empty(followed: FollowedMessages) -> None:
    following = followed.begin_following(Wish.read(client="pump"))
    followed.say_step("received", client="pump", topic="plant/a", qos=0, reason=None, address="192.0.2.7:4000")
    step = following.take_step()
    assert step is not None
    assert step.to_dict("site") == {
        "time": "2026-01-02T03:04:05.678Z", "member": "site", "step": "received", "client": "pump", "topic": "plant/a",
        "address": "192.0.2.7:4000", "qos": 0,
    }  # fmt: skip
    followed.say_step("received", client="pump", topic="t" * 60_000)
    long = following.take_step()
    assert long is not None
    assert len(long.to_dict("site")["topic"]) == SHOWN_CHARACTERS + 3


def say_all(followed: FollowedMessages) -> None:
    followed.say_step("1", client="pump", topic="plant/a", address="192.0.2.7:1")
    followed.say_step("2", client="door", topic="plant/b", address="[2001:db8::1]:2")
    followed.say_step("3", client="desk", publisher="pump", topic="plant/a", address="198.51.100.1:3")
    followed.say_step("4", client="desk", topic="office/a", address="unix")


@pytest.mark.parametrize(("wish", "seen"), [
    (Wish.read(client="pump"), "13"), (Wish.read(topic="plant/+"), "123"), (Wish.read(address="192.0.2.0/24"), "13"),
    (Wish.read(address="2001:db8::/32"), "2"), (Wish.read(client="desk", topic="office/#"), "4"), (Wish(), "1234"),
    (Wish.read(address="192.0.2.7", topic="plant/b"), ""),
])  # fmt: skip
def test_what_is_asked_for_is_seen(followed: FollowedMessages, wish: Wish, seen: str) -> None:
    following = followed.begin_following(wish)
    say_all(followed)
    assert "".join(names(following)) == seen


def test_a_message_is_followed_by_its_name_into_the_batch_that_takes_it_along(followed: FollowedMessages) -> None:
    following = followed.begin_following(Wish.read(client="pump"))
    followed.say_step("numbered", message="site/7", publisher="pump", topic="plant/a")
    followed.say_step("batched", message="site/7", then="site/5")
    followed.say_step("batched", message="site/6", then="site/5")  # another client's, in the same batch
    followed.say_step("sent", message="site/5")
    followed.say_step("sent", message="site/8")
    assert names(following) == ["numbered", "batched", "sent"]


def test_other_records_of_a_batch_are_not_shown(followed: FollowedMessages) -> None:
    following = followed.begin_following(Wish.read(topic="plant/line/+"))
    followed.say_step("numbered", message="site/6", topic="plant/other")
    followed.say_step("numbered", message="site/7", topic="plant/line/7")
    followed.say_step("on its way", message="site/6", then="site/6")
    followed.say_step("on its way", message="site/7", then="site/6")
    followed.say_step("sent to member", message="site/6")
    followed.say_step("opened", message="site/6", topic="plant/other")
    followed.say_step("opened", message="site/7", topic="plant/line/7")
    seen = ["numbered", "on its way", "sent to member", "opened"]
    assert names(following) == seen
    later = followed.begin_following(Wish.read(topic="plant/line/+"))
    later.name_message("site/6")
    assert names(later) == ["on its way", "on its way", "sent to member"]


def test_what_has_passed_is_seen_when_another_member_names_it(followed: FollowedMessages) -> None:
    following = followed.begin_following(Wish.read(topic="plant/#"))
    followed.say_step("came", message="site/7")
    followed.say_step("came", message="site/8")
    assert names(following) == []
    following.name_message("site/7")
    following.name_message("site/7")
    assert names(following) == ["came"]
    followed.say_step("went", message="site/7")
    assert names(following) == ["went"]


def test_a_step_without_a_name_has_that_of_the_message_in_hand(followed: FollowedMessages) -> None:
    following = followed.begin_following(Wish())
    followed.current = "site/7"
    followed.say_step("sent", client="desk")
    step = following.take_step()
    assert step is not None
    assert step.message == "site/7"


def test_somebody_is_told_when_the_first_begins_and_the_last_ends(
    followed: FollowedMessages, changes: list[bool]
) -> None:
    one, two = followed.begin_following(Wish()), followed.begin_following(Wish())
    followed.say_step("1", message="site/1")
    followed.end_following(one)
    assert changes == [True]
    followed.end_following(two)
    followed.end_following(two)
    assert changes == [True, False]
    three = followed.begin_following(Wish.read(client="x"))
    three.name_message("site/1")
    assert names(three) == [], "nothing of before is kept"


def test_so_many_may_follow(followed: FollowedMessages) -> None:
    for _ in range(FOLLOWINGS_MAX):
        followed.begin_following(Wish())
    with pytest.raises(FollowError, match="end one of them first"):
        followed.begin_following(Wish())


def test_a_terminal_that_does_not_read_misses_steps_and_is_told(followed: FollowedMessages) -> None:
    following = followed.begin_following(Wish())
    for number in range(STEPS_MAX + 7):
        followed.say_step(str(number))
    assert following.missed == 7
    assert len(names(following)) == STEPS_MAX


def test_names_of_messages_and_clients_are_bounded(followed: FollowedMessages) -> None:
    following = followed.begin_following(Wish.read(address="0.0.0.0/0"))
    for number in range(PASSED_MAX + MESSAGES_MAX):
        followed.say_step("came", message=f"site/{number}", client=f"c{number}", address="192.0.2.1:1")
    assert len(following._messages) == MESSAGES_MAX
    assert len(following._clients) == CLIENTS_MAX
    assert len(followed._passed) == PASSED_MAX


@pytest.mark.parametrize(("make", "said"), [
    (lambda: Wish.read(topic="a/#/b"), "give a filter such as plant/#"),
    (lambda: Wish.read(address="here"), "--address here: no address"),
])  # fmt: skip
def test_a_wrong_wish_is_one_line(make: Callable[[], Wish], said: str) -> None:
    with pytest.raises(FollowError, match=said):
        make()
