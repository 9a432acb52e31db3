"""What predicates see of a message."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.predicates import Attributes
from bridge.predicates.attributes import JSON_BYTES


def of_payload(document: object, *path: str) -> object:
    payload = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Attributes((), payload).get(("payload", *path))


def test_the_last_of_a_repeated_user_property_counts() -> None:
    found = Attributes((("room", "a"), ("v", "7"), ("room", "b")), b"")
    assert found.get(("room",)) == "b"
    assert found.get(("v",)) == 7.0
    assert found.get(("w",)) is None


@pytest.mark.parametrize(("document", "path", "value"), [
    ({"a": {"b": 1}}, "a.b", 1.0), ({"a": "25"}, "a", 25.0), ({"a": "on"}, "a", "on"), ({"a": True}, "a", "true"),
    ({"a": False}, "a", "false"), ({"a": None}, "a", None), ({"a": [1]}, "a", None), ({"a": {}}, "a", None),
    ({"a": 1}, "a.b", None), ({}, "a", None), (b'{"a":1,"a":2}', "a", 2.0), (b'{"a":NaN}', "a", None),
    (b'{"a":1e999}', "a", None), (b'{"a":' + b"9" * 5000 + b"}", "a", None), (b"26.5", "", 26.5), (b'"up"', "", "up"),
    (b"{", "a", None), (b"\xff", "a", None), (b"[" * 60_000, "a", None), (b"", "", None),
])  # fmt: skip
def test_fields_of_json(document: object, path: str, value: object) -> None:
    assert of_payload(document, *(path.split(".") if path else ())) == value


def test_a_longer_payload_has_no_fields() -> None:
    start = b'{"a":1,"b":"'
    assert of_payload(start + b"x" * (JSON_BYTES - len(start) - 2) + b'"}', "a") == 1.0
    assert of_payload(start + b"x" * (JSON_BYTES - len(start) - 1) + b'"}', "a") is None


def test_a_user_property_is_never_taken_for_the_payload() -> None:
    assert Attributes((("payload", "5"), ("payload.a", "5")), b"6").get(("payload",)) == 6.0


@given(st.binary(max_size=64))
def test_no_payload_makes_it_raise(payload: bytes) -> None:
    Attributes((), payload).get(("payload", "a"))
