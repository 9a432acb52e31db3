"""What a receiver cannot cure fails the query of its driver: no replicas in reach, a disk that does not answer."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from spark_ingest.errors import ReceiverTrouble
from spark_ingest.receiver.progress import ReplicaLink
from spark_ingest.receiver.receiver import Receiver
from spark_ingest.spool.writer import SpoolWriter
from tests.spark_ingest.receiver.test_receiver import Replicas, settings_in, spooled
from tests.spark_ingest.region import Overlay, Publisher
from tests.waits import wait_until


class Reached(Replicas):
    """Replicas, of which some cannot be reached."""

    connected_replicas = frozenset({"r1", "r2", "r3"})

    def link_states(self) -> tuple[ReplicaLink, ...]:
        return tuple(ReplicaLink(name, name in self.connected_replicas, 0, 0) for name in ("r1", "r2", "r3"))


def fails(receiver: Receiver, match: str, trouble_s: float = 0.0) -> bool:
    try:
        receiver.check_progress(trouble_s)
    except ReceiverTrouble as error:
        return match in str(error)
    return False


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"receiver.SETTLED_S": 0.0, "receiver.TICK_S": 0.05, "trouble.STILL_S": 0.0}.items():
        monkeypatch.setattr(f"spark_ingest.receiver.{name}", value)


def test_a_region_out_of_reach_fails_the_query_and_one_replica_less_does_not(tmp_path: Path) -> None:
    """The query had nothing to read, and looked well for ever."""
    overlay = Overlay()
    replicas, publisher = Reached(overlay), Publisher(overlay)
    receiver = Receiver(settings_in(tmp_path), lambda: replicas)
    receiver.start()
    try:
        replicas.publish(publisher.seal("plant/a", time=time.time()))
        assert wait_until(lambda: spooled(tmp_path) == [1])
        replicas.connected_replicas = frozenset({"r1", "r2"})
        assert wait_until(lambda: any(not link.up for link in receiver.progress.links))
        assert receiver.trouble is None, "two of three make a publication whole"
        replicas.connected_replicas = frozenset({"r1"})
        assert wait_until(lambda: fails(receiver, "r2, r3")), receiver.trouble
        receiver.check_progress(3_600.0)
        replicas.connected_replicas = frozenset({"r1", "r3"})
        assert wait_until(lambda: receiver.trouble is None)
        assert not fails(receiver, "", 1.0)
    finally:
        receiver.stop()


def test_a_disk_that_does_not_answer_fails_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of files that is away holds an fsync for ever: no error, no line, and nothing acknowledged."""
    overlay = Overlay()
    replicas, publisher = Reached(overlay), Publisher(overlay)
    answers = threading.Event()
    append = SpoolWriter.append

    def hanging(self: SpoolWriter, *arguments: object) -> object:
        answers.wait(60)
        return append(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SpoolWriter, "append", hanging)
    receiver = Receiver(settings_in(tmp_path), lambda: replicas)
    receiver.start()
    try:
        assert wait_until(lambda: bool(receiver.progress.links))
        assert not fails(receiver, "", 5.0)
        replicas.publish(publisher.seal("plant/a", time=time.time()))
        assert wait_until(lambda: fails(receiver, "stood still", 0.5))
        answers.set()
        assert wait_until(lambda: spooled(tmp_path) == [1] and not replicas.unacknowledged)
        assert wait_until(lambda: not fails(receiver, "", 0.5)), "it goes on where it stood"
    finally:
        answers.set()
        receiver.stop()
