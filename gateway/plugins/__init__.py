"""amqtt's plugins beside our data plane: who asks them, when, and what they see of packets and sessions.

Imports `mqtt5` only.
"""

from __future__ import annotations

from gateway.plugins.host import Action, BusyError, EdgeSession, PacketView, PluginHost, application_message

__all__ = [
    "Action",
    "BusyError",
    "EdgeSession",
    "PacketView",
    "PluginHost",
    "application_message",
]
