"""A goodbye to a connection that is gone is no error in anybody's log; everything else that a loop is told still is."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from gateway.sockets.gone import GOODBYE, tell_unless_gone

CLOSED = RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


def told(context: dict[str, Any], caplog: pytest.LogCaptureFixture) -> list[str]:
    loop = asyncio.new_event_loop()
    try:
        loop.set_exception_handler(tell_unless_gone)
        with caplog.at_level(logging.INFO):
            loop.call_exception_handler(context)
    finally:
        loop.close()
    return [record.getMessage() for record in caplog.records]


def test_a_goodbye_to_a_closed_transport_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    assert told({"message": GOODBYE, "exception": CLOSED, "protocol": object()}, caplog) == []


@pytest.mark.parametrize("context", [
    {"message": "Exception in callback", "exception": CLOSED},
    {"message": GOODBYE, "exception": ValueError("something else")},
    {"message": GOODBYE},
    {"message": "Task was destroyed but it is pending!"},
])  # fmt: skip
def test_all_else_is_logged(context: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    assert any(context["message"] in line for line in told(context, caplog))
