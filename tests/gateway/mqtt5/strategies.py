"""Hypothesis strategies for packets that MQTT can carry, by version and by the side that may send them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import strategies as st

from gateway.mqtt5.encoding import codes_of
from gateway.mqtt5.packets import (
    NO_PROPERTIES,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Version,
    Will,
)
from gateway.mqtt5.parsing import AUTH_FROM_CLIENT, AUTH_FROM_SERVER, DISCONNECT_FROM_CLIENT, DISCONNECT_FROM_SERVER
from gateway.mqtt5.properties import TABLE, Carrier

VERSIONS = st.sampled_from(Version)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
TOPICS = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=12)
BINARY = st.binary(max_size=12)
PACKET_IDS = st.integers(1, 65535)
QOS = st.integers(0, 2)
LEVELS = st.one_of(st.just("+"), st.text(alphabet="ab$é", max_size=4))


@st.composite
def topic_filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(LEVELS, min_size=1, max_size=4))
    if draw(st.booleans()):
        levels.append("#")
    name = "/".join(levels)
    if not name:
        name = "/"
    return f"$share/group/{name}" if draw(st.booleans()) else name


_FIELD_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "response_topic": TOPICS,
    "correlation_data": BINARY,
    "authentication_data": BINARY,
    "message_expiry_s": st.integers(0, 0xFFFFFFFF),
    "session_expiry_s": st.integers(0, 0xFFFFFFFF),
    "will_delay_s": st.integers(0, 0xFFFFFFFF),
    "maximum_packet_size": st.integers(1, 0xFFFFFFFF),
    "server_keep_alive_s": st.integers(0, 65535),
    "receive_maximum": st.integers(1, 65535),
    "topic_alias_maximum": st.integers(0, 65535),
    "topic_alias": st.integers(1, 65535),
    "user": st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
}
_TEXT_FIELDS = {
    "content_type",
    "assigned_client_id",
    "authentication_method",
    "response_information",
    "server_reference",
    "reason",
}


@st.composite
def properties_of(draw: st.DrawFn, carrier: Carrier, exclude: frozenset[str] = frozenset()) -> Properties:
    found: dict[str, Any] = {}
    for row in TABLE:
        if carrier not in row.carriers or row.field in exclude or not draw(st.booleans()):
            continue
        if row.field in _TEXT_FIELDS:
            found[row.field] = draw(TEXT)
        elif row.field == "subscription_ids":
            most = 3 if carrier is Carrier.PUBLISH else 1
            found[row.field] = tuple(draw(st.lists(st.integers(1, 268_435_455), max_size=most)))
        else:
            found[row.field] = draw(_FIELD_VALUES.get(row.field, st.integers(0, 1)))
    if "authentication_data" in found and "authentication_method" not in found:
        del found["authentication_data"]
    return Properties(**found) if found else NO_PROPERTIES


def _maybe(carrier: Carrier, version: Version, exclude: frozenset[str] = frozenset()) -> Any:
    return properties_of(carrier, exclude) if version == Version.V5 else st.just(NO_PROPERTIES)


def _code(carrier: Carrier, version: Version) -> st.SearchStrategy[int]:
    return st.sampled_from(sorted(codes_of(carrier, version)))


@st.composite
def connects(draw: st.DrawFn, version: Version) -> Connect:
    clean = draw(st.booleans())
    least = 1 if version == Version.V31 or (version == Version.V311 and not clean) else 0
    username = draw(st.none() | TEXT)
    password = draw(st.none() | BINARY) if version == Version.V5 or username is not None else None
    will = None
    if draw(st.booleans()):
        will = Will(draw(TOPICS), draw(BINARY), draw(QOS), draw(st.booleans()), draw(_maybe(Carrier.WILL, version)))
    return Connect(
        draw(TEXT.filter(lambda text: len(text) >= least)),
        version,
        clean,
        draw(st.integers(0, 65535)),
        username,
        password,
        will,
        draw(_maybe(Carrier.CONNECT, version)),
        version != Version.V5 and draw(st.booleans()),
    )


@st.composite
def publishes(draw: st.DrawFn, version: Version, from_client: bool) -> Publish:
    exclude = frozenset({"subscription_ids"}) if from_client else frozenset()
    properties = draw(_maybe(Carrier.PUBLISH, version, exclude))
    qos = draw(QOS)
    topic = draw(TOPICS)
    if properties.topic_alias is not None and draw(st.booleans()):
        topic = ""
    dup = qos > 0 and draw(st.booleans())
    packet_id = draw(PACKET_IDS) if qos else 0
    payload = draw(st.binary(max_size=300))
    return Publish(topic, payload, qos, draw(st.booleans()), dup, packet_id, properties)


@st.composite
def acknowledgements(draw: st.DrawFn, version: Version) -> Packet:
    kind, carrier = draw(
        st.sampled_from(
            [
                (PubAck, Carrier.PUBACK),
                (PubRec, Carrier.PUBREC),
                (PubRel, Carrier.PUBREL),
                (PubComp, Carrier.PUBCOMP),
            ]
        )
    )
    code = draw(_code(carrier, version)) if version == Version.V5 else 0
    return kind(draw(PACKET_IDS), code, draw(_maybe(carrier, version)))


@st.composite
def subscribes(draw: st.DrawFn, version: Version) -> Subscribe:
    def one(topic_filter: str) -> Subscription:
        if version != Version.V5:
            return Subscription(topic_filter, draw(QOS))
        no_local = not topic_filter.startswith("$share/") and draw(st.booleans())
        return Subscription(topic_filter, draw(QOS), no_local, draw(st.booleans()), draw(QOS))

    subscriptions = tuple(one(name) for name in draw(st.lists(topic_filters(), min_size=1, max_size=4)))
    return Subscribe(draw(PACKET_IDS), subscriptions, draw(_maybe(Carrier.SUBSCRIBE, version)))


@st.composite
def _from_client(draw: st.DrawFn, version: Version) -> Packet:
    v5 = version == Version.V5
    choice = draw(st.integers(0, 6))
    if choice == 0:
        return draw(publishes(version, True))
    if choice == 1:
        return draw(acknowledgements(version))
    if choice == 2:
        return draw(subscribes(version))
    if choice == 3:
        filters = tuple(draw(st.lists(topic_filters(), min_size=1, max_size=4)))
        return Unsubscribe(draw(PACKET_IDS), filters, draw(_maybe(Carrier.UNSUBSCRIBE, version)))
    if choice == 4 and v5:
        return Auth(draw(st.sampled_from(sorted(AUTH_FROM_CLIENT))), draw(properties_of(Carrier.AUTH)))
    if choice == 5:
        code = draw(st.sampled_from(sorted(DISCONNECT_FROM_CLIENT))) if v5 else 0
        return Disconnect(code, draw(_maybe(Carrier.DISCONNECT, version)))
    return PingReq()


@st.composite
def _from_server(draw: st.DrawFn, version: Version) -> Packet:
    v5 = version == Version.V5
    choice = draw(st.integers(0, 7))
    if choice == 0:
        return draw(publishes(version, False))
    if choice == 1:
        return draw(acknowledgements(version))
    if choice == 2:
        code = draw(_code(Carrier.CONNACK, version))
        present = code == 0 and draw(st.booleans())
        return ConnAck(present, code, draw(_maybe(Carrier.CONNACK, version)))
    if choice == 3:
        codes = tuple(draw(st.lists(_code(Carrier.SUBACK, version), min_size=1, max_size=4)))
        return SubAck(draw(PACKET_IDS), codes, draw(_maybe(Carrier.SUBACK, version)))
    if choice == 4:
        codes = ()
        if v5:
            codes = tuple(draw(st.lists(_code(Carrier.UNSUBACK, version), min_size=1, max_size=4)))
        return UnsubAck(draw(PACKET_IDS), codes, draw(_maybe(Carrier.UNSUBACK, version)))
    if choice == 5 and v5:
        return Auth(draw(st.sampled_from(sorted(AUTH_FROM_SERVER))), draw(properties_of(Carrier.AUTH)))
    if choice == 6 and v5:
        exclude = frozenset({"session_expiry_s"})
        code = draw(st.sampled_from(sorted(DISCONNECT_FROM_SERVER)))
        return Disconnect(code, draw(properties_of(Carrier.DISCONNECT, exclude)))
    return PingResp()


def packets(version: Version, role: str) -> st.SearchStrategy[Packet]:
    """Packets that a decoder in `role` accepts after the connection began (so no CONNECT)."""
    return _from_client(version) if role == "server" else _from_server(version)


assert {field.name for field in fields(Properties)} == {row.field for row in TABLE}
