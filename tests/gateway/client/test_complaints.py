"""Why there is no connection: each line once, a bounded number, and anew after the connection stood."""

from __future__ import annotations

import pytest

from gateway.client.complaints import SAID_MAX, ClientError, Complaints
from gateway.mqtt5.types import ReasonCode


def test_a_line_is_said_once_until_the_connection_stood(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    for _ in range(3):
        complaints.log_reason("refused: 100 % of tries")
    assert [one.getMessage() for one in caplog.records] == ["refused: 100 % of tries"]
    complaints.forget_reasons()
    complaints.log_reason("refused: 100 % of tries")
    assert len(caplog.records) == 2


def test_a_peer_that_invents_reasons_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    for number in range(5 * SAID_MAX):
        complaints.log_reason(f"reason {number}")
    assert len(caplog.records) == SAID_MAX


def test_an_error_carries_the_peers_code() -> None:
    assert ClientError("no").code == ReasonCode.SERVER_UNAVAILABLE == 0x88
    assert ClientError("no", 0x87).code == 0x87
    assert str(ClientError("cause; cure")) == "cause; cure"
