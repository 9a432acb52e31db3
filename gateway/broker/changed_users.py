"""Users who were removed, disabled or given another password: what their clients have here ends, at once.

Told by the plugins that know users (`PluginHost.follow_users`), whoever made the change: the console, a command,
SIGHUP.
"""

from __future__ import annotations

from gateway.broker.lifecycle import Lifecycle
from gateway.mqtt5.types import ReasonCode
from gateway.plugins import PluginHost


class ChangedUsers:
    """The follower of one broker. A user who may not log in any more loses connections and sessions; one who has
    another password loses connections only, and logs in again."""

    def __init__(self, host: PluginHost, lifecycle: Lifecycle) -> None:
        self._host, self._lifecycle = host, lifecycle
        host.follow_users(self.changed)

    def changed(self, users: frozenset[str]) -> None:
        """`users`: those whose standing changed; none of them where only rights did."""
        self._lifecycle.rights_changed()
        for client in list(self._lifecycle.clients.values()) if users else ():
            if client.peer is None and not client.view.is_internal and client.view.username in users:
                self._lifecycle.dismiss(client, ReasonCode.ADMINISTRATIVE_ACTION)
                if self._host.standing(client.view.username) is None:
                    self._lifecycle.end(client)
