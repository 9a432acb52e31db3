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
        return SimpleNamespace(clear_filter=topic, scope=SimpleNamespace(mode=mode))


class World:
    """The time and the epoch, which the test sets."""

    def __init__(self, *plain: str) -> None:
        self.now, self.epoch, self.gateway = NOW, 7, Gateway()
        overlay: Any = SimpleNamespace(
            policy=SimpleNamespace(calendar=SimpleNamespace(epoch_at=lambda now: self.epoch))
        )
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
    world.rights.forget_answers()
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


class Policy:
    """An overlay in which the gateway `g1` has rights that the test sets: names of rights by scope."""

    def __init__(self, **rights: str) -> None:
        self.granted = {scope.replace("_", "/") + "/#": set(given.split()) for scope, given in rights.items()}
        self.policy = SimpleNamespace(calendar=SimpleNamespace(epoch_at=lambda now: 0))

    def scope_named(self, name: str) -> Any:
        return SimpleNamespace(filter=name)

    def may_read(self, name: str, scope: Any, epoch: int) -> bool:
        return name == "g1" and "read" in self.granted[scope.filter]

    def may_publish_in(self, name: str, scope: Any, epoch: int) -> bool:
        return name == "g1" and "publish" in self.granted[scope.filter]

    @property
    def gateway(self) -> Any:
        scopes = [
            SimpleNamespace(clear_filter=each, scope=SimpleNamespace(filter=each, number=7)) for each in self.granted
        ]
        return SimpleNamespace(secrets=scopes)

    def rights(self, *protected: str) -> LocalRights:
        overlay: Any = self
        return LocalRights(lambda: overlay, lambda: NOW, (), "g1", protected)


@pytest.mark.parametrize(
    ("topic_filter", "allowed"),
    [
        ("ward/1", True),  # may be read
        ("site/1", True),  # may be published: local clients' publications come
        ("hall/1", False),
        ("hall/#", False),
        ("#", True),  # local topics, too
        ("hall_open/1", True),
        ("mixed/#", True),  # a part of it may be read
        ("mixed/shut", False),
        ("other/x", True),
        ("mine/x", False),  # protected, and no scope is known
    ],
)
def test_a_subscription_is_refused_only_where_nothing_can_reach_it(topic_filter: str, allowed: bool) -> None:
    policy = Policy(ward="read", site="publish", hall="", mixed="", mixed_part="read")
    rights = policy.rights("mine/#")
    rights.review(policy.gateway)
    assert rights.may_subscribe(policy.gateway, topic_filter) is allowed


def test_a_lost_right_to_read_ends_subscriptions_though_publishing_stays_allowed() -> None:
    policy = Policy(ward="publish read")
    rights = policy.rights()
    assert rights.review(policy.gateway), "the first review looks at subscriptions of before"
    assert not rights.review(policy.gateway)
    policy.granted["ward/#"] = {"publish"}
    assert rights.review(policy.gateway)
    assert not rights.may_subscribe(policy.gateway, "ward/1")
    (scope,) = rights.standing(policy.gateway)
    assert scope.number == 7
    assert (scope.publish, scope.read, scope.lost, scope.refused) == (True, False, ("read",), ("read",))
    policy.granted["ward/#"] = {"publish", "read"}
    rights.forget_answers()
    assert not rights.review(policy.gateway)
    assert rights.may_subscribe(policy.gateway, "ward/1")
    (scope,) = rights.standing(policy.gateway)
    assert (scope.lost, scope.refused) == ((), ())
