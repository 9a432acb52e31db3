"""keys.grants: rights hold for their member's topics and epochs, and a grant has one spelling."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys.errors import BadFrame, OurFault
from keys.grants import ENDLESS, Grant, Right
from tests.keys.helpers import assert_canonical, assert_strict

BOTH = Right.PUBLISH | Right.READ
GRANT = Grant("gateway-1", "plant/+/state", BOTH, 3, 7)


def test_the_frame_of_a_grant_is_strict() -> None:
    assert_strict(Grant.decode, Grant.encode, GRANT.encode())  # type: ignore[arg-type]
    assert Grant.decode(GRANT.encode()) == GRANT


def test_a_grant_counts_from_its_first_to_its_last_epoch() -> None:
    assert [epoch for epoch in range(12) if GRANT.live(epoch)] == [3, 4, 5, 6, 7]
    assert Grant("m", "a", Right.READ).live(0)
    assert Grant("m", "a", Right.READ).live(ENDLESS)
    assert not replace(GRANT, first_epoch=8).live(7)  # revoked before it began


def test_one_right_is_not_the_other() -> None:
    publish, read = replace(GRANT, rights=Right.PUBLISH), replace(GRANT, rights=Right.READ)
    assert publish.may_publish("plant/a/state", 3)
    assert not read.may_publish("plant/a/state", 3)
    assert read.may_read_all("plant/+/state", 3)
    assert not publish.may_read_all("plant/+/state", 3)


def test_rights_are_those_of_the_filter_and_of_live_epochs() -> None:
    assert GRANT.may_publish("plant/a/state", 7)
    assert not GRANT.may_publish("plant/a/state", 8)
    assert not GRANT.may_publish("plant/a/speed", 7)
    assert GRANT.may_read_all("plant/a/state", 7)
    assert not GRANT.may_read_all("plant/a/state", 2)
    for wider in ("plant/#", "#", "+/+/state", "plant/+/+", "plant"):
        assert not GRANT.may_read_all(wider, 7)


def test_leading_wildcards_grant_nothing_below_dollar() -> None:
    """MQTT 5.0 §4.7.2: `#` and `+/...` do not match topics that start with `$`."""
    for everything in ("#", "+/x"):
        grant = Grant("m", everything, BOTH)
        assert not grant.may_publish("$veil/x", 0)
        assert not grant.may_read_all("$veil/x", 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"rights": Right(0)},
        {"filter": "a/#/b"},
        {"filter": ""},
        {"filter": "$share/g/a"},
        {"first_epoch": -1},
        {"last_epoch": 1 << 32},
    ],
)
def test_grants_that_cannot_be_are_not_made(changes: dict[str, object]) -> None:
    with pytest.raises(OurFault):
        replace(GRANT, **changes).encode()  # type: ignore[arg-type]


def test_grants_that_cannot_be_are_not_read() -> None:
    frame = GRANT.encode()
    at = frame.index(b"plant")
    for offset, data in ((2, b"\0"), (2, b"\4"), (at, b"#"), (at, b"\0"), (at, b"\xff")):
        with pytest.raises(BadFrame):
            Grant.decode(frame[:offset] + data + frame[offset + len(data) :])


@settings(max_examples=80)
@given(st.integers(0, 45), st.binary(min_size=1, max_size=4))
def test_arbitrary_changes_are_refused_or_canonical(offset: int, data: bytes) -> None:
    frame = GRANT.encode()
    assert_canonical(Grant.decode, Grant.encode, frame[:offset] + data + frame[offset + len(data) :])  # type: ignore[arg-type]


def test_to_publish_under_a_filter_takes_the_right_in_that_epoch_to_all_that_it_matches() -> None:
    assert GRANT.may_publish_all("plant/+/state", 3)
    assert GRANT.may_publish_all("plant/a/state", 7)
    assert not replace(GRANT, rights=Right.READ).may_publish_all("plant/a/state", 3)
    assert not GRANT.may_publish_all("plant/a/state", 8)
    for wider in ("plant/#", "#", "plant/a"):
        assert not GRANT.may_publish_all(wider, 3)
