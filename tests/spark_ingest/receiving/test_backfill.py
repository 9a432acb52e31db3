"""The backfill by hand: what it reads, when it ends, and pages of nobody."""

from __future__ import annotations

from bridge.contract import HISTORY_TOPIC, HistoryPage, HistoryRequest
from bridge.document import History, Scope
from gateway.overlay import Properties, Publish
from spark_ingest.receiving import LANES_MAX, Backfill, SpoolCollector
from spark_ingest.spool.backfilled import BackfillRecord, ScopeRecord
from tests.sim.world import NOW, make_world

REPLICAS = ("r1a", "r1b", "r1c")
SCOPES = [Scope("plant/#", history=History(7, 100)), Scope("open/#")]


class Reading:
    def __init__(self, record: BackfillRecord | None) -> None:
        self.world = make_world({1: 3}, [], {"job": 1}, SCOPES)
        self.live = SpoolCollector(self.world.overlay, 1)
        self.sent: list[tuple[str, HistoryRequest]] = []
        self.backfill = Backfill(record, self.live, None, self._send, lambda names: None, NOW)

    def _send(self, peer: str, topic: str, payload: bytes) -> None:
        self.sent.append((peer, HistoryRequest.decode(payload)))

    def tick(self, now: float = NOW) -> None:
        self.backfill.go_on("job", self.world.overlay.policy.scopes, REPLICAS, now)

    def page(self, peer: str, payload: bytes) -> None:
        self.backfill.take_page(peer, Publish(HISTORY_TOPIC, payload, properties=Properties()), NOW)

    def answer_all(self) -> None:
        while self.sent:
            peer, request = self.sent.pop(0)
            told = {"eras": ()} if request.eras else {"is_end": True, "upto": request.after}
            self.page(peer, HistoryPage(request.number, 1, **told).encode())  # type: ignore[arg-type]


def test_scopes_with_a_history_are_read_and_then_it_is_over() -> None:
    reading = Reading(BackfillRecord(0))
    reading.tick()
    assert {peer for peer, _ in reading.sent} == set(REPLICAS)
    reading.answer_all()
    for _ in range(3):
        reading.tick()
        reading.answer_all()
    assert reading.backfill.is_over
    assert reading.backfill.record is not None
    assert {number: each.is_over for number, each in reading.backfill.record.scopes.items()} == {1: True}


def test_it_goes_on_where_the_record_says_less_what_may_have_come_late() -> None:
    upto_ms = int((NOW - 50_000) * 1000)
    begun = ScopeRecord(int((NOW - 80_000) * 1000), int(NOW * 1000), upto_ms)
    reading = Reading(BackfillRecord(0, {1: begun}))
    reading.tick()
    assert {upto_ms - 4_000_000 < request.from_ms < upto_ms - 3_000_000 for _, request in reading.sent} == {True}


def test_nothing_is_read_unless_it_is_asked_for() -> None:
    reading = Reading(None)
    reading.tick()
    assert not reading.sent
    reading.backfill.asks(int(NOW * 1000) - 5_000)
    reading.tick()
    assert len(reading.sent) == 3


def test_pages_that_nobody_asked_for_and_what_is_none_change_nothing() -> None:
    reading = Reading(BackfillRecord(0))
    reading.tick()
    reading.page("r1a", HistoryPage(5, is_end=True).encode())
    reading.page("r1a", b"no page")
    assert reading.live.figures["refused_history", "r1a"] == 1
    assert not reading.backfill.is_over


def test_a_scope_that_f_plus_one_refuse_is_over_and_said_to_be_refused() -> None:
    reading = Reading(BackfillRecord(0))
    reading.tick()
    for peer, request in reading.sent[:2]:
        reading.page(peer, HistoryPage(request.number, 1, is_refused=True).encode())
    reading.tick()
    assert reading.backfill.record is not None
    assert reading.backfill.record.scopes[1].is_refused


def test_workers_ask_under_numbers_of_their_own_by_which_pages_find_them() -> None:
    world = make_world({1: 3}, [], {"job": 1}, SCOPES)
    asked: dict[int, list[int]] = {}

    for lane in (0, 1, LANES_MAX - 1):
        numbers = asked.setdefault(lane, [])

        def send(peer: str, topic: str, payload: bytes, numbers: list[int] = numbers) -> None:
            numbers.append(HistoryRequest.decode(payload).number)

        backfill = Backfill(
            BackfillRecord(0), SpoolCollector(world.overlay, 1), None, send, lambda names: None, NOW, lane
        )
        backfill.go_on("job", world.overlay.policy.scopes, REPLICAS, NOW)
    for lane, numbers in asked.items():
        assert len(numbers) == len(REPLICAS)
        pages = [Publish(HISTORY_TOPIC, HistoryPage(number).encode(), properties=Properties()) for number in numbers]
        assert {Backfill.lane_of(page) for page in pages} == {lane}
