"""The table of operations and the document made of it agree, and bodies are checked by it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console.answering import Answering
from gateway.console.editing import Editing
from gateway.console.operations import ANYBODY, API, OPERATIONS, checked, document


def test_every_operation_is_in_the_document_once_and_is_answered() -> None:
    paths = document()["paths"]
    found = [(path, method) for path, methods in paths.items() for method in methods]
    assert len(found) == len(OPERATIONS) == len({one.name for one in OPERATIONS})
    for one in OPERATIONS:
        entry = paths[API + one.path][one.method.lower()]
        assert entry["operationId"] == one.name
        assert ("security" in entry) == (one.who != ANYBODY)
        assert ("{id}" in one.path) == any(p["in"] == "path" for p in entry["parameters"])
        assert hasattr(Answering, one.name) or hasattr(Editing, one.name) or one.name in ("login", "logout", "ways")


PUBLISH = next(one for one in OPERATIONS if one.name == "publish")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(JSON)
def test_any_body_is_taken_or_refused_in_words(body: object) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(checked(PUBLISH, body)["topic"], str)


@pytest.mark.parametrize(
    "body",
    [[], "x", {}, {"topic": "a"}, {"topic": 1, "payload": ""}, {"topic": "a", "payload": "", "qos": True}],
)
def test_what_does_not_fit_is_refused(body: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        checked(PUBLISH, body)
