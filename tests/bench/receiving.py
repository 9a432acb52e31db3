"""How fast one core receives for Spark: pieces from three replicas in, synced groups of the spool out, one process.

`premade` makes wires with the real envelope: gateways that seal for several devices each, 64 publications a data key,
16 headers a signature, 65-byte payloads; key and shares ride where gateways put them, on the first publication of a
topic under a key and on each 16th. `measure` puts them through collector and spool, interleaved by bursts as sockets
give them. Sockets, TLS and MQTT packets are not in it: `tests/bench/ingest.py` measures whole systems.

    python -m tests.bench.receiving [PUBLICATIONS]
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from keys.envelope import (
    BATCH_LIMIT,
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    Inner,
    MessageHeader,
    Mode,
    SignedHeader,
    content_digest,
    leaf,
    sign_batch,
    to_property,
)
from keys.sharetree import encode_shares
from spark_ingest.collector import Collector
from spark_ingest.receiver import GROUP_BYTES, GROUP_ROWS
from spark_ingest.recovery import state_of
from spark_ingest.spool_writer import SpoolWriter
from tests.spark_ingest.region import NOW, Overlay, Publisher, Wire

REPLICAS = 3
GATEWAYS = 8
DEVICES = 4
"""Of each gateway, one topic each."""
KEY_MESSAGES = 64
PAYLOAD_BYTES = 65
BURST = 64
"""Packets that one read of a socket gives."""
IN_FLIGHT = 2_048
"""Pieces of one replica that are not acknowledged: half of the Receive Maximum that receivers ask for."""


class Steady(Overlay):
    """An overlay that stays as it is."""

    edition = "the first"


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


def premade(publications: int, overlay: Overlay) -> list[tuple[Wire, ...]]:
    """About so many publications in the order of sending, each as the wires of the three replicas."""
    gateways = [_sealed(Publisher(overlay, f"gw{number}"), publications // GATEWAYS) for number in range(GATEWAYS)]
    turns: list[tuple[Wire, ...]] = []
    while batches := [batch for gateway in gateways if (batch := next(gateway, None))]:
        turns += [wires for batch in batches for wires in batch]
    return turns


def _sealed(gateway: Publisher, count: int) -> Iterator[list[tuple[Wire, ...]]]:
    """A gateway's publications, by signature."""
    gateway.messages = KEY_MESSAGES
    sent = 0
    told: dict[str, int] = {}
    while sent < count:
        headers, contents, topics = [], [], []
        if sent % KEY_MESSAGES == 0:
            gateway.new_key("plant/#")
            told.clear()
        key, data_key, shares = gateway.keys["plant/#"]
        for _ in range(BATCH_LIMIT):
            topic = f"plant/{gateway.certificate.name}/device{sent % DEVICES}/temperature"
            gateway.sequence += 1
            sent += 1
            payload = (b'{"value": %d.5, "unit": "C"}' % sent).ljust(PAYLOAD_BYTES)
            draft = MessageHeader(
                publisher=gateway.identity.party_id, key_id=key.key_id, sequence=gateway.sequence,
                previous=max(0, gateway.sequence - DEVICES), time_ms=int(NOW * 1000), deadline_ms=0, qos=1,
                retain=False, tombstone=False, mode=Mode.COPIES, digests=(bytes(32),),
            )  # fmt: skip
            inner = Inner(topic, int(NOW * 1000), payload).encode()
            content = data_key.seal(draft.prefix(), gateway.sequence, topic, inner)
            headers.append(_with_digest(draft, content_digest(content)))
            contents.append(content)
            topics.append(topic)
        leaves = [leaf(header.encode(), topic) for header, topic in zip(headers, topics, strict=True)]
        proofs = sign_batch(gateway.identity, leaves)
        batch = []
        for header, proof, content, topic in zip(headers, proofs, contents, topics, strict=True):
            vmq = (PROPERTY_HEADER, to_property(SignedHeader(header, proof).encode()))
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


def measure(overlay: Overlay, wires: Sequence[tuple[Wire, ...]], spool: Path) -> Figures:
    """All of them through a collector and a spool; raises AssertionError unless every one is a row and acknowledged."""
    acknowledged = [0]

    def ack() -> None:
        acknowledged[0] += 1

    writer = SpoolWriter(spool, "main", cap_bytes=1 << 40)
    collector = Collector(overlay)
    collector.learn(overlay.names())
    writer.roll(state_of(collector.seen, collector.keyring))
    rows = 0
    gc.collect()
    gc.freeze()  # what was made beforehand, which no receiver would hold
    began = time.process_time()
    for at in range(0, len(wires), BURST):
        burst = wires[at : at + BURST]
        for place in range(REPLICAS):
            replica = f"r{place + 1}"
            for publication in burst:
                collector.receive(replica, publication[place], ack, NOW)
        while collector.ready >= GROUP_ROWS or (at + BURST >= len(wires) and collector.ready):
            if writer.segment_full:
                writer.roll(state_of(collector.seen, collector.keyring))
            group = collector.take(GROUP_ROWS, GROUP_BYTES)
            assert group is not None
            writer.append(group.records, group.keys)
            rows += len(group.records)
            for each in collector.written(group):
                each()
        collector.tick(NOW)
    seconds = time.process_time() - began
    writer.close()
    assert rows == len(wires), f"{rows} rows of {len(wires)} publications"
    assert acknowledged[0] == REPLICAS * len(wires), f"{acknowledged[0]} acknowledgements"
    size = sum(path.stat().st_size for path in (spool / "main").iterdir())
    return Figures(len(wires), REPLICAS * len(wires), seconds, size)


def main() -> None:
    """Print one line."""
    overlay = Steady()
    wires = premade(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000, overlay)
    with tempfile.TemporaryDirectory() as directory:
        measure(overlay, wires[: 2 * GROUP_ROWS], Path(directory, "warm"))
        figures = measure(overlay, wires, Path(directory, "spool"))
    print(
        f"{figures.rate:,.0f} publications a second of one core, {figures.pieces / figures.seconds:,.0f} pieces, "
        f"{figures.spool_bytes / figures.publications:.0f} bytes a row ({figures.publications} publications)"
    )


if __name__ == "__main__":
    main()
