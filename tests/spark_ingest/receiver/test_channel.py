"""Messages between a receiver and its workers: whole, in order, however the bytes come."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any

import pytest

from spark_ingest.receiver.channel import Channel, LinkStanding, WorkDone, WorkKnowledge, WorkTold, first_of, framed
from spark_ingest.receiver.progress import Progress
from spark_ingest.receiving import Dealt
from tests.spark_ingest.region import Overlay, Publisher

MESSAGES = [
    Dealt(1, "r1", [(7, "plant/a", b"x" * 3_000, (("vmq", "AAAA"),))]),
    WorkDone([1, 2, 3]),
    LinkStanding(True, (0.5,)),
    WorkTold(Progress(rows=3), Counter({("rows", ""): 1}), None),
]


@pytest.mark.parametrize("step", [1, 5, 1 << 20])
def test_messages_are_whole_however_their_bytes_come(step: int) -> None:
    found: list[Any] = []
    channel = Channel(found.append, lambda: None)
    data = b"".join(map(framed, MESSAGES))
    for at in range(0, len(data), step):
        channel.data_received(data[at : at + step])
    assert found == MESSAGES


def test_an_overlay_goes_through_with_its_members_and_keys() -> None:
    overlay = Overlay()
    publisher = Publisher(overlay)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        held = overlay.held(overlay.names())
        ours.sendall(framed(WorkKnowledge(overlay.signed, overlay.home, held)) + b"rest")
        found = first_of(theirs)
        assert found.overlay.by_party[publisher.identity.party_id] == publisher.certificate
        assert found.held == held
        assert "key" not in repr(found).replace("keys", ""), "no secret where it could be logged"
        assert theirs.recv(9) == b"rest"
        ours.close()
        with pytest.raises(EOFError):
            first_of(theirs)


def test_who_is_gone_is_told_and_gets_nothing_more() -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        found, lost = asyncio.Queue[Any](), asyncio.Event()
        ends = Channel(found.put_nowait, lost.set), Channel(found.put_nowait, lambda: None)
        for end, sock in zip(ends, (ours, theirs), strict=True):
            sock.setblocking(False)
            await asyncio.get_running_loop().create_connection(lambda end=end: end, sock=sock)
        ends[1].send_message(WorkDone([1]))
        ends[1].close()
        assert await found.get() == WorkDone([1])
        await lost.wait()
        ends[0].send_message(WorkDone([2]))
        ends[0].close()

    asyncio.run(run())
