"""When what is retained in a scope is here: a while after a quorum knows that we want it, or after its last value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.overlay.settling import MOST_S, QUIET_S, SETTLE_S, Settling
from tests.gateway.harness import Leap, on_loop


class Scopes:
    """Scopes that are wanted, `w/NAME` for `NAME/#`, and those of which a quorum knows."""

    def __init__(self) -> None:
        self.wanted: dict[str, str] = {}
        self.accepted: set[str] = set()
        self.settling = Settling(lambda: dict(self.wanted), self.accepted.__contains__)
        self.told: list[str] = []

    def want(self, *names: str) -> None:
        self.wanted = {f"w/{name}": f"{name}/#" for name in names}
        self.settling.look_at_scopes()

    def accept(self, name: str) -> None:
        self.accepted.add(f"w/{name}")
        self.settling.look_at_scopes()

    def said(self, what: str) -> Callable[[], None]:
        return lambda: self.told.append(what)


@on_loop
async def test_a_scope_settles_after_a_quorum_knows_and_only_who_wants_it_waits() -> None:
    scopes, leap = Scopes(), Leap()
    assert scopes.settling.unsettled(["#"]) == []
    scopes.want("a", "b")
    assert scopes.settling.unsettled(["a/1", "c/#"]) == ["a/#"]
    assert sorted(scopes.settling.unsettled(["#"])) == ["a/#", "b/#"]
    scopes.accept("a")
    assert scopes.settling.wait_until_settled(["a/#"], scopes.said("a"))
    assert scopes.settling.wait_until_settled(["a/#", "b/#"], scopes.said("both"))
    assert not scopes.settling.wait_until_settled(["c/#"], scopes.said("c"))
    await leap.by(SETTLE_S + 0.01)
    assert scopes.told == ["a"]
    assert sorted(scopes.settling.unsettled(["#"])) == ["a/#", "b/#"], "many values take long"
    await leap.by(MOST_S)
    assert scopes.settling.unsettled(["#"]) == ["b/#"]
    assert scopes.told == ["a", "both"], "no quorum comes: nobody waits for longer"
    assert scopes.settling.unsettled(["#"]) == ["b/#"], "its values may still come"
    assert not scopes.settling.wait_until_settled(["b/#"], scopes.said("b"))
    scopes.accept("b")
    await leap.by(MOST_S + 0.01)
    assert scopes.settling.unsettled(["#"]) == []


@on_loop
async def test_values_that_still_come_are_waited_for_but_not_for_ever() -> None:
    scopes, leap = Scopes(), Leap()
    scopes.want("a")
    scopes.settling.extend_wait("w/a")  # one replica is faster than the quorum
    scopes.accept("a")
    waited_s = 0.0
    assert scopes.settling.wait_until_settled(["a/#"], scopes.said("settled"))
    while not scopes.told:
        scopes.settling.extend_wait("w/a")
        await leap.by(QUIET_S / 2)
        await asyncio.sleep(0)
        waited_s += QUIET_S / 2
        assert waited_s < 2 * MOST_S
    assert waited_s > SETTLE_S + QUIET_S
    assert scopes.settling.unsettled(["#"]), "what comes now is of before all the same"
    await leap.by(MOST_S + 0.01)
    assert scopes.settling.unsettled(["#"]) == []


@on_loop
async def test_a_scope_that_nobody_wants_any_more_begins_anew() -> None:
    scopes, leap = Scopes(), Leap()
    scopes.want("a")
    scopes.accept("a")
    await leap.by(SETTLE_S + 0.01)
    scopes.want()
    scopes.want("a")
    assert scopes.settling.unsettled(["a/#"]) == ["a/#"]
    assert scopes.settling.wait_until_settled(["a/#"], scopes.said("a"))
    scopes.want()
    assert scopes.told == ["a"], "there is nothing to wait for"
    scopes.want("a")
    assert scopes.settling.wait_until_settled(["a/#"], scopes.said("stopped"))
    scopes.settling.stop()
    assert scopes.told[-1] == "stopped"
