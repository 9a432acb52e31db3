"""Bridges to ordinary MQTT brokers: topics that cross, their names and QoS at the other broker, and no circles.

A bridge is two MQTT clients, one of this broker and one of the other. A message is acknowledged on a side only when
the other side has it. Imports `client`, `mqtt5`, `base`; the broker is handed to it.
"""

from __future__ import annotations

from gateway.bridging.circles import Circles
from gateway.bridging.crossing import Bridge, BridgeStanding, Home
from gateway.bridging.ends import make_bridge
from gateway.bridging.mapping import Marks, Topics, remote_name

__all__ = ["Bridge", "BridgeStanding", "Circles", "Home", "Marks", "Topics", "make_bridge", "remote_name"]
