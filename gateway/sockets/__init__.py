"""Network connections of clients: reads, writes, held packets, and their log lines.

Know the broker only as the `Core` that they are given; imports the rooms below, never `gateway/broker`.
"""

from __future__ import annotations

from gateway.sockets.connection import MqttConnection

__all__ = ["MqttConnection"]
