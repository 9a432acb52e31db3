"""Where batches travel, and who may publish there: on every topic of the scope, or not at all."""

from __future__ import annotations

import pytest

from bridge.document import batch_topic
from bridge.document.policy import Scope
from tests.sim.world import World, make_world


def world_of(scopes: list[str], grants: list[str]) -> World:
    return make_world({1: 3}, [], {"a": 1}, [Scope(each) for each in scopes], publish=grants)


@pytest.mark.parametrize(
    ("topic_filter", "topic"),
    [("plant/#", "plant/~"), ("#", "~"), ("alarm", "alarm"), ("a/b/#", "a/b/~"), ("+/a/#", None), ("a/+", None)],
)
def test_each_scope_has_one_topic_for_batches(topic_filter: str, topic: str | None) -> None:
    assert batch_topic(topic_filter) == topic


def test_a_scope_inside_which_others_lie_has_none() -> None:
    overlay = world_of(["plant/#", "plant/secret/#", "open/#"], ["#"]).overlay
    found = {scope.filter: overlay.batch_topic(scope) for scope in overlay.policy.scopes}
    assert found == {"plant/#": None, "plant/secret/#": "plant/secret/~", "open/#": "open/~"}
    assert not overlay.may_publish("a", "plant/~", 0)  # its records could be of the scope inside


@pytest.mark.parametrize("grant", ["plant/+", "plant/a/#", "plant/~", "plant/+/+"])
def test_who_may_not_publish_on_every_topic_sends_no_batches(grant: str) -> None:
    overlay = world_of(["plant/#"], [grant]).overlay
    assert not overlay.may_publish("a", "plant/~", 0)
    assert not overlay.may_publish("a", "plant/a/~", 0)


def test_who_may_does_and_no_other_topic_ends_so() -> None:
    overlay = world_of(["plant/#"], ["plant/#"]).overlay
    assert overlay.may_publish("a", "plant/~", 0)
    assert overlay.may_publish("a", "plant/x~", 0)
    assert not overlay.may_publish("a", "plant/a/~", 0)
