"""Refusals in a PUBACK: a reason code, the reason, and the replica's clock.

`vmq-refused` has the reason and `vmq-clock` the time, as in CONNACK, in user properties (docs/protocol.md §5.8). Not
here: the causes (`bridge.contract.refusing`), the consequences (`bridge.publisher.windows`).
"""

from __future__ import annotations

from bridge.contract.refusing import Reason
from gateway.base.peer_clock import stamp
from gateway.clients import PeerRefusal
from gateway.mqtt5.packets import Properties
from gateway.mqtt5.types import ReasonCode

PROPERTY = "vmq-refused"
_CODES = {
    Reason.RIGHT: ReasonCode.NOT_AUTHORIZED,
    Reason.BUDGET: ReasonCode.QUOTA_EXCEEDED,
}


def refusal(reason: str, now: float) -> PeerRefusal:
    """The answer to a member; `now`: UNIX time in seconds."""
    code = _CODES.get(Reason(reason), ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
    return PeerRefusal(code, Properties(user=((PROPERTY, reason), stamp(now))))


def reason_in(properties: Properties) -> Reason | None:
    """The reason a replica gave; None for an answer that is none of a replica's."""
    given = {value for name, value in properties.user if name == PROPERTY}
    return next((reason for reason in Reason if reason.value in given), None)
