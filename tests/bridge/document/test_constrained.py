"""The grammar of constrained topics: the source's own examples, equivalences, and what must not get through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.base.topics import TopicError, matches
from bridge.document import constrained
from bridge.document.constrained import BROKER, Actions, Constrained, Distribution, canonical, is_constrained, parse

UUID = "0f8c2c0e-5f0b-4c7a-9d41-0a61c0ffee00"

EXAMPLES = {
    # Section 3.1.2 of the source: both are one topic.
    "/Constrained/Traces/Broker/PublishSubscribe/Limited": "$Constrained/Traces/Broker/PublishSubscribe/Suppress",
    "/Constrained/Traces/Limited": "$Constrained/Traces/Broker/PublishSubscribe/Suppress",
    "/Constrained/Traces/Broker/Subscribe_Only/Limited/T": "$Constrained/Traces/Broker/SubscribeOnly/Suppress/T",
    "/Constrained/Traces/Broker/Subscribe-Only/Registration":
        "$Constrained/Traces/Broker/SubscribeOnly/Disseminate/Registration",
    f"/Constrained/Traces/pump-7/Subscribe-Only/{UUID}/s1":
        f"$Constrained/Traces/pump-7/SubscribeOnly/Disseminate/{UUID}/s1",
    f"/Constrained/Traces/Broker/Publish-Only/{UUID}/ChangeNotifications":
        f"$Constrained/Traces/Broker/PublishOnly/Disseminate/{UUID}/ChangeNotifications",
    f"Constrained/Traces/Publish/{UUID}/Load": f"$Constrained/Traces/Broker/PublishOnly/Disseminate/{UUID}/Load",
    "$Constrained": "$Constrained/RealTime/Broker/PublishSubscribe/Disseminate",
    "$Constrained/Broker": "$Constrained/RealTime/Broker/PublishSubscribe/Disseminate",
    "$Constrained/Suppress/x": "$Constrained/RealTime/Broker/PublishSubscribe/Suppress/x",
    f"$Constrained/Traces/Publish-Only/{UUID}/#": f"$Constrained/Traces/Broker/PublishOnly/Disseminate/{UUID}/#",
}  # fmt: skip


@pytest.mark.parametrize(("spelled", "routed"), EXAMPLES.items())
def test_examples(spelled: str, routed: str) -> None:
    assert canonical(spelled) == routed
    assert canonical(routed) == routed


@pytest.mark.parametrize("spelled", ["plant/a", *EXAMPLES])
def test_what_it_means_comes_with_the_spelling_that_is_routed(spelled: str) -> None:
    assert constrained.spelled(spelled) == (parse(spelled), canonical(spelled))


def test_a_topic_in_the_canonical_spelling_is_routed_as_the_very_string_that_came() -> None:
    """Each subscription keeps its own; and few topics are remembered, whoever writes them."""
    for came in (*dict.fromkeys(EXAMPLES.values()), "plant/a"):
        constrained.spelled.cache_clear()
        assert canonical(came) is came
    for number in range(2 * constrained.PARSED_KEPT):
        canonical(f"$Constrained/Traces/{number}")
    assert constrained.spelled.cache_info().currsize == constrained.PARSED_KEPT


@pytest.mark.parametrize("topic", ["plant/a", "/Constrain/x", "ConstrainedX/y", "x/Constrained/y", "$SYS/broker", "#"])
def test_other_topics_stay_as_they_are(topic: str) -> None:
    assert parse(topic) is None
    assert canonical(topic) == topic


names = st.text("abcXYZ019", min_size=1, max_size=6).filter(lambda name: not is_constrained(name))
topics = st.builds(
    Constrained,
    event_type=names.map(lambda name: f"E{name}"),
    constrainer=st.one_of(st.just(BROKER), names.map(lambda name: f"c{name}")),
    actions=st.sampled_from(Actions),
    distribution=st.sampled_from(Distribution),
    suffixes=st.lists(names.map(lambda name: f"s{name}"), max_size=3).map(tuple),
)


@given(topics)
def test_the_canonical_spelling_reads_back(topic: Constrained) -> None:
    assert parse(str(topic)) == topic


@given(topics, st.sampled_from(["/Constrained", "Constrained", "$Constrained"]), st.sampled_from("-_ "))
def test_all_spellings_are_one_topic(topic: Constrained, prefix: str, hyphen: str) -> None:
    actions = topic.actions.replace("Only", f"{hyphen.strip()}Only")
    spelled = "/".join([prefix, topic.event_type, topic.constrainer, actions, topic.distribution, *topic.suffixes])
    assert canonical(spelled) == str(topic)


@given(topics)
def test_defaults_may_be_left_out(topic: Constrained) -> None:
    levels = ["$Constrained", topic.event_type]
    if topic.constrainer != BROKER:
        levels.append(topic.constrainer)
    if topic.actions is not Actions.BOTH or topic.constrainer != BROKER:
        levels.append(topic.actions)
    if topic.distribution is not Distribution.DISSEMINATE:
        levels.append(topic.distribution)
    # Without an action a suffix could be taken for a constrainer only if an action followed it, which none does here.
    assert canonical("/".join([*levels, *topic.suffixes])) == str(topic)


@given(topics)
def test_no_wildcard_from_the_left_sees_a_constrained_topic(topic: Constrained) -> None:
    for everything in ("#", "+/#", "/#", "+/+/#"):
        assert not matches(everything, str(topic))


@pytest.mark.parametrize(
    "guessing",
    [
        "$Constrained/#",
        "/Constrained/#",
        "/Constrained/+/Broker/Publish-Only/#",
        "/Constrained/Traces/+/Publish-Only/x",
        "/Constrained/Traces/Broker/Publish-Only/#",
        "/Constrained/Traces/Broker/Publish-Only/+/ChangeNotifications",
        "$Constrained/Traces/Broker/+/Disseminate/x",
        "$Constrained//Broker/x",
    ],
)
def test_nobody_guesses_a_trace_topic_by_wildcards(guessing: str) -> None:
    with pytest.raises(TopicError):
        parse(guessing)


@pytest.mark.parametrize(
    ("actions", "who", "publish", "subscribe"),
    [
        (Actions.PUBLISH, "constrainer", True, True),
        (Actions.PUBLISH, "other", False, True),
        (Actions.SUBSCRIBE, "constrainer", True, True),
        (Actions.SUBSCRIBE, "other", True, False),
        (Actions.BOTH, "constrainer", True, True),
        (Actions.BOTH, "other", False, False),
    ],
)
def test_who_may_do_what(actions: Actions, who: str, publish: bool, subscribe: bool) -> None:
    of_entity = Constrained("Traces", "pump", actions, Distribution.DISSEMINATE, ())
    of_broker = Constrained("Traces", BROKER, actions, Distribution.DISSEMINATE, ())
    entity_is = who == "constrainer"
    name = "pump" if entity_is else "spy"
    assert of_entity.may_publish(name, is_broker=False) is publish
    assert of_entity.may_subscribe(name, is_broker=False) is subscribe
    assert of_broker.may_publish("pump", is_broker=entity_is) is publish
    assert of_broker.may_subscribe("pump", is_broker=entity_is) is subscribe


def test_a_client_called_broker_is_none() -> None:
    topic = parse("$Constrained/Traces/Broker/Publish-Only/T")
    assert topic is not None
    assert not topic.may_publish(BROKER, is_broker=False)
    mine = parse("$Constrained/Traces/pump/Publish-Only/T")
    assert mine is not None
    assert not mine.may_publish("pump", is_broker=True), "a broker is not the entity of that name"


def test_suppressed_topics_stay_where_they_are() -> None:
    here, far = parse("$Constrained/Traces/Limited/T"), parse("$Constrained/Traces/T")
    assert here is not None
    assert far is not None
    assert here.stays_here
    assert not far.stays_here
