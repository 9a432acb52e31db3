"""An entity that is silent here is asked through a broker that hears it, which enforces who says what there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.traces import AskThere
from bridge.traces.kinds import relayed_from, relayed_to
from gateway.base import OtherWitnessSettings
from gateway.mqtt5.packets import Publish
from gateway.tracing.other_witnesses import ASKED_MAX, OtherWitnesses
from gateway.trust import TrustError
from tests.gateway.harness import Wire
from tests.gateway.traced_site import WAIT_S, Site

TOPIC, SESSION = bytes(range(16)), bytes(range(16, 32))


def asked(session: bytes = SESSION, holder: str = "pump") -> AskThere:
    of = holder, TOPIC, session
    return AskThere(session, relayed_to(*of), b"alive?", relayed_from(*of), holder)


def test_the_entity_alone_hears_it_and_answers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Site(tmp_path).serving() as broker:
            others = OtherWitnesses(OtherWitnessSettings(brokers=[f"127.0.0.1:{broker.port()}"]), "gate-2")
            up: list[int] = []
            heard: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue()
            others.start(up.append, lambda *what: heard.put_nowait(what))
            pump, thief = await Wire.connect(broker, "pump"), await Wire.connect(broker, "thief")
            assert await pump.subscribe(relayed_to("pump", TOPIC, SESSION)) == 0
            assert await thief.subscribe(relayed_to("pump", TOPIC, SESSION)) == 0x87
            async with asyncio.timeout(WAIT_S):
                while not up:
                    await asyncio.sleep(0.01)
            others.ask_witnesses(asked())
            said = await pump.expect(Publish)
            assert said.payload == b"alive?"
            thief.publish(relayed_from("pump", TOPIC, SESSION), b"it lives", qos=1)
            pump.publish(relayed_from("pump", TOPIC, SESSION), b"I do")
            async with asyncio.timeout(WAIT_S):
                assert await heard.get() == (SESSION, b"I do")
            assert up == [1]
            others.stop()
            assert others._closing is not None
            await others._closing
            assert others.reached_count == 0

    asyncio.run(scenario())


def test_what_is_asked_of_ever_more_sessions_stays_bounded() -> None:
    others = OtherWitnesses(OtherWitnessSettings(brokers=["127.0.0.1:1", "127.0.0.1:3-5"]), "gate-2")
    assert len(others._clients) == 4
    for number in range(ASKED_MAX + 5):
        others.ask_witnesses(asked(number.to_bytes(16)))
    assert len(others._asked) == ASKED_MAX
    assert next(others._asked.items())[0] == (5).to_bytes(16)


@pytest.mark.attack(169)
def test_a_holder_of_thousands_that_are_silent_ends_no_question_of_others() -> None:
    """Attack: thousands of one holder's entities fall silent, and answers of others found nobody who listens."""
    others = OtherWitnesses(OtherWitnessSettings(brokers=["127.0.0.1:1"]), "gate-2")
    others.ask_witnesses(asked(SESSION, "door"))
    for number in range(2 * ASKED_MAX):
        others.ask_witnesses(asked(number.to_bytes(16), "evil"))
    assert others._asked.get(SESSION) is not None
    assert len(others._asked) == ASKED_MAX


def test_another_broker_may_send_whatever_it_likes() -> None:
    others = OtherWitnesses(OtherWitnessSettings(brokers=["127.0.0.1:1"]), "gate-2")
    heard: list[bytes] = []
    others._heard = lambda session, data: heard.append(session)
    for topic in ("x", "", "a/b", "a/zz/Relayed", relayed_from("pump", TOPIC, SESSION)):
        others._came(Publish(topic, b""))
    assert heard == [SESSION]


@pytest.mark.parametrize("settings", [
    {"brokers": ["nowhere:x"]}, {"brokers": ["a:1"], "password_file": "/no"}, {"brokers": ["a:1"], "cafile": "/no"},
])  # fmt: skip
def test_what_cannot_be_used_is_said_in_one_line(settings: dict[str, object]) -> None:
    with pytest.raises(TrustError):
        OtherWitnesses(OtherWitnessSettings(**settings), "gate-2")  # type: ignore[arg-type]
