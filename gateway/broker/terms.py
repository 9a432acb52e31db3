"""Terms of every client: the offer of CONNACK, and the bounds of its session, by listener. Data only.

Made of the configuration when the broker starts and when it reads its configuration again; a session gets the bounds
of the listener on which it connects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gateway.base import Limits, Listener, Settings
from gateway.broker.member_sessions import RECEIVE_MAXIMUM
from gateway.clients import INTERNAL, Client
from gateway.mqtt5.session import ServerOffer, SessionLimits

HOLD, DROP_NEWEST = "hold", "drop_newest"


class Terms:
    """Terms of a broker. `session_expiry_s`: the longest that is granted. A listener that is not among `listeners` has
    no own bounds. `reached`: called with a bound's name and a client id each time when a session reaches it.
    """

    def __init__(
        self,
        limits: Limits,
        session_expiry_s: int,
        listeners: Mapping[str, Listener],
        reached: Callable[[str, str], None],
    ) -> None:
        self.limits = limits
        self.offer = ServerOffer(
            receive_maximum=limits.receive_maximum,
            maximum_packet_size=limits.packet_bytes,
            topic_alias_maximum=limits.topic_aliases,
            session_expiry_max_s=session_expiry_s,
            keep_alive_max_s=limits.keep_alive_max_s,
        )
        # Offer to members of the overlay.
        self.peer_offer = replace(self.offer, receive_maximum=RECEIVE_MAXIMUM)
        self._internal_offer = replace(self.offer, session_expiry_max_s=0xFFFF_FFFF, keep_alive_max_s=0)
        # Bounds of a session that has not connected since the broker started: its listener is unknown.
        self.usual = SessionLimits(
            in_flight_messages=limits.in_flight,
            queue_messages=limits.queue_messages,
            queue_bytes=limits.queue_bytes,
            stretch_messages=limits.member_queue_messages,
            stretch_bytes=limits.member_queue_bytes,
            subscriptions=limits.subscriptions,
            subscription_bytes=limits.subscription_bytes,
            reached=reached,
        )
        self.of_peers = replace(
            self.usual,
            in_flight_messages=limits.member_in_flight,
            queue_messages=limits.member_queue_messages,
            queue_bytes=limits.member_queue_bytes,
            reached=lambda bound, member: reached(f"member_{bound}", member),
        )
        self._listeners = listeners
        self._of_listener = {name: self._session_limits(listener) for name, listener in listeners.items()}

    def _session_limits(self, listener: Listener) -> SessionLimits:
        return replace(
            self.usual,
            queue_messages=listener.queue_messages or self.usual.queue_messages,
            queue_bytes=listener.queue_bytes or self.usual.queue_bytes,
            drops_newest=listener.when_full == DROP_NEWEST,
        )

    def offered(self, is_internal: bool, is_member: bool = False) -> ServerOffer:
        """Returns the offer of CONNACK."""
        return self._internal_offer if is_internal else self.peer_offer if is_member else self.offer

    def session_limits(self, listener: str) -> SessionLimits:
        return self._of_listener.get(listener, self.usual)

    def holds_publishers(self, listener: str) -> bool:
        """True if publishers wait for clients of the listener whose queue is long (`holding.py`)."""
        known = self._listeners.get(listener)
        return known is None or known.when_full == HOLD

    def grant(self, client: Client) -> None:
        """Gives a session the bounds of its present listener."""
        listener = "" if client.connection is None else client.connection.listener
        is_peer = client.peer is not None
        client.session.limits = self.of_peers if is_peer else self.session_limits(listener)
        client.holds = not is_peer and self.holds_publishers(listener)


def internal_listeners(settings: Settings) -> dict[str, Listener]:
    """Returns the bounds of the sessions that bridges have here, by the names of listeners no other client can use."""
    return {
        f"{INTERNAL}bridge/{name}": Listener(
            queue_messages=bridge.queue_messages, queue_bytes=bridge.queue_bytes, when_full="drop_oldest"
        )
        for name, bridge in settings.bridges.items()
    }
