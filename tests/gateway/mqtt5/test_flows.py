from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.mqtt5.flows import (
    INBOUND,
    NONE,
    OUTBOUND,
    Answer,
    FlowStage,
    HeardFlow,
    InboundFlows,
    OutboundFlows,
)
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.types import MAXIMUM_PACKET_ID, ProtocolViolation, ReceiveMaximumExceeded

SENDER_STAGES = [FlowStage.FREE, FlowStage.AWAIT_PUBACK, FlowStage.AWAIT_PUBREC, FlowStage.AWAIT_PUBCOMP]
SENDER_HEARS = [HeardFlow.PUBACK, HeardFlow.PUBREC, HeardFlow.PUBREC_REFUSED, HeardFlow.PUBCOMP]
RECEIVER_STAGES = [FlowStage.FREE, FlowStage.ACCEPTING_1, FlowStage.ACCEPTING_2, FlowStage.AWAIT_PUBREL]
RECEIVER_HEARS = [HeardFlow.PUBLISH_1, HeardFlow.PUBLISH_1_DUP, HeardFlow.PUBLISH_2, HeardFlow.PUBREL]


def sender_in(stage: FlowStage) -> OutboundFlows[str]:
    flows: OutboundFlows[str] = OutboundFlows(10)
    flows.reconnected(10)
    if stage is not FlowStage.FREE:
        assert flows.start("m", 1 if stage is FlowStage.AWAIT_PUBACK else 2) == 1
    if stage is FlowStage.AWAIT_PUBCOMP:
        flows.take_acknowledgement(1, HeardFlow.PUBREC)
    assert flows.stage_of(1) is stage
    return flows


def receiver_in(stage: FlowStage) -> InboundFlows:
    flows = InboundFlows()
    flows.reconnected(10, enforced=True)
    if stage is not FlowStage.FREE:
        publish = Publish("a", b"", 1 if stage is FlowStage.ACCEPTING_1 else 2, packet_id=1)
        flows.take_publish(publish)
        if stage is FlowStage.AWAIT_PUBREL:
            flows.settle_routed(publish, refused=False)
    assert flows.stage_of(1) is stage
    return flows


def test_the_tables_are_complete() -> None:
    assert set(OUTBOUND) == set(itertools.product(SENDER_STAGES, SENDER_HEARS))
    assert set(INBOUND) == set(itertools.product(RECEIVER_STAGES, RECEIVER_HEARS))


@pytest.mark.parametrize(("stage", "heard"), list(itertools.product(SENDER_STAGES, SENDER_HEARS)))
def test_sender_walks_every_pair_of_the_table(stage: FlowStage, heard: HeardFlow) -> None:
    flows = sender_in(stage)
    step = OUTBOUND[stage, heard]
    if step.answer is Answer.VIOLATION:
        with pytest.raises(ProtocolViolation):
            flows.take_acknowledgement(1, heard)
        return
    answer, _ = flows.take_acknowledgement(1, heard)
    assert answer is step.answer
    assert flows.stage_of(1) is step.next
    assert flows.quota == (9 if step.next is FlowStage.AWAIT_PUBCOMP else 10)


@pytest.mark.parametrize(("stage", "heard"), list(itertools.product(RECEIVER_STAGES, RECEIVER_HEARS)))
def test_receiver_walks_every_pair_of_the_table(stage: FlowStage, heard: HeardFlow) -> None:
    flows = receiver_in(stage)
    step = INBOUND[stage, heard]

    def hear() -> Answer:
        if heard is HeardFlow.PUBREL:
            return flows.take_pubrel(1)
        dup = heard is HeardFlow.PUBLISH_1_DUP
        return flows.take_publish(Publish("a", b"", 2 if heard is HeardFlow.PUBLISH_2 else 1, dup=dup, packet_id=1))

    if step.answer is Answer.VIOLATION:
        with pytest.raises(ProtocolViolation):
            hear()
        return
    assert hear() is step.answer
    assert flows.stage_of(1) is step.next


def test_identifiers_wrap_round_and_skip_those_in_use() -> None:
    flows: OutboundFlows[int] = OutboundFlows(10)
    flows.reconnected(10)
    assert flows.start(0, 1) == 1
    for n in range(2, 65_536):
        assert flows.start(n, 1) == n
        flows.take_acknowledgement(n, HeardFlow.PUBACK)
    assert flows.start(0, 1) == 2


@given(st.lists(st.one_of(st.sampled_from([1, 2]), st.tuples(st.sampled_from(SENDER_HEARS), st.integers(1, 6)))))
def test_the_short_ways_do_as_the_long_ones(steps: list[int | tuple[HeardFlow, int]]) -> None:
    long: OutboundFlows[object] = OutboundFlows(4)
    short: OutboundFlows[object] = OutboundFlows(4)
    long.reconnected(3)
    short.reconnected(3)
    for step in steps:
        item = object()
        if isinstance(step, int):
            assert short.begin_flow(item, step) == (long.start(item, step) if long.may_start else 0)
            continue
        heard, packet_id = step
        if OUTBOUND[long.stage_of(packet_id), heard].answer is Answer.VIOLATION:
            assert heard is not HeardFlow.PUBACK or short.take_puback(packet_id) is None
            continue
        _, found = long.take_acknowledgement(packet_id, heard)
        if heard is not HeardFlow.PUBACK or short.take_puback(packet_id) is not found:
            short.take_acknowledgement(packet_id, heard)
        assert (short.quota, short.unacknowledged, short.released) == (
            long.quota,
            long.unacknowledged,
            long.released,
        )


def test_what_is_to_be_repeated_goes_the_long_ways() -> None:
    flows: OutboundFlows[str] = OutboundFlows(4)
    flows.reconnected(4)
    assert flows.begin_flow("m", 1) == 1
    flows.reconnected(4)
    assert flows.begin_flow("n", 1) == 0
    assert flows.take_puback(1) is None, "it took no quota of this connection"
    assert flows.take_acknowledgement(1, HeardFlow.PUBACK) == (Answer.DONE, "m")
    assert flows.quota == 4


def test_begin_wraps_round_and_skips_identifiers_in_use() -> None:
    flows: OutboundFlows[str] = OutboundFlows(4)
    flows.reconnected(4)
    flows.restore_flows({MAXIMUM_PACKET_ID - 1: ("old", 1), 1: ("older", 1)}, ())
    flows._last_id = MAXIMUM_PACKET_ID - 2
    assert [flows.begin_flow("m", 1), flows.begin_flow("m", 1), flows.begin_flow("m", 1)] == [MAXIMUM_PACKET_ID, 2, 0]


def test_quota_is_never_more_than_the_peers_receive_maximum() -> None:
    flows: OutboundFlows[str] = OutboundFlows(100)
    flows.reconnected(2)
    flows.start("a", 2)
    flows.start("b", 1)
    assert not flows.may_start
    flows.take_acknowledgement(1, HeardFlow.PUBREC)
    assert not flows.may_start, "PUBREC is not the end"
    flows.take_acknowledgement(1, HeardFlow.PUBCOMP)
    assert flows.may_start
    for _ in range(3):
        flows.take_acknowledgement(2, HeardFlow.PUBACK)
    assert flows.quota == 2


def test_repetition_keeps_the_order_and_goes_before_anything_new() -> None:
    flows: OutboundFlows[str] = OutboundFlows(100)
    flows.reconnected(100)
    for item in "abcd":
        flows.start(item, 2)
    flows.take_acknowledgement(2, HeardFlow.PUBREC)
    flows.reconnected(2)
    assert flows.next_repeat() == (1, "a", 2)
    assert flows.next_repeat() == (3, "c", 2)
    assert flows.next_repeat() is None
    assert not flows.may_start
    flows.take_acknowledgement(2, HeardFlow.PUBCOMP)
    assert flows.next_repeat() is None, "a PUBREL of an older connection took no quota of this one"
    flows.take_acknowledgement(1, HeardFlow.PUBREC_REFUSED)
    assert flows.next_repeat() == (4, "d", 2)


def test_acknowledged_before_it_was_repeated() -> None:
    flows: OutboundFlows[str] = OutboundFlows(100)
    flows.reconnected(1)
    flows.start("a", 1)
    flows.reconnected(1)
    assert flows.take_acknowledgement(1, HeardFlow.PUBACK) == (Answer.DONE, "a")
    assert flows.next_repeat() is None
    assert flows.quota == 1


def test_receive_maximum_is_enforced_for_those_who_know_it() -> None:
    for enforced in (True, False):
        flows = InboundFlows()
        flows.reconnected(2, enforced)
        flows.take_publish(Publish("a", b"", 1, packet_id=1))
        second = Publish("a", b"", 2, packet_id=2)
        flows.take_publish(second)
        assert flows.full
        third = Publish("a", b"", 1, packet_id=3)
        if enforced:
            with pytest.raises(ReceiveMaximumExceeded):
                flows.take_publish(third)
            assert flows.settle_routed(second, refused=False)
            assert flows.full, "QoS 2 counts until PUBREL"
            flows.take_pubrel(2)
            assert not flows.full
        assert flows.take_publish(third) is Answer.ROUTE


def test_a_late_acceptance_is_not_taken_for_another_message() -> None:
    flows = InboundFlows()
    flows.reconnected(10, enforced=True)
    old = Publish("a", b"", 1, packet_id=1)
    flows.take_publish(old)
    flows.reconnected(10, enforced=True)
    assert not flows.settle_routed(old, refused=False)
    new = Publish("b", b"", 1, packet_id=1)
    flows.take_publish(new)
    assert not flows.settle_routed(old, refused=False)
    assert flows.settle_routed(new, refused=False)


def test_qos_2_is_remembered_over_a_reconnect_while_it_is_being_accepted() -> None:
    flows = InboundFlows()
    flows.reconnected(10, enforced=True)
    first = Publish("a", b"", 2, packet_id=1)
    flows.take_publish(first)
    flows.reconnected(10, enforced=True)
    again = Publish("a", b"", 2, dup=True, packet_id=1)
    assert flows.take_publish(again) is Answer.NOTHING
    assert flows.settle_routed(first, refused=False)
    assert flows.take_publish(again) is Answer.SEND_PUBREC


@pytest.mark.parametrize("how", ["accepted", "still undecided", "of an earlier process"])
def test_a_repetition_at_qos_1_is_overtaken_until_what_came_after_it_is_repeated_too(how: str) -> None:
    flows = InboundFlows()
    flows.reconnected(10, enforced=True)
    for packet_id, topic, retain in ((1, "kept", True), (2, "live", False)):
        publish = Publish(topic, b"", 2, retain, packet_id=packet_id)
        flows.take_publish(publish)
        if how != "still undecided":
            flows.settle_routed(publish, refused=False)
    assert not flows.is_overtaken("kept"), "what comes now comes after it"
    if how == "of an earlier process":
        before, flows = flows, InboundFlows()
        flows.restore_flows(before.awaiting_pubrel)
    flows.reconnected(10, enforced=True)
    assert [flows.is_overtaken(topic) for topic in ("kept", "live", "else")] == [True, False, False]
    flows.take_publish(Publish("kept", b"", 2, True, dup=True, packet_id=1))
    assert not flows.is_overtaken("kept")


def test_what_was_released_or_refused_overtakes_nothing() -> None:
    flows = InboundFlows()
    flows.reconnected(10, enforced=True)
    first, second = (Publish("kept", b"", 2, True, packet_id=number) for number in (1, 2))
    flows.take_publish(first)
    flows.take_publish(second)
    flows.settle_routed(first, refused=False)
    flows.reconnected(10, enforced=True)
    flows.take_pubrel(1)
    assert flows.is_overtaken("kept")
    flows.settle_routed(second, refused=True)
    assert not flows.is_overtaken("kept")


def test_what_has_nothing_shares_what_stays_empty() -> None:
    one, other = OutboundFlows[str](4), OutboundFlows[str](4)
    one.reconnected(4)
    one.begin_flow("m", 2)
    one.take_acknowledgement(1, HeardFlow.PUBREC)
    assert not other.unacknowledged
    assert not other.released
    with pytest.raises(AssertionError):
        NONE[1] = "m"
    with pytest.raises(AssertionError):
        NONE.update({1: "m"})


@pytest.mark.parametrize("stage", SENDER_STAGES)
def test_a_sender_that_rests_keeps_what_is_under_way_and_no_empty_table(stage: FlowStage) -> None:
    flows = sender_in(stage)
    flows.give_back_tables()
    assert flows.stage_of(1) is stage
    assert (flows.unacknowledged is NONE) is (stage in (FlowStage.FREE, FlowStage.AWAIT_PUBCOMP))
    assert (flows.released is NONE) is (stage is not FlowStage.AWAIT_PUBCOMP)
    assert [flows.start("n", qos) for qos in (1, 2)] == ([1, 2] if stage is FlowStage.FREE else [2, 3])


@pytest.mark.parametrize("stage", RECEIVER_STAGES)
def test_a_receiver_that_rests_keeps_what_is_under_way_and_no_empty_table(stage: FlowStage) -> None:
    flows = receiver_in(stage)
    flows.give_back_tables()
    assert flows.stage_of(1) is stage
    assert (flows.accepting is NONE) is (stage in (FlowStage.FREE, FlowStage.AWAIT_PUBREL))
    assert (flows.awaiting_pubrel is NONE) is (stage is not FlowStage.AWAIT_PUBREL)
    publish = Publish("a", b"", 2, packet_id=7)
    assert flows.take_publish(publish) is Answer.ROUTE
    assert flows.settle_routed(publish, refused=False)
    assert flows.stage_of(7) is FlowStage.AWAIT_PUBREL


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_its_connection_dropped_is_new_when_it_comes_again(qos: int) -> None:
    flows = InboundFlows()
    flows.reconnected(10, enforced=True)
    first = Publish("t", b"", qos, packet_id=1)
    assert flows.take_publish(first) is Answer.ROUTE
    flows.forgo(first)
    flows.reconnected(10, enforced=True)
    again = Publish("t", b"", qos, dup=True, packet_id=1)
    assert flows.take_publish(again) is Answer.ROUTE
    flows.forgo(first)
    assert flows.stage_of(1) is not FlowStage.FREE, "only the very message that was dropped"


@given(
    st.lists(st.one_of(st.lists(st.sampled_from([1, 2]), max_size=5), st.lists(st.integers(0, 7), max_size=5)))
    , st.integers(MAXIMUM_PACKET_ID - 4, MAXIMUM_PACKET_ID)
)  # fmt: skip
def test_runs_do_as_single_messages(steps: list[list[int]], last_id: int) -> None:
    alone: OutboundFlows[object] = OutboundFlows(4)
    run: OutboundFlows[object] = OutboundFlows(4)
    for flows in (alone, run):
        flows.reconnected(5)
        flows._last_id = last_id
    begins = True
    for step in steps:
        if begins:
            entries = [(object(), 1 + number % 2) for number in step]
            assert list(run.begin_flows(entries)) == [
                packet_id for each in entries if (packet_id := alone.begin_flow(*each))
            ]
        else:
            ids = [(last_id + number) % MAXIMUM_PACKET_ID or MAXIMUM_PACKET_ID for number in step]
            taken = [*itertools.takewhile(lambda item: item is not None, map(alone.take_puback, ids))]
            assert run.take_pubacks(ids) == taken
        assert (run.quota, run.unacknowledged, run._last_id) == (alone.quota, alone.unacknowledged, alone._last_id)
        begins = not begins


def test_a_run_of_acknowledgements_waits_for_repetitions() -> None:
    flows: OutboundFlows[str] = OutboundFlows(4)
    flows.reconnected(4)
    assert list(flows.begin_flows([("m", 1), ("n", 2)])) == [1, 2]
    assert flows.take_pubacks([1, 2]) == ["m"], "2 waits for PUBREC"
    flows.reconnected(4)
    assert flows.take_pubacks([2]) == []
    assert list(flows.begin_flows([("o", 1)])) == []


@pytest.mark.parametrize(
    "odd",
    [Publish("t", b"", 2, packet_id=3), Publish("t", b"", 1, True, packet_id=3), Publish("t", b"", 1, packet_id=1)],
    ids=["QoS 2", "retained", "identifier in use"],
)
def test_a_run_of_messages_ends_at_what_is_not_plain(odd: Publish) -> None:
    flows = InboundFlows()
    first, second = Publish("t", b"", 1, packet_id=1), Publish("t", b"", 1, packet_id=2)
    assert flows.routed_run([first, second, odd, Publish("t", b"", 1, packet_id=4)]) == 2
    assert flows.accepting == {1: first, 2: second}


def test_a_run_of_messages_ends_at_the_receive_maximum() -> None:
    flows = InboundFlows()
    flows.reconnected(2, enforced=True)
    run = [Publish("t", b"", 1, packet_id=number) for number in (1, 2, 3)]
    assert flows.routed_run(run) == 2
    assert flows.routed_run(run[2:]) == 0
