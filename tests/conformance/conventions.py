"""Statements of the conventions by which devices say that they are there, in our own words, each with its test.

As `elsewhere` for MQTT: a test is a path and a function. An empty one: that is not done, and the table says so.
"""

from __future__ import annotations

from typing import NamedTuple

_DEVICES = "tests/bridge/devices/"
_HOST, _READ, _JUDGED = f"{_DEVICES}test_host.py::", f"{_DEVICES}test_conventions.py::", f"{_DEVICES}test_devices.py::"
_SHOWN, _NUMBERS = f"{_DEVICES}test_dashboards.py::", f"{_DEVICES}test_sparkplug.py::"
_SCHEMA, _GATE = f"{_DEVICES}test_home_assistant_schema.py::", "tests/gateway/test_traced_devices.py::"


class Statement(NamedTuple):
    """`where`: in the source; of Sparkplug the names of its conformance kit."""

    where: str
    text: str
    test: str = ""


SPARKPLUG = (
    Statement(
        "host-topic-phid-required",
        "A host application says on `STATE/NAME`, retained, with QoS 1, that it is there, and since when, in "
        "JSON",
        f"{_NUMBERS}test_state_is_json_with_a_time",
    ),
    Statement(
        "host-topic-phid-death-required",
        "When it stops, it says there that it is not",
        f"{_GATE}test_a_host_application_says_that_it_stops",
    ),
    Statement("termination-host-action-ndeath-node-offline", "A death ends the node", f"{_HOST}node_dies"),
    Statement("termination-host-action-ndeath-devices-offline", "With it end all its devices", f"{_HOST}node_dies"),
    Statement(
        "termination-host-offline",
        "A death with the `bdSeq` of another session ends nothing",
        f"{_HOST}old_death_is_ignored",
    ),
    Statement("device-ddeath", "The death of a device is that device's alone", f"{_HOST}device_death_is_the_devices"),
    Statement(
        "topics-nbirth-seq-num, payloads-sequence-num-incrementing",
        "`seq` rises by one, and 0 follows 255",
        f"{_NUMBERS}test_messages_follow_each_other_by_one_and_zero_follows_255",
    ),
    Statement(
        "host-reordering-rebirth",
        "When a `seq` is missing for two seconds the node is asked for a rebirth",
        f"{_HOST}gap_asks_for_rebirth",
    ),
    Statement(
        "host-reordering-start, host-reordering-success",
        "A message that comes late fills its gap, and nothing is asked",
        f"{_HOST}what_comes_late_asks_for_nothing",
    ),
    Statement(
        "topics-nbirth (4.5)",
        "After a birth of the node its devices are stale until each is born again",
        f"{_HOST}a_device_is_stale_until_it_is_born_again",
    ),
    Statement(
        "payloads-nbirth-rebirth-req",
        "So it is when it sends data before its birth, or after its death",
        f"{_HOST}data_before_birth_asks_for_rebirth",
    ),
    Statement(
        "topics-ncmd-payload, payloads-ncmd-qos",
        "That command is `Node Control/Rebirth`, true, QoS 0, not retained, without `seq`",
        f"{_NUMBERS}test_a_rebirth_request_is_what_the_specification_asks_for",
    ),
    Statement(
        "payloads-alias-data-cmd-requirement",
        "An alias in data stands for the name that a birth of this session gave with it; one that none gave "
        "asks for a rebirth",
        f"{_HOST}unknown_alias_asks_for_rebirth",
    ),
    Statement(
        "payloads-alias-birth-requirement",
        "Births of the node and of its devices share one space of aliases; a new birth of the node begins it "
        "anew",
        f"{_NUMBERS}test_aliases_are_resolved_by_the_births_of_a_session",
    ),
    Statement(
        "conformance-mqtt-aware-store",
        "An aware server keeps the last NBIRTH and DBIRTH on `$sparkplug/certificates/…`, retained",
        f"{_HOST}births_are_kept",
    ),
    Statement("conformance-mqtt-aware-ndeath-timestamp", "It may put its own time into a stored NDEATH"),
    Statement("host-reordering-param", "The time for which a number is waited for is no option"),
    Statement("operational-behavior-data-commands", "A host may send commands with values"),
)  # fmt: skip

HOME_ASSISTANT = (
    Statement(
        "discovery topic",
        "A document on `homeassistant/COMPONENT/…/config` describes an entity",
        f"{_READ}test_home_assistant_availability_topic",
    ),
    Statement(
        "discovery, abbreviations",
        "Keys may be abbreviated, and `~` is a base topic",
        f"{_READ}test_home_assistant_abbreviations_base_topics_and_own_payloads",
    ),
    Statement(
        "`availability`",
        "A list of topics, each with payloads and a template of its own",
        f"{_READ}test_home_assistant_lists_of_availability",
    ),
    Statement(
        "`availability_mode`",
        "`all`, `any`, or the `latest` word, which is the default",
        f"{_JUDGED}test_words_on_several_topics_count_by_the_mode",
    ),
    Statement(
        "`value_template`",
        "`{{ value_json.KEY }}` takes the word from a JSON object",
        f"{_READ}test_home_assistant_words_inside_json",
    ),
    Statement(
        "`expire_after`",
        "Without a message on its state topic for so long an entity is not available",
        f"{_JUDGED}test_a_state_that_expires_is_a_heartbeat",
    ),
    Statement(
        "device discovery",
        "One document on `homeassistant/device/…/config` describes a device with its components; what stands "
        "at its top is for each of them",
        f"{_READ}test_a_device_document_names_the_availability_of_all_its_components",
    ),
    Statement(
        "removal",
        "What we show is removed by an empty document",
        f"{_SHOWN}test_whatever_was_shown_is_cleared_and_described_anew",
    ),
    Statement(
        "binary sensor schema",
        "Our documents have keys that the integration knows, of the types that it takes",
        f"{_SCHEMA}test_what_we_show_fits_the_schema_of_the_integration",
    ),
    Statement(
        "`default_entity_id`",
        "Ours name their entity so, and not by `object_id`, which is gone",
        f"{_SCHEMA}test_what_we_show_fits_the_schema_of_the_integration",
    ),
    Statement("templates", "Other templates are programs, which are not run"),
)  # fmt: skip

HOMIE = (
    Statement(
        "4, 5: Device Lifecycle",
        "`$state` is init, ready, disconnected, sleeping or lost; in version 4 also alert",
        f"{_READ}test_homie_states_of_both_versions",
    ),
    Statement("4, 5: Device Lifecycle", "Who sleeps is not missed", f"{_JUDGED}test_who_sleeps_is_not_missed"),
    Statement(
        "4, 5: Last Will",
        "`lost` is the will of the connection: the device failed",
        f"{_JUDGED}test_homie_states",
    ),
    Statement(
        "4, 5: removal",
        "An empty `$state` removes the device",
        f"{_READ}test_an_empty_homie_state_clears_the_device",
    ),
    Statement(
        "5: Topology",
        "A child names its root, with which it is lost",
        f"{_JUDGED}test_a_child_of_homie_is_lost_with_its_root",
    ),
    Statement(
        "5: Device hierarchy",
        "While its root is not lost a child has its own state, which need not be said again",
        f"{_JUDGED}test_a_root_that_is_lost_takes_its_children_with_it_and_brings_them_back",
    ),
    Statement(
        "5: Device hierarchy",
        "A root that says `disconnected` changes no state of a child",
        f"{_JUDGED}test_a_root_that_says_disconnected_ends_no_child_but_the_end_of_its_connection_does",
    ),
    Statement(
        "5: Domain and Root Topic, Auto-Discovery",
        "The domain may be any one level: `+/5/+/$state` is read",
        f"{_READ}test_devices_of_homie_5_stand_below_any_domain",
    ),
    Statement(
        "5: Device Lifecycle",
        "A device exists once it says a state",
        f"{_JUDGED}test_a_description_alone_is_no_device",
    ),
    Statement(
        "5: Alerts",
        "What is amiss stands on `$alert/ID`, as many as there are, each until it is empty",
        f"{_JUDGED}test_alerts_of_homie_5_are_amiss_until_all_are_over",
    ),
    Statement(
        "5: Device Lifecycle, Alerts",
        "What we show has a state of version 5, and an alert where something is amiss",
        f"{_SHOWN}test_what_is_amiss_is_an_alert_of_homie_5_and_no_state",
    ),
    Statement(
        "5: Topic IDs",
        "Ids that we make have lowercase letters, digits and hyphens",
        f"{_SHOWN}test_any_name_is_one_plain_level_and_different_ones_stay_different",
    ),
    Statement("4, 5: nodes, properties, `$log`, broadcasts", "They say nothing about who is there, and are not read"),
)  # fmt: skip

CONVENTIONS: dict[str, tuple[str, tuple[Statement, ...]]] = {
    "Sparkplug B": ("Eclipse Sparkplug Specification 3.0.0 (ISO/IEC 20237)", SPARKPLUG),
    "Home Assistant": ("Home Assistant's MQTT integration, discovery and availability", HOME_ASSISTANT),
    "Homie": ("The Homie Convention 4.0.0 and 5.0.0", HOMIE),
}
