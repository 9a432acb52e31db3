"""The receiver's thread, with replicas that behave like MQTT links: unacknowledged messages come again."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bridge.document import Scope, ScopeSecret
from bridge.document.overlay import Overlay as SignedOverlay
from keys.envelope import KeyName
from keys.epochs import Calendar
from spark_ingest.errors import BadPlace, GrantsError
from spark_ingest.opening.rows import RowReader
from spark_ingest.options import parse_options
from spark_ingest.receiver.progress import ReplicaLink
from spark_ingest.receiver.receiver import OnArrivals, Receiver, ReceiverSettings
from spark_ingest.receiving import SpooledBatch
from spark_ingest.secrets.grants import Grants, read_grants
from spark_ingest.secrets.grants_writer import names_of
from spark_ingest.source.reader import SpoolStreamReader
from spark_ingest.spool.consumers import Consumer
from spark_ingest.spool.packs import pack_path
from spark_ingest.spool.segments import Position, read_groups, segment_numbers
from spark_ingest.spool.view import SpoolView
from spark_ingest.spool.writer import SpooledKey, SpoolRecord, SpoolWriter
from tests.spark_ingest.region import Overlay, Publisher, Sealed, Wire, epoch_key, published
from tests.waits import wait_until

NICE_S = 120.0
"""A packing process goes last on the processor."""


@dataclass(frozen=True)
class Session:
    """Takes the acknowledgement of one message."""

    lock: threading.Lock
    waiting: list[Wire]
    wire: Wire

    def acknowledge_all(self, publishes: Sequence[object]) -> None:
        with self.lock:
            for _ in publishes:
                self.waiting.remove(self.wire)


class Replicas:
    """Three replicas with a session each: what is not acknowledged is sent again at the next connection."""

    def __init__(self, overlay: Overlay) -> None:
        self.directory = overlay
        self.sessions: dict[int, list[Wire]] = {1: [], 2: [], 3: []}
        self.connections = 0
        self.names = overlay.names()
        self.ahead = (0.0, 0.0, 0.0)
        self.wanted: set[KeyName] = set()
        self.acknowledged: list[int] = []
        """Numbers of batches of which the job would sign a receipt."""
        self._on_keys: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._on_arrivals: OnArrivals | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def overlay(self) -> SignedOverlay:
        return self.directory.signed

    @property
    def home_region(self) -> int:
        return self.directory.home

    def held_grants(self) -> Grants:
        return self.directory.held(self.names)

    def want_keys(self, names: Collection[KeyName]) -> None:
        self.wanted |= set(names)

    def learn(self, *names: KeyName) -> None:
        """From the test's thread: the key service answers."""
        assert self._loop is not None
        assert self._on_keys is not None
        self.names |= set(names)
        self._loop.call_soon_threadsafe(self._on_keys)

    is_accepted = reads_back = True
    name = "job"

    def read_scopes(self) -> tuple[Scope, ...]:
        return ()

    def connected_replicas(self) -> tuple[str, ...]:
        return ()

    def link_states(self) -> tuple[ReplicaLink, ...]:
        return ()

    def clocks(self) -> tuple[float, ...]:
        return self.ahead

    def secrets(self) -> list[ScopeSecret]:
        return [ScopeSecret(scope, scope.filter) for scope in self.overlay.policy.scopes]

    def take_spooled(self, batches: Sequence[SpooledBatch]) -> None:
        self.acknowledged += [each.batch.number for each in batches]

    def keep_evidence(self, proof: Any) -> None:
        raise AssertionError("nobody lies here")

    def ask_replica(self, replica: str, topic: str, payload: bytes) -> None:
        raise AssertionError("nothing is missing here")

    async def run(self, on_arrivals: OnArrivals, on_keys: Callable[[], None]) -> None:
        self.connections += 1
        self._on_keys = on_keys
        with self._lock:
            self._on_arrivals, self._loop = on_arrivals, asyncio.get_running_loop()
            waiting = [(place, wire) for place, wires in self.sessions.items() for wire in wires]
        for place, wire in waiting:
            self._deliver(on_arrivals, place, wire)
        try:
            await asyncio.Event().wait()
        finally:
            with self._lock:
                self._on_arrivals = None

    def publish(self, sealed: Sealed, places: tuple[int, ...] = (1, 2, 3)) -> None:
        """From the test's thread."""
        for place in places:
            wire = sealed.piece(place)
            with self._lock:
                self.sessions[place].append(wire)
                if self._loop is not None and self._on_arrivals is not None:
                    self._loop.call_soon_threadsafe(self._deliver, self._on_arrivals, place, wire)

    def _deliver(self, on_arrivals: OnArrivals, place: int, wire: Wire) -> None:
        on_arrivals(f"r{place}", [published(wire)], Session(self._lock, self.sessions[place], wire))

    @property
    def unacknowledged(self) -> int:
        return sum(map(len, self.sessions.values()))


def settings_in(root: Path, **settings: Any) -> ReceiverSettings:
    """A receiver that spools into `root` and keeps scope keys beside it."""
    return ReceiverSettings(root, root.with_name(f"{root.name}-keys.json"), **settings)


def spooled(root: Path) -> list[int]:
    view = SpoolView(root)
    extents = view.ranges({}, view.advance({}), 1)
    return [n for extent in extents for batch in read_groups(extent) for n in batch.column("sequence").to_pylist()]


@pytest.fixture
def overlay() -> Overlay:
    return Overlay()


@pytest.fixture
def publisher(overlay: Overlay) -> Publisher:
    return Publisher(overlay)


def test_everything_is_spooled_once_and_acknowledged(tmp_path: Path, overlay: Overlay, publisher: Publisher) -> None:
    replicas = Replicas(overlay)
    receiver = Receiver(settings_in(tmp_path), lambda: replicas)
    receiver.start()
    for _ in range(50):
        replicas.publish(publisher.seal("plant/a", time=time.time()))
    assert wait_until(lambda: len(spooled(tmp_path)) == 50 and not replicas.unacknowledged)
    receiver.stop()
    assert sorted(spooled(tmp_path)) == list(range(1, 51))
    assert receiver.figures["spooled", ""] == 50
    assert receiver.trouble is None
    assert not receiver.alive


@pytest.mark.attack(181)
def test_receipts_are_of_what_is_on_disk_and_of_no_scope_without_them(
    tmp_path: Path, publisher: Publisher, overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack on the promise of a receipt: the disk fails, and the process dies between content and disk."""
    replicas = Replicas(overlay)
    append, on_disk, failing = SpoolWriter.append, list[int](), [True]

    def watched(self: SpoolWriter, records: Sequence[SpoolRecord], keys: Mapping[bytes, SpooledKey]) -> Position:
        if failing:
            failing.clear()
            raise OSError(28, "No space left on device")
        assert not {record.sequence for record in records} & set(replicas.acknowledged)
        done = append(self, records, keys)
        on_disk.extend(record.sequence for record in records)
        return done

    monkeypatch.setattr(SpoolWriter, "append", watched)
    monkeypatch.setattr("spark_ingest.receiver.receiver.RETRY_S", 0.05)
    overlay.scopes = tuple(replace(scope, receipts=True) for scope in overlay.scopes)
    receiver = Receiver(settings_in(tmp_path), lambda: replicas)
    receiver.start()
    for _ in range(20):
        replicas.publish(publisher.seal("plant/a", time=time.time()))
    assert wait_until(lambda: len(replicas.acknowledged) == 20)
    assert sorted(on_disk) == sorted(replicas.acknowledged) == list(range(1, 21))
    overlay.scopes = tuple(replace(scope, receipts=False) for scope in overlay.scopes)
    replicas.publish(publisher.seal("plant/a", time=time.time()))
    assert wait_until(lambda: len(on_disk) == 21 and not replicas.unacknowledged)
    receiver.stop()
    assert len(replicas.acknowledged) == 20


def test_a_liar_is_told_of_in_the_log(
    tmp_path: Path, overlay: Overlay, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    replicas = Replicas(overlay)
    sealed = publisher.seal("plant/a", time=time.time())
    replicas.sessions[2].append(sealed.piece(2, content=b"lie"))
    replicas.publish(sealed, places=(1, 3))
    receiver = Receiver(settings_in(tmp_path), lambda: replicas)
    receiver.start()
    assert wait_until(lambda: "refused_content from r2: 1" in caplog.text)
    receiver.stop()
    assert spooled(tmp_path) == [1]


def test_restarts_lose_and_repeat_nothing(tmp_path: Path, overlay: Overlay, publisher: Publisher) -> None:
    replicas = Replicas(overlay)
    for turn in range(1, 4):
        for _ in range(20):
            replicas.publish(publisher.seal("plant/a", time=time.time()))
        receiver = Receiver(settings_in(tmp_path), lambda: replicas)
        receiver.start()
        assert wait_until(lambda turn=turn: len(spooled(tmp_path)) == 20 * turn)  # type: ignore[misc]
        receiver.stop()
    wires = [wire for session in replicas.sessions.values() for wire in session]
    assert not wires
    assert sorted(spooled(tmp_path)) == list(range(1, 61))


def test_a_crash_between_sync_and_acknowledgement_makes_no_second_row(
    tmp_path: Path, overlay: Overlay, publisher: Publisher
) -> None:
    """All three replicas send again what is on disk already."""
    sent = [publisher.seal("plant/a", time=time.time()) for _ in range(10)]
    for _ in range(2):
        replicas = Replicas(overlay)
        for sealed in sent:
            replicas.publish(sealed)
        receiver = Receiver(settings_in(tmp_path), lambda replicas=replicas: replicas)  # type: ignore[misc]
        receiver.start()
        assert wait_until(lambda replicas=replicas: not replicas.unacknowledged)  # type: ignore[misc]
        receiver.stop()
    assert sorted(spooled(tmp_path)) == list(range(1, 11))


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), PermissionError(13, "Permission denied", "spool")])
def test_a_failing_disk_ends_the_session_and_the_next_one_gets_everything(
    tmp_path: Path, overlay: Overlay, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    replicas = Replicas(overlay)
    failures = [error]
    append = SpoolWriter.append

    def failing(self: SpoolWriter, *arguments: object) -> object:
        if failures:
            raise failures.pop()
        return append(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SpoolWriter, "append", failing)
    monkeypatch.setattr("spark_ingest.receiver.receiver.RETRY_S", 0.05)
    receiver = Receiver(settings_in(tmp_path), lambda: replicas)
    receiver.start()
    for _ in range(10):
        replicas.publish(publisher.seal("plant/a", time=time.time()))
    assert wait_until(lambda: len(spooled(tmp_path)) == 10 and not replicas.unacknowledged)
    receiver.stop()
    assert replicas.connections == 2
    assert sorted(spooled(tmp_path)) == list(range(1, 11))


@pytest.mark.parametrize("path", ["spool", "grants"])
def test_a_path_that_cannot_be_used_ends_the_receiver_before_it_has_begun(
    tmp_path: Path, overlay: Overlay, path: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    settings = replace(settings_in(tmp_path), **{path: tmp_path / "file" / "below"})
    receiver = Receiver(settings, lambda: Replicas(overlay))
    receiver.start()
    assert wait_until(lambda: not receiver.alive)
    assert isinstance(receiver.failure, BadPlace)
    assert re.fullmatch(r".*/file.*: (Not a directory|File exists); correct the path, .*", str(receiver.failure))


@pytest.mark.parametrize("retain_s", [0.0, 1e6])
def test_a_full_spool_acknowledges_nothing_until_it_is_trimmed(
    tmp_path: Path, overlay: Overlay, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, retain_s: float
) -> None:
    """Nor does what a consumer wants to be kept stop the receiver once everybody has read it."""
    monkeypatch.setattr("spark_ingest.receiver.receiver.FULL_RETRY_S", 0.05)
    monkeypatch.setattr("spark_ingest.receiver.receiver.GROUP_BYTES", 10_000)
    replicas = Replicas(overlay)
    receiver = Receiver(settings_in(tmp_path, cap_bytes=100_000, segment_bytes=20_000), lambda: replicas)
    receiver.start()
    for _ in range(150):
        replicas.publish(publisher.seal("plant/a", bytes(1000), time=time.time()))
    assert wait_until(lambda: receiver.trouble is not None and "full" in receiver.trouble)
    stuck = len(spooled(tmp_path))
    assert stuck < 150
    assert replicas.unacknowledged >= 3 * (150 - stuck)
    view = SpoolView(tmp_path)
    consumer = Consumer(tmp_path, "job", view, retain_s)
    consumer.register()
    rows = 0
    at = view.earliest()

    def caught_up() -> bool:
        nonlocal rows, at
        end = view.advance(at)
        rows += view.rows_between(at, end)
        at = end
        consumer.commit(end)
        return rows == 150 and not replicas.unacknowledged

    assert wait_until(caught_up)
    receiver.stop()
    assert segment_numbers(tmp_path / "main")[0] > 1


@pytest.mark.long
@pytest.mark.parametrize("packs", [True, False])
def test_a_receiver_packs_what_it_has_finished_if_it_was_told_to(
    tmp_path: Path, overlay: Overlay, publisher: Publisher, packs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    replicas = Replicas(overlay)
    root = tmp_path / "spool"
    for turn in range(2):  # the second start finishes what the first one wrote
        receiver = Receiver(settings_in(root, packs=packs), lambda: replicas)
        receiver.start()
        replicas.publish(publisher.seal("plant/a", b"%d" % turn, time=time.time()))
        assert wait_until(lambda turn=turn: len(spooled(root)) == turn + 1)  # type: ignore[misc]
        assert not turn or not packs or wait_until(lambda: "main 1: packed, 1 rows" in caplog.text, NICE_S)
        receiver.stop()
    assert pack_path(root / "main", 1).exists() is packs
    assert rows_in_clear(root) == [b"0", b"1"]


# ------------------------------------------------------------------------------------------- scope keys


def rows_in_clear(root: Path) -> list[bytes]:
    """What an executor makes of all that is visible; a row that it cannot open yet would be missing here."""
    reader = RowReader(parse_options({"spool": str(root), "grants": str(settings_in(root).grants)}))
    view = SpoolView(root)
    extents = view.ranges({}, view.advance({}), 1)
    return [each for extent in extents for batch in reader.read(extent) for each in batch.column("payload").to_pylist()]


def epochs_from(now: float) -> Calendar:
    """The present one is number 1 and has just begun."""
    return Calendar(int(now * 1000) - 3_600_000, 3_600, grace_s=60, skew_s=5)


@pytest.mark.long
def test_rows_of_a_new_epoch_show_when_the_file_has_its_key_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = SpoolWriter.append
    early: list[KeyName] = []

    def watched(self: SpoolWriter, records: Sequence[SpoolRecord], keys: Mapping[bytes, SpooledKey]) -> Position:
        scopes = read_grants(settings_in(tmp_path).grants).scopes.values()
        early.extend(names_of(key.header for key in keys.values()) - {name for s in scopes for name in s.keys})
        return append(self, records, keys)

    monkeypatch.setattr(SpoolWriter, "append", watched)
    now = time.time()
    overlay = Overlay(calendar=epochs_from(now))
    publisher, replicas = Publisher(overlay), Replicas(overlay)
    replicas.names = {KeyName("plant/#", 0, 0)}
    receiver = Receiver(settings_in(tmp_path, incomplete_s=600.0), lambda: replicas)
    receiver.start()
    replicas.publish(publisher.seal("plant/a", b"before", time=now - 1))  # within skew of the epoch's end
    assert wait_until(lambda: spooled(tmp_path) == [1])
    replicas.publish(publisher.seal("plant/a", b"after", time=now))
    assert wait_until(lambda: replicas.wanted == {KeyName("plant/#", 1, 0)})
    assert spooled(tmp_path) == [1]
    assert replicas.unacknowledged == 3
    replicas.learn(KeyName("plant/#", 1, 0))
    assert wait_until(lambda: spooled(tmp_path) == [1, 2] and not replicas.unacknowledged)
    receiver.stop()
    assert rows_in_clear(tmp_path) == [b"before", b"after"]
    assert not early


def test_a_bump_reaches_executors_through_a_running_receiver(tmp_path: Path, overlay: Overlay) -> None:
    publisher, replicas = Publisher(overlay), Replicas(overlay)
    replicas.names = {KeyName("plant/#", 0, 0)}
    receiver = Receiver(settings_in(tmp_path, incomplete_s=600.0), lambda: replicas)
    receiver.start()
    replicas.publish(publisher.seal("plant/a", b"old", time=time.time()))
    assert wait_until(lambda: len(spooled(tmp_path)) == 1)
    overlay.change(bump=1)
    replicas.names.clear()  # the service issues keys of the new bump only
    replicas.learn(KeyName("plant/#", 0, 1))
    replicas.publish(publisher.seal("plant/a", b"new", time=time.time()))
    assert wait_until(lambda: len(spooled(tmp_path)) == 2)
    receiver.stop()
    assert rows_in_clear(tmp_path) == [b"old", b"new"], "the old key is there as long as the spool has its rows"


def test_a_restart_without_the_key_service_goes_on_with_the_keys_in_the_file(tmp_path: Path, overlay: Overlay) -> None:
    publisher, replicas = Publisher(overlay), Replicas(overlay)
    for turn in range(2):
        receiver = Receiver(settings_in(tmp_path), lambda: replicas)
        receiver.start()
        replicas.publish(publisher.seal("plant/a", b"%d" % turn, time=time.time()))
        assert wait_until(lambda turn=turn: len(spooled(tmp_path)) == turn + 1)  # type: ignore[misc]
        receiver.stop()
        replicas.names = set()
    assert rows_in_clear(tmp_path) == [b"0", b"1"]
    assert not replicas.wanted


@pytest.mark.long
def test_no_key_is_in_the_log_or_in_the_spool(
    tmp_path: Path, overlay: Overlay, publisher: Publisher, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    replicas = Replicas(overlay)
    receiver = Receiver(settings_in(tmp_path), lambda: replicas)
    receiver.start()
    publisher.new_key("plant/#", bump=7)
    replicas.publish(publisher.seal("plant/a", time=time.time()))
    assert wait_until(lambda: bool(replicas.wanted))
    replicas.learn(KeyName("plant/#", 0, 7))
    assert wait_until(lambda: len(spooled(tmp_path)) == 1)
    receiver.stop()
    disk = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    kept = settings_in(tmp_path).grants.read_bytes()
    for key in map(epoch_key, replicas.names):
        assert base64.b64encode(key) in kept
        for form in (key, base64.b64encode(key), key.hex().encode()):
            assert form not in disk
            assert form not in caplog.text.encode()


def test_a_file_of_keys_that_is_none_fails_the_query_with_one_line(tmp_path: Path, overlay: Overlay) -> None:
    settings_in(tmp_path).grants.write_text("notes of somebody")
    settings_in(tmp_path).grants.chmod(0o600)
    receiver = Receiver(settings_in(tmp_path), lambda: Replicas(overlay))
    receiver.start()
    assert wait_until(lambda: not receiver.alive)
    assert isinstance(receiver.failure, GrantsError)
    assert "\n" not in str(receiver.failure)
    assert settings_in(tmp_path).grants.read_text() == "notes of somebody"


@pytest.mark.long
def test_a_second_receiver_waits_and_takes_over(
    tmp_path: Path, overlay: Overlay, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_ingest.receiver.receiver.RETRY_S", 0.05)
    replicas = Replicas(overlay)
    first = Receiver(settings_in(tmp_path), lambda: replicas)
    first.start()
    assert wait_until(lambda: replicas.connections == 1)
    second = Receiver(settings_in(tmp_path), lambda: replicas)
    second.start()
    assert wait_until(lambda: second.trouble is not None)
    assert replicas.connections == 1
    first.stop()
    replicas.publish(publisher.seal("plant/a", time=time.time()))
    assert wait_until(lambda: spooled(tmp_path) == [1])
    second.stop()


def test_a_look_at_the_lock_does_not_end_a_receiver_that_starts(tmp_path: Path, overlay: Overlay) -> None:
    """As `veilmq ingest status` looks: a service that ends with status 2 is not started again."""
    replicas = Replicas(overlay)
    settings = replace(settings_in(tmp_path), waits=False)
    SpoolWriter(settings.spool, settings.name, cap_bytes=1 << 20).close()
    with (settings.spool / settings.name / "LOCK").open("rb") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        receiver = Receiver(settings, lambda: replicas)
        receiver.start()
        time.sleep(0.2)  # longer than any look takes
    assert wait_until(lambda: replicas.connections == 1 or receiver.failure is not None)
    assert receiver.failure is None
    receiver.stop()


def test_a_receiver_that_cannot_be_made_fails_the_query(tmp_path: Path) -> None:
    options = parse_options(
        {
            "spool": str(tmp_path / "spool"),
            "identity": "nowhere",
            "overlay": "nothing",
            "grants": str(tmp_path / "keys.json"),
        }
    )

    def connect(_: object) -> Replicas:
        raise RuntimeError("nowhere is no identity; make one")

    from pyspark.sql.streaming.datasource import ReadAllAvailable

    reader = SpoolStreamReader(options, connect)
    start = reader.initialOffset()
    assert wait_until(lambda: reader._receiver is not None and reader._receiver.failure is not None)
    with pytest.raises(RuntimeError, match="make one"):
        reader.latestOffset(start, ReadAllAvailable())
    reader.stop()


def test_the_reader_in_the_driver(tmp_path: Path, overlay: Overlay, publisher: Publisher) -> None:
    """What Spark does, step by step: a first query, its death, and a second one from the checkpoint."""
    import pickle

    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

    replicas = Replicas(overlay)
    grants = tmp_path / "keys.json"
    options = parse_options(
        {"spool": str(tmp_path / "spool"), "grants": str(grants), "identity": "i", "overlay": "o", "max_rows": "10"}
    )

    def connect(_: object) -> Replicas:
        return replicas

    reader = SpoolStreamReader(options, connect)
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    for _ in range(25):
        replicas.publish(publisher.seal("plant/a", time=time.time()))
    view = SpoolView(options.spool)
    assert wait_until(lambda: view.rows_between({}, view.latest()) == 25)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert reader.reportLatestOffset() == {
        "main": {**end["main"], "sealed_batches_behind": 0, "bytes_behind": 0, "seconds_behind": 0.0}
    }
    executor = pickle.loads(pickle.dumps(SpoolStreamReader(options, Replicas)))
    rows = [
        n for p in reader.partitions(start, end) for b in executor.read(p) for n in b.column("sequence").to_pylist()
    ]
    assert sorted(rows) == list(range(1, 26))
    reader.commit(end)
    reader.stop()

    again = SpoolStreamReader(options, connect)
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(end, ReadAllAvailable()) == end
    again.stop()
