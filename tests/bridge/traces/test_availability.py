"""What a subscriber of the availability topics sees when devices come, go, fall silent or flap."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.base import Wall
from bridge.contract.machine import Count, Tick
from bridge.document.own_topics import OwnTopics
from bridge.traces.availability import (
    MAX_ENTITIES,
    Announce,
    Availability,
    EntityConnected,
    EntityGone,
    EntityRemembered,
    EntitySeen,
    announced_before,
    availability_topic,
    client_id_of,
    entity_level,
)


def bodies(effects: Sequence[object]) -> list[dict[str, Any]]:
    return [json.loads(e.publication.payload) for e in effects if isinstance(e, Announce)]


def connected(name: str, keep_alive_s: int = 0) -> EntityConnected:
    return EntityConnected(name, keep_alive_s)


def gone(name: str, clean: bool = False, reason: str = "") -> EntityGone:
    return EntityGone(name, clean, reason)


def test_home_assistant_can_read_the_retained_json() -> None:
    machine = Availability("gw1")
    (effect,) = machine.handle(connected("pump"), 100.0)
    assert isinstance(effect, Announce)
    publication = effect.publication
    assert publication.topic == "entities/gw1/pump/availability"
    assert publication.retain
    assert publication.qos == 1
    assert publication.content_type == "application/json"
    body = json.loads(publication.payload)
    assert (body["state"], body["reason"]) == ("online", "connected")
    assert body["since"] == body["last_seen"] == 100_000


def test_a_clean_end_a_lost_connection_and_a_reason_from_the_broker() -> None:
    machine = Availability("gw1", settle_s=0)
    for now, event, reason in [
        (10.0, gone("d", clean=True), "disconnected"),
        (20.0, gone("d"), "connection lost"),
        (30.0, gone("d", reason="sent a malformed packet"), "sent a malformed packet"),
    ]:
        machine.handle(connected("d"), now - 5)
        (body,) = bodies(machine.handle(event, now))
        assert (body["state"], body["reason"], body["since"]) == ("offline", reason, int(now * 1000))


def test_silence_beyond_one_and_a_half_keep_alives_is_offline() -> None:
    machine = Availability("gw1")
    machine.handle(connected("d", 10), 0.0)
    assert machine.handle(EntitySeen("d"), 9.0) == []
    assert bodies(machine.handle(Tick(), 23.9)) == []
    (body,) = bodies(machine.handle(Tick(), 24.0))
    assert (body["state"], body["last_seen"], body["since"]) == ("offline", 9000, 24_000)
    (body,) = bodies(machine.handle(EntitySeen("d"), 30.0))
    assert (body["state"], body["reason"]) == ("online", "seen again")


def test_without_keep_alive_silence_means_nothing() -> None:
    machine = Availability("gw1")
    machine.handle(connected("d", 0), 0.0)
    machine.handle(Tick(), 1e6)
    assert machine.state_of("d") == "online"


def test_traffic_of_a_live_entity_is_published_once_per_refresh() -> None:
    machine = Availability("gw1", refresh_s=300)
    effects = list(machine.handle(connected("d"), 0.0))
    for second in range(1, 1000):
        effects += machine.handle(EntitySeen("d"), float(second))
    assert [b["last_seen"] for b in bodies(effects)] == [0, 300_000, 600_000, 900_000]


def test_a_flapping_entity_costs_one_publication_per_settle_time_and_the_last_state_wins() -> None:
    machine = Availability("gw1", settle_s=1.0)
    effects: list[object] = []
    for n in range(100):
        effects += machine.handle(connected("d"), n * 0.01)
        effects += machine.handle(gone("d"), n * 0.01 + 0.005)
    assert len(bodies(effects)) <= 2
    assert machine.next_deadline == 1.0
    (body,) = bodies(machine.handle(Tick(), 1.0))
    assert body["state"] == "offline"
    assert machine.next_deadline is None


def test_a_connection_that_replaces_another_changes_nothing_but_the_time() -> None:
    machine = Availability("gw1", settle_s=0)
    machine.handle(connected("d"), 0.0)
    assert machine.handle(connected("d"), 1.0) == []
    (body,) = bodies(machine.handle(gone("d"), 2.0))
    assert (body["since"], body["last_seen"]) == (2000, 1000)


def test_entities_remembered_from_before_a_restart_are_declared_offline_unless_they_return() -> None:
    machine = Availability("gw1", rejoin_s=60)
    assert machine.handle(EntityRemembered("back", 1000, 2000), 100.0) == []
    assert machine.handle(EntityRemembered("gone", 1000, 2000), 100.0) == []
    (body,) = bodies(machine.handle(connected("back"), 110.0))
    assert (body["entity"], body["state"], body["since"]) == ("back", "online", 1000)
    assert machine.next_deadline == 160.0
    (body,) = bodies(machine.handle(Tick(), 160.0))
    assert (body["entity"], body["state"], body["last_seen"]) == ("gone", "offline", 2000)


def test_ever_new_names_cannot_grow_memory_nor_evict_the_living() -> None:
    machine = Availability("gw1", max_entities=3)
    for name in "abc":
        machine.handle(connected(name), 0.0)
    effects = machine.handle(connected("d"), 1.0)
    assert effects == [Count("availability_refused")]
    machine.handle(gone("b"), 2.0)
    effects = machine.handle(connected("d"), 3.0)
    cleared = [e.publication for e in effects if isinstance(e, Announce) and not e.publication.payload]
    assert [p.topic for p in cleared] == ["entities/gw1/b/availability"]
    assert cleared[0].retain
    assert (machine.state_of("b"), machine.state_of("d"), len(machine)) == (None, "online", 3)


@pytest.mark.attack(163)
def test_who_comes_under_ever_new_names_takes_no_state_of_others() -> None:
    """Attack: a user without any right connects under a hundred thousand client ids, and who was away is forgotten."""
    machine = Availability("gw1", max_entities=6)
    machine.handle(EntityRemembered("remembered", 1_000, 2_000), 0.0)
    machine.handle(Tick(), 100.0)
    for name in ("pump", "valve"):
        machine.handle(EntityConnected(name, 30, owner="user plant"), 100.0)
        machine.handle(gone(name), 101.0)
    for number in range(20):
        machine.handle(EntityConnected(f"x{number}", 30, owner="user evil"), 102.0)
        machine.handle(gone(f"x{number}"), 102.0)
    assert [machine.state_of(name) for name in ("remembered", "pump", "valve")] == ["offline"] * 3
    assert [machine.state_of(f"x{number}") for number in (16, 17, 19)] == [None, "offline", "offline"]


@pytest.mark.parametrize("prefix", ["", "a/+", "#", "$SYS", "/a"])
def test_a_prefix_that_is_no_plain_topic_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="plain topic"):
        Availability("gw1", prefix=prefix)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=400))
@settings(max_examples=100, deadline=None)
def test_any_client_id_is_one_harmless_level(client_id: str) -> None:
    level = entity_level(client_id)
    assert level
    assert len(level) <= 200
    assert not set(level) & set("/+#$\0 ")
    assert client_id_of(level) == (client_id if len(quote(client_id, safe="")) <= 200 else None)
    assert availability_topic("g", client_id).count("/") == 3


@pytest.mark.parametrize(("client_id", "level"), [
    ("", "%-"), ("pump-7", "pump-7"), ("a/b", "a%2Fb"), ("+#$", "%2B%23%24"), ("%-", "%25-"), ("ü", "%C3%BC"),
])  # fmt: skip
def test_a_level_names_its_client(client_id: str, level: str) -> None:
    assert entity_level(client_id) == level
    assert client_id_of(level) == client_id


def test_a_level_of_200_bytes_is_not_cut_and_one_of_more_is() -> None:
    assert client_id_of(entity_level("x" * 200)) == "x" * 200
    assert client_id_of(entity_level("x" * 201)) is None


def test_ids_that_are_cut_stay_different_and_cannot_be_imitated() -> None:
    long = "x" * 300
    levels = {
        entity_level(long),
        entity_level(long + "y"),
        entity_level(entity_level(long)),
        entity_level(""),
    }
    assert len(levels) == 4


steps = st.lists(
    st.tuples(
        st.sampled_from(["connect", "seen", "gone", "tick"]),
        st.sampled_from("abc"),
        st.floats(0, 40, allow_nan=False),
    ),
    max_size=60,
)


@given(steps)
@settings(max_examples=100, deadline=None)
def test_the_published_state_follows_the_true_one_and_rests(history: list[tuple[str, str, float]]) -> None:
    machine = Availability("gw1", settle_s=1, refresh_s=10, max_entities=3)
    now = 0.0
    shown: dict[str, str] = {}
    times: dict[str, float] = {}

    def drive(event: object, at: float) -> None:
        for effect in machine.handle(event, at):  # type: ignore[arg-type]
            if isinstance(effect, Announce):
                body = json.loads(effect.publication.payload)
                assert at >= times.get(body["entity"], -1e9) + 1  # settle
                times[body["entity"]] = at
                shown[body["entity"]] = body["state"]

    for kind, name, pause in history:
        until = now + pause
        while (due := machine.next_deadline) is not None and due <= until:
            assert due >= now
            now = due
            drive(Tick(), now)
            assert machine.next_deadline is None or machine.next_deadline > now
        now = until
        if kind == "connect":
            drive(connected(name, 5), now)
        elif kind == "seen":
            drive(EntitySeen(name), now)
        elif kind == "gone":
            drive(gone(name), now)
    for _ in range(20):  # without traffic everything ends offline, is shown so, and nothing remains to be done
        if machine.next_deadline is not None:
            now = machine.next_deadline
            drive(Tick(), now)
    assert machine.next_deadline is None
    assert set(shown.values()) <= {"offline"}


# ------------------------------------------------------------------------------------- what stands in a document


def test_a_document_says_who_how_since_when_and_by_whom() -> None:
    machine = Availability("gw1", prefix="site/here", wall=Wall(1_000.0))
    machine.handle(connected("büro 7"), 100.0)
    machine.handle(EntitySeen("büro 7"), 150.0)
    (effect,) = machine.handle(gone("büro 7", clean=True), 200.0)
    assert isinstance(effect, Announce)
    publication = effect.publication
    assert publication.topic == "site/here/gw1/b%C3%BCro%207/availability"
    assert publication.payload.decode() == (
        '{"state":"offline","since":1200000,"last_seen":1150000,"reason":"disconnected",'
        '"entity":"büro 7","gateway":"gw1"}'
    )
    assert (publication.qos, publication.retain, publication.time_ms) == (1, True, 1_200_000)
    assert (publication.content_type, publication.payload_format) == ("application/json", 1)


def test_a_long_id_is_cut_in_half_of_the_room_and_told_apart_by_a_hash() -> None:
    assert entity_level("x" * 201) == "x" * 100 + "%-" + hashlib.sha256(b"x" * 201).hexdigest()[:32]


def test_nobody_else_says_who_is_available() -> None:
    own = OwnTopics()
    Availability("gw 1", prefix="site").reserve_topics(own)
    assert own.are_ours("site/gw%201/pump/availability")
    assert not own.are_ours("site/gw2/pump/availability")
    assert "site/gw2/pump/availability" in own
    assert "entities/gw1/pump/availability" not in own
    assert "site/gw%201/pump/other" not in own


def test_an_entity_that_nobody_saw_has_no_state_and_starts_from_nothing() -> None:
    machine = Availability("gw1")
    assert (machine.state_of("d"), len(machine), machine.next_deadline) == (None, 0, None)
    assert machine.handle(EntitySeen("d"), 1.0) == machine.handle(gone("d"), 1.0) == []
    assert len(machine) == 0
    assert machine._max_entities == MAX_ENTITIES


# ------------------------------------------------------------------------------------------ before a restart


def announced(client: str = "pump", gateway: str = "gw1", state: str = "online") -> tuple[str, dict[str, Any]]:
    body = {"state": state, "since": 1_000, "last_seen": 2_000, "reason": "x", "entity": client, "gateway": gateway}
    return availability_topic(gateway, client), body


@pytest.mark.parametrize("client", ["pump", "a/b+#", "", "x" * 300])
def test_what_was_announced_before_a_restart_is_read_back(client: str) -> None:
    topic, body = announced(client)
    remembered = announced_before("gw1", topic, json.dumps(body).encode())
    assert remembered == EntityRemembered(client, 1_000, 2_000)
    moved = announced_before("gw1", topic.replace("entities", "site", 1), json.dumps(body).encode(), "site")
    assert moved == remembered


OTHERWISE: dict[str, tuple[str, bytes]] = {
    "of another gateway": (announced(gateway="gw2")[0], json.dumps(announced(gateway="gw2")[1]).encode()),
    "of another entity": (announced("valve")[0], json.dumps(announced("pump")[1]).encode()),
    "another document": ("entities/gw1/pump/trace", json.dumps(announced()[1]).encode()),
    "another tree": ("site/gw1/pump/availability", json.dumps(announced()[1]).encode()),
    "offline": (announced()[0], json.dumps(announced(state="offline")[1]).encode()),
    "no json": (announced()[0], b"online"),
    "no object": (announced()[0], b"[1]"),
    "too deep": (announced()[0], b"[" * 100_000),
    "without a time": (announced()[0], b'{"state":"online","entity":"pump","since":1}'),
    "with no number for a time": (announced()[0], b'{"state":"online","entity":"pump","since":"x","last_seen":1}'),
    "at no time": (announced()[0], b'{"state":"online","entity":"pump","since":Infinity,"last_seen":1}'),
    "nothing": (announced()[0], b""),
}


@pytest.mark.parametrize("kind", OTHERWISE)
def test_what_is_no_announcement_of_ours_of_who_was_online_is_nobody_remembered(kind: str) -> None:
    topic, payload = OTHERWISE[kind]
    assert announced_before("gw1", topic, payload) is None


def test_a_remembered_entity_stays_until_it_may_have_come_back_and_is_nobodys_room() -> None:
    machine = Availability("gw1", rejoin_s=60, max_entities=1)
    machine.handle(EntityRemembered("old", 1_000, 2_000), 100.0)
    assert machine.state_of("old") == "online"
    assert machine.handle(connected("new"), 101.0) == [Count("availability_refused")]
    assert machine.handle(EntityRemembered("other", 1, 1), 101.0) == [Count("availability_refused")]
    assert machine.handle(EntityRemembered("old", 5, 5), 102.0) == []
    assert machine.handle(Tick(), 159.999) == []
    (body,) = bodies(machine.handle(Tick(), 160.0))
    assert (body["state"], body["reason"]) == ("offline", "not back after restart")
    assert (body["since"], body["last_seen"]) == (160_000, 2_000)


def test_who_is_connected_is_remembered_no_more() -> None:
    machine = Availability("gw1", rejoin_s=60)
    machine.handle(connected("d"), 100.0)
    assert machine.handle(EntityRemembered("d", 1, 2), 101.0) == []
    machine.handle(Tick(), 500.0)
    assert machine.state_of("d") == "online"
    (body,) = bodies(machine.handle(gone("d"), 600.0))
    assert (body["since"], body["last_seen"]) == (600_000, 100_000)


# ---------------------------------------------------------------------------------------------- times and room


def test_times_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter than settle_s"):
        Availability("gw1", refresh_s=1.0, settle_s=2.0)
    machine = Availability("gw1", refresh_s=2.0, settle_s=2.0)
    machine.handle(connected("d"), 0.0)
    assert machine.next_deadline == 2.0
    with pytest.raises(ValueError, match="plain topic"):
        Availability("gw1", prefix="a\0")


def test_unless_said_otherwise_changes_settle_in_a_second_and_life_is_told_every_five_minutes() -> None:
    machine = Availability("gw1")
    machine.handle(connected("d"), 0.0)
    assert machine.next_deadline == 300.0
    assert bodies(machine.handle(gone("d"), 0.5)) == []
    assert machine.next_deadline == 1.0
    assert len(bodies(machine.handle(Tick(), 1.0))) == 1
    machine.handle(EntityRemembered("old", 1, 2), 10.0)
    assert machine.next_deadline == 70.0


def test_silence_is_judged_when_it_is_due_and_a_reconnection_brings_its_own_keep_alive() -> None:
    machine = Availability("gw1")
    machine.handle(connected("d", 10), 0.0)
    assert machine.next_deadline == 15.0
    machine.handle(connected("d", 100), 5.0)
    machine.handle(Tick(), 15.0)
    assert (machine.state_of("d"), machine.next_deadline) == ("online", 155.0)
    (body,) = bodies(machine.handle(Tick(), 155.0))
    assert (body["state"], body["reason"], body["since"]) == ("offline", "keep alive exceeded", 155_000)
    assert machine.handle(EntitySeen("d"), 155.5) == [], "settling"
    (body,) = bodies(machine.handle(Tick(), 156.0))
    assert (body["state"], body["since"]) == ("online", 155_500)


def test_who_is_gone_is_not_seen() -> None:
    machine = Availability("gw1", settle_s=0)
    machine.handle(connected("d"), 0.0)
    machine.handle(gone("d"), 1.0)
    assert machine.handle(EntitySeen("d"), 2.0) == []
    assert machine.state_of("d") == "offline"


def test_who_left_longest_ago_makes_room_first() -> None:
    machine = Availability("gw1", max_entities=2, settle_s=0, wall=Wall(1_000.0))
    for name in "ab":
        machine.handle(connected(name), 0.0)
    for now, name in ((1.0, "a"), (2.0, "b"), (3.0, "a")):
        machine.handle(connected(name), now)
        machine.handle(gone(name), now)
    cleared, told = machine.handle(connected("c"), 4.0)
    assert isinstance(cleared, Announce)
    publication = cleared.publication
    assert (publication.topic, publication.payload) == ("entities/gw1/b/availability", b"")
    assert (publication.qos, publication.retain, publication.time_ms) == (1, True, 1_004_000)
    assert bodies([told])[0]["entity"] == "c"
    assert [machine.state_of(name) for name in "abc"] == ["offline", None, "online"]
    machine.handle(connected("b"), 5.0)
    assert [machine.state_of(name) for name in "abc"] == [None, "online", "online"]
    assert machine.handle(connected("d"), 6.0) == [Count("availability_refused")]


def test_stale_entries_do_not_pile_up() -> None:
    machine, now = Availability("gw1"), 0.0
    for _ in range(500):
        machine.handle(connected("d"), now)
        machine.handle(gone("d"), now + 0.1)
        machine.handle(Tick(), now + 1.0)
        now += 2.0
        assert len(machine._heap) <= 4 + 64
    machine.handle(connected("d"), now)
    assert machine.next_deadline == now + 300


def test_stale_entries_go_as_soon_as_there_are_four_times_as_many_as_entities_and_a_few() -> None:
    """And those that count stay, the earliest first."""
    machine = Availability("gw1")
    machine.handle(connected("left"), 0.0)
    machine.handle(gone("left"), 0.5)
    machine.handle(Tick(), 1.0)  # it is told, and nothing of it is due any more
    machine.handle(connected("stays"), 3.0)
    sizes = []
    for now in range(10, 200, 2):
        for event, at in ((connected("d"), now), (gone("d"), now + 0.1), (Tick(), now + 1.0)):
            machine.handle(event, at)
            sizes.append(len(machine._heap))
            if len(sizes) > 1 and sizes[-1] < sizes[-2] - 1:
                assert (sizes[-1], machine.next_deadline) == (2, now + 1.0)
    assert max(sizes) == 4 * 3 + 64


def test_who_connects_is_of_nowhere_unless_it_is_said() -> None:
    assert EntityConnected("d", 0).origin == ""


def test_what_was_announced_before_a_restart_settles_too() -> None:
    machine = Availability("gw1")
    machine.handle(EntityRemembered("d", 1_000, 2_000), 100.0)
    assert machine.handle(connected("d"), 100.5) == []
    (body,) = bodies(machine.handle(Tick(), 101.0))
    assert (body["state"], body["since"], body["reason"]) == ("online", 1_000, "connected")


def test_who_made_room_is_not_looked_at_any_more() -> None:
    machine = Availability("gw1", max_entities=1)
    machine.handle(connected("a"), 0.0)
    machine.handle(gone("a"), 5.0)
    machine.handle(connected("b"), 10.0)
    (body,) = bodies(machine.handle(Tick(), 310.0))
    assert body["entity"] == "b"


def test_of_who_is_gone_nothing_is_published_again() -> None:
    machine = Availability("gw1")
    machine.handle(connected("d"), 0.0)
    assert len(bodies(machine.handle(gone("d"), 5.0))) == 1
    assert machine.handle(Tick(), 400.0) == []
    assert machine.next_deadline is None
