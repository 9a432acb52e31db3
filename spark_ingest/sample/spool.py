"""`veilmq ingest sample`: a small spool to try queries on, without brokers, keys of one's own or a receiver.

    DIR/spool              sealed telemetry, availability and quarantine rows, as a receiver writes them
    DIR/scope_keys.json    the keys that open them, outside the spool

The rows go through the real collector and spool writer; only the region they come from is in memory
(`region`). Equal arguments give equal files. The keys follow from the seed: a sample is no secret.

The plant: presses and pumps at two gateways report a temperature or a pressure every second; in the middle the second
gateway is cut off for a while, so that its rows come late, and its first device dies and comes back.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_ingest.errors import BadOption
from spark_ingest.options import GRANTS_NAME
from spark_ingest.receiver import state_of
from spark_ingest.receiving import SpoolCollector
from spark_ingest.sample.region import REGION, REPLICAS, SampledPublication, SampleGateway, SampleRegion, Sealed
from spark_ingest.secrets import GrantsWriter, names_of
from spark_ingest.spool import SpoolWriter

ROWS, DEVICES, SEED = 1000, 10, 1
ROWS_MAX = 1_000_000
DEVICES_MAX = 10_000
START_S = 1_767_247_200.0
"""2026-01-01 06:00 UTC: fixed, so that a sample made again is the same."""
CUT_OFF_S = 20.0
GATEWAYS = ("gw-east", "gw-west")
STRANGER = "gw-north"
SCOPES = ("plant/#", "entities/#")
GROUP_ROWS = 200
INCOMPLETE_S = 10.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A written sample: its place and the rows of each stream."""

    spool: Path
    grants: Path
    telemetry: int
    availability: int
    quarantine: int

    @property
    def program(self) -> str:
        """Five lines of Python showing its telemetry."""
        return (
            "from spark_ingest import register, spark_session\n"
            'spark = spark_session("sample")\n'
            "register(spark)\n"
            'rows = spark.readStream.format("veilmq")'
            f".options(spool={str(self.spool)!r}, grants={str(self.grants)!r}).load()\n"
            'rows.selectExpr("published_at", "topic", "string(payload)").writeStream.format("console")'
            '.option("truncate", False).trigger(availableNow=True).start().awaitTermination()\n'
        )


def write_sample(directory: Path, rows: int = ROWS, devices: int = DEVICES, seed: int = SEED) -> Sample:
    """Make `directory` (absent or empty) with a spool and its file of scope keys. Raises BadOption, OSError."""
    for name, value, most in (("rows", rows, ROWS_MAX), ("devices", devices, DEVICES_MAX)):
        if not 1 <= value <= most:
            raise BadOption(f"{name}={value} is out of range; from 1 to {most}")
    directory = directory.absolute()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise BadOption(f"{directory} is there already and not empty; name another directory for the sample")
    region = SampleRegion(str(seed), SCOPES, (*GATEWAYS, STRANGER))
    gateways = [SampleGateway(region, name) for name in GATEWAYS]
    availability = _availability(rows, devices)
    told = [*_telemetry(rows, devices, random.Random(seed)), *availability]  # noqa: S311  values, no keys
    receiver = _Receiver(directory, region)
    try:
        arrivals: list[tuple[float, Sealed]] = []
        for place, gateway in enumerate(gateways):
            mine = [each for each in told if _gateway_of(each.topic) == place]
            mine.sort(key=lambda each: (each.sealed_at, each.at))
            arrivals += [(sealed.published.sealed_at + 0.03, sealed) for sealed in gateway.seal(mine)]
        for at, sealed in sorted(arrivals, key=lambda arrival: arrival[0]):
            receiver.receive(sealed, at)
        end = START_S + math.ceil(rows / devices) + CUT_OFF_S
        # Two rows that nobody can open: of the first one replica alone brings its share, the second is sealed under a
        # key that the job has no right to.
        lost = SampledPublication("plant/press-0/temperature", b"{}", end, end)
        stranger = SampleGateway(region, STRANGER)
        receiver.receive(next(stranger.seal([lost])), end, REPLICAS[:1])
        receiver.receive(next(gateways[0].seal([lost], bump=1)), end)
        receiver.finish(end)
    finally:
        receiver.close()
    return Sample(receiver.spool, receiver.grants, rows, len(availability), 2)


class _Receiver:
    """The steps of `receiver.Receiver`, in their order, without links."""

    def __init__(self, directory: Path, region: SampleRegion) -> None:
        self.spool = directory / "spool"
        self.grants = directory / GRANTS_NAME
        for each in (directory, self.spool):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._writer = SpoolWriter(self.spool, "main", cap_bytes=1 << 40, part="sample")
        self._keys = GrantsWriter(self.grants, self._writer.segment, ())
        self._region = region
        self._collector = SpoolCollector(region.overlay, REGION.region, incomplete_s=INCOMPLETE_S)
        self._renew()
        self._writer.roll(state_of(self._collector.seen, self._collector.keys()))
        self._collector.learn(self._keys.check_values)

    def receive(self, sealed: Sealed, now: float, replicas: Sequence[str] = REPLICAS) -> None:
        """Each of some replicas brings it."""
        for replica in replicas:
            self._collector.receive(replica, sealed.wires[replica], _nothing_owed, now)
        if self._collector.ready >= GROUP_ROWS:
            self._write_spool()

    def finish(self, now: float) -> None:
        """Gives up publications that are not whole."""
        self._collector.do_due_work(now + INCOMPLETE_S)
        self._write_spool()
        self._renew()

    def close(self) -> None:
        self._writer.close()

    def _write_spool(self) -> None:
        while group := self._collector.take_group(GROUP_ROWS):
            if self._writer.segment_full:
                self._writer.roll(state_of(self._collector.seen, self._collector.keys()))
            self._writer.append(group.records, group.keys)
            self._keys.used(self._writer.segment, names_of(key.header for key in group.keys.values()))
            self._collector.note_written(group)

    def _renew(self) -> None:
        content = self._keys.renew_content(
            self._region.held_grants(), self._writer.oldest_segment, self._writer.segment
        )
        if content is not None:
            self._keys.write(content)


def _nothing_owed() -> None:
    """There is no link to acknowledge on."""


def _device(number: int) -> str:
    return f"{('press', 'pump')[number % 2]}-{number}"


def _gateway_of(topic: str) -> int:
    """By the number of the device, which stands in its name: the second half of a pair is at the second gateway."""
    name = next(level for level in topic.split("/") if level.startswith(("press-", "pump-")))
    return int(name.rpartition("-")[2]) % len(GATEWAYS)


def _cut_off(rows: int, devices: int) -> tuple[float, float]:
    """Returns the time in which the second gateway has no uplink."""
    begin = START_S + math.ceil(rows / devices) / 2
    return begin, begin + CUT_OFF_S


def _telemetry(rows: int, devices: int, values: random.Random) -> Iterator[SampledPublication]:
    begin, end = _cut_off(rows, devices)
    for row in range(rows):
        second, number = divmod(row, devices)
        at = START_S + second + number / devices
        device = _device(number)
        sensor, mean = ("temperature", 60.0) if number % 2 == 0 else ("pressure", 4.0)
        value = mean * (1 + 0.1 * math.sin(second / 30 + number) + values.gauss(0, 0.01))
        body = {"sensor": f"{device}/{sensor}", "value": round(value, 3), "t": round(at, 3)}
        late = number % len(GATEWAYS) == 1 and begin <= at < end
        yield SampledPublication(
            f"plant/{device}/{sensor}",
            json.dumps(body).encode(),
            at,
            end if late else at + 0.01,
            properties=(("unit", "C" if sensor == "temperature" else "bar"),),
        )


def _availability(rows: int, devices: int) -> list[SampledPublication]:
    """Every device comes online; the first of the second gateway is away for a while."""
    begin, end = _cut_off(rows, devices)
    states = [(START_S - 1, number, "online", "connected") for number in range(devices)]
    if devices > 1:
        states += [(begin + 1, 1, "offline", "keep alive exceeded"), (begin + 8, 1, "online", "connected")]
    told = []
    for at, number, state, reason in states:
        body = {"state": state, "since": int(at * 1000), "last_seen": int(at * 1000), "reason": reason}
        topic = f"entities/{GATEWAYS[number % len(GATEWAYS)]}/{_device(number)}/availability"
        sealed_at = end if number % len(GATEWAYS) == 1 and begin <= at < end else at
        told.append(SampledPublication(topic, json.dumps(body).encode(), at, sealed_at, retain=True))
    return told
