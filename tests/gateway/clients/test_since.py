"""Subscriptions that begin in the past: how they are spelled, and what is refused."""

from __future__ import annotations

import pytest

from gateway.clients import inner_filter, since_ms, with_predicates, with_since
from gateway.mqtt5.packets import Properties, Subscribe, Subscription

NOW = 1_800_000_000.0


def asked(topic_filter: str, *user: tuple[str, str]) -> Subscription:
    packet = Subscribe(1, (Subscription(topic_filter, 1),), Properties(user=user))
    return with_predicates(with_since(packet)).subscriptions[0]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("90s", 1_799_999_910_000),
        ("2h", 1_799_992_800_000),
        ("7d", 1_799_395_200_000),
        ("2026-11-28T08:00:00Z", 1_795_852_800_000),
        ("2026-11-28T09:00:00+01:00", 1_795_852_800_000),
        ("2026-11-28T08:00:00", 1_795_852_800_000),
    ],
)
def test_ages_and_times(text: str, ms: int) -> None:
    assert since_ms(text, NOW) == ms


@pytest.mark.parametrize("text", ["", "2", "h", "0h", "-2h", "2H", "2 h", "yesterday", "12345678s", "٢h"])
def test_what_is_no_time(text: str) -> None:
    assert since_ms(text, NOW) is None


def test_the_filter_is_what_stands_behind() -> None:
    plain, where = asked("$since/2h/plant/#"), asked("$since/2h/plant/+?x>1")
    assert (plain.since, plain.base, inner_filter(plain)) == ("2h", "plant/#", "plant/#")
    assert (where.since, where.predicate, inner_filter(where)) == ("2h", "?x>1", "plant/+")
    told = asked("plant/#", ("since", "2h"))
    assert (told.since, told.base, inner_filter(told)) == ("2h", "plant/#", "plant/#")
    assert asked("plant/#").since == ""


@pytest.mark.parametrize(
    ("topic_filter", "user"),
    [
        ("$share/g/$since/2h/plant/#", ()),
        ("$since/2h/$share/g/plant/#", ()),
        ("$share/g/plant/#", (("since", "2h"),)),
        ("$since/2h/$since/2h/plant/#", ()),
        ("$since/never/plant/#", ()),
        ("$since/2h/plant/#", (("since", "2h"),)),
        ("plant/#", (("since", ""),)),
    ],
)
def test_what_is_refused(topic_filter: str, user: tuple[tuple[str, str], ...]) -> None:
    assert inner_filter(asked(topic_filter, *user)) is None
