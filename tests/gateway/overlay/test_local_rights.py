"""What a gateway may publish is remembered until something changes, and what it may not is said seldom."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.base.log_events import LogEvent
from gateway.overlay import local_rights as module
from gateway.overlay.local_rights import SAY_EVERY_S, LocalRights
from keys.envelope import Mode

NOW = 1000.0


class Gateway:
    """May publish below `ward/`; `open/` is a plain scope."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def may_publish(self, topic: str, now: float) -> bool:
        self.asked.append(topic)
        return topic.startswith(("ward/", "open/"))

    def secret_for(self, topic: str) -> Any:
        mode = Mode.PLAIN if topic.startswith("open/") else Mode.ONE
        return SimpleNamespace(scope=SimpleNamespace(mode=mode))


class World:
    """The time and the epoch, which the test sets."""

    def __init__(self, *plain: str) -> None:
        self.now, self.epoch, self.gateway = NOW, 7, Gateway()
        overlay: Any = SimpleNamespace(policy=SimpleNamespace(calendar=SimpleNamespace(at=lambda now: self.epoch)))
        self.rights = LocalRights(lambda: overlay, lambda: self.now, plain)

    def may(self, topic: str) -> bool:
        gateway: Any = self.gateway
        return self.rights.may_publish(gateway, topic)


def test_an_answer_is_remembered_until_the_epoch_ends_or_the_overlay_changes() -> None:
    world = World()
    assert [world.may("ward/1"), world.may("ward/1"), world.may("hall/1")] == [True, True, False]
    assert world.gateway.asked == ["ward/1", "hall/1"]
    world.epoch += 1
    assert world.may("ward/1")
    world.rights.forget()
    assert world.may("ward/1")
    assert world.gateway.asked.count("ward/1") == 3


def test_names_that_a_client_invents_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RIGHTS_MAX", 3)
    world = World()
    for number in range(20):
        world.may(f"ward/{number}")
        assert len(world.rights._known) <= 3


def test_what_we_hold_sealed_does_not_go_by_a_scope_that_became_plain() -> None:
    assert not World().may("open/1")
    assert World("open/#").may("open/1")


def test_refusals_are_said_once_in_a_while_each_kind_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    with caplog.at_level(logging.WARNING, "veilmq.links"):
        for _ in range(3):
            world.rights.say_refused(LogEvent.TOO_LARGE_FOR_REPLICAS, "meter")
            world.rights.say_refused(LogEvent.RESPONSE_TOPIC_UNPROTECTED, "meter")
        assert len(caplog.records) == 2
        world.now += SAY_EVERY_S
        world.rights.say_refused(LogEvent.TOO_LARGE_FOR_REPLICAS, "meter")
        assert len(caplog.records) == 3
