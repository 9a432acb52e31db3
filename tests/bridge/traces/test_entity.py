"""What an entity hands over in a new session: the token of before while it is young, and never elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bridge.base import Wall
from bridge.traces.entity import RENEW_AFTER_S, BrokerConnected, Told, TracedEntity
from bridge.traces.kinds import REGISTRATION_TOPIC, answers_to
from bridge.traces.tracer import Say
from keys.delegation import Seat
from keys.tracesession import Registration, TraceSession, Word, registered
from tests.bridge.traces.test_tracer import NOW, advertised
from tests.keys.test_delegation import AUTHORITY, NODE, PUMP, certified


class Broker:
    """Answers registrations, and keeps the tokens that it is given."""

    def __init__(self) -> None:
        self.wall, self.rng = Wall(), random.Random(1)
        self.entity = TracedEntity(
            PUMP, certified(PUMP, "pump-7"), {"node-1": NODE.public_bytes}, AUTHORITY.public_bytes, self.rng.randbytes,
            advertisement=advertised(), wall=self.wall,
        )  # fmt: skip

    def token_at(self, now: float) -> bytes:
        (asked,) = [
            each for each in self.entity.handle(BrokerConnected(), now)
            if isinstance(each, Say) and each.topic == REGISTRATION_TOPIC
        ]  # fmt: skip
        registration = Registration.decode(asked.payload)
        session, key = self.rng.randbytes(16), self.rng.randbytes(32)
        answer = registered(registration.request, session, key, advertised(), self.rng.randbytes(32))
        ours = TraceSession(session, key, 1, PUMP.public_bytes)
        said = [ours.hear(each.payload) for each in self.entity.handle(Told(answers_to("pump-7"), answer), now)
                if isinstance(each, Say)]  # fmt: skip
        (token,) = [body for word, body in said if word is Word.TOKEN]
        return token


def test_a_young_token_is_handed_over_again_and_renewed_when_it_would_have_been() -> None:
    broker = Broker()
    first = broker.token_at(NOW)
    assert broker.token_at(NOW + 100) == first
    assert broker.entity.next_deadline == NOW + RENEW_AFTER_S
    assert broker.token_at(NOW + RENEW_AFTER_S) != first


def _other_topic(broker: Broker) -> None:
    broker.entity._advertisement = advertised(topic=b"U" * 16)


def _other_seat(broker: Broker) -> None:
    broker.entity.seat = Seat(1, 3, int(NOW * 1000))


def _clock_set(broker: Broker) -> None:
    broker.wall.offset_s += 5


@pytest.mark.parametrize("changes", [_other_topic, _other_seat, _clock_set])
def test_for_another_topic_seat_or_time_there_is_another_token(changes: Callable[[Broker], None]) -> None:
    broker = Broker()
    first = broker.token_at(NOW)
    changes(broker)
    assert broker.token_at(NOW + 1) != first
