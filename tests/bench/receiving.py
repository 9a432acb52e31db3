"""How fast one core receives for Spark: packets of three replicas in, synced groups of the spool and PUBACKs out.

`premade` makes wires with the real envelope: gateways that seal for several devices each, 64 publications a data key,
65-byte payloads; key and shares ride where gateways put them, on the first publication of a
topic under a key and on each 16th. `measure` gives them, as the bytes that sockets would give, to three clients of one
process, interleaved by bursts; behind these are decoder, session, collector and spool, and every publication is counted
when its acknowledgements are written. Sockets and TLS are not in it. CPU time: waiting for the disk does not count.

    python -m tests.bench.receiving [PUBLICATIONS]      # publications a second of CPU time
    python -m tests.bench.receiving --parts             # where the time goes
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from bridge.document import batch_topic
from gateway.base.garbage import THRESHOLDS
from gateway.client.mqtt_client import MqttClient
from gateway.mqtt5.codec import encode
from gateway.mqtt5.copies import Copies
from gateway.mqtt5.packets import ConnAck, Properties, Publish, Version
from keys.envelope import (
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    MessageHeader,
    Mode,
    content_digest,
    sign_header,
    to_property,
)
from keys.epochs import Calendar
from keys.identity import Identity, verify
from keys.records import encode as encode_records
from keys.sharetree import encode_shares
from spark_ingest.receiver.acknowledging import acknowledge
from spark_ingest.receiver.receiver import GROUP_BYTES, GROUP_ROWS
from spark_ingest.receiver.recovery import state_of
from spark_ingest.spool.writer import SpoolWriter
from tests.spark_ingest.region import NOW, Overlay, Publisher, Wire, check_values, collector_of

REPLICAS = 3
GATEWAYS = 8
DEVICES = 4
"""Of each gateway, one topic each."""
KEY_MESSAGES = 64
TOGETHER = 16
"""Publications of one gateway before the next one's."""
PAYLOAD_BYTES = 65
BURST = 64
"""Packets that one read of a socket gives."""
IN_FLIGHT = 4_096
"""Receive Maximum, as receivers ask for."""
PACKET_IDS = 65_535
PUBACK_BYTES = 4


class Steady(Overlay):
    """With epochs of a day."""

    def __init__(self) -> None:
        super().__init__(calendar=Calendar(int(NOW - 100_000) * 1000, 86_400, grace_s=3_600, skew_s=60))


class Figures(NamedTuple):
    """What came of it."""

    publications: int
    pieces: int
    seconds: float
    spool_bytes: int

    @property
    def rate(self) -> float:
        """Publications a second."""
        return self.publications / self.seconds


def premade(publications: int, overlay: Overlay, records: int = 1) -> list[tuple[Wire, ...]]:
    """About so many publications in the order of sending, each as the wires of the three replicas. With `records`, each
    is a batch of so many."""
    made = publications // GATEWAYS
    gateways = [_sealed(Publisher(overlay, f"gw{number}"), made, records) for number in range(GATEWAYS)]
    turns: list[tuple[Wire, ...]] = []
    while batches := [batch for gateway in gateways if (batch := next(gateway, None))]:
        turns += [wires for batch in batches for wires in batch]
    return turns


def _sealed(gateway: Publisher, count: int, records: int) -> Iterator[list[tuple[Wire, ...]]]:
    """A gateway's publications, in turns. Keys are for as many of them, whatever is in each."""
    gateway.messages = KEY_MESSAGES * records
    sent = 0
    told: dict[str, int] = {}
    while sent < count:
        headers, contents, topics = [], [], []
        if sent % KEY_MESSAGES == 0:
            gateway.new_key("plant/#", time=NOW)
            told.clear()
        key, data_key, shares = gateway.keys["plant/#"]
        for _ in range(TOGETHER):
            topic = f"plant/{gateway.certificate.name}/device{sent % DEVICES}/temperature"
            gateway.sequence += records
            sent += 1
            payload = (b'{"value": %d.5, "unit": "C"}' % sent).ljust(PAYLOAD_BYTES)
            draft = MessageHeader(
                publisher=gateway.identity.party_id, key_id=key.key_id, sequence=gateway.sequence,
                previous=gateway.sequence - records, time_ms=int(NOW * 1000), deadline_ms=0, qos=1,
                retain=False, tombstone=False, mode=Mode.COPIES, digests=(bytes(32),),
            )  # fmt: skip
            times = range(int(NOW * 1000), int(NOW * 1000) + records)
            names = [topic.encode()] * records
            inner = encode_records(bytes([1]) * records, times, names, [b""] * records, [payload] * records)
            topic = batch_topic(1)
            content = data_key.seal(draft.prefix(), gateway.sequence, topic, inner)
            headers.append(_with_digest(draft, content_digest(content)))
            contents.append(content)
            topics.append(topic)
        batch = []
        for header, content, topic in zip(headers, contents, topics, strict=True):
            vmq = (PROPERTY_HEADER, to_property(sign_header(gateway.identity, header, topic).encode()))
            with_key = told.get(topic, 0) % 16 == 0
            told[topic] = told.get(topic, 0) + 1
            batch.append(
                tuple(
                    Wire(topic, bytes(bytearray(content)), properties=_fresh(vmq, key, shares[place], with_key))
                    for place in range(REPLICAS)
                )
            )
        yield batch


def _with_digest(header: MessageHeader, digest: bytes) -> MessageHeader:
    fields = {name: getattr(header, name) for name in header.__slots__}
    return MessageHeader(**{**fields, "digests": (digest,)})


def _fresh(vmq: tuple[str, str], key: object, share: object, with_key: bool) -> tuple[tuple[str, str], ...]:
    """Properties as a decoder gives them: no text is the same object as another replica's."""
    properties = [(vmq[0], "".join(vmq[1]))]
    if with_key:
        properties.append((PROPERTY_KEY, to_property(key.encode())))  # type: ignore[attr-defined]
        properties.append((PROPERTY_SHARES, to_property(encode_shares([share]))))  # type: ignore[list-item]
    return tuple((name, bytes(value, "ascii").decode()) for name, value in properties)


class Replica:
    """One connection of the receiver, and what the replica behind it sends and is told."""

    def __init__(self, name: str, wires: Sequence[Wire], copies: Copies) -> None:
        self.name = name
        packets = [
            encode(
                Publish(
                    wire.topic,
                    wire.payload,
                    1,
                    packet_id=number % PACKET_IDS + 1,
                    properties=Properties(user=wire.properties),
                ),
                Version.V5,
            )
            for number, wire in enumerate(wires)
        ]
        self.reads = [b"".join(packets[at : at + BURST]) for at in range(0, len(packets), BURST)]
        self.client = MqttClient(
            "replica", 8883, client_id="job", clean_start=False, session_expiry_s=3600, receive_maximum=IN_FLIGHT,
            manual_ack=True, copies=copies,
        )  # fmt: skip
        self.said_bytes = 0

    def connect(self) -> None:
        self.client.connection_made(self)  # type: ignore[arg-type]
        self.client.data_received(encode(ConnAck(False), Version.V5))
        self.client._flush()
        self.said_bytes = 0

    @property
    def acknowledged(self) -> int:
        self.client._flush()
        return self.said_bytes // PUBACK_BYTES

    # ------------------------------------------------------------------------- as the client's transport

    def write(self, data: bytes) -> None:
        self.said_bytes += len(data)

    def get_extra_info(self, name: str) -> None:
        return None


class Receiving:
    """A receiver's collector and spool behind three connections."""

    def __init__(self, overlay: Overlay, wires: Sequence[tuple[Wire, ...]], spool: Path) -> None:
        copies = Copies()
        self.replicas = [
            Replica(f"r{place + 1}", [publication[place] for publication in wires], copies) for place in range(REPLICAS)
        ]
        self.writer = SpoolWriter(spool, "main", cap_bytes=1 << 40)
        self.collector = collector_of(overlay, acknowledge=acknowledge)
        self.collector.learn(check_values(overlay.names()))
        self.writer.roll(state_of(self.collector.seen, self.collector.keys()))
        self.rows = 0

    def connect(self) -> None:
        for replica in self.replicas:
            client = replica.client
            client.on_publishes = partial(self._arrived, replica.name, client)
            replica.connect()

    def _arrived(self, name: str, client: MqttClient, publishes: Sequence[Publish]) -> None:
        self.collector.receive_all(name, publishes, zip(repeat(client), publishes), NOW)

    def write(self, least: int) -> None:
        """Groups, while so many rows wait."""
        collector, writer = self.collector, self.writer
        while collector.ready >= least:
            if writer.segment_full:
                writer.roll(state_of(collector.seen, collector.keys()))
            group = collector.take_group(GROUP_ROWS, GROUP_BYTES)
            assert group is not None
            writer.append(group.records, group.keys)
            self.rows += len(group.records)
            acknowledge(collector.note_written(group))


def measure(overlay: Overlay, wires: Sequence[tuple[Wire, ...]], spool: Path) -> Figures:
    """All of them through clients, collector and spool; raises AssertionError unless every one is a row and every
    packet acknowledged."""
    receiving = Receiving(overlay, wires, spool)

    async def run() -> float:
        receiving.connect()
        gc.collect()
        gc.freeze()  # what was made beforehand, which no receiver would hold
        gc.set_threshold(*THRESHOLDS)
        began = time.process_time()
        for turn in range(len(receiving.replicas[0].reads)):
            for replica in receiving.replicas:
                replica.client.data_received(replica.reads[turn])
            receiving.write(GROUP_ROWS)
            receiving.collector.do_due_work(NOW)
        receiving.write(1)
        seconds = time.process_time() - began
        for replica in receiving.replicas:
            assert replica.acknowledged == len(wires), f"{replica.acknowledged} acknowledgements"
        return seconds

    seconds = asyncio.run(run())
    receiving.writer.close()
    assert receiving.rows == len(wires), f"{receiving.rows} rows of {len(wires)} publications"
    size = sum(path.stat().st_size for path in (spool / "main").iterdir())
    return Figures(len(wires), REPLICAS * len(wires), seconds, size)


def parts(overlay: Overlay, wires: Sequence[tuple[Wire, ...]], spool: Path) -> dict[str, float]:
    """CPU microseconds of a publication by part: of each read or group, what a quarter of them took less than, since
    others run on the machine too."""
    receiving = Receiving(overlay, wires, spool)
    collector, writer = receiving.collector, receiving.writer
    took: dict[str, list[float]] = {}

    def timed(part: str, count: int, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.process_time()
        result = call(*arguments)
        took.setdefault(part, []).append((time.process_time() - began) / count * 1e6)
        return result

    async def run() -> None:
        receiving.connect()
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        for turn in range(len(receiving.replicas[0].reads) - 1):
            for replica, copy in zip(receiving.replicas, ("first", "second", "third"), strict=True):
                client, read = replica.client, replica.reads[turn]
                packets = timed(f"decode, {copy} copy", BURST, client._decoder.feed, read)
                actions = timed(f"session, {copy} copy", BURST, client._session.take_packets, packets, 0.0)
                timed(f"collector, {copy} copy", BURST, receiving._arrived, replica.name, client, actions)
            if rows := collector.ready // GROUP_ROWS * GROUP_ROWS:
                group = timed("group", rows, collector.take_group, rows, GROUP_BYTES)
                timed("columns, write, sync", rows, writer.append, group.records, group.keys)
                acks = timed("written", rows, collector.note_written, group)
                timed("acknowledgements", rows, acknowledge, acks)
            collector.do_due_work(NOW)

    asyncio.run(run())
    writer.close()
    return {part: statistics.quantiles(each, n=4)[0] for part, each in took.items()}


def main() -> None:
    """Print one line, or one a part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("publications", nargs="?", type=int, default=50_000)
    parser.add_argument("--parts", action="store_true", help="where the time goes")
    asked = parser.parse_args()
    overlay = Steady()
    wires = premade(asked.publications, overlay)
    with tempfile.TemporaryDirectory() as directory:
        if asked.parts:
            found = parts(overlay, wires, Path(directory, "spool"))
            for part, took_us in found.items():
                print(f"{took_us:6.2f} us  {part}")
            print(f"{sum(found.values()):6.2f} us, of which {signatures_us():.2f} are signatures")
            return
        measure(overlay, wires[: 2 * GROUP_ROWS], Path(directory, "warm"))
        figures = measure(overlay, wires, Path(directory, "spool"))
    print(
        f"{figures.rate:,.0f} publications a second of one core, {figures.pieces / figures.seconds:,.0f} packets, "
        f"{figures.spool_bytes / figures.publications:.0f} bytes a row ({figures.publications} publications)"
    )


def signatures_us() -> float:
    """What of a publication's time no code of ours can save: its part of a header's and a key's signature."""
    identity = Identity.generate(bytes(31) + b"s")
    signature = identity.sign("bench", bytes(32))
    took = []
    for _ in range(500):
        began = time.process_time()
        verify(identity.public_bytes, "bench", bytes(32), signature)
        took.append((time.process_time() - began) * 1e6)
    return statistics.quantiles(took, n=4)[0] * (1 + 1 / KEY_MESSAGES)


if __name__ == "__main__":
    main()
