"""Sessions whose clients are away, by owner, and the choice of the session ending when `limits.sessions` is reached.

An owner is a user with a proven name, else the address block of the client. The owner with most loses its oldest
session, empty sessions first; so a single owner may fill the table, and others get in all the same. For its own new
session an owner loses only empty sessions: messages acknowledged for a session are worth more than another session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from bridge.base import Belongings
from gateway.clients import Client
from gateway.plugins import EdgeSession
from gateway.sockets.door import origin_of

HERE = "here"
"""Owner of the sessions of nameless clients of this machine."""


def proven_name(view: EdgeSession) -> str | None:
    """Returns the user name a client proved; None if it gave none, or only claims one."""
    return None if view.is_anonymous or not view.owner_known else view.username


def owner_of(view: EdgeSession) -> str:
    """Returns the owner of a client's session: its user, or its address (IPv6: its /64)."""
    name = proven_name(view)
    if name is not None:
        return f"user {name}"
    return origin_of(view.remote_address) or HERE if view.remote_address else HERE


def holds_something(client: Client) -> bool:
    """Returns whether the end of a session would lose subscriptions, messages, half a QoS 2 exchange, or a will."""
    session = client.session
    held = client.filters, session.waiting, session.outbound.unacknowledged, session.inbound.awaiting_pubrel
    return any(held) or session.will is not None


class SessionShares:
    """Sessions of clients that are away, by owner."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, bool]] = {}  # by client id: owner, and True if the session is not empty
        self._empty: Belongings[str, str] = Belongings()
        self._holding: Belongings[str, str] = Belongings()
        self._sizes: dict[str, int] = {}
        self._of_size: dict[int, dict[str, None]] = {}  # owners by their number of sessions
        self._most = 0

    def __len__(self) -> int:
        return len(self._known)

    def away(self, client: Client) -> None:
        """Enters a session whose client went."""
        self.back(client.client_id)
        self._resize(self._enter(client), 1)

    def away_all(self, clients: Iterable[Client]) -> None:
        """Enters sessions of which none is known yet: with one look at each owner's number of sessions."""
        for owner, sessions in Counter(map(self._enter, clients)).items():
            self._resize(owner, sessions)

    def _enter(self, client: Client) -> str:
        owner, holds = self._known[client.client_id] = owner_of(client.view), holds_something(client)
        (self._holding if holds else self._empty).add(owner, client.client_id)
        return owner

    def back(self, client_id: str) -> None:
        """Removes a session whose client is connected, or that has ended."""
        known = self._known.pop(client_id, None)
        if known is not None:
            owner, holds = known
            (self._holding if holds else self._empty).drop_thing(owner, client_id)
            self._resize(owner, -1)

    def _resize(self, owner: str, by: int) -> None:
        before = self._sizes.pop(owner, 0)
        if before:
            del self._of_size[before][owner]
            if not self._of_size[before]:
                del self._of_size[before]
        if size := before + by:
            self._sizes[owner] = size
            self._of_size.setdefault(size, {})[owner] = None
        self._most = max(self._most, size)
        while self._most and self._most not in self._of_size:
            self._most -= 1  # by one at most: an owner's size falls by one

    def loses(self, owner: str) -> str | None:
        """Returns the client id whose session ends for a new one of `owner`; None: the new one is refused."""
        if self._most > self._sizes.get(owner, 0) + 1:
            greediest = next(iter(self._of_size[self._most]))
            return next(iter(self._empty.things_of(greediest) or self._holding.things_of(greediest)))
        return next(iter(self._empty.things_of(owner)), None)
