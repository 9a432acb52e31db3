"""What the demonstration counts and how it judges itself: each defect alone fails a run."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from gateway.demo import setup
from gateway.demo.logs import (
    PROBE,
    SeenMessage,
    Sent,
)
from gateway.demo.report import (
    Blamed,
    DemoReport,
    KeyServiceTally,
    ReportRow,
    SparkTally,
    Tally,
    percentile,
    render,
    tally,
    tally_spark,
)
from gateway.demo.setup import REPLICAS
from gateway.demo.timeline import Timeline
from tests.gateway.demo.test_logs import seen, sent

NS = 1_000_000


REGIONS = list(setup.REGIONS.values())


KEY_SERVERS = setup.KEY_SERVERS


def by_id(*messages: Sent) -> dict[str, Sent]:
    return {message.id: message for message in messages}


@given(st.lists(st.sampled_from(["once", "never", "twice", "altered", "elsewhere"]), max_size=40), st.integers(0, 9))
@settings(max_examples=60)
def test_every_message_is_counted_for_what_happened_to_it(fates: list[str], invented: int) -> None:
    messages = [sent(str(number)) for number in range(len(fates))]
    received = [seen(sent(f"invented {number}")) for number in range(invented)]
    for fate, message in zip(fates, messages, strict=True):
        good = seen(message)
        received += {
            "once": [good],
            "never": [],
            "twice": [good, good],
            "altered": [replace(good, digest="0" * 64)],
            "elsewhere": [replace(good, topic="machine/y")],
        }[fate]
    random.Random(len(fates)).shuffle(received)
    counted = tally(by_id(*messages), received)
    arrived = fates.count("once") + fates.count("twice")
    assert (counted.published, counted.delivered, counted.lost) == (len(fates), arrived, len(fates) - arrived)
    assert counted.duplicated == fates.count("twice")
    assert counted.wrong == fates.count("altered") + fates.count("elsewhere") + invented
    assert len(counted.latencies_ms) == arrived

    rows = [ReportRow("p", 1, got.id, got.topic, got.digest) for got in received]
    assert tally_spark(by_id(*messages), rows) == SparkTally(
        counted.delivered, counted.lost, counted.wrong, counted.duplicated
    )


def test_probes_count_nowhere_and_unconfirmed_messages_are_neither_published_nor_wrong() -> None:
    messages = by_id(sent("a"), sent("b", confirmed=False))
    received = [seen(message) for message in messages.values()]
    received.append(SeenMessage(PROBE + "1", "machine/x/probe/v3", "", (), 0))
    counted = tally(messages, received)
    assert (counted.published, counted.delivered, counted.lost, counted.wrong) == (1, 1, 0, 0)
    rows = [ReportRow("p", n, got.id, got.topic, got.digest) for n, got in enumerate(received)]
    assert tally_spark(messages, rows) == SparkTally(1, 0, 0, 0)


def test_changed_user_properties_are_wrong() -> None:
    message = replace(sent("a"), properties=(("unit", "%"),))
    assert tally(by_id(message), [seen(message)]).wrong == 0
    assert tally(by_id(message), [replace(seen(message), properties=(("unit", "C"),))]).wrong == 1


def test_latency_runs_from_the_publishing_of_the_same_way() -> None:
    messages = by_id(sent("a", sent_ns=1 * NS, plain_ns=3 * NS))
    received = [seen(messages["a"], at_ns=10 * NS)]
    assert tally(messages, received).latencies_ms == (9.0,)
    assert tally(messages, received, plain=True).latencies_ms == (7.0,)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(values: list[float], part: float) -> None:
    found = percentile(values, part)
    assert found in values
    assert sum(value <= found for value in values) >= part * len(values)


def test_there_is_no_percentile_of_nothing() -> None:
    assert math.isnan(percentile([], 0.5))


TIMELINE = Timeline.draw(7, 45, REGIONS, KEY_SERVERS)


INNOCENT = next(name for name in REPLICAS if name not in (TIMELINE.liar, TIMELINE.killed))


GOOD = DemoReport(
    sealed=Tally(2, 2, 0, 0, 0, (4.0, 9.0)),
    plain=Tally(2, 2, 0, 0, 0, (1.0, 2.0)),
    unconfirmed=0,
    spark=SparkTally(2, 0, 0, 0),
    entities=(5, 5),
    unlinked=(),
    blamed=Blamed({TIMELINE.liar: {"control": 3}}, {}),
    timeline=TIMELINE,
    key_service=KeyServiceTally(4, 1, 5, 0),
    sample=None,
)


def test_a_run_in_which_everything_arrived_and_the_liar_is_suspected_succeeds() -> None:
    assert GOOD.failures() == []
    assert replace(GOOD, blamed=Blamed({}, {TIMELINE.liar: ["control"]})).failures() == []
    assert replace(GOOD, blamed=Blamed({TIMELINE.liar: {"r": 1}, INNOCENT: {"r": 1}}, {})).failures() == []


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (replace(GOOD, sealed=replace(GOOD.sealed, published=0)), "nothing was published"),
        (replace(GOOD, sealed=replace(GOOD.sealed, lost=1)), "lost"),
        (replace(GOOD, sealed=replace(GOOD.sealed, wrong=1)), "altered"),
        (replace(GOOD, sealed=replace(GOOD.sealed, duplicated=1)), "more than once"),
        (replace(GOOD, unconfirmed=1), "never confirmed"),
        (replace(GOOD, spark=replace(GOOD.spark, lost=1)), "no row in Spark"),
        (replace(GOOD, spark=replace(GOOD.spark, wrong=1)), "rows in Spark are altered"),
        (replace(GOOD, spark=replace(GOOD.spark, duplicated=1)), "more than once"),
        (replace(GOOD, blamed=Blamed({}, {})), "nobody suspects"),
        (replace(GOOD, blamed=Blamed({TIMELINE.liar: {"control": 1}}, {INNOCENT: ["control"]})), INNOCENT),
        (replace(GOOD, unlinked=("control",)), "down at control"),
    ],
)
def test_each_defect_alone_fails_the_run_and_is_told(bad: DemoReport, word: str) -> None:
    (failure,) = bad.failures()
    assert word in failure
    assert bad.to_json()["failures"] == [failure]
    assert failure in shown(bad)


def test_what_the_liar_says_about_others_or_itself_does_not_count() -> None:
    liar = TIMELINE.liar
    said = Blamed({INNOCENT: {liar: 9, "control": 1}, liar: {liar: 1}}, {INNOCENT: [liar], liar: ["control", liar]})
    honest = said.without(liar)
    assert honest.suspected == {INNOCENT: {"control": 1}}
    assert honest.named == {liar: ("control",)}


def shown(report: DemoReport) -> str:
    out = StringIO()
    Console(file=out, width=200).print(render(report))
    return out.getvalue()


def test_json_has_the_promised_keys_and_nothing_that_is_not_json() -> None:
    told = json.loads(json.dumps(GOOD.to_json(), allow_nan=False))
    promised = "published delivered lost wrong duplicated spark_rows blamed faults latency_ms"
    assert set(promised.split()) <= set(told)
    assert told["latency_ms"] == {"plain": {"p50": 1.0, "p99": 2.0}, "sealed": {"p50": 4.0, "p99": 9.0}}
    assert told["faults"]["liar"] == TIMELINE.liar
    empty = replace(GOOD, sealed=Tally(0, 0, 0, 0, 0, ()))
    json.dumps(empty.to_json(), allow_nan=False)
    assert "published" in shown(empty)
