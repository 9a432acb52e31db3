"""A PUBACK that refuses says why and by which clock."""

from __future__ import annotations

import pytest

from bridge.contract.refusing import Reason
from gateway.base.peer_clock import ahead_s
from gateway.mqtt5.packets import Properties
from gateway.mqtt5.types import ReasonCode
from gateway.overlay.peer_refusals import PROPERTY, reason_in, refusal


@pytest.mark.parametrize("reason", Reason)
def test_reason_and_clock_arrive(reason: Reason) -> None:
    said = refusal(reason, 1_800_000_000.0)
    assert said.code >= ReasonCode.UNSPECIFIED_ERROR
    assert reason_in(said.properties) is reason
    assert ahead_s(said.properties.user, 1_800_000_000.0 - 7200) == 7200


def test_other_answers_have_no_reason() -> None:
    assert reason_in(Properties()) is None
    assert reason_in(Properties(user=((PROPERTY, "because"), ("other", "time")))) is None
