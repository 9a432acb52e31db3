"""Room to write: who waits is let go when there is some, and a peer that takes nothing is found once."""

from __future__ import annotations

import asyncio

from gateway.sockets.write_room import Room
from tests.gateway.harness import on_loop
from tests.waits import until


class Peer:
    def __init__(self, stalled_s: float = 0.001) -> None:
        self.unsent, self.looked, self.stalls = 100, 0, 0
        self.takes = 0
        self.room = Room(stalled_s, self._look, self._stalled)

    def _look(self) -> int:
        self.looked += 1
        self.unsent -= self.takes
        return self.unsent

    def _stalled(self) -> None:
        self.stalls += 1


@on_loop
async def test_nobody_waits_while_there_is_room() -> None:
    await asyncio.wait_for(Peer().room.wait_for_room(), 1)


@on_loop
async def test_all_who_wait_go_on_when_it_drains_though_one_gave_up() -> None:
    peer = Peer(60)
    peer.room.full()
    waiting = [asyncio.ensure_future(peer.room.wait_for_room()) for _ in range(3)]
    await asyncio.sleep(0)
    assert peer.room.is_full
    waiting[0].cancel()
    await asyncio.sleep(0)
    assert not waiting[1].done()
    peer.room.free()
    await asyncio.gather(*waiting[1:])
    assert not peer.room.is_full
    assert peer.stalls == 0


@on_loop
async def test_a_peer_that_takes_nothing_is_found_once_and_lets_who_waits_go() -> None:
    peer = Peer()
    peer.room.full()
    waiting = asyncio.ensure_future(peer.room.wait_for_room())
    await until(lambda: peer.stalls > 0)
    await waiting
    looked = peer.looked
    await asyncio.sleep(0.005)
    assert (peer.stalls, peer.looked) == (1, looked)


@on_loop
async def test_a_peer_that_takes_a_little_is_slow_and_no_more() -> None:
    peer = Peer()
    peer.takes = 1
    peer.room.full()
    await until(lambda: peer.looked > 5)
    assert peer.stalls == 0
    peer.room.end_waits()


@on_loop
async def test_the_end_of_a_connection_lets_everybody_go_and_stops_looking() -> None:
    peer = Peer(60)
    peer.room.full()
    waiting = asyncio.ensure_future(peer.room.wait_for_room())
    await asyncio.sleep(0)
    peer.room.end_waits()
    await waiting
    peer.room.end_waits()
    assert peer.room._timer is None
