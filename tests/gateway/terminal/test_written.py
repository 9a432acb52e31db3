"""What is shown of a message cannot move a cursor or forge a line, and programs get all of it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt5.packets import Properties, Publish
from gateway.terminal import FORMS, terminal_text

NOW = 1_790_000_000.5


@given(st.binary(max_size=50), st.text(max_size=20))
def test_a_line_is_one_line_without_control_characters(payload: bytes, topic: str) -> None:
    for form in ("line", "long", "payload"):
        line = FORMS[form](Publish(topic, payload, properties=Properties(user=((topic, topic),))), NOW).decode()
        assert line.endswith("\n")
        assert line[:-1].isprintable()


@given(st.binary(max_size=50))
def test_json_holds_the_payload_exactly(payload: bytes) -> None:
    import base64

    found = json.loads(FORMS["json"](Publish("t", payload), NOW))
    text = found["payload"]
    assert (text.encode() if text is not None else base64.b64decode(found["payload_base64"])) == payload
    assert FORMS["raw"](Publish("t", payload), NOW) == payload


def test_properties_are_named() -> None:
    properties = Properties(
        content_type="text/plain", correlation_data=b"\x01", user=(("k", "v"), ("k", "w")), subscription_ids=(1,),
        message_expiry_s=9, payload_format=1, topic_alias=3,
    )  # fmt: skip
    found = json.loads(FORMS["json"](Publish("t", b"x", 1, True, properties=properties), NOW))
    assert found == {
        "time": "2026-09-21T14:13:20.500Z", "topic": "t", "payload": "x", "qos": 1, "retain": True, "dup": False,
        "properties": {
            "content_type": "text/plain", "correlation_data": "01", "user": [["k", "v"], ["k", "w"]],
            "subscription_ids": [1], "message_expiry_s": 9, "payload_format": 1,
        },
    }  # fmt: skip
    line = FORMS["long"](Publish("t", b"x", 1, True, properties=properties), NOW).decode()
    assert "qos=1 retained" in line
    assert "content_type=text/plain" in line
    assert terminal_text(b"\xff\x00") == "0xff00"
    assert terminal_text("a\x1b[31m\n") == r"a\x1b[31m\n"
