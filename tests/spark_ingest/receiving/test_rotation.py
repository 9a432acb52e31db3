"""A publisher changes its key: what it seals anew under the next one is no second row."""

from __future__ import annotations

from pathlib import Path

from bridge.reader import Lineages
from spark_ingest.receiver.recovery import recovered, state_of
from spark_ingest.receiving.division import Part
from spark_ingest.spool.sharding import Shard
from spark_ingest.spool.writer import SpoolWriter
from tests.spark_ingest.region import Link, Overlay, Publisher, Sealed, records


def sealed_by(publisher: Publisher, *numbers: int) -> list[Sealed]:
    """Each time under another data key."""
    publisher.new_key("plant/#")
    return [publisher.seal(f"plant/{number}", sequence=number) for number in numbers]


def sequences(link: Link, writer: SpoolWriter | None = None) -> list[int]:
    return [record.sequence for record in records(link.write(writer))]


def test_what_is_sealed_anew_under_the_next_key_is_one_row() -> None:
    overlay = Overlay()
    link, former = Link(overlay), Publisher(overlay)
    before = sealed_by(former, 1, 2, 3)
    for sealed in before[:2]:
        link.publish(sealed)
    assert sequences(link) == [1, 2]
    link.publish(before[2], places=(1,))  # waits for shares
    for sealed in sealed_by(Publisher(overlay, key=1), 1, 2, 3, 4):
        link.publish(sealed)
    link.publish(before[2], places=(2, 3))
    assert sequences(link) == [3, 4]
    assert len(link.acknowledged) == link.sent


def test_each_receiver_takes_the_same_of_both_keys() -> None:
    overlay = Overlay()
    former = Publisher(overlay)
    links = [Link(overlay, part=Part(Shard(number, 3))) for number in (1, 2, 3)]
    blocks = [number << 12 for number in range(1, 30)]
    for sealed in sealed_by(former, *blocks):
        for link in links:
            link.publish(sealed)
    first = [sequences(link) for link in links]
    for sealed in sealed_by(Publisher(overlay, key=1), *blocks):
        for link in links:
            link.publish(sealed)
    assert sorted(number for each in first for number in each) == blocks
    assert [sequences(link) for link in links] == [[], [], []]


def test_over_restarts_too_with_a_rotation_since_the_last_state(tmp_path: Path) -> None:
    overlay = Overlay()
    link, former = Link(overlay), Publisher(overlay)
    writer = SpoolWriter(tmp_path, "main", cap_bytes=1 << 30)
    writer.roll(state_of(link.collector.seen, link.collector.keys()))
    for sealed in sealed_by(former, 1, 2):
        link.publish(sealed)
    assert sequences(link, writer) == [1, 2]
    fresh = Publisher(overlay, key=1)
    for sealed in sealed_by(fresh, 2, 3):
        link.publish(sealed)
    assert sequences(link, writer) == [3]
    writer.close()

    def again() -> tuple[Link, SpoolWriter]:
        writer = SpoolWriter(tmp_path, "main", cap_bytes=1 << 30)
        seen, keys = recovered(writer.state, writer.history(), lineages=Lineages(overlay.signed))
        writer.roll(state_of(seen, keys))
        return Link(overlay, seen=seen, keys=keys), writer

    link, writer = again()
    for sealed in [*sealed_by(former, 3), *sealed_by(fresh, 1, 2, 3, 4)]:
        link.publish(sealed)
    assert sequences(link, writer) == [4]
    writer.close()
    del overlay.members[former.identity.party_id]  # the owner lists it no longer
    link, writer = again()
    for sealed in sealed_by(fresh, 1, 2, 3, 4, 5):
        link.publish(sealed)
    assert sequences(link, writer) == [5]
    writer.close()


def test_a_key_that_replaced_a_lost_one_begins_anew() -> None:
    overlay = Overlay()
    link, lost = Link(overlay), Publisher(overlay)
    link.publish(sealed_by(lost, 1)[0])
    assert sequences(link) == [1]
    del overlay.members[lost.identity.party_id]
    link.publish(sealed_by(Publisher(overlay, key=1), 1)[0])
    assert sequences(link) == [1]
