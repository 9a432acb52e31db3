"""With rules of access nothing else is subscribed, published or delivered than they permit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from amqtt.contexts import Action

from gateway.base.config import StartError, parse
from gateway.broker.running import make_broker
from gateway.mqtt5.packets import PubAck, Publish
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

        broker.exchange.delivery.router.subscribe(client, Subscription("ward/#", 1))
        other = await Wire.connect(broker)
        other.publish("ward/1/deep/secret", b"secret", 1)
        other.publish("ward/1", b"fine", 1)
        await other.barrier()
        assert await wire.published() == [("ward/1", b"fine")]


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
