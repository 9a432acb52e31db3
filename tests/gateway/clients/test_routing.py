"""Who gets a publication: one copy a client at the highest QoS, one member a shared group, in turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.base.topics import TopicError, matches
from gateway.clients.routing import DeliveryPlan, Router
from gateway.mqtt5.packets import Subscription


class Client:
    """Compared by identity."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("clients are compared by identity")

    __hash__ = object.__hash__


A, B, C = Client(), Client(), Client()


def router(*subscriptions: tuple[Client, str]) -> Router[Client]:
    made: Router[Client] = Router()
    for client, topic_filter in subscriptions:
        made.subscribe(client, Subscription(topic_filter))
    return made


def receivers(plan: DeliveryPlan[Client]) -> list[Client]:
    return [target.client for target in plan.targets]


def test_overlapping_subscriptions_are_one_copy_at_the_highest_qos_with_all_identifiers() -> None:
    made: Router[Client] = Router()
    made.subscribe(A, Subscription("a/#", 0), identifier=7)
    made.subscribe(A, Subscription("a/+", 2, retain_as_published=True))
    made.subscribe(A, Subscription("a/b", 1), identifier=9)
    (target,) = made.plan("a/b").targets
    assert target.client is A
    assert (target.qos, target.retain_as_published, sorted(target.subscription_ids)) == (2, True, [7, 9])
    (target,) = made.plan("a").targets
    assert (target.qos, target.retain_as_published, target.subscription_ids) == (0, False, (7,))


def test_no_local_takes_its_own_subscriptions_away_and_no_others() -> None:
    made: Router[Client] = Router()
    made.subscribe(A, Subscription("a", 2, no_local=True), identifier=1)
    (target,) = made.plan("a").targets
    assert target.for_own_publication() is None
    made.subscribe(A, Subscription("#", 1), identifier=2)
    (target,) = made.plan("a").targets
    own = target.for_own_publication()
    assert own is not None
    assert (own.qos, own.subscription_ids) == (1, (2,))
    (plain,) = made.plan("b").targets
    assert plain.for_own_publication() is plain


def test_a_subscription_is_replaced_and_ends() -> None:
    made: Router[Client] = Router()
    assert made.subscribe(A, Subscription("a", 0))
    assert not made.subscribe(A, Subscription("a", 2))
    assert not made.subscribe(B, Subscription("a", 1))
    assert [target.qos for target in made.plan("a").targets] == [2, 1]
    assert not made.unsubscribe(A, "a")
    assert receivers(made.plan("a")) == [B]
    assert not made.unsubscribe(A, "a")
    assert made.unsubscribe(B, "a")
    assert made.plan("a").targets == ()
    assert made.filters() == []


def test_members_of_a_group_take_turns_and_the_rest_follow_in_order() -> None:
    made = router((A, "$share/g/t"), (B, "$share/g/t"), (C, "$share/g/t"))
    (group,) = made.plan("t").groups
    assert made.plan("t").targets == ()
    rounds = [[entry.client for entry in group.in_turn()] for _ in range(3)]
    assert {id(members[0]) for members in rounds} == {id(A), id(B), id(C)}
    assert all({*map(id, members)} == {id(A), id(B), id(C)} for members in rounds)


def test_groups_of_other_names_or_filters_are_others() -> None:
    made = router((A, "$share/g/t"), (A, "$share/h/t"), (A, "$share/g/+"), (A, "t"))
    assert sorted(made.groups()) == [("g", "+"), ("g", "t"), ("h", "t")]
    plan = made.plan("t")
    assert (len(plan.groups), len(plan.targets)) == (3, 1)
    assert len(list(made.entries())) == 4
    assert not made.unsubscribe(B, "$share/g/t"), "no member"
    assert not made.unsubscribe(A, "$share/x/t"), "no group"
    assert not made.unsubscribe(A, "$share/h/t"), "others hold its filter"
    assert made.group("h", "t") is None
    assert made.group("g", "t") is not None


def test_the_last_member_ends_its_group() -> None:
    made = router((A, "$share/g/t"), (B, "$share/g/t"))
    assert not made.unsubscribe(A, "$share/g/t")
    (group,) = made.plan("t").groups
    assert [entry.client for entry in group.in_turn()] == [B]
    assert made.unsubscribe(B, "$share/g/t")
    assert made.plan("t").groups == ()


def test_a_plan_is_remembered_until_a_subscription_that_matters_changes() -> None:
    made = router((A, "a"))
    plan = made.plan("a")
    assert made.plan("a") is plan
    assert plan.name == b"a"
    made.subscribe(B, Subscription("#"))
    assert receivers(made.plan("a")) == [A, B]


def test_a_topic_beyond_a_bound_says_which_and_another_answer_counts_at_once() -> None:
    made: Router[Client] = Router(lambda topic: "topic_levels" if topic.count("/") > 1 else None)
    assert made.plan("a/b").refused is None
    assert made.plan("a/b/c").refused == "topic_levels"
    made.refuse(lambda topic: None)
    assert made.plan("a/b/c").refused is None


@pytest.mark.parametrize("topic_filter", ["", "a/#/b", "a+", "$share/g", "$share//a", "$share/g+/a"])
def test_what_is_no_filter_changes_nothing(topic_filter: str) -> None:
    made = router((A, "a"))
    with pytest.raises(TopicError):
        made.subscribe(B, Subscription(topic_filter))
    assert made.filters() == ["a"]


FILTERS = ["a", "+", "#", "a/+", "a/#", "+/b"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.sampled_from(FILTERS)), max_size=25))
def test_whoever_holds_a_filter_that_matches_gets_one_copy(steps: list[tuple[bool, int, str]]) -> None:
    clients, held = (A, B, C), [set[str](), set[str](), set[str]()]
    made: Router[Client] = Router()
    for adds, who, topic_filter in steps:
        if adds:
            made.subscribe(clients[who], Subscription(topic_filter))
            held[who].add(topic_filter)
        else:
            made.unsubscribe(clients[who], topic_filter)
            held[who].discard(topic_filter)
        for topic in ("a", "a/b", "c/b"):
            wanted = {who for who in range(3) if any(matches(each, topic) for each in held[who])}
            found = [next(n for n in range(3) if clients[n] is client) for client in receivers(made.plan(topic))]
            assert sorted(found) == sorted(wanted)
    assert sorted(made.filters()) == sorted(set().union(*held))
