"""Acknowledgements that come later: after their time, behind what else holds them, never on another connection."""

from __future__ import annotations

import asyncio

from gateway.clients import Done
from gateway.overlay.delays import Delays
from tests.waits import until


def test_an_acknowledgement_comes_later_and_others_do_not_wait_for_it() -> None:
    async def check() -> None:
        delays, given = Delays(), list[str]()
        assert delays.hold_for("site", 0.05, None)(lambda code: given.append(f"slow {code}"))
        assert delays.hold_for("other", 0.0, None)(lambda code: given.append("quick"))
        assert len(delays) == 2
        await until(lambda: not delays)
        assert given == ["quick", "slow 0"]

    asyncio.run(check())


def test_whatever_else_holds_it_has_to_let_it_go_too() -> None:
    async def check() -> None:
        delays, given, held = Delays(), list[int](), list[Done]()

        def behind(done: Done) -> bool:
            held.append(done)
            return False

        assert not delays.hold_for("site", 0.0, behind)(given.append), "the member is not read until then"
        await until(lambda: not delays)
        assert given == []
        held[0](0)
        assert given == [0]

    asyncio.run(check())


def test_a_member_with_another_connection_gets_no_answer_to_the_former_one() -> None:
    async def check() -> None:
        delays, given = Delays(), list[int]()
        delays.hold_for("site", 0.0, None)(given.append)
        delays.hold_for("other", 0.0, None)(given.append)
        delays.reconnected("site")
        assert len(delays) == 1
        delays.stop()
        asyncio.get_running_loop().call_later(0.001, given.append, 77)  # behind what was due before
        await until(lambda: given)
        assert (given, len(delays)) == ([77], 0)

    asyncio.run(check())
