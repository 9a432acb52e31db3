"""Several receivers of one region: each publication is one's alone, also while their number changes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from spark_ingest.errors import BadOption
from spark_ingest.options import parse_options
from spark_ingest.receiver.receiver import ReceiverSettings
from spark_ingest.receiving.division import Part
from spark_ingest.spool.sharding import Shard
from tests.spark_ingest.region import NOW, Link, Overlay, Publisher, Sealed, check_values, collector_of, records

DEVICES = [f"plant/device{number}/temperature" for number in range(40)]
SINCE = NOW + 10


def receivers(overlay: Overlay, *parts: Part) -> list[Link]:
    return [Link(overlay, part=part) for part in parts]


def seals(publisher: Publisher, start: int = 1, time: float = NOW) -> list[Sealed]:
    """Of each device one, in blocks of numbers that are divided one by one."""
    return [publisher.seal(topic, time=time, sequence=(start + at) << 12) for at, topic in enumerate(DEVICES)]


def publish(links: list[Link], *sealed: Sealed) -> None:
    """Every receiver is sent everything, as replicas do."""
    for link in links:
        for each in sealed:
            link.publish(each, now=NOW + 20)


def sequences(link: Link) -> list[int]:
    return [record.sequence for record in records(link.write())]


def test_every_publication_is_one_receivers() -> None:
    overlay = Overlay()
    publisher = Publisher(overlay)
    links = receivers(overlay, *(Part(Shard(number, 3)) for number in (1, 2, 3)))
    sealed = [each for block in range(3) for each in seals(publisher, 1 + len(DEVICES) * block)]
    publish(links, *sealed)
    taken = [sequences(link) for link in links]
    assert sorted(itertools.chain(*taken)) == [each.signed.header.sequence for each in sealed]
    assert all(len(each) > 10 for each in taken)
    for link, mine in zip(links, taken, strict=True):
        assert len(link.acknowledged) == link.sent, "what is of others is acknowledged too"
        assert link.collector.figures["others_dropped", ""] == 3 * (len(sealed) - len(mine))


def test_a_key_that_rides_on_what_is_anothers_opens_what_is_ours() -> None:
    overlay = Overlay()
    publisher = Publisher(overlay)
    part = Part(Shard(1, 2))
    (link,) = receivers(overlay, part)
    sealed = seals(publisher)
    mine = [part.takes(each.piece(1).properties[0][1]) for each in sealed]
    for each, ours in zip(sealed, mine, strict=True):
        link.publish(each, with_key=not ours)
    assert len(sequences(link)) == sum(mine) > 0
    assert len(link.acknowledged) == link.sent


def change(before: int, after: int) -> list[Part]:
    """The receivers of a change from one number to another."""
    parts = []
    for number in range(1, max(before, after) + 1):
        then = Shard(number, before) if number <= before else None
        now = Shard(number, after) if number <= after else None
        parts.append(Part(now, [(int(SINCE * 1000), then)]))
    return parts


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (1, 4)])
def test_a_change_of_their_number_loses_and_repeats_nothing_whenever_each_restarts(before: int, after: int) -> None:
    """Pieces come again after a restart as they do from a session that lived on; parts go by the time of sealing."""
    overlay = Overlay()
    publisher = Publisher(overlay)
    early = seals(publisher, 1, SINCE - 1)
    late = seals(publisher, 1 + len(DEVICES), SINCE)
    told = [seal.signed.header.sequence for seal in early + late]
    # Some of the early ones are written by receivers that know nothing of the change yet.
    old = receivers(overlay, *(Part(Shard(number, before)) for number in range(1, before + 1)))
    publish(old, *early[:20])
    written = [sequences(link) for link in old]
    links = receivers(overlay, *change(before, after))
    for link, former in zip(links, old, strict=False):
        link.collector = collector_of(overlay, seen=former.collector.seen, part=link.collector._part)
        link.collector.learn(check_values(overlay.names()))
    publish(links, *early, *late)  # of the first twenty everything comes again
    written += [sequences(link) for link in links]
    assert sorted(itertools.chain(*written)) == sorted(told)


def test_a_time_that_a_replica_altered_makes_no_row_anywhere() -> None:
    overlay = Overlay()
    sealed = Publisher(overlay).seal(DEVICES[0], time=SINCE - 1)
    wire = sealed.piece(1)
    (name, value), *others = wire.properties
    at = 4 * (52 // 3) + 3  # inside the time of sealing, bytes 52 to 59 of the header
    forged = value[:at] + ("B" if value[at] == "A" else "A") + value[at + 1 :]
    links = receivers(overlay, *change(2, 3))
    for link in links:
        link.send(1, type(wire)(wire.topic, wire.payload, properties=((name, forged), *others)), NOW)
        link.collector.do_due_work(NOW + 100)
        assert not sequences(link)
        assert len(link.acknowledged) == 1


def test_a_part_of_several_changes_goes_by_the_era_of_the_sealing() -> None:
    overlay = Overlay()
    publisher = Publisher(overlay)
    eras = [(int(NOW * 1000), None), (int(SINCE * 1000), Shard(1, 1))]
    part = Part(None, eras)
    for time, ours in ((NOW - 1, False), (NOW, True), (SINCE - 0.001, True), (SINCE, False)):
        wire = publisher.seal(DEVICES[0], time=time).piece(1)
        assert part.takes(wire.properties[0][1]) is ours


def options(tmp_path: Path, **told: str) -> ReceiverSettings:
    given = {"spool": str(tmp_path / "spool"), "identity": "/i", "overlay": "/o", **told}
    return ReceiverSettings.from_options(parse_options(given))


def test_options_of_a_receiver_that_is_one_of_several(tmp_path: Path) -> None:
    assert options(tmp_path).part is None
    assert options(tmp_path, shard="2/3").name == "main-2of3"
    told = {"receiver": "east", "shard_before": "none@2026-11-22T00:00:00Z"}
    newcomer = options(tmp_path, shard="3/3", **told).part
    assert newcomer is not None
    assert newcomer._shards == (None, Shard(3, 3))
    leaving = options(tmp_path, shard="none", receiver="east", shard_before="3/3@2026-11-22T00:00:00+01:00").part
    assert leaving is not None
    assert leaving._shards == (Shard(3, 3), None)


@pytest.mark.parametrize(
    "told",
    [
        {"shard": "none"},
        {"shard": "1/2", "shard_before": "1/3@2026-11-22T00:00:00Z"},
        {"shard": "1/2", "receiver": "a", "shard_before": "1/3"},
        {"shard": "1/2", "receiver": "a", "shard_before": "1/3@2026-11-22T00:00:00"},
        {"shard": "1/2", "receiver": "a", "shard_before": "4/3@2026-11-22T00:00:00Z"},
        {"receiver": "a", "shard_before": "1/3@2026-11-22T00:00:00Z"},
        {"shard": "1/2", "receiver": "a", "shard_before": "1/3@2026-11-22T00:00:00Z,1/4@2026-11-21T00:00:00Z"},
        {"grants": "/a,/b"},
    ],
)
def test_parts_that_cannot_be_are_one_line(tmp_path: Path, told: dict[str, str]) -> None:
    with pytest.raises(BadOption) as caught:
        options(tmp_path, **told)
    assert "\n" not in str(caught.value)
