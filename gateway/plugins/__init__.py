"""amqtt's plugins beside our data plane: calls to plugins, and their view of packets and sessions.

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
