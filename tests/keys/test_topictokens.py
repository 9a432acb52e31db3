"""keys.topictokens: what a filter matched in clear, its tokens match, and nothing else."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.errors import OurFault
from keys.topictokens import (
    check_filter,
    check_topic,
    covers,
    matches,
    retained_id,
    split_share,
    tokenise_filter,
    tokenise_topic,
)

KEY = bytes(range(32))
levels = st.lists(st.sampled_from(["", "a", "b", "$x"]), min_size=1, max_size=4)
topics = levels.map("/".join).filter(bool)
filters = st.tuples(
    st.lists(st.sampled_from(["", "a", "b", "+"]), max_size=3), st.sampled_from(["a", "+", "#", ""])
).map(lambda parts: "/".join([*parts[0], parts[1]]))


def test_a_token_is_what_the_format_says() -> None:
    mac = hmac.new(KEY, b"\1line", hashlib.sha256).digest()[:16]
    expected = base64.urlsafe_b64encode(mac).rstrip(b"=").decode()
    assert tokenise_topic("plant/line", KEY).split("/")[1] == expected
    assert tokenise_filter("+/line/#", KEY) == f"+/{expected}/#"


@settings(max_examples=200)
@given(filters.filter(bool), topics)
def test_tokens_match_exactly_where_names_do(topic_filter: str, topic: str) -> None:
    wire_topic, wire_filter = tokenise_topic(topic, KEY), tokenise_filter(topic_filter, KEY)
    assert matches(wire_filter, wire_topic) is matches(topic_filter, topic)


def test_names_do_not_show_and_depend_on_key_and_depth() -> None:
    wire = tokenise_topic("plant/plant", KEY)
    assert "plant" not in wire
    assert len(set(wire.split("/"))) == 2
    assert set(wire.split("/")).isdisjoint(tokenise_topic("plant/plant", bytes(32)).split("/"))


def test_the_control_root_and_system_topics_are_left_alone() -> None:
    for name in ("$veil/key/s/p", "$SYS/broker", "$veil"):
        assert tokenise_topic(name, KEY) == name
    assert tokenise_filter("$SYS/#", KEY) == "$SYS/#"
    assert tokenise_topic("veilmq/inbox/a", KEY, control_root="veilmq") == "veilmq/inbox/a"
    assert tokenise_topic("veilmqs", KEY, control_root="veilmq") != "veilmqs"


def test_shared_subscriptions_keep_their_prefix() -> None:
    assert split_share("$share/g/a/b") == ("$share/g/", "a/b")
    assert tokenise_filter("$share/g/a/+", KEY) == "$share/g/" + tokenise_filter("a/+", KEY)
    assert tokenise_filter("$share/g/$veil/x", KEY) == "$share/g/$veil/x"


def test_depth_is_bounded() -> None:
    assert tokenise_topic("/" * 255, KEY).count("/") == 255
    with pytest.raises(OurFault):
        tokenise_topic("/" * 256, KEY)


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0b", "a" * 65_536, "\ud800"])
def test_invalid_topics_are_refused(topic: str) -> None:
    with pytest.raises(OurFault):
        check_topic(topic)


@pytest.mark.parametrize(
    "topic_filter", ["", "a+", "a/#/b", "a#", "##", "$share/g", "$share//a", "$share/g/", "$share/+/a", "a\0"]
)
def test_invalid_filters_are_refused(topic_filter: str) -> None:
    with pytest.raises(OurFault):
        check_filter(topic_filter)


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("+", "/a", False),
        ("/+", "/a", True),
        ("#", "a/b", True),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
        ("a/+/c", "a/$b/c", True),
    ],
)
def test_filters_match_as_mqtt_says(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


@settings(max_examples=300)
@given(filters.filter(bool), filters.filter(bool), topics)
def test_a_covering_filter_matches_all_that_the_other_does(granted: str, asked: str, topic: str) -> None:
    if covers(granted, asked) and matches(asked, topic):
        assert matches(granted, topic)


@pytest.mark.parametrize(
    ("granted", "asked", "expected"),
    [
        ("a/#", "a/+/c", True),
        ("a/#", "a", True),
        ("a/#", "a/#", True),
        ("a/+", "a/#", False),
        ("a/+", "a/b", True),
        ("a/b", "a/+", False),
        ("#", "$SYS/#", False),
        ("+/#", "b/#", True),
    ],
)
def test_covering_by_example(granted: str, asked: str, expected: bool) -> None:
    assert covers(granted, asked) is expected


def test_what_is_no_topic_or_filter_gets_no_tokens() -> None:
    with pytest.raises(OurFault, match="wildcard"):
        tokenise_topic("a/+", KEY)
    with pytest.raises(OurFault, match="1 to"):
        tokenise_topic("", KEY)
    with pytest.raises(OurFault, match="stand alone"):
        tokenise_filter("a/#/b", KEY)
    with pytest.raises(OurFault, match="shared"):
        tokenise_filter("$share/g", KEY)


def test_the_control_root_itself_is_left_alone() -> None:
    for root in ("veilmq", "$veil"):
        assert tokenise_topic(root, KEY, control_root=root) == root
        assert tokenise_filter(root, KEY, control_root=root) == root
    assert tokenise_filter("veilmq/#", KEY, control_root="veilmq") == "veilmq/#"
    assert tokenise_filter("veilmq/#", KEY) != "veilmq/#"


def test_a_topic_of_65535_bytes_is_a_topic() -> None:
    check_topic("a" * 65_535)
    check_topic("é" * 32_767)
    with pytest.raises(OurFault):
        check_topic("é" * 32_768)


def test_the_control_root_is_that_of_our_own_replicas_unless_said_otherwise() -> None:
    assert tokenise_topic("$veil", KEY) == "$veil"
    assert tokenise_topic("veilX", KEY) != "veilX"


@pytest.mark.parametrize(
    ("granted", "asked", "expected"),
    [
        ("$SYS/#", "$SYS/a", True),
        ("$SYS/+", "$SYS/a", True),
        ("+/a", "$SYS/a", False),
        ("+a", "$SYS/a", False),
        ("#", "a", True),
        ("+", "+", True),
        ("+", "#", False),
    ],
)
def test_what_covers_names_that_start_with_a_dollar(granted: str, asked: str, expected: bool) -> None:
    assert covers(granted, asked) is expected


def test_groups_of_shared_subscriptions_have_names_without_wildcards() -> None:
    check_filter("$share/gX/a")
    for group in ("", "+", "#", "a+", "#a"):
        with pytest.raises(OurFault, match="shared"):
            check_filter(f"$share/{group}/a")


def test_names_of_retained_topics_tell_nothing_without_the_key_of_the_scope() -> None:
    assert retained_id(KEY, "a") != retained_id(bytes(32), "a") == retained_id(None, "a")
    assert len({retained_id(KEY, topic) for topic in ("a", "a/b", "b", "a/")}) == 4
    assert len(retained_id(KEY, "a")) == 16


def test_where_a_share_begins_and_ends() -> None:
    for plain in ("plant/line/state", "a", "$shared/g/a", "$share"):
        assert split_share(plain) == ("", plain)
    assert split_share("$share//a") == ("$share//", "a")
    assert split_share("$share/g/") == ("$share/g/", "")
