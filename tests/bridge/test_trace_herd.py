"""A broker restarts, and all its entities come back within a second: what it keeps, when it pings, what they do."""

from __future__ import annotations

import random
from collections import Counter, deque
from itertools import pairwise

import pytest

from bridge.contract.machine import Count, Tick
from bridge.traces.kinds import REGISTRATION_TOPIC, answers_to
from bridge.traces.pings import Pulse
from bridge.traces.presets import LAN
from bridge.traces.tracer import DUE_AT_ONCE, SPEAKS_S, Registering, Say, Spoke, Tracer
from bridge.tracking.entity import ASK_AGAIN_S, BrokerConnected, TracedEntity
from keys.delegation import Advertisement
from keys.tracesession import Registration, TraceSession, Word, open_registered
from tests.bridge.traces.test_tracer import NOW, NOW_MS, advertised
from tests.keys.test_delegation import AUTHORITY, NODE, PUMP, certified
from tests.seldom import slow

ROUND_TRIP_S = 0.002


class Herd:
    """So many entities at one tracer; signatures are not what this is about, and verified nowhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        monkeypatch.setattr(Advertisement, "verify", lambda *arguments: None)
        monkeypatch.setattr(Registration, "verify", lambda *arguments: None)
        self.tracer = Tracer(LAN, {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, random.Random(1).randbytes)
        self.sessions: dict[bytes, TraceSession] = {}
        self.counted: Counter[str] = Counter()
        self.pinged: list[float] = []
        self.most_at_once = 0
        self.advertisement = advertised()
        self.number = number
        self._answers: deque[tuple[float, bytes, bytes]] = deque()

    def register(self, place: int, now: float) -> None:
        topic = place.to_bytes(16)
        own = Advertisement(
            topic, self.advertisement.descriptor, self.advertisement.certificate, ("desk*",), NOW_MS,
            self.advertisement.not_after_ms, "node-1", bytes(64),
        )  # fmt: skip
        request = Registration(own.encode(), b"r" * 16, int(now * 1000), bytes(64))
        effects = self.tracer.handle(Registering("pump-7", request.encode()), now)
        (answer,) = [e for e in effects if isinstance(e, Say) and e.topic == answers_to("pump-7")]
        _, session, key = open_registered(answer.payload, PUMP)
        self.sessions[session] = TraceSession(session, key, 0)
        self.take(effects, now)

    def take(self, effects: list, now: float) -> None:  # type: ignore[type-arg]
        pings = [e for e in effects if isinstance(e, Say) and not e.qos]
        self.most_at_once = max(self.most_at_once, len(pings))
        for ping in pings:
            self.pinged.append(now)
            session = bytes.fromhex(ping.topic.rpartition("/")[2])
            word, body = self.sessions[session].hear(ping.payload)
            assert word is Word.PING
            self._answers.append((now + ROUND_TRIP_S, session, self.sessions[session].say_word(Word.ANSWER, body)))
        for effect in effects:
            if isinstance(effect, Count):
                self.counted[effect.name] += 1

    def run(self, until: float, now: float) -> None:
        """Pings that are due, and answers in the order in which they come."""
        while (due := self.tracer.next_deadline) is not None:
            if self._answers and self._answers[0][0] <= max(due, now):
                now, session, payload = self._answers.popleft()
                effects = self.tracer.handle(Spoke("client", session, payload), now)
            elif max(due, now) > until:
                return
            else:
                now = max(due, now)
                effects = self.tracer.handle(Tick(), now)
            self.take(effects, now)


@pytest.mark.parametrize("number", [3_000, *slow([10_000])])
def test_thousands_at_once_are_kept_within_bounds_and_pinged_evenly(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    herd = Herd(monkeypatch, number)
    for place in range(number):  # all in one instant: the worst that can come
        herd.register(place, NOW)
    herd.run(NOW + SPEAKS_S + 2.5, NOW)
    assert len(herd.tracer) == number
    assert herd.most_at_once <= DUE_AT_ONCE
    assert not herd.counted["traces_unauthorised"], "nobody was suspected: there was nothing to tell"
    begun = NOW + SPEAKS_S  # nobody speaks before
    tenths = Counter(int((at - begun) * 10) for at in herd.pinged if begun + 1.5 <= at < begun + 2.5)
    assert sum(tenths.values()) == pytest.approx(2 * number, rel=0.02), "newcomers are pinged twice a second"
    assert max(tenths.values()) < 2 * sum(tenths.values()) / 10, "no tenth of a second has twice its share"


def test_a_turn_that_comes_late_for_all_sends_no_burst_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    number = 1_000
    herd = Herd(monkeypatch, number)
    for place in range(number):
        herd.register(place, NOW + place / number)
    herd.run(NOW + SPEAKS_S + 3, NOW + 1)
    herd.run(NOW + SPEAKS_S + 6, NOW + SPEAKS_S + 5)  # two seconds without a turn
    assert not herd.counted["traces_unauthorised"], "it was the broker that was late"
    assert herd.most_at_once <= DUE_AT_ONCE


def test_a_newcomer_is_pinged_at_the_usual_interval_by_a_broker_that_comes_late() -> None:
    late_s = LAN.interval_s / 2
    for comes_s, interval_s in ((0.0, LAN.interval_s / 2), (late_s, LAN.interval_s)):
        pulse, sent = Pulse(LAN, NOW), list[float]()
        while len(sent) < 5:
            now = pulse.next_deadline + comes_s
            ping, changed = pulse.tick(now)
            assert ping is not None
            assert changed is None
            pulse.take_echo(ping.number, ping.sent_ms, now + ROUND_TRIP_S)
            sent.append(now)
        gaps = [later - earlier - comes_s for earlier, later in pairwise(sent)]
        assert gaps == [pytest.approx(interval_s)] * 4


def test_clients_ask_again_later_and_later_and_not_all_together() -> None:
    def asked(name: str) -> list[float]:
        rng, now = random.Random(name), NOW
        entity = TracedEntity(
            PUMP, certified(PUMP, name), {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, rng.randbytes,
            advertisement=advertised(name),
        )  # fmt: skip
        times = [NOW] if any(_is_registration(e) for e in entity.handle(BrokerConnected(), NOW)) else []
        while len(times) < 4:
            assert entity.next_deadline is not None
            now = entity.next_deadline
            times += [now] if any(_is_registration(e) for e in entity.handle(Tick(), now)) else []
        return times

    tries = [asked(f"pump-{place}") for place in range(200)]
    for nth in (1, 2, 3):
        pauses = [times[nth] - times[nth - 1] for times in tries]
        usual_s = ASK_AGAIN_S * 2 ** (nth - 1)
        assert all(usual_s / 2 <= pause <= usual_s * 1.5 for pause in pauses)
        seconds = Counter(int(times[nth]) for times in tries)
        assert max(seconds.values()) < len(tries) / 2, "spread over seconds"


def _is_registration(effect: object) -> bool:
    return isinstance(effect, Say) and effect.topic == REGISTRATION_TOPIC
