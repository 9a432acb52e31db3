"""What the demonstration's clients write down is what is counted."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.demo.logs import (
    LineLog,
    SeenMessage,
    Sent,
    digest_of,
    id_of,
    read_lines,
    seen_messages,
    sent_messages,
)


def sent(id_: str, confirmed: bool = True, sent_ns: int = 0, plain_ns: int = 0) -> Sent:
    payload = json.dumps({"id": id_})
    return Sent(id_, f"machine/x/cpu/{id_}", digest_of(payload.encode()), payload, (), sent_ns, plain_ns, confirmed)


def seen(message: Sent, at_ns: int = 0) -> SeenMessage:
    return SeenMessage(message.id, message.topic, message.digest, message.properties, at_ns)


def test_what_clients_write_is_what_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "sent.jsonl"
    payload = json.dumps({"id": "m1", "value": 1.5})
    with LineLog(path) as log:
        for id_ in ("m1", "m2"):
            log.write(
                id=id_, topic="t", digest=digest_of(payload.encode()), payload=payload, properties=[("unit", "%")],
                sent_ns=1, plain_ns=2,
            )  # fmt: skip
        log.write(confirmed="m1")
    with path.open("a") as file:
        file.write('{"confirmed": "m2"')  # the disk was full
    messages = sent_messages(read_lines(path))
    assert messages["m1"] == Sent("m1", "t", digest_of(payload.encode()), payload, (("unit", "%"),), 1, 2, True)
    assert not messages["m2"].confirmed
    assert list(read_lines(tmp_path / "absent")) == []

    with LineLog(tmp_path / "seen.jsonl") as log:
        for way in ("sealed", "plain"):
            log.write(path=way, id="m1", topic="t", digest="d", properties=[("unit", "%")], at_ns=5)
    assert seen_messages(read_lines(tmp_path / "seen.jsonl"), "sealed") == [
        SeenMessage("m1", "t", "d", (("unit", "%"),), 5)
    ]


@given(st.binary(max_size=30))
def test_a_payload_that_is_not_ours_has_no_id(payload: bytes) -> None:
    assert isinstance(id_of(payload), str)
    assert id_of(b"\xff" + payload) == ""
