"""When a replica may acknowledge: rules of `gateway.overlay.backpressure` and the window that control wires keep."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.contract.machine import Count
from bridge.publisher.windows import WINDOW_MAX
from gateway.broker.member_sessions import CONTROL_WINDOW, LINK_LIMITS, RECEIVE_MAXIMUM
from gateway.mqtt5.client_session import ClientSession
from gateway.mqtt5.packets import ConnAck, Connect, Properties, PubAck, Publish
from gateway.overlay import backpressure
from gateway.overlay.backpressure import AWAY_S, HELD_BYTES_MAX, MARK_BYTES, MARK_MESSAGES, Backpressure
from tests.sim.world import make_world

FROM = "north1"


class Lane:
    def __init__(self) -> None:
        self.load = (0, 0, 0)


class Replica:
    """What `BrokerOverlay` does with a `Backpressure`, at a replica between regions: 1 before it, 2 and 3 behind."""

    def __init__(self) -> None:
        overlay = make_world({1: 3, 2: 3, 3: 5}, [(1, 2), (1, 3)], {}).overlay
        self.lanes: dict[str, Any] = {m: Lane() for region in (2, 3) for m in overlay.views[region].members}
        self.regions = {region: overlay.views[region].members for region in (2, 3)}
        self.counts: list[Count] = []
        self.flow = Backpressure(lambda: overlay, self.lanes, self.counts.append)
        self.heard: dict[str, Any] = {}
        self.acked: list[str] = []
        self.read = True

    def load(self, messages: int, *peers: str, size: int = 0) -> None:
        for peer in peers:
            self.lanes[peer].load = (0, messages, size)

    def publishes(self, name: str, *regions: int, sender: str = FROM, payload: bytes = b"", topic: str = "t") -> bool:
        """A publication came that goes to all of these regions; whether it is acknowledged at once."""
        self.flow.begin_publication()
        for peer in [peer for region in regions for peer in self.regions[region]]:
            told = self.flow.passing(peer, self.lanes[peer])
            if told is not None:
                self.heard[peer] = told
        hold = self.flow.hold_publication(
            sender, Publish(topic, payload, 1, properties=Properties(user=(("vmq", name),)))
        )
        if hold is not None:
            self.read = hold(lambda code: self.acked.append(name))
        return hold is None

    def drains(self, *peers: str) -> None:
        """What was queued is acknowledged."""
        self.load(0, *peers)
        for peer in peers:
            self.heard[peer]()


@pytest.fixture
def replica() -> Replica:
    return Replica()


def test_as_long_as_n_minus_f_lanes_have_room_nothing_is_held(replica: Replica):
    one, *_ = replica.regions[2]
    replica.load(MARK_MESSAGES, one)
    assert replica.publishes("a", 2)
    four, five, *_ = replica.regions[3]
    replica.load(MARK_MESSAGES, four, five)
    assert replica.publishes("b", 2, 3)
    assert not replica.counts


def test_what_a_liar_puts_before_the_header_is_not_remembered(replica: Replica):
    """Of a repeated property the last counts, as for the node; the others are of any length and anybody's."""
    replica.load(MARK_MESSAGES, *replica.regions[2])
    replica.flow.begin_publication()
    for peer in replica.regions[2]:
        replica.flow.passing(peer, replica.lanes[peer])
    user = (("vmq", "x" * 60_000), ("vmq", "a"))
    hold = replica.flow.hold_publication("north2", Publish("t", b"", 1, properties=Properties(user=user)))
    assert hold is not None
    hold(lambda code: replica.acked.append("liar"))
    assert not replica.publishes("a"), "another copy waits with it"
    assert replica.flow.acks_held == 2


@pytest.mark.parametrize(("messages", "size"), [(MARK_MESSAGES, 0), (1, MARK_BYTES)])
def test_a_region_without_room_holds_acknowledgements_in_order_until_it_has_some(
    replica: Replica, messages: int, size: int
):
    one, two, three = replica.regions[2]
    replica.load(messages, one, two, size=size)
    assert not replica.publishes("a", 2)
    assert not replica.publishes("b", 2, 3)
    assert replica.publishes("c", 3)  # the other region has room
    assert replica.publishes("d")  # nobody wants it
    assert replica.flow.acks_held == 2
    assert [count.name for count in replica.counts] == ["stalls"]
    replica.load(MARK_MESSAGES, three)  # one that fills only now counts, too
    replica.drains(one)
    assert not replica.acked
    replica.drains(two)
    assert replica.acked == ["a", "b"]
    assert replica.publishes("e", 2)
    assert replica.flow.acks_held == 0


def test_who_waits_for_two_regions_waits_for_both(replica: Replica):
    replica.load(MARK_MESSAGES, *replica.regions[2], *replica.regions[3])
    assert not replica.publishes("a", 2, 3)
    replica.drains(*replica.regions[2])
    assert not replica.acked
    replica.drains(*replica.regions[3])
    assert replica.acked == ["a"]


def test_lanes_tell_of_room_before_they_run_dry(replica: Replica):
    one, two, _ = replica.regions[2]
    replica.load(MARK_MESSAGES // 2 - 1, one)
    replica.load(MARK_MESSAGES // 2, two)
    assert replica.publishes("a", 2)
    assert list(replica.heard) == [two]


def test_other_copies_of_what_is_held_wait_with_it(replica: Replica):
    """Else each reconnect of those before us, who repeat what is not acknowledged, would open a window anew."""
    replica.load(MARK_MESSAGES, *replica.regions[2])
    assert not replica.publishes("a", 2)
    assert not replica.publishes("a", sender="north2")  # a repetition: it is passed on to nobody
    replica.flow.reconnected(FROM)
    assert replica.flow.acks_held == 1
    assert not replica.publishes("a")
    replica.drains(*replica.regions[2])
    assert replica.acked == ["a", "a"]


def test_control_wires_are_acknowledged_at_once(replica: Replica):
    replica.load(MARK_MESSAGES, *replica.regions[2])
    assert not replica.publishes("a", 2)
    assert replica.publishes("a", 2, topic="$veil/keys")


def test_a_region_that_is_gone_for_as_long_as_sessions_live_holds_up_nobody(replica: Replica):
    replica.load(MARK_MESSAGES, *replica.regions[2])
    assert not replica.publishes("a", 2)
    for peer in replica.regions[2]:
        replica.flow.down(peer, 100.0)
    replica.flow.give_up_absent(100.0 + AWAY_S - 1)
    assert not replica.acked
    replica.flow.give_up_absent(100.0 + AWAY_S)
    assert replica.acked == ["a"]
    assert replica.publishes("b", 2)
    replica.flow.member_up(replica.regions[2][0])
    replica.flow.give_up_absent(100.0 + AWAY_S)
    assert not replica.publishes("c", 2)  # one is back, and has no room


def test_too_many_bytes_held_back_stop_reading_and_too_many_messages_let_the_oldest_go(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(backpressure, "HELD_MAX", 3)
    replica.load(MARK_MESSAGES, *replica.regions[2])
    replica.publishes("a", 2, payload=bytes(HELD_BYTES_MAX))
    assert replica.read
    replica.publishes("b", 2, payload=b"1")
    assert not replica.read
    replica.publishes("c", 2)
    replica.publishes("d", 2)
    assert replica.acked == ["a"]
    assert replica.read


# ------------------------------------------------------------------------------------ the window between members


def session(receive_maximum: int) -> ClientSession:
    made = ClientSession(Connect("a", clean_start=False), LINK_LIMITS)
    made.open(0.0)
    made.take_packets([ConnAck(False, 0, Properties(receive_maximum=receive_maximum))], 0.0)
    return made


def publish(at: ClientSession, topic: str, urgent: bool = False) -> bool:
    """Whether it leaves at once."""
    return at.publish(Publish(topic, b"", 1), None, 0.0, urgent) is not None


def test_control_wires_overtake_publications_that_fill_their_window():
    link = session(RECEIVE_MAXIMUM)
    assert [publish(link, "t") for _ in range(WINDOW_MAX + 1)] == [True] * WINDOW_MAX + [False]
    assert [publish(link, "$veil/keys", True) for _ in range(CONTROL_WINDOW + 1)] == [True] * CONTROL_WINDOW + [False]
    out = link.take_packets([PubAck(1, 0)], 0.0)
    assert not any(type(action) is bytes for action in out), "what is reserved stays reserved"


def test_a_small_receive_maximum_reserves_nothing():
    link = session(2 * CONTROL_WINDOW)
    assert all(publish(link, "t") for _ in range(2 * CONTROL_WINDOW))
