"""A receiver in several processes: each publication is one row, whoever dies, and however many are there next."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spark_ingest.errors import BadOption
from spark_ingest.opening.rows import RowReader
from spark_ingest.options import parse_options
from spark_ingest.receiver.daemon import _receiver
from spark_ingest.receiver.progress import ReplicaLink
from spark_ingest.receiver.receiver import Receiver, ReceiverSettings
from spark_ingest.receiver.workers import WORKERS_MAX, WorkerFailed, WorkingReceiver, parts_of
from spark_ingest.spool import BLOCK_BITS, SpoolView, SpoolWriter
from tests.spark_ingest.receiver.test_receiver import Replicas
from tests.spark_ingest.region import Overlay, Publisher, Sealed
from tests.waits import wait_until

TOPICS = [f"plant/press-{number}" for number in range(12)]


def settings(home: Path) -> ReceiverSettings:
    return ReceiverSettings(home / "spool", home / "keys.json", cap_bytes=1 << 30, waits=False)


def rows(home: Path) -> list[tuple[str, int]]:
    """What queries read now: topic and number."""
    grants = ",".join(str(path) for path in sorted(home.glob("keys*.json")))
    options = parse_options({"spool": str(home / "spool"), "grants": grants})
    view, reader = SpoolView(options.spool), RowReader(options)
    batches = [batch for extent in view.ranges({}, view.advance({}), 1) for batch in reader.read(extent)]
    return [(row["topic"], row["sequence"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.timeout(120)
def test_every_publication_is_one_row_over_kills_and_other_numbers_of_workers(tmp_path: Path) -> None:
    overlay = Overlay()
    overlay.change(receipts=True)
    publisher, replicas = Publisher(overlay), Replicas(overlay)
    sent: list[tuple[str, int]] = []
    sealed: list[Sealed] = []

    def publish() -> None:
        for topic in TOPICS:
            sealed.append(publisher.seal(topic, time=time.time(), sequence=1024 * len(sent) + 1))
            sent.append((topic, sealed[-1].publication[1]))
            replicas.publish(sealed[-1])

    receiver = WorkingReceiver(settings(tmp_path), 2, lambda: replicas)
    assert receiver.parts == ["main.w1of2", "main.w2of2"]
    receiver.start()
    try:
        publish()
        assert wait_until(lambda: receiver.progress.rows == len(replicas.acknowledged) == len(sent)), receiver.trouble
        process = receiver._hands[0].process
        assert process is not None
        process.kill()
        publish()
        assert wait_until(lambda: receiver.progress.rows == len(sent)), (receiver.trouble, receiver.failure)
        assert wait_until(lambda: not replicas.unacknowledged)
        assert receiver.figures["spooled", ""] == len(sent)
    finally:
        receiver.stop(30)
    assert receiver.failure is None
    found = rows(tmp_path)
    assert sorted(found) == sorted(sent)
    assert set(replicas.acknowledged) == {number for _, number in sent}, "the process with the identity signs for all"
    blocks = [[number for _, number in found if number >> BLOCK_BITS == block] for block in range(6)]
    assert [len(each) for each in blocks] == [4] * 6
    assert blocks == [sorted(each) for each in blocks]
    assert all((tmp_path / f"keys.w{number}of2.json").stat().st_mode & 0o777 == 0o600 for number in (1, 2))

    # Without workers: what comes once more, since its PUBACK was lost, is known.
    single = Receiver(settings(tmp_path), lambda: replicas)
    single.start()
    try:
        for each in sealed[-3:]:
            replicas.publish(each)
        publish()
        assert wait_until(lambda: not replicas.unacknowledged), (single.trouble, single.failure)
    finally:
        single.stop()
    assert sorted(rows(tmp_path)) == sorted(sent)


@pytest.mark.slow
def test_links_that_are_still_being_made_are_no_trouble_and_those_that_do_not_come_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a receiver alone: a start does not look like an outage to whoever watches `receiving`."""
    replicas = Replicas(Overlay())
    monkeypatch.setattr(
        replicas, "link_states", lambda: [ReplicaLink(name, False, 0, 0) for name in ("r1", "r2", "r3")]
    )
    monkeypatch.setattr("spark_ingest.receiver.workers.SETTLED_S", 3600.0)
    receiver = WorkingReceiver(settings(tmp_path), 2, lambda: replicas)
    receiver.start()
    try:
        assert wait_until(lambda: bool(receiver.progress.links)), receiver.failure
        assert receiver.trouble is None
        monkeypatch.setattr("spark_ingest.receiver.workers.SETTLED_S", 0.0)
        assert wait_until(lambda: receiver.trouble is not None)
        assert "0 of 3 replicas" in (receiver.trouble or "")
    finally:
        receiver.stop(30)


@pytest.mark.slow
def test_what_waiting_does_not_cure_ends_it_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "keys.w2of2.json").write_text("{}")
    (tmp_path / "keys.w2of2.json").chmod(0o644)
    receiver = WorkingReceiver(settings(tmp_path), 2, lambda: Replicas(Overlay()))
    receiver.start()
    assert wait_until(lambda: not receiver.alive)
    assert isinstance(receiver.failure, WorkerFailed)
    assert "\n" not in str(receiver.failure)


def test_a_part_that_somebody_else_writes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_ingest.receiver.workers.ORPHANS_S", 0.1)
    other = SpoolWriter(tmp_path / "spool", "main", cap_bytes=1 << 20)
    receiver = WorkingReceiver(settings(tmp_path), 2, lambda: Replicas(Overlay()))
    receiver.start()
    assert wait_until(lambda: not receiver.alive)
    assert "another process" in str(receiver.failure)
    other.close()


def test_parts_share_the_cap_and_have_names_and_keys_of_their_own(tmp_path: Path) -> None:
    first, second = parts_of(settings(tmp_path), 2)
    assert (first.name, first.grants.name, first.cap_bytes) == ("main.w1of2", "keys.w1of2.json", 1 << 29)
    assert (second.name, second.grants.name, second.waits) == ("main.w2of2", "keys.w2of2.json", False)


def test_how_many_workers_there_may_be(tmp_path: Path) -> None:
    told = {
        "spool": str(tmp_path / "spool"),
        "identity": str(tmp_path / "job"),
        "overlay": str(tmp_path / "overlay.json"),
    }
    assert isinstance(_receiver(parse_options(told), 1), Receiver)
    assert isinstance(_receiver(parse_options(told), 2), WorkingReceiver)
    for workers in (0, WORKERS_MAX + 1):
        with pytest.raises(BadOption, match="out of range"):
            _receiver(parse_options(told), workers)
    with pytest.raises(BadOption, match="not both"):
        _receiver(parse_options(told | {"shard": "1/2"}), 2)
