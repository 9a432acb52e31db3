"""Where publications travel: on topics that name their scope by its number, and have one spelling."""

from __future__ import annotations

import pytest

from bridge.document import (
    WireTopic,
    batch_topic,
    is_retained_topic,
    read_wire_topic,
    retained_filter,
    retained_topic,
    slot_of,
)
from keys.errors import BadFrame

pytestmark = pytest.mark.invariant(13)

ID, MEMBER = bytes(range(16)), b"m" * 16


@pytest.mark.parametrize("number", [1, 7, 4_294_967_295])
def test_wire_topics_name_the_scope_by_its_number(number: int) -> None:
    batch, retained = batch_topic(number), retained_topic(number, ID, MEMBER)
    assert read_wire_topic(batch) == WireTopic(number)
    assert read_wire_topic(retained) == WireTopic(number, ID, MEMBER)
    assert (is_retained_topic(batch), is_retained_topic(retained)) == (False, True)
    assert retained.startswith(retained_filter(number)[:-1])


@pytest.mark.parametrize("told", ["0", "01", "-1", "1/", "1/a", "", "+", "4294967296", "\u0661", "1 ", "99999999999"])
def test_a_number_has_one_spelling(told: str) -> None:
    for topic in (f"veilmq/batch/{told}", retained_topic(1, ID, MEMBER).replace("/1/", f"/{told}/")):
        with pytest.raises(BadFrame):
            read_wire_topic(topic)


@pytest.mark.parametrize(
    "change", [lambda t: t + "/a", lambda t: t[:-1], lambda t: t + "=", lambda t: t.replace("/1/", "/1//")]
)
def test_ids_have_one_spelling(change) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadFrame):
        read_wire_topic(change(retained_topic(1, ID, MEMBER)))


@pytest.mark.parametrize("topic", ["plant/1", "plant/veilmq/batch/1", "$veil/subscribe", "veilmq/other/1", ""])
def test_other_topics_name_no_scope(topic: str) -> None:
    with pytest.raises(BadFrame):
        read_wire_topic(topic)


def test_values_of_several_members_on_one_topic_have_one_slot() -> None:
    assert slot_of(retained_topic(1, ID, MEMBER)) == slot_of(retained_topic(1, ID, b"n" * 16))
    assert slot_of(retained_topic(1, ID, MEMBER)) != slot_of(retained_topic(2, ID, MEMBER))
    assert slot_of(retained_topic(1, ID, MEMBER)) != slot_of(retained_topic(1, MEMBER, MEMBER))
