"""The connections we make: a client to each member that listens for us, remade as the overlay changes.

Which members these are follows from the overlay (`bridge.topology.peers_of`); what goes over the links is for `links`
and `client`, who drive them. A member that is gone, or listens somewhere else, loses its client; nobody else does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from statistics import median_low
from typing import Protocol

from bridge.contract import Watch
from gateway.base import LinkState
from gateway.base.log_events import LogEvent
from gateway.client import PACKET_BYTES_MAX, MqttClient
from gateway.mqtt5.packets import Publish
from gateway.overlay.hosted import PACKET_BYTES_MIN

log = logging.getLogger("veilmq.links")

SUBSCRIBED = 1  # reason code of SUBACK: at QoS 1, as asked
CLOSE_S = 5.0  # a member that does not take our farewell holds up the end, and the last commit, no longer
REDIAL_S = 10.0  # how long the next link waits for the one before it to come back; longer means that its peer is away


class LinkEvents(Protocol):
    """The callbacks of an owner of links. `client`: the connection, for acknowledging by hand."""

    def link_up(self, peer: str) -> None: ...

    def link_down(self, peer: str) -> None: ...

    def link_published(self, peer: str, publish: Publish, client: MqttClient) -> None: ...

    def link_watched(self, peer: str, ticket: int) -> None: ...


class Dials(Mapping[str, MqttClient]):
    """The dialled links. `dial(peer)` makes the client for a member at its address in the overlay in force."""

    def __init__(self, dial: Callable[[str], MqttClient]) -> None:
        self._dial = dial
        self._clients: dict[str, MqttClient] = {}
        self._refused_bytes: dict[str, int] = {}  # by peer: the shortest content it found too large on this connection
        self._events: LinkEvents | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._redialling: asyncio.Task[None] | None = None
        self._came_up = asyncio.Event()

    def __getitem__(self, peer: str) -> MqttClient:
        return self._clients[peer]

    def __iter__(self) -> Iterator[str]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def connected_peers(self) -> tuple[str, ...]:
        """Members to which the connection stands."""
        return tuple(peer for peer, client in self._clients.items() if client.connected)

    @property
    def clock_ahead_s(self) -> float:
        """By how many seconds the median of the members' clocks is ahead of ours, as they said when they connected."""
        known = [client.clock_ahead_s for client in self._clients.values() if client.clock_ahead_s is not None]
        return median_low(known) if known else 0.0

    def watch(self, wanted: Watch) -> None:
        """Subscribe at a peer, or unsubscribe; nothing, if we have no link to it."""
        client = self.get(wanted.peer)
        if client is not None and wanted.on:
            # What we publish ourselves would be dropped on its way back.
            client.subscribe(wanted.filter, qos=1, no_local=True, on_answer=partial(self._watched, wanted))
        elif client is not None:
            client.unsubscribe(wanted.filter)

    def _watched(self, wanted: Watch, code: int) -> None:
        if code != SUBSCRIBED:
            why = f"does not let us subscribe to {wanted.filter} at QoS 1 (0x{code:02x}); ask for the right"
            self._clients[wanted.peer].note_failure(f"{wanted.peer} {why}")
        elif wanted.ticket and self._events is not None:
            self._events.link_watched(wanted.peer, wanted.ticket)

    def packet_limit(self, peers: Iterable[str], count: int, least: Container[str] = ()) -> int:
        """The largest packet, in bytes, that `count` of these peers take, as they say or showed. Who has not said takes
        any, or, if it is one of `least`, what the least of hosted brokers does; of what one of those refused without
        having said so, half is tried."""
        return sorted((self._limit(peer, peer in least) for peer in peers), reverse=True)[count - 1]

    def _limit(self, peer: str, is_least: bool) -> int:
        client = self.get(peer)
        if is_least and (client is None or not client.figures.connections):
            return PACKET_BYTES_MIN
        if client is None:
            return PACKET_BYTES_MAX
        refused_bytes = self._refused_bytes.get(peer, PACKET_BYTES_MAX)
        return min(client.packet_limit, refused_bytes // 2 if is_least else refused_bytes)

    def showed(self, peer: str, size: int) -> None:
        """A peer refused a content of so many bytes as too large, whatever it says."""
        self._refused_bytes[peer] = min(size, self._refused_bytes.get(peer, size))

    def link_states(self) -> list[LinkState]:
        """Returns the state of each link."""
        return [
            LinkState(peer, True, client.connected, *client.load[:2], client.figures)
            for peer, client in self._clients.items()
        ]

    def start(self, peers: Iterable[str], events: LinkEvents) -> None:
        """Connect to each of `peers` in the background, and keep connected."""
        self._events = events
        for peer in peers:
            self._begin_dial(peer)

    def adopt_peers(self, peers: Iterable[str]) -> None:
        """From now on these: leave those that are gone, dial the new, and those whose address changed anew.

        Whoever is gone is left without a `link_down`: it is no peer any more.
        """
        wanted = dict.fromkeys(peers)
        for peer in [peer for peer in self._clients if peer not in wanted]:
            self._end_dial(peer)
        for peer in wanted:
            held = self._clients.get(peer)
            if held is None:
                self._begin_dial(peer)
                continue
            fresh = self._dial(peer)
            if fresh.address != held.address:
                was_up = held.connected
                self._end_dial(peer)
                if was_up and self._events is not None:
                    self._events.link_down(peer)
                self._begin_dial(peer, fresh)

    def redial(self) -> None:
        """Make every connection anew, in turn, so that there is always one that stands."""
        if self._redialling is not None:
            self._redialling.cancel()
        self._redialling = asyncio.get_running_loop().create_task(self._redial(), name="redial")

    async def close(self) -> None:
        """Leave everybody; what does not end in time is cut off."""
        if self._redialling is not None:
            self._redialling.cancel()
        ending = [*self._closing, *(asyncio.ensure_future(client.close()) for client in self._clients.values())]
        if ending:
            _, late = await asyncio.wait(ending, timeout=CLOSE_S)
            for task in late:
                task.cancel()

    def _begin_dial(self, peer: str, client: MqttClient | None = None) -> None:
        client = self._clients[peer] = client or self._dial(peer)
        events = self._events
        assert events is not None
        client.on_up = partial(self._up, peer)
        client.on_down = partial(self._down, peer)
        client.on_publish = lambda publish: events.link_published(peer, publish, client)
        client.start()

    def _up(self, peer: str) -> None:
        self._came_up.set()
        self._refused_bytes.pop(peer, None)  # it may take more now
        assert self._events is not None
        LogEvent.LINK_UP.say(log, member=peer)
        self._events.link_up(peer)

    def _down(self, peer: str) -> None:
        assert self._events is not None
        LogEvent.LINK_DOWN.say(log, member=peer)
        self._events.link_down(peer)

    def _end_dial(self, peer: str) -> None:
        client = self._clients.pop(peer)
        self._refused_bytes.pop(peer, None)
        client.on_up = client.on_down = lambda: None
        client.on_publish, client.on_publishes = lambda publish: None, None
        task = asyncio.get_running_loop().create_task(client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _redial(self) -> None:
        for peer in list(self._clients):
            client = self._clients.get(peer)
            if client is None or not client.connected:
                continue  # it comes back by itself, with what we show then
            await client.close()
            if self._clients.get(peer) is not client:
                continue  # the overlay changed meanwhile
            self._came_up.clear()
            client.start()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REDIAL_S):
                    while peer not in self.connected_peers:
                        await self._came_up.wait()
                        self._came_up.clear()
        LogEvent.LINKS_RENEWED.say(log)
