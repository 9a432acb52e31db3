"""What rules of access permit: tables, ACL files, patterns."""

from __future__ import annotations

import pytest
from amqtt.contexts import Action
from hypothesis import given
from hypothesis import strategies as st

from bridge.base import covers, matches
from gateway.auth.acl_rules import AclError, Table, filled_in, parse_acl, parse_rule
from gateway.mqtt5.packets import Version

PUBLISH, SUBSCRIBE, RECEIVE = Action.PUBLISH, Action.SUBSCRIBE, Action.RECEIVE
AMQTT = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"
OURS = "gateway.auth.acl_file.AclPlugin"
FILE = "gateway.auth.acl_file.AclFilePlugin"


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_patterns_name_the_user_and_the_client(version: Version) -> None:
    table = {"*": ["devices/%c/#"], "nurse": ["ward/%u"]}
    rules = Table(table, table, None)
    for action in (PUBLISH, SUBSCRIBE):
        assert rules.permits("nurse", "d1", "devices/d1/t", action)
        assert rules.permits("nurse", "d1", "ward/nurse", action)
        assert not rules.permits("nurse", "d1", "devices/d2/t", action)
        assert not rules.permits(None, "d1", "ward/nurse", action)
        assert not rules.permits("nurse", "+", "devices/d2/t", action)
        assert not rules.permits("nurse", "#", "devices/#", action)
        assert not rules.permits("nurse", "a/b", "devices/a/b/t", action)


@given(st.text(max_size=4), st.sampled_from(["%u", "a/%u", "a/%u/#"]))
def test_a_name_never_widens_a_pattern(name: str, pattern: str) -> None:
    found = filled_in(pattern, name, "c")
    if found is not None:
        assert found.count("/") == pattern.count("/")
        assert found.count("#") == pattern.count("#")
        assert "+" not in found


@pytest.mark.attack(198)
@pytest.mark.parametrize(("user", "client_id"), [("a/b", "c"), ("+", "c"), ("#", "c"), ("ann", "a/b"), ("ann", "+")])
def test_no_name_takes_its_client_out_of_a_denial(user: str, client_id: str) -> None:
    """Attack: a client whose name has a level or a wildcard; the rule that denied its own place did not count."""
    for mark, name in (("%u", user), ("%c", client_id)):
        rules = parse_acl(f"pattern deny private/{mark}/#\npattern readwrite #\n")
        topic = f"private/{name}/t".replace("+", "x").replace("#", "x")
        for action in (PUBLISH, RECEIVE):
            assert not rules.permits(user, client_id, topic, action)
            assert rules.permits(user, client_id, "other", action)
        assert not rules.covers(user, client_id, "private/#")
    assert parse_acl("pattern deny private/%u/#\npattern readwrite #\n").permits(None, "c", "private/t", PUBLISH)


@pytest.mark.attack(199)
def test_a_name_that_looks_like_a_mark_is_a_name() -> None:
    """Attack: a user whose name at an identity provider is `%c` chooses the user name of another as its client id."""
    rules = parse_acl("pattern readwrite own/%u/#\n")
    table = Table({"*": ["own/%u/#"]}, {"*": ["own/%u/#"]}, None)
    for each in (rules, table):
        assert not each.permits("%c", "victim", "own/victim/t", PUBLISH)
        assert not each.permits("%c", "victim", "own/victim/#", SUBSCRIBE)
        assert each.permits("%c", "victim", "own/%c/t", PUBLISH)
    assert filled_in("%c/%u", "%c", "%u") == "%u/%c"


FILTERS = st.lists(st.sampled_from(["a", "b", "+"]), min_size=1, max_size=4).flatmap(
    lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"])])
)
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5).map("/".join)


@given(FILTERS, FILTERS, NAMES)
def test_a_granted_subscription_matches_nothing_that_its_rule_does_not(rule: str, asked: str, topic: str) -> None:
    rules = Table(None, {"anonymous": [rule]}, None)
    if rules.permits(None, "", asked, SUBSCRIBE) and matches(asked, topic):
        assert matches(rule, topic)
    assert rules.permits(None, "", topic, RECEIVE) == covers(rule, topic)


ACL = """
# general: clients without a name
topic read public/#

user nurse
topic readwrite ward/+/call
topic read ward/#
topic deny ward/secret/#

user door
topic write doors/front
topic a name with spaces

pattern readwrite devices/%u/#
pattern read clients/%c
"""


@pytest.mark.parametrize(
    ("user", "client", "topic", "action", "permitted"),
    [
        (None, "x", "public/a", RECEIVE, True),
        (None, "x", "public/a", PUBLISH, False),
        (None, "x", "ward/1", RECEIVE, False),
        ("nurse", "x", "public/a", RECEIVE, False),
        ("nurse", "x", "ward/1/call", PUBLISH, True),
        ("nurse", "x", "ward/1", PUBLISH, False),
        ("nurse", "x", "ward/1/2/3", RECEIVE, True),
        ("nurse", "x", "ward/secret/1", RECEIVE, False),
        ("nurse", "x", "ward/secret/1", SUBSCRIBE, False),
        ("nurse", "x", "#", SUBSCRIBE, True),
        ("nurse", "x", "elsewhere/#", SUBSCRIBE, False),
        ("door", "x", "doors/front", PUBLISH, True),
        ("door", "x", "doors/front", SUBSCRIBE, False),
        ("door", "x", "a name with spaces", PUBLISH, True),
        ("door", "x", "devices/door/1", PUBLISH, True),
        ("door", "x", "devices/nurse/1", PUBLISH, False),
        ("door", "x", "clients/x", RECEIVE, True),
        ("door", "x", "clients/y", RECEIVE, False),
        (None, "x", "devices//1", PUBLISH, False),
        ("stranger", "x", "ward/1", RECEIVE, False),
    ],
)
def test_a_file_in_mosquittos_syntax(
    user: str | None, client: str, topic: str, action: Action, permitted: bool
) -> None:
    assert parse_acl(ACL).permits(user, client, topic, action) is permitted


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topics a", "neither"),
        ("user", "needs a value"),
        ("topic read a/#/b", "line 1"),
        ("pattern write #a", "line 1"),
    ],
)
def test_a_line_that_is_no_rule_is_named(line: str, said: str) -> None:
    with pytest.raises(AclError, match=said):
        parse_acl(line)


@pytest.mark.parametrize("code", [0x0B, 0x0C, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029])
def test_only_a_line_feed_ends_a_line_of_a_file(code: int) -> None:
    for text in (
        f"user bob\ntopic read a{chr(code)}user eve{chr(code)}topic #",
        f"user bob{chr(code)}user eve\ntopic #",
    ):
        with pytest.raises(AclError, match=r"line [12]"):
            parse_acl(text)
    rules = parse_acl("user bob\r\ntopic read a\r\n# said by\x85user eve\r\n")
    assert rules.permits("bob", "c", "a", RECEIVE)
    assert list(rules.of_user) == ["bob"]


@given(st.text(alphabet=st.sampled_from("topicusernadwky#+/% \n$"), max_size=60))
def test_any_text_is_rules_or_an_error(text: str) -> None:
    try:
        rules = parse_acl(text)
    except AclError:
        return
    rules.permits("u", "c", "a/b", RECEIVE)


@given(
    st.lists(st.tuples(st.sampled_from(["read", "write", "deny"]), FILTERS), max_size=4),
    st.sampled_from(["topic", "pattern"]),
    FILTERS,
    NAMES,
)
def test_who_may_receive_all_of_a_filter_may_receive_each_topic_of_it(
    lines: list[tuple[str, str]], kind: str, asked: str, topic: str
) -> None:
    """What `covers` says decides which gateway serves a shared group: never more than `permits`."""
    rules = parse_acl("\n".join(f"{kind} {access} {text}" for access, text in lines))
    if rules.covers(None, "c", asked) and matches(asked, topic):
        assert rules.permits(None, "c", topic, RECEIVE)


def test_a_right_to_all_of_a_filter_is_seen() -> None:
    rules = parse_acl("user ann\ntopic read plant/#\nuser eve\ntopic read plant/lobby\npattern read own/%u/#\n")
    assert rules.covers("ann", "c", "plant/#")
    assert rules.covers("ann", "c", "plant/+/temp")
    assert not rules.covers("eve", "c", "plant/#")
    assert rules.covers("eve", "c", "own/eve/#")
    assert Table(None, {"ann": ["plant/#"]}, None).covers("ann", "c", "plant/+")
    assert not Table(None, {"ann": ["plant/#"]}, {"ann": ["plant/a"]}).covers("ann", "c", "plant/+")


def test_a_misspelt_access_is_no_topic_with_a_space() -> None:
    with pytest.raises(AclError, match="did you mean readwrite by reedwrite"):
        parse_rule("topic reedwrite plant/#", "of user ann")
    assert parse_rule("topic my car/#", "x").filter == "my car/#"
    assert parse_rule("topic readwrite red car/#", "x").filter == "red car/#"
