"""When a tracing broker judges: behind everything that could be read, on either event loop."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from bridge.contract import Count, Tick
from bridge.document import constrained
from bridge.traces import REGISTRATION_TOPIC, ClientGone
from bridge.tracking.registrations import AT_ONCE
from gateway.mqtt5.packets import Publish, Will
from gateway.tracing.broker_tracing import Tracing
from keys.tracesession import Registration


class Recorded:
    """Stands for the tracer: what it was given, in order."""

    next_deadline = None

    def __init__(self) -> None:
        self.events: list[object] = []

    def __len__(self) -> int:
        return 0

    def handle(self, event: object, now: float) -> list[object]:
        self.events.append("judged" if isinstance(event, Tick) else event)
        return []

    def restore(self, records: object, now: float) -> list[object]:
        return []


def test_however_much_happens_while_a_turn_is_under_way_the_next_one_is_one() -> None:
    """A turn that is on its way sets its follower; a second timer beside it would go on for ever beside that one."""

    class Busy(Recorded):
        @property
        def next_deadline(self) -> float:
            self.events.append("asked")
            return -float(len(self.events))  # each time somebody else's turn comes sooner

    async def scenario() -> None:
        tracer = Busy()
        tracing = Tracing(tracer, None, None, lambda count: None)  # type: ignore[arg-type]
        tracing.start(object())  # type: ignore[arg-type]
        for _ in range(20):
            if tracing._timer is not None:
                tracing._timer.cancel()  # it is its time
            tracing._wake()
            for _ in range(3):
                tracing._trace(ClientGone("pump", clean=True))
                await asyncio.sleep(0)
        handles = [each for each in asyncio.get_running_loop()._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
        assert len(handles) == 1
        tracing.stop()

    asyncio.run(scenario())


def test_who_waits_to_be_registered_is_taken_up_in_the_next_turns_of_the_loop() -> None:
    """However far away the next deadline is."""

    async def scenario() -> None:
        tracer = Recorded()
        tracing = Tracing(tracer, None, None, lambda count: None)  # type: ignore[arg-type]
        tracing.start(object())  # type: ignore[arg-type]
        for place in range(3 * AT_ONCE):
            request = Registration(b"", bytes(16), place, bytes(64)).encode()
            topic = constrained.parse(REGISTRATION_TOPIC)
            assert topic is not None
            tracing._published(f"pump-{place}", topic, REGISTRATION_TOPIC, request)
        assert len(tracer.events) == AT_ONCE
        for turn in range(2, 4):
            await asyncio.sleep(0)
            assert len(tracer.events) == turn * AT_ONCE, "so many in a turn, and the turns belong to others, too"
        tracing.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_what_lies_in_sockets_is_read_before_anybody_is_judged(loop: Any) -> None:
    async def scenario() -> None:
        running, tracer = asyncio.get_running_loop(), Recorded()
        tracing = Tracing(tracer, None, None, lambda count: None)  # type: ignore[arg-type]
        tracing.start(object())  # type: ignore[arg-type]
        pairs = [socket.socketpair() for _ in range(50)]
        for ours, theirs in pairs:
            ours.setblocking(False)
            running.add_reader(ours, lambda ours=ours: tracer.events.append(ours.recv(64)))
            theirs.send(b"answer")  # it lies there when the timer comes
        tracing._wake()
        for _ in range(6):
            await asyncio.sleep(0)
        assert tracer.events == [b"answer"] * 50 + ["judged"]
        for ours, theirs in pairs:
            running.remove_reader(ours)
            ours.close()
            theirs.close()
        tracing.stop()

    made = loop()
    try:
        made.run_until_complete(scenario())
    finally:
        made.close()


# ------------------------------------------------------------------------------------------ what clients may

FOR_BROKER = "$Constrained/Traces/Broker/PublishOnly/Disseminate/x"  # the broker alone publishes here


def quiet() -> Tracing:
    return Tracing(Recorded(), None, None, lambda count: None)  # type: ignore[arg-type]


def test_topics_that_are_not_constrained_are_nobodys_business() -> None:
    assert quiet().admit("plant/t", "c", publishes=True) == ("plant/t", True)
    assert quiet().admit("plant/#", "c", publishes=False) == ("plant/#", True)


def test_who_may_not_is_counted_by_what_it_tried() -> None:
    counted: list[Count] = []
    tracing = Tracing(Recorded(), None, None, counted.append)  # type: ignore[arg-type]
    assert tracing.admit(FOR_BROKER, "c", publishes=True) == (FOR_BROKER, False)
    assert tracing.admit(FOR_BROKER, "c", publishes=False) == (FOR_BROKER, True)
    assert counted == [Count("constrained_refused", 1, "publish")]
    assert tracing.figures.counts == {"constrained_refused.publish": 1}


def test_a_publication_and_a_will_get_the_spelling_under_which_they_are_routed() -> None:
    tracing, wide = quiet(), "$Constrained/Traces/Broker/SubscribeOnly/x"
    publish, will = Publish(wide, b""), Will(wide, b"")
    may = tracing.publishing("c", publish)
    routed, also = tracing.willing("c", will)
    assert may is also
    assert publish.topic == routed.topic == tracing.admit(wide, "c", publishes=True)[0]
    plain = Will("plant/t", b"")
    assert tracing.willing("c", plain)[0] is plain


def test_who_is_traced_is_shown_as_numbers() -> None:
    tracing = quiet()
    assert len(tracing) == 0
