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
    assert [entrance.enter_connection(one) for one in (first, second, third)] == [True, True, False]
    assert reached.counts["connections"] == 1
    entrance.leave_connection(first)
    assert entrance.enter_connection(third)


def test_one_address_does_not_keep_others_out() -> None:
    entrance, reached = door(connections_per_address=2)
    flood = [caller() for _ in range(5)]
    assert [entrance.enter_connection(one) for one in flood] == [True, True, False, False, False]
    assert reached.counts["connections_per_address"] == 3
    assert entrance.enter_connection(caller("192.0.2.2"))
    for refused in flood[2:]:
        entrance.leave_connection(refused)  # they never counted
    assert not entrance.enter_connection(caller())
    entrance.leave_connection(flood[0])
    assert entrance.enter_connection(caller())


def test_addresses_of_one_ipv6_network_count_together_and_this_machine_does_not() -> None:
    entrance, _ = door(connections_per_address=1)
    assert entrance.enter_connection(caller("2001:db8::1"))
    assert not entrance.enter_connection(caller("2001:db8::2"))
    assert all(entrance.enter_connection(caller("127.0.0.1")) for _ in range(3))
    assert all(entrance.enter_connection(caller(None)) for _ in range(3))


def test_who_spoke_before_we_could_read_is_not_taken_for_silent() -> None:
    """Ten thousand that lost their broker together come within one turn of the event loop, each with its CONNECT."""
    later: list[Callable[[], None]] = []
    reached = Reached(lambda: 0.0)
    entrance = Door(Limits(half_open=2), reached, later.append)
    crowd = [caller(f"192.0.2.{n}") for n in range(1, 11)]
    assert all(entrance.enter_connection(each) for each in crowd)
    assert len(later) == 1, "looked at once for all of them"
    for each in crowd[:5] + crowd[7:]:
        entrance.take_accepted(each)  # its CONNECT lay there
    later.pop()()
    assert not any(each.aborted for each in crowd)
    for each in (more := [caller() for _ in range(3)]):
        assert entrance.enter_connection(each)
    later.pop()()
    assert [each.aborted for each in crowd[5:7] + more] == [True, False, True, True, False], "most of one address first"
    assert reached.counts["half_open"] == 3


def test_of_silent_connections_the_oldest_goes_for_a_new_one() -> None:
    entrance, reached = door(half_open=2)
    silent, speaks, third, fourth = (caller(f"192.0.2.{n}") for n in range(1, 5))
    assert entrance.enter_connection(silent)
    assert entrance.enter_connection(speaks)
    entrance.take_accepted(speaks)
    assert entrance.half_open == 1
    assert entrance.enter_connection(third)
    assert (silent.aborted, reached.counts["half_open"]) == (False, 0)
    assert entrance.enter_connection(fourth)
    assert (silent.aborted, third.aborted, speaks.aborted) == (True, False, False)
    assert (entrance.half_open, reached.counts["half_open"]) == (2, 1)
    entrance.leave_connection(third)
    entrance.leave_connection(third)
    assert entrance.half_open == 1


@pytest.mark.attack(165)
def test_a_few_addresses_that_take_all_connections_lock_nobody_out() -> None:
    """Attack: ten addresses with as many connections each as one may have were all that there is room for."""
    entrance, reached = door(connections=10, connections_per_address=5)
    flood = [caller(f"192.0.2.{n % 2}") for n in range(10)]
    assert all(entrance.enter_connection(one) for one in flood)
    for one in flood[2:]:
        entrance.take_accepted(one)
    assert entrance.enter_connection(device := caller("198.51.100.1"))
    assert [one.aborted for one in flood] == [True] + [False] * 9, "who has said nothing goes first"
    entrance.take_accepted(flood[1])
    for n in range(2, 5):
        assert entrance.enter_connection(caller(f"198.51.100.{n}"))
    assert [one.aborted for one in flood] == [True, True, True, True] + [False] * 6, "then the oldest"
    assert not device.aborted
    assert not entrance.enter_connection(caller("192.0.2.1")), "who has most gets no more"
    assert reached.counts["connections"] == 5


def test_nobody_takes_a_place_of_this_machine_where_a_proxy_may_stand_for_many() -> None:
    entrance, _ = door(connections=3)
    behind_proxy = [caller("127.0.0.1") for _ in range(3)]
    assert all(entrance.enter_connection(one) for one in behind_proxy)
    assert not entrance.enter_connection(caller())
    assert not any(one.aborted for one in behind_proxy)


@pytest.mark.attack(165)
def test_a_flood_of_one_address_does_not_end_logins_of_others_that_wait_for_their_passwords() -> None:
    """Attack: an address opens connections without end. Whoever waited for a slow password was the oldest, and went."""
    entrance, _ = door(half_open=4)
    slow = caller("198.51.100.1")
    assert entrance.enter_connection(slow)
    flood = [caller() for _ in range(100)]
    assert all(entrance.enter_connection(one) for one in flood)
    assert not slow.aborted
    assert [one.aborted for one in flood] == [True] * 97 + [False] * 3
    for one in (slow, *flood):
        entrance.leave_connection(one)
    assert entrance.half_open == 0
