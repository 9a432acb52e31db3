"""One direction at QoS 2 between clients that only note what they are asked, with a crash at each step."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.bridging import crossing
from gateway.bridging.exact import ExactWay
from gateway.bridging.relaying import RelayClient
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.types import ReasonCode


class Side:
    """Either client. `said`: what it was asked to send; `held`: identifiers in use towards its server."""

    def __init__(self) -> None:
        self.connected, self.session_present, self.takes, self.maximum_qos = True, True, True, 2
        self.leaves_releases = False
        self.said: list[tuple[str, int]] = []
        self.held: set[int] = set()
        self.asked: dict[int, tuple[Any, Any]] = {}

    def is_free(self, packet_id: int) -> bool:
        return packet_id not in self.held

    def relay(self, publish: Publish, again: bool, done: Any, refused: Any) -> bool:
        assert self.is_free(publish.packet_id)
        self.said.append(("AGAIN" if again else "PUBLISH", publish.packet_id))
        self.held.add(publish.packet_id)
        self.asked[publish.packet_id] = done, refused
        return True

    def acknowledge(self, publish: Publish) -> None:
        self.said.append(("PUBREC" if publish.qos == 2 else "PUBACK", publish.packet_id))

    def send_pubrel(self, packet_id: int) -> None:
        self.said.append(("PUBREL", packet_id))
        self.held.add(packet_id)

    def complete(self, packet_id: int) -> None:
        self.said.append(("PUBCOMP", packet_id))

    def heard(self) -> list[str]:
        """What was said since the last time."""
        said, self.said = self.said, []
        return [f"{what} {packet_id}" for what, packet_id in said]


class Both:
    """A way and what is around it; `restart` makes a new one that remembers nothing."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.source, self.target = Side(), Side()
        self.way = ExactWay(cast(RelayClient, self.source), cast(RelayClient, self.target), "m")
        self.way.source_connected()

    def publish(self, packet_id: int, dup: bool = False, qos: int = 2) -> None:
        publish = Publish("a", b"x", qos, dup=dup, packet_id=packet_id)
        self.way.pass_on(publish, publish)

    def pubrec(self, packet_id: int) -> None:
        self.target.asked[packet_id][0]()

    def puback(self, packet_id: int) -> None:
        self.target.held.discard(packet_id)
        self.target.asked[packet_id][0]()

    def pubcomp(self, packet_id: int) -> None:
        self.target.held.discard(packet_id)
        self.way.take_pubcomp(packet_id)

    def passed_clearing(self, packet_id: int) -> None:
        self.publish(packet_id)
        assert self.target.heard() == [f"PUBREL {packet_id}"]
        self.pubcomp(packet_id)
        assert self.target.heard() == [f"PUBLISH {packet_id}"]
        assert self.source.heard() == []


@pytest.fixture
def both() -> Both:
    return Both()


def test_each_step_is_handed_on_when_the_other_side_has_taken_it(both: Both) -> None:
    both.passed_clearing(7)
    both.pubrec(7)
    assert (both.source.heard(), both.target.heard()) == (["PUBREC 7"], [])
    both.way.answer_pubrel(7)
    both.way.answer_pubrel(7)  # repeated after a cut
    assert (both.source.heard(), both.target.heard()) == ([], ["PUBREL 7"])
    both.pubcomp(7)
    assert both.source.heard() == ["PUBCOMP 7"]
    both.publish(7)  # the identifier is known to be free: another message, at once
    assert both.target.heard() == ["PUBLISH 7"]


def test_a_target_that_began_a_new_session_has_nothing_to_release(both: Both) -> None:
    """A broker may leave PUBREL of an identifier that it does not know unanswered, as amqtt does."""
    both.target.session_present = False
    both.way.target_connected()
    both.publish(7)
    assert both.target.heard() == ["PUBLISH 7"]
    both.restart()
    both.way.target_connected()
    both.passed_clearing(7)


def test_killed_before_pubrec_the_source_repeats_and_so_does_the_bridge(both: Both) -> None:
    both.passed_clearing(7)
    both.restart()
    both.publish(7, dup=True)  # not released first: the target may have it
    assert both.target.heard() == ["AGAIN 7"]


def test_killed_after_the_targets_pubrec_but_before_the_sources_the_target_is_not_released(both: Both) -> None:
    both.passed_clearing(7)
    both.pubrec(7)  # what is written to the source is lost
    assert both.target.heard() == []
    both.restart()
    both.publish(7, dup=True)
    assert both.target.heard() == ["AGAIN 7"]
    both.pubrec(7)
    assert both.source.heard() == ["PUBREC 7"]


def test_killed_after_pubrec_the_release_of_the_source_is_passed_on(both: Both) -> None:
    both.way.answer_pubrel(7)
    assert (both.source.heard(), both.target.heard()) == ([], ["PUBREL 7"])
    both.pubcomp(7)
    assert both.source.heard() == ["PUBCOMP 7"]


def test_a_new_message_is_not_taken_for_one_that_a_lost_session_left_half_done(both: Both) -> None:
    both.publish(7)
    both.publish(8)
    assert both.target.heard() == ["PUBREL 7", "PUBREL 8"]
    both.pubcomp(7)
    both.pubcomp(8)
    assert both.target.heard() == ["PUBLISH 7", "PUBLISH 8"]


def test_a_source_without_its_session_waits_until_the_former_one_is_over(both: Both, monkeypatch: Any) -> None:
    later: list[Any] = []
    monkeypatch.setattr(crossing.asyncio, "get_running_loop", lambda: type("Loop", (), {"call_later": later_of(later)}))
    both.passed_clearing(7)
    both.passed_clearing(8)
    both.pubrec(8)
    assert both.source.heard() == ["PUBREC 8"]
    both.source.session_present = False
    both.way.source_connected()
    assert both.target.heard() == ["PUBREL 8"]  # nobody else will
    both.publish(7)
    assert both.target.heard() == []
    both.pubrec(7)
    assert (both.source.heard(), both.target.heard()) == ([], ["PUBREL 7"])
    both.pubcomp(7)
    both.pubcomp(8)
    assert both.source.heard() == []
    later.pop()()
    assert both.target.heard() == ["PUBLISH 7"]


def later_of(later: list[Any]) -> Any:
    return staticmethod(lambda seconds, what, *arguments: later.append(lambda: what(*arguments)))


def test_a_target_without_its_session_has_taken_what_it_acknowledged(both: Both) -> None:
    both.passed_clearing(7)
    both.pubrec(7)
    both.pubcomp(7)  # as the session says it, of what its server has forgotten
    assert both.source.heard() == ["PUBREC 7"]  # and no PUBCOMP: PUBREL has not come
    both.way.answer_pubrel(7)
    both.pubcomp(7)
    assert both.source.heard() == ["PUBCOMP 7"]


def test_qos_1_keeps_its_identifier_and_is_acknowledged_once(both: Both) -> None:
    both.publish(7, qos=1)
    both.pubcomp(7)
    assert both.target.heard() == ["PUBREL 7", "PUBLISH 7"]
    assert both.source.heard() == []
    both.puback(7)
    assert both.source.heard() == ["PUBACK 7"]


def test_a_target_that_turns_out_to_take_qos_1_gets_that(both: Both) -> None:
    both.passed_clearing(7)
    both.target.maximum_qos = 1
    both.target.held.clear()
    both.target.asked[7][1](ReasonCode.QOS_NOT_SUPPORTED)
    assert both.target.heard() == ["PUBLISH 7"]
    both.puback(7)
    assert both.source.heard() == ["PUBREC 7"]
    both.target.asked[7][1](ReasonCode.NOT_AUTHORIZED)
    assert both.way.refused == 1
