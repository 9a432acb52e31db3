"""Every mode of a scope carries every shape of a publication: one overlay of real processes, many cells.

A cell is a mode, a version of MQTT, a QoS, a size, a property, whether it is retained, and whether it is a will. In the
normal suite every three of these values occur together; the slow test publishes the whole product. A subscriber at
another gateway gets each as it was published, once; one that comes later gets what is retained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import combinations, product
from typing import Any

import pytest

from gateway.client import MqttClient
from gateway.mqtt5.codec import encode
from gateway.mqtt5.packets import (
    NO_PROPERTIES,
    Connect,
    Properties,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Version,
    Will,
)
from tests.gateway.harness import Wire, cut_all
from tests.gateway.overlay_processes import OverlayProcesses
from tests.support.files import edited
from tests.waits import until

MODES: dict[str, dict[str, Any]] = {
    "sealed": {"mode": "copies"},
    "pieces": {"mode": "one"},
    "shares": {"shares_only": True},
    "tokens": {"tokens": True},
    "plain": {"mode": "plain"},
    "planes": {"mode": "plain", "route": "planes"},
    "history": {"mode": "copies", "history": {"days": 1, "gigabytes": 1}},
}
EXPIRY_S = 600
PROPERTIES: dict[str, dict[str, Any]] = {
    "none": {},
    "user": {"user": (("room", "hall"), ("room", "attic"))},
    "content type": {"content_type": "text/plain"},
    "response topic": {"response_topic": "{mode}/answers"},
    "correlation": {"correlation_data": b"\x00\x01"},
    "format": {"payload_format": 1},
    "expiry": {"message_expiry_s": EXPIRY_S},
    "alias": {"topic_alias": 1},
}
NONE, KIB, LIMIT = "0", "1 KiB", "limit"
PACKET_BYTES, CONNECT_BYTES = 100_000, 60_000
"""What the publisher's gateway takes: the third size fills a PUBLISH, or the CONNECT of a will."""
CHUNK = 60
"""Cells that are on their way at a time: QoS 0 has no window."""


@dataclass(frozen=True)
class Cell:
    mode: str
    version: Version
    qos: int
    size: str
    shape: str
    retain: bool
    will: bool

    @property
    def is_possible(self) -> bool:
        if self.shape == "alias" and self.will:
            return False
        return self.version == Version.V5 or self.shape == "none"

    @property
    def topic(self) -> str:
        values = (self.version.name, self.qos, self.size, self.shape, self.retain, self.will)
        return f"{self.mode}/" + "-".join(map(str, values)).replace(" ", "")

    @property
    def properties(self) -> Properties:
        found = {
            key: value.format(mode=self.mode) if isinstance(value, str) else value
            for key, value in PROPERTIES[self.shape].items()
        }
        return Properties(**found) if found else NO_PROPERTIES

    def publication(self, payload: bytes) -> Publish:
        packet_id = 7 if self.qos else 0
        return Publish(self.topic, payload, self.qos, self.retain, packet_id=packet_id, properties=self.properties)

    def connect(self, payload: bytes) -> Connect:
        will = Will(self.topic, payload, self.qos, self.retain, self.properties) if self.will else None
        return Connect(f"will-{self.topic}", self.version, will=will)

    @property
    def payload(self) -> bytes:
        if self.size != LIMIT:
            return b"x" * (1_024 if self.size == KIB else 0)
        most, probe = (CONNECT_BYTES, self.connect) if self.will else (PACKET_BYTES, self.publication)
        least = len(encode(probe(b"x" * 20_000), self.version)) - 20_000  # the length of the rest takes three bytes
        return b"x" * (most - least)


def cells() -> list[Cell]:
    values = (MODES, (Version.V311, Version.V5), range(3), (NONE, KIB, LIMIT), PROPERTIES, (False, True), (False, True))
    return [cell for given in product(*values) if (cell := Cell(*given)).is_possible]  # type: ignore[arg-type]


def three_at_a_time(whole: Sequence[Cell]) -> list[Cell]:
    """Cells in which every three values occur together that do so in the whole product."""
    seen: set[tuple[tuple[int, Any], ...]] = set()
    found = []
    for cell in sorted(whole, key=hash_of):
        triples = set(combinations(enumerate(astuple(cell)), 3))
        if not triples <= seen:
            seen |= triples
            found.append(cell)
    return found


def hash_of(cell: Cell) -> int:
    """Spreads cells, so that few of them have all triples."""
    return sum((at + 3) * 2_654_435_761 * ord(char) ** 2 for at, char in enumerate(cell.topic)) % 1_000_003


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OverlayProcesses]:
    made = OverlayProcesses(tmp_path_factory.mktemp("matrix"))
    made.make({"north": 3}, [], {"site": "north", "control": "north"})
    scopes = [{"filter": f"{mode}/#", **options} for mode, options in MODES.items()]
    made.describe(lambda description: description.update(scopes=scopes))
    made.hand_out(*made.ports)
    for name in ("site", "control"):
        with edited(made.directory / f"{name}.yaml") as content:
            clear = [f"{mode}/#" for mode, options in MODES.items() if options.get("mode") == "plain"]
            content["overlay"]["share_plain"] = clear
            content["overlay"]["protect"] = [
                {"filter": f"{mode}/#", "tokens": mode == "tokens"} for mode in MODES if f"{mode}/#" not in clear
            ]
            del content["availability"]
            if name == "site":
                content["limits"] = {"packet_bytes": PACKET_BYTES, "connect_bytes": CONNECT_BYTES}
    made.start(*made.ports)
    yield made
    made.stop()


class Port:
    """A broker as `Wire` knows it."""

    def __init__(self, port: int) -> None:
        self.port = lambda listener: port


class Reader:
    """A subscriber at the other gateway. `got`: by topic, everything that came."""

    def __init__(self, overlay: OverlayProcesses, name: str) -> None:
        self.got: dict[str, list[Publish]] = {}
        self._answers: list[int] = []
        self.client = MqttClient(*overlay.endpoint("control"), client_id=name, packet_bytes=2 << 20)
        self.client.on_publish = lambda publish: self.got.setdefault(publish.topic, []).append(publish)

    async def __aenter__(self) -> Reader:
        self.client.start()
        for mode in MODES:
            self.client.subscribe(f"{mode}/#", 2, on_answer=self._answers.append)
        await until(lambda: len(self._answers) == len(MODES))
        assert self._answers == [2] * len(MODES)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()


async def publish(site: Any, wire: Wire, cell: Cell) -> None:
    """Publishes a cell, up to the last acknowledgement, or lets its will be published."""
    if cell.will:
        dying = await Wire.open(site, cell.version)
        dying.send(cell.connect(cell.payload))
        connack = await dying.next()
        assert connack is not None
        assert connack.code == 0, cell  # type: ignore[attr-defined]
        dying.cut()
        return
    wire.send(cell.publication(cell.payload))
    if cell.qos == 1:
        assert await wire.expect(PubAck) == PubAck(7), cell
    elif cell.qos == 2:
        assert await wire.expect(PubRec) == PubRec(7), cell
        wire.send(PubRel(7))
        assert await wire.expect(PubComp) == PubComp(7), cell


def check(cell: Cell, got: Sequence[Publish], retained: bool) -> None:
    """What came of a cell is what was published, once."""
    assert len(got) == 1, cell
    (one,) = got
    assert (one.payload, one.qos, one.retain) == (cell.payload, cell.qos, retained), cell
    there, wanted = dict(one.properties.__dict__), dict(cell.properties.__dict__)
    wanted.pop("topic_alias", None)
    if "message_expiry_s" in wanted:
        assert 0 < EXPIRY_S - wanted.pop("message_expiry_s") + there.pop("message_expiry_s") <= EXPIRY_S
    assert there == wanted, cell


async def played(overlay: OverlayProcesses, given: Sequence[Cell]) -> None:
    site: Any = Port(overlay.ports["site"])
    try:
        async with Reader(overlay, "reader") as reader:
            wires = {version: await Wire.connect(site, f"v{version}", version) for version in set(Version)}
            for at in range(0, len(given), CHUNK):
                part = given[at : at + CHUNK]
                for cell in part:
                    await publish(site, wires[cell.version], cell)
                missing = lambda part=part: [str(c) for c in part if c.topic not in reader.got]  # noqa: E731
                await until(lambda missing=missing: not missing(), 60, lambda missing=missing: str(missing()))
            for cell in given:
                check(cell, reader.got[cell.topic], cell.retain)
        kept = [cell for cell in given if cell.retain and cell.size != NONE]
        async with Reader(overlay, "later") as later:
            await until(lambda: all(cell.topic in later.got for cell in kept), 60)
            assert later.got.keys() == {cell.topic for cell in kept}
            for cell in kept:
                check(cell, later.got[cell.topic], True)
    finally:
        cut_all()


def test_every_three_values_of_mode_and_shape_cross_the_overlay_together(overlay: OverlayProcesses) -> None:
    given = three_at_a_time(cells())
    print(f"{len(given)} of {len(cells())} cells")
    assert 150 < len(given) < 400
    asyncio.run(played(overlay, given))


@pytest.mark.slow
def test_the_whole_product_of_modes_and_shapes_crosses_the_overlay(overlay: OverlayProcesses) -> None:
    given = cells()
    print(f"{len(given)} cells")
    assert len(given) == 6 * (3 * 3 * 2) * (2 + 8 + 7)
    asyncio.run(played(overlay, given))
