"""Topic rules against a naive matcher that follows the words of MQTT 5.0 §4.7."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.base import topics
from bridge.base.topics import TopicError, TopicIndex

LEVELS = ("a", "b", "", "$x")
#: Every name of up to four levels over a small alphabet: enough to tell two filters apart.
NAMES = [
    "/".join(levels)
    for depth in (1, 2, 3, 4)
    for levels in itertools.product((*LEVELS, "c"), repeat=depth)
    if levels != ("",)
]

names = st.sampled_from(NAMES)
_levels = st.lists(st.sampled_from(("a", "b", "", "+", "$x")), min_size=1, max_size=3)
filters = st.builds(lambda levels, rest: "/".join([*levels, "#"] if rest else levels), _levels, st.booleans()).filter(
    bool
) | st.just("#")


def naive(topic_filter: str, name: str) -> bool:
    if name.startswith("$") and topic_filter[0] in "+#":
        return False

    def walk(f: list[str], n: list[str]) -> bool:
        if f == ["#"]:
            return True
        if not f or not n:
            return not f and not n
        return f[0] in ("+", n[0]) and walk(f[1:], n[1:])

    return walk(topic_filter.split("/"), name.split("/"))


@given(filters, names)
def test_matches_as_the_naive_matcher(topic_filter: str, name: str) -> None:
    assert topics.matches(topic_filter, name) is naive(topic_filter, name)


@settings(max_examples=200)
@given(filters, filters)
def test_covers_means_every_name_of_the_one_is_one_of_the_other(wide: str, narrow: str) -> None:
    counterexample = [name for name in NAMES if naive(narrow, name) and not naive(wide, name)]
    assert topics.covers(wide, narrow) is not bool(counterexample)


@settings(max_examples=200)
@given(filters, filters)
def test_intersection_matches_exactly_what_both_match(a: str, b: str) -> None:
    both = {name for name in NAMES if naive(a, name) and naive(b, name)}
    common = topics.intersection(a, b)
    assert topics.overlaps(a, b) is (common is not None)
    if common is None:
        assert not both
    else:
        topics.check_filter(common)
        assert both == {name for name in NAMES if naive(common, name)}


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.booleans(), filters, st.integers(0, 3)), max_size=40),
    st.lists(names, min_size=1, max_size=6),
)
def test_index_equals_a_list_of_filters_under_adding_and_removing(
    steps: list[tuple[bool, str, int]], asked: list[str]
) -> None:
    index: TopicIndex[tuple[str, int]] = TopicIndex(memo_topics=3)
    model: dict[tuple[str, int], tuple[str, int]] = {}
    for adding, topic_filter, key in steps:
        others = [k for f, k in model if f == topic_filter and k != key]
        if adding:
            first = not others and (topic_filter, key) not in model
            model[topic_filter, key] = (topic_filter, key)
            assert index.add(topic_filter, key, (topic_filter, key)) is first
        else:
            last = model.pop((topic_filter, key), None) is not None and not others
            assert index.remove(topic_filter, key) is last
        for name in asked:
            assert index.reaches(name) is any(naive(f, name) for f, _ in model)
            assert sorted(index.match(name)) == sorted(v for (f, _), v in model.items() if naive(f, name))
    for topic_filter in {f for _, f, _ in steps}:
        entries = {k: v for (f, k), v in model.items() if f == topic_filter}
        assert index.entries(topic_filter) == entries
        assert [index.entry(topic_filter, key) for key in range(4)] == [entries.get(key) for key in range(4)]
    assert set(index) == {f for f, _ in model}
    assert len(index) == len({f for f, _ in model})


def test_removing_everything_leaves_no_node_behind() -> None:
    index: TopicIndex[int] = TopicIndex()
    wanted = ["a/+/c", "a/+/#", "+/+", "#", "a/b/c/d/#", "+"]
    for topic_filter in wanted:
        index.add(topic_filter, 1, 1)
    for topic_filter in wanted:
        assert topic_filter in index
        assert index.remove(topic_filter, 1)
    assert index._root.is_empty()
    assert index.match("a/b/c") == ()


def test_the_memory_of_matches_is_bounded() -> None:
    index: TopicIndex[int] = TopicIndex(memo_topics=10)
    for number in range(1_000):
        index.match(f"t/{number}")
    assert len(index._memo) <= 10


def test_names_of_which_each_client_has_its_own_are_not_remembered() -> None:
    index: TopicIndex[int] = TopicIndex()
    for name in ("$Constrained/x", "plant/x", "/x"):
        index.add(name, "one", 1)
        assert index.match(name) == (1,)
    assert set(index._memo) == {"plant/x", "/x"}


def test_what_is_asked_for_of_a_filter_is_a_copy() -> None:
    index: TopicIndex[int] = TopicIndex()
    for number in range(3):
        for topic_filter in ("a", "+"):
            index.entries(topic_filter)["other"] = 9
            assert len(index.entries(topic_filter)) == number
            index.add(topic_filter, number, number)
    assert sorted(index.match("a")) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("topic_filter", "group", "inner"),
    [
        ("a/b", None, "a/b"),
        ("$share/g/a/#", "g", "a/#"),
        ("$share/g//x", "g", "/x"),
        ("$shared/g/a", None, "$shared/g/a"),
    ],
)
def test_share_is_split(topic_filter: str, group: str | None, inner: str) -> None:
    assert topics.split_share(topic_filter) == (group, inner)


@pytest.mark.parametrize(
    "topic_filter",
    [
        *("", "a/#/b", "a#", "a+/b", "#a", "a\0", "$share", "$share/", "$share/g", "$share//a", "$share/g/"),
        *("$share/+/a", "$share/g#/a", "$share/g/a#", "x" * 65_536, "é" * 40_000, "/" * 128),
    ],
)
def test_filters_that_mqtt_forbids_are_refused(topic_filter: str) -> None:
    with pytest.raises(TopicError):
        topics.split_share(topic_filter)


@pytest.mark.parametrize("name", ["", "a/+", "#", "a/b#", "a\0b", "x" * 65_536])
def test_names_that_mqtt_forbids_are_refused(name: str) -> None:
    with pytest.raises(TopicError):
        topics.check_name(name)


def test_the_most_specific_scope_wins() -> None:
    scopes = ["#", "plant/#", "plant/+/alarm", "plant/1/alarm", "plant/1/#"]
    assert topics.most_specific(scopes, "plant/1/alarm") == "plant/1/alarm"
    assert topics.most_specific(scopes, "plant/2/alarm") == "plant/+/alarm"
    assert topics.most_specific(scopes, "plant/1/t") == "plant/1/#"
    assert topics.most_specific(scopes, "plant/+/t") == "plant/#"
    assert topics.most_specific(scopes, "$SYS/x") is None
    assert topics.most_specific(scopes, "other") == "#"


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), names), max_size=40), st.lists(filters, min_size=1, max_size=6))
def test_a_tree_of_names_finds_what_a_filter_matches(steps: list[tuple[bool, str]], asked: list[str]) -> None:
    tree = topics.NameTree()
    model: set[str] = set()
    for adding, name in steps:
        (tree.add if adding else tree.discard)(name)
        (model.add if adding else model.discard)(name)
    for topic_filter in asked:
        found = list(tree.matching(topic_filter))
        assert sorted(found) == sorted(name for name in model if naive(topic_filter, name))
    for name in model:
        tree.discard(name)
    assert not tree._root.below
