"""Clients that are bridges of other brokers: the marks by which they are known, and the options that they get.

In MQTT 5 a bridge of VeilMQ names its broker in CONNECT by the user property of bridge marks. In 3.x bridges set the
private bit of the protocol level (`mqtt5.packets.PRIVATE_BIT`), which names no broker. A bridge that is to speak 3.1.1
first asks for MQTT 5 by `mqtt5.packets.KIN_LEVEL`; a VeilMQ answers with KIN in its CONNACK. No I/O.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.mqtt5.packets import Connect, Properties, Subscribe, Version

MARK = "bridged-by"
"""User property with the name of a broker: one that a message has passed, or the broker that connects or answers."""

KIN = ("vmq-kin", "1")
"""User property of the CONNACK with which a VeilMQ accepts a CONNECT of the level KIN_LEVEL: a broker that takes any
level for MQTT 5 does not know it.
"""


def bridge_name(connect: Connect) -> str | None:
    """Returns the name of the broker whose bridge connects, "" if a bridge names none, None for any other client."""
    if connect.is_bridge:
        return ""
    return next((value for name, value in connect.properties.user if name == MARK), None)


def as_told_to_bridge(properties: Properties, connect: Connect, name: str | None) -> Properties:
    """Returns the properties of the CONNACK for a client, with what a bridge of MQTT 5 learns from it. `name`: of this
    broker in marks, if it has part in circles.
    """
    if connect.version != Version.V5:
        return properties
    told = (KIN,) if connect.is_kin else ()
    if name is not None and bridge_name(connect):
        told = (*told, (MARK, name))
    return replace(properties, user=(*properties.user, *told)) if told else properties


def as_bridge(packet: Subscribe) -> Subscribe:
    """Returns the subscriptions of a 3.x bridge with two options that its version cannot state: No Local, Retain As
    Published.
    """
    asked = tuple(
        one if one.filter.startswith("$share/") else replace(one, no_local=True, retain_as_published=True)
        for one in packet.subscriptions
    )
    return replace(packet, subscriptions=asked)
