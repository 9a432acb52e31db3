"""`traceparent` of W3C: what has the form, what has not, and user properties with another parent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry.context import TRACEPARENT, TraceContext, context_of, read, with_context

TEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CONTEXT = TraceContext(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7, 1)


def test_the_example_of_the_standard() -> None:
    assert read(TEXT) == CONTEXT
    assert str(CONTEXT) == TEXT
    assert read(f"cc{TEXT[2:]}-what-comes-later") == CONTEXT, "a later version may have more"


@pytest.mark.parametrize("text", [
    "", TEXT[:-1], TEXT.upper(), f"{TEXT}-", f"ff{TEXT[2:]}", f"{TEXT}\n", f" {TEXT}", TEXT.replace("-", "_"),
    TEXT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32), TEXT.replace("00f067aa0ba902b7", "0" * 16),
    "x" * 60_000,
])  # fmt: skip
def test_what_has_not_the_form_is_no_context(text: str) -> None:
    assert read(text) is None


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255))
def test_what_is_written_is_read(trace_id: int, span_id: int, flags: int) -> None:
    context = TraceContext(trace_id, span_id, flags)
    assert read(str(context)) == context


def test_a_parent_takes_the_place_of_the_one_before() -> None:
    other = CONTEXT._replace(span_id=7)
    user = (("unit", "C"), (TRACEPARENT, TEXT), ("tracestate", "a=1"))
    assert with_context(user, other) == (("unit", "C"), (TRACEPARENT, str(other)), ("tracestate", "a=1"))
    assert with_context((), CONTEXT) == ((TRACEPARENT, TEXT),)
    assert context_of(user) == CONTEXT
    assert context_of(((TRACEPARENT, TEXT), (TRACEPARENT, TEXT))) is None, "two are none"
    assert context_of((("unit", "C"),)) is None
