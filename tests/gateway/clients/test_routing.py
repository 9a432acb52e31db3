"""Who gets a publication: one copy a client at the highest QoS, one member a shared group, in turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.base.topics import TopicError, matches
from gateway.clients.routing import DeliveryPlan, Router
from gateway.mqtt5.packets import Properties, Publish, Subscription


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
    assert not made.unsubscribe(A, Subscription("a"))
    assert receivers(made.plan("a")) == [B]
    assert not made.unsubscribe(A, Subscription("a"))
    assert made.unsubscribe(B, Subscription("a"))
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
    named = sorted((group.name, group.filter) for group in made.groups())
    assert named == [("g", "+"), ("g", "t"), ("h", "t")]
    plan = made.plan("t")
    assert (len(plan.groups), len(plan.targets)) == (3, 1)
    assert len(list(made.entries())) == 4
    assert not made.unsubscribe(B, Subscription("$share/g/t")), "no member"
    assert not made.unsubscribe(A, Subscription("$share/x/t")), "no group"
    assert not made.unsubscribe(A, Subscription("$share/h/t")), "others hold its filter"
    assert made.group("h", "t") is None
    assert made.group("g", "t") is not None


def test_the_last_member_ends_its_group() -> None:
    made = router((A, "$share/g/t"), (B, "$share/g/t"))
    assert not made.unsubscribe(A, Subscription("$share/g/t"))
    (group,) = made.plan("t").groups
    assert [entry.client for entry in group.in_turn()] == [B]
    assert made.unsubscribe(B, Subscription("$share/g/t"))
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
    made.replace_refusals(lambda topic: None)
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
            made.unsubscribe(clients[who], Subscription(topic_filter))
            held[who].discard(topic_filter)
        for topic in ("a", "a/b", "c/b"):
            wanted = {who for who in range(3) if any(matches(each, topic) for each in held[who])}
            found = [next(n for n in range(3) if clients[n] is client) for client in receivers(made.plan(topic))]
            assert sorted(found) == sorted(wanted)
    assert sorted(made.filters()) == sorted(set().union(*held))


def on(text: str) -> Publish:
    return Publish("t", b"", properties=Properties(user=(("v", text),)))


def wanting(topic_filter: str, predicate: str, **options: int) -> Subscription:
    return Subscription(topic_filter, predicate=predicate, **options)


def test_predicates_choose_among_the_receivers_of_a_topic() -> None:
    made = router((C, "t"))
    made.subscribe(A, wanting("t?v>1", "?v>1"))
    made.subscribe(B, wanting("t", "v > 2 OR v = 1"))
    found = {text: receivers(made.plan_for("t", on(text))) for text in ("0", "1", "2", "3")}
    assert found == {"0": [C], "1": [C, B], "2": [C, A], "3": [C, A, B]}
    assert made.plan_for("t", on("0")).withheld == 2
    assert made.predicates == 2
    assert made.plan("other").choices is None


def test_a_client_gets_one_copy_of_what_several_of_its_subscriptions_want() -> None:
    made: Router[Client] = Router()
    made.subscribe(A, Subscription("t", 0), identifier=1)
    made.subscribe(A, wanting("t?v>1", "?v>1", qos=1), identifier=2)
    made.subscribe(A, wanting("+?v>2", "?v>2", qos=2), identifier=3)
    copies = {text: made.plan_for("t", on(text)).targets for text in ("1", "2", "3")}
    assert {text: [target.qos for target in targets] for text, targets in copies.items()} == {
        "1": [0], "2": [1], "3": [2]}  # fmt: skip
    assert sorted(copies["3"][0].subscription_ids) == [1, 2, 3]


def test_an_alternative_that_holds_twice_is_still_one_copy() -> None:
    made: Router[Client] = Router()
    made.subscribe(A, wanting("t", "v > 1 OR v > 2"))
    assert receivers(made.plan_for("t", on("3"))) == [A]


def test_a_predicate_is_part_of_what_a_group_is() -> None:
    made: Router[Client] = Router()
    made.subscribe(A, wanting("$share/g/t?v>1", "?v>1"))
    made.subscribe(B, wanting("$share/g/t?v>1", "?v>1"))
    made.subscribe(C, Subscription("$share/g/t"))
    assert [len(group.members) for group in made.plan_for("t", on("2")).groups] == [1, 2]
    assert [len(group.members) for group in made.plan_for("t", on("1")).groups] == [1]
    assert len(made.groups()) == 2
    made.subscribe(A, wanting("$share/g/t?v>1", "?v>1", qos=1))
    assert made.predicates == 2
    assert not made.unsubscribe(A, wanting("$share/g/t?v>1", "?v>1"))
    assert not made.unsubscribe(B, wanting("$share/g/t?v>1", "?v>1"))
    assert (len(made.groups()), made.predicates) == (1, 0)
    assert made.plan("t").choices is None


def test_what_is_replaced_or_ended_leaves_nothing_in_the_index() -> None:
    made: Router[Client] = Router()
    for predicate in ("v > 1", "v > 5", ""):
        made.subscribe(A, wanting("t", predicate))
        made.subscribe(A, wanting("t?w=1", "?w=1"))
    assert receivers(made.plan_for("t", on("0"))) == [A]
    made.unsubscribe(A, wanting("t?w=1", "?w=1"))
    assert made.plan("t").choices is None
    assert (made.predicates, made.filters()) == (0, ["t"])
    made.unsubscribe(A, wanting("t", ""))
    assert made.filters() == []


def test_what_a_filter_is_wanted_for_and_that_somebody_left() -> None:
    made: Router[Client] = Router()
    made.subscribe(A, wanting("t", "v > 1"))
    made.subscribe(B, wanting("t", "v > 5"))
    made.subscribe(C, wanting("$share/g/t", "v = 0"))
    cover = made.wanted_of("t")
    assert cover is not None
    assert [cover.holds_for({("v",): value}) for value in (0.0, 1.0, 2.0, 9.0)] == [True, False, True, True]
    assert made.wanted_of("u") is None
    assert not made.narrowed
    made.unsubscribe(A, wanting("t", "v > 1"))
    assert made.narrowed == {"t"}
    assert (narrower := made.wanted_of("t")) is not None
    assert not narrower.holds_for({("v",): 2.0})
    made.subscribe(A, Subscription("t"))
    assert made.wanted_of("t") is None, "somebody wants everything"
