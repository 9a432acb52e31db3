"""Text of received messages: for people, for programs, or the payload alone.

Topics and payloads come from others. Text for people shows control characters as escapes, so that no message can
move the cursor or forge a line.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

from gateway.mqtt5.packets import Properties, Publish

Form: TypeAlias = Callable[[Publish, float], bytes]
"""Makes the bytes for a message received at a time in seconds since the UNIX epoch."""


def terminal_text(data: bytes | str) -> str:
    """Returns printable text: UTF-8 with escapes for control characters, or hexadecimal digits."""
    text = data if isinstance(data, str) else _decoded(data)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def one_line(publish: Publish, at: float) -> bytes:
    """Returns topic and payload, a line."""
    return f"{terminal_text(publish.topic)} {terminal_text(publish.payload)}\n".encode()


def long_line(publish: Publish, at: float) -> bytes:
    """Returns a line with time, QoS, flags and properties before topic and payload."""
    flags = f"qos={publish.qos}{' retained' if publish.retain else ''}{' dup' if publish.dup else ''}"
    pairs = [f"{name}={terminal_text(str(value))}" for name, value in _properties(publish.properties).items()]
    return f"{_time(at)} {' '.join([flags, *pairs])} ".encode() + one_line(publish, at)


def payload_line(publish: Publish, at: float) -> bytes:
    """Returns the payload as text, a line."""
    return f"{terminal_text(publish.payload)}\n".encode()


def raw_payload(publish: Publish, at: float) -> bytes:
    """Returns the payload, byte for byte."""
    return publish.payload


def json_line(publish: Publish, at: float) -> bytes:
    """Returns a JSON object a line. `payload`: text, or null beside `payload_base64` if the payload is no UTF-8."""
    found: dict[str, Any] = {"time": _time(at), "topic": publish.topic}
    try:
        found["payload"] = publish.payload.decode()
    except UnicodeDecodeError:
        found.update(payload=None, payload_base64=base64.b64encode(publish.payload).decode())
    found.update(qos=publish.qos, retain=publish.retain, dup=publish.dup)
    if properties := _properties(publish.properties):
        found["properties"] = properties
    return json.dumps(found, ensure_ascii=True).encode() + b"\n"


FORMS: dict[str, Form] = {
    "line": one_line,
    "long": long_line,
    "payload": payload_line,
    "raw": raw_payload,
    "json": json_line,
}


def _time(at: float) -> str:
    when = datetime.fromtimestamp(at, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"


def _properties(properties: Properties) -> dict[str, Any]:
    """Returns the present properties of a message by name; binary data in hexadecimal digits."""
    found: dict[str, Any] = {}
    for name, value in vars(properties).items():
        if name == "user":
            found[name] = [list(pair) for pair in value]
        elif name == "correlation_data" and value is not None:
            found[name] = value.hex()
        elif value not in (None, ()) and name != "topic_alias":
            found[name] = list(value) if isinstance(value, tuple) else value
    return found
