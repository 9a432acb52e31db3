"""What we may publish: on some topic of a scope, on a topic, on all topics of a batch."""

from __future__ import annotations

from dataclasses import replace

from bridge.contract.batches import Numbered, packed
from bridge.contract.machine import Publication
from bridge.document.policy import Scope
from bridge.publisher.former_scopes import OwnRights
from tests.sim.world import NOW, World, make_world


def worlds(publish: tuple[str, ...]) -> World:
    return make_world({1: 3}, [], {"site": 1}, [Scope("open/#"), Scope("open/a/#")], publish=publish)


def batch(*topics: str) -> Publication:
    return packed("open/#", [Numbered(n, Publication(topic, b"x", 1)) for n, topic in enumerate(topics, 1)])


def test_a_batch_may_go_if_each_of_its_records_may() -> None:
    world = worlds(("open/x", "open/y"))
    rights, broad = OwnRights(world.overlay, "site"), world.secrets[0]
    assert rights.some(broad, NOW)
    assert [rights.may_hold_record(broad, topic, NOW) for topic in ("open/x", "open/z", "open/a/t")] == [
        True,
        False,
        False,
    ]
    assert rights.whole(broad, batch("open/x", "open/y"), NOW)
    assert not rights.whole(broad, batch("open/x", "open/z"), NOW)
    assert rights.topic(broad, "open/y", NOW)


def test_of_all_topics_of_a_narrower_scope_none_is_the_broader_ones() -> None:
    world = worlds(("#",))
    rights, (broad, narrow) = OwnRights(world.overlay, "site"), world.secrets
    assert not rights.whole(broad, batch("open/x", "open/a/t"), NOW)
    assert rights.may_hold_record(narrow, "open/a/t", NOW)


def test_a_retiring_scope_takes_what_was_sealed_in_it_and_nothing_else() -> None:
    world = worlds(("#",))
    retiring = replace(world.overlay.policy.scopes[0], retiring=True)
    rights = OwnRights(world.with_policy(scopes=(retiring,)), "site")
    secret = replace(world.secrets[0], scope=retiring)
    assert not rights.whole(secret, batch("open/x"), NOW)
    assert not rights.some(secret, NOW)
    assert rights.whole(secret, batch("open/x"), NOW, began=True)


def test_without_a_scope_nothing_may_go() -> None:
    world = worlds(("#",))
    rights = OwnRights(world.with_policy(scopes=()), "site")
    assert not rights.some(world.secrets[0], NOW)
    assert not rights.whole(world.secrets[0], batch("open/x"), NOW, began=True)
