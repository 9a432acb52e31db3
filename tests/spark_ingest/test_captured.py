"""Sessions of real software through a gateway, the overlay's machines and a spool, to rows: nothing is lost or changed.

Bytes go to the gateway as they were captured. Rows come from the reader of Spark's executors, and once from Spark.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.mqtt5.packets import Publish
from spark_ingest.spool.writer import SpoolWriter
from tests.captured import NAMES, PUBLISH, Sent, Session, packets
from tests.gateway.harness import LOOPBACK, Wire, serving
from tests.spark_ingest.opening.test_rows import Job
from tests.spark_ingest.site import Site

WAIT_S = 10.0


ASKING, ANSWERING = (1, 6, 8, 10), (2, 4, 5, 7, 9, 11)  # kinds of packets; so does PUBLISH with a QoS


class Client:
    """One connection of a session, which waits for the answers to what it sent, as the software did."""

    def __init__(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._answers, self._writer = answers, writer
        self._sent, self._came = bytearray(), bytearray()
        self._open = 0

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        self._sent += data
        for kind, flags, _ in packets(self._sent):
            self._open += kind in ASKING or (kind == PUBLISH and bool(flags & 6))
        async with asyncio.timeout(WAIT_S):
            while self._open > 0:
                self._came += await self._answers.read(1 << 16)
                self._open -= sum(kind in ANSWERING for kind, _, _ in packets(self._came))

    def end(self) -> None:
        self._writer.close()


async def passed_on(session: Session) -> list[Sent]:
    """Replays a session at a gateway; returns what a subscriber of everything is sent."""
    async with serving({"listeners": LOOPBACK, "allow_anonymous": True}) as broker:
        reader = await Wire.connect(broker, "reader")
        await reader.subscribe("#", 0)  # so that nothing waits for acknowledgements
        clients: dict[int, Client] = {}
        for _, number, data in session.lines:
            if number not in clients:
                clients[number] = Client(*await asyncio.open_connection("127.0.0.1", broker.port()))
            if data:
                await clients[number].send(data)
            else:
                clients[number].end()
        found = [await reader.expect(Publish) for _ in session.published()]
    return [Sent(each.topic, bytes(each.payload), each.qos, each.retain) for each in found]


def by_topic(published: list[Sent]) -> dict[str, list[bytes]]:
    """The payloads of each topic, in order."""
    topics: dict[str, list[bytes]] = {}
    for each in published:
        topics.setdefault(each.topic, []).append(each.payload)
    return topics


@pytest.mark.parametrize("name", NAMES)
def test_a_captured_session_becomes_its_rows(name: str, tmp_path: Path) -> None:
    session = Session.load(name)
    came = asyncio.run(passed_on(session))
    assert by_topic(came) == by_topic(session.published())
    job = Job(tmp_path)
    for each in came:
        job.publish(job.publisher.seal(f"plant/{each.topic}", each.payload, qos=each.qos))
    rows = [(row["topic"], bytes(row["payload"]), row["qos"]) for row in job.rows()]
    assert rows == [(f"plant/{each.topic}", each.payload, each.qos) for each in came]
    assert {row["reason"] for row in job.rows("quarantine")} == set()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(300)
def test_all_captured_sessions_are_rows_in_spark(site: Site) -> None:
    sent = [(name, each) for name in NAMES for each in Session.load(name).published()]
    for name, each in sent:
        site.link.publish(site.seal(f"plant/{name}/{each.topic}", each.payload))
    writer = SpoolWriter(site.spool, "main", cap_bytes=1 << 30)
    writer.roll(b"")
    site.link.write(writer)
    writer.close()
    found: list[Any] = []
    site.run(site.stream(), lambda batch, _: found.extend(batch.collect())).awaitTermination()
    rows = sorted(found, key=lambda row: row.sequence)
    assert [(row.topic, bytes(row.payload)) for row in rows] == [
        (f"plant/{n}/{each.topic}", each.payload) for n, each in sent
    ]
