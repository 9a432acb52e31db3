"""Which connections stay: in all, from one address, and without a CONNECT."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from gateway.base.limits import Limits
from gateway.clients.bounds import Reached
from gateway.sockets.connection import MqttConnection
from gateway.sockets.door import Door, origin_of


class Caller:
    """As much of a connection as the door looks at."""

    def __init__(self, host: str | None) -> None:
        self.peer = None if host is None else (host, 1)
        self.address = f"{host}:1"
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def door(**limits: int) -> tuple[Door, Reached]:
    reached = Reached(lambda: 0.0)
    return Door(Limits(**limits), reached, lambda act: act()), reached


def caller(host: str | None = "192.0.2.1") -> Any:
    return cast(MqttConnection, Caller(host))


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", None),
        ("127.9.9.9", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("/run/veilmq.sock", None),
        ("", None),
    ],
)
def test_whom_an_address_is_counted_for(host: str, origin: str | None) -> None:
    assert origin_of(host) == origin


def test_no_more_than_so_many_connections_and_one_that_leaves_makes_room() -> None:
    entrance, reached = door(connections=2)
    first, second, third = caller("192.0.2.1"), caller("192.0.2.2"), caller("192.0.2.3")
    assert [entrance.enter(one) for one in (first, second, third)] == [True, True, False]
    assert reached.counts["connections"] == 1
    entrance.leave(first)
    assert entrance.enter(third)


def test_one_address_does_not_keep_others_out() -> None:
    entrance, reached = door(connections_per_address=2)
    flood = [caller() for _ in range(5)]
    assert [entrance.enter(one) for one in flood] == [True, True, False, False, False]
    assert reached.counts["connections_per_address"] == 3
    assert entrance.enter(caller("192.0.2.2"))
    for refused in flood[2:]:
        entrance.leave(refused)  # they never counted
    assert not entrance.enter(caller())
    entrance.leave(flood[0])
    assert entrance.enter(caller())


def test_addresses_of_one_ipv6_network_count_together_and_this_machine_does_not() -> None:
    entrance, _ = door(connections_per_address=1)
    assert entrance.enter(caller("2001:db8::1"))
    assert not entrance.enter(caller("2001:db8::2"))
    assert all(entrance.enter(caller("127.0.0.1")) for _ in range(3))
    assert all(entrance.enter(caller(None)) for _ in range(3))


def test_who_spoke_before_we_could_read_is_not_taken_for_silent() -> None:
    """Ten thousand that lost their broker together come within one turn of the event loop, each with its CONNECT."""
    later: list[Callable[[], None]] = []
    reached = Reached(lambda: 0.0)
    entrance = Door(Limits(half_open=2), reached, later.append)
    crowd = [caller(f"192.0.2.{n}") for n in range(1, 11)]
    assert all(entrance.enter(each) for each in crowd)
    assert len(later) == 1, "looked at once for all of them"
    for each in crowd[:5] + crowd[7:]:
        entrance.accepted(each)  # its CONNECT lay there
    later.pop()()
    assert not any(each.aborted for each in crowd)
    for each in (more := [caller() for _ in range(3)]):
        assert entrance.enter(each)
    later.pop()()
    assert [each.aborted for each in crowd[5:7] + more] == [True, True, True, False, False]
    assert reached.counts["half_open"] == 3


def test_of_silent_connections_the_oldest_goes_for_a_new_one() -> None:
    entrance, reached = door(half_open=2)
    silent, speaks, third, fourth = (caller(f"192.0.2.{n}") for n in range(1, 5))
    assert entrance.enter(silent)
    assert entrance.enter(speaks)
    entrance.accepted(speaks)
    assert entrance.half_open == 1
    assert entrance.enter(third)
    assert (silent.aborted, reached.counts["half_open"]) == (False, 0)
    assert entrance.enter(fourth)
    assert (silent.aborted, third.aborted, speaks.aborted) == (True, False, False)
    assert (entrance.half_open, reached.counts["half_open"]) == (2, 1)
    entrance.leave(third)
    entrance.leave(third)
    assert entrance.half_open == 1
