"""Who loses a session where too many are kept: who has most, and first what holds nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.broker.session_shares import SessionShares, holds_something, owner_of, proven_name
from gateway.clients import Client
from gateway.mqtt5.actions import SessionLimits
from gateway.mqtt5.packets import Version, Will
from gateway.mqtt5.session import ServerSession
from gateway.plugins import EdgeSession
from tests.gateway.harness import Wire, on_loop, serving
from tests.waits import until

LASTING = {"session_expiry_s": 1_000}


def client(client_id: str, user: str | None = None, address: str | None = "192.0.2.1", holds: bool = False) -> Client:
    view = EdgeSession()
    view.client_id, view.username, view.remote_address, view.is_anonymous = client_id, user, address, user is None
    found = Client(ServerSession(client_id, SessionLimits()), view)
    if holds:
        found.session.will = Will("t", b"x")
    return found


def test_an_owner_is_a_proven_user_or_an_address_block() -> None:
    assert owner_of(client("a", "ann").view) == owner_of(client("b", "ann", "192.0.2.9").view)
    assert owner_of(client("a").view) != owner_of(client("a", address="192.0.2.9").view)
    assert owner_of(client("a", address="2001:db8::1").view) == owner_of(client("a", address="2001:db8::2").view)
    assert owner_of(client("a", address="127.0.0.1").view) == owner_of(client("a", address=None).view)
    claimed = client("a", "ann").view
    claimed.is_anonymous = True
    assert proven_name(claimed) is None, "whoever needs no password may claim any name"


@pytest.mark.attack(143)
def test_who_has_most_loses_its_oldest_and_first_what_holds_nothing() -> None:
    shares = SessionShares()
    for number in range(4):
        shares.away(client(f"evil{number}", "evil", holds=number != 2))
    shares.away(client("ann1", "ann", holds=True))
    assert shares.loses("user new") == "evil2"
    shares.back("evil2")
    assert shares.loses("user new") == "evil0"
    assert shares.loses("user ann") == "evil0"
    assert shares.loses("user evil") is None, "what was acknowledged for its sessions stays"
    shares.back("evil0")
    shares.back("evil1")
    assert shares.loses("user new") is None, "nobody has two more than the new one"
    shares.away(client("ann2", "ann"))
    assert shares.loses("user ann") == "ann2"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12))
def test_many_at_once_are_entered_as_one_by_one(owners: list[tuple[str, bool]]) -> None:
    many = [client(f"c{place}", owner, holds=holds) for place, (owner, holds) in enumerate(owners)]
    at_once, one_by_one = SessionShares(), SessionShares()
    at_once.away_all(many)
    for each in many:
        one_by_one.away(each)
    while one_by_one:
        for owner in "abcd":  # of several with most any may be named
            assert (at_once.loses(f"user {owner}") is None) == (one_by_one.loses(f"user {owner}") is None)
        gone = at_once.loses("user d") or next(iter(one_by_one._known))
        at_once.back(gone)
        one_by_one.back(gone)
    assert not at_once


def test_what_a_session_holds() -> None:
    assert not holds_something(client("a"))
    assert holds_something(client("a", holds=True))
    received = client("a")
    received.session.inbound.restore_flows({1: "t"})
    assert holds_something(received)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.sampled_from("abc"), st.booleans())))
def test_it_knows_who_has_most_whatever_comes_and_goes(steps: list[tuple[bool, int, str, bool]]) -> None:
    shares, model = SessionShares(), dict[str, str]()
    for goes, number, owner, holds in steps:
        name = f"c{number}"
        if goes:
            shares.away(client(name, owner, holds=holds))
            model[name] = owner
        else:
            shares.back(name)
            model.pop(name, None)
        sizes = [list(model.values()).count(one) for one in "abc"]
        lost = shares.loses("user nobody")
        assert (lost is None) == (max(sizes) < 2)
        if lost is not None:
            assert sizes["abc".index(model[lost])] == max(sizes)
    assert len(shares) == len(model)


@pytest.mark.attack(143)
@pytest.mark.parametrize("version", [Version.V5, Version.V311])
@on_loop
async def test_one_client_that_fills_the_sessions_locks_nobody_out(version: Version) -> None:
    """Attack: ever new client ids with long sessions; new ids were refused for seven days."""
    lasting: dict[str, Any] = {"clean_start": False} if version is Version.V311 else {"properties": LASTING}
    async with serving({"limits": {"sessions": 10}}) as broker:
        good = await Wire.connect(broker, "good", version, **lasting)
        await good.subscribe("t", 1)
        good.cut()
        for number in range(30):
            evil = await Wire.connect(broker, f"evil{number}", version, **lasting)
            assert evil.connack is not None
            assert evil.connack.code == 0, "alone it may use all of it"
            evil.cut()
            await until(lambda number=number: not dict(broker.clients())[f"evil{number}"])
        new = await Wire.connect(broker, "new", version)
        assert new.connack is not None
        assert new.connack.code == 0
        assert "good" in dict(broker.clients()), "what holds something stays"
        assert len(broker.lifecycle.clients) <= 10
