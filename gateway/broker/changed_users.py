"""Users who were removed, disabled or given another password: their connections and sessions here end at once.

Reported by the plugins knowing users (`PluginHost.follow_users`), for changes by the console, a command or SIGHUP.
"""

from __future__ import annotations

from gateway.broker.lifecycle import Lifecycle
from gateway.mqtt5.types import ReasonCode
from gateway.plugins import PluginHost


class ChangedUsers:
    """Follower of changed users for a broker. A user who may no longer log in loses connections and sessions; a user
    with another password loses connections only, and logs in again.
    """

    def __init__(self, host: PluginHost, lifecycle: Lifecycle) -> None:
        self._host, self._lifecycle = host, lifecycle
        host.follow_users(self.take_changed_users)

    def take_changed_users(self, users: frozenset[str]) -> None:
        """Takes the users whose standing changed; none if only rights changed."""
        self._lifecycle.rights_changed()
        for client in list(self._lifecycle.clients.values()) if users else ():
            if client.peer is None and not client.view.is_internal and client.view.username in users:
                self._lifecycle.dismiss(client, ReasonCode.ADMINISTRATIVE_ACTION)
                if self._host.standing(client.view.username) is None:
                    self._lifecycle.end_session(client)
