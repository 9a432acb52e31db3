"""Who came, who went, who was refused what: a line an operator can audit, and never one a packet."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.base.log_events import LogEvent
from gateway.mqtt5.packets import Disconnect, PubAck, Publish
from gateway.sockets.audit import EVERY_S, Audit
from tests.gateway.harness import Wire, on_loop, serving
from tests.waits import until

ACL = {"gateway.auth.acl_file.AclPlugin": {"publish_acl": {"nurse": ["ok"]}, "subscribe_acl": {"nurse": ["ok"]}}}
ANONYMOUS = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {}}


def _lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.message == event]


@on_loop
async def test_who_came_and_who_went_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "veilmq")
    async with serving({"plugins": ANONYMOUS}) as broker:
        for leave in (lambda wire: wire.send(Disconnect()), lambda wire: wire.cut()):
            wire = await Wire.connect(broker, "door", username="nurse", password=b"secret")
            leave(wire)
            await until(lambda: not broker.lifecycle.connections)
    for line in _lines(caplog, "connected"):
        assert (line["client"], line["user"], line["listener"]) == ("door", "nurse", "default")
        assert line["address"].startswith("127.0.0.1:")
    ends = _lines(caplog, "disconnected")
    assert [(line["clean"], line["user"]) for line in ends] == [(True, "nurse"), (False, "nurse")]
    assert "secret" not in caplog.text


@on_loop
async def test_what_is_refused_names_the_topic_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "veilmq")
    async with serving({"plugins": {**ANONYMOUS, **ACL}}) as broker:
        wire = await Wire.connect(broker, "door", username="nurse")
        for number in range(1, 31):
            wire.send(Publish("elsewhere", b"", 1, packet_id=number))
            await wire.expect(PubAck)
            await wire.subscribe("ward/#")
    (published,) = _lines(caplog, "may not publish")
    assert (published["client"], published["user"], published["topic"]) == ("door", "nurse", "elsewhere")
    (subscribed,) = _lines(caplog, "may not subscribe")
    assert subscribed["topic"] == "ward/#"


@on_loop
async def test_a_refused_login_names_user_client_and_address(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "veilmq")
    async with serving({"allow_anonymous": False}) as broker:
        for _ in range(5):
            await Wire.connect(broker, "door", username="nurse", password=b"secret")
    (line,) = _lines(caplog, "refused: not authorised")
    assert (line["client"], line["user"], line["code"]) == ("door", "nurse", "0x86")
    assert "secret" not in caplog.text


def test_after_a_while_a_cause_is_said_again_with_how_often(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "veilmq")
    now = 100.0
    audit = Audit(lambda: now)
    for _ in range(7):
        audit._log_refusal(LogEvent.CLIENT_MAY_NOT, "publish", "door", {})
    audit._log_refusal(LogEvent.CLIENT_MAY_NOT, "subscribe", "door", {})  # another cause
    now += EVERY_S
    audit._log_refusal(LogEvent.CLIENT_MAY_NOT, "publish", "door", {})
    assert [line["times"] for line in _lines(caplog, "may not publish")] == ["", 7]
