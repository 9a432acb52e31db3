"""Where a SUBSCRIBE says its predicate."""

from __future__ import annotations

import pytest

from gateway.clients.content_filters import inner_filter, route_name, split_expression, wants, with_predicates
from gateway.mqtt5.packets import Properties, Publish, Subscribe, Subscription


def read(topic_filter: str, *where: str) -> Subscription:
    properties = Properties(user=tuple(("$where", text) for text in where))
    return with_predicates(Subscribe(1, (Subscription(topic_filter),), properties)).subscriptions[0]


@pytest.mark.parametrize(("text", "expected"), [
    ("a/b", ("a/b", "")), ("a/b?v>1", ("a/b", "?v>1")), ("a?v=/?x", ("a", "?v=/?x")),
    ("$SYS/a?v=1", ("$SYS/a?v=1", "")),
    ("$share/g/a?v=1", ("$share/g/a", "?v=1")), ("$share/g?/a?v=1", ("$share/g?/a", "?v=1")),
    ("$share/g/$SYS/a?v=1", ("$share/g/$SYS/a?v=1", "")), ("a?", ("a", "?")), ("?v=1", ("", "?v=1")),
])  # fmt: skip
def test_the_expression_of_a_filter(text: str, expected: tuple[str, str]) -> None:
    assert split_expression(text) == expected


def test_filter_and_predicate_come_apart() -> None:
    plain, behind, beside = read("a/+"), read("a/+?v>1"), read("a/+", "v > 1")
    assert [(one.base, inner_filter(one), one.predicate) for one in (plain, behind, beside)] == [
        ("a/+", "a/+", ""), ("a/+", "a/+", "?v>1"), ("a/+", "a/+", "v > 1")]  # fmt: skip
    assert read("a", "v = 1", "v = 2").predicate == "v = 2"


@pytest.mark.parametrize("one", [
    read("a?"), read("a?v"), read("?v=1"), read("a/#/b?v=1"), read("a", ""), read("a", "v >"), read("a?v=1", "v = 1"),
    read("$share/g?v=1"), read("$share/g/?v=1"),
])  # fmt: skip
def test_what_is_malformed(one: Subscription) -> None:
    assert inner_filter(one) is None


def test_a_question_mark_is_a_character_like_others_where_predicates_are_off() -> None:
    assert inner_filter(Subscription("a?b")) == "a?b"


def test_a_group_with_a_predicate_has_a_name_that_no_client_can_choose() -> None:
    one, same, other = read("$share/g/t?v>1"), read("$share/g/t?v>1"), read("$share/g/t?v>2")
    assert route_name(one) == route_name(same) != route_name(other)
    name, topic_filter = route_name(one)
    assert name is not None
    assert (name.startswith("g/"), topic_filter) == (True, "t")
    assert route_name(read("$share/g/t")) == ("g", "t")
    assert route_name(read("t?v=1")) == (None, "t")


def test_what_a_message_must_be() -> None:
    message = Publish("t", b'{"v": 3}', properties=Properties(user=(("v", "1"),)))
    found = [wants(read("t", text), message) for text in ("payload.v = 3", "v = 3", "v = 1 AND payload.v > 2")]
    assert found == [True, False, True]
    assert wants(read("t"), message)
