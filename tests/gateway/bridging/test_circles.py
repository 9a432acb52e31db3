"""What a broker asks of what comes and goes: two gateways of one overlay, each with a bridge to the same broker."""

from __future__ import annotations

import pytest

from gateway.bridging import Circles, Marks
from gateway.bridging.mapping import stamped
from gateway.mqtt5.bridge_clients import MARK
from gateway.mqtt5.message import Message
from gateway.mqtt5.packets import Properties, Publish, UserProperties


class ToM:
    """A bridge that carries everything to the broker m."""

    remote = "m"

    def carries(self, topic: str, user: UserProperties) -> str | None:
        return None if (MARK, "m") in user else topic


def gateway(name: str) -> Circles:
    circles = Circles(Marks(name), lambda: 0.0)
    circles.bridges = [ToM()]
    return circles


def test_what_one_gateway_brings_to_a_broker_the_other_does_not() -> None:
    first, second = gateway("g1"), gateway("g2")
    crossing = first.crossing("t", ())
    assert crossing == ((MARK, "m"),)
    assert not second.drops_arrival("t", b"x", crossing)
    assert second.bridges[0].carries("t", crossing) is None


@pytest.mark.parametrize("overlay_first", [True, False])
def test_what_comes_over_the_overlay_and_by_the_broker_without_marks_comes_once(overlay_first: bool) -> None:
    first, second, third = (gateway(name) for name in ("g1", "g2", "g3"))
    first.remember_leaving("b", "t", b"x", has_marks=False, echoes=False)
    over, entered = first.crossing("t", ()), second.marks.entering(Properties(), ("m", "unmarked"))
    if overlay_first:
        assert not second.drops_arrival("t", b"x", over)
        assert second.entered("b", "t", b"x", entered, has_marks=False)
        return
    assert not second.entered("b", "t", b"x", entered, has_marks=False)
    assert second.drops_arrival("t", b"x", over)
    again = second.crossing("t", entered.user)
    assert first.drops_arrival("t", b"x", again)
    assert [third.drops_arrival("t", b"x", user) for user in (over, again)] == [False, True]
    assert [third.drops_arrival("t", b"x", user, "group") for user in (over, again)] == [False, True]


def test_what_both_gateways_take_in_comes_once() -> None:
    first, second, third = (gateway(name) for name in ("g1", "g2", "g3"))
    copies = [each.marks.entering(Properties(), ("m",)) for each in (first, second)]
    for each, copy in zip((first, second), copies, strict=True):
        assert not each.entered("b", "t", b"x", copy, has_marks=True)
    assert second.drops_arrival("t", b"x", copies[0].user)
    assert first.drops_arrival("t", b"x", copies[1].user)
    assert [third.drops_arrival("t", b"x", copy.user) for copy in copies] == [False, True]


def test_a_publication_that_was_here_ends_and_an_ordinary_one_is_nothing_of_ours() -> None:
    one = gateway("g1")
    assert one.drops_publish("c", None, Publish("t", b"x", properties=Properties(user=stamped((), ("g1",)))))
    assert not one.drops_publish("c", None, Publish("t", b"x"))
    assert not one.drops_publish("d", None, Publish("t", b"x"))
    assert one.ended == 1


def test_of_two_bridges_to_one_broker_the_first_carries() -> None:
    one = gateway("g1")
    former, latter = ToM(), ToM()
    one.bridges = [former, latter]
    assert [one.carried_before(each, "t", (), "t") for each in (former, latter)] == [False, True]
    assert not one.carried_before(latter, "t", (), "another name there")


class To:
    """A bridge that carries everything to a broker."""

    def __init__(self, remote: str) -> None:
        self.remote = remote

    def carries(self, topic: str, user: UserProperties) -> str | None:
        return None if (MARK, self.remote) in user else topic


def of_leaving(remotes: str) -> list[str]:
    circles = Circles(Marks("a"), lambda: 0.0)
    bridges = [To(remote) for remote in remotes]
    circles.bridges = [*bridges]
    return [value for _, value in circles.leaving(bridges[0], "t", Properties()).user]


def test_what_leaves_names_the_other_brokers_that_get_it_too_and_a_hub_names_none() -> None:
    assert of_leaving("mnop") == ["a", "n", "o", "p"]
    assert of_leaving("mm") == ["a"]
    assert of_leaving("mnopqr") == ["a"]


def test_a_bridge_that_fetches_a_message_hears_which_brokers_get_it_too() -> None:
    circles = gateway("g")
    message = Message("t", b"x")
    assert circles.given("c", "other", message).properties.user == ((MARK, "m"),)
    assert circles.given("c", "m", message) is message
    assert circles.given("c", "", message) is message
