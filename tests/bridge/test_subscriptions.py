"""Statements: who may make them, that one copy suffices, that none can be undone or invented, and when they end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.subscriptions import RoutingTable, Statement
from bridge.views import Scope
from keys.errors import BadFrame, BadSignature, Expired, NotAuthorised
from tests.sim.world import NOT_AFTER_MS, NOW, World, make_world

EXPIRES_MS = int((NOW + 3600) * 1000)
PLANT = Scope("plant/#")


@pytest.fixture
def world() -> World:
    rights = {"nosy": ((), ("plant/line1/#",))}
    return make_world({1: 3}, [], {"control": 1, "nosy": 1}, [PLANT, Scope("open/#")], rights=rights)


def stated(world: World, member: str = "control", version: int = 1, on: bool = True, expires_ms: int = EXPIRES_MS,
           wire_filter: str = "plant/#") -> Statement:  # fmt: skip
    return Statement(member, wire_filter, version, on, expires_ms).signed(world.identities[member])


def test_a_statement_survives_its_frame(world: World):
    statement = stated(world, on=False)
    assert Statement.decode(statement.encode()) == statement


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 80])
def test_a_truncated_frame_is_refused(world: World, cut: int):
    with pytest.raises(BadFrame):
        Statement.decode(stated(world).encode()[:cut])


def test_the_highest_version_wins_and_off_means_off(world: World):
    table = RoutingTable(world.overlay)
    assert table.accept(stated(world, version=2), NOW)
    assert table.wanting(PLANT, NOW) == ["control"]
    assert not table.accept(stated(world, version=2, on=False), NOW)
    assert not table.accept(stated(world, version=1, on=False), NOW)
    assert table.accept(stated(world, version=3, on=False), NOW)
    assert table.wanting(PLANT, NOW) == []
    assert not table.accept(stated(world, version=2), NOW), "an old one, replayed, undoes nothing"


def test_another_scope_is_another_statement(world: World):
    table = RoutingTable(world.overlay)
    table.accept(stated(world, version=5), NOW)
    assert table.accept(stated(world, version=1, wire_filter="open/#"), NOW)
    assert len(table.all()) == 2


@pytest.mark.parametrize("field", ["version", "expires_ms", "on"])
def test_nobody_can_change_a_statement(world: World, field: str):
    forged = replace(stated(world), **{field: {"version": 9, "expires_ms": EXPIRES_MS + 1, "on": False}[field]})
    with pytest.raises(BadSignature):
        RoutingTable(world.overlay).accept(forged, NOW)


def test_nobody_can_state_for_another(world: World):
    forged = Statement("control", "plant/#", 1, True, EXPIRES_MS).signed(world.identities["nosy"])
    with pytest.raises(BadSignature):
        RoutingTable(world.overlay).accept(forged, NOW)


def test_rights_scopes_and_members_are_checked(world: World):
    table = RoutingTable(world.overlay)
    with pytest.raises(NotAuthorised):
        table.accept(stated(world, "nosy"), NOW)
    with pytest.raises(NotAuthorised):
        table.accept(stated(world, wire_filter="plant/line1/#"), NOW)
    with pytest.raises(NotAuthorised):
        table.accept(replace(stated(world), member="stranger"), NOW)
    with pytest.raises(NotAuthorised):
        table.accept(stated(world, "r1a"), NOW)
    assert table.all() == []


def test_a_lease_ends(world: World):
    table = RoutingTable(world.overlay)
    assert not table.accept(stated(world, expires_ms=int(NOW * 1000)), NOW)
    assert table.accept(stated(world), NOW)
    assert table.wanting(PLANT, NOW + 3601) == []


def test_a_lease_without_end_ends_with_the_certificate(world: World):
    table = RoutingTable(world.overlay)
    assert table.accept(stated(world, expires_ms=(1 << 64) - 1), NOW)
    assert table.wanting(PLANT, NOT_AFTER_MS / 1000 - 1) == ["control"]
    assert table.wanting(PLANT, NOT_AFTER_MS / 1000 + 1) == []
    with pytest.raises(Expired):
        table.accept(stated(world, version=2, expires_ms=(1 << 64) - 1), NOT_AFTER_MS / 1000 + 1)


def test_a_full_table_still_takes_news_of_what_it_knows(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("bridge.subscriptions.STATEMENTS_MAX", 1)
    table = RoutingTable(world.overlay)
    assert table.accept(stated(world), NOW)
    assert not table.accept(stated(world, wire_filter="open/#"), NOW)
    assert table.accept(stated(world, version=2, on=False), NOW)
