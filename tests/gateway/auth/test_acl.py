"""Rules of access: what a table and an ACL file permit, and that nothing else is subscribed, published or delivered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from amqtt.contexts import Action
from hypothesis import given
from hypothesis import strategies as st

from bridge.base import covers, matches
from gateway.auth.acl_rules import AclError, Table, filled_in, parse_acl
from gateway.base.config import StartError, parse
from gateway.broker.running import make_broker
from gateway.mqtt5.packets import PubAck, Publish, Version
from gateway.mqtt5.types import ReasonCode
from tests.gateway.harness import Wire, on_loop, serving

PUBLISH, SUBSCRIBE, RECEIVE = Action.PUBLISH, Action.SUBSCRIBE, Action.RECEIVE
AMQTT = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"
OURS = "gateway.auth.acl_file.AclPlugin"
FILE = "gateway.auth.acl_file.AclFilePlugin"


def _acl(plugin: str = AMQTT, **options: Any) -> dict[str, Any]:
    return {"plugins": {plugin: options}}


@pytest.mark.parametrize("plugin", [AMQTT, OURS])
@pytest.mark.parametrize(
    ("asked", "is_granted"),
    [
        ("ward/+", True),
        ("ward/1", True),
        ("ward/#", False),
        ("#", False),
        ("+/+", False),
        ("ward/+/x", False),
        ("$share/g/ward/+", True),
        ("$share/g/ward/#", False),
    ],
)
def test_a_rule_with_plus_lets_no_deeper_subscription_through(plugin: str, asked: str, is_granted: bool) -> None:
    @on_loop
    async def check() -> None:
        async with serving(_acl(plugin, subscribe_acl={"anonymous": ["ward/+"]})) as broker:
            wire = await Wire.connect(broker)
            assert await wire.subscribe(asked, 1) == (1 if is_granted else ReasonCode.NOT_AUTHORIZED)
            other = await Wire.connect(broker)
            other.publish("ward/1/deep/secret", b"secret")
            await other.barrier()
            assert await wire.published() == []

    check()


@on_loop
async def test_what_was_subscribed_while_more_was_permitted_is_not_delivered() -> None:
    async with serving(_acl(subscribe_acl={"anonymous": ["ward/+"]})) as broker:
        wire = await Wire.connect(broker, "sub")
        client = broker.lifecycle.clients["sub"]
        assert await wire.subscribe("ward/+") == 0
        # As a plugin of amqtt or a session of an earlier run may have it.
        from gateway.mqtt5.packets import Subscription

        broker.exchange.router.subscribe(client, Subscription("ward/#", 1))
        other = await Wire.connect(broker)
        other.publish("ward/1/deep/secret", b"secret", 1)
        other.publish("ward/1", b"fine", 1)
        await other.barrier()
        assert await wire.published() == [("ward/1", b"fine")]


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


@given(st.text(alphabet=st.sampled_from("topicusernadwky#+/% \n$"), max_size=60))
def test_any_text_is_rules_or_an_error(text: str) -> None:
    try:
        rules = parse_acl(text)
    except AclError:
        return
    rules.permits("u", "c", "a/b", RECEIVE)


@on_loop
async def test_with_a_file_a_client_that_asks_for_everything_gets_what_it_may_read(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic readwrite public/#\ntopic write private/#\n")
    async with serving(_acl(FILE, acl_file=str(tmp_path / "acl"))) as broker:
        wire = await Wire.connect(broker)
        assert await wire.subscribe("#", 1) == 1
        assert await wire.subscribe("private/#", 1) == ReasonCode.NOT_AUTHORIZED
        other = await Wire.connect(broker)
        other.publish("private/1", b"no", retain=True)
        other.publish("public/1", b"yes", retain=True)
        other.send(Publish("elsewhere", b"no", 1, packet_id=1))
        assert (await other.expect(PubAck)).code == ReasonCode.NOT_AUTHORIZED
        assert await wire.published() == [("public/1", b"yes")]
        late = await Wire.connect(broker)
        await late.subscribe("#")
        assert await late.published() == [("public/1", b"yes")], "retained messages are looked at, too"


@on_loop
async def test_a_file_that_is_wrong_is_one_line_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic read a\nnonsense b\n")
    with pytest.raises(StartError, match=r"acl: line 2: nonsense"):
        make_broker(parse(_acl(FILE, acl_file=str(tmp_path / "acl"))))
    with pytest.raises(StartError, match="No such file"):
        make_broker(parse(_acl(FILE, acl_file=str(tmp_path / "none"))))


@on_loop
async def test_an_acl_that_leaves_publishing_open_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(_acl(acl={"anonymous": ["ward/#"]})) as broker:
        assert "everybody who is connected may publish anything" in caplog.text
        wire = await Wire.connect(broker)
        wire.send(Publish("elsewhere", b"", 1, packet_id=1))
        assert (await wire.expect(PubAck)).code in (0, 0x10)
