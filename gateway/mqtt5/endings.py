"""Last words of a server: DISCONNECT after CONNACK, and CONNACK that refuses. No state."""

from __future__ import annotations

from .encoding import codes_of, encode
from .packets import NO_PROPERTIES, ConnAck, Disconnect, Properties, Version
from .parsing import DISCONNECT_FROM_SERVER
from .properties import Carrier
from .types import ReasonCode, connack_code_v3

_ANSWERED_WITHOUT_CONNECT = (ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)


def farewell(version: Version, reason: ReasonCode) -> bytes:
    """DISCONNECT that a server sends after CONNACK before it closes (§4.13.2); empty below MQTT 5."""
    if version != Version.V5:
        return b""
    code = reason if reason in DISCONNECT_FROM_SERVER else ReasonCode.UNSPECIFIED_ERROR
    return encode(Disconnect(code), version)


def refusal(version: Version | None, reason: ReasonCode, properties: Properties = NO_PROPERTIES) -> bytes:
    """CONNACK that refuses a connection before it is closed; empty where none is sent.

    `version` None: no CONNECT was accepted by the decoder. Then only an unknown protocol level and a missing
    client identifier (an error of 3.x alone) are answered, in the form of MQTT 3.1.1, which every client can
    read (MQTT-3.1.2-2 and MQTT-3.1.3-8 there).
    """
    if version == Version.V5:
        code = reason if reason in codes_of(Carrier.CONNACK, version) else ReasonCode.UNSPECIFIED_ERROR
        return encode(ConnAck(False, code, properties), version)
    if version is None and reason not in _ANSWERED_WITHOUT_CONNECT:
        return b""
    code_v3 = connack_code_v3(reason)
    return b"" if code_v3 is None else encode(ConnAck(False, code_v3), Version.V311)
