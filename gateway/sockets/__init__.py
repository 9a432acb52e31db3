"""One network connection of a client: reads, writes, what is held back, and what the log says of it.

Knows the broker only as the `Core` that it is given; imports the rooms below, never `gateway/broker`.
"""

from __future__ import annotations

from gateway.sockets.connection import MqttConnection

__all__ = ["MqttConnection"]
