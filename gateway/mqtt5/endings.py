"""Packets beginning and end a server's part: CONNACK that accepts or refuses, and DISCONNECT after it. No state."""

from __future__ import annotations

from dataclasses import replace

from gateway.mqtt5.actions import ServerOffer
from gateway.mqtt5.encoding import codes_of, encode
from gateway.mqtt5.packets import NO_PROPERTIES, ConnAck, Connect, Disconnect, Properties, Version
from gateway.mqtt5.parsing import DISCONNECT_FROM_SERVER
from gateway.mqtt5.properties import Carrier
from gateway.mqtt5.types import (
    MAXIMUM_PACKET_ID,
    MAXIMUM_PACKET_SIZE_SAID,
    NEVER_EXPIRES_S,
    PacketTooLarge,
    QosNotSupported,
    ReasonCode,
    RetainNotSupported,
    connack_code_v3,
    encode_varint,
)

_ANSWERED_WITHOUT_CONNECT = (ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)


def farewell(version: Version, reason: ReasonCode) -> bytes:
    """Returns the DISCONNECT a server sends after CONNACK before it closes (§4.13.2); empty below MQTT 5."""
    if version != Version.V5:
        return b""
    code = reason if reason in DISCONNECT_FROM_SERVER else ReasonCode.UNSPECIFIED_ERROR
    return encode(Disconnect(code), version)


def check_connect(connect: Connect, offer: ServerOffer, properties: Properties = NO_PROPERTIES) -> None:
    """Refuses a CONNECT asking for more than the offer, before any state is touched.

    Raises QosNotSupported, RetainNotSupported (will), PacketTooLarge (the CONNACK would exceed the client's maximum
    packet size, and holds nothing that may be left out: MQTT-3.1.2-24).
    """
    will, most = connect.will, connect.properties.maximum_packet_size
    if will is not None and will.qos > offer.maximum_qos:
        raise QosNotSupported(f"will of QoS {will.qos}")
    if will is not None and will.retain and not offer.retain_available:
        raise RetainNotSupported("retained will")
    if most is not None and len(acceptance(connect, offer, False, properties)) > most:
        raise PacketTooLarge(f"CONNACK exceeds the client's maximum packet size of {most} bytes")


def _asked_expiry_s(connect: Connect) -> int:
    if connect.version == Version.V5:
        return connect.properties.session_expiry_s or 0
    return 0 if connect.clean_start else NEVER_EXPIRES_S


def granted_times(connect: Connect, offer: ServerOffer) -> tuple[int, int]:
    """Returns session expiry and keep-alive as the server uses them, in seconds (§3.1.2.11.2, §3.2.2.3.14)."""
    keep_alive_s, most_s = connect.keep_alive_s, offer.keep_alive_max_s
    if connect.version == Version.V5 and most_s and not 0 < keep_alive_s <= most_s:
        keep_alive_s = most_s
    return min(_asked_expiry_s(connect), offer.session_expiry_max_s), keep_alive_s


def acceptance(connect: Connect, offer: ServerOffer, session_present: bool, properties: Properties) -> bytes:
    """Returns the CONNACK that accepts; `properties` are added to those that follow from CONNECT and the offer."""
    if connect.version == Version.V5:
        expiry_s, keep_alive_s = granted_times(connect, offer)
        # Absent means the specification's default, so only differing values are sent.
        properties = replace(
            properties,
            session_expiry_s=expiry_s if expiry_s != _asked_expiry_s(connect) else None,
            receive_maximum=offer.receive_maximum if offer.receive_maximum < MAXIMUM_PACKET_ID else None,
            maximum_packet_size=min(offer.maximum_packet_size, MAXIMUM_PACKET_SIZE_SAID),
            topic_alias_maximum=offer.topic_alias_maximum or None,
            maximum_qos=offer.maximum_qos if offer.maximum_qos < 2 else None,
            retain_available=None if offer.retain_available else 0,
            server_keep_alive_s=keep_alive_s if keep_alive_s != connect.keep_alive_s else None,
        )
    # The byte of the flag is reserved in MQTT 3.1 (§3.2 there).
    told = session_present and connect.version != Version.V31
    return encode(ConnAck(told, ReasonCode.SUCCESS, properties), connect.version)


def tellings(connect: Connect, client_id: str, proof: Properties, response_information: str | None) -> Properties:
    """Returns properties of CONNACK besides the offer (§3.2.2.3.7, §3.2.2.3.15): `proof`, assigned client id, and
    response information if the client asked.

    In `response_information`, `{client_id}` stands for the client's own.
    """
    if not connect.client_id:
        proof = replace(proof, assigned_client_id=client_id)
    # With levels or wildcards in its client id, a client would get the topics of other clients.
    if connect.properties.request_response_information and response_information and not set(client_id) & set("/+#"):
        proof = replace(proof, response_information=response_information.replace("{client_id}", client_id))
    return proof


def answer_bytes(filters: int, version: Version) -> int:
    """Returns the size in bytes of a SUBACK or UNSUBACK with `filters` codes and no properties."""
    remaining = 2 + filters + (version == Version.V5)
    return 1 + len(encode_varint(remaining)) + remaining


def refusal(version: Version | None, reason: ReasonCode, properties: Properties = NO_PROPERTIES) -> bytes:
    """Returns the CONNACK refusing a connection before it is closed; empty where none is sent.

    `version` None: no CONNECT was accepted by the decoder. Then only an unknown protocol level and a missing client
    identifier (an error of 3.x alone) are answered, in the form of MQTT 3.1.1, which every client can read
    (MQTT-3.1.2-2 and MQTT-3.1.3-8 there).
    """
    if version == Version.V5:
        code = reason if reason in codes_of(Carrier.CONNACK, version) else ReasonCode.UNSPECIFIED_ERROR
        return encode(ConnAck(False, code, properties), version)
    if version is None and reason not in _ANSWERED_WITHOUT_CONNECT:
        return b""
    code_v3 = connack_code_v3(reason)
    return b"" if code_v3 is None else encode(ConnAck(False, code_v3), Version.V311)
