"""Events reach their receivers signed, again after failures; a slow or hostile receiver costs the broker nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.base.config import ConfigError, StartError, parse
from gateway.base.config_events import EventHook
from gateway.client import LocalEnd
from gateway.clients import INTERNAL
from gateway.mqtt5.packets import Publish
from gateway.telling import Hooks, signature
from gateway.telling import hooks as module
from tests.gateway.harness import Wire, serving
from tests.waits import until

URL = "https://ops.example.net/hook"


class Receiver:
    """A web address that answers as it is told."""

    def __init__(self, *answers: int) -> None:
        self.answers, self.got = list(answers), list[tuple[dict[str, Any], dict[str, str]]]()

    def post(self, url: str, body: bytes, headers: dict[str, str]) -> int:
        self.got.append((json.loads(body), headers))
        return self.answers.pop(0) if self.answers else 200


def told(tmp_path: Path, settings: list[dict[str, Any]], receiver: Receiver, act: Any) -> Hooks:
    found: list[Hooks] = []

    async def go() -> None:
        async with serving() as broker:
            client = LocalEnd(f"{INTERNAL}events", broker)
            hooks = Hooks([EventHook(**one) for one in settings], client, "b1", receiver.post)
            found.append(hooks)
            hooks.start()
            await until(lambda: client.connected)
            await act(hooks, broker)
            await hooks.stop()

    asyncio.run(go())
    return found[0]


def test_an_event_is_signed_and_repeated_under_one_id_until_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_FIRST_S", 0.001)
    secret = tmp_path / "secret"
    secret.write_text("shared\n")
    secret.chmod(0o600)
    receiver = Receiver(0, 503, 429, 200)

    async def act(hooks: Hooks, broker: Any) -> None:
        hooks.tell_event("connected", client="pump")
        hooks.tell_event("disconnected", client="pump")  # not wanted
        await until(lambda: hooks.hooks[0].delivered == 1)

    told(tmp_path, [{"url": URL, "kinds": ["connected"], "secret_file": secret}], receiver, act)
    assert len({event["id"] for event, _ in receiver.got}) == 1
    assert len(receiver.got) == 4
    event, headers = receiver.got[-1]
    assert (event["kind"], event["client"], event["broker"]) == ("connected", "pump", "b1")
    body = json.dumps(event, separators=(",", ":")).encode()
    assert headers["X-Veilmq-Signature"] == signature(b"shared", headers["X-Veilmq-Id"], headers["X-Veilmq-Time"], body)
    assert headers["X-Veilmq-Signature"] != signature(b"other", headers["X-Veilmq-Id"], headers["X-Veilmq-Time"], body)


@pytest.mark.parametrize("status", [301, 400, 401, 404])
def test_a_final_refusal_is_not_repeated(tmp_path: Path, status: int) -> None:
    receiver = Receiver(status)

    async def act(hooks: Hooks, broker: Any) -> None:
        hooks.tell_event("finding", text="x")
        await until(lambda: hooks.hooks[0].lost == 1)

    told(tmp_path, [{"url": URL, "kinds": ["finding"]}], receiver, act)
    assert len(receiver.got) == 1


def test_a_receiver_that_never_answers_is_given_up_and_its_queue_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_FIRST_S", 0.0)
    monkeypatch.setattr(module, "PAUSE_MOST_S", 0.0)

    async def act(hooks: Hooks, broker: Any) -> None:
        for number in range(module.QUEUE_MAX + 5):
            hooks.tell_event("connected", client=str(number))
        assert hooks.hooks[0].lost == 5
        await until(lambda: hooks.hooks[0].lost >= 6)

    told(tmp_path, [{"url": URL, "kinds": ["connected"]}], Receiver(*[0] * 100_000), act)


@pytest.mark.attack(153)
def test_a_client_that_comes_and_goes_without_end_loses_its_own_events() -> None:
    """Attack: its events filled the queue, and nobody heard of the pump that went."""
    waiting = module.WaitingEvents()
    waiting.put_event({"kind": "disconnected", "client": "pump"})
    lost = sum(waiting.put_event({"kind": "connected", "client": "evil"}) for _ in range(2 * module.QUEUE_MAX))
    assert lost == module.QUEUE_MAX + 1

    async def taken() -> list[str]:
        return [(await waiting.next_event())["client"] for _ in range(module.QUEUE_MAX)]

    assert asyncio.run(taken()) == ["pump"] + ["evil"] * (module.QUEUE_MAX - 1)


@pytest.mark.attack(168)
@pytest.mark.parametrize(
    "flood",
    [
        lambda number: ({"kind": "connected", "client": f"evil{number}"}, "user evil"),
        lambda number: ({"kind": "message", "topic": f"evil/{number}"}, ""),
    ],
    ids=["under ever new client ids", "on ever new topics"],
)
def test_events_of_others_stay_whatever_names_a_flood_has(flood: Any) -> None:
    """Attack: each name was a source of its own, and the oldest event of all went."""
    waiting = module.WaitingEvents()
    kept = [
        ({"kind": "disconnected", "client": "pump"}, "user plant"),
        ({"kind": "message", "topic": "plant/fire"}, ""),
        ({"kind": "finding", "about": "disk"}, ""),
    ]
    for event, owner in kept:
        waiting.put_event(event, owner)
    for number in range(2 * module.QUEUE_MAX):
        waiting.put_event(*flood(number))

    async def first() -> list[dict[str, Any]]:
        return [await waiting.next_event() for _ in kept]

    assert asyncio.run(first()) == [event for event, _ in kept]


def test_messages_of_a_filter_are_told_and_events_on_a_topic_tell_of_nothing(tmp_path: Path) -> None:
    receiver = Receiver()
    settings = [
        {"url": URL, "kinds": ["message"], "filters": ["alarm/#"]},
        {"topic": "alarm/events", "kinds": ["connected", "message"], "filters": ["alarm/#"]},
    ]

    async def act(hooks: Hooks, broker: Any) -> None:
        wire = await Wire.connect(broker, "pump")
        await wire.subscribe("alarm/events", 0)
        wire.publish("alarm/fire", b"hot")
        wire.publish("other", b"cold")
        wire.publish("alarm/raw", b"\xff")
        events = [json.loads((await wire.expect(Publish)).payload) for _ in range(2)]
        assert [(e["kind"], e["topic"]) for e in events] == [("message", "alarm/fire"), ("message", "alarm/raw")]
        await until(lambda: len(receiver.got) == 2)
        assert await wire.barrier() == []

    told(tmp_path, settings, receiver, act)
    assert [event.get("payload", event.get("payload_hex")) for event, _ in receiver.got] == ["hot", "ff"]


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ({"kinds": ["connected"]}, "either url or topic"),
        ({"url": URL, "topic": "a", "kinds": ["connected"]}, "either url or topic"),
        ({"url": "file:///etc/passwd", "kinds": ["connected"]}, "no web address"),
        ({"url": URL, "kinds": ["message"]}, "go together"),
        ({"url": URL, "kinds": ["connected"], "filters": ["a"]}, "go together"),
        ({"topic": "a/#", "kinds": ["connected"]}, "events"),
        ({"topic": "a", "kinds": ["born"]}, "events"),
        ({"topic": "a", "kinds": ["connected"], "secret_file": "s"}, "for url"),
    ],
)
def test_mistakes_of_the_configuration(hook: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match="events") as error:
        parse({"events": [hook]})
    assert said in str(error.value)


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o644)

    async def nothing(hooks: Hooks, broker: Any) -> None: ...

    with pytest.raises(StartError, match="events"):
        told(tmp_path, [{"url": URL, "kinds": ["connected"], "secret_file": secret}], Receiver(), nothing)
