"""How far replicas say that they reach: asked one thing at a time, and only while somebody looks."""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.contract import HISTORY_TOPIC, HistoryPage, HistoryRequest, Send
from bridge.document import History, Scope, ScopeSecret
from gateway.base import ScopeSpan
from gateway.overlay.reaching import ANSWER_S, ASK_EVERY_S, HomeReaches
from tests.sim.world import NOW, World, make_world

REPLICAS = ("r1a", "r1b", "r1c")
DAY_MS = 86_400_000
NOW_MS = int(NOW * 1000)
SCOPES = [Scope("plant/#", history=History(7, 100)), Scope("open/#"), Scope("yard/#", history=History(2, 100))]


@dataclass
class Looking:
    world: World = field(default_factory=lambda: make_world({1: 3}, [], {"desk": 1}, SCOPES))
    now: float = NOW
    up: tuple[str, ...] = REPLICAS
    sent: list[tuple[str, HistoryRequest]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reaches = HomeReaches("desk", self._send, lambda: self.now)

    def _send(self, send: Send) -> None:
        assert send.wire.topic == HISTORY_TOPIC
        self.sent.append((send.peer, HistoryRequest.decode(send.wire.payload)))

    def look(self) -> dict[str, ScopeSpan]:
        overlay = self.world.overlay
        secrets = [ScopeSecret(scope, scope.filter) for scope in overlay.policy.scopes]
        return {span.scope: span for span in self.reaches.known_spans(overlay, secrets, self.up)}

    def answer(self, since: dict[tuple[str, int], int]) -> None:
        while self.sent:
            peer, request = self.sent.pop(0)
            assert request.until_ms == 0, "nothing but how far it reaches"
            if (peer, request.scope) in since:
                page = HistoryPage(request.number, 1, since_ms=since[peer, request.scope], is_end=True)
                assert self.reaches.takes(peer, page.encode())


def test_each_replica_says_how_far_it_reaches_and_a_quorum_is_as_far_as_its_last() -> None:
    looking = Looking()
    first = looking.look()
    assert [each.note for each in first["plant/#"].replicas] == ["has not answered yet"] * 3
    assert sorted(peer for peer, _ in looking.sent) == sorted(REPLICAS), "one question to each at a time"
    plant, _, yard = (scope.number for scope in looking.world.overlay.policy.scopes)
    told = dict(zip(REPLICAS, (NOW_MS - 5 * DAY_MS, NOW_MS - 3 * DAY_MS, 0), strict=True))
    looking.answer({(peer, plant): at for peer, at in told.items()} | {("r1a", yard): NOW_MS - 9 * DAY_MS})
    spans = looking.look()
    assert set(spans) == {"plant/#", "yard/#"}
    assert [each.first_ms for each in spans["plant/#"].replicas] == list(told.values())
    assert spans["plant/#"].replicas[2].note == "has nothing"
    assert (spans["plant/#"].needed, spans["plant/#"].first_ms) == (2, NOW_MS - 3 * DAY_MS)
    assert spans["yard/#"].replicas[0].first_ms == NOW_MS - 2 * DAY_MS, "what is older is not handed out"
    assert spans["yard/#"].first_ms == 0, "one alone is no quorum"


def test_nothing_is_asked_again_before_its_time_and_the_silent_are_passed_over() -> None:
    looking = Looking(up=REPLICAS[:2])
    assert looking.look()["plant/#"].replicas[2].note == "away"
    assert {peer for peer, _ in looking.sent} == set(REPLICAS[:2])
    looking.sent.clear()
    looking.now += min(ANSWER_S, ASK_EVERY_S) / 2
    looking.look()
    assert not looking.sent
    looking.now += max(ANSWER_S, ASK_EVERY_S)
    looking.look()
    assert len(looking.sent) == 2


def test_pages_of_readings_late_answers_and_garbage_change_nothing() -> None:
    looking = Looking()
    looking.look()
    peer, request = looking.sent[0]
    assert not looking.reaches.takes(peer, HistoryPage(5, 1, is_end=True).encode()), "of a reading"
    assert not looking.reaches.takes(peer, b"garbage"), "the node says who sent it"
    assert looking.reaches.takes(
        "r1b" if peer != "r1b" else "r1c", HistoryPage(request.number + 99, 1, since_ms=7).encode()
    )
    assert looking.reaches.takes("nobody", HistoryPage(request.number, 1, since_ms=7).encode())
    assert [each.first_ms for each in looking.look()["plant/#"].replicas] == [0, 0, 0]


def test_whoever_may_not_read_a_scope_asks_nobody() -> None:
    looking = Looking(world=make_world({1: 3}, [], {"desk": 1}, SCOPES, rights={"desk": (["#"], ["open/#"])}))
    assert looking.look() == {}
    assert not looking.sent
