"""Words and numbers of the wire that may never change: domains of signatures, topics, kinds of traces."""

from __future__ import annotations

import pytest

from bridge.document import policy, region_view
from bridge.groups import leases
from bridge.measuring import summaries
from bridge.membership import adopting, endorsing, key_service
from bridge.presence import word
from bridge.traces import kinds
from bridge.traces.kinds import Interest, TraceKind
from bridge.tracking import discovery
from bridge.wire import pieces, pulling, statements

TOPIC, SESSION = bytes(range(16)), b"s" * 16
UUID, HEX = "00010203-0405-0607-0809-0a0b0c0d0e0f", "73" * 16


def test_domains_of_signatures() -> None:
    domains = {
        policy.DOMAIN_POLICY: "policy",
        region_view.DOMAIN_VIEW: "view",
        region_view.DOMAIN_ENDORSEMENT: "endorsement",
        statements.DOMAIN: "subscription",
        leases.DOMAIN: "group lease",
        discovery.DOMAIN_REQUEST: "trace discovery",
        kinds.DOMAIN_INTEREST: "trace interest",
        summaries.DOMAIN_SUMMARY: "summary",
        summaries.DOMAIN_INTEREST_FILTER: "interest filter",
        word.DOMAIN_PRESENCE: "presence",
    }
    assert {domain: f"veilmq/1 {what}" for domain, what in domains.items()} == {domain: domain for domain in domains}


def test_topics_of_control() -> None:
    assert (adopting.OVERLAY_TOPIC, endorsing.VIEWS_TOPIC, key_service.GRANT_TOPIC) == (
        "$veil/overlay", "$veil/views", "$veil/grant",
    )  # fmt: skip
    assert (statements.SUBSCRIBE_TOPIC, pulling.PULL_TOPIC, leases.GROUPS_TOPIC) == (
        "$veil/subscribe", "$veil/pull", "$veil/groups",
    )  # fmt: skip
    assert (summaries.SUMMARY_TOPIC, word.PRESENCE_TOPIC) == ("$veil/summaries", "$veil/presence")
    assert pieces.PROPERTY_PART == "vmq-part"


def test_kinds_of_traces_and_of_interest() -> None:
    said = (
        "INITIALIZING RECOVERING READY SHUTDOWN FAILURE_SUSPICION FAILED DISCONNECT JOIN REVERTING_TO_SILENT_MODE"
        " ALLS_WELL LOAD_INFORMATION NETWORK_METRICS GAUGE_INTEREST UNKNOWN"
    )
    known = {kind.name: kind.value for kind in TraceKind}
    assert [known[name] for name in said.split()] == list(range(1, 15))
    assert {one.name: one.value for one in Interest} == {
        "CHANGES": 1, "ALL_UPDATES": 2, "STATES": 4, "LOAD": 8, "NETWORK": 16,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("interest", "suffix"),
    [
        (Interest.CHANGES, "ChangeNotifications"),
        (Interest.ALL_UPDATES, "AllUpdates"),
        (Interest.STATES, "StateTransitions"),
        (Interest.LOAD, "Load"),
        (Interest.NETWORK, "NetworkMetrics"),
    ],
)
def test_where_traces_go(interest: Interest, suffix: str) -> None:
    assert kinds.trace_topic(TOPIC, interest) == f"{TRACES}/Broker/PublishOnly/Disseminate/{UUID}/{suffix}"


TRACES = "$Constrained/Traces"


def test_topics_of_traces() -> None:
    listens, stays = f"{TRACES}/Broker/SubscribeOnly/Disseminate", f"{TRACES}/Broker/SubscribeOnly/Suppress"
    assert f"{stays}/Registration" == kinds.REGISTRATION_TOPIC
    assert f"{stays}/TopicCreation" == kinds.CREATION_TOPIC
    assert f"{stays}/Discovery" == kinds.DISCOVERY_TOPIC
    assert f"{listens}/+/Interest" == kinds.ANSWERS_FILTER
    assert kinds.answer_topic(TOPIC) == f"{listens}/{UUID}/Interest"
    assert kinds.gauge_topic(TOPIC) == f"{TRACES}/Broker/PublishOnly/Disseminate/{UUID}/Interest"
    assert kinds.to_broker(TOPIC, SESSION) == f"{stays}/{UUID}/{HEX}"
    assert kinds.to_entity("pump", TOPIC, SESSION) == f"{TRACES}/pump/SubscribeOnly/Suppress/{UUID}/{HEX}"
    assert kinds.key_topic("desk", TOPIC) == f"{TRACES}/desk/SubscribeOnly/Disseminate/{UUID}/Keys"
    assert kinds.answers_to("pump") == f"{TRACES}/pump/SubscribeOnly/Suppress/Answers"
    advertised = f"{TRACES}/Broker/PublishSubscribe/Disseminate/Advertisements"
    assert f"{advertised}/+" == kinds.ADVERTISEMENTS_FILTER
    assert kinds.advertisement_topic(TOPIC) == f"{advertised}/{UUID}"
