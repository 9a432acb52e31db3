"""What a worker's receiver takes for replicas: pieces of its session, keys and the overlay as told, tickets back."""

from __future__ import annotations

import asyncio
from typing import Any

from bridge.contract import HISTORY_TOPIC
from spark_ingest.receiver.channel import (
    LinkStanding,
    WorkAsked,
    WorkBegun,
    WorkDone,
    WorkKnowledge,
    WorkPage,
    WorkSetup,
    WorkWanted,
)
from spark_ingest.receiver.receiver import ReceiverSettings
from spark_ingest.receiver.worker import DealtReplicas
from spark_ingest.receiving import Dealt
from tests.spark_ingest.region import Overlay


def made(tmp_path: Any) -> tuple[DealtReplicas, list[Any], Overlay]:
    overlay, sent = Overlay(), list[Any]()
    known = WorkKnowledge(overlay.signed, overlay.home, overlay.held(set()))
    setup = WorkSetup(ReceiverSettings(tmp_path, tmp_path / "keys"), known, LinkStanding(False, ()))
    return DealtReplicas(setup, sent.append), sent, overlay


async def turn() -> None:
    """What was handed to the loop until now has run."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_soon_threadsafe(passed.set)
    await passed.wait()


def test_pieces_of_the_session_that_is_there_come_and_their_tickets_go_back(tmp_path: Any) -> None:
    replicas, sent, _ = made(tmp_path)
    came: list[tuple[str, str, bytes, Any]] = []

    def on_arrivals(replica: str, publishes: Any, sender: Any) -> None:
        came.extend((replica, each.topic, each.payload, each.properties.user) for each in publishes)
        sender.acknowledge_all(publishes)

    async def session(number: int) -> None:
        running = asyncio.ensure_future(replicas.run(on_arrivals, lambda: None))
        await asyncio.sleep(0)
        for told in (number - 1, number):
            replicas.take_message(Dealt(told, "r1", [(40 + told, "plant/a", b"x", (("vmq", "AAAA"),))]))
        await turn()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        replicas.take_message(Dealt(number, "r1", [(99, "plant/a", b"late", ())]))
        await turn()

    asyncio.run(session(1))
    replicas.take_message(Dealt(1, "r1", [(99, "plant/a", b"late", ())]))  # its loop has ended
    asyncio.run(session(2))
    assert came == [("r1", "plant/a", b"x", (("vmq", "AAAA"),))] * 2
    assert sent == [WorkBegun(1), WorkDone([41]), WorkBegun(2), WorkDone([42])]


def test_what_the_receiver_tells_is_known_and_what_is_wanted_goes_to_it(tmp_path: Any) -> None:
    replicas, sent, overlay = made(tmp_path)
    assert (replicas.is_accepted, tuple(replicas.clocks()), replicas.link_states()) == (False, (), [])
    replicas.take_message(LinkStanding(True, (0.5,)))
    assert (replicas.is_accepted, replicas.clocks()) == (True, (0.5,))
    assert replicas.overlay is overlay.signed
    (name, *_) = overlay.names()
    replicas.want_keys([name])
    replicas.ask_replica("r1", "topic", b"request")
    assert sent == [WorkWanted((name,)), WorkAsked("r1", "topic", b"request")]

    async def session() -> None:
        news = asyncio.Event()
        running = asyncio.ensure_future(replicas.run(lambda *_: None, news.set))
        await asyncio.sleep(0)
        replicas.take_message(WorkKnowledge(overlay.signed, overlay.home, overlay.held(overlay.names())))
        await news.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(session())
    assert replicas.held_grants() == overlay.held(overlay.names())


def test_a_worker_reads_histories_in_its_turn_and_pages_come_without_tickets(tmp_path: Any) -> None:
    replicas, sent, overlay = made(tmp_path)
    scopes = tuple(overlay.signed.policy.scopes)
    replicas.take_message(WorkKnowledge(overlay.signed, overlay.home, overlay.held(set()), "job", scopes))
    assert (replicas.name, replicas.read_scopes()) == ("job", scopes)
    replicas.take_message(LinkStanding(True, (), ("r1", "r2")))
    assert not replicas.reads_back
    assert replicas.connected_replicas() == ("r1", "r2")
    replicas.take_message(LinkStanding(True, (), ("r1",), True))
    assert replicas.reads_back
    came: list[tuple[str, str, bytes]] = []

    def on_arrivals(replica: str, publishes: Any, sender: Any) -> None:
        came.extend((replica, each.topic, each.payload) for each in publishes)
        sender.acknowledge_all(publishes)

    async def session() -> None:
        running = asyncio.ensure_future(replicas.run(on_arrivals, lambda: None))
        await asyncio.sleep(0)
        replicas.take_message(WorkPage("r1", b"page"))
        await turn()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(session())
    assert came == [("r1", HISTORY_TOPIC, b"page")]
    assert sent == [WorkBegun(1)]
